"""JSON from outside: its values are counted before they are made.

Three bytes of JSON ("[],") become an object of 64, so that a text which fits into memory need not
do so as values.
"""

from __future__ import annotations

import json
import re
from typing import Any

from mcpvectordb.errors import TooLarge

MOST_VALUES = 4_000_000
"""Values of one JSON text: a document of 100,000 passages has about a million."""

_STRUCTURE = ",[{"
_STRING = re.compile(r'"[^"\\]*+(?:\\.?[^"\\]*+)*+"?', re.DOTALL)  # or the rest, if it does not end


def loads(text: bytes | str, most: int = MOST_VALUES) -> Any:
    """The value of a JSON text; ValueError if it is none, TooLarge if it has too many values.

    Bytes are UTF-8, or any other encoding of Unicode that JSON may have.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    if has_more_values(text, most):
        raise TooLarge(f"it has more than {most:,} values")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def has_more_values(text: str, most: int) -> bool:
    """Whether a JSON text has more than so many values; what is in strings does not count."""
    if len(text) <= most or sum(map(text.count, _STRUCTURE)) <= most:
        return False
    found, at = 0, 0
    for string in _STRING.finditer(text):
        found += sum(text.count(each, at, string.start()) for each in _STRUCTURE)
        if found > most:
            return True
        at = string.end()
    return found + sum(text.count(each, at) for each in _STRUCTURE) > most
