"""What one process keeps of a file in memory: postings, codes and filter columns, in one budget.

Nothing here is ever written to the file, and everything can be dropped at any time: an index that
finds no entry in memory reads it again. The indexes decide what an entry is; this module decides
how much is kept, what is dropped first, which thread may load, and when loading pays.

**Locks.** `loading(index)` is held while entries of one index are read from the file or brought up
to date, so that threads do not read the same twice. The lock of the table of entries is held only
for a look-up, never while anything is read. Entries that a running search uses are not changed
under it: they are replaced, or rows are appended after those that the search uses.

**Freshness.** Every writer adds rows to the table `changes` in its own transaction: which index
(FTS5 or vec0 table) changed, and which row of it. An entry in memory has the number of the last
change that it includes. A transaction whose newest number is the same sees the same data. One whose
number is higher reads the rows that the log lists since; one whose number is lower began earlier
and must not use the entry; nor must one that may still roll back what it wrote. The log is bounded:
a process that has missed more changes reads everything again.

**Filters.** `Allowed` is a filter, as SQL and as conditions. A column in memory has for each row
the number of its value (dictionary encoding). A condition is evaluated once for every distinct
value, by the SQL that `filters` compiles for it, so that a filter means the same in memory and in
the file. A field with too many values, or one that must not be kept, is filtered in the file.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from mcpvectordb import filters
from mcpvectordb.filters.dialect import json_path
from mcpvectordb.index.tuning import DEFAULT, Tuning
from mcpvectordb.records import Condition
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ranked = list[tuple[int, float]]
"""(id, score) pairs, best first."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which ids a search may return: a SELECT of them with its bindings, or "" for all.

    `conditions`, if there are any, are equivalent to it; what is in memory is filtered by them.
    So is `excluded`, a SELECT of the few that may not be returned, with the same bindings.
    `origins` are the names of those that it chooses from, if not all, in a published database;
    `known` are the ids themselves, where they have been looked up.
    """

    select: str = ""
    bindings: tuple[object, ...] = ()
    conditions: tuple[Condition, ...] = ()
    origins: tuple[str, ...] = ()
    excluded: str = ""
    known: NDArray[np.int64] | None = None

    def ids(self, sql: Sql) -> NDArray[np.int64]:
        """The selected ids, or those that are excluded, if these are named."""
        if self.known is not None:
            return self.known
        return np.array(selected(sql, self.excluded or self.select, self.bindings), np.int64)

    def mask(self, sql: Sql, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some ids may be returned."""
        return np.isin(ids, self.ids(sql), invert=bool(self.excluded))

    def test(self, id: str) -> tuple[str, tuple[object, ...]]:
        """The SQL condition that an id is allowed, and its bindings."""
        if not self.select:
            return "TRUE", ()
        test = f"NOT IN ({self.excluded})" if self.excluded else f"IN ({self.select})"
        return f"{id} {test}", self.bindings


EVERYTHING = Allowed()


def selected(sql: Sql, select: str, bindings: Sequence[object] = ()) -> list[Any]:
    """The values that a SELECT of one column returns."""
    return [value for (value,) in sql.execute(select, bindings)]


# The log of changes.

LOGGED = 10_000  # changes that are kept, which bounds the table
WHOLE_INDEX = 0  # in place of an id: the whole index was rebuilt or dropped


def log_changes(sql: Sql, index: str, ids: Sequence[int]) -> None:
    """Log that rows of an index changed; for very many at once, that everything did."""
    noted = ids if len(ids) <= LOGGED // 10 else [WHOLE_INDEX]
    sql.executemany("INSERT INTO changes (codes, id) VALUES (?, ?)", ((index, id) for id in noted))
    sql.execute("DELETE FROM changes WHERE seq <= (SELECT max(seq) FROM changes) - ?", (LOGGED,))


def log_rebuilt(sql: Sql, index: str) -> None:
    """Log that an index was dropped or rebuilt."""
    log_changes(sql, index, [WHOLE_INDEX])
    sql.execute("DELETE FROM changes WHERE codes = ? AND id <> ?", (index, WHOLE_INDEX))


def newest_change(sql: Sql) -> int:
    """The number of the newest change that this transaction sees."""
    return int(sql.execute("SELECT coalesce(max(seq), 0) FROM changes").get)


def changes_since(sql: Sql, index: str, seq: int) -> list[int] | None:
    """The rows of an index that changed after change `seq`; None if it must be read completely."""
    changed = "SELECT DISTINCT id FROM changes WHERE seq > ? AND codes = ?"
    ids = selected(sql, changed, (seq, index))
    forgotten = (sql.execute("SELECT min(seq) FROM changes").get or 0) > seq + 1
    return None if forgotten or WHOLE_INDEX in ids else ids


# Entries in memory.


class ResidentEntry(Protocol):
    """Anything that can be kept."""

    @property
    def size(self) -> int:
        """How many bytes of memory it takes."""


