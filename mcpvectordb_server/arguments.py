"""The input schema of a tool, made from its signature, and the validation of what clients send.

Clients send arrays and objects as JSON strings, whole numbers as 5.0, null for an argument that is
not given, and arguments that the tool does not have. All of that is accepted. Values that cannot be
stored or ranked (NaN, integers beyond 64 bits, lone surrogates, deep nesting) are refused here, for
every tool.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache, cached_property
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic_core import ErrorDetails
from typing_extensions import is_typeddict

from mcpvectordb import InvalidInput
from mcpvectordb_server.grant import Client, Grant
from mcpvectordb_server.shown import Function

MAX_DEPTH = 32
MAX_VALUES = 1_000_000
MAX_INTEGER = 2**63
# Some clients encode twice: a JSON string inside of a JSON string. One more is allowed for.
_MOST_ENCODINGS = 3
# What some hosts send where a tool needs no arguments.
_DUMMY = "random_string"
# Unknown arguments that a reply names.
_MOST_REMARKS = 5
_NAMED = 5  # errors that one message names


class ArgumentError(InvalidInput):
    """One argument is missing or cannot be used; `argument` is its name."""

    code = "invalid_argument"

    def __init__(self, argument: str, message: str) -> None:
        super().__init__(message)
        self.argument = argument


def not_blank(name: str, value: str, hint: str = "") -> str:
    """The text without blanks around it; one of blanks alone raises InvalidInput."""
    if not value.strip():
        raise InvalidInput(f"{name} must not be blank{hint}")
    return value.strip()


def within(name: str, value: float, least: int, most: int, hint: str = "") -> None:
    """Raise InvalidInput for a number that is out of bounds."""
    if not least <= value <= most:
        raise InvalidInput(f"{name} must be {least} to {most}, not {value}{hint}")


def listed_last(names: str) -> Callable[[Function], Function]:
    """A decorator: the schema of a tool lists these of its parameters last, in this order."""

    def marked(function: Function) -> Function:
        function.__dict__["listed_last"] = names.split()
        return function

    return marked


class Arguments:
    """The keyword-only parameters of a tool function, without the one for the server's Grant."""

    def __init__(self, function: Callable[..., Any]) -> None:
        hints = get_type_hints(function, include_extras=True)
        self.reply = hints.pop("return", None)
        self.grant: str | None = None
        self.client: str | None = None
        self.kinds: dict[str, Any] = {}
        self._defaults: dict[str, Any] = {}
        for p in inspect.signature(function).parameters.values():
            if p.kind is p.KEYWORD_ONLY and hints[p.name] is Grant:
                self.grant = p.name
            elif p.kind is p.KEYWORD_ONLY and hints[p.name] is Client:
                self.client = p.name
            elif p.kind is p.KEYWORD_ONLY:
                self.kinds[p.name] = hints[p.name]
                self._defaults[p.name] = ... if p.default is p.empty else p.default
            elif p.kind is p.VAR_KEYWORD:  # Unpack[TypedDict]: each of them may be left out
                more = get_type_hints(get_args(hints[p.name])[0], include_extras=True)
                self.kinds |= more
                self._defaults |= {
                    name: None if accepts_null(kind) else False for name, kind in more.items()
                }
        for name in function.__dict__.get("listed_last", ()):
            self.kinds[name] = self.kinds.pop(name)
        self._optional = {name for name, each in self._defaults.items() if each is not ...}
        members: dict[str, Any] = {
            name: (_described(kind), self._defaults[name]) for name, kind in self.kinds.items()
        }
        config = ConfigDict(strict=True, extra="ignore", protected_namespaces=())
        self._model = create_model(function.__name__, __config__=config, **members)
        self.schema = _compact(self._model.model_json_schema())

    @cached_property
    def output(self) -> dict[str, Any] | None:
        """The schema of a reply that is a TypedDict or has fields by `shows`, else None.

        No property is required, because errors are sent as structured content, too.
        """
        if not is_typeddict(self.reply) and get_origin(self.reply) is not Annotated:
            return None
        made = _compact(TypeAdapter(self.reply).json_schema(mode="serialization"))
        return {key: each for key, each in made.items() if key not in ("required", "description")}

    def unknown(self, raw: Mapping[str, Any]) -> list[str]:
        """The names in `raw` that no parameter has."""
        return [name for name in raw if name not in self.kinds]

    def ignored(self, raw: Mapping[str, Any]) -> str:
        """A remark about each unknown name, for the reply; "" if there is none.

        A tool without parameters can have been meant in one way only, so nothing is said there.
        """
        unknown = [name for name in self.unknown(raw) if self.kinds and name != _DUMMY]
        remarks = [self._ignored(name, raw) for name in unknown[:_MOST_REMARKS]]
        if more := len(unknown) - len(remarks):
            remarks.append(f"{more} more unknown arguments were ignored.")
        return " ".join(remarks)

    def _ignored(self, name: str, raw: Mapping[str, Any]) -> str:
        remark = f"{_shown(name)} is an unknown argument and was ignored"
        plain = {_plain(known): known for known in self.kinds}
        if not (near := get_close_matches(_plain(name), plain, n=1)):
            return f"{remark}; there are {', '.join(self.kinds)}."
        meant = plain[near[0]]
        remark += f"; did you mean {meant}?"
        if meant in raw or meant not in self._optional:
            return remark
        return f"{remark} It was not given, so it is {_shown(self._defaults[meant])}."

    def read(self, raw: Mapping[str, Any], *, max_text: int) -> dict[str, Any]:
        """The keyword arguments for the function; a bad one raises ArgumentError with its name."""
        given = {name: coerce(kind, raw[name]) for name, kind in self.kinds.items() if name in raw}
        given = {
            name: value
            for name, value in given.items()
            if value is not None or name not in self._optional or accepts_null(self.kinds[name])
        }
        for name, value in given.items():
            check(name, value, max_text=max_text)
        try:
            model = self._model.model_validate(given)
        except ValidationError as error:
            details = self._without_branches(error)
            message = "; ".join(map(_sentence, details[:_NAMED]))
            if len(details) > _NAMED:
                message += f"; and {len(details) - _NAMED} more"
            raise ArgumentError(str(details[0]["loc"][0]), message) from None
        return {name: getattr(model, name) for name in self.kinds}

    def _without_branches(self, error: ValidationError) -> list[ErrorDetails]:
        """The errors; of a parameter that takes one of several types, those of one of them.

        pydantic reports every type, and puts its name into the place; the one that fits best has
        its errors inside of the value.
        """
        kept: dict[tuple[int | str, ...], ErrorDetails] = {}
        for each in error.errors(include_url=False):
            name, *inner = each["loc"]
            if len(set(_alternatives(self.kinds[str(name)])) - {type(None)}) > 1 and inner:
                each["loc"] = (name, *inner[1:])
                if inner[1:]:
                    kept.pop((name,), None)
            kept.setdefault(each["loc"], each)
        return list(kept.values())


