"""What rows can be filtered by, in memory: for each row, the number of its value among the values
that there are.

A condition is asked of every different value once, in the SQL that `filters` writes for it, so
there is only one meaning of a filter. Where the values are too many, or a field is not among those
that may be kept, the file is asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import apsw

from mcpvectordb import filters
from mcpvectordb.records import Condition

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_VALUES = 20_000  # asking so many takes some milliseconds; two bytes could tell 65,536 apart
MOST_CHARACTERS = 2_000_000  # of all values of a column
MOST_COLUMNS = 32

Path = tuple[str, ...]
Value = str | int | None


@dataclass(frozen=True, slots=True)
class Source:
    """Where the values of a table's rows stand: SQL for these rows, those of a {group}, their id,
    and each field.

    Only fields that never change while the row's code stays as it is: the log of changes speaks of
    codes.
    """

    rows: str = ""
    of_group: str = ""
    id: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    metadata: str = ""


NOWHERE = Source()


class Column:
    """The values of one field, row by row."""

    def __init__(self) -> None:
        import numpy as np

        self._known: dict[Value, int] = {}
        self._characters = 0
        self.numbers = np.empty(0, np.uint16)

    @property
    def size(self) -> int:
        """How many bytes of memory this takes."""
        return self.numbers.nbytes + 4 * self._characters + 200 * len(self._known)

    def append(self, values: Sequence[Value]) -> bool:
        """Note the values of rows behind the last one; False when there are too many different
        ones.
        """
        import numpy as np

        for value in set(values) - self._known.keys():
            self._known[value] = len(self._known)
            self._characters += len(str(value))
        if len(self._known) > MOST_VALUES or self._characters > MOST_CHARACTERS:
            return False
        numbers = np.fromiter(map(self._known.__getitem__, values), np.uint16, len(values))
        self.numbers = np.concatenate([self.numbers, numbers])
        return True

    def fulfilling(
        self, sql: apsw.Connection, path: Path, condition: Condition
    ) -> NDArray[np.bool_]:
        """Which rows fulfil a condition on this field."""
        import numpy as np

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
    """The columns of the rows of one table that is kept in memory, each read when first asked
    for.
    """

    def __init__(self, source: Source, group: int) -> None:
        self._source, self._group = source, group
        self._columns: dict[Path, Column | None] = {}

    @property
    def size(self) -> int:
        """How many bytes of memory this takes."""
        return sum(column.size for column in self._columns.values() if column)

    def fulfilling(
        self, sql: apsw.Connection, conditions: Sequence[Condition], ids: NDArray[np.int64]
    ) -> NDArray[np.bool_] | None:
        """Which of the rows with these ids, which are all that there are, fulfil all conditions;
        None: ask the file.
        """
        import numpy as np

        found = np.ones(len(ids), bool)
        for condition in conditions:
            path = filters.path(condition.field)
            if (column := self._column(sql, path, ids)) is None:
                return None
            found &= column.fulfilling(sql, path, condition)
        return found

    def append(self, sql: apsw.Connection, ids: NDArray[np.int64]) -> None:
        """Read what rows behind the last one hold."""
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
            column = Column()
            within = self._source.of_group.format(group=self._group)
            self._columns[path] = (
                column if column.append(self._values(sql, path, ids, within)) else None
            )
        return self._columns[path]

    def _values(
        self, sql: apsw.Connection, path: Path, ids: NDArray[np.int64], within: str, *bindings: str
    ) -> list[Value]:
        """What rows hold in a field, in the order of the ids."""
        source = self._source
        value, keys = (
            (f"({source.metadata}) -> ?", (filters.json_path(path[1:]),))
            if path[1:]
            else (source.fields[path[0]], ())
        )
        found = dict(
            sql.execute(
                f"SELECT {source.id}, {value} FROM {source.rows} WHERE "
                f"{within.format(id=source.id)}",
                (*keys, *bindings),
            )
        )
        return list(map(found.get, ids.tolist()))
