"""The tables that a publisher fills: by COPY into temporary ones, then at once into their place.

COPY into a table does not work under row-level security, INSERT does. And the triggers that make
postings see all new rows of a transaction together.

In PostgreSQL's binary COPY format a row is the number of its fields, then each field as its length
in bytes and its value; all numbers are big-endian, and the length of NULL is -1. A vector of
pgvector is its dimension, two empty bytes and its numbers in float32.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from psycopg import sql as names

from mcpvectordb.postgres.connection import Connection
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


BLOCK = 1 << 18  # bytes that are sent at once


class Table(NamedTuple):
    """A table, and how the values of its columns are written."""

    name: str
    columns: dict[str, Field]


_PLACE: dict[str, Field] = {
    "id": int8,
    "owner": int8,
    "origin": int4,
    "position": int4,
    "tile_start": int4,
    "start": int4,
    "end": int4,
    "first_line": int4,
    "last_line": int4,
    "page": int4,
    "tile": text,
    "headings": text,
    "header": text,
    "footer": text,
    "hash": blob,
}
_EMBEDDING: dict[str, Field] = {"chunk": int8, "model": int4, "origin": int4, "embedding": vector}
DOCUMENTS = Table(
    "documents",
    {
        "key": int8,
        "origin": int4,
        **dict.fromkeys(("id", "library", "source", "title", "hash", "file_type"), text),
        "size": int8,
        **dict.fromkeys(("modified", "created_at", "metadata"), text),
        "fields": json_text,
        "path": text,
        "chunks": int4,
        **dict.fromkeys(("row_digest", "chunks_digest", "embeddings_digest"), blob),
    },
)
FORMER_IDS = Table("former_ids", {"origin": int4, "document": int8, "number": int8, "id": text})
DOCUMENT_CHUNKS = Table("document_chunks", {**_PLACE, "words": text, "tokens": int4})
DOCUMENT_EMBEDDINGS = Table("document_embeddings", _EMBEDDING)
MEMORIES = Table(
    "contexts",
    {
        "id": int8,
        "origin": int4,
        "thread": text,
        "source": text,
        "hash": blob,
        "metadata": text,
        "fields": json_text,
        **dict.fromkeys(("created_at", "updated_at", "uid"), text),
        "words": text,
        "spellings": text,
        "tokens": int4,
        "row_digest": blob,
        "embeddings_digest": blob,
    },
)
MEMORY_TAGS = Table("context_tags", {"context": int8, "origin": int4, "tag": text})
MEMORY_IMAGES = Table(
    "context_images",
    {
        "context": int8,
        "origin": int4,
        "position": int4,
        "mime_type": text,
        "metadata": text,
        "data": blob,
    },
)
MEMORY_CHUNKS = Table("context_chunks", _PLACE)
MEMORY_EMBEDDINGS = Table("context_embeddings", _EMBEDDING)
VECTORS = Table(
    "vectors",
    {
        "key": int8,
        "origin": int4,
        "store": int8,
        "dimension": int4,
        **dict.fromkeys(("namespace", "id", "metadata"), text),
        "fields": json_text,
        "row_digest": blob,
    },
)
VECTOR_EMBEDDINGS = Table(
    "vector_embeddings",
    {
        "vector": int8,
        "origin": int4,
        "store": int8,
        "dimension": int4,
        "embedding": vector,
        "raw": blob,
    },
)
TABLES = (
    DOCUMENTS,
    FORMER_IDS,
    DOCUMENT_CHUNKS,
    DOCUMENT_EMBEDDINGS,
    MEMORIES,
    MEMORY_TAGS,
    MEMORY_IMAGES,
    MEMORY_CHUNKS,
    MEMORY_EMBEDDINGS,
    VECTORS,
    VECTOR_EMBEDDINGS,
)


WORD_TABLES = (
    "document_words",
    "document_terms",
    "context_words",
    "context_terms",
    "context_spellings",
    "context_spelling_terms",
)
"""The tables that triggers fill."""


def prepare(sql: Connection) -> None:
    """Make the temporary tables of a connection that has none yet."""
    known = sql.execute("SELECT to_regclass('pg_temp.staged_documents') IS NOT NULL").fetchone()
    if known and known[0]:
        return
    for table in TABLES:
        sql.execute(
            names.SQL("CREATE TEMP TABLE {} (LIKE mcpvectordb.{}) ON COMMIT DELETE ROWS").format(
                _staged(table), names.Identifier(table.name)
            )
        )


def put(sql: Connection, table: Table, rows: Iterable[Sequence[Any]]) -> int:
    """Add rows to a table; returns their number."""
    return _copy(sql, table, rows) and _move(sql, table, names.SQL(""))


def changed(table: Table) -> tuple[str, ...]:
    """The columns that change when a row is replaced: all but its key and its origin."""
    return tuple(each for each in list(table.columns)[1:] if each != "origin")


def put_again(sql: Connection, table: Table, rows: Iterable[Sequence[Any]]) -> int:
    """Add rows to a table whose first column is its key, or replace those that have it."""
    key, *_ = table.columns
    values = names.SQL(", ").join(
        names.SQL("{0} = excluded.{0}").format(names.Identifier(each)) for each in changed(table)
    )
    instead = names.SQL(" ON CONFLICT ({}) DO UPDATE SET {}").format(names.Identifier(key), values)
    return _copy(sql, table, rows) and _move(sql, table, instead)


def _copy(sql: Connection, table: Table, rows: Iterable[Sequence[Any]]) -> int:
    fields = tuple(table.columns.values())
    statement = names.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        _staged(table), _columns(table)
    )
    count, block = 0, bytearray(HEADER)
    with sql.cursor() as cursor, cursor.copy(statement) as copy:
        for each in rows:
            block += row(fields, each)
            count += 1
            if len(block) > BLOCK:
                copy.write(bytes(block))
                block.clear()
        copy.write(bytes(block + TRAILER))
    return count


def _move(sql: Connection, table: Table, instead: names.Composable) -> int:
    moved = sql.execute(
        names.SQL("INSERT INTO {0} ({1}) SELECT {1} FROM {2}{3}").format(
            names.Identifier(table.name), _columns(table), _staged(table), instead
        )
    )
    return moved.rowcount


def _staged(table: Table) -> names.Identifier:
    return names.Identifier("pg_temp", f"staged_{table.name}")


def _columns(table: Table) -> names.Composable:
    return names.SQL(", ").join(map(names.Identifier, table.columns))
