"""An import from beginning to end: read the source, and store its items in batches.

Known items are left alone, changed ones take the place of the old. Each stored item has a mark in
its metadata, by which the next import knows it: where it came from, and a hash of what it was then.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from mcpvectordb import dates, metadata
from mcpvectordb.documents.write import GivenText, checked_text
from mcpvectordb.errors import IngestError, InvalidInput, ModelError
from mcpvectordb.index.chunks import active_model
from mcpvectordb.memories.items import PreparedMemories, text_hash
from mcpvectordb.memories.memory import Change, Entry, checked_entry, without_secrets
from mcpvectordb.metadata import library_name
from mcpvectordb.records import Embedded, Metric, Progress, ProgressCallback
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.lazy import np
from mcpvectordb.transfer import kept_embeddings, kinds
from mcpvectordb.transfer.items import (
    FollowedFolder,
    Imported,
    ImportedDocument,
    ImportedMemory,
    ImportedVector,
    ImportOptions,
    ImportReport,
    Item,
    LeftOut,
    NotKept,
    OwnRecord,
    StoredItem,
    UnreadPart,
)
from mcpvectordb.transfer.reading import ReadSource
from mcpvectordb.transfer.restore import ImportTarget, Restore
from mcpvectordb.transfer.source import ImportSource

SCRATCH = ".mcpvectordb-import-"
DAY = 86_400.0
BATCH_ITEMS = 256
BATCH_CHARACTERS = 300_000  # of text and images: bounds the transaction of a batch

MARK = "imported"
"""The metadata key under which an imported item has its mark."""

ANOTHER = (
    "another item of this name is here already, which was not imported from this source: choose "
    "another library"
)
DUE = ("added", "changed")  # outcomes of items that are written
CHANGED_TWICE = "changed both here and in its source since the last import; it stays as it is here"

ItemT = TypeVar("ItemT", ImportedDocument, ImportedMemory, ImportedVector)
T = TypeVar("T")


def run(
    target: ImportTarget,
    path: Path,
    kind: str | None,
    options: ImportOptions,
    *,
    embed: bool,
    dry_run: bool,
    progress: ProgressCallback | None,
) -> Imported:
    """Import a source; see `Database.import_from`."""
    store = target.store
    with scratch_folder(None if store.file.memory else store.file.path) as scratch:
        source = ImportSource(path.expanduser().absolute(), Path(scratch))
        read = ReadSource(source, kind, options, store.config, progress)
        inside = source.inside(kinds.named(read.kind).file) or source
        report = ImportReport(read.kind, str(path), dry_run=dry_run)
        running = ImportRun(target, report, os.path.realpath(inside.path), read.total, progress)
        for item in read.items():
            running.take(item)
        running.flush()
        running.sync()
    embedded = Embedded()
    if embed and not dry_run:
        try:
            embedded = store.encoder.embed(progress=progress)
        except ModelError as error:  # the texts are found by words
            report.notes.append(f"stored and found by words, but not yet by meaning: {error}")
    with store.file.reading(limited=False) as sql:
        model = active_model(sql)
        pending = store.encoder.pending(sql, model) if model else 0
    return report.finished(embedded=embedded, pending=pending)


def scratch_folder(beside: Path | None) -> tempfile.TemporaryDirectory[str]:
    """A private folder for snapshots, on the disk of the database if that can be written.

    What killed imports have left there, a day ago or earlier, is removed.
    """
    folder = beside.parent if beside is not None and os.access(beside.parent, os.W_OK) else None
    for left in folder.glob(f"{SCRATCH}*") if folder else ():
        if time.time() - left.stat().st_mtime > DAY:
            shutil.rmtree(left, ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder)


class ImportMark(NamedTuple):
    """Where an item came from, and the hash of what it was then."""

    kind: str
    origin: str
    id: str
    hash: str
    updated_at: str = ""

    @classmethod
    def read(cls, metadata: Mapping[str, Any] | None) -> ImportMark | None:
        """The mark in the metadata of a stored item; None if it was not imported."""
        found = (metadata or {}).get(MARK)
        if not isinstance(found, Mapping):
            return None
        values = [found.get(name, "") for name in ("kind", "from", "id", "hash", "updated_at")]
        return cls(*map(str, values))

    @property
    def item(self) -> tuple[str, ...]:
        """What the marks of one item have in common, in whatever state it is."""
        return self[:3]

    def added_to(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Metadata with the mark in it; a key of this name that the source has gets another one."""
        moved = {f"{MARK}_" if key == MARK else key: value for key, value in metadata.items()}
        mark = {"kind": self.kind, "from": self.origin, "id": self.id, "hash": self.hash}
        if self.updated_at:
            mark["updated_at"] = self.updated_at
        return {**moved, MARK: mark}


