"""Chunks that are about to be stored: their rows, under ids that are given in advance.

So the chunks of many texts go into each table by one statement.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apsw

from mcpvectordb.index.indexed_chunk import IndexedChunk, visible
from mcpvectordb.ingest.span import Span


class NewChunks(NamedTuple):
    """Spans of a text; `first` is the position of the first of them."""

    owner: int
    title: str
    text: str
    spans: Sequence[Span]
    first: int = 0


def insert_statement(table: str) -> str:
    """The SQL that inserts a row into a table of chunks."""
    return (
        f"INSERT INTO {table} (id, owner, position, tile, tile_start, start, "
        '"end", first_line, last_line, page, headings, header, footer, hash) '
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )


def made(texts: Iterable[NewChunks], last: int) -> Iterator[tuple[tuple[Any, ...], IndexedChunk]]:
    """The row of each new chunk, which ends with its hash, and the chunk; ids follow `last`."""
    id = last
    for owner, title, text, spans, first in texts:
        for position, span in enumerate(spans, first):
            id += 1
            front = visible(text[span.tile_start : span.start])
            body = text[span.start : span.end]
            chunk = IndexedChunk(id, title, span.headings, span.header, body, front)
            yield _row(owner, position, text, span, chunk), chunk


def _row(owner: int, position: int, text: str, span: Span, chunk: IndexedChunk) -> tuple[Any, ...]:
    return (
        chunk.id,
        owner,
        position,
        text[span.tile_start : span.tile_end],
        span.tile_start,
        span.start,
        span.end,
        span.first_line,
        span.last_line,
        span.page,
        json.dumps(span.headings, ensure_ascii=False) if span.headings else "[]",
        span.header,
        span.footer,
        chunk.hash,
    )


def last_id(sql: apsw.Connection, table: str) -> int:
    """The last id that a table of chunks has given, from which AUTOINCREMENT would count on."""
    return int(
        sql.execute(
            f"SELECT max(coalesce((SELECT max(id) FROM {table}), 0), "
            f"coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{table}'), 0))"
        ).get
    )


def hashes(sql: apsw.Connection, table: str, wanted: Iterable[bytes]) -> set[bytes]:
    """Those of some hashes that chunks of a table have."""
    found = sql.executemany(
        f"SELECT hash FROM {table} WHERE hash = ? LIMIT 1", ((each,) for each in wanted)
    )
    return {hash for (hash,) in found}
