"""Values of foreign sources in the form in which they are stored here: times, and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from mcpvectordb import dates
from mcpvectordb.errors import InvalidInput
from mcpvectordb.metadata import MAX_DEPTH

_MILLISECONDS = 100_000_000_000  # as seconds: the year 5138
_MICROSECONDS = _MILLISECONDS * 1000


def time(value: object) -> str:
    """A time as stored text, from ISO 8601 text or a number (seconds, milliseconds or microseconds
    since 1970); "" for anything else.
    """
    if isinstance(value, str):
        text = value.strip()
        try:
            return dates.parse(text, "time")
        except InvalidInput:
            return _iso(text) or time(_number(text))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return ""
    scale = 1e6 if abs(value) >= _MICROSECONDS else 1e3 if abs(value) >= _MILLISECONDS else 1
    try:
        return dates.stored(datetime.fromtimestamp(value / scale, UTC))
    except (OverflowError, OSError, ValueError):
        return ""


def _iso(text: str) -> str:
    """A time in one of the other forms of ISO 8601 that Python reads."""
    try:
        moment = datetime.fromisoformat(text)
        return dates.stored(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return ""


def _number(text: str) -> float | None:
    try:
        return float(text) if len(text) < 40 else None
    except ValueError:
        return None


def integer(value: object) -> int:
    """A number by which rows are sorted; 0 for anything else."""
    return value if isinstance(value, int) else 0


def item(value: object, key: str) -> Any:
    """What an object has under a key; None if it is no object, or has no such key."""
    return value.get(key) if isinstance(value, Mapping) else None


def listed(value: object) -> list[Any]:
    """A list; an empty one in place of anything else."""
    return value if isinstance(value, list) else []


def json_value(text: object) -> Any:
    """The value of a JSON text; None if it is none."""
    if not isinstance(text, str | bytes):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def metadata(value: object) -> dict[str, Any]:
    """Metadata that can be stored, from an object or its JSON text.

    Anything but an object is kept under the key "value". What JSON cannot hold becomes text.
    """
    if isinstance(value, str | bytes):
        parsed = json_value(value)
        value = parsed if parsed is not None or value in ("null", b"null") else value
    if value is None or value in ("", b""):
        return {}
    return storable(value) if isinstance(value, Mapping) else {"value": storable(value)}


def storable(value: Any, depth: int = 1) -> Any:
    """A value with text in place of everything that metadata cannot hold."""
    if depth >= MAX_DEPTH and isinstance(value, Mapping | list | tuple):
        return "nested too deep"
    if isinstance(value, Mapping):
        return {_text(str(key)): storable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item, depth + 1) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return _text(str(value))


def _text(text: str) -> str:
    """A text without halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()
