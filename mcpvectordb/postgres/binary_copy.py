"""PostgreSQL's binary COPY format: values to the bytes of rows. Pure.

A row is the number of its fields, then each field as its length in bytes and its value; all numbers
are big-endian, and the length of NULL is -1. A vector of pgvector is its dimension, two empty bytes
and its numbers in float32.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from mcpvectordb.postgres.values import to_json, to_text
from mcpvectordb.storage.lazy import np

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
NULL = b"\xff\xff\xff\xff"

Field = Callable[[Any], bytes]
"""Writes a value that is not None, its length before it."""

_INT4, _INT8 = struct.Struct(">ii"), struct.Struct(">iq")
_LENGTH, _COUNT = struct.Struct(">i"), struct.Struct(">h")
_VECTOR = struct.Struct(">ihh")


def int4(value: int) -> bytes:
    """An integer of 32 bits."""
    return _INT4.pack(4, value)


def int8(value: int) -> bytes:
    """An integer of 64 bits."""
    return _INT8.pack(8, value)


def blob(value: bytes) -> bytes:
    """A bytea."""
    return _LENGTH.pack(len(value)) + value


def text(value: str) -> bytes:
    """A text."""
    return blob(to_text(value).encode())


def json_text(value: str) -> bytes:
    """A json, from JSON as the file has it."""
    return blob(to_json(value).encode())


def vector(value: bytes) -> bytes:
    """A vector, from float32 as the file has it."""
    numbers = np.frombuffer(value, "<f4")
    return _VECTOR.pack(4 + len(value), len(numbers), 0) + numbers.astype(">f4").tobytes()


def row(fields: Sequence[Field], values: Sequence[Any]) -> bytes:
    """A row of as many values as there are fields."""
    return _COUNT.pack(len(fields)) + b"".join(
        NULL if value is None else field(value) for field, value in zip(fields, values, strict=True)
    )