def _plain(name: str) -> str:
    """A name for comparison: maxResults and max-results are near to max_results."""
    return re.sub(r"[_-]", "", name[:100]).casefold()


@cache
def arguments_of(function: Callable[..., Any]) -> Arguments:
    """The Arguments of a tool function, cached."""
    return Arguments(function)


def coerce(kind: Any, value: Any) -> Any:
    """`value` with JSON strings decoded where another type is expected, and 5.0 turned into 5."""
    kinds = list(_alternatives(kind))
    if Any in kinds:
        return value
    if isinstance(value, str) and str not in kinds:
        value = _decoded(value)
    if isinstance(value, float) and int in kinds and float not in kinds and value.is_integer():
        return int(value)
    for each in kinds:
        if isinstance(value, list) and get_origin(each) is list:
            inner = get_args(each)[0]
            return value if Any in _alternatives(inner) else [coerce(inner, item) for item in value]
        if isinstance(value, dict) and is_typeddict(each):
            members = get_type_hints(each, include_extras=True)
            return {name: coerce(members.get(name, Any), item) for name, item in value.items()}
    return value


def accepts_null(kind: Any) -> bool:
    """Whether null is a value of this type, and not only a way to leave the argument out."""
    return bool({Any, type(None)} & set(_alternatives(kind)))


