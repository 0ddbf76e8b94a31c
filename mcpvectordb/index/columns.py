"""Filter columns in memory: for each row the number of its value (dictionary encoding).

A condition is evaluated once for every distinct value, by the SQL that `filters` compiles for it,
so that a filter means the same in memory and in the file. A field with too many values, or one that
must not be kept, is filtered in the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import apsw

from mcpvectordb import filters
from mcpvectordb.index.tuning import DEFAULT, Tuning
from mcpvectordb.records import Condition
from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

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

    def fulfilling(
        self, sql: apsw.Connection, path: Path, condition: Condition
    ) -> NDArray[np.bool_]:
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
        self, sql: apsw.Connection, conditions: Sequence[Condition], ids: NDArray[np.int64]
    ) -> NDArray[np.bool_] | None:
        """A mask over `ids` of those that fulfil all conditions; None if the file must decide."""
        found = np.ones(len(ids), bool)
        for condition in conditions:
            path = filters.path(condition.field)
            if (column := self._column(sql, path, ids)) is None:
                return None
            found &= column.fulfilling(sql, path, condition)
        return found

    def append(self, sql: apsw.Connection, ids: NDArray[np.int64]) -> None:
        """Add new rows to all columns."""
        within = "{id} IN (SELECT value FROM json_each(?))", json.dumps(ids.tolist())
        for path, column in self._columns.items():
            if column and not column.append(self._values(sql, path, ids, *within)):
                self._columns[path] = None

    def _column(self, sql: apsw.Connection, path: Path, ids: NDArray[np.int64]) -> Column | None:
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
        self, sql: apsw.Connection, path: Path, ids: NDArray[np.int64], within: str, *bindings: str
    ) -> list[Value]:
        """The values of a field, in the order of the ids."""
        source = self._source
        value, keys = (
            (f"({source.metadata}) -> ?", (filters.json_path(path[1:]),))
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
