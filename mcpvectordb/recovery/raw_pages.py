"""Reading the tables of a damaged file, whatever else in it is torn.

A private copy of the file gets a new first page that names a single table, so that neither a
damaged header nor a trigger, a view or an extension stands between us and the rows.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from mcpvectordb.storage.file import MEMORY, PAGE_SIZE, uri
from mcpvectordb.storage.schema import VERSION, migrate

Row = tuple[object, ...]

_UNREADABLE = (apsw.CorruptError, apsw.IOError, apsw.NotADBError, apsw.FormatError)
_HEADER = 100  # bytes of the first page that describe the file
_HIGHEST = 2**63 - 1
# what the first page is the root of
_CONTENTS = "CREATE TABLE contents (type, name, tbl_name, rootpage, sql)"


@dataclass(frozen=True, slots=True)
class Table:
    """An ordinary table of a format: the columns that lie in the file, those of them that hold text
    or can be written.
    """

    name: str
    statement: str
    stored: tuple[str, ...]
    texts: frozenset[str]
    written: tuple[str, ...]
    key: tuple[str, ...]
    rowid: bool

    @property
    def plain(self) -> str:
        """A definition under which its rows can be read, without the constraints that would need an
        index.
        """
        if not self.rowid:
            return (
                f"CREATE TABLE {self.name} ({_quoted(self.stored)}, PRIMARY KEY "
                f"({_quoted(self.key)})) WITHOUT ROWID"
            )
        return f"CREATE TABLE {self.name} ({', '.join(map(self._plain_column, self.stored))})"

    @property
    def columns(self) -> str:
        """What to select: text as bytes, since what is damaged need not be text any more, or text
        although it was none.
        """
        return ", ".join(
            f"CASE typeof({each}) WHEN 'text' THEN CAST({each} AS BLOB) ELSE {each} END"
            for each in map('"{}"'.format, self.stored)
        )

    def decoded(self, row: Row) -> Row:
        """The values of the columns that can be written."""
        values = dict(zip(self.stored, row, strict=True))
        return tuple(
            value.decode(errors="replace")
            if name in self.texts and isinstance(value, bytes)
            else value
            for name, value in values.items()
            if name in self.written
        )

    def _plain_column(self, name: str) -> str:
        return f'"{name}" INTEGER PRIMARY KEY' if self.key == (name,) else f'"{name}"'


class Wreck:
    """A copy of a damaged file, made at `copy`."""

    def __init__(self, damaged: Path, copy: Path) -> None:
        self._copy = copy
        for suffix in ("", "-wal"):
            if Path(f"{damaged}{suffix}").exists():
                shutil.copyfile(f"{damaged}{suffix}", f"{copy}{suffix}")
        self._write(0, _head(self._read(0)))
        self._fold_log()
        os.truncate(copy, -(-copy.stat().st_size // PAGE_SIZE) * PAGE_SIZE)
        self.version = _version(self._read(0)) or VERSION
        self.tables = tables(self.version)
        self.torn: set[str] = set()  # the tables of which something could not be read
        self._pages = copy.stat().st_size // PAGE_SIZE
        self._roots = self._found()

    def __len__(self) -> int:
        return len(self._roots)

    def rows(self, table: Table) -> Iterator[Row]:
        """Every row of a table that can still be reached, as it would be written again; some may
        come twice.
        """
        if table.name not in self._roots:
            self.torn.add(table.name)
            return
        with self._opened(table.plain, self._roots[table.name]) as sql:
            found = (
                self._around_damage(sql, table) if table.rowid else self._from_both_ends(sql, table)
            )
            yield from map(table.decoded, found)

    def _around_damage(self, sql: apsw.Connection, table: Table) -> Generator[Row, None, None]:
        """Up to a damaged page, then from a row behind it back to the damage, then on from that
        row.
        """
        select, start = f"SELECT {table.columns}, rowid FROM {table.name} WHERE rowid", -_HIGHEST
        while True:
            whole, last = yield from _until_damage(sql, f"{select} > ? ORDER BY rowid", start)
            if whole:
                return
            self.torn.add(table.name)
            behind = _behind(sql, table.name, last)
            if behind is None:
                return
            yield from _until_damage(
                sql, f"{select} > ? AND rowid < ? ORDER BY rowid DESC", last, behind
            )
            start = behind - 1

    def _from_both_ends(self, sql: apsw.Connection, table: Table) -> Generator[Row, None, None]:
        for direction in ("ASC", "DESC"):
            order = ", ".join(f'"{each}" {direction}' for each in table.key)
            whole, _ = yield from _until_damage(
                sql, f"SELECT {table.columns}, 0 FROM {table.name} ORDER BY {order}"
            )
            if whole:
                return
            self.torn.add(table.name)

    def _found(self) -> dict[str, int]:
        """Where the tables begin: by the table of contents, and where that is torn by any page that
        looks like a part of it.
        """
        moved = (
            self._pages + 1
        )  # the root of the contents is the first page, which is needed for other things
        self._write(moved - 1, _without_header(self._read(0)))
        parts = [page + 1 for page in range(1, self._pages) if b"CREATE TABLE " in self._read(page)]
        names = {each.statement: each.name for each in self.tables} | {
            each.name: each.name for each in self.tables
        }
        roots: dict[str, int] = {}
        for root in (moved, *parts):
            with self._opened(_CONTENTS, root) as sql:
                for name, page, statement in _until_damage(
                    sql,
                    "SELECT CAST(name AS BLOB), rootpage, CAST(sql AS BLOB), rowid FROM contents",
                ):
                    known = names.get(_text(statement)) or names.get(_text(name))
                    if known and isinstance(page, int) and 1 < page <= self._pages:
                        roots.setdefault(known, page)
        return roots | self._guessed(roots)

    def _guessed(self, found: dict[str, int]) -> dict[str, int]:
        """Where tables begin that the contents do not tell of: new files and compacted ones have
        them in a fixed order.
        """
        if len(found) == len(self.tables):
            return {}
        chunks = next(each for each in self.tables if each.name == "document_chunks")
        for layout in _layouts(self.version):
            if all(layout[name] == page for name, page in found.items()):
                self._roots = layout
                if _is_chunk(next(self.rows(chunks), ())):
                    return {name: page for name, page in layout.items() if page <= self._pages}
        return {}

    def _fold_log(self) -> None:
        with (
            contextlib.suppress(*_UNREADABLE),
            contextlib.closing(apsw.Connection(str(self._copy))) as sql,
        ):
            sql.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
            sql.execute(
                "PRAGMA writable_schema = ON"
            )  # its schema may be torn, which is no matter here
            sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    @contextlib.contextmanager
    def _opened(self, definition: str, root: int) -> Iterator[apsw.Connection]:
        self._write(0, _first_page(definition, root, self._copy.stat().st_size // PAGE_SIZE))
        connection = apsw.Connection(
            f"{uri(self._copy)}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
        try:
            connection.execute("PRAGMA cell_size_check = ON").fetchall()
            yield connection
        finally:
            connection.close()

    def _read(self, page: int) -> bytes:
        with self._copy.open("rb") as file:
            file.seek(page * PAGE_SIZE)
            return file.read(PAGE_SIZE).ljust(PAGE_SIZE, b"\0")

    def _write(self, page: int, content: bytes) -> None:
        with self._copy.open("rb+") as file:
            file.seek(page * PAGE_SIZE)
            file.write(content)


@functools.cache
def tables(version: int) -> tuple[Table, ...]:
    """The ordinary tables of a format."""
    scratch = apsw.Connection(MEMORY)
    for step in range(version):
        migrate(scratch, step)
    found = scratch.execute(
        "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table' "
        "AND name NOT LIKE 'sqlite%' ORDER BY name"
    ).fetchall()
    result = tuple(_table(scratch, str(name), bool(keyed)) for name, keyed in found)
    scratch.close()
    return result


def _table(scratch: apsw.Connection, name: str, keyed: bool) -> Table:
    columns: list[Any] = scratch.execute(
        "SELECT name, type, hidden, pk FROM pragma_table_xinfo(?) WHERE hidden <> 2 ORDER BY cid",
        (name,),
    ).fetchall()
    key = [(place, column) for column, _, _, place in columns if place]
    return Table(
        name=name,
        statement=scratch.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (name,)).get,
        stored=tuple(column for column, *_ in columns),
        texts=frozenset(column for column, type, *_ in columns if type == "TEXT"),
        written=tuple(column for column, _, hidden, _ in columns if not hidden),
        key=tuple(column for _, column in sorted(key)),
        rowid=not keyed,
    )


@functools.cache
def _layouts(version: int) -> tuple[dict[str, int], dict[str, int]]:
    """Where the tables begin in a new file and in one that VACUUM wrote."""
    scratch = apsw.Connection(MEMORY)
    scratch.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    for step in range(version):
        migrate(scratch, step)
    names = {each.name for each in tables(version)}
    new, compacted = (
        {name: root for name, root in scratch.execute(select) if name in names}
        for select in (
            "SELECT name, rootpage FROM sqlite_schema",
            "VACUUM; SELECT name, rootpage FROM sqlite_schema",
        )
    )
    scratch.close()
    return new, compacted


def _is_chunk(row: Row) -> bool:
    return (
        len(row) > 3
        and isinstance(row[3], str)
        and isinstance(row[-1], bytes)
        and len(row[-1]) == 16
    )


def _until_damage(
    sql: apsw.Connection, select: str, *bindings: int
) -> Generator[Row, None, tuple[bool, int]]:
    """The rows of a select without their rowid, which comes last; whether that was all, and the
    last rowid before damage.
    """
    last = bindings[0] if bindings else 0
    try:
        for *row, rowid in sql.execute(select, bindings):
            if len(bindings) == 1 and rowid <= last:
                return False, last  # in a damaged tree the way can lead back
            last = rowid
            yield tuple(row)
    except (*_UNREADABLE, apsw.SQLError):
        return False, last
    return True, last


def _behind(sql: apsw.Connection, table: str, last: int) -> int | None:
    """A rowid behind damage that can be read, as near to it as steps of growing size find one."""
    start, step = max(last, 0), 1
    while start + step < _HIGHEST:
        with contextlib.suppress(*_UNREADABLE):
            row = sql.execute(
                f"SELECT rowid FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT 1", (start + step,)
            ).fetchone()
            if row is None or row[0] > start + step:
                return int(row[0]) if row else None
        step *= 2
    return None


def _first_page(definition: str, root: int, pages: int) -> bytes:
    """The first page of a file that has so many pages and in it one table, which begins at page
    `root`.
    """
    scratch = apsw.Connection(MEMORY)
    scratch.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    scratch.execute(definition)
    scratch.execute("PRAGMA writable_schema = ON")
    scratch.execute("UPDATE sqlite_schema SET rootpage = ?", (root,))
    page = bytearray(scratch.serialize("main")[:PAGE_SIZE])
    scratch.close()
    page[28:32], page[92:96] = pages.to_bytes(4, "big"), page[24:28]
    return bytes(page)


def _head(page: bytes) -> bytes:
    """The first page with a sound header: everything in it is known, except for the format."""
    header = bytearray(_first_page(_CONTENTS, 2, 0)[:_HEADER])
    header[18:20] = b"\2\2"  # a log beside the file is to be read
    header[60:64] = _version(page).to_bytes(4, "big")
    return bytes(header) + page[_HEADER:]


def _version(page: bytes) -> int:
    version = int.from_bytes(page[60:64], "big")
    return version if version <= VERSION else 0


def _without_header(page: bytes) -> bytes:
    """The root of the contents as it would be on any other page: the list of its cells begins at
    the very start.
    """
    cells = max(_HEADER, int.from_bytes(page[_HEADER + 5 : _HEADER + 7], "big"))
    return page[_HEADER:cells] + bytes(_HEADER) + page[cells:]


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{each}"' for each in names)
