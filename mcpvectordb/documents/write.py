"""Write documents: prepared outside of any transaction, then written with all chunks in one."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import apsw

from mcpvectordb import metadata
from mcpvectordb.config import Config
from mcpvectordb.documents.given import Given, encoded, of_keys, stored
from mcpvectordb.errors import TooLarge
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.encoder import Encoder
from mcpvectordb.ingest import chunking
from mcpvectordb.records import Parsed, Source, Span, Status
from mcpvectordb.storage.file import File


class PreparedDocument(NamedTuple):
    """A document that is ready to be written.

    `own` is the metadata of its source, `given` what people say of it. `moved` is the key of a
    document whose id, creation time and metadata it takes over.
    """

    library: str
    source: Source
    size: int
    hash: str
    title: str
    text: str
    spans: list[Span]
    own: Mapping[str, Any]
    given: Given
    moved: int | None


class DocumentWriter:
    """Writes and removes documents; one of more than `max_chunks` chunks is refused."""

    def __init__(self, file: File, encoder: Encoder, index: ChunkIndex, max_chunks: int) -> None:
        self._file, self._encoder, self._index = file, encoder, index
        self._max_chunks = max_chunks

    def prepare(
        self,
        source: Source,
        parsed: Parsed,
        *,
        hash: str,
        library: str,
        given: Mapping[str, Any] | None = None,
        title: str | None = None,
        moved: int | None = None,
        chunk_size: int | None = None,
        chunk_overlap: int | None = None,
    ) -> PreparedDocument:
        """The document for `write`: metadata checked, text split into chunks, raw bytes dropped.

        Raises TooLarge for a text that makes too many chunks.
        """
        said = Given(title or "", of_keys(given or (), given or {}))
        metadata.encode(said.over(parsed.metadata))  # refuses what cannot be stored
        default_size, default_overlap = self._encoder.ensure_model()
        spans = self._split(
            parsed,
            source.source,
            chunk_size or default_size,
            default_overlap if chunk_overlap is None else chunk_overlap,
        )
        return PreparedDocument(
            library=library,
            source=replace(source, raw=b""),
            size=len(source.raw),
            hash=hash,
            title=title or parsed.title,
            text=parsed.text,
            spans=spans,
            own=parsed.metadata,
            given=said,
            moved=moved,
        )

    def _split(self, parsed: Parsed, source: str, size: int, overlap: int) -> list[Span]:
        starts, most = self._encoder.tokens().token_starts(parsed.text), self._max_chunks
        if len(starts) <= most * size:  # otherwise splitting would only take time and memory
            spans = chunking.split(
                parsed.text,
                starts=starts.tolist(),
                size=size,
                overlap=overlap,
                kind=parsed.kind,
                pages=parsed.pages,
                most=most + 1,
            )
            if len(spans) <= most:
                return spans
        raise TooLarge(
            f"the text of {source!r} makes more than {most} chunks (max_chunks); divide it into "
            f"several documents, or set {Config.ENV_PREFIX}MAX_CHUNKS to allow more"
        )

    def write(self, prepared: PreparedDocument, *, duplicate: bool = False) -> tuple[Status, int]:
        """Write a document in place of those with its source; its status and key.

        It keeps what people said of the newest of those.

        With `duplicate` those with its source stay.
        """
        source = prepared.source.source
        with self._file.writing() as sql:
            replaced: list[int] = []
            if not duplicate:
                # Another process may have written it meanwhile.
                if (known := self.known(source, prepared.library, prepared.hash)) is not None:
                    return "skipped", known
                rows = sql.execute(
                    "SELECT key FROM documents WHERE library = ? AND source = ?",
                    (prepared.library, source),
                )
                replaced = [key for (key,) in rows]
            prepared = _with_given(sql, prepared, replaced)
            key = _insert(sql, prepared)
            self._index.put(sql, key, prepared.title, prepared.text, prepared.spans)
            for each in replaced:
                self.remove(sql, each)
            if prepared.moved is not None:
                self._take_over(sql, key, prepared.moved)
        return "replaced" if replaced else "indexed", key

    def known(self, source: str, library: str, hash: str) -> int | None:
        """The key of the document with this source and content in a library; None without one."""
        with self._file.reading() as sql:
            row = sql.execute(
                "SELECT key FROM documents WHERE library = ? AND source = ? AND hash = ? ORDER BY "
                "key LIMIT 1",
                (library, source, hash),
            ).fetchone()
        return row[0] if row else None

    def remove(self, sql: apsw.Connection, key: int) -> int:
        """Remove a document with its chunks; the number of chunks."""
        removed = self._index.remove(sql, key)
        sql.execute("DELETE FROM documents WHERE key = ?", (key,))
        return removed

    def _take_over(self, sql: apsw.Connection, key: int, moved: int) -> None:
        """Remove the document `moved`, if it is still there, and give its identity to another."""
        identity = sql.execute(
            "SELECT id, created_at, metadata, given FROM documents WHERE key = ?", (moved,)
        ).fetchone()
        if identity:
            self.remove(sql, moved)
            sql.execute(
                "UPDATE documents SET id = ?, created_at = ?, metadata = ?, given = ? "
                "WHERE key = ?",
                (*identity, key),
            )


def _with_given(
    sql: apsw.Connection, prepared: PreparedDocument, replaced: list[int]
) -> PreparedDocument:
    """The document with what people said of the one that it replaces or takes over."""
    before = prepared.moved or (replaced[-1] if replaced else None)
    if before is None:
        return prepared
    given = stored(sql, before, prepared.own).then(prepared.given)
    return prepared._replace(given=given, title=given.title or prepared.title)


def _insert(sql: apsw.Connection, prepared: PreparedDocument) -> int:
    source = prepared.source
    sql.execute(
        "INSERT INTO documents (id, library, source, title, hash, file_type, size, modified, "
        "etag, created_at, metadata, given, mtime_ns) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            str(uuid.uuid4()),
            prepared.library,
            source.source,
            prepared.title,
            prepared.hash,
            source.file_type,
            prepared.size,
            source.modified,
            source.etag,
            datetime.now(UTC).isoformat(timespec="microseconds"),
            encoded(prepared.given.over(prepared.own)),
            prepared.given.encode(),
            source.mtime_ns,
        ),
    )
    return sql.last_insert_rowid()
