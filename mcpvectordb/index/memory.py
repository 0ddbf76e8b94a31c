"""Codes that a process keeps in memory, and how they follow the file whoever changes it.

Every change of a vec0 table is logged in the table `changes`; who keeps something remembers up to
where it has read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import apsw

from mcpvectordb.errors import Damaged
from mcpvectordb.index.codes import Resident, Residents
from mcpvectordb.index.columns import Columns, Source
from mcpvectordb.records import Condition

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LOGGED = 10_000  # so many changes are remembered for processes that keep codes in memory
ALL = 0  # in place of an id: everything changed
PATIENCE = (
    0.02  # seconds to wait for another thread that reads changes; a file is not read in that time
)


@dataclass(slots=True)
class Kept:
    """What is in memory of a vec0 table, and the change of the file up to which it is right."""

    codes: Resident
    columns: Columns
    seq: int

    @property
    def size(self) -> int:
        """How many bytes of memory this takes."""
        return self.codes.size + self.columns.size


class View(NamedTuple):
    """Codes in memory, which rows of them may be found, and whether the conditions were considered
    in that.
    """

    codes: Resident
    usable: NDArray[np.bool_]
    filtered: bool


class Following:
    """The vec0 tables of one shelf in memory; `source` says what their rows can be filtered by."""

    def __init__(self, residents: Residents, source: Source) -> None:
        self._residents, self._source = residents, source

    def view(
        self,
        sql: apsw.Connection,
        name: str,
        group: int,
        dimension: int,
        conditions: Sequence[Condition],
    ) -> View | None:
        """A table's codes as this transaction sees them, or newer; None when they are not (yet)
        kept.

        What is newer does no harm: candidates are read again from the file, and those that it does
        not have are left out. Only conditions are not applied to it.
        """
        if sql.txn_state("main") == apsw.SQLITE_TXN_WRITE:
            return None  # what may yet be undone must not be kept
        if not self._residents.lock.acquire(timeout=PATIENCE):
            return None  # the file answers meanwhile
        try:
            newest = sql.execute("SELECT coalesce(max(seq), 0) FROM changes").get
            kept = self._kept(sql, name, group, dimension, newest)
            if kept is None:
                return None
            fulfilling = (
                self._fulfilling(sql, name, kept, conditions) if kept.seq == newest else None
            )
            alive = kept.codes.alive
            return (
                View(kept.codes, alive, False)
                if fulfilling is None
                else View(kept.codes, alive & fulfilling, True)
            )
        except BaseException:
            self._residents.drop()  # something may be half done
            raise
        finally:
            self._residents.lock.release()

    def _kept(
        self, sql: apsw.Connection, name: str, group: int, dimension: int, newest: int
    ) -> Kept | None:
        kept: Kept | None = self._residents.get(name)
        if kept is not None and (kept.seq >= newest or self._follow(sql, name, kept, newest)):
            return kept
        del kept
        self._residents.forget(name)
        if not sql.execute("SELECT count(*) FROM sqlite_schema WHERE name = ?", (name,)).get:
            return None
        rows = sql.execute(f"SELECT count(*) FROM {name}_rowids").get
        if not self._residents.wanted(name, Resident.bytes_for(rows, dimension)):
            return None
        kept = Kept(
            Resident(*coded_rows(sql, name, dimension)), Columns(self._source, group), newest
        )
        self._residents.keep(name, kept)
        return kept

    def _follow(self, sql: apsw.Connection, name: str, kept: Kept, newest: int) -> bool:
        """Bring what is kept up to date by the log of changes; False where it is better read
        anew.
        """
        import numpy as np

        ids = [
            id
            for (id,) in sql.execute(
                "SELECT DISTINCT id FROM changes WHERE seq > ? AND codes = ?", (kept.seq, name)
            )
        ]
        if (
            ALL in ids
            or sql.execute("SELECT min(seq) FROM changes").get > kept.seq + 1
            or kept.codes.fragmented
        ):
            return False
        # One by one: vec0 reads the whole table for anything but an equality.
        rows = list(
            sql.executemany(
                f"SELECT rowid, embedding FROM {name} WHERE rowid = ?", ((id,) for id in ids)
            )
        )
        present = np.array([id for id, _ in rows], np.int64)
        codes = np.frombuffer(b"".join(code for _, code in rows), np.int8).reshape(
            -1, kept.codes.dimension
        )
        if ids:
            kept.columns.append(sql, present)
            kept.codes.replace(np.array(ids, np.int64), present, codes)
            self._residents.keep(name, kept)
        kept.seq = newest
        return True

    def _fulfilling(
        self, sql: apsw.Connection, name: str, kept: Kept, conditions: Sequence[Condition]
    ) -> NDArray[np.bool_] | None:
        if not conditions:
            return None
        before = kept.size
        found = kept.columns.fulfilling(sql, conditions, kept.codes.ids)
        if kept.size > before:
            self._residents.keep(name, kept)
        return found


def log(sql: apsw.Connection, name: str, ids: Sequence[int]) -> None:
    """Note which rows of a vec0 table changed, for processes that keep them in memory."""
    noted = ids if len(ids) <= LOGGED // 10 else [ALL]
    sql.executemany("INSERT INTO changes (codes, id) VALUES (?, ?)", ((name, id) for id in noted))
    sql.execute("DELETE FROM changes WHERE seq <= (SELECT max(seq) FROM changes) - ?", (LOGGED,))


def log_all(sql: apsw.Connection, name: str) -> None:
    """Note that a vec0 table is gone, or another one."""
    log(sql, name, [ALL])
    sql.execute("DELETE FROM changes WHERE codes = ? AND id <> ?", (name, ALL))


def coded_rows(
    sql: apsw.Connection, name: str, dimension: int
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """All ids and codes of a vec0 table, read from its own tables: a hundred times as fast as row
    by row.
    """
    import numpy as np

    room = sql.execute(f"SELECT coalesce(sum(8 * length(validity)), 0) FROM {name}_chunks").get
    ids, codes, count = np.empty(room, np.int64), np.empty((room, dimension), np.int8), 0
    try:
        for bits, held, vectors in sql.execute(
            f"SELECT c.validity, c.rowids, v.vectors FROM {name}_chunks c "
            f"JOIN {name}_vector_chunks00 v ON v.rowid = c.chunk_id"
        ):
            used = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little").astype(bool)
            rows = slice(count, count + int(used.sum()))
            ids[rows] = np.frombuffer(held, np.int64)[used]
            codes[rows] = np.frombuffer(vectors, np.int8).reshape(-1, dimension)[used]
            count = rows.stop
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise Damaged(f"{name} contradicts itself ({error}): run `mcpvectordb rebuild`") from error
    return ids[:count], codes[:count]
