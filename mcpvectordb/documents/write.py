"""Write documents: prepared outside of any transaction, then written with all chunks in one.

A long document would keep other writers waiting, so it is written, and removed, in several. The
table unpublished_documents hides it meanwhile: all readers go by the view published_documents,
searches exclude its chunks, and one last row decides. A writer that died leaves a document that
nobody publishes; the next writer removes it. Chunks are added and removed at the end, so what there
is of a document is always a sound beginning of it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from mcpvectordb import dates, metadata
from mcpvectordb.config import how_to_allow
from mcpvectordb.documents import rows
from mcpvectordb.documents.items import (
    SHELF,
    DocumentChange,
    DocumentItems,
    Overrides,
    encoded,
    key_of,
    of_keys,
)
from mcpvectordb.embedding import weights
from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.errors import (
    Busy,
    DatabaseError,
    Exists,
    InvalidInput,
    NoText,
    NotFound,
    TooLarge,
    Unwritable,
    quoted,
)
from mcpvectordb.history.versions import LOCAL, Item, Version
from mcpvectordb.index.chunks import NewChunks, active_model
from mcpvectordb.index.resident import selected
from mcpvectordb.index.spans import ItemText
from mcpvectordb.ingest.span import Span
from mcpvectordb.metadata import storable
from mcpvectordb.records import UNREAD_PAGES, Document, Parsed, Source, Status
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.store import OpenStore
from mcpvectordb.text.tokens import is_foreign

FORMER_IDS = 20  # of a document that are kept
# The carrier of the first has no wheel for Windows.
MULTILINGUAL = "multilingual-e5-small" + ("-hub" if sys.platform == "win32" else "")
_FIRST = 20  # documents whose language decides
_NOTED = "multilingual_noted"
_NOTHING: Mapping[int, bytes] = {}


class Written(NamedTuple):
    """What became of a document: its status, its key, and the document as it is stored now."""

    status: Status
    key: int
    document: Document


def _written(sql: Sql, places: Sequence[tuple[Status, int]]) -> list[Written]:
    """What became of documents, by their statuses and keys; raises NotFound."""
    found = rows.by_keys(sql, [key for _, key in places])
    if any(key not in found for _, key in places):
        raise NotFound("the document was deleted meanwhile")
    return [Written(status, key, found[key]) for status, key in places]


class PreparedDocument(NamedTuple):
    """A document that is ready to be written: the version that it will be, and its text.

    `own` is the metadata of its source, `overrides` what people say of it; without them all fields
    are those of the version, its id too. `moved` is the key of a document whose id, creation time
    and metadata it takes over. A `duplicate` is written beside others of its source, and the one
    that it takes over must be there; `known` returns, in the transaction, the key of a document
    because of which it is not written. Without `replaces` it is not written where its source has
    another text.
    """

    version: Version
    content: ItemText
    own: Mapping[str, Any] = {}
    overrides: Overrides | None = None
    moved: int | None = None
    duplicate: bool = False
    replaces: bool = True
    known: Callable[[Sql], int | None] = lambda _: None

    @property
    def title(self) -> str:
        """Its title."""
        return str((self.version.fields or {})["title"])

    @property
    def spans(self) -> list[Span]:
        """Where its chunks are."""
        return self.content.spans


class DocumentWriter(DocumentItems):
    """Writes documents, also as versions that come back; one of too many chunks is refused."""

    def __init__(self, store: OpenStore) -> None:
        self.store, self.unpublished = store, UnpublishedDocuments(store)
        self._file, self._encoder, self._index = store.file, store.encoder, store.documents
        self._history = store.history

    def prepare(
        self,
        given: GivenText,
        library: str,
        *,
        moved: int | None = None,
        chunk_size: int | None = None,
        chunk_overlap: int | None = None,
        duplicate: bool = False,
        replaces: bool = True,
    ) -> PreparedDocument:
        """A document for `write_all`: metadata checked, text split into chunks, raw bytes dropped.

        Raises TooLarge for a text that makes too many chunks.
        """
        source, keys, title = given.source, given.said.keys or {}, given.said.title
        parsed, said = given.parsed, Overrides(title or "", of_keys(keys, keys))
        if parsed is None:
            from mcpvectordb.ingest import formats
            from mcpvectordb.ingest.formats.text import parse_code, parse_markdown

            is_code = formats.by_name(source.name) is formats.CODE
            parsed = parse_code(source) if is_code else parse_markdown(source)
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
            "hash": source.hash,
            "file_type": source.file_type,
            "size": len(source.raw),
            "created_at": given.created_at,
            LOCAL: {name: getattr(source, name) for name in ("modified", "etag", "mtime_ns")},
        }
        version = Version(Item(SHELF, library, source.source), 0, fields)
        content = ItemText(parsed.text, spans)
        return PreparedDocument(version, content, parsed.metadata, said, moved, duplicate, replaces)

    def _split(self, parsed: Parsed, source: str, size: int, overlap: int) -> list[Span]:
        from mcpvectordb.ingest import chunking

        starts = self._encoder.tokens().token_starts(parsed.text)
        most = self.store.config.max_chunks
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

    def write_all(self, documents: Sequence[PreparedDocument]) -> list[Written]:
        """Write documents in place of those with their source, in their order.

        A document keeps what people said of the newest of those. Short ones that follow each other
        are written in one transaction, a long one in slices. Call it outside of any transaction.
        """
        done: list[Written] = []
        for long, some in itertools.groupby(
            documents, lambda each: len(self.unpublished.slices(each.spans)) > 1
        ):
            if long:
                done += [self._write_long(each) for each in some]
                continue
            with self.unpublished.writing() as sql:
                replaced: list[int] = []
                new: list[NewChunks] = []
                places = [self._write_short(sql, each, replaced, new) for each in some]
                self._index.put(sql, new)
                self.unpublished.withdraw(sql, replaced)
                done += _written(sql, places)
        return done

    def _write_short(
        self,
        sql: Sql,
        document: PreparedDocument,
        replaced: list[int],
        new: list[NewChunks],
    ) -> tuple[Status, int]:
        """Write the row of a document.

        Adds those that it replaces and its chunks, which the caller must withdraw and put.
        """
        old, known = _of_source(sql, document)
        if known is not None:  # another process has written it meanwhile
            return "unchanged", known
        document = _with_overrides(sql, document, old)
        key = _insert(sql, document, self._history.stamp(sql))
        new.append(NewChunks(key, document.title, document.content.text, document.spans))
        same = _of_item(sql, document, key)
        if old or same or document.moved is not None:
            self._index.put(sql, new)  # the history keeps texts, which may be among them
            new.clear()
        replaced += self._take_place(sql, key, document, old, same)
        return "replaced" if old else "indexed", key

    def _write_long(self, document: PreparedDocument) -> Written:
        """Write a document slice by slice, each in a transaction; the last one publishes it."""
        key = 0
        try:
            with self._file.writing() as sql:
                old, known = _of_source(sql, document)
                if known is not None:
                    return _written(sql, [("unchanged", known)])[0]
                document = _with_overrides(sql, document, old)
                key = _insert(sql, document, 0)  # `publish` gives it a stamp
                self.unpublished.begin(sql, key)
            for first, spans in self.unpublished.slices(document.spans):
                with self._file.writing() as sql:
                    self.unpublished.renew(sql, key)
                    new = NewChunks(key, document.title, document.content.text, spans, first)
                    self._index.put(sql, [new])
            packed = self.unpublished.pack_long([*old, *filter(None, [document.moved])])
            with self.unpublished.writing() as sql:
                return _written(sql, [self._publish(sql, key, document, packed)])[0]
        except BaseException:
            with contextlib.suppress(DatabaseError):  # the lease ends by itself
                self.unpublished.give_up(key)
                self.unpublished.clean()
            raise

    def _publish(
        self, sql: Sql, key: int, document: PreparedDocument, packed: Mapping[int, bytes]
    ) -> tuple[Status, int]:
        """Show a document that was written in slices instead of those with its source."""
        self.unpublished.renew(sql, key)
        old, known = _of_source(sql, document)
        if known is not None:
            self.unpublished.give_up(key)
            return "unchanged", known
        self.unpublished.publish(sql, key)
        same = _of_item(sql, document, key)
        replaced = self._take_place(sql, key, document, old, same, packed)
        if document.moved in replaced:
            self._index.record_everything(sql)  # what is in memory has its own metadata
        self.unpublished.withdraw(sql, replaced, packed)
        return "replaced" if old else "indexed", key

    def _take_place(
        self,
        sql: Sql,
        key: int,
        document: PreparedDocument,
        old: Sequence[int],
        same: Sequence[int],
        packed: Mapping[int, bytes] = _NOTHING,
    ) -> list[int]:
        """Give a document that was written the ids of those in whose place it is.

        These are `old`, of its source, `same`, of the item that it is a version of, and the one
        that it takes over, if it is still there. The caller must withdraw what is returned.
        """
        _keep_ids(sql, old, key)
        replaced, moved = [*old, *same], document.moved
        if moved is not None and self._take_over(sql, key, moved, document.duplicate, packed):
            replaced.append(moved)
        if document.overrides is None:
            self._adopt(sql, key, document.version, same)
        return replaced

    def known(self, library: str, sources: Sequence[Source]) -> list[Written | None]:
        """What is stored of each source with the same content, "unchanged".

        A document with pages that can be read only now is not.
        """
        from mcpvectordb.ingest.ocr import Tesseract

        with self._file.reading(limited=False) as sql:
            found = rows.selected(
                sql,
                "d.library = ? AND d.source IN (SELECT value FROM json_each(?)) "
                "ORDER BY d.key DESC",  # so that of several the first one counts
                library,
                json.dumps([each.source for each in sources]),
            )
        by_content = {
            (each.source, each.hash): Written("unchanged", key, each)
            for key, each in found.items()
            if UNREAD_PAGES not in each.metadata or Tesseract.found(self.store.config) is None
        }
        return [by_content.get((each.source, each.hash)) for each in sources]

    def say(self, key: int, change: DocumentChange) -> Written:
        """Make a change of what people say of a document, which is "updated" or "unchanged".

        A new title is kept first and then written, with the text, as a document of its own in the
        place of this one: a long one takes several transactions. The next call finishes that.
        """
        with self._history.change("update"):
            with self._file.writing() as sql:
                changed, title = self.update(sql, key, change)
                found = DocumentItems.by_key(sql, key)
                done = _written(sql, [("updated" if changed else "unchanged", key)])[0]
                if not title or found is None:
                    return done
                content = self.stored(sql, key)
            # Written as a duplicate of the document that it takes over, which must still be there:
            # so it keeps its id and creation time.
            again = found._replace(fields={**(found.fields or {}), "title": title})
            prepared = PreparedDocument(
                again, content, overrides=Overrides(title), moved=key, duplicate=True
            )
            return self.write_all([prepared])[0]._replace(status="updated")

    def update(self, sql: Sql, key: int, change: DocumentChange) -> tuple[bool, str]:
        """Change a document's row; whether that changed anything, and the title to write it under.

        That is "" if it has this title, and if the document was deleted meanwhile. Raises
        InvalidInput if a document with its source is in the other library.
        """
        row = sql.execute(
            "SELECT library, source, title, metadata FROM published_documents WHERE key = ?", (key,)
        ).fetchone()
        if row is None:
            return False, ""
        library, source, title, before = row
        given = Overrides.stored(sql, key)
        now, said = _changed(metadata.decode(before), given, change)
        after = (change.library or library, metadata.encode(now))
        then = given.then(Overrides(change.title or "", said))
        changed = after != (library, before)
        if after[0] != library:
            other = sql.execute(
                "SELECT id FROM published_documents WHERE library = ? AND source = ?",
                (after[0], source),
            ).get
            if other:
                raise InvalidInput(
                    f"the library {quoted(after[0])} already has a document of {quoted(source)} "
                    f"({other}); delete one of the two first"
                )
        if changed or then != given:
            with self.unpublished.changing(sql, key) as stamp:
                sql.execute(
                    "UPDATE documents SET library = ?, metadata = ?, given = ?, stamp = ? "
                    "WHERE key = ?",
                    (*after, then.encode(), stamp, key),
                )
        if changed:
            self._index.touch(sql, key)
        return changed, change.title if change.title and change.title != title else ""

    def write_texts(
        self, given: Sequence[GivenText], library: str, *, replaces: bool = True
    ) -> Iterator[list[Written]]:
        """Write texts in short transactions; what became of each batch when it is stored.

        Of those that are known, only what people say of them is stored. Without `replaces` one
        whose source has another text raises Exists.
        """
        tuning = self.store.tuning
        for start in range(0, len(given), tuning.documents_per_write):
            texts = given[start : start + tuning.documents_per_write]
            batch: list[tuple[DocumentChange, PreparedDocument | Written]] = []
            chunks = 0
            known = self.known(library, [text.source for text in texts])
            for text, stored in zip(texts, known, strict=True):
                document = stored or self.prepare(text, library, replaces=replaces)
                batch.append((text.said, document))
                chunks += 0 if isinstance(document, Written) else len(document.spans)
                if chunks >= tuning.chunks_per_write:
                    yield self._write_batch(batch)
                    batch, chunks = [], 0
            if batch:
                yield self._write_batch(batch)

    def _write_batch(
        self, batch: Sequence[tuple[DocumentChange, PreparedDocument | Written]]
    ) -> list[Written]:
        """Write documents, and what is said of those that were there."""
        new = [each for _, each in batch if isinstance(each, PreparedDocument)]
        written = iter(self.write_all(new))
        done = []
        for said, each in batch:
            stored = each if isinstance(each, Written) else next(written)
            if stored.status == "unchanged" and said != DocumentChange():
                stored = self.say(stored.key, said)
            done.append(stored)
        return done

    def restore(self, version: Version, content: ItemText) -> None:
        """Write a version as the present one; embeddings are made again where none is known."""
        self.write_all([PreparedDocument(version, content, duplicate=True)])

    def remove(self, item: Item) -> None:
        """Delete a document, if it is there."""

        def present(sql: Sql, _: Sequence[int] = ()) -> list[int]:
            found = self.find(sql, item)
            return [key_of(found)] if found else []

        with self._file.reading(limited=False) as sql:
            keys = present(sql)
        self.unpublished.withdraw_all(keys, present)

    def _adopt(self, sql: Sql, key: int, version: Version, old: Sequence[int]) -> None:
        """Give a document the id of the version that it is made of, if no other one has it.

        `old` are the documents of the same item, which the caller must withdraw.
        """
        self.unpublished.keep_whole(sql, old)
        _keep_ids(sql, old, key)
        id = version.local["id"]
        for each in old:
            sql.execute(
                "UPDATE documents SET id = ? WHERE key = ? AND id = ?",
                (str(uuid.uuid4()), each, id),
            )
        # A former id of another document goes on leading there: a merged file may name any id.
        sql.execute("DELETE FROM former_ids WHERE id = ? AND document = ?", (id, key))
        sql.execute(
            "UPDATE OR IGNORE documents SET id = ?1 WHERE key = ?2 "
            "AND NOT EXISTS (SELECT 1 FROM former_ids WHERE id = ?1)",
            (id, key),
        )

    def _take_over(
        self, sql: Sql, key: int, moved: int, required: bool, packed: Mapping[int, bytes]
    ) -> bool:
        """Give the identity of the document `moved` to another; whether it was still there.

        Raises NotFound if it is `required` and is not there.
        """
        identity = sql.execute(
            "SELECT id, created_at, metadata, given, CASE ? WHEN 1 THEN twin ELSE '' END "
            "FROM published_documents WHERE key = ?",
            (int(required), moved),
        ).fetchone()
        if not identity:
            if required:
                raise NotFound("the document was changed or deleted meanwhile")
            return False
        self.unpublished.keep_whole(sql, [moved], packed)  # with its own id
        sql.execute("UPDATE documents SET id = ? WHERE key = ?", (str(uuid.uuid4()), moved))
        sql.execute(
            "UPDATE documents SET id = ?, created_at = ?, metadata = ?, given = ?, twin = ? "
            "WHERE key = ?",
            (*identity, key),
        )
        sql.execute("UPDATE former_ids SET document = ? WHERE document = ?", (key, moved))
        return True


class UnpublishedDocuments:
    """The table unpublished_documents of a file; methods with `sql` work in its transaction."""

    def __init__(self, store: OpenStore) -> None:
        self._file, self._index, self._tuning = store.file, store.documents, store.tuning
        self._history = store.history

    def slices(self, spans: Sequence[Span]) -> list[tuple[int, list[Span]]]:
        """The spans that one transaction may write each, with the position of the first."""
        found: list[tuple[int, list[Span]]] = []
        characters = 0
        for position, span in enumerate(spans):
            characters += span.end - span.start
            if (
                not found
                or len(found[-1][1]) == self._tuning.slice_chunks
                or characters > self._tuning.slice_characters
            ):
                found.append((position, []))
                characters = span.end - span.start
            found[-1][1].append(span)
        return found

    def begin(self, sql: Sql, key: int) -> None:
        """Hide a document that this process is about to write, until it is published."""
        sql.execute(
            "INSERT INTO unpublished_documents (document, process, leased) VALUES (?, ?, ?)",
            (key, this_process(), time.time() + self._tuning.writer_seconds),
        )

    def renew(self, sql: Sql, key: int) -> None:
        """Keep others from removing a document for some more time; raises Busy if they have begun.

        They have if this process stood still for so long that it seemed to have ended.
        """
        sql.execute(
            "UPDATE unpublished_documents SET leased = ? WHERE document = ? AND leased > 0",
            (time.time() + self._tuning.writer_seconds, key),
        )
        if not sql.changes():
            raise Busy(
                "this process was interrupted for so long that others have removed what it had "
                "written of the document; nothing was changed: ingest it again"
            )

    def publish(self, sql: Sql, key: int) -> None:
        """Show a complete document to all readers."""
        sql.execute("DELETE FROM unpublished_documents WHERE document = ?", (key,))
        stamp = self._history.stamp(sql)
        sql.execute("UPDATE documents SET stamp = ? WHERE key = ?", (stamp, key))

    def give_up(self, key: int) -> None:
        """Let the document that this process was writing be removed."""
        with self._file.writing() as sql:
            sql.execute("UPDATE unpublished_documents SET leased = 0 WHERE document = ?", (key,))

    def pack_long(self, keys: Sequence[int]) -> dict[int, bytes]:
        """What the history will keep of long documents: packed here, before `withdraw`.

        Of short ones it is packed in the transaction, which takes less than removing them.
        """
        with self._file.reading(limited=False) as sql:
            found = (DocumentItems.by_key(sql, key) for key in keys)
            return {
                key_of(each): DocumentItems.body(sql, each)
                for each in found
                if each is not None and (each.fields or {})["chunks"] > self._tuning.slice_chunks
            }

    @contextlib.contextmanager
    def changing(self, sql: Sql, key: int) -> Iterator[int]:
        """Keep a document as it is before its row is changed in this block, to have this stamp.

        In another library, or with another source, it is another item: the old one is deleted.
        """
        found = DocumentItems.by_key(sql, key)
        if found is not None:
            self._history.keep(sql, found)
        yield self._history.stamp(sql)
        after = DocumentItems.by_key(sql, key)
        if found is not None and (after is None or after.item != found.item):
            self._bury_missing(sql, [found.item])

    def keep_whole(
        self, sql: Sql, keys: Iterable[int], packed: Mapping[int, bytes] = _NOTHING
    ) -> list[Item]:
        """Keep documents with their texts, before they are removed; returns what they are."""
        found = [each for key in keys if (each := DocumentItems.by_key(sql, key)) is not None]
        for each in found if self._history.keeps(sql) else ():
            body = packed.get(key_of(each))
            if body is None and not self._history.has_body(sql, each.body):
                body = DocumentItems.body(sql, each)
            self._history.keep(sql, each, body)
        return [each.item for each in found]

    def _bury_missing(self, sql: Sql, items: Iterable[Item]) -> None:
        """Note of those items that are not there any more that they were deleted."""
        for item in items:
            if DocumentItems.find(sql, item) is None:
                self._history.bury(sql, item)

    def withdraw(
        self, sql: Sql, keys: Sequence[int], packed: Mapping[int, bytes] = _NOTHING
    ) -> None:
        """Remove documents with their chunks.

        The history keeps them. Readers see nothing of them from this transaction on. If there are
        many chunks, `clean` must remove them afterwards.
        """
        keys = list(dict.fromkeys(keys))
        items = self.keep_whole(sql, keys, packed)
        chunks = sum(self._index.count(sql, key) for key in keys)
        if chunks <= self._tuning.slice_chunks:
            self._remove(sql, keys)
        else:
            sql.executemany(
                "INSERT INTO unpublished_documents (document, process, leased) VALUES (?, '', 0)",
                ((key,) for key in keys),
            )
        self._bury_missing(sql, items)

    def withdraw_all(
        self, keys: Sequence[int], still: Callable[[Sql, Sequence[int]], list[int]]
    ) -> int:
        """Remove documents in short transactions; how many.

        `still` says in the transaction which of some are to be removed. There is one transaction
        even without any: a reader raises ReadOnly, and what others left over is cleaned up.
        """
        removed, most = 0, self._tuning.removals_per_write
        for start in range(0, max(1, len(keys)), most):
            batch = keys[start : start + most]
            packed = self.pack_long(batch)
            with self.writing() as sql:
                some = still(sql, batch)
                self.withdraw(sql, some, packed)
            removed += len(some)
        return removed

    @contextlib.contextmanager
    def writing(self) -> Iterator[Sql]:
        """A write transaction, after which `clean` removes what it and others have left over."""
        with self._file.writing() as sql:
            yield sql
            left = any(self._left_over(sql))
        if left:
            self.clean()

    def clean(self) -> None:
        """Remove what nobody is writing, in short transactions.

        What cannot be removed now stays invisible, and the next writer tries again.
        """
        with contextlib.suppress(Busy, Unwritable):
            with self._file.reading(limited=False) as sql:
                abandoned, steps = self._left_over(sql)
            while abandoned:
                with self._file.writing() as sql:
                    self._remove_slice(sql)
                    abandoned, steps = self._left_over(sql)
            for _ in range(steps):
                with self._file.writing() as sql:
                    if not self._index.merge(sql):
                        break

    def _left_over(self, sql: Sql) -> tuple[list[int], int]:
        """The documents that no process is writing any more, and how many parts of the keyword
        index are to be merged because of what was removed.
        """
        return list(self._abandoned(sql)), self._index.merge_steps(sql)

    def _remove(self, sql: Sql, keys: Sequence[int]) -> None:
        for key in keys:
            self._index.remove(sql, key)
            sql.execute("DELETE FROM documents WHERE key = ?", (key,))

    def _remove_slice(self, sql: Sql) -> None:
        """Remove documents until as many chunks are removed as one transaction may."""
        left = self._tuning.slice_chunks
        for key in list(self._abandoned(sql)):
            removed = self._index.remove(sql, key, left)
            left -= removed
            if not left:
                # Its writer, if there is one after all, gives up when it sees this.
                sql.execute(
                    "UPDATE unpublished_documents SET leased = 0 WHERE document = ?", (key,)
                )
                return
            sql.execute("DELETE FROM documents WHERE key = ?", (key,))

    def _abandoned(self, sql: Sql) -> Iterator[int]:
        """The documents that no process is writing any more."""
        # A lease that ends later than a new one would is invalid: the clock was set back.
        now = time.time()
        for key, process, leased in sql.execute(
            "SELECT document, process, leased FROM unpublished_documents ORDER BY document"
        ):
            if not now <= leased <= now + self._tuning.writer_seconds or has_ended(process):
                yield key

    def remove_all(self, sql: Sql) -> None:
        """Remove all unpublished documents; for a copy, in which nobody goes on writing them."""
        keys = [int(key) for (key,) in sql.execute("SELECT document FROM unpublished_documents")]
        self._remove(sql, keys)

    def remove_abandoned(self, sql: Sql) -> None:
        """Remove what nobody is writing."""
        self._remove(sql, list(self._abandoned(sql)))


def _of_source(sql: Sql, document: PreparedDocument) -> tuple[list[int], int | None]:
    """The keys of the documents of a source, and of the first that has the same content.

    A duplicate stays beside them: only what it knows itself counts. Raises Exists if some are not
    to be replaced.
    """
    if document.duplicate:
        return [], document.known(sql)
    _, library, source, _ = document.version.item
    stored: list[Any] = sql.execute(
        "SELECT key, hash, metadata FROM published_documents WHERE library = ? AND source = ? "
        "ORDER BY key",
        (library, source),
    ).fetchall()
    wanted = (document.version.fields or {})["hash"]
    same = {key: held for key, hash, held in stored if hash == wanted}
    if stored and not same and not document.replaces:
        raise Exists(
            f"the library {quoted(library)} has another text named {quoted(source)}: give this "
            "one another name, or let it replace the other"
        )
    if UNREAD_PAGES not in document.own:  # what lacks pages that were read now is another one
        same = {key: held for key, held in same.items() if f'"{UNREAD_PAGES}"' not in held}
    return [key for key, *_ in stored], next(iter(same), None)


def _with_overrides(sql: Sql, prepared: PreparedDocument, replaced: list[int]) -> PreparedDocument:
    """The document with what people said of the one that it replaces or takes over."""
    if prepared.overrides is None:
        return prepared
    given, fields = prepared.overrides, prepared.version.fields or {}
    if before := prepared.moved or (replaced[-1] if replaced else None):
        given = Overrides.stored(sql, before, prepared.own).then(given)
    said = {"title": given.title or fields["title"], "given": given.encode()}
    said["metadata"] = encoded(given.over(prepared.own))
    return prepared._replace(version=prepared.version._replace(fields={**fields, **said}))


def _keep_ids(sql: Sql, replaced: Sequence[int], key: int) -> None:
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


def _insert(sql: Sql, prepared: PreparedDocument, stamp: int) -> int:
    """Insert the row of a document, with a new id; a version is the twin that it was."""
    (_, library, source, own_twin), id = prepared.version.item, str(uuid.uuid4())
    fields = prepared.version.fields or {}
    columns = {
        "id": id,
        "library": library,
        "source": source,
        "twin": own_twin if prepared.overrides is None else id if prepared.duplicate else "",
        "stamp": stamp,
        **{name: fields[name] for name in ("title", "hash", "file_type", "size")},
        "created_at": fields["created_at"] or dates.now(),
        **{name: fields[name] for name in ("metadata", "given")},
        **{name: fields[LOCAL][name] for name in ("modified", "etag", "mtime_ns")},
    }
    sql.execute(
        f"INSERT INTO documents ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
        tuple(columns.values()),
    )
    return sql.last_insert_rowid()


def _of_item(sql: Sql, document: PreparedDocument, key: int) -> list[int]:
    """The keys of other documents that are the same item as a version that comes back."""
    if document.overrides is not None:
        return []
    rows = sql.execute(
        "SELECT key FROM published_documents "
        "WHERE library = ? AND source = ? AND twin = ? AND key <> ?",
        (*document.version.item[1:], key),
    )
    return [each for (each,) in rows]


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


class GivenText(NamedTuple):
    """A source that can be stored, and what people say of it.

    `created_at` is "" for a document that is new, `parsed` None for a text that callers give
    instead of a file: it is parsed in this process as code, if its source has the name of a code
    file, or else as Markdown.
    """

    source: Source
    said: DocumentChange
    created_at: str = ""
    parsed: Parsed | None = None


def checked_text(
    text: str, source: str, title: str | None, given: Mapping[str, Any] | None, max_bytes: int
) -> GivenText:
    """A text with its source, title and metadata; refuses what cannot be stored."""
    storable(text, "text")
    storable(source, "source", blank=False)
    if not text.strip():
        raise NoText(f"the text of {quoted(source)} is blank: there is nothing to search in it")
    raw = text.encode()
    if len(raw) > max_bytes:
        raise TooLarge(
            f"the text of {quoted(source)} is {len(raw):,} bytes; at most {max_bytes:,} are "
            f"ingested {how_to_allow('max_source_bytes')}"
        )
    metadata.encode(given)
    named = None if title is None else storable(title, "title", blank=False)
    path = PurePosixPath(source)
    return GivenText(
        Source(
            source=source,
            name=path.name or source,
            raw=raw,
            file_type=path.suffix[1:].lower() or "unknown",
            media_type="text/plain; charset=utf-8",  # nothing is to be guessed
        ),
        DocumentChange(keys=given or None, title=named),
    )


def checked_texts(
    texts: Iterable[str],
    sources: Iterable[str],
    titles: Sequence[str | None] | None,
    metadatas: Sequence[Mapping[str, Any] | None] | None,
    max_bytes: int,
) -> list[GivenText]:
    """Texts with as many different sources and, where they are given, titles and metadata."""
    if isinstance(texts, str) or isinstance(sources, str):
        raise InvalidInput("texts and sources must be lists of strings, not one string")
    bodies, names = list(texts), list(sources)
    for what, count in (
        ("sources", len(names)),
        ("titles", len(bodies if titles is None else titles)),
        ("metadata", len(bodies if metadatas is None else metadatas)),
    ):
        if count != len(bodies):
            raise InvalidInput(f"there are {len(bodies)} texts, but {count} {what}")
    nothing = [None] * len(bodies)
    given = [
        checked_text(*each, max_bytes)
        for each in zip(bodies, names, titles or nothing, metadatas or nothing, strict=True)
    ]
    [(most, count)] = Counter(names).most_common(1) or [("", 0)]
    if count > 1:
        raise InvalidInput(
            f"the source {quoted(most)} is given {count} times: each text needs its own"
        )
    return given


def read_by(reader: Callable[[Source], str], source: Source) -> Parsed:
    """What a reader of the caller makes of a source, as plain text."""
    text = storable(reader(source), "text")
    if not text.lstrip("\ufeff").strip():
        raise NoText(f"No text found in {source.name}")
    return Parsed(text=text, title=source.name)


def other_languages(sql: Sql) -> tuple[str, bool] | None:
    """The file's model, if it knows English only, and whether the first documents need another.

    It is None once that was noted in the file, and as long as there are too few documents, most of
    them in English, to say that they do not.
    """
    model = active_model(sql)
    if model is None or not (model.name in CATALOGUE and CATALOGUE[model.name].latin_only):
        return None
    if sql.execute("SELECT 1 FROM settings WHERE name = ?", (_NOTED,)).fetchone():
        return None
    first = selected(
        sql,
        "SELECT tile FROM published_documents JOIN document_chunks "
        "ON owner = key AND position = 0 ORDER BY key LIMIT ?",
        (_FIRST,),
    )
    foreign = 2 * sum(map(is_foreign, first)) > len(first)
    return (model.name, foreign) if foreign or len(first) >= _FIRST else None


def advice(store: OpenStore, found: tuple[str, bool] | None) -> str:
    """What `other_languages` found as advice to people; "" for none. It is noted: said once."""
    if found is None:
        return ""
    used, foreign = found
    with store.file.writing() as sql:
        sql.execute(
            "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)",
            (_NOTED, "true" if foreign else "false"),
        )
    if not foreign:
        return ""
    better, folder = CATALOGUE[MULTILINGUAL], store.config.models_folder()
    install = "" if weights.installed(better, folder) else f"`{better.command}`, then "
    return (
        f"most of it is not in English, the language of {used}; {MULTILINGUAL} has a hundred "
        f"languages: run {install}`mcpvectordb model use {MULTILINGUAL}`"
    )


def this_process() -> str:
    """A name of this process, by which others can tell whether it has ended."""
    return f"{_namespace()}:{os.getpid()}"


def has_ended(process: str) -> bool:
    """Whether a process certainly has ended; where that cannot be known, its lease decides."""
    namespace, _, number = process.partition(":")
    if os.name != "posix" or namespace != _namespace() or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    return False


def _namespace() -> str:
    """The PID namespace: the same number is another process in another container."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return ""
