"""The source that is imported: a file or a folder, or a SQLite file of another program.

What may change while it is read is copied first: SQLite databases, and the files that belong to
one. The process that reads a source is given the folder with these copies. So the program that the
file belongs to is not kept waiting while its rows are imported, and nothing of the file, its log or
its folder is changed. How a copy is made depends on the journal of the file:

- A program has the file open in WAL mode (there are a -wal and a -shm): SQLite's backup, in one
  read transaction.
- A rollback journal mode: the same, under a shared lock.
- Otherwise a reader would have to make a -shm, or to roll a journal back that a killed program
  left: file, log and journal are copied, and SQLite completes the copy. So it goes with files that
  are damaged beyond a backup.

A file may claim any number of pages: one with many times more than there is on the disk is refused.

What a hostile file could do while it is read: run code by triggers, views or virtual tables (none
of them is used, no extension is loaded, the schema is not trusted), return values of any size
(limited) or never end (a statement that returns no row for a minute is stopped).
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import apsw

from mcpvectordb.errors import Damaged, MCPVectorDBError, Unreadable, UnsupportedFormat
from mcpvectordb.storage.file import uri
from mcpvectordb.storage.table_scan import UNREADABLE, Row, rows_by_key, rows_by_rowid, until_damage
from mcpvectordb.transfer.values import HEAD_BYTES

MAGIC = b"SQLite format 3\0"
MAX_VALUE_BYTES = 100_000_000
STATEMENT_SECONDS = 60.0  # without a row
_STEPS = 100_000  # of SQLite's virtual machine between two looks at the clock
SMALL_FILE, MOST_RATIO = 100_000_000, 100
"""A file has at most 100 times the bytes that it has on the disk, beyond the first 100 MB: programs
reserve space, and file systems compress."""
_COPIES = 5  # attempts to copy a file that changes meanwhile
_CODECS = {"UTF-8": "utf-8", "UTF-16le": "utf-16-le", "UTF-16be": "utf-16-be"}


class ImportSource:
    """A file or folder to import; `copies` is the folder with what was copied of it.

    `beside` is the folder with copies of the files that belong to it (`ImportKind.beside`), where
    each has its relative path without "..".
    """

    def __init__(self, path: Path, copies: Path, name: str = "source") -> None:
        self.path, self.copies = path, copies
        self._snapshot, self.beside = copies / f"{name}.db", copies / f"{name}-files"
        if not path.exists():
            raise Unreadable(f"{path} does not exist (working folder: {Path.cwd()})")
        self.is_folder = path.is_dir()
        if not self.is_folder and not path.is_file():
            raise Unreadable(f"{path} is a device or a pipe; name a file or a folder")
        if not os.access(path, os.R_OK):
            raise Unreadable(f"{path} may not be read: permission denied")

    def copy(self, beside: Iterable[str]) -> None:
        """Copy it, if it is a database, and the files beside it that match these patterns.

        Files of one folder are copied as of one moment.
        """
        if not self.head.startswith(MAGIC):
            return
        folder, stem = self.path.parent, glob.escape(self.path.stem)
        pairs: defaultdict[Path, list[tuple[Path, Path]]] = defaultdict(list)
        try:
            if not self._snapshot.exists():
                snapshot(self.path, self._snapshot)
            for pattern in beside:
                for path in folder.glob(pattern.format(stem=stem)):
                    names = [name for name in path.relative_to(folder).parts if name != ".."]
                    pairs[path.parent].append((path, self.beside.joinpath(*names)))
            for some in pairs.values():
                some[0][1].parent.mkdir(parents=True, exist_ok=True)
                copy_stable(some, self.path)
        except OSError as error:
            if isinstance(error, MCPVectorDBError):
                raise
            raise Unreadable(f"{self.path} cannot be copied: {error}") from None

    @cached_property
    def head(self) -> bytes:
        """The first bytes of a file; b"" for a folder."""
        if self.is_folder:
            return b""
        with self.path.open("rb") as file:
            return file.read(HEAD_BYTES)

    @cached_property
    def database(self) -> ForeignDatabase | None:
        """The snapshot of the file if it is a SQLite database; None for other sources."""
        return ForeignDatabase(self.path, self._snapshot) if self._snapshot.exists() else None

    def sqlite(self) -> ForeignDatabase:
        """The snapshot of a SQLite database; UnsupportedFormat if it is none."""
        if self.database is None:
            raise UnsupportedFormat(f"{self.path} is not a SQLite database")
        return self.database

    def has(self, tables: Mapping[str, str]) -> bool:
        """Whether it is a SQLite database with these tables, each with these columns."""
        return self.database is not None and all(
            self.database.has(table, *columns.split()) for table, columns in tables.items()
        )

    def inside(self, file: str) -> ImportSource | None:
        """The file of this name in a folder, None if it has none; a file itself as it is."""
        if not self.is_folder or not file:
            return self
        inner = self.path / file
        return ImportSource(inner, self.copies, file) if inner.is_file() else None


class ForeignRow(dict[str, Any]):
    """A row by the names of its columns; a column that the table does not have is None."""

    def __missing__(self, column: str) -> None:
        return None


class ForeignDatabase:
    """A SQLite file of another program, of which `copy` is a snapshot.

    columns    the columns of each ordinary table
    virtual    the CREATE statement of each virtual table
    application_id  the number by which a program marks its files; 0 if it does not
    damaged    the tables of which something could not be read
    unread     one sentence for each of them, and for other damage
    """

    def __init__(
        self, path: Path, copy: Path, *, statement_seconds: float = STATEMENT_SECONDS
    ) -> None:
        self._sql = _hardened(f"{uri(copy)}?immutable=1", apsw.SQLITE_OPEN_READONLY)
        self._last_row = time.monotonic()
        self._sql.set_progress_handler(
            lambda: time.monotonic() - self._last_row > statement_seconds, _STEPS
        )
        self.unread: list[str] = []
        self.damaged: set[str] = set()
        try:
            try:
                self._sql.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            except (apsw.CorruptError, apsw.SQLError):  # SQLite is to skip what is wrong in it
                self._sql.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)  # it is read-only anyway
                self._sql.execute("PRAGMA writable_schema = ON").fetchall()
                self.unread.append("a part of the schema is damaged")
            self._codec = _CODECS[self._sql.execute("PRAGMA encoding").get]
            self.application_id = int(self._sql.execute("PRAGMA application_id").get)
            self.columns, self.virtual = self._schema()
            if self.unread and not self.columns:
                raise apsw.CorruptError("no table of it is readable")
        except apsw.NoMemError:
            raise MemoryError from None
        except apsw.Error as error:
            self._sql.close()
            raise Damaged(
                f"{path} cannot be read ({error}): it is damaged or encrypted; nothing was "
                "imported. Go back to a copy of it, or recover it with its own program"
            ) from error

    def has(self, table: str, *columns: str) -> bool:
        """Whether there is an ordinary table with these columns."""
        return table in self.columns and set(columns) <= set(self.columns[table])

    def key(self, table: str) -> tuple[str, ...]:
        """The columns of a table's primary key; () if it has none."""
        return self._columns(table, "pk ORDER BY pk")

    def count(self, table: str) -> int:
        """How many rows a table has; 0 if that cannot be read."""
        try:
            self._last_row = time.monotonic()
            return int(self._sql.execute(f"SELECT count(*) FROM {_name(table)}").get)
        except apsw.Error:
            return 0

    def rows(self, table: str) -> Iterator[ForeignRow]:
        """Every row that can be read, in the order of the rows.

        A table that does not exist has no rows. Damage is noted in `unread`.
        """
        if table not in self.columns:
            return
        names = self._all_columns(table)
        scan, complete = self._scan(table, _select(names)), False
        try:
            while True:
                self._last_row = time.monotonic()  # the time for the next row begins
                yield ForeignRow(zip(names, next(scan), strict=True))
        except StopIteration as end:
            complete = end.value
        except apsw.InterruptError:
            pass
        if not complete:
            self._note(table)

    def lookup(self, table: str, key: str, *values: int | str) -> Iterator[ForeignRow]:
        """The rows whose column `key` is one of the values, through an index if there is one."""
        if table not in self.columns:
            return
        names = self._all_columns(table)
        select = f"SELECT {_select(names)} FROM {_name(table)} WHERE {_name(key)} = ?"
        try:
            for value in values:
                self._last_row = time.monotonic()
                for row in self._sql.execute(select, (value,)):
                    yield ForeignRow(zip(names, self._decode(row), strict=True))
        except (*UNREADABLE, apsw.SQLError, apsw.InterruptError):
            self._note(table)

    def _scan(self, table: str, columns: str) -> Generator[Row, None, bool]:
        name, key, rowid = _name(table), self._keys[table], self._rowid(table)
        if key:
            return (yield from rows_by_key(self._sql, name, columns, key, self._decode))
        if rowid:
            return (yield from rows_by_rowid(self._sql, name, columns, self._decode, rowid))
        select = f"SELECT {columns}, 0 FROM {name}"
        return (yield from until_damage(self._sql, select, decode=self._decode))[0]

    def _note(self, table: str) -> None:
        if table not in self.damaged:
            self.damaged.add(table)
            self.unread.append(f"some rows of the table {table} could not be read")

    def _schema(self) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
        """The columns of ordinary tables, and the statements of virtual ones."""
        columns, virtual = {}, {}
        selected = "type = 'table', CAST(name AS BLOB), CAST(coalesce(sql, '') AS BLOB)"
        listed: Any = rows_by_rowid(self._sql, "sqlite_schema", selected)
        for is_table, *texts in listed:
            name, statement = map(self._text, texts)
            if is_table and statement[:15].upper() == "CREATE VIRTUAL ":
                virtual[name] = statement
            elif is_table and (own := self._columns(name, "hidden <> 1 ORDER BY cid")):
                columns[name] = own
        return columns, virtual

    def _columns(self, table: str, condition: str) -> tuple[str, ...]:
        """The names of a table's columns; none if its name is not text, or its definition wrong."""
        rows: Any = self._sql.execute(
            f"SELECT CAST(name AS BLOB) FROM pragma_table_xinfo(?) WHERE {condition}", (table,)
        )
        return tuple(self._text(name) for (name,) in rows)

    def _text(self, value: bytes | None) -> str:
        return (value or b"").decode(self._codec, "replace")

    @cached_property
    def _keys(self) -> Mapping[str, tuple[str, ...]]:
        """The primary key of each table that has no rowid; () for the others."""
        listed: Any = self._sql.execute(
            "SELECT CAST(name AS BLOB) FROM pragma_table_list WHERE schema = 'main' AND wr"
        )
        without = {self._text(name) for (name,) in listed}
        return {table: self.key(table) if table in without else () for table in self.columns}

    def _all_columns(self, table: str) -> Sequence[str]:
        """The columns of a table, and its rowid under that name, unless it has none."""
        has_rowid = not self._keys[table] and self._rowid(table) == "rowid"
        return (*self.columns[table], "rowid") if has_rowid else self.columns[table]

    def _rowid(self, table: str) -> str:
        """The name of the rowid; "" if columns have all of its names."""
        taken = {column.lower() for column in self.columns[table]}
        return next((name for name in ("rowid", "_rowid_", "oid") if name not in taken), "")

    def _decode(self, row: Row) -> Row:
        return tuple(
            self._text(value) if is_text and isinstance(value, bytes) else value
            for value, is_text in zip(row[::2], row[1::2], strict=True)
        )


