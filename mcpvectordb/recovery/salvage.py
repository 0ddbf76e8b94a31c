"""Saving what is left of a damaged file: its ordinary tables, row by row, into a new file whose
indexes are made again.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import apsw

from mcpvectordb.database import Database
from mcpvectordb.embedding.embedder import Embedder
from mcpvectordb.errors import InvalidInput, NotOurFile, Unreadable, Unwritable
from mcpvectordb.recovery import repair
from mcpvectordb.recovery.raw_pages import Row, Table, Wreck
from mcpvectordb.storage.file import PAGE_SIZE
from mcpvectordb.storage.schema import migrate

# Made again from other tables, or not missed.
_DERIVED = {"document_pending", "context_pending", "cache", "changes", "library_skipped"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Salvaged:
    """What is in `path` now, by table; `incomplete` texts have lost or changed a part; `lost` says
    what else is gone.
    """

    path: str
    rows: Mapping[str, int]
    incomplete: tuple[str, ...]
    lost: tuple[str, ...]


def salvage(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    embedder: Embedder | None = None,
) -> Salvaged:
    """Write everything that can still be read of a damaged file into the new file `target`; the
    damaged one stays as it is.

    Torn texts are kept as far as they go: ingest their sources again to make them whole. What has
    lost its embedding waits for a new one (`Database.embed_pending`). Nothing that was deleted
    comes back.
    """
    damaged, goal = Path(path).expanduser(), Path(target).expanduser().absolute()
    if not damaged.is_file():
        raise Unreadable(f"{damaged} is not there, or is no file")
    if goal.exists():
        raise InvalidInput(f"{goal} exists already; name a new file, or remove that one first")
    if not goal.parent.is_dir():
        raise Unwritable(f"the folder {goal.parent} does not exist: make it first")
    try:
        with tempfile.TemporaryDirectory(prefix=f".{goal.name}.", dir=goal.parent) as folder:
            return _salvaged(damaged, Path(folder), goal, embedder)
    except apsw.Error as error:
        raise Unwritable(f"{goal} cannot be written: {error}") from error


def _salvaged(damaged: Path, folder: Path, goal: Path, embedder: Embedder | None) -> Salvaged:
    wreck, new = Wreck(damaged, folder / "wreck.db"), folder / "new.db"
    if not len(wreck):
        raise NotOurFile(
            f"{damaged} has none of the tables of a mcpvectordb file, so there is nothing to save"
        )
    lost = _copied(wreck, new)
    with Database(new, embedder=embedder) as db, db._file.writing() as sql:
        mended = repair.mend(sql, db._indexes)
    with Database(
        new, embedder=embedder
    ) as db:  # opened again, it has a vec0 table for each model that is left
        db.rebuild()
        db.copy_to(goal)
    return Salvaged(
        path=str(goal),
        rows=mended.rows,
        incomplete=tuple(mended.incomplete),
        lost=(*lost, *mended.lost),
    )


def _copied(wreck: Wreck, new: Path) -> list[str]:
    """Fill a new file of the same format with every row that can be read; the tables that lack
    some.
    """
    sql = apsw.Connection(str(new))
    sql.execute(f"PRAGMA page_size = {PAGE_SIZE}; PRAGMA synchronous = OFF; BEGIN")
    for step in range(wreck.version):
        migrate(sql, step)
    lost = []
    for table in wreck.tables:
        if table.name not in _DERIVED:
            refused = _filled(sql, table, wreck.rows(table))
            if refused or table.name in wreck.torn:
                lost.append(f"some rows of the table {table.name}")
    sql.execute("COMMIT")
    sql.close()
    return lost


def _filled(sql: apsw.Connection, table: Table, rows: Iterator[Row]) -> int:
    """Write a table's rows; how many were no rows of it any more."""
    names = ", ".join(f'"{each}"' for each in table.written)
    insert = (
        f"INSERT OR IGNORE INTO {table.name} ({names}) VALUES "
        f"({', '.join('?' * len(table.written))})"
    )
    refused = 0
    for row in rows:
        try:
            sql.execute(insert, row)
        except (apsw.ConstraintError, apsw.MismatchError):
            refused += 1
    return refused
