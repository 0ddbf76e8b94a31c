"""The parts of which a database over PostgreSQL is made, in place of those of a file."""

from __future__ import annotations

import json
from collections.abc import Sequence

import apsw

from mcpvectordb.history.log import History
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.metadata_index import MetadataIndex
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.postgres.engine import PublishedFile
from mcpvectordb.postgres.keyword import PostgresKeywordIndex, PostgresMemoryFulltext
from mcpvectordb.postgres.vector import PostgresVectorIndex
from mcpvectordb.postgres.vector_store import PostgresVectorStore


class PublishedChunks(ChunkIndex):
    """The chunks of a shelf: the statements of a file's, with another keyword and vector index."""

    def __init__(self, shelf: str, title: str, exact_rows: int) -> None:
        super().__init__(shelf, title)
        self._shelf = shelf
        self.keyword = PostgresKeywordIndex(exact_rows)
        self.vector = PostgresVectorIndex(self.embeddings, exact_rows=exact_rows)

    def count_pending(
        self, sql: apsw.Connection, model: int, owners: Sequence[int] | None = None
    ) -> int:
        """The number of chunks without an embedding by a model.

        Of all, these are the items of origins that were embedded by another one.
        """
        if owners is None:
            return int(
                sql.execute(
                    "SELECT coalesce(sum(t.items), 0) FROM totals t JOIN origins o "
                    "ON o.key = t.origin WHERE t.shelf = ? AND o.model IS DISTINCT FROM ?",
                    (self._shelf, model),
                ).get
            )
        return int(
            sql.execute(
                f"SELECT count(*) FROM {self.chunks} c WHERE c.owner IN "
                f"(SELECT value FROM json_each(?)) AND NOT EXISTS (SELECT 1 FROM "
                f"{self.embeddings} e WHERE e.chunk = c.id AND e.model = ?)",
                (json.dumps(list(owners)), model),
            ).get
        )

    def is_leased(self, sql: apsw.Connection, model: int) -> bool:
        """Nobody embeds here."""
        return False


class NoMetadataIndex(MetadataIndex):
    """No metadata keys have an index."""

    def names(self, sql: apsw.Connection) -> tuple[str, ...]:
        """None."""
        return ()


class PostgresEngine:
    """What a database over PostgreSQL is made of."""

    def __init__(self, url: str, read_timeout: float, tuning: Tuning) -> None:
        self.file = PublishedFile(url, read_timeout=read_timeout)
        self._listed_rows = tuning.engine_rows
        self.indexes: tuple[ChunkIndex, ChunkIndex] = (
            PublishedChunks(
                "document", "(SELECT title FROM documents WHERE key = c.owner)", tuning.engine_rows
            ),
            PublishedChunks("context", "''", tuning.engine_rows),
        )

    def fulltext(self) -> PostgresMemoryFulltext:
        """The words of memories."""
        return PostgresMemoryFulltext(self._listed_rows)

    def metadata_index(self, names: str) -> NoMetadataIndex:
        """The indexed metadata keys."""
        return NoMetadataIndex(names)

    def vector_store(self, history: History) -> PostgresVectorStore:
        """The tables of vectors."""
        return PostgresVectorStore(history)
