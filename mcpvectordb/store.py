"""The store: an open file, or a published database, with what everything that works on it shares.

What the engines do differently is behind `Engine`: how rows are read and written (`file`), how
passages are matched by words and by meaning (`indexes`), two indexes of memories, and the tables of
vectors. No other module asks which engine answers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mcpvectordb import filters
from mcpvectordb.config import Config
from mcpvectordb.errors import InvalidInput, NotFound, quoted
from mcpvectordb.history.log import History
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.encoder import Encoder
from mcpvectordb.index.resident import Allowed
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.ranking.rerank import CachedReranker
from mcpvectordb.records import Condition
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.file import File

if TYPE_CHECKING:
    from mcpvectordb.embedding.embedder import Embedder
    from mcpvectordb.index.keyword import MemoryFulltext
    from mcpvectordb.index.metadata_index import MetadataIndex


class Engine(Protocol):
    """SQLite or PostgreSQL: where items are kept, and the indexes over them."""

    file: File  # connections and transactions
    indexes: tuple[ChunkIndex, ChunkIndex]  # the passages of documents, and those of memories

    def fulltext(self) -> MemoryFulltext:
        """The words of memories."""

    def metadata_index(self, names: str) -> MetadataIndex:
        """The indexed metadata keys of memories."""

    def vector_store(self, history: History) -> Any:
        """The tables of vectors: a `VectorStore`, which this module must not import."""


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
        self.reranker = CachedReranker(config)

    # Made, and their modules loaded, on first use: most processes need no memories.

    @cached_property
    def fulltext(self) -> MemoryFulltext:
        """The words of memories."""
        return self._engine.fulltext()

    @cached_property
    def metadata_index(self) -> MetadataIndex:
        """The indexed metadata keys of memories."""
        return self._engine.metadata_index(self.config.indexed_metadata)

    @cached_property
    def vector_store(self) -> Any:
        """The tables of vectors."""
        return self._engine.vector_store(self.history)

    def close(self) -> None:
        """Stop what runs in threads, release the models, and close the file."""
        self.encoder.close()
        self.reranker.close()
        self.file.close()


Item = TypeVar("Item")


def one_or_all(ids: Any, get: Callable[[Any], Item]) -> Item | list[Item]:
    """What `get` finds for an id, or for several what it finds, once each, in their order."""
    if isinstance(ids, str | int):
        return get(ids)
    found = []
    for id in dict.fromkeys(ids):
        with contextlib.suppress(NotFound):
            found.append(get(id))
    return found


def every(
    store: OpenStore, read: Callable[[Sql, int, int], Sequence[tuple[int, Item]]]
) -> Iterator[Item]:
    """All items, a page at a time: `read` returns the first so many rows after a key."""
    last, most = 0, store.tuning.rows_per_page
    while True:
        with store.file.reading() as sql:
            page = read(sql, last, most)
        yield from (item for _, item in page)
        if len(page) < most:
            return
        last = page[-1][0]


@dataclass(frozen=True, slots=True)
class ItemFilter:
    """Which items are chosen: a condition in SQL (`filters.EVERYTHING`: all) with its bindings.

    `conditions` are those of a `where` that are compiled into it.
    """

    condition: str
    bindings: tuple[Any, ...]
    conditions: tuple[Condition, ...] = ()

    def allowed(self, select: str, conditions: tuple[Condition, ...] = ()) -> Allowed:
        """What an index may return: `select` is the SQL up to the condition.

        `conditions` are all of them, if what is in memory can be filtered by them.
        """
        if self.condition == filters.EVERYTHING:
            return Allowed()
        origins = filters.named(self.conditions, "origin")
        return Allowed(f"{select} {self.condition}", self.bindings, conditions, origins)

    def count(self, sql: Sql, rows: str) -> int:
        """How many of the rows are chosen."""
        select = f"SELECT count(*) FROM {rows} WHERE {self.condition}"
        return int(sql.execute(select, self.bindings).get)

    def values(self, sql: Sql, rows: str, field: str, fields: Mapping[str, str]) -> dict[Any, int]:
        """How many rows have each value of a field, the most frequent first: InvalidInput."""
        if field not in fields:
            raise InvalidInput(f"field must be one of {', '.join(fields)}, not {quoted(field)}")
        return dict(
            sql.execute(
                f"SELECT {fields[field]} AS value, count(*) AS number FROM {rows} "
                f"WHERE {self.condition} GROUP BY value ORDER BY number DESC, value",
                self.bindings,
            )
        )
