"""What a file holds, item by item, as one read transaction sees it.

Nothing is kept but the item at hand, so memory is bounded by the largest one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apsw

from mcpvectordb.documents import libraries
from mcpvectordb.documents.libraries import checked_name
from mcpvectordb.errors import NotFound
from mcpvectordb.index import models
from mcpvectordb.index.encoder import Encoder
from mcpvectordb.index.models import ModelRow
from mcpvectordb.ingest.span import Span
from mcpvectordb.memories.memory import Image
from mcpvectordb.metadata import decode, decode_list
from mcpvectordb.search.why_empty import unknown_name


class ExportedChunk(NamedTuple):
    """A chunk's place in its text, and its embedding by the file's model as it is stored."""

    span: Span
    embedding: bytes | None


class ExportedDocument(NamedTuple):
    """A document with everything that the file has of it.

    `given` is what people said of it (`documents.given`), `former_ids` those of earlier versions,
    the oldest first, `root` the folder that its library follows, or "".
    """

    id: str
    library: str
    source: str
    title: str
    hash: str
    file_type: str
    size: int
    modified: str
    etag: str
    mtime_ns: int
    created_at: str
    metadata: dict[str, Any]
    given: dict[str, Any] | None
    former_ids: list[str]
    root: str
    text: str
    chunks: list[ExportedChunk]


class ExportedMemory(NamedTuple):
    """A memory with its tags, images and chunks."""

    id: int
    uid: str
    thread: str
    source: str
    metadata: dict[str, Any] | None
    created_at: str
    updated_at: str
    tags: list[str]
    images: list[Image]
    text: str
    chunks: list[ExportedChunk]


class ExportedVector(NamedTuple):
    """A vector of a store; `raw` are its numbers as they are stored, in float32 or float64."""

    store: str
    metric: str
    namespace: str
    id: str
    dimension: int
    raw: bytes
    metadata: dict[str, Any]


class ExportedLibrary(NamedTuple):
    """A library that follows a folder; `notes` describe paths in it."""

    name: str
    root: str
    pattern: str
    ignore: tuple[str, ...]
    description: str
    created_at: str
    notes: dict[str, str]


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

    def __init__(self, sql: apsw.Connection, encoder: Encoder, library: str | None) -> None:
        self._sql, self._encoder, self.library = sql, encoder, library
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
            f"SELECT count(*) FROM published_documents d WHERE {self._chosen}", self._bindings
        ).get
        if self.library is not None:
            return Counts(documents, 0, 0, 0)
        tables = ("contexts", "vectors", "context_images")
        others = (self._sql.execute(f"SELECT count(*) FROM {table}").get for table in tables)
        return Counts(documents, *others)

    def libraries(self) -> Iterator[ExportedLibrary]:
        """The libraries that follow a folder, with what is said of their parts."""
        rows = self._sql.execute(
            "SELECT name, root, pattern, ignore, description, created_at FROM libraries "
            "WHERE ?1 IS NULL OR name = ?1 ORDER BY name",
            (self.library,),
        )
        for name, root, pattern, ignore, description, created_at in rows:
            notes = self._sql.execute(
                "SELECT path, text FROM library_notes WHERE library = ? ORDER BY path", (name,)
            )
            yield ExportedLibrary(
                name, root, pattern, decode_list(ignore), description, created_at, dict(notes)
            )

    def documents(self) -> Iterator[ExportedDocument]:
        """The documents, in the order in which they were written."""
        rows: Iterable[Any] = self._sql.execute(
            "SELECT d.key, d.id, d.library, d.source, d.title, d.hash, d.file_type, d.size, "
            "d.modified, d.etag, d.mtime_ns, d.created_at, d.metadata, d.given, "
            "(SELECT root FROM libraries WHERE name = d.library) "
            f"FROM published_documents d WHERE {self._chosen} ORDER BY d.key",
            self._bindings,
        )
        for key, *fields, metadata, given, root in rows:
            former = self._sql.execute(
                "SELECT id FROM former_ids WHERE document = ? ORDER BY number", (key,)
            )
            said = _optional(given)
            text = self._text("document", key)
            ids = [id for (id,) in former]
            yield ExportedDocument._make([*fields, decode(metadata), said, ids, root or "", *text])

    def memories(self) -> Iterator[ExportedMemory]:
        """The memories, by their ids; none if only a library is exported."""
        rows = self._sql.execute(
            "SELECT id, uid, thread, source, metadata, created_at, updated_at FROM contexts "
            "WHERE ? ORDER BY id",
            (self.library is None,),
        )
        for id, uid, thread, source, metadata, created_at, updated_at in rows:
            tags = self._sql.execute(
                "SELECT tag FROM context_tags WHERE context = ? ORDER BY tag", (id,)
            )
            yield ExportedMemory(
                id,
                uid,
                thread,
                source,
                _optional(metadata),
                created_at,
                updated_at,
                [tag for (tag,) in tags],
                self._images(id),
                *self._text("context", id),
            )

    def stores(self) -> Iterator[tuple[str, str]]:
        """Name and metric of each store of vectors, also of empty ones."""
        yield from self._sql.execute(
            "SELECT name, metric FROM stores WHERE ? ORDER BY key", (self.library is None,)
        )

    def vectors(self) -> Iterator[ExportedVector]:
        """The vectors, in the order in which they were added; none if a library is exported."""
        rows: Iterable[Any] = self._sql.execute(
            "SELECT s.name, s.metric, v.namespace, v.id, v.dimension, e.embedding, v.metadata "
            "FROM vectors v JOIN stores s ON s.key = v.store "
            "JOIN vector_embeddings e ON e.vector = v.key WHERE ? ORDER BY v.key",
            (self.library is None,),
        )
        for *fields, metadata in rows:
            yield ExportedVector._make([*fields, decode(metadata)])

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
        return "1" if self.library is None else "d.library = ?"

    @property
    def _bindings(self) -> tuple[str, ...]:
        return () if self.library is None else (self.library,)

    def _images(self, memory: int) -> list[Image]:
        rows = self._sql.execute(
            "SELECT data, mime_type, metadata FROM context_images WHERE context = ? "
            "ORDER BY position",
            (memory,),
        )
        return [
            Image(data=data, mime_type=mime_type, metadata=_optional(metadata))
            for data, mime_type, metadata in rows
        ]

    def _text(self, shelf: str, owner: int) -> tuple[str, list[ExportedChunk]]:
        """The text of a document or memory and its chunks."""
        tiles: list[str] = []
        chunks: list[ExportedChunk] = []
        rows = self._sql.execute(
            'SELECT c.tile, c.tile_start, c.start, c."end", c.first_line, c.last_line, c.page, '
            f"c.headings, c.header, c.footer, e.embedding FROM {shelf}_chunks c "
            f"LEFT JOIN {shelf}_embeddings e ON e.chunk = c.id AND e.model = ? "
            "WHERE c.owner = ? ORDER BY c.position",
            (self.model.key if self.model else None, owner),
        )
        for tile, tile_start, start, end, first, last, page, headings, header, footer, raw in rows:
            span = Span(
                start=start,
                end=end,
                tile_start=tile_start,
                tile_end=tile_start + len(tile),
                first_line=first,
                last_line=last,
                page=page,
                headings=decode_list(headings),
                header=header,
                footer=footer,
            )
            tiles.append(tile)
            chunks.append(ExportedChunk(span, raw))
        return "".join(tiles), chunks


def _optional(text: str | None) -> dict[str, Any] | None:
    return None if text is None else decode(text)
