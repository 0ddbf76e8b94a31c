"""The language of `where`: conditions on fields and metadata, compiled to SQL.

Values from outside are always bound, never part of the SQL. All conditions must hold:

    {"file_type": "pdf", "metadata.year": {"gte": 2020, "lt": 2025}}      a mapping
    [Condition("metadata.author", "eq", "ann", case_sensitive=False)]     a list, also of tuples

A value under a field means `eq`, unless it is an object: that is read as operators. To compare with
an object use `Condition(field, "eq", {...})`. A dotted field is a path through objects
("metadata.a.b"); a key that has a dot in it is written in a tuple (("metadata", "a.b")). A path
does not step into arrays: "metadata.tags.0" means an object's key.

eq ne                   equality of JSON: 5 = 5.0, 5 ≠ "5", true ≠ 1; the order of an object's keys
                        does not count; None matches an explicit null. `ne` matches another value,
                        never a missing key or a null
gt gte lt lte           a number: compared with numbers and with strings that are written as
                        numbers; a string: compared with strings, by code point
in not_in               the member's text is the value's text (10 matches "10", true matches
                        "true"), or both are equal numbers; `not_in` matches another value, as `ne`
                        does
exists not_exists       a value that is not null; the opposite of it, also for an item without any
                        metadata
is_null is_not_null     an explicit null; a value that is not null; a missing key is neither
contains starts_with    the string as it is, without wildcards, in strings, and in numbers as they
ends_with               are written in JSON
array_contains          an array with this string, number or boolean among its members

`case_sensitive=False` folds case by Unicode's rules wherever strings are compared, except inside
the arrays and objects of `eq`. Whole numbers of 2^63 and more in stored metadata are compared as
floating point.

Metadata is free; a column holds one kind of value, and a value that it cannot hold is an error:

text        also a number, which is compared as it is written
number      also a string that is written as a number
time        a period (`dates.named_period`): 2025, 2025-11, 2025-11-29, 2025-11-29T10:00, today,
            yesterday. `eq` means within it, `gt` after its end, `gte` from its start on. An age
            (7d) is a moment, for gt, gte, lt and lte only

A column that is NULL counts as a null (`is_null` and `not_exists` match).
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from mcpvectordb import dates
from mcpvectordb.dates import Period
from mcpvectordb.errors import InvalidFilter, InvalidInput, quoted
from mcpvectordb.filters.dialect import SQLITE, FilterDialect, is_number
from mcpvectordb.records import Condition

Where = Mapping[str, Any] | Sequence[Condition | tuple[Any, ...]]
Kinds = Mapping[str, Literal["text", "number", "time"]]

EVERYTHING = "TRUE"
"""The SQL of a filter without conditions."""

_NO_KINDS: Kinds = {}

MAX_CONDITIONS = 32  # of a `where`: each may parse the metadata of every row
MAX_MEMBERS = 1000  # of a list or object in a value: they are compared with every row
MAX_DEPTH = 32  # of a path or a value: well below the recursion limits of Python and SQLite


def conditions(where: Where | None, kinds: Kinds = _NO_KINDS) -> list[Condition]:
    """Parse a `where` in any of its forms; the first error in it raises InvalidFilter.

    `kinds` says what the columns hold. `compile` and `problems`, which know the fields, check that
    they exist.
    """
    return [_condition(entry, kinds) for entry in _entries(where)]


def problems(where: Where | None, fields: Collection[str], kinds: Kinds = _NO_KINDS) -> list[str]:
    """The errors in a `where`, one message for each invalid condition.

    `fields` are the columns that it may name, `kinds` what they hold.
    """
    try:
        entries = _entries(where)
    except InvalidFilter as error:
        return [str(error)]
    found = []
    for entry in entries:
        try:
            _known_path(_condition(entry, kinds).field, fields)
        except InvalidFilter as error:
            found.append(str(error))
    return found


def compile(
    checked: Sequence[Condition],
    columns: Mapping[str, str],
    metadata: str,
    dialect: FilterDialect = SQLITE,
) -> tuple[str, list[Any]]:
    """A boolean SQL expression (EVERYTHING for no condition) and its bindings; NULL: no match.

    `checked` is what `conditions` returned. `columns` gives the SQL expression of each field that
    may be named, `metadata` the one of the JSON text (NULL when there is none). Both are put into
    the SQL as they are. A connection to SQLite needs the functions in `dialect.FUNCTIONS`.
    """
    tests: list[str] = []
    bindings: list[Any] = []
    for condition in checked:
        name, *keys = _known_path(condition.field, columns)
        found = dialect.looked_up(condition, metadata, keys) if keys else None
        operand = dialect.metadata(metadata, keys) if keys else dialect.column(columns[name])
        sql, bound = found or dialect.compile(condition, operand)
        tests.append(f"({sql})")
        bindings += bound
    return " AND ".join(tests) or EVERYTHING, bindings


def named(conditions: Iterable[Condition], field: str) -> tuple[str, ...]:
    """The texts of which a field must be one, if a condition says so; () otherwise."""
    for condition in conditions:
        if condition.field in (field, (field,)) and condition.case_sensitive:
            if condition.operator == "eq" and isinstance(condition.value, str):
                return (condition.value,)
            if condition.operator == "in":
                return tuple(map(str, condition.value))
    return ()


# the operators


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float)


class _Takes(NamedTuple):
    words: str
    accepts: Callable[[Any], bool]


_ANY = _Takes("any JSON value", lambda value: True)
_ORDERED = _Takes("a number or a string", lambda value: is_number(value) or isinstance(value, str))
_LIST = _Takes(
    f"a list of 1 to {MAX_MEMBERS} strings, numbers or booleans",
    lambda value: (
        isinstance(value, list | tuple) and len(value) > 0 and all(map(_is_scalar, value))
    ),
)
_NOTHING = _Takes("no value (or True)", lambda value: value is None or value is True)
_STRING = _Takes("a string", lambda value: isinstance(value, str))
_MEMBER = _Takes("a string, a number or a boolean", _is_scalar)

OPERATORS: Mapping[str, _Takes] = {
    **dict.fromkeys(("eq", "ne"), _ANY),
    **dict.fromkeys(("gt", "gte", "lt", "lte"), _ORDERED),
    **dict.fromkeys(("in", "not_in"), _LIST),
    **dict.fromkeys(("exists", "not_exists", "is_null", "is_not_null"), _NOTHING),
    **dict.fromkeys(("contains", "starts_with", "ends_with"), _STRING),
    "array_contains": _MEMBER,
}


# values of columns


def _of_kind(condition: Condition, kinds: Kinds) -> Condition:
    """The condition with a value as its column holds it; InvalidFilter if it cannot hold one."""
    steps, (_, operator, value, _) = path(condition.field), condition
    kind = kinds.get(steps[0]) if len(steps) == 1 else None
    takes = OPERATORS[operator]
    if kind is None or value is None or takes in (_NOTHING, _STRING):
        return condition
    if operator == "array_contains":
        raise InvalidFilter(f"{quoted(condition.field)}: array_contains is for lists in metadata")
    if takes is _LIST:
        return condition._replace(value=[_read(kind, condition, member) for member in value])
    value = _read(kind, condition, value)
    if takes is _ORDERED and isinstance(value, Period):
        # After a period is from its end on, and up to its end is before that.
        operator, value = (
            "gte" if operator.startswith("gt") else "lt",
            value.end if operator in ("gt", "lte") else value.start,
        )
    return condition._replace(operator=operator, value=value)


def _read(kind: str, condition: Condition, value: Any) -> Any:
    """A value, or a member of a list, as a column of this kind holds it."""
    field, operator = quoted(condition.field), condition.operator
    if kind == "time":
        text = str(value) if type(value) is int else value  # a year
        try:
            period = dates.named_period(text, field)
        except InvalidInput as error:
            raise InvalidFilter(str(error)) from None
        if period.start == period.end and OPERATORS[operator] is not _ORDERED:
            raise InvalidFilter(
                f"{field}: {quoted(text)} is a moment, which {operator} cannot be asked for; use "
                "gt or lt"
            )
        return period
    if kind == "number":
        number = value
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                number = json.loads(value)
        if not is_number(number) or _flaw(number):
            shown = quoted(value) if isinstance(value, str) else _noun(value)
            raise InvalidFilter(f"{field}: {operator} takes a number, not {shown}")
        return number
    if isinstance(value, list | tuple | dict):
        raise InvalidFilter(f"{field}: {operator} takes a string, not {_noun(value)}")
    as_text = OPERATORS[operator] is _ANY and not isinstance(value, str)
    return json.dumps(value) if as_text else value


# reading and refusing


def _entries(where: Any) -> list[Any]:
    """A `where` as a list with one entry for each condition."""
    if where is None:
        return []
    if isinstance(where, tuple) and where and isinstance(where[0], str):
        raise InvalidFilter("a single condition goes into a list: [(field, operator, value)]")
    if isinstance(where, Mapping):
        entries = [
            (field, operator, operand)
            for field, value in where.items()
            for operator, operand in (
                (value or {"": None}).items() if isinstance(value, Mapping) else [("eq", value)]
            )
        ]
    elif isinstance(where, Sequence) and not isinstance(where, str | bytes):
        entries = list(where)
    else:
        raise InvalidFilter(f"where must be a mapping or a list of conditions, not {_noun(where)}")
    if len(entries) > MAX_CONDITIONS:
        raise InvalidFilter(
            f"where has {len(entries)} conditions; at most {MAX_CONDITIONS} are allowed"
        )
    return entries


def _condition(entry: Any, kinds: Kinds) -> Condition:
    if not isinstance(entry, tuple) or not 2 <= len(entry) <= 4:
        raise InvalidFilter(f"a condition is a tuple (field, operator, value), not {_noun(entry)}")
    condition = Condition(*entry)
    path(condition.field)
    field, name = quoted(condition.field), condition.operator
    if not isinstance(name, str) or name not in OPERATORS:
        hint = _did_you_mean(name, OPERATORS) or 'to compare with an object write {"eq": object}; '
        raise InvalidFilter(
            f"{field}: unknown operator {quoted(name) if isinstance(name, str) else _noun(name)}; "
            f"{hint}operators are {', '.join(OPERATORS)}"
        )
    if flaw := _flaw(condition.value):
        raise InvalidFilter(f"{field}: the value of {name} {flaw}")
    takes = OPERATORS[name]
    if not takes.accepts(condition.value):
        raise InvalidFilter(f"{field}: {name} takes {takes.words}, not {_noun(condition.value)}")
    if not isinstance(condition.case_sensitive, bool):
        raise InvalidFilter(f"{field}: case_sensitive of {name} must be True or False")
    return _of_kind(condition, kinds)


def path(field: Any) -> tuple[str, ...]:
    """The steps of a field: one for a column, `metadata` and one for each key otherwise."""
    if isinstance(field, str):
        steps = tuple(field.split(".")) if field.startswith("metadata.") else (field,)
        if "" in steps:
            raise InvalidFilter(
                f'field {quoted(field)} has an empty name in it; an empty key is ("metadata", "")'
            )
    elif isinstance(field, tuple) and field and all(isinstance(step, str) for step in field):
        steps = field
    else:
        raise InvalidFilter(f"a field is a string or a tuple of strings, not {_noun(field)}")
    if len(steps) > MAX_DEPTH + 1:
        raise InvalidFilter(f"field {quoted(field)} is a path of more than {MAX_DEPTH} keys")
    if flaw := next(filter(None, map(_flaw, steps)), ""):
        raise InvalidFilter(f"field {quoted(field)} {flaw}")
    return steps


def _known_path(field: str | tuple[str, ...], fields: Collection[str]) -> tuple[str, ...]:
    steps = path(field)
    if steps[0] in fields if len(steps) == 1 else steps[0] == "metadata":
        return steps
    key = steps[-1] if steps[-1].isidentifier() and steps != ("metadata",) else "KEY"
    raise InvalidFilter(
        f"unknown field {quoted(field)}; {_did_you_mean(steps[0], fields)}"
        f"fields are {', '.join(fields)}; metadata keys are written metadata.{key:.80}"
    )


def _flaw(value: Any, depth: int = 0) -> str:
    """Why a value cannot be stored as JSON by SQLite; "" if it can."""
    if value is None or isinstance(value, bool):
        return ""
    if isinstance(value, str):
        return (
            "has a NUL character or a lone surrogate"
            if re.search("[\0\ud800-\udfff]", value)
            else ""
        )
    if isinstance(value, int):
        return "" if -(2**63) <= value < 2**63 else "has an integer of more than 64 bits"
    if isinstance(value, float):
        return "" if math.isfinite(value) else "has a number that is not finite"
    if not isinstance(value, list | tuple | dict):
        return f"has {_noun(value)}, which is not JSON"
    if len(value) > MAX_MEMBERS:
        return f"has {len(value)} members in a list or object; at most {MAX_MEMBERS} are allowed"
    if depth == MAX_DEPTH:
        return f"is nested more than {MAX_DEPTH} deep"
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        return "has an object with a key that is not a string"
    inside = [*value, *value.values()] if isinstance(value, dict) else value
    return next(filter(None, (_flaw(each, depth + 1) for each in inside)), "")


def _did_you_mean(name: Any, known: Collection[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1) if isinstance(name, str) else []
    return f"did you mean {near[0]}? " if near else ""


_NOUNS = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    dict: "an object",
}


def _noun(value: Any) -> str:
    """The type of a value as a noun, without its content, which may be huge."""
    noun = _NOUNS.get(type(value), f"a {type(value).__name__}")
    if not isinstance(value, list | tuple):
        return noun
    odd = {
        _NOUNS.get(type(member), type(member).__name__)
        for member in value
        if not _is_scalar(member)
    }
    return f"{noun} of {len(value)}" + (f" with {', '.join(sorted(odd))}" if odd else "")
