"""Validate metadata and convert it to and from the JSON text that is stored."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from mcpvectordb.errors import Damaged, InvalidInput, quoted

MAX_DEPTH = 32
MAX_CHARACTERS = 1_000_000

_WRITER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=dict)


def encode(metadata: Mapping[str, Any] | None, name: str = "metadata") -> str:
    """Return metadata as JSON text; InvalidInput names the path of an unstorable value."""
    if metadata is None:
        return "{}"
    if not isinstance(metadata, Mapping):
        raise InvalidInput(
            f"{name} must be an object with text keys, not {type(metadata).__name__}"
        )
    check(metadata, name)
    text = _WRITER.encode(metadata)
    if len(text) > MAX_CHARACTERS:
        raise InvalidInput(
            f"{name} is {len(text):,} characters as JSON; at most {MAX_CHARACTERS:,} are allowed"
        )
    return text


def decode(text: str) -> dict[str, Any]:
    """Return the metadata of a text that `encode` returned."""
    value = _loaded(text)
    if not isinstance(value, dict):
        raise Damaged("stored metadata is not the object that was written: run `mcpvectordb check`")
    return value


def received(text: object) -> dict[str, Any]:
    """The metadata of a text from another file, if `encode` could have made it: InvalidInput."""
    try:
        value = decode(storable(text, "metadata"))
    except Damaged:
        raise InvalidInput("metadata is not a JSON object") from None
    encode(value)
    return value


@lru_cache(maxsize=4096)  # passages of a document share their headings
def decode_list(text: str) -> tuple[str, ...]:
    """Return the texts of a stored JSON list."""
    values = _loaded(text)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise Damaged(
            "a stored list is not the list of texts that was written: run `mcpvectordb check`"
        )
    return tuple(values)


def _loaded(text: str) -> Any:
    """The value of a stored JSON text; None if it is none, or no computer would read it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def merge(target: Any, patch: Any) -> Any:
    """A value changed by a JSON Merge Patch (RFC 7396); neither argument is modified.

    Objects are merged, null removes a member, anything else replaces.
    """
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def storable(text: object, name: str, *, blank: bool = True) -> str:
    """Return `text` if UTF-8 can encode it, else raise InvalidInput; `blank` allows blank text."""
    if not isinstance(text, str):
        raise InvalidInput(f"{name} must be text, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{name} has half of a surrogate pair at position {error.start}, which is no character"
        ) from None
    if not blank and not text.strip():
        raise InvalidInput(f"{name} must not be blank")
    return text


def library_name(name: object) -> str:
    """Return `name` if it is a valid name of a library, else raise InvalidInput."""
    library = storable(name, "library", blank=False)
    if len(library) > 200:
        raise InvalidInput(f"library is {len(library)} characters long; a name has at most 200")
    return library


def whole_number(value: object, name: str, least: int = 0) -> int:
    """`value` if it is a whole number from `least` to 2^63 - 1, the largest that SQLite stores."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise InvalidInput(f"{name} must be a whole number of {least} or more, not {quoted(value)}")
    return value


def checked_page(limit: int, offset: int) -> None:
    """Raise InvalidInput unless limit and offset are whole numbers of 0 or more."""
    whole_number(limit, "limit")
    whole_number(offset, "offset")


def from_base64(value: object, name: str) -> bytes:
    """The bytes of a base64 text; raises InvalidInput."""
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except ValueError:
        pass
    raise InvalidInput(f"{name} is not base64 text")


def check(value: object, place: str = "metadata", depth: int = 0) -> None:
    """Raise InvalidInput, which names the place, if JSON and SQLite cannot hold a value."""
    if depth > MAX_DEPTH:
        raise InvalidInput(f"metadata is nested more than {MAX_DEPTH} deep")
    match value:
        case str():
            storable(value, place)
        case None | bool():
            pass
        case int():
            if not -(2**63) <= value < 2**63:
                raise InvalidInput(f"{place} is too large a whole number; give it as text")
        case float():
            if not math.isfinite(value):
                raise InvalidInput(f"{place} is {value}, which is not a number that can be stored")
        case Mapping():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise InvalidInput(f"{place} has the key {quoted(key)}, but keys must be text")
                if not key.isascii():
                    storable(key, f"a key of {place}")
                if not (isinstance(item, str) and item.isascii()):  # most need no further check
                    check(item, f"{place}.{key}", depth + 1)
        case list() | tuple():
            for position, item in enumerate(value):
                check(item, f"{place}[{position}]", depth + 1)
        case _:
            raise InvalidInput(f"{place} is a {type(value).__name__}, which JSON cannot hold")
