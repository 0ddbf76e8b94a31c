"""The log of changes: how a process notices what others wrote to an index that it keeps in memory.

Every writer adds rows to the table `changes` in its own transaction: which index (FTS5 or vec0
table) changed, and which row of it. An entry in memory has the number of the last change that it
includes. A transaction whose newest number is the same sees the same data. One whose number is
higher reads the rows that the log lists since; one whose number is lower began earlier and must not
use the entry. The log is bounded: a process that has missed more changes reads everything again.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

LOGGED = 10_000  # changes that are kept, which bounds the table
EVERYTHING = 0  # in place of an id: the whole index was rebuilt or dropped


def record(sql: apsw.Connection, index: str, ids: Sequence[int]) -> None:
    """Log that rows of an index changed; for very many at once, that everything did."""
    noted = ids if len(ids) <= LOGGED // 10 else [EVERYTHING]
    sql.executemany("INSERT INTO changes (codes, id) VALUES (?, ?)", ((index, id) for id in noted))
    sql.execute("DELETE FROM changes WHERE seq <= (SELECT max(seq) FROM changes) - ?", (LOGGED,))


def record_everything(sql: apsw.Connection, index: str) -> None:
    """Log that an index was dropped or rebuilt."""
    record(sql, index, [EVERYTHING])
    sql.execute("DELETE FROM changes WHERE codes = ? AND id <> ?", (index, EVERYTHING))


def newest(sql: apsw.Connection) -> int:
    """The number of the newest change that this transaction sees."""
    return int(sql.execute("SELECT coalesce(max(seq), 0) FROM changes").get)


def since(sql: apsw.Connection, index: str, seq: int) -> list[int] | None:
    """The rows of an index that changed after change `seq`; None if it must be read completely."""
    ids = [
        id
        for (id,) in sql.execute(
            "SELECT DISTINCT id FROM changes WHERE seq > ? AND codes = ?", (seq, index)
        )
    ]
    forgotten = (sql.execute("SELECT min(seq) FROM changes").get or 0) > seq + 1
    return None if forgotten or EVERYTHING in ids else ids
