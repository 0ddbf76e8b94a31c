"""Salvages a damaged file: the rows of its ordinary tables go into a new file with new indexes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import apsw

from mcpvectordb.database import Database
from mcpvectordb.embedding.embedder import Embedder
from mcpvectordb.errors import InvalidInput, NotOurFile, Unreadable, Unwritable
from mcpvectordb.records import Record
from mcpvectordb.recovery.raw_pages import DamagedFile
from mcpvectordb.recovery.repair import repair
from mcpvectordb.storage.file import PAGE_SIZE
from mcpvectordb.storage.schema import migrate

# Tables that are made again from others, or whose rows nobody needs.
_DERIVED = {"document_pending", "context_pending", "cache", "changes", "library_skipped"}
_COUNTED = "documents document_chunks document_embeddings vectors contexts libraries".split()


class Salvaged(Record):
    """What was salvaged.

    path        the new file
    rows        how many rows it has, by table
    incomplete  the sources of texts of which a part is missing or changed
    lost        what else is missing, one phrase for each
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
    """Write everything that can still be read of a damaged file into the new file `target`.

    The damaged file is not changed. Texts with missing parts are kept: ingest their sources again
    to replace them. Chunks that have lost their embedding get a new one by
    `Database.embed_pending`. Deleted rows are not restored.
    """
    source, new = Path(path).expanduser(), Path(target).expanduser().absolute()
    if not source.is_file():
        raise Unreadable(f"{source} does not exist, or is not a file")
    if new.exists():
        raise InvalidInput(f"{new} exists already; name a new file, or remove that one first")
    if not new.parent.is_dir():
        raise Unwritable(f"the folder {new.parent} does not exist: make it first")
    try:
        with tempfile.TemporaryDirectory(prefix=f".{new.name}.", dir=new.parent) as folder:
            return _salvage(source, new, Path(folder), embedder)
    except apsw.Error as error:
        raise Unwritable(f"{new} cannot be written: {error}") from error


def _salvage(source: Path, target: Path, folder: Path, embedder: Embedder | None) -> Salvaged:
    """Salvage `source` by way of a temporary folder."""
    damaged, new = DamagedFile(source, folder / "damaged.db"), folder / "new.db"
    if not damaged.roots:
        raise NotOurFile(
            f"{source} has none of the tables of a mcpvectordb file, so there is nothing to save"
        )
    lost = _copy_rows(damaged, new)
    with Database(new, embedder=embedder) as db, db._file.writing() as sql:
        incomplete, removed = repair(sql, db._indexes)
        rows = {table: int(sql.execute(f"SELECT count(*) FROM {table}").get) for table in _COUNTED}
    # Opening the file makes a vec0 table for each model that the repair has left.
    with Database(new, embedder=embedder) as db:
        db.rebuild(clock=True)  # a flipped bit may have made a time one of another century
        db.copy_to(target)
    return Salvaged(
        path=str(target), rows=rows, incomplete=tuple(incomplete), lost=(*lost, *removed)
    )


def _copy_rows(damaged: DamagedFile, new: Path) -> list[str]:
    """Write every row that can be read into a new file of the same format; what was lost."""
    sql = apsw.Connection(str(new))
    sql.execute(f"PRAGMA page_size = {PAGE_SIZE}; PRAGMA synchronous = OFF; BEGIN")
    for step in range(damaged.version):
        migrate(sql, step)
    lost = ["what its log has, which was written for another file"] * damaged.has_foreign_log
    for table in damaged.tables:
        if table.name in _DERIVED:
            continue
        names = ", ".join(f'"{each}"' for each in table.written)
        values = ", ".join("?" * len(table.written))
        insert = f"INSERT OR IGNORE INTO {table.name} ({names}) VALUES ({values})"
        refused = False
        for row in damaged.rows(table):
            try:
                sql.execute(insert, row)
            except (apsw.ConstraintError, apsw.MismatchError):
                refused = True
        if refused or table.name in damaged.unreadable:
            lost.append(f"some rows of the table {table.name}")
    sql.execute("COMMIT")
    sql.close()
    return lost