def check(name: str, value: Any, *, max_text: int) -> None:
    """Raise ArgumentError for a value that JSON can carry but the database cannot store."""
    count = 0
    pending = [(value, 0)]
    while pending:
        item, depth = pending.pop()
        count += 1
        if depth > MAX_DEPTH:
            raise ArgumentError(name, f"{name} is nested deeper than {MAX_DEPTH} levels")
        if count > MAX_VALUES:
            raise ArgumentError(name, f"{name} has more than {MAX_VALUES:,} values")
        if isinstance(item, dict):
            pending += [(each, depth + 1) for pair in item.items() for each in pair]
        elif isinstance(item, list):
            pending += [(each, depth + 1) for each in item]
        elif problem := _problem(item, max_text):
            raise ArgumentError(name, f"{name} {problem}")


def _problem(item: Any, max_text: int) -> str:
    """Why a text or number cannot be stored, or ""."""
    if isinstance(item, str):
        if len(item) > max_text:
            return f"is {len(item):,} characters long; {max_text:,} are allowed"
        if not item.isascii() and any("\ud800" <= character <= "\udfff" for character in item):
            return "contains half of a surrogate pair, which is not a character"
    elif isinstance(item, float) and not math.isfinite(item):
        return f"contains {item}, which is not a number that can be stored"
    elif isinstance(item, int) and not -MAX_INTEGER <= item < MAX_INTEGER:
        return "contains an integer beyond 64 bits"
    return ""


def _alternatives(kind: Any) -> Iterator[Any]:
    origin = get_origin(kind)
    if origin in (Annotated, Required, NotRequired):
        yield from _alternatives(get_args(kind)[0])
    elif origin in (Union, UnionType):
        for each in get_args(kind):
            yield from _alternatives(each)
    elif origin is Literal:
        yield from {type(each) for each in get_args(kind)}
    else:
        yield kind


def _decoded(text: str) -> Any:
    value: Any = text
    for _ in range(_MOST_ENCODINGS):
        if not isinstance(value, str):
            break
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return text
    return value


def _described(kind: Any) -> Any:
    """`Annotated[str, "text"]` with the text as pydantic's description."""
    if get_origin(kind) is not Annotated:
        return kind
    base, *notes = get_args(kind)
    return Annotated[
        (base, *(Field(description=note) if isinstance(note, str) else note for note in notes))
    ]


def _compact(schema: Any) -> Any:
    """The schema without titles, `additionalProperties: true` and `const`, all made by pydantic.

    Titles repeat names and cost clients tokens; some clients cannot convert the others: the first
    says nothing that is not so anyway, the second is an `enum` of one value.
    """
    if isinstance(schema, list):
        return [_compact(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: {name: _compact(each) for name, each in value.items()}
        if key in ("properties", "$defs")
        else _compact(value)
        for key, value in schema.items()
        if key != "title" and not (key == "additionalProperties" and value is True)
    }
    if "const" in made:
        made["enum"] = [made.pop("const")]
    return made


_SAID = {
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "dict_type": "must be an object",
    "list_type": "must be an array",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "greater_than": "must be more than {gt}",
    "less_than": "must be less than {lt}",
    "literal_error": "must be {expected}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
}


def _sentence(detail: ErrorDetails) -> str:
    name, *inner = detail["loc"]
    where = str(name) + "".join(
        f"[{each}]" if isinstance(each, int) else f".{each}" for each in inner
    )
    kind = detail["type"]
    if kind == "missing":
        return f"{where} is required"
    if kind not in _SAID:
        return f"{where}: {detail['msg']}"
    said = _SAID[kind].format(**detail.get("ctx", {}))
    return f"{where} {said}, not {_shown(detail['input'])}"


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else text[:57] + "..."
