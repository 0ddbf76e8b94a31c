"""The documents shelf: ingest sources, browse them, and search their chunks."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import apsw

from mcpvectordb import filters, metadata
from mcpvectordb.config import Config
from mcpvectordb.connection import File
from mcpvectordb.encoder import Encoder
from mcpvectordb.errors import InvalidInput, ModelError, NoText, NotFound, TooLarge
from mcpvectordb.filters import Where
from mcpvectordb.index import Index
from mcpvectordb.ingest import chunking, formats, sources
from mcpvectordb.ingest.formats import code, markdown
from mcpvectordb.ingest.worker import Worker
from mcpvectordb.meaning import Allowed
from mcpvectordb.metadata import storable
from mcpvectordb.records import Chunk, Document, Hit, Ingested, Library, Parsed, ProgressCallback, Results, Source, Span
from mcpvectordb.search import checked_mode, checked_page, checked_window, find

_COLUMNS = ("id", "library", "source", "title", "hash", "file_type", "size", "modified", "created_at", "metadata")
_FIELDS = {name: f"d.{name}" for name in _COLUMNS}
_CHUNK_FIELDS = {**_FIELDS, "page": "c.page", "position": "c.position"}
_SELECT = (f"SELECT d.key, {', '.join('d.' + name for name in _COLUMNS)}, "
           "(SELECT count(*) FROM document_chunks WHERE owner = d.key) FROM documents d")


class Documents:
    """`Database.documents`."""

    def __init__(self, file: File, config: Config, encoder: Encoder, index: Index) -> None:
        self._file, self._config, self._encoder, self._index = file, config, encoder, index
        self._worker = Worker(config)

    def ingest(self, source: str | os.PathLike[str], *, library: str = "default", metadata: Mapping[str, Any] | None = None,
               embed: bool = True, progress: ProgressCallback | None = None, guard: bool = False,
               roots: Sequence[str | os.PathLike[str]] = ()) -> Ingested:
        """Bring in a file or an http(s) URL.

        The same source in the same library is skipped while its bytes are the same and replaced when they are not;
        the old document stays until the new one is stored. With `embed=False` it is found by words at once, and by
        meaning after `Database.embed_pending()`. `guard` refuses files that hold secrets, `roots` all files outside of
        these folders: set them when somebody else names the path.
        """
        own = () if self._file.memory else (self._file.path,)
        read = sources.read(source, config=self._config, guard=guard, roots=[Path(root) for root in roots], forbidden=own)
        hash = hashlib.sha256(read.raw).hexdigest()
        _checked_library(library)
        if (known := self._known(read.source, library, hash)) is not None:
            return Ingested(status="skipped", document=known)
        return self._store(read, self._worker.parse(read), hash, library, metadata, embed, progress)

    def ingest_text(self, text: str, *, source: str, title: str | None = None, library: str = "default",
                    metadata: Mapping[str, Any] | None = None, embed: bool = True,
                    progress: ProgressCallback | None = None) -> Ingested:
        """Bring in a text under a name of your own; Markdown structure in it is understood. See `ingest`."""
        storable(text, "text")
        storable(source, "source", blank=False)
        if not text.strip():
            raise NoText(f"the text of {source!r} is blank: there is nothing to find in it")
        raw = text.encode()
        if len(raw) > self._config.max_source_bytes:
            raise TooLarge(f"the text of {source!r} is {len(raw):,} bytes; "
                           f"at most {self._config.max_source_bytes:,} are ingested")
        hash = hashlib.sha256(raw).hexdigest()
        _checked_library(library)
        if (known := self._known(source, library, hash)) is not None:
            return Ingested(status="skipped", document=known)
        name = PurePosixPath(source).name or source
        given = Source(source=source, name=name, raw=raw, file_type=PurePosixPath(source).suffix[1:].lower() or "unknown")
        written_in = formats.by_name(name)
        parsed = (code if written_in and written_in.module == "code" else markdown).parse(given)
        if title is not None:
            parsed = replace(parsed, title=storable(title, "title", blank=False))
        return self._store(given, parsed, hash, library, metadata, embed, progress)

    def get(self, id: str) -> Document:
        """The document with this id; raises NotFound."""
        with self._file.reading() as sql:
            return _document(self._row(sql, id))

    def text(self, id: str) -> str:
        """The whole text of a document, exactly as it came in."""
        with self._file.reading() as sql:
            key = self._row(sql, id)[0]
            return "".join(tile for (tile,) in sql.execute(
                "SELECT tile FROM document_chunks WHERE owner = ? ORDER BY position", (key,)))

    def browse(self, *, library: str | None = None, where: Where | None = None, limit: int = 20,
               offset: int = 0) -> list[Document]:
        """Documents that fulfil all conditions, newest first."""
        checked_page(limit, offset)
        condition, bindings = filters.compile(_within(library, where), _FIELDS, "d.metadata")
        with self._file.reading() as sql:
            return [_document(row) for row in sql.execute(
                f"{_SELECT} WHERE {condition} ORDER BY d.key DESC LIMIT ? OFFSET ?", (*bindings, limit, offset))]

    def count(self, *, library: str | None = None, where: Where | None = None) -> int:
        """How many documents fulfil all conditions."""
        condition, bindings = filters.compile(_within(library, where), _FIELDS, "d.metadata")
        with self._file.reading() as sql:
            return int(sql.execute(f"SELECT count(*) FROM documents d WHERE {condition}", bindings).get)

    def libraries(self) -> list[Library]:
        """The libraries that have documents, by name."""
        with self._file.reading() as sql:
            return [Library(name=name, documents=documents, chunks=chunks) for name, documents, chunks in sql.execute(
                "SELECT library, count(DISTINCT d.key), count(c.id) FROM documents d "
                "LEFT JOIN document_chunks c ON c.owner = d.key GROUP BY library ORDER BY library")]

    def delete(self, id: str) -> int:
        """Remove a document; how many chunks went with it. An unknown id removes nothing."""
        with self._file.writing() as sql:
            row = sql.execute("SELECT key FROM documents WHERE id = ?", (storable(id, "id"),)).fetchone()
            return self._remove(sql, row[0]) if row else 0

    def search(self, query: str, *, mode: str = "hybrid", library: str | None = None, where: Where | None = None,
               limit: int = 5, offset: int = 0, min_score: float = 0.0) -> Results[Chunk]:
        """The chunks that answer a query best, by words, by meaning, or (hybrid) by both.

        Any string is a query; "quoted phrases" must occur, -excluded words must not. Conditions apply before the cut
        to `limit`. A score is 0 to 1: in hybrid mode relative to the best candidates of this query, in text and vector
        mode comparable between queries. The results say which legs ran, and why one did not.
        """
        wanted = checked_window(limit, offset)
        checked, text = checked_mode(mode), storable(query, "query")
        condition, bindings = filters.compile(_within(library, where), _CHUNK_FIELDS, "d.metadata")
        allowed = Allowed() if condition == "1" else Allowed(
            f"SELECT c.id FROM document_chunks c JOIN documents d ON d.key = c.owner WHERE {condition}", tuple(bindings))
        meant = self._encoder.meant(text) if mode != "text" else ""
        with self._file.reading() as sql:
            found = find(sql, self._index, text, meant, checked, allowed, wanted)
            page = [row for row in found.rows[offset:wanted] if row[1] >= min_score]
            chunks = self._chunks(sql, [id for id, _, _ in page])
        hits = tuple(Hit(item=chunks[id], score=score, scores=scores) for id, score, scores in page)
        return Results(hits=hits, legs=found.legs, reasons=found.reasons)

    def close(self) -> None:
        """End the parser's process."""
        self._worker.close()

    def _known(self, source: str, library: str, hash: str) -> Document | None:
        with self._file.reading() as sql:
            row = sql.execute(f"{_SELECT} WHERE d.library = ? AND d.source = ? AND d.hash = ? ORDER BY d.key LIMIT 1",
                              (library, source, hash)).fetchone()
        return _document(row) if row else None

    def _store(self, source: Source, parsed: Parsed, hash: str, library: str, given: Mapping[str, Any] | None, embed: bool,
               progress: ProgressCallback | None) -> Ingested:
        metadata.encode(given)  # so that an error speaks of what was given
        kept = metadata.encode({**parsed.metadata, **(given or {})})
        spans = self._spans(parsed, *self._encoder.settled())
        with self._file.writing() as sql:
            old = [int(key) for (key,) in sql.execute(
                "SELECT key FROM documents WHERE library = ? AND source = ?", (library, source.source))]
            if (known := self._known(source.source, library, hash)) is not None:  # another process was faster
                return Ingested(status="skipped", document=known)
            key = _insert(sql, (str(uuid.uuid4()), library, source.source, parsed.title, hash, source.file_type,
                                len(source.raw), source.modified, source.etag, _now(), kept))
            self._index.put(sql, key, parsed.title, parsed.text, spans)
            for old_key in old:
                self._remove(sql, old_key)
            document = _document(sql.execute(f"{_SELECT} WHERE d.key = ?", (key,)).fetchall()[0])
        note = self._embed(key, progress) if embed else ""
        with self._file.reading() as sql:
            active = self._encoder.active(sql)
            pending = self._index.count_pending(sql, active.key, [key]) if active else 0
        return Ingested(status="replaced" if old else "indexed", document=document, pending=pending, note=note)

    def _spans(self, parsed: Parsed, size: int, overlap: int) -> list[Span]:
        starts = self._encoder.tokens().token_starts(parsed.text)
        return chunking.split(parsed.text, starts=starts.tolist(), size=size, overlap=overlap, kind=parsed.kind,
                              pages=parsed.pages)

    def _embed(self, key: int, progress: ProgressCallback | None) -> str:
        """Embed a document's chunks; the reason when that cannot be done: its text is stored all the same."""
        try:
            self._encoder.embed(index=self._index, owners=[key], progress=progress)
        except ModelError as error:
            return f"stored and found by words, but not yet by meaning: {error}"
        return ""

    def _remove(self, sql: apsw.Connection, key: int) -> int:
        removed = self._index.remove(sql, key)
        sql.execute("DELETE FROM documents WHERE key = ?", (key,))
        return removed

    def _row(self, sql: apsw.Connection, id: str) -> Sequence[Any]:
        row = sql.execute(f"{_SELECT} WHERE d.id = ?", (storable(id, "id"),)).fetchone()
        if row is None:
            raise NotFound(f"no document has the id {id!r}")
        return tuple(row)

    def _chunks(self, sql: apsw.Connection, ids: Sequence[int]) -> dict[int, Chunk]:
        wanted = json.dumps(list(ids))
        texts = {id: text for id, _, _, text in self._index.passages(sql, ids)}
        documents = {row[0]: _document(row) for row in sql.execute(
            f"{_SELECT} WHERE d.key IN (SELECT owner FROM document_chunks WHERE id IN (SELECT value FROM json_each(?)))",
            (wanted,))}
        rows = sql.execute('SELECT id, owner, position, start, "end", first_line, last_line, page, headings '
                           "FROM document_chunks WHERE id IN (SELECT value FROM json_each(?))", (wanted,))
        return {id: Chunk(id=id, document=documents[owner], position=position, text=texts[id], start=start, end=end,
                          first_line=first_line, last_line=last_line, page=page, headings=tuple(json.loads(headings)))
                for id, owner, position, start, end, first_line, last_line, page, headings in rows}


def _within(library: str | None, where: Where | None) -> list[Any]:
    conditions: list[Any] = list(filters.conditions(where))
    return conditions if library is None else [("library", "eq", _checked_library(library)), *conditions]


def _checked_library(library: str) -> str:
    if len(storable(library, "library", blank=False)) > 200:
        raise InvalidInput(f"library is {len(library)} characters long; a name has at most 200")
    return library


def _insert(sql: apsw.Connection, values: tuple[object, ...]) -> int:
    sql.execute("INSERT INTO documents (id, library, source, title, hash, file_type, size, modified, etag, created_at, "
                "metadata) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    return sql.last_insert_rowid()


def _document(row: Sequence[Any]) -> Document:
    _, *values, chunks = row
    fields = dict(zip(_COLUMNS, values, strict=True))
    return Document(**{**fields, "metadata": metadata.decode(fields["metadata"])}, chunks=chunks)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