def item_hash(item: StoredItem) -> str:
    """A hash of everything that can change in an item, except for the embeddings of its text."""
    left_out = {"embeddings", "model"}
    if isinstance(item, ImportedDocument):
        left_out.add("created_at")  # of no use once it is stored, and unknown in Chroma's queue
    fields = {name: value for name, value in vars(item).items() if name not in left_out}
    text = json.dumps(fields, sort_keys=True, default=_hashed)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _hashed(value: Any) -> Any:
    """Bytes by their hash, records and mappings by their fields."""
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    return dict(value if isinstance(value, Mapping) else vars(value))


class _ItemHere(NamedTuple):
    """What the file has in the place of an item.

    `content` decides whether it is the same where it was not imported, `touched` whether it was
    changed since it was.
    """

    key: int
    content: object
    mark: ImportMark | None
    touched: bool = False

    def outcome(self, mark: ImportMark, content: object) -> str:
        """What is to be done with an item, or the reason why it is not imported."""
        if self.mark is None or self.mark.item != mark.item:
            return "known" if content == self.content else ANOTHER
        if self.mark.hash == mark.hash:
            return "known"
        return CHANGED_TWICE if self.touched else "changed"


class ImportRun:
    """Stores the items of one import, in batches; they have its kind and path in their marks.

    `total` is how many items are expected.
    """

    def __init__(
        self,
        target: ImportTarget,
        report: ImportReport,
        path: str,
        total: int,
        progress: ProgressCallback | None,
    ) -> None:
        self._target, self._store, self._report = target, target.store, report
        self._path, self._total, self._progress = path, total, progress
        self._known = _KnownMemories()
        self._writers: dict[type, Callable[[Sequence[Any]], None]] = {
            ImportedDocument: self._write_documents,
            ImportedMemory: self._write_memories,
            ImportedVector: self._write_vectors,
            OwnRecord: Restore(target, report).write,
        }
        self._waiting: list[StoredItem | OwnRecord] = []
        self._characters = 0
        self._named: list[FollowedFolder] = []

    def take(self, item: Item) -> None:
        """Store an item now or with the next batch, or put it into the report."""
        match item:
            case LeftOut():
                self._report.skip(item.id, item.reason)
            case NotKept():
                self._report.count("not_kept", item.what, item.count)
            case UnreadPart():
                self._report.leave_unread(item.what)
            case FollowedFolder():
                self._follow(item)
            case _:
                self._waiting.append(item)
                self._characters += len(getattr(item, "text", ""))
                self._characters += sum(len(image.data) for image in getattr(item, "images", ()))
                if len(self._waiting) >= BATCH_ITEMS or self._characters >= BATCH_CHARACTERS:
                    self.flush()

    def flush(self) -> None:
        """Store what was collected, in the order in which it came."""
        some, self._waiting, self._characters = self._waiting, [], 0
        for kind, write in self._writers.items():
            of_kind = [item for item in some if type(item) is kind]
            if of_kind:
                write(of_kind)
        if self._progress:
            done = self._report.items
            self._progress(Progress(step="import", done=done, total=max(done, self._total) or None))

    # Folders.

    def _follow(self, item: FollowedFolder) -> None:
        """Let a library follow a folder, if that is here."""
        documents, report = self._target.documents, self._report
        known = {each.name: each.root for each in documents.libraries() if each.root}
        if item.library in known:
            report.count("known", "libraries")
            if item.confirmed and known[item.library] == item.root:
                self._named.append(item)
            elif item.confirmed:
                report.notes.append(
                    f"the library {item.library} follows {known[item.library]} already: choose "
                    "another library"
                )
            return
        if not Path(item.root).is_dir():
            report.notes.append(
                f"the library {item.library} does not follow {item.root}, which is not a folder "
                "here; its documents are imported"
            )
            return
        try:
            if not report.dry_run:
                documents.add_library(
                    item.library,
                    item.root,
                    pattern=item.pattern,
                    ignore=item.ignore,
                    confirm=item.confirmed,
                )
                for path, text in item.descriptions.items():
                    documents.describe(item.library, path, text)
        except (InvalidInput, IngestError) as error:
            report.notes.append(f"the library {item.library} follows no folder: {error}")
            return
        report.count("added", "libraries")
        if item.confirmed:
            self._named.append(item)
        else:
            report.notes.append(
                f"the library {item.library} is to follow {item.root}: if that folder may be read, "
                f"run `mcpvectordb library confirm {shlex.quote(item.library)}`, then "
                "`mcpvectordb sync`"
            )

    def sync(self) -> None:
        """Take in the files of the folders that the user named; a dry run only counts them."""
        documents, report = self._target.documents, self._report
        for item in self._named:
            if report.dry_run:
                done = documents.ingest_folder(
                    item.root, library=item.library, pattern=item.pattern, dry_run=True
                )
            else:
                [done] = documents.sync(item.library, embed=False, progress=self._progress)
            report.count("added", "documents", done.indexed)
            report.count("changed", "documents", done.replaced + done.moved + done.updated)
            report.count("known", "documents", done.unchanged)
            report.counts["skipped"].update(done.skipped)
            report.skipped_items += done.skipped_paths
            for path, reason in done.failures:
                report.skip(path, reason)

    # Items.

    def _checked(
        self, items: Iterable[ItemT], check: Callable[[ItemT, ImportMark], T]
    ) -> Iterator[tuple[ItemT, ImportMark, T]]:
        """The items that can be stored, with their marks and what is stored; reports the others."""
        for item in items:
            if not isinstance(item, ImportedVector) and not item.text.strip():
                self._report.skip(item.id, "it has no text")
                continue
            updated = item.updated_at or item.created_at if isinstance(item, ImportedMemory) else ""
            origin = item.origin or self._path
            mark = ImportMark(self._report.kind, origin, item.id, item_hash(item), updated)
            try:
                yield item, mark, check(item, mark)
            except (InvalidInput, IngestError) as error:
                self._report.skip(item.id, str(error))

    def _count_embeddings(self, outcomes: Mapping[str, int]) -> None:
        for outcome, number in outcomes.items():
            self._report.count("embeddings", outcome, number)

    def _write_documents(self, items: Sequence[ImportedDocument]) -> None:
        """Store documents in short transactions."""
        by_library: defaultdict[str, dict[str, ImportedDocument]] = defaultdict(dict)
        for item in items:
            if item.id in by_library[item.library]:
                self._report.skip(item.id, "an item of the same id came before it")
            else:
                by_library[item.library][item.id] = item
        for library, by_id in by_library.items():
            self._write_library(library, by_id)

    def _write_library(self, library: str, by_id: Mapping[str, ImportedDocument]) -> None:
        with self._store.file.reading(limited=False) as sql:
            rows = sql.execute(
                "SELECT source, key, hash, metadata FROM published_documents "
                "WHERE library = ? AND source IN (SELECT value FROM json_each(?))",
                (library, json.dumps(list(by_id))),
            )
            here = {
                source: _ItemHere(key, hash, ImportMark.read(metadata.decode(values)))
                for source, key, hash, values in rows
            }
        owners: dict[int, ImportedDocument] = {}
        new: list[tuple[ImportedDocument, GivenText]] = []
        for item, mark, given in self._checked(by_id.values(), self._given):
            found = here.get(item.id)
            outcome = found.outcome(mark, given.source.hash) if found else "added"
            if self._report.settle("documents", item.id, outcome):
                if found and outcome == "known":
                    owners[found.key] = item  # a killed import may not have stored its embedding
                else:
                    new.append((item, given))
        if self._report.dry_run:
            self._count_embeddings(kept_embeddings.plan(self._store, [item for item, _ in new]))
            return
        writer = self._target.documents.writer
        places = writer.write_texts([given for _, given in new], library)
        keys = [each.key for batch in places for each in batch]
        owners |= dict(zip(keys, (item for item, _ in new), strict=True))
        self._count_embeddings(kept_embeddings.keep(self._store, self._store.documents, owners))

    def _given(self, item: ImportedDocument, mark: ImportMark) -> GivenText:
        """The item as a text that can be stored; InvalidInput or IngestError."""
        library_name(item.library)
        given = checked_text(
            item.text,
            item.id,
            item.title.strip() or None,
            mark.added_to(item.metadata),
            self._store.config.max_source_bytes,
        )
        return given._replace(
            source=replace(given.source, modified=item.modified), created_at=item.created_at
        )

    def _write_memories(self, items: Sequence[ImportedMemory]) -> None:
        """Store memories with their times in one transaction."""
        checked = list(self._checked(items, self._entry))
        with self._store.file.reading(limited=False) as sql:
            self._known.follow(sql)
        due = [each for each in checked if self._known.find(each[2], each[1])[1] in DUE]
        if self._report.dry_run:
            for item, mark, entry in checked:
                self._report.settle("memories", item.id, self._known.find(entry, mark)[1])
            self._count_embeddings(kept_embeddings.plan(self._store, [item for item, *_ in due]))
            return
        writer = self._target.memories.versioned
        prepared = PreparedMemories(writer.split(entry.text for *_, entry in due))
        owners: dict[int, ImportedMemory] = {}
        with self._store.file.writing() as sql:
            self._store.metadata_index.settle(sql)
            for item, mark, entry in checked:
                self._known.follow(sql)
                here, outcome = self._known.find(entry, mark)
                if not self._report.settle("memories", item.id, outcome):
                    continue
                updated_at = entry.updated_at or dates.now()
                if here is None:
                    owners[writer.add(sql, entry, prepared, updated_at)[0]] = item
                    continue
                owners[here.key] = item
                if outcome == "changed":
                    change = Change(
                        id=here.key,
                        text=None if here.content == text_hash(entry.text) else entry.text,
                        metadata=entry.metadata or {},
                        tags=entry.tags,
                        images=entry.images,
                    )
                    writer.change(sql, change, prepared, updated_at)
                    self._known.changed(here, entry, mark, updated_at)
        self._count_embeddings(kept_embeddings.keep(self._store, self._store.memories, owners))

    def _entry(self, item: ImportedMemory, mark: ImportMark) -> Entry:
        entry = Entry(
            thread=item.thread,
            source=item.source,
            text=item.text,
            metadata=mark.added_to(item.metadata),
            tags=item.tags,
            images=item.images,
            created_at=item.created_at or dates.now(),
            updated_at=item.updated_at or None,
        )
        clean, kinds = without_secrets(checked_entry(entry, self._store.config))
        for kind in kinds:
            self._report.count("not_kept", f"secrets in texts ({kind})")
        return clean

    def _write_vectors(self, items: Sequence[ImportedVector]) -> None:
        """Store vectors, a transaction for each store and namespace among them."""
        groups: defaultdict[tuple[str, str, Metric], dict[str, tuple[ImportedVector, ImportMark]]]
        groups = defaultdict(dict)
        for item, mark, _ in self._checked(items, _check_vector):
            groups[item.store, item.namespace, item.metric][item.id] = item, mark
        for group, by_id in groups.items():
            try:
                self._write_store(*group, by_id)
            except InvalidInput as error:  # of the names: all items of the group have them
                for id in by_id:
                    self._report.skip(id, str(error))

    def _write_store(
        self,
        store: str,
        namespace: str,
        metric: Metric,
        by_id: Mapping[str, tuple[ImportedVector, ImportMark]],
    ) -> None:
        vectors = self._target.vectors
        here = {
            each.id: _ItemHere(0, each.raw, ImportMark.read(each.metadata))
            for each in vectors.get(list(by_id), store=store, namespace=namespace)
        }
        outcomes = {
            id: here[id].outcome(mark, item.values) if id in here else "added"
            for id, (item, mark) in by_id.items()
        }
        new = [by_id[id] for id, each in outcomes.items() if each in DUE]
        if new and not self._report.dry_run:
            vectors.add_many(
                [item.id for item, _ in new],
                [np.frombuffer(item.values, "<f4") for item, _ in new],
                store=store,
                namespace=namespace,
                metadata=[mark.added_to(item.metadata) for item, mark in new],
                metric=metric,
            )
        for id, outcome in outcomes.items():
            self._report.settle("vectors", id, outcome)


