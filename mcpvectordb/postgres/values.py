"""Values that PostgreSQL cannot hold as they are, and back. Pure.

Its texts have no U+0000, and neither have those of its JSON. The character is written as U+FDD0 0
instead, and U+FDD0, which Unicode reserves for such uses and texts hardly ever have, as U+FDD0 1.
So nothing is lost, and equal texts stay equal.
"""

from __future__ import annotations

import json
from typing import Any

_MARK = "\ufdd0"


def to_text(text: str) -> str:
    """A text as PostgreSQL stores it."""
    if "\0" not in text and _MARK not in text:
        return text
    return text.replace(_MARK, _MARK + "1").replace("\0", _MARK + "0")


def from_text(stored: str) -> str:
    """The text that `to_text` was given."""
    if _MARK not in stored:
        return stored
    return stored.replace(_MARK + "0", "\0").replace(_MARK + "1", _MARK)


def to_json(text: str) -> str:
    """Stored JSON for a column of type json, with its texts and keys as `to_text` writes them."""
    if "\\u0000" not in text and _MARK not in text:
        return text
    return json.dumps(_escaped(json.loads(text)), ensure_ascii=False, separators=(",", ":"))


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return to_text(value)
        case dict():
            return {to_text(key): _escaped(item) for key, item in value.items()}
        case list():
            return [_escaped(item) for item in value]
    return value
