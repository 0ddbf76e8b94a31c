"""Records of the library as the API shows them: their JSON and its schema are made from a type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, get_type_hints

from pydantic import GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict


class Shown:
    """In `Annotated[R, Shown(...)]` it says what the API shows of a record R: the fields in `only`.

    Without `only` they are all but those in `without`. `more` are types of fields that the record
    has as properties, or that are shown in another way. A dict with these fields may stand for the
    record; then `record` says which. `name` and `text` are those of the schema.
    """

    def __init__(
        self,
        name: str,
        text: str,
        record: Any = None,
        *,
        only: str = "",
        without: str = "",
        **more: Any,
    ) -> None:
        self._name, self._text, self._record = name, text, record
        self._only, self._without, self._more = only.split(), without.split(), more

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """What pydantic makes JSON and a schema by."""
        record = self._record or source
        kinds = get_type_hints(record) | self._more
        every = dict.fromkeys([*(each.name for each in fields(record)), *self._more])
        names = self._only or [name for name in every if name not in self._without]
        made: Any = TypedDict(self._name, {name: kinds[name] for name in names})  # type: ignore[misc]
        made.__doc__ = self._text

        def values(value: Any) -> Any:
            return value if isinstance(value, Mapping) else {n: getattr(value, n) for n in names}

        # Nothing is validated. It has the inner schema for pydantic to see that it is one by name.
        return core_schema.no_info_after_validator_function(
            values,
            handler.generate_schema(made),
            serialization=core_schema.plain_serializer_function_ser_schema(
                values, return_schema=handler.generate_schema(made)
            ),
        )


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """What makes JSON of values of a type, and the schema of that."""
    return TypeAdapter(kind)


def plain(kind: Any, value: Any) -> Any:
    """A value of a type in JSON's types."""
    return adapter(kind).dump_python(value, mode="json")
