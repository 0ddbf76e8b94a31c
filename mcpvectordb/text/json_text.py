"""JSON from outside: its values are counted before they are made.

Three bytes of JSON ("[],") become an object of 64, so that a text which fits into memory need not
do so as values.
"""

from __future__ import annotations

import json
from typing import Any

from mcpvectordb.errors import TooLarge

MOST_VALUES = 4_000_000
"""Values of one JSON text: a document of 100,000 passages has about a million."""

_STRUCTURE = ",[{"


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
    while found <= most:
        quote = text.find('"', at)
        end = len(text) if quote < 0 else quote
        found += sum(text.count(each, at, end) for each in _STRUCTURE)
        if quote < 0:
            break
        at = _end_of_string(text, quote + 1)
    return found > most


def _end_of_string(text: str, at: int) -> int:
    """The place behind the string in which `at` is its first character."""
    while (quote := text.find('"', at)) >= 0:
        before = quote
        while before > at and text[before - 1] == "\\":
            before -= 1
        at = quote + 1
        if (quote - before) % 2 == 0:
            return at
    return len(text)
