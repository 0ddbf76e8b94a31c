"""Writes memories: chunks and embeddings are made first, then stored in one transaction."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import apsw

from mcpvectordb import metadata
from mcpvectordb.errors import ModelMissing, NotFound
from mcpvectordb.history.versions import Item, Version
from mcpvectordb.index.indexed_chunk import embedding_text
from mcpvectordb.index.metadata_index import folded
from mcpvectordb.index.spans import ItemText
from mcpvectordb.ingest import chunking
from mcpvectordb.ingest.span import Span
from mcpvectordb.memories import items
from mcpvectordb.memories.items import MemoryItems, images_of, stored_images, text_hash
from mcpvectordb.memories.memory import Change, Entry, Image
from mcpvectordb.storage.file import File
from mcpvectordb.store import OpenStore

# Up to it a memory of another file keeps its id; all later ones of this file get greater ids.
_LARGEST_FOREIGN_ID = 10**9
_COLUMNS = ("thread", "source", "hash", "created_at", "updated_at")


class PreparedMemories(NamedTuple):
    """The chunks of texts and, by the text of each chunk, their embeddings.

    `vectors` is None where no model is available, and incomplete where it took too long; `note`
    then has the reason.
    """

    spans: Mapping[str, Sequence[Span]]
    model: int = 0
    vectors: Mapping[str, bytes] | None = None
    note: str = ""


class MemoryWriter:
    """Adds, changes and removes memories in all their tables, in the caller's transaction."""

    def __init__(self, store: OpenStore) -> None:
        self._encoder, self._index, self._history = store.encoder, store.memories, store.history
        self._words, self._keys = store.fulltext, store.metadata_index

    def prepare(self, texts: Iterable[str], deadline: float | None) -> PreparedMemories:
        """Split texts into chunks and embed them, outside of any transaction; may raise ModelError.

        A model that is not on this machine is no error, nor one that is not done at the deadline:
        the chunks then wait for their embeddings.
        """
        spans = self.split(texts)
        passages = [passage for text in spans for passage in _passages(text, spans[text])]
        try:
            model, vectors = self._encoder.embed_texts(self._index, passages, deadline=deadline)
        except ModelMissing as error:
            note = self._encoder.provisional.note(error=str(error))
            return PreparedMemories(spans, note=note)
        waiting = len(set(passages) - vectors.keys())
        note = self._encoder.provisional.note(waiting) if waiting else ""
        return PreparedMemories(spans, model, vectors, note)

    def split(self, texts: Iterable[str]) -> dict[str, Sequence[Span]]:
        """The chunks of each distinct text."""
        size, overlap = self._encoder.ensure_model()
        return {text: self._split(text, size, overlap) for text in dict.fromkeys(texts)}

    def add(
        self, sql: apsw.Connection, entry: Entry, prepared: PreparedMemories, now: str
    ) -> tuple[int, Literal["added", "repeated"]]:
        """Store a checked entry; the memory's id and what was done.

        An entry with the source and text of its thread's last memory updates that memory, unless
        it has a time of its own.
        """
        said = {
            "thread": entry.thread,
            "source": entry.source,
            "hash": text_hash(entry.text),
            "created_at": entry.created_at or now,
            "updated_at": entry.updated_at or now,
        }
        last = sql.execute(
            "SELECT id, source, hash FROM contexts WHERE thread = ? ORDER BY id DESC LIMIT 1",
            (entry.thread,),
        ).fetchone()
        repeated = False
        if entry.created_at is None and last and last[1:] == (entry.source, said["hash"]):
            id, repeated = int(last[0]), True
            self._mark(sql, id, now)
        else:
            id = self._put_row(sql, None, uuid.uuid4().hex, said)
            self._put_text(sql, id, entry.text, prepared.spans[entry.text])
        self._embed(sql, id, prepared)
        if entry.metadata is not None:
            self._put_metadata(sql, id, entry.metadata or None)
        _put_tags(sql, id, entry.tags)
        _put_images(sql, id, entry.images)
        return id, "repeated" if repeated else "added"

    def change(
        self, sql: apsw.Connection, change: Change, prepared: PreparedMemories, now: str
    ) -> tuple[str, ...]:
        """Make a checked change; the names of the fields that were written. Raises NotFound."""
        row = sql.execute("SELECT metadata FROM contexts WHERE id = ?", (change.id,)).fetchone()
        if row is None:
            raise NotFound(f"no context has the id {change.id}")
        self._mark(sql, change.id, now)
        values = change.metadata
        if change.metadata_patch is not None:
            values = metadata.merge(metadata.decode(row[0] or "{}"), change.metadata_patch)
        if change.text is not None:
            self._remove_text(sql, change.id)
            self._put_text(sql, change.id, change.text, prepared.spans[change.text])
            self._embed(sql, change.id, prepared)
            sql.execute(
                "UPDATE contexts SET hash = ? WHERE id = ?", (text_hash(change.text), change.id)
            )
        if values is not None:
            self._put_metadata(sql, change.id, values)
        _put_tags(sql, change.id, change.tags)
        _put_images(sql, change.id, change.images)
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
        """Remove memories with their chunks, embeddings, tags and images."""
        for id in ids:
            item = items.keep(self._history, sql, id)
            self._remove_text(sql, id)
            sql.execute("DELETE FROM contexts WHERE id = ?", (id,))
            if item is not None:
                self._history.bury(sql, item)

    def restore(self, sql: apsw.Connection, version: Version, content: ItemText) -> int:
        """Store a version that was checked in place of what is there of its memory; its id.

        The id is the one that it had, unless another memory of this file has it.
        """
        fields, id = version.fields or {}, version.local["id"]
        here = MemoryItems.find(sql, version.item)
        if here is not None:
            items.keep(self._history, sql, here.local["id"])
            self._remove_text(sql, here.local["id"])
        # All later ids would be greater than one that another file made up.
        used = sql.execute("SELECT seq FROM sqlite_sequence WHERE name = 'contexts'").get or 0
        free = here is None and id <= max(used, _LARGEST_FOREIGN_ID)
        if not free or sql.execute("SELECT 1 FROM contexts WHERE id = ?", (id,)).get:
            id = None
        said = {**fields, "hash": text_hash(content.text)}
        id = self._put_row(sql, id, version.item.name, said)
        self._put_text(sql, id, content.text, content.spans)
        values = fields["metadata"]
        self._put_metadata(sql, id, None if values is None else metadata.decode(values))
        _put_tags(sql, id, fields["tags"])
        _put_images(sql, id, images_of(content))
        return id

    def _put_row(
        self, sql: apsw.Connection, id: int | None, uid: str, said: Mapping[str, Any]
    ) -> int:
        """Insert the row of a memory, or update the one with this uid; its id."""
        columns = {name: said[name] for name in _COLUMNS}
        columns |= {"id": id, "uid": uid, "stamp": self._history.stamp(sql)}
        changed = ", ".join(f"{name} = excluded.{name}" for name in (*_COLUMNS, "stamp"))
        return int(
            sql.execute(
                f"INSERT INTO contexts ({', '.join(columns)}) "
                f"VALUES ({', '.join('?' * len(columns))}) "
                f"ON CONFLICT (uid) DO UPDATE SET {changed} RETURNING id",
                tuple(columns.values()),
            ).get
        )

    def _mark(self, sql: apsw.Connection, id: int, now: str) -> None:
        """Note the time of a change, before which the history keeps the memory as it is."""
        items.keep(self._history, sql, id)
        sql.execute(
            "UPDATE contexts SET updated_at = ?, stamp = ? WHERE id = ?",
            (now, self._history.stamp(sql), id),
        )

    def _remove_text(self, sql: apsw.Connection, id: int) -> None:
        self._index.remove(sql, id)
        self._words.remove(sql, id)

    def _split(self, text: str, size: int, overlap: int) -> list[Span]:
        starts = self._encoder.tokens().token_starts(text)
        return chunking.split(
            text, starts=starts.tolist(), size=size, overlap=overlap, kind="markdown"
        )

    def _put_text(self, sql: apsw.Connection, id: int, text: str, spans: Sequence[Span]) -> None:
        self._index.put(sql, id, "", text, spans)
        self._words.put(sql, id, text)

    def _embed(self, sql: apsw.Connection, id: int, prepared: PreparedMemories) -> None:
        """Store the prepared embeddings of a memory's chunks; chunks that have one keep it."""
        vectors = prepared.vectors
        if vectors is None:
            return
        rows = sql.execute("SELECT id FROM context_chunks WHERE owner = ?", (id,))
        passages = [
            (each.id, each.embedding_text)
            for each in self._index.passages(sql, [chunk for (chunk,) in rows])
        ]
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


