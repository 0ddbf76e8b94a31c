"""What a `where` means, said once more in plain Python: slow, short, and without SQL."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any

from mcpvectordb.records import Condition

MISSING = object()
NUMERAL = re.compile(
    r"[ \t\n\v\f\r]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t\n\v\f\r]*", re.ASCII
)


def matches(conditions: Iterable[Condition], columns: Mapping[str, Any], metadata: Any) -> bool:
    return all(
        _holds(condition, _find(condition.field, columns, metadata)) for condition in conditions
    )


def _find(field: str | tuple[str, ...], columns: Mapping[str, Any], metadata: Any) -> Any:
    path = (
        field
        if isinstance(field, tuple)
        else field.split(".")
        if field.startswith("metadata.")
        else (field,)
    )
    if len(path) == 1:
        return columns[path[0]]
    for key in path[1:]:
        if not isinstance(metadata, dict) or key not in metadata:
            return MISSING
        metadata = metadata[key]
    return metadata


def _holds(condition: Condition, found: Any) -> bool:
    _, name, value, case_sensitive = condition
    fold = str if case_sensitive else str.casefold
    if name == "not_exists":
        return found is MISSING or found is None
    if found is MISSING:
        return False
    if name == "is_null" or (name == "eq" and value is None):
        return found is None
    if found is None:
        return False
    match name:
        case "exists" | "is_not_null":
            return True
        case "eq" | "ne":
            return _equal(found, value, fold) == (name == "eq")
        case "in" | "not_in":
            return any(_alike(found, member, fold) for member in value) == (name == "in")
        case "contains" | "starts_with" | "ends_with":
            whole, part = _text(found), fold(value)
            test = {
                "contains": str.__contains__,
                "starts_with": str.startswith,
                "ends_with": str.endswith,
            }[name]
            return not isinstance(found, bool) and whole is not None and test(fold(whole), part)
        case "array_contains":
            return isinstance(found, list) and any(_equal(member, value, fold) for member in found)
    return _in_order(
        getattr(operator, {"gte": "ge", "lte": "le"}.get(name, name)), found, value, fold
    )


def _in_order(compare: Any, found: Any, value: Any, fold: Any) -> bool:
    if isinstance(value, str):
        return isinstance(found, str) and compare(fold(found), fold(value))
    if isinstance(found, str) and NUMERAL.fullmatch(found):
        found = int(found) if re.fullmatch(r"[+-]?[0-9]+", found.strip()) else float(found)
    return _is_number(found) and compare(_number(found), value)


def _equal(a: Any, b: Any, fold: Any) -> bool:
    if isinstance(a, str) and isinstance(b, str):
        return fold(a) == fold(b)
    if _is_number(a) and _is_number(b):
        return _number(a) == _number(b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_equal(x, y, str) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key], str) for key in a)
    return type(a) is type(b) and a == b


def _alike(found: Any, member: Any, fold: Any) -> bool:
    if isinstance(member, float) and member.is_integer() and abs(member) < 2**63:
        member = int(member)
    text = _text(found)
    return _equal(found, member, fold) or (text is not None and fold(text) == fold(_text(member)))


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    return None if isinstance(value, list | dict) else json.dumps(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: int | float) -> int | float:
    """SQLite reads a whole number that needs more than 64 bits as floating point."""
    return value if isinstance(value, float) or -(2**63) <= value < 2**63 else float(value)
