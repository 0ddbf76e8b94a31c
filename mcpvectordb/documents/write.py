"""Write documents: prepared outside of any transaction, then written with all chunks in one.

A long document is written in several (`documents.unpublished`), so that other writers never wait
long; readers see all of it or nothing.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import apsw

from mcpvectordb import dates, metadata
from mcpvectordb.config import how_to_allow
from mcpvectordb.documents.given import DocumentChange, Given, encoded, of_keys, stored, update
from mcpvectordb.documents.unpublished import NOTHING, UnpublishedDocuments
from mcpvectordb.documents.versions import unpacked_body
from mcpvectordb.errors import DatabaseError, Exists, NotFound, TooLarge, quoted
from mcpvectordb.history.versions import Version
from mcpvectordb.index.new_chunks import NewChunks
from mcpvectordb.index.spans import stored as stored_spans
from mcpvectordb.ingest.span import Span
from mcpvectordb.records import Parsed, Source, Status
from mcpvectordb.store import OpenStore

FORMER_IDS = 20  # of a document that are kept


class PreparedDocument(NamedTuple):
    """A document that is ready to be written.

    `own` is the metadata of its source, `given` what people say of it. `moved` is the key of a
    document whose id, creation time and metadata it takes over. `created_at` is "" for now, `id` ""
    for a new one. `version` is the one of the history that it is made of: then all of its fields
    are those. Without `replaces` it is not written where its source has another text.
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
    created_at: str = ""
    id: str = ""
    version: Version | None = None
    replaces: bool = True