class RestoredMemories(MemoryItems):
    """The memories of a file, of which versions come back."""

    def __init__(self, file: File, writer: MemoryWriter) -> None:
        self._file, self._writer = file, writer

    def restore(self, version: Version, content: ItemText) -> None:
        """Store a version as the present one; its embeddings are made again where none is known."""
        with self._file.writing() as sql:
            self._writer.restore(sql, version, content)

    def remove(self, item: Item) -> None:
        """Delete a memory, if it is there."""
        with self._file.writing() as sql:
            found = self.find(sql, item)
            self._writer.remove(sql, [found.local["id"]] if found else [])


def _put_tags(sql: apsw.Connection, id: int, tags: Sequence[str] | None) -> None:
    """Replace a memory's tags; None leaves them as they are."""
    if tags is None:
        return
    sql.execute("DELETE FROM context_tags WHERE context = ?", (id,))
    sql.executemany(
        "INSERT INTO context_tags (context, tag) VALUES (?, ?)", ((id, tag) for tag in tags)
    )


def _put_images(sql: apsw.Connection, id: int, images: Sequence[Image] | None) -> None:
    """Replace a memory's images; None leaves them as they are."""
    if images is None:
        return
    sql.execute("DELETE FROM context_images WHERE context = ?", (id,))
    sql.executemany(
        "INSERT INTO context_images (context, position, mime_type, metadata, data) "
        "VALUES (?, ?, ?, ?, ?)",
        ((id, position, *image) for position, image in enumerate(stored_images(images))),
    )


def _passages(text: str, spans: Sequence[Span]) -> list[str]:
    return [
        embedding_text("", span.headings, span.header, text[span.start : span.end])
        for span in spans
    ]