class ResidentEntries:
    """Entries by index and key, least recently used first, of at most `budget` bytes together.

    `tuning` is that of the indexes which share them.
    """

    def __init__(self, budget: int, tuning: Tuning = DEFAULT) -> None:
        self._budget, self.tuning = budget, tuning
        self._entries: dict[tuple[str, Hashable], tuple[ResidentEntry, int]] = {}
        self.size = 0
        """How many bytes the entries take."""
        self._asked: set[str] = set()
        self._lock = threading.Lock()
        self._loading: dict[str, threading.RLock] = {}

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
        return self.get_all(index, (key,)).get(key)

    def get_all(self, index: str, keys: Iterable[Hashable]) -> dict[Hashable, Any]:
        """The entries of those keys that have one, which become the most recently used ones."""
        found = {}
        with self._lock:
            for key in dict.fromkeys(keys):
                if entry := self._entries.pop((index, key), None):
                    self._entries[index, key] = entry
                    found[key] = entry[0]
        return found

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
            self.size += size
            while self.size > self._budget:
                self._discard(next(iter(self._entries)))

    def drop(self, index: str) -> None:
        """Drop all entries of an index."""
        with self._lock:
            for each in [each for each in self._entries if each[0] == index]:
                self._discard(each)

    def _discard(self, each: tuple[str, Hashable]) -> None:
        _, size = self._entries.pop(each, (None, 0))
        self.size -= size


# Filter columns.

MOST_COLUMNS = 32  # per group, so that arbitrary metadata keys cannot fill the memory

Path = tuple[str, ...]
Value = str | int | None


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """SQL for the rows of a table, those of a {group}, their id, and each field.

    A change of one of these fields must be logged as a change of the row's code, because these are
    the rows that the log of changes has (`ChunkIndex.touch`).
    """

    rows: str = ""
    of_group: str = ""
    id: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    metadata: str = ""


NOWHERE = ColumnSource()


class Column:
    """The values of one field, row by row."""

    def __init__(self, tuning: Tuning) -> None:
        self._tuning = tuning
        self._known: dict[Value, int] = {}
        self._characters = 0
        self.numbers = np.empty(0, np.uint16)

    @property
    def size(self) -> int:
        """How many bytes of memory this takes."""
        return self.numbers.nbytes + 4 * self._characters + 200 * len(self._known)

    def append(self, values: Sequence[Value]) -> bool:
        """Add the values of new rows; returns False if there are too many distinct ones."""
        for value in set(values) - self._known.keys():
            self._known[value] = len(self._known)
            self._characters += len(str(value))
        if (
            len(self._known) > self._tuning.column_values
            or self._characters > self._tuning.column_characters
        ):
            return False
        numbers = np.fromiter(map(self._known.__getitem__, values), np.uint16, len(values))
        self.numbers = np.concatenate([self.numbers, numbers])
        return True

    def fulfilling(self, sql: Sql, path: Path, condition: Condition) -> NDArray[np.bool_]:
        """A mask of the rows that fulfil a condition on this field."""
        values: list[Value] = list(self._known)
        if len(path) > 1:  # the JSON at a path, or None where it leads nowhere
            values = ["{}" if value is None else f'{{"value":{value}}}' for value in values]
            condition = condition._replace(field=("metadata", "value"))
        else:
            condition = condition._replace(field="value")
        test, bindings = filters.compile([condition], {"value": "each.value"}, "each.value")
        chosen = np.zeros(len(values), bool)
        for (number,) in sql.execute(
            f"SELECT each.key FROM json_each(?) AS each WHERE {test}",
            (json.dumps(values, ensure_ascii=False), *bindings),
        ):
            chosen[number] = True
        return chosen.take(self.numbers)


class Columns:
    """The columns of one group's rows, each read when a filter first needs it."""

    def __init__(self, source: ColumnSource, group: int, tuning: Tuning = DEFAULT) -> None:
        self._source, self._group, self._tuning = source, group, tuning
        self._columns: dict[Path, Column | None] = {}

    @property
    def size(self) -> int:
        """How many bytes of memory this takes."""
        return sum(column.size for column in self._columns.values() if column)

    def fulfilling(
        self, sql: Sql, conditions: Sequence[Condition], ids: NDArray[np.int64]
    ) -> NDArray[np.bool_] | None:
        """A mask over `ids` of those that fulfil all conditions; None if the file must decide."""
        found = np.ones(len(ids), bool)
        for condition in conditions:
            path = filters.path(condition.field)
            if (column := self._column(sql, path, ids)) is None:
                return None
            found &= column.fulfilling(sql, path, condition)
        return found

    def append(self, sql: Sql, ids: NDArray[np.int64]) -> None:
        """Add new rows to all columns."""
        within = "{id} IN (SELECT value FROM json_each(?))", json.dumps(ids.tolist())
        for path, column in self._columns.items():
            if column and not column.append(self._values(sql, path, ids, *within)):
                self._columns[path] = None

    def _column(self, sql: Sql, path: Path, ids: NDArray[np.int64]) -> Column | None:
        if path not in self._columns:
            if not (self._source.metadata if path[1:] else path[0] in self._source.fields):
                return None
            while len(self._columns) >= MOST_COLUMNS:
                del self._columns[next(iter(self._columns))]
            column = Column(self._tuning)
            within = self._source.of_group.format(group=self._group)
            self._columns[path] = (
                column if column.append(self._values(sql, path, ids, within)) else None
            )
        return self._columns[path]

    def _values(
        self, sql: Sql, path: Path, ids: NDArray[np.int64], within: str, *bindings: str
    ) -> list[Value]:
        """The values of a field, in the order of the ids."""
        source = self._source
        value, keys = (
            (f"({source.metadata}) -> ?", (json_path(path[1:]),))
            if path[1:]
            else (source.fields[path[0]], ())
        )
        found = dict(
            sql.execute(
                f"SELECT {source.id}, {value} FROM {source.rows} "
                f"WHERE {within.format(id=source.id)}",
                (*keys, *bindings),
            )
        )
        return list(map(found.get, ids.tolist()))
