"""What a file holds, item by item, as one read transaction sees it.

Each item is a dict: the line of it that JSONL has (`DocumentItems.line` …), with bytes as they are.
Nothing is kept but the item at hand, so memory is bounded by the largest one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import apsw

from mcpvectordb.documents import libraries
from mcpvectordb.documents.items import DocumentItems
from mcpvectordb.documents.libraries import LibraryVersions, checked_name
from mcpvectordb.errors import NotFound
from mcpvectordb.index import models
from mcpvectordb.index.models import ModelRow
from mcpvectordb.memories.items import MemoryItems
from mcpvectordb.search.why_empty import unknown_name
from mcpvectordb.vectors.items import VectorItems


class Counts(NamedTuple):
    """How many items there are to export, and how many images these have."""

    documents: int
    memories: int
    vectors: int
    images: int

    @property
    def items(self) -> int:
        """The number of documents, memories and vectors together."""
        return self.documents + self.memories + self.vectors


class ExportSnapshot:
    """The content of a file in an open read transaction: all of it, or one library's documents."""

    def __init__(self, sql: apsw.Connection, library: str | None) -> None:
        self._sql, self.library = sql, library
        self.model: ModelRow | None = models.active(sql)
        if library is not None:
            known = [name for (name,) in sql.execute(libraries.NAMES)]
            if checked_name(library) not in known:
                raise NotFound(unknown_name("library", library, known))

    def settings(self) -> dict[str, Any]:
        """What the file settles for all texts: chunk sizes, precision, indexed metadata keys."""
        kept = dict(
            self._sql.execute(
                "SELECT name, value FROM settings "
                "WHERE name IN ('chunk_size', 'chunk_overlap', 'embeddings', 'indexed_metadata')"
            )
        )
        return {name: json.loads(value) for name, value in kept.items()}

    def counts(self) -> Counts:
        """The numbers of documents, memories and vectors that are exported."""
        documents = self._sql.execute(
            f"SELECT count(*) FROM published_documents WHERE {self._chosen}", self._bindings
        ).get
        if self.library is not None:
            return Counts(documents, 0, 0, 0)
        tables = ("contexts", "vectors", "context_images")
        others = (self._sql.execute(f"SELECT count(*) FROM {table}").get for table in tables)
        return Counts(documents, *others)

    def libraries(self) -> Iterator[dict[str, Any]]:
        """The libraries that follow a folder, with what is said of their parts."""
        for version in LibraryVersions.where(self._sql, "?1 IS NULL OR name = ?1", (self.library,)):
            yield LibraryVersions.line(version)

    def documents(self) -> Iterator[dict[str, Any]]:
        """The documents, in the order in which they were written."""
        for version in DocumentItems.where(self._sql, self._chosen, self._bindings):
            yield DocumentItems.line(self._sql, version, self.model and self.model.key)

    def memories(self) -> Iterator[dict[str, Any]]:
        """The memories, by their ids; none if only a library is exported."""
        for version in MemoryItems.where(self._sql, "?", (self.library is None,)):
            yield MemoryItems.line(self._sql, version, self.model and self.model.key)

    def stores(self) -> Iterator[tuple[str, str]]:
        """Name and metric of each store of vectors, also of empty ones."""
        yield from self._sql.execute(
            "SELECT name, metric FROM stores WHERE ? ORDER BY key", (self.library is None,)
        )

    def vectors(self) -> Iterator[dict[str, Any]]:
        """The vectors, in the order in which they were added; none if a library is exported."""
        for row in self._sql.execute(
            f"{VectorItems.select} WHERE ? ORDER BY {VectorItems.key}", (self.library is None,)
        ):
            yield VectorItems.line(VectorItems.version(self._sql, row), row[-1])

    def has_double_precision(self) -> bool:
        """Whether any vector has numbers that float32 does not hold exactly."""
        return self.library is None and bool(
            self._sql.execute(
                "SELECT EXISTS (SELECT 1 FROM vectors v JOIN vector_embeddings e "
                "ON e.vector = v.key WHERE octet_length(e.embedding) = 8 * v.dimension)"
            ).get
        )

    @property
    def _chosen(self) -> str:
        return "1" if self.library is None else "library = ?"

    @property
    def _bindings(self) -> tuple[str, ...]:
        return () if self.library is None else (self.library,)