class Vec0Vectors:
    """The vectors of a vec0 table (sqlite-vec), read from its shadow tables as data.

    sqlite-vec itself may crash on shadow tables that are damaged or crafted, so it is not asked. A
    vec0 table T keeps vectors in chunks of equal size: T_rowids (rowid, id, chunk_id, chunk_offset)
    has the place of each row, and its id if the primary key is text; T_vector_chunks00 (rowid =
    chunk_id, vectors) the float32 values of the first vector column. The layout is that of versions
    0.1.0 to 0.1.9. There are none if the table is not there or of another layout.
    """

    _COLUMN = re.compile(r"\bfloat(?:32)?\s*\[\s*(\d{1,5})\s*\]", re.IGNORECASE)
    _MAX_CHUNK_BYTES = 32_000_000  # sqlite-vec makes chunks of 1,024 vectors

    def __init__(self, database: ForeignDatabase, table: str) -> None:
        self._database = database
        self._places, self._vectors = f"{table}_rowids", f"{table}_vector_chunks00"
        found = self._COLUMN.search(database.virtual.get(table, ""))
        sound = database.has(self._places, "rowid", "chunk_id", "chunk_offset") and database.has(
            self._vectors, "rowid", "vectors"
        )
        self.dimension = int(found[1]) if found and sound else 0
        # Those that stay in memory: neighbours in one table are mostly neighbours in the other.
        self._chunk = lru_cache(maxsize=4)(self._read_chunk)

    def get(self, key: object) -> bytes | None:
        """The float32 values of the vector with this rowid, or with this id if that is text."""
        if not self.dimension or not isinstance(key, int | str):
            return None
        column = "id" if isinstance(key, str) else "rowid"
        for row in self._database.lookup(self._places, column, key):
            chunk, offset = row["chunk_id"], row["chunk_offset"]
            if isinstance(chunk, int) and isinstance(offset, int) and offset >= 0:
                size = 4 * self.dimension
                values = self._chunk(chunk)[offset * size : (offset + 1) * size]
                return values if len(values) == size else None
        return None

    def _read_chunk(self, number: int) -> bytes:
        rows = self._database.lookup(self._vectors, "rowid", number)
        value = next(rows, ForeignRow())["vectors"]
        return value if isinstance(value, bytes) and len(value) <= self._MAX_CHUNK_BYTES else b""


