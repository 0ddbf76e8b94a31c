"""How a document gets into the file: made ready outside of any transaction, then written with all
its chunks in one.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import apsw

from mcpvectordb import metadata
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.encoder import Encoder
from mcpvectordb.ingest import chunking
from mcpvectordb.records import Parsed, Source, Span, Status
from mcpvectordb.storage.file import File


class PreparedDocument(NamedTuple):
    """A document that has only to be written; `moved` is the key of the one whose identity it takes
    over.
    """

    library: str
    source: Source
    size: int
    hash: str
    title: str
    text: str
    spans: list[Span]
    metadata: str
    moved: int | None


class DocumentWriter:
    """Writes documents, and takes them out again."""

    def __init__(self, file: File, encoder: Encoder, index: ChunkIndex) -> None:
        self._file, self._encoder, self._index = file, encoder, index

    def ready(
        self,
        source: Source,
        parsed: Parsed,
        *,
        hash: str,
        library: str,
        given: Mapping[str, Any] | None = None,
        moved: int | None = None,
        chunk_size: int | None = None,
        chunk_overlap: int | None = None,
    ) -> PreparedDocument:
        """All that can be done before anything is written: metadata checked, text cut into chunks,
        raw bytes let go.
        """
        kept = metadata.encode({**parsed.metadata, **(given or {})})
        size, overlap = self._encoder.ensure_model()
        starts = self._encoder.tokens().token_starts(parsed.text)
        if chunk_overlap is not None:
            overlap = chunk_overlap
        spans = chunking.split(
            parsed.text,
            starts=starts.tolist(),
            size=chunk_size or size,
            overlap=overlap,
            kind=parsed.kind,
            pages=parsed.pages,
        )
        return PreparedDocument(
            library,
            replace(source, raw=b""),
            len(source.raw),
            hash,
            parsed.title,
            parsed.text,
            spans,
            kept,
            moved,
        )

    def write(self, ready: PreparedDocument, *, duplicate: bool = False) -> tuple[Status, int]:
        """Write a document in place of what is there of its source; what was done, and its key."""
        with self._file.writing() as sql:
            if (
                not duplicate
                and (known := self.known(ready.source.source, ready.library, ready.hash))
                is not None
            ):
                return "skipped", known  # another process was faster
            old = (
                []
                if duplicate
                else [
                    int(key)
                    for (key,) in sql.execute(
                        "SELECT key FROM documents WHERE library = ? AND source = ?",
                        (ready.library, ready.source.source),
                    )
                ]
            )
            key = _insert(sql, ready)
            self._index.put(sql, key, ready.title, ready.text, ready.spans)
            for each in old:
                self.remove(sql, each)
            if ready.moved is not None:
                self._inherit(sql, key, ready.moved)
        return "replaced" if old else "indexed", key

    def known(self, source: str, library: str, hash: str) -> int | None:
        """The key of a library's document that has this source and content."""
        with self._file.reading() as sql:
            row = sql.execute(
                "SELECT key FROM documents WHERE library = ? AND source = ? AND hash = ? ORDER BY "
                "key LIMIT 1",
                (library, source, hash),
            ).fetchone()
        return row[0] if row else None

    def remove(self, sql: apsw.Connection, key: int) -> int:
        """Take a document out; how many chunks went with it."""
        removed = self._index.remove(sql, key)
        sql.execute("DELETE FROM documents WHERE key = ?", (key,))
        return removed

    def _inherit(self, sql: apsw.Connection, key: int, moved: int) -> None:
        """Let a document take the place of another one that has its content, unless that one is
        gone.
        """
        identity = sql.execute(
            "SELECT id, created_at, metadata FROM documents WHERE key = ?", (moved,)
        ).fetchone()
        if identity:
            self.remove(sql, moved)
            sql.execute(
                "UPDATE documents SET id = ?, created_at = ?, metadata = ? WHERE key = ?",
                (*identity, key),
            )


def _insert(sql: apsw.Connection, ready: PreparedDocument) -> int:
    source = ready.source
    sql.execute(
        "INSERT INTO documents (id, library, source, title, hash, file_type, size, modified, "
        "etag, created_at, metadata, mtime_ns) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            str(uuid.uuid4()),
            ready.library,
            source.source,
            ready.title,
            ready.hash,
            source.file_type,
            ready.size,
            source.modified,
            source.etag,
            datetime.now(UTC).isoformat(timespec="microseconds"),
            ready.metadata,
            source.mtime_ns,
        ),
    )
    return sql.last_insert_rowid()