class DocumentWriter:
    """Writes documents; one of more than `max_chunks` chunks is refused."""

    def __init__(self, store: OpenStore, unpublished: UnpublishedDocuments) -> None:
        self.store, self.unpublished, self.versions = store, unpublished, unpublished.versions
        self._file, self._encoder, self._index = store.file, store.encoder, store.documents

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
        created_at: str = "",
        replaces: bool = True,
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
            created_at=created_at,
            replaces=replaces,
        )

    def _split(self, parsed: Parsed, source: str, size: int, overlap: int) -> list[Span]:
        from mcpvectordb.ingest import chunking

        starts, most = (
            self._encoder.tokens().token_starts(parsed.text),
            self.store.config.max_chunks,
        )
        if len(starts) <= most * size:  # otherwise splitting would only take time and memory
            spans = chunking.split(
                parsed.text,
                starts=starts.data,  # a list would take ten times the memory
                size=size,
                overlap=overlap,
                kind=parsed.kind,
                pages=parsed.pages,
                most=most + 1,
            )
            if len(spans) <= most:
                return spans
        raise TooLarge(
            f"the text of {source!r} makes more than {most} chunks "
            f"{how_to_allow('max_chunks')}, or divide it into several documents"
        )

    def write(self, prepared: PreparedDocument, *, duplicate: bool = False) -> tuple[Status, int]:
        """Write a document in place of those with its source; its status and key.

        It keeps what people said of the newest of those. With `duplicate` they stay.
        """
        return self.write_all([prepared], duplicate=duplicate)[0]

    def say(self, key: int, change: DocumentChange) -> tuple[Status, int]:
        """Make a change of what people say of a document; "updated" or "skipped", and its key.

        A new title is kept first and then written, with the text, as a document of its own in the
        place of this one: a long one takes several transactions. The next call finishes that.
        """
        if change == DocumentChange():
            return "skipped", key
        with self.versions.history.change("update"):
            with self._file.writing() as sql:
                changed, title = update(sql, self._index, self.versions, key, change)
            if title:
                return "updated", self.retitle(key, title)
        return "updated" if changed else "skipped", key

    def retitle(self, key: int, title: str) -> int:
        """Write a document again under another title, which is indexed and embedded; its new key.

        It keeps its id and creation time. Raises NotFound if it was changed or deleted meanwhile.
        """
        with self._file.reading(limited=False) as sql:
            row = sql.execute(
                "SELECT library, source, file_type, modified, etag, mtime_ns, size, hash "
                "FROM published_documents WHERE key = ?",
                (key,),
            ).fetchone()
            text, spans = stored_spans(sql, self._index.chunks, key)
        if row is None:
            raise NotFound(_CHANGED)
        library, source, file_type, modified, etag, mtime_ns, size, hash = row
        read = Source(
            source=source,
            name=source,
            raw=b"",
            file_type=file_type,
            modified=modified,
            etag=etag,
            mtime_ns=mtime_ns,
        )
        again = PreparedDocument(
            library, read, size, hash, title, text, spans, own={}, given=Given(title), moved=key
        )
        # A duplicate of the document that it takes over, which must still be there.
        return self.write(again, duplicate=True)[1]

    def write_all(
        self, documents: Sequence[PreparedDocument], *, duplicate: bool = False
    ) -> list[tuple[Status, int]]:
        """Write documents as `write` does: all short ones in one transaction, long ones in slices.

        Call it outside of any transaction.
        """
        written: list[tuple[Status, int] | None] = [None] * len(documents)
        short = [
            place
            for place, each in enumerate(documents)
            if len(self.unpublished.slices(each.spans)) < 2
        ]
        if short:
            with self._file.writing() as sql:
                replaced: list[int] = []
                new: list[NewChunks] = []
                for place in short:
                    written[place] = self._write_short(
                        sql, documents[place], duplicate, replaced, new
                    )
                self._index.put_all(sql, new)
                self.unpublished.withdraw(sql, replaced)
        done = [
            each or self._write_long(document, duplicate)
            for each, document in zip(written, documents, strict=True)
        ]
        self.unpublished.clean()
        return done

    def _write_short(
        self,
        sql: apsw.Connection,
        document: PreparedDocument,
        duplicate: bool,
        replaced: list[int],
        new: list[NewChunks],
    ) -> tuple[Status, int]:
        """Write the row of a document.

        Adds those that it replaces and its chunks, which the caller must withdraw and put.
        """
        old: list[int] = []
        if not duplicate:
            old, known = self._with_source_of(sql, document)
            if known is not None:  # another process has written it meanwhile
                return "skipped", known
        document = _with_given(sql, document, old)
        key = _insert(sql, document, self.versions.history.stamp(sql), duplicate)
        new.append(NewChunks(key, document.title, document.text, document.spans))
        if not old and document.moved is None and document.version is None:
            return "indexed", key
        self._index.put_all(sql, new)  # the history keeps texts, which may be among them
        new.clear()
        _keep_ids(sql, old, key)
        replaced += [*old, *self._take_over(sql, key, document.moved, duplicate)]
        self._adopt(sql, key, document.version, replaced)
        return "replaced" if old else "indexed", key

    def _write_long(self, document: PreparedDocument, duplicate: bool) -> tuple[Status, int]:
        """Write a document slice by slice, each in a transaction; the last one publishes it."""
        if not duplicate:
            known = self.known(document.source.source, document.library, document.hash)
            if known is not None:
                return "skipped", known
        key = 0
        try:
            with self._file.writing() as sql:
                old = [] if duplicate else self._with_source_of(sql, document)[0]
                document = _with_given(sql, document, old)
                key = _insert(sql, document, 0, duplicate)  # `publish` gives it a stamp
                self.unpublished.begin(sql, key)
            for first, spans in self.unpublished.slices(document.spans):
                with self._file.writing() as sql:
                    self.unpublished.renew(sql, key)
                    self._index.put(sql, key, document.title, document.text, spans, first)
            packed = self.unpublished.pack_long([*old, *filter(None, [document.moved])])
            with self._file.writing() as sql:
                return self._publish(sql, key, document, duplicate, packed)
        except BaseException:
            with contextlib.suppress(DatabaseError):  # the lease ends by itself
                self.unpublished.give_up(key)
                self.unpublished.clean()
            raise

    def _publish(
        self,
        sql: apsw.Connection,
        key: int,
        document: PreparedDocument,
        duplicate: bool,
        packed: Mapping[int, bytes],
    ) -> tuple[Status, int]:
        """Show a document that was written in slices instead of those with its source."""
        self.unpublished.renew(sql, key)
        old: list[int] = []
        if not duplicate:
            old, known = self._with_source_of(sql, document)
            if known is not None:
                self.unpublished.give_up(key)
                return "skipped", known
        self.unpublished.publish(sql, key)
        _keep_ids(sql, old, key)
        taken_over = self._take_over(sql, key, document.moved, duplicate, packed)
        if taken_over:
            self._index.record_everything(sql)  # what is in memory has its own metadata
        self._adopt(sql, key, document.version, taken_over)
        self.unpublished.withdraw(sql, [*old, *taken_over], packed)
        return "replaced" if old else "indexed", key

    def known(self, source: str, library: str, hash: str) -> int | None:
        """The key of the document with this source and content in a library; None without one."""
        return self.known_all(library, [(source, hash)])[0]

    def known_all(self, library: str, contents: Iterable[tuple[str, str]]) -> list[int | None]:
        """As `known`, for each pair of a source and the hash of its content."""
        wanted = list(contents)
        with self._file.reading(limited=False) as sql:
            rows: list[Any] = sql.execute(
                "SELECT source, hash, min(key) FROM published_documents WHERE library = ? "
                "AND source IN (SELECT value FROM json_each(?)) GROUP BY source, hash",
                (library, json.dumps([source for source, _ in wanted])),
            ).fetchall()
        found = {(source, hash): key for source, hash, key in rows}
        return [found.get(each) for each in wanted]

    def _with_source_of(
        self, sql: apsw.Connection, document: PreparedDocument
    ) -> tuple[list[int], int | None]:
        """The keys of the documents of a source, and of the first that has the same content.

        Raises Exists if there are some that are not to be replaced.
        """
        rows: list[Any] = sql.execute(
            "SELECT key, hash FROM published_documents WHERE library = ? AND source = ? "
            "ORDER BY key",
            (document.library, document.source.source),
        ).fetchall()
        same = next((key for key, hash in rows if hash == document.hash), None)
        if rows and same is None and not document.replaces:
            raise Exists(
                f"the library {quoted(document.library)} has another text named "
                f"{quoted(document.source.source)}: give this one another name, or let it replace "
                "the other"
            )
        return [key for key, _ in rows], same

    def restore(self, version: Version, body: bytes) -> int:
        """Write a version of the history in place of what is there of its item; returns its key."""
        text, spans = unpacked_body(body)
        fields, local = version.fields or {}, version.local
        source = Source(
            source=version.item.name,
            name=version.item.name,
            raw=b"",
            file_type=fields["file_type"],
            modified=local["modified"],
            etag=local["etag"],
            mtime_ns=local["mtime_ns"],
        )
        prepared = PreparedDocument(
            version.item.place,
            source,
            fields["size"],
            fields["hash"],
            fields["title"],
            text,
            spans,
            own={},
            given=Given(),
            moved=None,
            version=version,
        )
        return self.write(prepared, duplicate=True)[1]

    def _adopt(
        self, sql: apsw.Connection, key: int, version: Version | None, replaced: list[int]
    ) -> None:
        """Give a document the id of the version that it is made of, if no other one has it.

        Adds what it replaces, which the caller must withdraw.
        """
        if version is None:
            return
        old = [
            each
            for (each,) in sql.execute(
                "SELECT key FROM published_documents "
                "WHERE library = ? AND source = ? AND twin = ? AND key <> ?",
                (*version.item[1:], key),
            )
        ]
        self.versions.keep_whole(sql, old)
        _keep_ids(sql, old, key)
        id = version.local["id"]
        for each in old:
            sql.execute(
                "UPDATE documents SET id = ? WHERE key = ? AND id = ?", (_new_id(), each, id)
            )
        # A former id of another document goes on leading there: a merged file may name any id.
        sql.execute("DELETE FROM former_ids WHERE id = ? AND document = ?", (id, key))
        sql.execute(
            "UPDATE OR IGNORE documents SET id = ?1 WHERE key = ?2 "
            "AND NOT EXISTS (SELECT 1 FROM former_ids WHERE id = ?1)",
            (id, key),
        )
        replaced += old

    def _take_over(
        self,
        sql: apsw.Connection,
        key: int,
        moved: int | None,
        required: bool,
        packed: Mapping[int, bytes] = NOTHING,
    ) -> list[int]:
        """Give the identity of the document `moved` to another; it, if it is still there.

        Raises NotFound if it is `required` and is not there.
        """
        if moved is None:
            return []
        identity = sql.execute(
            "SELECT id, created_at, metadata, given, CASE ? WHEN 1 THEN twin ELSE '' END "
            "FROM published_documents WHERE key = ?",
            (int(required), moved),
        ).fetchone()
        if not identity:
            if required:
                raise NotFound(_CHANGED)
            return []
        self.versions.keep_whole(sql, [moved], packed)  # with its own id
        sql.execute("UPDATE documents SET id = ? WHERE key = ?", (_new_id(), moved))
        sql.execute(
            "UPDATE documents SET id = ?, created_at = ?, metadata = ?, given = ?, twin = ? "
            "WHERE key = ?",
            (*identity, key),
        )
        sql.execute("UPDATE former_ids SET document = ? WHERE document = ?", (key, moved))
        return [moved]


