"""The parts of which a database over a file is made; `postgres.engine` has those of another one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mcpvectordb.config import Config
from mcpvectordb.documents import rows
from mcpvectordb.history.log import History
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.resident import ResidentEntries
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.storage.file import File

if TYPE_CHECKING:
    from mcpvectordb.index.fulltext import MemoryFulltext
    from mcpvectordb.index.metadata_index import MetadataIndex
    from mcpvectordb.vectors.store import VectorStore


class FileEngine:
    """What a database over a file is made of."""

    def __init__(self, path: str | os.PathLike[str], config: Config, tuning: Tuning) -> None:
        self.file = File(
            path,
            read_only=config.read_only,
            busy_timeout=config.busy_timeout,
            read_timeout=config.read_timeout,
            idle_seconds=tuning.idle_seconds,
        )
        memory = ResidentEntries(config.resident_bytes)
        self.resident, self._tuning = memory, tuning
        self.indexes = (
            ChunkIndex(
                "document",
                "(SELECT title FROM documents WHERE key = c.owner)",
                memory=memory,
                filtered=rows.FILTERED,
                unpublished="SELECT document FROM unpublished_documents",
                tuning=tuning,
            ),
            ChunkIndex("context", "''", words=False, memory=memory, tuning=tuning),
        )

    def fulltext(self) -> MemoryFulltext:
        """The words of memories."""
        from mcpvectordb.index.fulltext import MemoryFulltext

        return MemoryFulltext(self.indexes[1])

    def metadata_index(self, names: str) -> MetadataIndex:
        """The indexed metadata keys of memories."""
        from mcpvectordb.index.metadata_index import MetadataIndex

        return MetadataIndex(names)

    def vector_store(self, history: History) -> VectorStore:
        """The tables of vectors."""
        from mcpvectordb.vectors.store import VectorStore

        return VectorStore(history, self.resident, self._tuning)
