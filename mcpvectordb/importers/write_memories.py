"""Stores imported memories with their times: known ones are left alone, changed ones updated."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import apsw

from mcpvectordb import dates, metadata
from mcpvectordb.config import Config
from mcpvectordb.errors import IngestError, InvalidInput
from mcpvectordb.importers.items import ImportedMemory
from mcpvectordb.importers.kept_embeddings import KeptEmbeddings
from mcpvectordb.importers.report import MARK, ImportMark, ImportReport, Marker, Outcome
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.metadata_index import MetadataIndex
from mcpvectordb.memories.memory import Change, Entry
from mcpvectordb.memories.validation import checked_entry
from mcpvectordb.memories.write import MemoryWriter, PreparedMemories
from mcpvectordb.storage.file import File

SHELF = "memories"
CHANGED_TWICE = "changed both here and in its source since the last import; it stays as it is here"


class _MemoryHere(NamedTuple):
    """A stored memory, as far as an import compares it."""

    id: int
    updated_at: str
    hash: bytes
    mark: ImportMark | None


class _KnownMemories:
    """The memories of the file by their marks, and by thread, source, time and text.

    It is read once; then only memories that are newer. What others add meanwhile is so seen inside
    of the transaction that writes, and two imports of one source at once store nothing twice.
    """

    def __init__(self) -> None:
        self._last = 0
        self._by_mark: dict[tuple[str, ...], _MemoryHere] = {}
        self._by_content: dict[tuple[str | bytes, ...], _MemoryHere] = {}

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
            here = _MemoryHere(id, updated_at, hash, mark)
            self._by_content.setdefault((thread, source, created_at, hash), here)
            if mark is not None:
                self._by_mark.setdefault(mark[:3], here)
            self._last = id

    def find(self, entry: Entry, mark: ImportMark) -> _MemoryHere | None:
        """The memory that an entry is, in whatever state; None for a new one."""
        found = self._by_mark.get(mark[:3])
        content = (entry.thread, entry.source, entry.created_at or "", _hash(entry.text))
        return found or self._by_content.get(content)

    def changed(self, here: _MemoryHere, mark: ImportMark, updated_at: str, hash: bytes) -> None:
        """Note the new state of a memory that was updated."""
        self._by_mark[mark[:3]] = here._replace(mark=mark, updated_at=updated_at, hash=hash)


class MemoryImport:
    """Stores memories in batches."""

    def __init__(
        self,
        file: File,
        config: Config,
        writer: MemoryWriter,
        keys: MetadataIndex,
        index: ChunkIndex,
        kept: KeptEmbeddings,
        marker: Marker,
        report: ImportReport,
    ) -> None:
        self._file, self._config, self._writer, self._keys = file, config, writer, keys
        self._index, self._kept, self._marker, self._report = index, kept, marker, report
        self._known = _KnownMemories()

    def write(self, items: Sequence[ImportedMemory]) -> None:
        """Store a batch in one transaction and report what became of each item."""
        checked = list(self._checked(items))
        with self._file.reading(limited=False) as sql:
            self._known.follow(sql)
        if self._report.dry_run:
            self._plan(checked)
            return
        prepared = PreparedMemories(
            self._writer.split(
                entry.text
                for _, entry, mark in checked
                if self._outcome(self._known.find(entry, mark), mark) != "known"
            )
        )
        owners: dict[int, ImportedMemory] = {}
        with self._file.writing() as sql:
            self._keys.settle(sql)
            for item, entry, mark in checked:
                self._known.follow(sql)
                here = self._known.find(entry, mark)
                if self._count(item, outcome := self._outcome(here, mark)):
                    owners[self._store(sql, entry, mark, here, outcome, prepared)] = item
        self._report.embedded(self._kept.keep(self._index, owners))

    def _plan(self, checked: Sequence[tuple[ImportedMemory, Entry, ImportMark]]) -> None:
        """Report what would become of items."""
        new = []
        for item, entry, mark in checked:
            outcome = self._outcome(self._known.find(entry, mark), mark)
            self._count(item, outcome)
            new += [item] if outcome in ("added", "changed") else []
        self._report.embedded(self._kept.plan(new))

    def _checked(
        self, items: Sequence[ImportedMemory]
    ) -> Iterator[tuple[ImportedMemory, Entry, ImportMark]]:
        """The items that can be stored, as entries, with their marks; others are reported."""
        for item in items:
            mark = self._marker.mark(item)
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
            try:
                yield item, checked_entry(entry, self._config), mark
            except (InvalidInput, IngestError) as error:
                self._report.skip(item.id, str(error))

    def _count(self, item: ImportedMemory, outcome: Outcome | None) -> bool:
        """Report what is done with an item; False if it is nothing at all."""
        if outcome is None:
            self._report.skip(item.id, CHANGED_TWICE)
            return False
        self._report.count(SHELF, outcome)
        return True

    def _outcome(self, here: _MemoryHere | None, mark: ImportMark) -> Outcome | None:
        """What is to be done with an item; None if it was changed on both sides."""
        if here is None:
            return "added"
        if here.mark is None or not mark.of_same_item(here.mark):
            return "known"  # the same text of the same time in the same thread
        if mark.hash == here.mark.hash:
            return "known"
        return "changed" if here.updated_at == here.mark.updated_at else None

    def _store(
        self,
        sql: apsw.Connection,
        entry: Entry,
        mark: ImportMark,
        here: _MemoryHere | None,
        outcome: Outcome | None,
        prepared: PreparedMemories,
    ) -> int:
        """Write an entry, if that is to be done; the id of its memory."""
        updated_at = entry.updated_at or dates.now()
        if here is None:
            return self._writer.add(sql, entry, prepared, updated_at)[0]
        if outcome == "changed":
            change = Change(
                id=here.id,
                text=None if here.hash == _hash(entry.text) else entry.text,
                metadata=entry.metadata or {},
                tags=entry.tags,
                images=entry.images,
            )
            self._writer.change(sql, change, prepared, updated_at)
            self._known.changed(here, mark, updated_at, _hash(entry.text))
        return here.id


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
