"""What one process keeps of a file in memory: postings, codes and filter columns, in one budget.

Nothing here is ever written to the file, and everything can be dropped at any time: an index that
finds no entry in memory reads it again. The indexes decide what an entry is; this module decides
how much is kept, what is dropped first, which thread may load, and when loading pays.

**Locks.** `loading(index)` is held while entries of one index are read from the file or brought up
to date, so that threads do not read the same twice. The lock of the table of entries is held only
for a look-up, never while anything is read. Entries that a running search uses are not changed
under it: they are replaced, or rows are appended after those that the search uses.

**Freshness** is decided by the log of changes (`index.changes`): an entry has the number of the
last change that it includes. `Snapshot` is what a transaction sees.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any, NamedTuple, Protocol

import apsw

from mcpvectordb.index import changes


class ResidentEntry(Protocol):
    """Anything that can be kept."""

    @property
    def size(self) -> int:
        """How many bytes of memory it takes."""


class Snapshot(NamedTuple):
    """The newest change that a transaction sees, and whether what it reads may be kept."""

    seq: int
    committed: bool


def snapshot(sql: apsw.Connection) -> Snapshot:
    """What this transaction sees; what a writer has not committed yet must not be kept."""
    return Snapshot(changes.newest(sql), sql.txn_state("main") != apsw.SQLITE_TXN_WRITE)


class ResidentEntries:
    """Entries by index and key, least recently used first, of at most `budget` bytes together."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._entries: dict[tuple[str, Hashable], tuple[ResidentEntry, int]] = {}
        self._bytes = 0
        self._asked: set[str] = set()
        self._lock = threading.Lock()
        self._loading: dict[str, threading.RLock] = {}

    @property
    def size(self) -> int:
        """How many bytes the entries take."""
        return self._bytes

    def keys(self, index: str) -> list[Hashable]:
        """The keys of an index's entries, least recently used first."""
        with self._lock:
            return [key for name, key in self._entries if name == index]

    def loading(self, index: str) -> threading.RLock:
        """The lock to hold while entries of an index are looked up, read or brought up to date."""
        with self._lock:
            return self._loading.setdefault(index, threading.RLock())

    def worth_loading(self, index: str, rows: int, file_rows: int) -> bool:
        """Whether a query that concerns so many rows should be answered from memory.

        The first query of a process goes to the file unless it concerns more than `file_rows`: for
        a single query, loading costs more than it saves.
        """
        with self._lock:
            asked = index in self._asked
            self._asked.add(index)
        return asked or rows > file_rows

    def has_room(self, size: int) -> bool:
        """Whether an entry of so many bytes could be kept."""
        return size <= self._budget

    def get(self, index: str, key: Hashable) -> Any:
        """An entry, which becomes the most recently used one; None when it is not kept."""
        with self._lock:
            found = self._entries.pop((index, key), None)
            if found is None:
                return None
            self._entries[index, key] = found
            return found[0]

    def put(self, index: str, key: Hashable, entry: ResidentEntry) -> None:
        """Keep an entry (again, when it has grown) and drop others that no longer fit.

        An entry that is larger than the whole budget is not kept.
        """
        with self._lock:
            self._discard((index, key))
            size = entry.size
            if size > self._budget:
                return
            self._entries[index, key] = entry, size
            self._bytes += size
            while self._bytes > self._budget:
                self._discard(next(iter(self._entries)))

    def drop(self, index: str) -> None:
        """Drop all entries of an index."""
        with self._lock:
            for each in [each for each in self._entries if each[0] == index]:
                self._discard(each)

    def _discard(self, each: tuple[str, Hashable]) -> None:
        _, size = self._entries.pop(each, (None, 0))
        self._bytes -= size
