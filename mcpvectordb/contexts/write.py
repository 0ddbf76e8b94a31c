"""Writing contexts: chunks and embeddings are made before the transaction, and everything is stored
in one or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import apsw

from mcpvectordb import dates, metadata
from mcpvectordb.contexts.context import Change, Entry, Image
from mcpvectordb.contexts.fulltext import ContextFulltext
from mcpvectordb.contexts.merge_patch import merge
from mcpvectordb.contexts.metadata_index import MetadataIndex, folded
from mcpvectordb.errors import ModelMissing, NotFound
from mcpvectordb.index.chunks import ChunkIndex, embedding_text
from mcpvectordb.index.encoder import Encoder
from mcpvectordb.ingest import chunking
from mcpvectordb.records import Span


class Prepared(NamedTuple):
    """The chunks of texts that are about to be stored, and their embeddings; `note` says why there
    are none of these.
    """

    spans: Mapping[str, Sequence[Span]]
    model: int = 0
    vectors: Mapping[str, bytes] | None = None
    note: str = ""


class Writer:
    """Puts contexts into their tables and takes them out, inside the caller's transaction."""

    def __init__(
        self, encoder: Encoder, index: ChunkIndex, words: ContextFulltext, keys: MetadataIndex
    ) -> None:
        self._encoder, self._index, self._words, self._keys = encoder, index, words, keys

    def prepare(self, texts: Iterable[str]) -> Prepared:
        """Outside of any transaction: cut texts into chunks and embed them. A model that fails
        raises ModelError.
        """
        size, overlap = self._encoder.ensure_model()
        spans = {text: self._split(text, size, overlap) for text in dict.fromkeys(texts)}
        passages = [passage for text in spans for passage in _passages(text, spans[text])]
        try:
            model, vectors = self._encoder.embed_texts(self._index, passages)
        except ModelMissing as error:
            return Prepared(
                spans, note=f"stored and found by words, but not yet by meaning: {error}"
            )
        return Prepared(spans, model, vectors)

    def add(
        self, sql: apsw.Connection, entry: Entry, prepared: Prepared
    ) -> tuple[int, Literal["added", "repeated"]]:
        """Store a checked entry; one that repeats the last words of its thread by the same source
        only renews these.
        """
        now, hash = dates.now(), _hash(entry.text)
        last = sql.execute(
            "SELECT id, source, hash FROM contexts WHERE thread = ? ORDER BY id DESC LIMIT 1",
            (entry.thread,),
        ).fetchone()
        if repeated := last is not None and last[1:] == (entry.source, hash):
            id = int(last[0])
            sql.execute("UPDATE contexts SET updated_at = ? WHERE id = ?", (now, id))
            self._embed(sql, id, prepared)
        else:
            sql.execute(
                "INSERT INTO contexts (thread, source, hash, created_at, updated_at) VALUES (?, ?, "
                "?, ?, ?)",
                (entry.thread, entry.source, hash, now, now),
            )
            id = sql.last_insert_rowid()
            self._put_text(sql, id, entry.text, prepared)
        if entry.metadata is not None:
            self._put_metadata(sql, id, entry.metadata or None)
        self._put_rest(sql, id, entry.tags, entry.images)
        return id, "repeated" if repeated else "added"

    def change(self, sql: apsw.Connection, change: Change, prepared: Prepared) -> tuple[str, ...]:
        """Make a checked change; which fields it wrote. Raises NotFound."""
        row = sql.execute("SELECT metadata FROM contexts WHERE id = ?", (change.id,)).fetchone()
        if row is None:
            raise NotFound(f"no context has the id {change.id}")
        values = change.metadata
        if change.metadata_patch is not None:
            values = merge(metadata.decode(row[0] or "{}"), change.metadata_patch)
        if change.text is not None:
            self._index.remove(sql, change.id)
            self._words.remove(sql, change.id)
            self._put_text(sql, change.id, change.text, prepared)
            sql.execute(
                "UPDATE contexts SET hash = ? WHERE id = ?", (_hash(change.text), change.id)
            )
        if values is not None:
            self._put_metadata(sql, change.id, values)
        self._put_rest(sql, change.id, change.tags, change.images)
        sql.execute("UPDATE contexts SET updated_at = ? WHERE id = ?", (dates.now(), change.id))
        written = {
            "text": change.text,
            "metadata": values,
            "tags": change.tags,
            "images": change.images,
            "content_type": change.images,
            "embedding": None if prepared.note else change.text,
        }
        return tuple(field for field, given in written.items() if given is not None)

    def remove(self, sql: apsw.Connection, ids: Iterable[int]) -> None:
        """Take contexts out, with everything that belongs to them."""
        for id in ids:
            self._index.remove(sql, id)
            self._words.remove(sql, id)
            sql.execute("DELETE FROM contexts WHERE id = ?", (id,))

    def _split(self, text: str, size: int, overlap: int) -> list[Span]:
        starts = self._encoder.tokens().token_starts(text)
        return chunking.split(
            text, starts=starts.tolist(), size=size, overlap=overlap, kind="markdown"
        )

    def _put_text(self, sql: apsw.Connection, id: int, text: str, prepared: Prepared) -> None:
        self._index.put(sql, id, "", text, prepared.spans[text])
        self._words.put(sql, id, text)
        self._embed(sql, id, prepared)

    def _embed(self, sql: apsw.Connection, id: int, prepared: Prepared) -> None:
        """Store the embeddings of those of a context's chunks that wait for one."""
        if prepared.vectors is not None:
            chunks = [
                chunk
                for (chunk,) in sql.execute("SELECT id FROM context_chunks WHERE owner = ?", (id,))
            ]
            passages = [
                (chunk, embedding_text(title, headings, text))
                for chunk, title, headings, text in self._index.passages(sql, chunks)
            ]
            vectors = prepared.vectors
            self._index.settle(
                sql,
                prepared.model,
                ((chunk, vectors[text]) for chunk, text in passages if text in vectors),
            )

    def _put_metadata(
        self, sql: apsw.Connection, id: int, values: Mapping[str, Any] | None
    ) -> None:
        text = None if values is None else metadata.encode(values)
        sql.execute(
            "UPDATE contexts SET metadata = ?, folded = ? WHERE id = ?",
            (text, folded(self._keys.names(sql), values), id),
        )

    def _put_rest(
        self,
        sql: apsw.Connection,
        id: int,
        tags: Sequence[str] | None,
        images: Sequence[Image] | None,
    ) -> None:
        if tags is not None:
            sql.execute("DELETE FROM context_tags WHERE context = ?", (id,))
            sql.executemany(
                "INSERT INTO context_tags (context, tag) VALUES (?, ?)", ((id, tag) for tag in tags)
            )
        if images is not None:
            sql.execute("DELETE FROM context_images WHERE context = ?", (id,))
            sql.executemany(
                "INSERT INTO context_images (context, position, mime_type, metadata, data) VALUES "
                "(?, ?, ?, ?, ?)",
                (
                    (
                        id,
                        position,
                        image.mime_type,
                        None if image.metadata is None else metadata.encode(image.metadata),
                        image.data,
                    )
                    for position, image in enumerate(images)
                ),
            )


def _passages(text: str, spans: Sequence[Span]) -> list[str]:
    return [embedding_text("", span.headings, text[span.start : span.end]) for span in spans]


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