def _check_vector(item: ImportedVector, mark: ImportMark) -> None:
    """Raise InvalidInput if the numbers of a vector cannot be stored."""
    if not item.values or len(item.values) % 4:
        raise InvalidInput("an embedding that is no list of float32 numbers")
    if not np.isfinite(np.frombuffer(item.values, "<f4")).all():
        raise InvalidInput("an embedding with numbers that are not finite")


class _KnownMemories:
    """The memories of the file by their marks, and by thread, source, time and text.

    It is read once; then only memories that are newer. What others add meanwhile is so seen inside
    of the transaction that writes, and two imports of one source at once store nothing twice.
    """

    def __init__(self) -> None:
        self._last = 0
        self._by_mark: dict[tuple[str, ...], _ItemHere] = {}
        self._by_content: dict[tuple[str | bytes, ...], _ItemHere] = {}

    def follow(self, sql: Sql) -> None:
        """Read the memories that were added since the last call."""
        rows = sql.execute(
            "SELECT id, thread, source, hash, created_at, updated_at, "
            f"json_object('{MARK}', metadata -> '$.{MARK}') FROM contexts WHERE id > ? "
            "ORDER BY id",
            (self._last,),
        )
        for id, thread, source, hash, created_at, updated_at, marked in rows:
            mark = ImportMark.read(metadata.decode(marked))
            touched = mark is not None and updated_at != mark.updated_at
            here = _ItemHere(id, hash, mark, touched)
            self._by_content.setdefault((thread, source, created_at, hash), here)
            if mark is not None:
                self._by_mark.setdefault(mark.item, here)
            self._last = id

    def find(self, entry: Entry, mark: ImportMark) -> tuple[_ItemHere | None, str]:
        """The memory that an entry is, in whatever state, and what is to be done with it."""
        hash = text_hash(entry.text)
        content = (entry.thread, entry.source, entry.created_at or "", hash)
        here = self._by_mark.get(mark.item) or self._by_content.get(content)
        return here, here.outcome(mark, hash) if here else "added"

    def changed(self, here: _ItemHere, entry: Entry, mark: ImportMark, updated_at: str) -> None:
        """Note the new state of a memory that was updated."""
        touched = updated_at != mark.updated_at
        self._by_mark[mark.item] = _ItemHere(here.key, text_hash(entry.text), mark, touched)
