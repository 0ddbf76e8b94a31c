"""Reads the tables of a damaged SQLite file, page by page, without its header and its schema.

Page 1 of an SQLite file holds the header (100 bytes) and the root of the schema table. If either is
damaged, SQLite does not open the file; if the schema names a trigger, a view or a virtual table,
reading may run it. A table itself is only a B-tree that begins at its root page. So page 1 is
rebuilt, in a private copy of the file and once for each table: an empty database in memory is made
with a bare definition of the table, its schema is changed to name the root page in the damaged
file, and its first page is written over the first page of the copy.

The root pages are read in the same way from the old schema table, whose root is first moved from
page 1 to a new page at the end of the copy. Where the schema table is damaged too, see
`DamagedFile._find_roots`. The file format: https://sqlite.org/fileformat2.html
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import apsw

from mcpvectordb.storage.file import MEMORY, PAGE_SIZE, is_marked, uri
from mcpvectordb.storage.log import Mark, is_foreign, log_of, raw_file
from mcpvectordb.storage.schema import VERSION, migrate
from mcpvectordb.storage.table_scan import (
    UNREADABLE,
    Row,
    rows_by_key,
    rows_by_rowid,
    until_damage,
)

_HEADER_SIZE = 100
# The columns of sqlite_schema, under a name that SQLite does not reserve.
_SCHEMA_TABLE = "CREATE TABLE old_schema (type, name, tbl_name, rootpage, sql)"


class RawTable:
    """An ordinary table of a file format, as the schema of `scratch` has it.

    statement  the CREATE TABLE statement that the schema has for it
    written    the columns that can be written, which are all but the generated ones
    key        the columns of the primary key
    rowid      whether its rows have a rowid
    """

    def __init__(self, scratch: apsw.Connection, name: str, rowid: bool) -> None:
        self.name, self.rowid = name, rowid
        schema = scratch.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (name,))
        self.statement: str = schema.get
        columns: list[Any] = scratch.execute(
            "SELECT name, type, hidden, pk FROM pragma_table_xinfo(?) WHERE hidden <> 2 "
            "ORDER BY cid",
            (name,),
        ).fetchall()
        self._stored = [column for column, *_ in columns]  # those that are in the file
        self._texts = {column for column, type, *_ in columns if type == "TEXT"}
        self.written = [column for column, _, hidden, _ in columns if not hidden]
        keys = sorted((place, column) for column, _, _, place in columns if place)
        self.key = tuple(column for _, column in keys)

    @property
    def definition(self) -> str:
        """A CREATE TABLE statement that is enough to read the rows: no constraints, no indexes."""
        if self.rowid:
            columns = (
                f'"{name}" INTEGER PRIMARY KEY' if self.key == (name,) else f'"{name}"'
                for name in self._stored
            )
            return f"CREATE TABLE {self.name} ({', '.join(columns)})"
        stored, key = (", ".join(map('"{}"'.format, each)) for each in (self._stored, self.key))
        return f"CREATE TABLE {self.name} ({stored}, PRIMARY KEY ({key})) WITHOUT ROWID"

    @property
    def columns(self) -> str:
        """The columns to select; text is read as bytes, since damaged text need not be UTF-8."""
        return ", ".join(
            f"CASE typeof({each}) WHEN 'text' THEN CAST({each} AS BLOB) ELSE {each} END"
            for each in map('"{}"'.format, self._stored)
        )

    def decode(self, row: Row) -> Row:
        """The values of the columns that can be written, from a row of `columns`."""
        return tuple(
            _text(value) if name in self._texts and isinstance(value, bytes) else value
            for name, value in zip(self._stored, row, strict=True)
            if name in self.written
        )


class DamagedFile:
    """The tables of a damaged file, which is copied to `copy` and not changed itself.

    version     the format of the file, or the newest one if the header does not name it
    has_foreign_log  whether the log beside it was written for another file, so it is not applied
    tables      the ordinary tables of that format; `roots` the root pages of those that were found
    unreadable  the names of tables of which `rows` could not read everything
    """

    def __init__(self, damaged: Path, copy: Path) -> None:
        self._copy = copy
        shutil.copyfile(damaged, copy)
        with raw_file(copy) as file:
            self.has_foreign_log = is_marked(file.xRead(PAGE_SIZE, 0)) and is_foreign(
                file, log_of(damaged)
            )
        if log_of(damaged).exists() and not self.has_foreign_log:
            shutil.copyfile(log_of(damaged), log_of(copy))
        self._write(0, _with_sound_header(self._read(0)))
        self._apply_log()
        os.truncate(copy, -(-copy.stat().st_size // PAGE_SIZE) * PAGE_SIZE)
        self.version = _version(self._read(0)) or VERSION
        self.tables = tables(self.version)
        self.unreadable: set[str] = set()
        self._pages = copy.stat().st_size // PAGE_SIZE
        self.roots = self._find_roots()

    def rows(self, table: RawTable) -> Iterator[Row]:
        """Every row of a table that can be read, with the columns to write; some may come twice."""
        root = self.roots.get(table.name)
        complete = root is not None and (yield from self._rows_at(root, table))
        if not complete:
            self.unreadable.add(table.name)

    def _rows_at(self, root: int, table: RawTable) -> Generator[Row, None, bool]:
        """The rows of a table that begins at page `root`; returns whether these are all."""
        with self._opened(table.definition, root) as sql:
            if table.rowid:
                return (yield from rows_by_rowid(sql, table.name, table.columns, table.decode))
            return (yield from rows_by_key(sql, table.name, table.columns, table.key, table.decode))

    def _find_roots(self) -> dict[str, int]:
        """The root pages of the tables, by name.

        They are looked up in the old schema table. Where that is damaged, each page with a CREATE
        TABLE statement on it is read as if it were the root of the schema table. Tables that are
        still missing are assumed to be where a new file or a compacted one has them.
        """
        schema = self._pages + 1
        self._write(schema - 1, _without_header(self._read(0)))
        parts = [page + 1 for page in range(1, self._pages) if b"CREATE TABLE " in self._read(page)]
        names = {each.statement: each.name for each in self.tables} | {
            each.name: each.name for each in self.tables
        }
        roots: dict[str, int] = {}
        for root in (schema, *parts):
            with self._opened(_SCHEMA_TABLE, root) as sql:
                for name, page, statement in until_damage(
                    sql,
                    "SELECT CAST(name AS BLOB), rootpage, CAST(sql AS BLOB), rowid FROM old_schema",
                ):
                    known = names.get(_text(statement)) or names.get(_text(name))
                    if known and isinstance(page, int) and 1 < page <= self._pages:
                        roots.setdefault(known, page)
        return roots if len(roots) == len(self.tables) else {**self._guess_roots(roots), **roots}

    def _guess_roots(self, found: Mapping[str, int]) -> dict[str, int]:
        """The root pages in a file whose tables are where a new or a compacted file has them.

        A layout is accepted if it agrees with the roots that were found, and if the page where it
        has the table of chunks begins with a row that looks like a chunk.
        """
        chunks = next(each for each in self.tables if each.name == "document_chunks")
        for layout in _layouts(self.version):
            if all(layout[name] == page for name, page in found.items()):
                first = next(self._rows_at(layout[chunks.name], chunks), ())
                text, hash = (first[3], first[11]) if len(first) > 11 else (None, None)
                if isinstance(text, str) and isinstance(hash, bytes) and len(hash) == 16:
                    return {name: page for name, page in layout.items() if page <= self._pages}
        return {}

    def _apply_log(self) -> None:
        """Write what is in the log (-wal) of the copy into the copy itself."""
        with (
            contextlib.suppress(*UNREADABLE),
            contextlib.closing(apsw.Connection(str(self._copy))) as sql,
        ):
            sql.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
            # With this, SQLite accepts a damaged schema.
            sql.execute("PRAGMA writable_schema = ON")
            sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    @contextlib.contextmanager
    def _opened(self, definition: str, root: int) -> Iterator[apsw.Connection]:
        """A connection to the copy, in which the table defined here is the only one."""
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
def tables(version: int) -> tuple[RawTable, ...]:
    """The ordinary tables of a file format."""
    scratch = apsw.Connection(MEMORY)
    for step in range(version):
        migrate(scratch, step)
    found = scratch.execute(
        "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table' "
        "AND name NOT LIKE 'sqlite%' ORDER BY name"
    ).fetchall()
    result = tuple(RawTable(scratch, str(name), not without_rowid) for name, without_rowid in found)
    scratch.close()
    return result


@functools.cache
def _layouts(version: int) -> tuple[dict[str, int], dict[str, int]]:
    """The root pages of the tables in a new file, and in one that VACUUM wrote."""
    scratch = apsw.Connection(MEMORY)
    scratch.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    for step in range(version):
        migrate(scratch, step)
    names = {each.name for each in tables(version)}
    roots = "SELECT name, rootpage FROM sqlite_schema"
    new, compacted = (
        {name: root for name, root in scratch.execute(select) if name in names}
        for select in (roots, f"VACUUM; {roots}")
    )
    scratch.close()
    return new, compacted


def _first_page(definition: str, root: int, pages: int) -> bytes:
    """Page 1 of a file with so many pages and a single table, which begins at page `root`."""
    scratch = apsw.Connection(MEMORY)
    scratch.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    scratch.execute(definition)
    scratch.execute("PRAGMA writable_schema = ON")
    scratch.execute("UPDATE sqlite_schema SET rootpage = ?", (root,))
    page = bytearray(scratch.serialize("main")[:PAGE_SIZE])
    scratch.close()
    # The number of pages, which counts only if "version-valid-for" equals the change counter.
    page[28:32], page[92:96] = pages.to_bytes(4, "big"), page[24:28]
    return bytes(page)


def _with_sound_header(page: bytes) -> bytes:
    """Page 1 with a header made anew; of the old one only the version of our format is kept."""
    header = bytearray(_first_page(_SCHEMA_TABLE, 2, 0)[:_HEADER_SIZE])
    header[18:20] = b"\2\2"  # WAL mode, so that SQLite reads the log
    header[60:64] = _version(page).to_bytes(4, "big")
    return bytes(header) + page[_HEADER_SIZE:]


def _version(page: bytes) -> int:
    """The version of our format in a header, or 0 if it is impossible."""
    version = Mark.in_header(page).version
    return version if version <= VERSION else 0


def _without_header(page: bytes) -> bytes:
    """Page 1 as any other page: the B-tree's header and cell pointers come first.

    Cells stay where they are, because pointers to them count from the start of the page; the 100
    bytes of the file header become unused space in front of them.
    """
    cells = max(_HEADER_SIZE, int.from_bytes(page[_HEADER_SIZE + 5 : _HEADER_SIZE + 7], "big"))
    return page[_HEADER_SIZE:cells] + bytes(_HEADER_SIZE) + page[cells:]


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""
