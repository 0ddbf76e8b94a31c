"""The file: opening it safely, a connection per thread, transactions, and SQLite's errors in our
words.

Nothing but the schema is read before the schema has been compared, row by row, with what this
version would create: a foreign or damaged file must neither run its triggers nor reach the
extension.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import apsw

from mcpvectordb import errors
from mcpvectordb.filters import FUNCTIONS
from mcpvectordb.storage import fts5, schema, vec0
from mcpvectordb.storage.sqlite_errors import HELP, ours, refused

PAGE_SIZE = 8192  # rows of 384 floats waste a quarter of a 4096-byte page
MEMORY = ":memory:"

_SQLITE = b"SQLite format 3\x00"
_JOURNAL = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
_BUSY_ATTEMPTS = 3
# Not mapped: a file that somebody cuts off would kill the process, and mapped pages are checked
# anew at every look at them, which makes FTS5 five times slower.
_CACHED = "PRAGMA cache_size = -65536"


def uri(path: Path) -> str:
    """A path as SQLite's URI, whatever characters are in it."""
    return "file:" + str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


class File:
    """A database file that any thread may use: `reading()` and `writing()` give it a connection of
    its own.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, read_only: bool = False, busy_timeout: float = 30.0
    ) -> None:
        self.memory = os.fspath(path) == MEMORY
        self.path = Path(MEMORY) if self.memory else _resolved(Path(path))
        self._busy_ms = int(busy_timeout * 1000)
        self._local = threading.local()
        self._open: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
        self._closed = False
        self._identity: tuple[int, int] | None = None
        self._name = f"file:/{uuid.uuid4().hex}?vfs=memdb"
        self._check = weakref.WeakMethod[Callable[[], Sequence[str]]](self.flaws)
        with self._translated():
            self.read_only = not self.memory and (read_only or not self._writable())
            if not self.memory:
                self._refuse_foreign()
            self._keeper = self._connection()  # keeps a database in memory alive until close
            self._identity = self._found()
            if not self.read_only:
                self._prepare(self._keeper)
            elif _pragma(self._keeper, "user_version") < schema.VERSION:
                raise errors.ReadOnly(
                    f"{self.path} has an old format: open it once where it can be written, then "
                    f"copy it back"
                )

    def register_check(self, check: Callable[[], Sequence[str]]) -> None:
        """Let somebody who knows more of the file say what is wrong with it, as long as they
        live.
        """
        self._check = weakref.WeakMethod(check)

    def close(self) -> None:
        """Close every connection; the last one to close a file writes its log back into it."""
        self._closed = True
        for connection in list(self._open):
            with contextlib.suppress(apsw.ThreadingViolationError):
                connection.close()
        if (
            self.read_only
            and (log := Path(f"{self.path}-wal")).exists()
            and not log.stat().st_size
            and os.access(log, os.W_OK)
        ):
            # A reader cannot take away the empty log that it had to make; a writer who comes and
            # goes does.
            with (
                contextlib.suppress(apsw.Error),
                contextlib.closing(
                    apsw.Connection(
                        uri(self.path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
                    )
                ) as writer,
            ):
                _pragma(writer, "user_version")

    def flaws(self) -> list[str]:
        """What SQLite itself finds wrong with the file, FTS5's own check included, and rows that
        refer to missing ones.
        """
        with self.reading() as sql:
            found = [
                str(row[0]) for row in sql.execute("PRAGMA integrity_check(100)") if row[0] != "ok"
            ]
            return found + [
                f"{table}: row {row} refers to a missing row of {parent}"
                for table, row, parent, _ in sql.execute("PRAGMA foreign_key_check")
            ]

    @contextlib.contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """A connection on one unchanging view of the file."""
        with self._translated(), self._transaction("BEGIN") as (connection, _):
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """A write transaction: committed when the block ends, undone when it raises. Joins one
        already open.
        """
        if self.read_only:
            raise errors.ReadOnly(
                f"{self.path} is open for reading only, so nothing can be changed in it"
            )
        with self._translated(), self._transaction("BEGIN IMMEDIATE") as (connection, joined):
            yield connection
            if not joined:
                connection.execute("COMMIT")
                self._check_place()

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[tuple[apsw.Connection, bool]]:
        """A connection in a transaction, and whether that was open already; one that was not is
        undone at the end.
        """
        connection = self._connection()
        if connection.in_transaction:
            yield connection, True
            return
        try:
            self._begin(connection, begin)
            yield connection, False
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def outside(self) -> Iterator[apsw.Connection]:
        """A connection without a transaction, for VACUUM and the like."""
        with self._translated():
            yield self._connection()

    def _begin(self, connection: apsw.Connection, statement: str) -> None:
        """Start a transaction; when others have changed the schema or the format meanwhile, it is
        compared again.
        """
        self._wait_for(connection, statement)
        if (marks := _marks(connection)) != self._local.marks:
            self._verify(connection)
            self._local.marks = marks

    def _wait_for(self, connection: apsw.Connection, statement: str) -> None:
        """Wait for locks, also for those that SQLite itself does not wait for: a change of the
        journal's kind.
        """
        deadline = time.monotonic() + self._busy_ms / 1000
        for attempt in itertools.count(1):
            try:
                connection.execute(statement).fetchall()
                return
            except apsw.BusyError:
                if attempt >= _BUSY_ATTEMPTS and time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0.01, 0.1))  # noqa: S311  spreads waiting writers, hides nothing

    def _connection(self) -> apsw.Connection:
        if self._closed:
            raise errors.Closed(
                f"{self.path} was closed; open it again with Database({str(self.path)!r})"
            )
        self._check_place()
        held: tuple[int, apsw.Connection] | None = getattr(self._local, "held", None)
        if held is not None and held[0] == os.getpid():
            return held[1]
        if held is not None:
            _inherited.append(held[1])  # a forked child must not even close its parent's connection
        connection = self._connect()
        self._local.held = (os.getpid(), connection)
        self._open.add(connection)
        return connection

    def _check_place(self) -> None:
        """SQLite would go on writing into a file that was deleted, and every acknowledged change
        would be lost with it.
        """
        if self._identity != (found := self._found()) and self._identity is not None:
            raise errors.Unwritable(
                f"{self.path} was {'replaced' if found else 'moved or deleted'} while it was open: "
                "put it back, or open it again"
            )

    def _found(self) -> tuple[int, int] | None:
        """What the system knows the file by; None where there is none."""
        if self.memory:
            return None
        try:
            info = self.path.stat()
        except OSError:
            return None
        return info.st_dev, info.st_ino

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(self._uri(), flags=self._flags())
        connection.set_busy_timeout(self._busy_ms)
        for setting, value in (
            (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
            (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
            (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
            (apsw.SQLITE_DBCONFIG_DQS_DML, 0),
            (apsw.SQLITE_DBCONFIG_DQS_DDL, 0),
        ):
            connection.config(setting, value)
        connection.execute("BEGIN")
        self._verify(connection)
        self._local.marks = _marks(connection)
        connection.execute("ROLLBACK")
        _equip(connection)
        connection.execute(_CACHED)
        return connection

    def _uri(self) -> str:
        if self.memory:
            return self._name
        return f"{uri(self.path)}{'?immutable=1' if self.read_only and self._immutable() else ''}"

    def _flags(self) -> int:
        mode = apsw.SQLITE_OPEN_READONLY if self.read_only else apsw.SQLITE_OPEN_READWRITE
        return mode | apsw.SQLITE_OPEN_URI | (apsw.SQLITE_OPEN_CREATE if self.memory else 0)

    def _immutable(self) -> bool:
        """Whether no process can be writing: read-only media without a log beside the file."""
        wal = Path(f"{self.path}-wal")
        return not os.access(self.path.parent, os.W_OK) and not (
            wal.exists() and wal.stat().st_size
        )

    def _writable(self) -> bool:
        """Whether the file can be changed; makes a missing one, for its owner's eyes only."""
        if self.path.is_dir():
            raise errors.NotOurFile(f"{self.path} is a folder; name a file in it")
        if not self.path.exists():
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        return os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)

    def _refuse_foreign(self) -> None:
        """Turn away what is not ours without changing a byte of it: by its first bytes, then by a
        reader's look.

        A writer would already do too much: as the last one to leave, it writes a log back into
        another program's file.
        """
        if not self.path.exists():
            raise errors.Unwritable(
                f"{self.path} does not exist, and a read-only database cannot be made"
            )
        if not self.path.is_file():
            raise errors.NotOurFile(f"{self.path} is a device or a pipe; name an ordinary file")
        with self.path.open("rb") as file:
            head = file.read(PAGE_SIZE + 1)
        if not head:
            return
        shrinks = self._journal_shrinks()  # after the file: whoever makes it removes the journal
        if shrinks is not None and (_is_void(head) if shrinks else _is_marked(head)):
            return  # a power cut came while it was made or became a WAL file: a writer undoes that
        if not head.startswith(_SQLITE):
            raise errors.NotOurFile(f"{self.path} is not a SQLite database; it was left as it is")
        if head[18:20] not in (b"\1\1", b"\2\2"):  # or becoming a WAL file would write over it
            raise errors.Damaged(
                f"{self.path} is damaged (its journal is of no known kind); it was left as it is: "
                f"{HELP}"
            )
        self._look()
        if shrinks:
            raise errors.Damaged(
                f"{self.path}-journal would empty {self.path}, but does not belong to it; both "
                "were left as they are: move the journal away"
            )

    def _journal_shrinks(self) -> bool | None:
        """Whether a journal beside the file says that it was empty before; None without one."""
        try:
            with Path(f"{self.path}-journal").open("rb") as file:
                journal = file.read(20)
        except OSError:
            return None
        return journal[16:] == bytes(4) if journal.startswith(_JOURNAL) else None

    def _look(self) -> None:
        """Verify as a reader who leaves no log behind: where there is none, nobody has the file
        open.
        """
        log = Path(f"{self.path}-wal")
        alone = not log.exists()
        try:
            self._look_at(f"{uri(self.path)}?immutable=1" if alone else self._uri())
        except (apsw.Error, errors.DatabaseError):
            if not alone or not log.exists():
                raise
            self._look_at(self._uri())  # somebody came in between

    def _look_at(self, name: str) -> None:
        with contextlib.closing(
            apsw.Connection(name, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        ) as reader:
            reader.set_busy_timeout(self._busy_ms)
            reader.execute("BEGIN")
            self._verify(reader)

    def _verify(self, connection: apsw.Connection) -> None:
        """Compare the whole schema with the one this version would have made, in a transaction and
        before any other look.
        """
        application, version = (
            _pragma(connection, "application_id"),
            _pragma(connection, "user_version"),
        )
        rows = frozenset(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"))
        if not rows and application == 0 and version == 0:
            if self.read_only:
                raise errors.NotOurFile(f"{self.path} is empty")
            return
        if application != schema.APPLICATION_ID:
            raise errors.NotOurFile(
                f"{self.path} belongs to another program (application id {application:#x}); "
                "it was left as it is"
            )
        if version > schema.VERSION:
            raise errors.NewerFile(
                f"{self.path} has format {version}, but this mcpvectordb reads up to "
                f"{schema.VERSION}: "
                f"upgrade it"
            )
        own = rows - schema.STATISTICS
        if version < 1 or own != schema.expected_rows(version, own):
            raise errors.Damaged(
                f"{self.path} does not have the tables of format {version}: it is damaged or was "
                "changed by another program; it was left as it is. Go back to a copy, or "
                "`mcpvectordb salvage` it"
            )

    def _prepare(self, connection: apsw.Connection) -> None:
        """Make a new file, or bring an old one up to date: one transaction for each step."""
        if not self.memory:
            if _pragma(connection, "page_count") == 0:
                connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            self._wait_for(connection, "PRAGMA journal_mode = WAL")
        while _pragma(connection, "user_version") < schema.VERSION:
            with self.writing():
                version = _pragma(connection, "user_version")
                if version < schema.VERSION:  # another process may have been faster
                    schema.migrate(connection, version)
                    self._local.marks = _marks(connection)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """The one place where SQLite's and the system's errors about the file become ours; our
        mistakes stay what they are.
        """
        try:
            yield
        except errors.MCPVectorDBError:
            raise
        except Exception as error:
            told = ours(error, self.path)
            if told is None and (isinstance(error, OSError) or not self._explains()):
                raise
            raise (told or refused(error, self.path)) from error

    def _explains(self) -> bool:
        """Whether the file itself is the reason for an error that no sound file can cause."""
        if getattr(self._local, "checking", False):
            return True  # even looking at it fails
        self._local.checking = True
        try:
            # Inside another transaction it is asked again when that one has been undone.
            return not self._connection().in_transaction and bool((self._check() or self.flaws)())
        except errors.MCPVectorDBError as error:
            return isinstance(error, errors.Damaged)
        except apsw.Error:
            return True
        finally:
            self._local.checking = False


_inherited: list[apsw.Connection] = []


def _resolved(path: Path) -> Path:
    try:
        return path.expanduser().resolve()
    except (RuntimeError, OSError) as error:
        raise errors.Unwritable(f"{path} is a link that leads nowhere: {error}") from error


def _is_marked(head: bytes) -> bool:
    """Whether the header of a file has our application id."""
    return head[68:72] == schema.APPLICATION_ID.to_bytes(4, "big")


def _is_void(head: bytes) -> bool:
    """Whether a file has nothing that could be lost: at most the first page of a database without
    tables, marks and cells, any sector of which may be missing.
    """
    return (
        len(head) <= PAGE_SIZE
        and head[:16] in (_SQLITE, bytes(16)[: len(head)])
        and not any(head[60:72] + head[101:105] + head[108:])
    )


def _equip(connection: apsw.Connection) -> None:
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)
    vec0.load(connection)
    fts5.register(connection)
    for name, (function, arguments) in FUNCTIONS.items():
        connection.create_scalar_function(name, function, arguments, deterministic=True)
    for pragma in (
        "foreign_keys = ON",
        "synchronous = FULL",
        "cell_size_check = ON",
        "temp_store = MEMORY",
        "secure_delete = FAST",  # zeroes what was deleted wherever that costs no writing
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()


def _marks(connection: apsw.Connection) -> tuple[int, int]:
    """What is another number after any change of the schema or the format."""
    return _pragma(connection, "schema_version"), _pragma(connection, "user_version")


def _pragma(connection: apsw.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").get)