_CHANGED = "the document was changed or deleted meanwhile"


def _with_given(
    sql: apsw.Connection, prepared: PreparedDocument, replaced: list[int]
) -> PreparedDocument:
    """The document with what people said of the one that it replaces or takes over."""
    before = prepared.moved or (replaced[-1] if replaced else None)
    if before is None:
        return prepared
    given = stored(sql, before, prepared.own).then(prepared.given)
    return prepared._replace(given=given, title=given.title or prepared.title)


def _keep_ids(sql: apsw.Connection, replaced: Sequence[int], key: int) -> None:
    """Let the ids of documents that are replaced lead to the one that takes their place."""
    for each in replaced:
        sql.execute("UPDATE former_ids SET document = ? WHERE document = ?", (key, each))
        sql.execute(
            "INSERT INTO former_ids (id, document) "
            "SELECT id, ? FROM published_documents WHERE key = ?",
            (key, each),
        )
    if replaced:
        sql.execute(
            "DELETE FROM former_ids WHERE document = ?1 AND number NOT IN "
            "(SELECT number FROM former_ids WHERE document = ?1 ORDER BY number DESC LIMIT ?2)",
            (key, FORMER_IDS),
        )


def _insert(sql: apsw.Connection, prepared: PreparedDocument, stamp: int, twin: bool) -> int:
    """Insert the row of a document; a twin is written beside others of its source."""
    source, version = prepared.source, prepared.version
    id, created_at = prepared.id or _new_id(), prepared.created_at or dates.now()
    values = encoded(prepared.given.over(prepared.own))
    given: str | None = prepared.given.encode()
    if version is not None:
        fields = version.fields or {}
        created_at, values, given = (fields[name] for name in ("created_at", "metadata", "given"))
    sql.execute(
        "INSERT INTO documents (id, library, source, title, hash, file_type, size, modified, "
        "etag, created_at, metadata, given, mtime_ns, stamp, twin) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            id,
            prepared.library,
            source.source,
            prepared.title,
            prepared.hash,
            source.file_type,
            prepared.size,
            source.modified,
            source.etag,
            created_at,
            values,
            given,
            source.mtime_ns,
            stamp,
            version.item.twin if version else id if twin else "",
        ),
    )
    return sql.last_insert_rowid()


def _new_id() -> str:
    return str(uuid.uuid4())
