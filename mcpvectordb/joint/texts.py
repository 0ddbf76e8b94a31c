"""The whole texts of documents and memories, one after the other: one at a time is in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import apsw

from mcpvectordb.documents import rows as document_rows
from mcpvectordb.errors import NotFound
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.joint.search import JointFilter
from mcpvectordb.memories import rows as memory_rows
from mcpvectordb.memories.memory import Memory
from mcpvectordb.records import Document, Place
from mcpvectordb.storage.dialect import dialect_of


class StoredText(NamedTuple):
    """A text, and the key of its document or the id of its memory."""

    is_document: bool
    key: int
    text: str


class StoredTexts:
    """The texts of both shelves."""

    def __init__(self, documents: ChunkIndex, memories: ChunkIndex) -> None:
        self._documents, self._memories = documents, memories

    def all(self, sql: apsw.Connection, which: JointFilter) -> Iterator[StoredText]:
        """All texts that match the filters: documents in the order of their ingest, memories."""
        if "documents" in which.kinds:
            chosen = document_rows.document_filter(
                which.library, which.of_documents, dialect=dialect_of(sql)
            )
            keys = [
                key
                for (key,) in sql.execute(
                    f"SELECT d.key FROM published_documents d WHERE {chosen.condition}",
                    chosen.bindings,
                )
            ]
            for key, text in self._documents.texts(sql, keys):
                yield StoredText(True, key, text)
        if "memories" in which.kinds:
            allowed = memory_rows.compile_filter(
                thread=which.thread,
                tags=which.tags,
                where=which.of_memories,
                dialect=dialect_of(sql),
            )
            ids = [
                id
                for (id,) in sql.execute(
                    f"SELECT x.id FROM contexts x WHERE {allowed.condition}", allowed.bindings
                )
            ]
            for id, text in self._memories.texts(sql, ids):
                yield StoredText(False, id, text)

    def one(self, sql: apsw.Connection, place: Place | None, memory: int | None) -> StoredText:
        """The text of a document, or else of a memory; raises NotFound."""
        if place is not None:
            key = document_rows.row(sql, place.document.id)[0]
            return StoredText(
                True, key, "".join(text for _, text in self._documents.texts(sql, [key]))
            )
        if memory is None or not (found := list(self._memories.texts(sql, [memory]))):
            raise NotFound(f"no context has the id {memory}")
        return StoredText(False, *found[0])

    def item(self, sql: apsw.Connection, found: StoredText) -> Document | Memory:
        """The document or memory that has a text."""
        if found.is_document:
            return document_rows.by_key(sql, found.key)
        [memory] = memory_rows.by_ids(sql, self._memories, [found.key], images=False).values()
        return memory

    def page(self, sql: apsw.Connection, found: StoredText, offset: int) -> int | None:
        """The page on which a character of a document stands; None where there are no pages."""
        if not found.is_document:
            return None
        page: int | None = sql.execute(
            "SELECT (SELECT page FROM document_chunks WHERE owner = ? AND tile_start <= ? "
            "ORDER BY position DESC LIMIT 1)",
            (found.key, offset),
        ).get
        return page
