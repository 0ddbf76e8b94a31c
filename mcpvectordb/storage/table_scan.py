"""Reads the rows of tables with damaged pages: those in front of the damage and behind it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Sequence
from typing import Any

import apsw

Row = tuple[Any, ...]

UNREADABLE = (
    apsw.CorruptError,
    apsw.IOError,
    apsw.NotADBError,
    apsw.FormatError,
    apsw.TooBigError,
)
"""Errors that mean that a part of a file cannot be read."""

_MAX_ROWID = 2**63 - 1


def rows_by_rowid(
    sql: apsw.Connection,
    table: str,
    columns: str,
    decode: Callable[[Row], Row] = tuple,
    rowid: str = "rowid",
) -> Generator[Row, None, bool]:
    """The rows in front of each damaged page and behind it; returns whether there was none.

    A scan ends at a damaged page. A row behind the damage is then found by its rowid, from which
    one scan goes back to the damage and the next one goes on. `table` and `columns` are SQL;
    `rowid` is another of its names (_rowid_, oid) for a table with a column of this name.
    """
    select, start = f"SELECT {columns}, {rowid} FROM {table} WHERE {rowid}", -_MAX_ROWID
    scan = functools.partial(until_damage, sql, decode=decode)
    undamaged = True
    while True:
        complete, last = yield from scan(f"{select} > ? ORDER BY {rowid}", start)
        if complete:
            return undamaged
        undamaged = False
        behind = _rowid_behind(sql, table, rowid, last)
        if behind is None:
            return False
        yield from scan(f"{select} > ? AND {rowid} < ? ORDER BY {rowid} DESC", last, behind)
        start = behind - 1


def rows_by_key(
    sql: apsw.Connection,
    table: str,
    columns: str,
    key: Sequence[str],
    decode: Callable[[Row], Row] = tuple,
) -> Generator[Row, None, bool]:
    """The rows of a table without rowids, from both ends up to a damaged page, as above."""
    for direction in ("ASC", "DESC"):
        order = ", ".join(f'"{each}" {direction}' for each in key)
        select = f"SELECT {columns}, 0 FROM {table} ORDER BY {order}"
        complete, _ = yield from until_damage(sql, select, decode=decode)
        if complete:
            return direction == "ASC"
    return False


def until_damage(
    sql: apsw.Connection, select: str, *bindings: int, decode: Callable[[Row], Row] = tuple
) -> Generator[Row, None, tuple[bool, int]]:
    """The decoded rows of a select without its last column, the rowid.

    Returns whether these are all, and the last rowid in front of the damage.
    """
    last = bindings[0] if bindings else 0
    try:
        for *row, rowid in sql.execute(select, bindings):
            # In a damaged B-tree, a page may point back to an earlier one.
            if len(bindings) == 1 and rowid <= last:
                return False, last
            last = rowid
            yield decode(tuple(row))
    except (*UNREADABLE, apsw.SQLError):
        return False, last
    return True, last


def _rowid_behind(sql: apsw.Connection, table: str, rowid: str, last: int) -> int | None:
    """A rowid that can be read behind the damage after `last`, found in steps of doubled size."""
    start, step = max(last, 0), 1
    while start + step < _MAX_ROWID:
        with contextlib.suppress(*UNREADABLE):
            row = sql.execute(
                f"SELECT {rowid} FROM {table} WHERE {rowid} > ? ORDER BY {rowid} LIMIT 1",
                (start + step,),
            ).fetchone()
            if row is None or row[0] > start + step:
                return int(row[0]) if row else None
        step *= 2
    return None
