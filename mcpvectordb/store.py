"""The store: an open file, or a published database, with what everything that works on it shares.

What the engines do differently is behind `Engine`: how rows are read and written (`file`), how
passages are matched by words and by meaning (`indexes`), and two indexes of memories. No other
module asks which engine answers.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from mcpvectordb.config import Config
from mcpvectordb.embedding.embedder import Embedder
from mcpvectordb.history.log import History
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.encoder import Encoder
from mcpvectordb.index.preload import Preload
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.search.rerank import CachedReranker
from mcpvectordb.storage.cache import Cache
from mcpvectordb.storage.file import File

if TYPE_CHECKING:
    from mcpvectordb.index.fulltext import MemoryFulltext
    from mcpvectordb.index.metadata_index import MetadataIndex


class Engine(Protocol):
    """SQLite or PostgreSQL: where items are kept, and the indexes over them."""

    @property
    def file(self) -> File:
        """Connections and transactions."""

    @property
    def indexes(self) -> tuple[ChunkIndex, ChunkIndex]:
        """The passages of documents, and those of memories."""

    def fulltext(self) -> MemoryFulltext:
        """The words of memories."""

    def metadata_index(self, names: str) -> MetadataIndex:
        """The indexed metadata keys of memories."""


class OpenStore:
    """Connections and transactions, the clock of history, the indexes and the model of one file."""

    def __init__(
        self, engine: Engine, config: Config, tuning: Tuning, embedder: Embedder | None = None
    ) -> None:
        self.config, self.tuning, self._engine = config, tuning, engine
        self.file, self.indexes = engine.file, engine.indexes
        self.documents, self.memories = engine.indexes
        self.history = History(self.file, config)
        self.encoder = Encoder(self.file, config, embedder, self.indexes)
        self.preload = Preload(self.file, self.documents, config.resident_bytes)
        self.cache = Cache()
        self.reranker = CachedReranker(config, self.cache)

    # Made, and their modules loaded, on first use: most processes need no memories.

    @cached_property
    def fulltext(self) -> MemoryFulltext:
        """The words of memories."""
        return self._engine.fulltext()

    @cached_property
    def metadata_index(self) -> MetadataIndex:
        """The indexed metadata keys of memories."""
        return self._engine.metadata_index(self.config.indexed_metadata)

    def close(self) -> None:
        """Stop what runs in threads, release the models, and close the file."""
        self.preload.close()
        self.encoder.close()
        self.reranker.close()
        self.file.close()
