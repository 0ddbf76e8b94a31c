"""Two FTS5 tables over whole memories: one of stemmed words, one of words as they are spelled."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import apsw

from mcpvectordb.index import Allowed, Ranked
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.keyword import KeywordIndex
from mcpvectordb.storage import fts5
from mcpvectordb.text.tokens import index_text

STEMS, SPELLINGS = "context_words", "context_spellings"
TABLES = (STEMS, SPELLINGS)


class MemoryFulltext:
    """Full-text index of memories; all methods run in the caller's transaction.

    A row's id is the memory's id. The texts themselves are stored in the chunks of `index`.
    `stems` and `spellings` rank by any of a query's words; `match` by an expression.
    """

    def __init__(self, index: ChunkIndex) -> None:
        self._index = index
        self._deleters = [fts5.Deleter(table) for table in TABLES]
        self.stems, self.spellings = (
            KeywordIndex(table, "contexts", weight=1, newest=True) for table in TABLES
        )

    def put(self, sql: apsw.Connection, id: int, text: str) -> None:
        """Index a memory's text."""
        for table in TABLES:
            _put(sql, table, id, text)

    def remove(self, sql: apsw.Connection, id: int) -> None:
        """Remove a memory from the index."""
        for deleter in self._deleters:
            deleter.delete(sql, [id])

    def match(
        self, sql: apsw.Connection, expression: str, stemmed: bool, allowed: Allowed, limit: int
    ) -> Ranked:
        """The best memories for an FTS5 expression by BM25; the newer of equal ones comes first."""
        table = STEMS if stemmed else SPELLINGS
        within = f"AND +rowid IN ({allowed.select}) " if allowed.select else ""
        rows = sql.execute(
            f"SELECT rowid, bm25({table}) AS s FROM {table} WHERE {table} MATCH ? {within}"
            "ORDER BY s, rowid DESC LIMIT ?",
            (expression, *allowed.bindings, limit),
        )
        return [(id, -score) for id, score in rows]

    def optimize(self, sql: apsw.Connection) -> None:
        """Merge the FTS5 segments, which frees the space of removed rows."""
        for table in TABLES:
            fts5.optimize(sql, table)

    def rebuild(self, sql: apsw.Connection) -> None:
        """Index all memories again from their chunks."""
        for table in TABLES:
            fts5.clear(sql, table)
            self._fill(sql, table, sql)

    def problems(self, sql: apsw.Connection) -> Iterator[str]:
        """One message for each inconsistency of the two tables."""
        for table in TABLES:
            yield from fts5.tombstone_problems(sql, table)
            if not fts5.same_content(sql, table, partial(self._fill, sql, table)):
                yield f"{table}: the words in the index are not those of the contexts"

    def _fill(self, sql: apsw.Connection, table: str, target: apsw.Connection) -> None:
        for id, text in self._index.texts(sql):
            _put(target, table, id, text)


def _put(sql: apsw.Connection, table: str, id: int, text: str) -> None:
    sql.execute(f"INSERT INTO {table} (rowid, text) VALUES (?, ?)", (id, index_text(text)))
