"""Stores imported items: known ones are left alone, changed ones take the place of the old.

Each stored item has a mark in its metadata, by which the next import knows it: where it came from,
and a hash of what it was then.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import apsw

from mcpvectordb import dates, metadata
from mcpvectordb.documents import texts
from mcpvectordb.documents.libraries import checked_name
from mcpvectordb.documents.shelf import Documents
from mcpvectordb.documents.texts import GivenText
from mcpvectordb.errors import IngestError, InvalidInput, NoText
from mcpvectordb.importers.items import ImportedDocument, ImportedMemory, ImportedVector
from mcpvectordb.importers.kept_embeddings import KeptEmbeddings
from mcpvectordb.importers.report import ImportReport
from mcpvectordb.memories.memory import Change, Entry
from mcpvectordb.memories.shelf import Memories
from mcpvectordb.memories.validation import checked_entry
from mcpvectordb.memories.write import PreparedMemories
from mcpvectordb.records import Condition, Metric
from mcpvectordb.store import OpenStore
from mcpvectordb.vectors.shelf import Vectors

MARK = "imported"
"""The metadata key under which an imported item has its mark."""

ANOTHER = (
    "another item of this name is here already, which was not imported from this source: choose "
    "another library"
)
CHANGED_TWICE = "changed both here and in its source since the last import; it stays as it is here"

StoredItem = ImportedDocument | ImportedMemory | ImportedVector
ItemT = TypeVar("ItemT", ImportedDocument, ImportedMemory, ImportedVector)
T = TypeVar("T")
Writer = Callable[[Sequence[Any]], None]
_CheckedVector = tuple[ImportedVector, "ImportMark", Any]


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


class ImportTarget(NamedTuple):
    """What an import writes to."""

    store: OpenStore
    documents: Documents
    memories: Memories
    vectors: Vectors


class ItemImport:
    """Stores items in batches; the items of a source have its kind and path in their marks."""

    def __init__(self, target: ImportTarget, report: ImportReport, path: str) -> None:
        self._target, self._report, self._path = target, report, path
        self._kept = KeptEmbeddings(target.store.file, target.store.encoder)
        self._documents, self._memories = target.documents.writer, target.memories.writer
        self._known = _KnownMemories()

    def writers(self) -> dict[type, Writer]:
        """The function that stores a batch of items, by their class."""
        return {
            ImportedDocument: self.write_documents,
            ImportedMemory: self.write_memories,
            ImportedVector: self.write_vectors,
        }

    def _checked(
        self, items: Iterable[ItemT], check: Callable[[ItemT, ImportMark], T]
    ) -> Iterator[tuple[ItemT, ImportMark, T]]:
        """The items that can be stored, with their marks and what is stored; reports the others."""
        for item in items:
            updated = item.updated_at or item.created_at if isinstance(item, ImportedMemory) else ""
            origin = item.origin or self._path
            mark = ImportMark(self._report.kind, origin, item.id, item_hash(item), updated)
            try:
                yield item, mark, check(item, mark)
            except NoText:
                self._report.skip(item.id, "it has no text")
            except (InvalidInput, IngestError) as error:
                self._report.skip(item.id, str(error))

    # Documents.

    def write_documents(self, items: Sequence[ImportedDocument]) -> None:
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
        here = self._documents_here(library, list(by_id))
        owners: dict[int, ImportedDocument] = {}
        new: list[tuple[ImportedDocument, GivenText]] = []
        for item, mark, given in self._checked(by_id.values(), self._given):
            found = here.get(item.id)
            outcome = found.outcome(mark, given.hash) if found else "added"
            if self._report.settle("documents", item.id, outcome):
                if found and outcome == "known":
                    owners[found.key] = item  # a killed import may not have stored its embedding
                else:
                    new.append((item, given))
        if self._report.dry_run:
            self._report.embedded(self._kept.plan(item for item, _ in new))
            return
        places = texts.store([given for _, given in new], library, self._documents)
        keys = [key for batch in places for _, key in batch]
        owners |= dict(zip(keys, (item for item, _ in new), strict=True))
        self._report.embedded(self._kept.keep(self._target.store.documents, owners))

    def _given(self, item: ImportedDocument, mark: ImportMark) -> GivenText:
        """The item as a text that can be stored; InvalidInput or IngestError."""
        checked_name(item.library)
        given = texts.checked_text(
            item.text,
            item.id,
            item.title.strip() or None,
            mark.added_to(item.metadata),
            self._target.store.config.max_source_bytes,
        )
        return given._replace(
            source=replace(given.source, modified=item.modified), created_at=item.created_at
        )

    def _documents_here(self, library: str, sources: Sequence[str]) -> dict[str, _ItemHere]:
        with self._target.store.file.reading(limited=False) as sql:
            rows = sql.execute(
                "SELECT source, key, hash, metadata FROM published_documents "
                "WHERE library = ? AND source IN (SELECT value FROM json_each(?))",
                (library, json.dumps(sources)),
            )
            return {
                source: _ItemHere(key, hash, ImportMark.read(metadata.decode(values)))
                for source, key, hash, values in rows
            }

    # Memories.

    def write_memories(self, items: Sequence[ImportedMemory]) -> None:
        """Store memories with their times in one transaction."""
        checked = list(self._checked(items, self._entry))
        with self._target.store.file.reading(limited=False) as sql:
            self._known.follow(sql)
        expected = [
            (item, entry, self._known.find(entry, mark)[1]) for item, mark, entry in checked
        ]
        if self._report.dry_run:
            new = [
                item
                for item, _, outcome in expected
                if self._report.settle("memories", item.id, outcome) and outcome != "known"
            ]
            self._report.embedded(self._kept.plan(new))
            return
        prepared = PreparedMemories(
            self._memories.split(entry.text for _, entry, each in expected if each != "known")
        )
        owners: dict[int, ImportedMemory] = {}
        with self._target.store.file.writing() as sql:
            self._target.store.metadata_index.settle(sql)
            for item, mark, entry in checked:
                self._known.follow(sql)
                here, outcome = self._known.find(entry, mark)
                if self._report.settle("memories", item.id, outcome):
                    owners[self._store(sql, entry, mark, here, outcome, prepared)] = item
        self._report.embedded(self._kept.keep(self._target.store.memories, owners))

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
        return checked_entry(entry, self._target.store.config)

    def _store(
        self,
        sql: apsw.Connection,
        entry: Entry,
        mark: ImportMark,
        here: _ItemHere | None,
        outcome: str,
        prepared: PreparedMemories,
    ) -> int:
        """Write an entry, if that is to be done; the id of its memory."""
        updated_at = entry.updated_at or dates.now()
        if here is None:
            return self._memories.add(sql, entry, prepared, updated_at)[0]
        if outcome == "changed":
            hash = _hash(entry.text)
            change = Change(
                id=here.key,
                text=None if here.content == hash else entry.text,
                metadata=entry.metadata or {},
                tags=entry.tags,
                images=entry.images,
            )
            self._memories.change(sql, change, prepared, updated_at)
            self._known.changed(_ItemHere(here.key, hash, mark, updated_at != mark.updated_at))
        return here.key

    # Vectors.

    def write_vectors(self, items: Sequence[ImportedVector]) -> None:
        """Store vectors, a transaction for each store and namespace among them."""
        groups: defaultdict[tuple[str, str, Metric], dict[str, _CheckedVector]] = defaultdict(dict)
        for checked in self._checked(items, _values):
            item = checked[0]
            groups[item.store, item.namespace, item.metric][item.id] = checked
        for group, by_id in groups.items():
            try:
                self._write_store(*group, by_id)
            except InvalidInput as error:  # of the names: all items of the group have them
                for id in by_id:
                    self._report.skip(id, str(error))

    def _write_store(
        self, store: str, namespace: str, metric: Metric, by_id: Mapping[str, _CheckedVector]
    ) -> None:
        vectors, wanted = self._target.vectors, [Condition("id", "in", list(by_id))]
        here = {
            each.id: _ItemHere(0, each.raw, ImportMark.read(each.metadata))
            for each in vectors.browse(
                store=store, namespace=namespace, where=wanted, limit=len(by_id)
            )
        }
        outcomes = {
            id: here[id].outcome(mark, item.values) if id in here else "added"
            for id, (item, mark, _) in by_id.items()
        }
        new = [by_id[id] for id, each in outcomes.items() if each in ("added", "changed")]
        if new and not self._report.dry_run:
            vectors.add_many(
                [item.id for item, _, _ in new],
                [values for _, _, values in new],
                store=store,
                namespace=namespace,
                metadata=[mark.added_to(item.metadata) for item, mark, _ in new],
                metric=metric,
            )
        for id, outcome in outcomes.items():
            self._report.settle("vectors", id, outcome)


def _values(item: ImportedVector, mark: ImportMark) -> Any:
    """The numbers of a vector; InvalidInput if they cannot be stored."""
    import numpy as np

    if not item.values or len(item.values) % 4:
        raise InvalidInput("an embedding that is no list of float32 numbers")
    values = np.frombuffer(item.values, "<f4")
    if not np.isfinite(values).all():
        raise InvalidInput("an embedding with numbers that are not finite")
    return values


class _KnownMemories:
    """The memories of the file by their marks, and by thread, source, time and text.

    It is read once; then only memories that are newer. What others add meanwhile is so seen inside
    of the transaction that writes, and two imports of one source at once store nothing twice.
    """

    def __init__(self) -> None:
        self._last = 0
        self._by_mark: dict[tuple[str, ...], _ItemHere] = {}
        self._by_content: dict[tuple[str | bytes, ...], _ItemHere] = {}

    def follow(self, sql: apsw.Connection) -> None:
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
        hash = _hash(entry.text)
        content = (entry.thread, entry.source, entry.created_at or "", hash)
        here = self._by_mark.get(mark.item) or self._by_content.get(content)
        return here, here.outcome(mark, hash) if here else "added"

    def changed(self, here: _ItemHere) -> None:
        """Note the new state of a memory that was updated."""
        if here.mark is not None:
            self._by_mark[here.mark.item] = here


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
