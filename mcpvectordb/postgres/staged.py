"""The tables that a publisher fills: by COPY into temporary ones, then at once into their place.

COPY into a table does not work under row-level security, INSERT does. And the triggers that make
postings see all new rows of a transaction together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from psycopg import sql as names
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.types import TypeInfo
from psycopg.types.string import StrBinaryDumper

from mcpvectordb.postgres.connection import Connection, TextDumper, to_json
from mcpvectordb.storage.lazy import np


class JsonDumper(StrBinaryDumper):
    """JSON as the file has it."""

    oid = 114  # of the type json in every database

    def dump(self, obj: str) -> Buffer | None:
        """The bytes that are sent."""
        return super().dump(to_json(obj))


class VectorDumper(Dumper):
    """float32 as the file has it: for pgvector the dimension, two empty bytes, and the numbers."""

    format = Format.BINARY

    def dump(self, obj: bytes) -> Buffer | None:
        """The bytes that are sent, all numbers in network byte order."""
        numbers = np.frombuffer(obj, "<f4")
        return len(numbers).to_bytes(2) + bytes(2) + numbers.astype(">f4").tobytes()


_PLACE = (
    "id int8, owner int8, origin int4, position int4, tile_start int4, start int4, end int4, "
    "first_line int4, last_line int4, page int4, tile text, headings text, header text, "
    "footer text, hash bytea"
)
_EMBEDDING = "chunk int8, model int4, origin int4, embedding vector"
_COLUMNS = {
    "documents": "key int8, origin int4, id text, library text, source text, title text, "
    "hash text, file_type text, size int8, modified text, created_at text, metadata text, "
    "fields json, path text, chunks int4, row_digest bytea, chunks_digest bytea, "
    "embeddings_digest bytea",
    "former_ids": "origin int4, document int8, number int8, id text",
    "document_chunks": f"{_PLACE}, words text, tokens int4",
    "document_embeddings": _EMBEDDING,
    "contexts": "id int8, origin int4, thread text, source text, hash bytea, metadata text, "
    "fields json, created_at text, updated_at text, valid_from text, valid_to text, "
    "replaced_by text, provenance text, uid text, words text, spellings text, tokens int4, "
    "row_digest bytea, embeddings_digest bytea",
    "context_tags": "context int8, origin int4, tag text",
    "context_images": "context int8, origin int4, position int4, mime_type text, metadata text, "
    "data bytea",
    "context_chunks": _PLACE,
    "context_embeddings": _EMBEDDING,
    "vectors": "key int8, origin int4, store int8, dimension int4, namespace text, id text, "
    "metadata text, fields json, row_digest bytea",
    "vector_embeddings": "vector int8, origin int4, store int8, dimension int4, "
    "embedding vector, raw bytea",
}
TABLES = {
    table: dict(each.split() for each in columns.split(", ")) for table, columns in _COLUMNS.items()
}
"""The columns of each table, and their types."""

WORD_TABLES = tuple(
    "document_words document_terms context_words context_terms context_spellings "
    "context_spelling_terms document_fields context_fields vector_fields".split()
)
"""The tables that triggers fill."""


def prepare(sql: Connection) -> None:
    """Make the temporary tables of a connection that has none yet, and let it send all types."""
    known = sql.execute("SELECT to_regclass('pg_temp.staged_documents') IS NOT NULL").fetchone()
    if known and known[0]:
        return
    equip(sql)
    for table in TABLES:
        sql.execute(
            names.SQL("CREATE TEMP TABLE {} (LIKE mcpvectordb.{}) ON COMMIT DELETE ROWS").format(
                _staged(table), names.Identifier(table)
            )
        )


def equip(sql: Connection) -> None:
    """Let COPY write texts, JSON and vectors of a file; other statements send what they did."""
    vector = TypeInfo.fetch(sql, "vector")
    if vector is not None:
        vector.register(sql)
        dumpers = (TextDumper, JsonDumper, type("Vector", (VectorDumper,), {"oid": vector.oid}))
        for each in dumpers:
            sql.adapters.register_dumper(None, each)


def changed(table: str) -> tuple[str, ...]:
    """The columns that change when a row is replaced: all but its key and its origin."""
    return tuple(each for each in list(TABLES[table])[1:] if each != "origin")


def put(sql: Connection, table: str, rows: Iterable[Sequence[Any]], *, again: bool = False) -> None:
    """Add rows to a table; `again` replaces those that have the same key, its first column."""
    columns = names.SQL(", ").join(map(names.Identifier, TABLES[table]))
    copied = names.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(_staged(table), columns)
    with sql.cursor() as cursor:
        with cursor.copy(copied) as copy:
            copy.set_types(list(TABLES[table].values()))
            for each in rows:
                copy.write_row(each)
        if not cursor.rowcount:
            return
    instead: names.Composable = names.SQL("")
    if again:
        key, *_ = TABLES[table]
        values = names.SQL(", ").join(
            names.SQL("{0} = excluded.{0}").format(names.Identifier(each))
            for each in changed(table)
        )
        instead = names.SQL(" ON CONFLICT ({}) DO UPDATE SET {}").format(
            names.Identifier(key), values
        )
    sql.execute(
        names.SQL("INSERT INTO {0} ({1}) SELECT {1} FROM {2}{3}").format(
            names.Identifier(table), columns, _staged(table), instead
        )
    )


def _staged(table: str) -> names.Identifier:
    return names.Identifier("pg_temp", f"staged_{table}")
