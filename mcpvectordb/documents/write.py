"""Write documents: prepared outside of any transaction, then written with all chunks in one.

A long document is written in several (`documents.unpublished`), so that other writers never wait
long; readers see all of it or nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import apsw

from mcpvectordb import dates, metadata
from mcpvectordb.config import how_to_allow
from mcpvectordb.documents.items import SHELF, DocumentItems, DocumentVersions, key_of
from mcpvectordb.documents.overrides import DocumentChange, Overrides, encoded, of_keys, stored
from mcpvectordb.documents.unpublished import NOTHING, UnpublishedDocuments
from mcpvectordb.errors import DatabaseError, Exists, InvalidInput, NotFound, TooLarge, quoted
from mcpvectordb.history.versions import LOCAL, Item, Version
from mcpvectordb.index.chunks import ChunkIndex, NewChunks
from mcpvectordb.index.spans import ItemText
from mcpvectordb.index.spans import stored as stored_text
from mcpvectordb.ingest.span import Span
from mcpvectordb.records import Parsed, Source, Status
from mcpvectordb.storage.file import File
from mcpvectordb.store import OpenStore

FORMER_IDS = 20  # of a document that are kept


class PreparedDocument(NamedTuple):
    """A document that is ready to be written: the version that it will be, and its text.

    `own` is the metadata of its source, `overrides` what people say of it; without them all fields
    are those of the version, its id too. `moved` is the key of a document whose id, creation time
    and metadata it takes over. Without `replaces` it is not written where its source has another
    text.
    """

    version: Version
    content: ItemText
    own: Mapping[str, Any] = {}
    overrides: Overrides | None = None
    moved: int | None = None
    replaces: bool = True

    @property
    def title(self) -> str:
        """Its title."""
        return str((self.version.fields or {})["title"])

    @property
    def spans(self) -> list[Span]:
        """Where its chunks are."""
        return self.content.spans


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
        said = Overrides(title or "", of_keys(given or (), given or {}))
        metadata.encode(said.over(parsed.metadata))  # refuses what cannot be stored
        default_size, default_overlap = self._encoder.ensure_model()
        spans = self._split(
            parsed,
            source.source,
            chunk_size or default_size,
            default_overlap if chunk_overlap is None else chunk_overlap,
        )
        fields = {
            "title": title or parsed.title,
            "hash": hash,
            "file_type": source.file_type,
            "size": len(source.raw),
            "created_at": created_at,
            LOCAL: {
                "modified": source.modified,
                "etag": source.etag,
                "mtime_ns": source.mtime_ns,
            },
        }
        version = Version(Item(SHELF, library, source.source), 0, fields)
        content = ItemText(parsed.text, spans)
        return PreparedDocument(version, content, parsed.metadata, said, moved, replaces)

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
            found = DocumentItems.by_key(sql, key)
            content = stored_text(sql, self._index.chunks, key)
        if found is None:
            raise NotFound(_CHANGED)
        again = found._replace(fields={**(found.fields or {}), "title": title})
        # A duplicate of the document that it takes over, which must still be there.
        prepared = PreparedDocument(again, content, overrides=Overrides(title), moved=key)
        return self.write(prepared, duplicate=True)[1]

    def write_all(
        self, documents: Sequence[PreparedDocument], *, duplicate: bool = False
    ) -> list[tuple[Status, int]]:
        """Write documents as `write` does, in their order.

        Short ones that follow each other are written in one transaction, a long one in slices. Call
        it outside of any transaction.
        """
        done: list[tuple[Status, int]] = []
        for long, some in itertools.groupby(
            documents, lambda each: len(self.unpublished.slices(each.spans)) > 1
        ):
            if long:
                done += [self._write_long(each, duplicate) for each in some]
                continue
            with self._file.writing() as sql:
                replaced: list[int] = []
                new: list[NewChunks] = []
                done += [self._write_short(sql, each, duplicate, replaced, new) for each in some]
                self._index.put_all(sql, new)
                self.unpublished.withdraw(sql, replaced)
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
        document = _with_overrides(sql, document, old)
        key = _insert(sql, document, self.versions.history.stamp(sql), duplicate)
        new.append(NewChunks(key, document.title, document.content.text, document.spans))
        same = _of_item(sql, document, key)
        if old or same or document.moved is not None:
            self._index.put_all(sql, new)  # the history keeps texts, which may be among them
            new.clear()
        _keep_ids(sql, old, key)
        replaced += [*old, *same, *self._take_over(sql, key, document.moved, duplicate)]
        if document.overrides is None:
            self._adopt(sql, key, document.version, same)
        return "replaced" if old else "indexed", key

    def _write_long(self, document: PreparedDocument, duplicate: bool) -> tuple[Status, int]:
        """Write a document slice by slice, each in a transaction; the last one publishes it."""
        if not duplicate and (known := self._known(document)) is not None:
            return "skipped", known
        key = 0
        try:
            with self._file.writing() as sql:
                old = [] if duplicate else self._with_source_of(sql, document)[0]
                document = _with_overrides(sql, document, old)
                key = _insert(sql, document, 0, duplicate)  # `publish` gives it a stamp
                self.unpublished.begin(sql, key)
            for first, spans in self.unpublished.slices(document.spans):
                with self._file.writing() as sql:
                    self.unpublished.renew(sql, key)
                    self._index.put(sql, key, document.title, document.content.text, spans, first)
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
        same = _of_item(sql, document, key)
        if document.overrides is None:
            self._adopt(sql, key, document.version, same)
        self.unpublished.withdraw(sql, [*old, *taken_over, *same], packed)
        return "replaced" if old else "indexed", key

    def _known(self, document: PreparedDocument) -> int | None:
        item, fields = document.version.item, document.version.fields or {}
        return self.known(item.name, item.place, fields["hash"])

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
            document.version.item[1:3],
        ).fetchall()
        wanted = (document.version.fields or {})["hash"]
        same = next((key for key, hash in rows if hash == wanted), None)
        if rows and same is None and not document.replaces:
            raise Exists(
                f"the library {quoted(document.version.item.place)} has another text named "
                f"{quoted(document.version.item.name)}: give this one another name, or let it "
                "replace the other"
            )
        return [key for key, _ in rows], same

    def restore(self, versions: Sequence[tuple[Version, ItemText]]) -> None:
        """Write versions that were checked in place of what is there of their items."""
        self.write_all([PreparedDocument(*each) for each in versions], duplicate=True)

    def _adopt(self, sql: apsw.Connection, key: int, version: Version, old: Sequence[int]) -> None:
        """Give a document the id of the version that it is made of, if no other one has it.

        `old` are the documents of the same item, which the caller must withdraw.
        """
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


class RestoredDocuments(DocumentItems):
    """The documents of a file, of which versions come back."""

    def __init__(
        self, file: File, writer: DocumentWriter, unpublished: UnpublishedDocuments
    ) -> None:
        self._file, self._writer, self.unpublished = file, writer, unpublished

    def restore(self, version: Version, content: ItemText) -> None:
        """Write a version as the present one; its embeddings are made again where none is known."""
        self._writer.restore([(version, content)])

    def remove(self, item: Item) -> None:
        """Delete a document, if it is there."""
        with self._file.reading(limited=False) as sql:
            found = self.find(sql, item)
        packed = self.unpublished.pack_long([key_of(found)] if found else [])
        with self._file.writing() as sql:
            found = self.find(sql, item)
            self.unpublished.withdraw(sql, [key_of(found)] if found else [], packed)
        self.unpublished.clean()


_CHANGED = "the document was changed or deleted meanwhile"


def _with_overrides(
    sql: apsw.Connection, prepared: PreparedDocument, replaced: list[int]
) -> PreparedDocument:
    """The document with what people said of the one that it replaces or takes over."""
    if prepared.overrides is None:
        return prepared
    given, fields = prepared.overrides, prepared.version.fields or {}
    if before := prepared.moved or (replaced[-1] if replaced else None):
        given = stored(sql, before, prepared.own).then(given)
    said = {"title": given.title or fields["title"], "given": given.encode()}
    said["metadata"] = encoded(given.over(prepared.own))
    return prepared._replace(version=prepared.version._replace(fields={**fields, **said}))


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
    """Insert the row of a document, with a new id; a twin is written beside others of its source.

    A version is the twin that it was.
    """
    (_, library, source, own_twin), id = prepared.version.item, _new_id()
    fields, local = prepared.version.fields or {}, prepared.version.local
    columns = {
        "id": id,
        "library": library,
        "source": source,
        "twin": own_twin if prepared.overrides is None else id if twin else "",
        "stamp": stamp,
        **{name: fields[name] for name in ("title", "hash", "file_type", "size")},
        "created_at": fields["created_at"] or dates.now(),
        **{name: fields[name] for name in ("metadata", "given")},
        **{name: local[name] for name in ("modified", "etag", "mtime_ns")},
    }
    sql.execute(
        f"INSERT INTO documents ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
        tuple(columns.values()),
    )
    return sql.last_insert_rowid()


def _of_item(sql: apsw.Connection, document: PreparedDocument, key: int) -> list[int]:
    """The keys of other documents that are the same item as a version that comes back."""
    if document.overrides is not None:
        return []
    rows = sql.execute(
        "SELECT key FROM published_documents "
        "WHERE library = ? AND source = ? AND twin = ? AND key <> ?",
        (*document.version.item[1:], key),
    )
    return [each for (each,) in rows]


def _new_id() -> str:
    return str(uuid.uuid4())


def update(
    sql: apsw.Connection,
    index: ChunkIndex,
    versions: DocumentVersions,
    key: int,
    change: DocumentChange,
) -> tuple[bool, str]:
    """Change a document's row; whether that changed anything, and the title to write it under.

    That is "" if it has this title, and if the document was deleted meanwhile. Raises InvalidInput
    if a document with its source is in the other library.
    """
    row = sql.execute(
        "SELECT library, source, title, metadata FROM published_documents WHERE key = ?", (key,)
    ).fetchone()
    if row is None:
        return False, ""
    library, source, title, before = row
    given = stored(sql, key)
    now, said = _changed(metadata.decode(before), given, change)
    after = (change.library or library, metadata.encode(now))
    then = given.then(Overrides(change.title or "", said))
    changed = after != (library, before)
    if after[0] != library:
        _refuse_second(sql, after[0], source)
    if changed or then != given:
        with versions.changing(sql, key) as stamp:
            sql.execute(
                "UPDATE documents SET library = ?, metadata = ?, given = ?, stamp = ? "
                "WHERE key = ?",
                (*after, then.encode(), stamp, key),
            )
    if changed:
        index.touch(sql, key)
    return changed, change.title if change.title and change.title != title else ""


def _changed(
    values: dict[str, Any], given: Overrides, change: DocumentChange
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """The metadata after a change, and what the change says of keys."""
    keys: Iterable[str]
    if change.metadata is not None:
        now, keys = dict(change.metadata), {**values, **given.metadata, **change.metadata}
    elif change.patch is not None:
        now, keys = metadata.merge(values, change.patch), change.patch
    else:
        now, keys = {**values, **(change.keys or {})}, change.keys or ()
    return now, of_keys(keys, now)


def _refuse_second(sql: apsw.Connection, library: str, source: str) -> None:
    other = sql.execute(
        "SELECT id FROM published_documents WHERE library = ? AND source = ?", (library, source)
    ).fetchone()
    if other:
        raise InvalidInput(
            f"the library {quoted(library)} already has a document of {quoted(source)} "
            f"({other[0]}); delete one of the two first"
        )
