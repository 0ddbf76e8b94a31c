"""The log of changes: how a process notices what others wrote to an index that it keeps in memory.

Every writer adds rows to the table `changes` in its own transaction: which index (FTS5 or vec0
table) changed, and which row of it. Whoever keeps something in memory remembers the number of the
last change it has seen. A transaction whose newest number is the same sees the same data. One whose
number is higher reads what the log lists since; one whose number is lower began earlier and must
not use what is kept. The log is bounded, and a process that was away for longer reads everything
again.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

LOGGED = 10_000  # changes that are remembered
EVERYTHING = 0  # in place of an id: the whole index was made anew


def record(sql: apsw.Connection, index: str, ids: Sequence[int]) -> None:
    """Log that rows of an index changed; of very many at once, that everything did."""
    noted = ids if len(ids) <= LOGGED // 10 else [EVERYTHING]
    sql.executemany("INSERT INTO changes (codes, id) VALUES (?, ?)", ((index, id) for id in noted))
    sql.execute("DELETE FROM changes WHERE seq <= (SELECT max(seq) FROM changes) - ?", (LOGGED,))


def record_everything(sql: apsw.Connection, index: str) -> None:
    """Log that an index is gone, or was made anew."""
    record(sql, index, [EVERYTHING])
    sql.execute("DELETE FROM changes WHERE codes = ? AND id <> ?", (index, EVERYTHING))


def newest(sql: apsw.Connection) -> int:
    """The number of the newest change that this transaction sees."""
    return int(sql.execute("SELECT coalesce(max(seq), 0) FROM changes").get)


def since(sql: apsw.Connection, index: str, seq: int) -> list[int] | None:
    """The rows of an index that changed after a change; None when it must be read anew."""
    ids = [
        id
        for (id,) in sql.execute(
            "SELECT DISTINCT id FROM changes WHERE seq > ? AND codes = ?", (seq, index)
        )
    ]
    forgotten = (sql.execute("SELECT min(seq) FROM changes").get or 0) > seq + 1
    return None if forgotten or EVERYTHING in ids else ids
