"""Replies of tools and routes: which fields their JSON and its schema have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, NotRequired, TypeVar, get_args, get_origin, get_type_hints

from pydantic import GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema

JsonReply = dict[str, Any]
Function = TypeVar("Function", bound=Callable[..., Any])


class Shown:
    """In `Annotated[JsonReply, Shown(count=int)]` it says which fields a reply has, by their types.

    Given a record of the library as well, the reply has its fields, too: those in `only`, without
    `only` all but those in `without`; it may be the record itself, or a dict with these fields.
    """

    def __init__(self, record: Any = None, /, *, only: str = "", without: str = "", **more: Any):
        self._record, self._more = record, more
        self._only, self._without = only.split(), without.split()

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """What pydantic makes JSON and a schema by."""
        record = self._record
        of_record = [each.name for each in fields(record)] if record else []
        every = dict.fromkeys([*of_record, *self._more])
        names = self._only or [name for name in every if name not in self._without]
        kinds = (get_type_hints(record) if record else {}) | self._more
        made = core_schema.typed_dict_schema({name: _field(kinds[name], handler) for name in names})

        def values(value: Any) -> Any:
            return value if isinstance(value, Mapping) else {n: getattr(value, n) for n in names}

        return core_schema.no_info_after_validator_function(
            values,  # nothing is validated, but pydantic wants to see the inner schema
            made,
            serialization=core_schema.plain_serializer_function_ser_schema(
                values, return_schema=made
            ),
        )


def shows(record: Any = None, /, **kinds: Any) -> Callable[[Function], Function]:
    """A decorator for tools and routes: their reply has the fields that `Shown` takes."""

    def annotated(function: Function) -> Function:
        function.__annotations__["return"] = Annotated[JsonReply, Shown(record, **kinds)]
        return function

    return annotated


def rows(record: Any = None, /, **kinds: Any) -> Any:
    """The type of a list of objects with the fields that `Shown` takes."""
    return list[Annotated[JsonReply, Shown(record, **kinds)]]


def _field(kind: Any, handler: GetCoreSchemaHandler) -> core_schema.TypedDictField:
    optional = get_origin(kind) is NotRequired
    inner = get_args(kind)[0] if optional else kind
    return core_schema.typed_dict_field(handler.generate_schema(inner), required=not optional)


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """What makes JSON of values of a type, and the schema of that."""
    return TypeAdapter(kind)


def plain(kind: Any, value: Any) -> Any:
    """A value of a type in JSON's types."""
    return adapter(kind).dump_python(value, mode="json")