def _name(identifier: str) -> str:
    """An identifier in SQL."""
    return '"' + identifier.replace('"', '""') + '"'


def _select(columns: Sequence[str]) -> str:
    """Columns in SQL, each followed by whether it is text.

    Text is read as bytes, since that of a damaged or foreign file need not be valid.
    """
    return ", ".join(
        f"CASE typeof({each}) WHEN 'text' THEN CAST({each} AS BLOB) ELSE {each} END, "
        f"typeof({each}) = 'text'"
        for each in map(_name, columns)
    )


def _hardened(name: str, mode: int) -> apsw.Connection:
    """A connection in which nothing of the file's schema runs but ordinary tables."""
    sql = apsw.Connection(name, flags=mode | apsw.SQLITE_OPEN_URI)
    for setting, value in (
        (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
        (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
        (apsw.SQLITE_DBCONFIG_DQS_DML, 0),
    ):
        sql.config(setting, value)
    sql.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    sql.set_busy_timeout(10_000)
    sql.execute("PRAGMA cell_size_check = ON").fetchall()
    return sql


def snapshot(path: Path, copy: Path) -> None:
    """Copy a file as of one moment; the copy is complete in itself. Raises Unreadable."""
    with path.open("rb") as file:
        in_wal_mode = file.read(20)[18:] == b"\2\2"
    # Whether a reader can lock the file without making another one beside it.
    if not in_wal_mode or all(_state(_with(path, suffix))[0] for suffix in ("-wal", "-shm")):
        with contextlib.suppress(apsw.Error):
            _back_up(path, copy)
            return
    copy_stable(
        [(_with(path, suffix), _with(copy, suffix)) for suffix in ("", "-wal", "-journal")], path
    )
    if not any(_with(copy, suffix).exists() for suffix in ("-wal", "-journal")):
        return
    # SQLite applies the log, or rolls the journal back, that was copied with the file.
    with (
        contextlib.suppress(apsw.Error),  # what of the file can be read without is read
        contextlib.closing(_hardened(uri(copy), apsw.SQLITE_OPEN_READWRITE)) as sql,
    ):
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        sql.execute("SELECT count(*) FROM sqlite_schema").fetchall()


def _back_up(path: Path, copy: Path) -> None:
    reader = _hardened(f"{uri(path)}?mode=ro", apsw.SQLITE_OPEN_READONLY)
    with contextlib.closing(reader):
        pages, size = reader.execute("SELECT * FROM pragma_page_count, pragma_page_size").get
        data = sum(data_bytes(_with(path, suffix)) for suffix in ("", "-wal"))
        _check_size(path, pages * size, data, copy)
        with (
            contextlib.closing(apsw.Connection(str(copy))) as target,
            target.backup("main", reader, "main") as backup,
        ):
            while not backup.done:
                backup.step()


def copy_stable(pairs: Sequence[tuple[Path, Path]], source: Path) -> None:
    """Copy files as of one moment: again if one of them changed meanwhile. Missing ones stay so."""
    for _ in range(_COPIES):
        before = [_state(original) for original, _ in pairs]
        for original, copy in pairs:
            copy.unlink(missing_ok=True)
            if original.is_file():  # and neither a device nor a pipe, which have no end
                _check_size(original, original.stat().st_size, data_bytes(original), copy)
                shutil.copyfile(original, copy)
        if before == [_state(original) for original, _ in pairs]:
            return
    raise Unreadable(
        f"{source} changed with every attempt to copy it: close the program that uses it"
    )


def _check_size(path: Path, size: int, data: int, copy: Path) -> None:
    """Refuse a file that says to be many times larger than it is, or that has no room here."""
    if size > SMALL_FILE + MOST_RATIO * data:
        raise Unreadable(
            f"{path} has {data:,} bytes of data and says that it has {size:,}: it is damaged, or "
            "made to fill the disk; nothing was imported"
        )
    free = shutil.disk_usage(copy.parent).free
    if size > free:
        raise Unreadable(
            f"{path} is read from a copy of {size:,} bytes, and {copy.parent.parent} has {free:,} "
            "left; nothing was imported"
        )


def data_bytes(path: Path) -> int:
    """How many bytes of a file are on the disk, without its holes; 0 if there is none."""
    found = at = size = 0
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            while at < size:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
                at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
                found += at - start
    except AttributeError:  # Windows cannot tell
        return size
    except OSError as error:
        if error.errno != errno.ENXIO:  # which says that nothing but a hole is left
            found += size - at
    return found


def _state(path: Path) -> tuple[int, int]:
    """Size and time of a file; zeros if there is none."""
    try:
        info = path.stat()
    except OSError:
        return 0, 0
    return info.st_size, info.st_mtime_ns


def _with(path: Path, suffix: str) -> Path:
    return Path(f"{path}{suffix}")
