"""The words of contexts in FTS5, each context as a whole: by their stems, and as they are
spelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import apsw

from mcpvectordb.index import Allowed, Ranked
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.storage import fts5
from mcpvectordb.text.tokens import index_text

STEMS, SPELLINGS = "context_words", "context_spellings"
TABLES = (STEMS, SPELLINGS)


class ContextFulltext:
    """Rows have the context's id; the texts are in the chunks of `index`. Works inside the caller's
    transaction.
    """

    def __init__(self, index: ChunkIndex) -> None:
        self._index = index
        self._deleters = [fts5.Deleter(table) for table in TABLES]

    def put(self, sql: apsw.Connection, id: int, text: str) -> None:
        """Add a context's words."""
        for table in TABLES:
            _put(sql, table, id, text)

    def remove(self, sql: apsw.Connection, id: int) -> None:
        """Take a context's words out."""
        for deleter in self._deleters:
            deleter.delete(sql, [id])

    def match(
        self, sql: apsw.Connection, expression: str, stemmed: bool, allowed: Allowed, limit: int
    ) -> Ranked:
        """The best contexts for an FTS5 expression, as (id, BM25), best first; of equals the
        newer.
        """
        table = STEMS if stemmed else SPELLINGS
        within = f"AND +rowid IN ({allowed.select}) " if allowed.select else ""
        rows = sql.execute(
            f"SELECT rowid, bm25({table}) AS s FROM {table} WHERE {table} MATCH ? {within}"
            "ORDER BY s, rowid DESC LIMIT ?",
            (expression, *allowed.bindings, limit),
        )
        return [(id, -score) for id, score in rows]

    def optimize(self, sql: apsw.Connection) -> None:
        """Give up what removed rows still hold."""
        for table in TABLES:
            fts5.optimize(sql, table)

    def rebuild(self, sql: apsw.Connection) -> None:
        """Make both tables again from the chunks."""
        for table in TABLES:
            fts5.clear(sql, table)
            self._fill(sql, table, sql)

    def problems(self, sql: apsw.Connection) -> Iterator[str]:
        """What is wrong with the words, in words."""
        for table in TABLES:
            yield from fts5.tombstone_problems(sql, table)
            if not fts5.same_content(sql, table, partial(self._fill, sql, table)):
                yield f"{table}: the words in the index are not those of the contexts"

    def _fill(self, sql: apsw.Connection, table: str, target: apsw.Connection) -> None:
        for id, text in self._index.texts(sql):
            _put(target, table, id, text)


def _put(sql: apsw.Connection, table: str, id: int, text: str) -> None:
    sql.execute(f"INSERT INTO {table} (rowid, text) VALUES (?, ?)", (id, index_text(text)))
