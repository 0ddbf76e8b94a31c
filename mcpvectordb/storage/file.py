"""The file: safe opening, one connection per thread, transactions, translation of SQLite's errors.

Nothing but the schema is read before the schema has been compared, row by row, with what this
version would create: a foreign or damaged file must neither run its triggers nor reach the
extension.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import apsw

from mcpvectordb import errors
from mcpvectordb.filters.dialect import FUNCTIONS
from mcpvectordb.storage import deadline, fts5, log, schema, vec0
from mcpvectordb.storage.deadline import CancelCheck
from mcpvectordb.storage.dialect import SQLITE, FileConnection, Sql, SqlDialect
from mcpvectordb.storage.sqlite_errors import HELP, ours

PAGE_SIZE = 8192  # rows of 384 floats waste a quarter of a 4096-byte page
MEMORY = ":memory:"
IDLE_SECONDS = 2.0

_SQLITE = b"SQLite format 3\x00"
# A setting of connections: the last one that is closed leaves the log alone.
_KEEP_LOG = apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE
# Pragmas that count something, and where the header of a file has it.
_COUNTS = {"page_count": 28, "freelist_count": 36, "schema_version": 40}
_JOURNAL = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
# Steps of SQLite's virtual machine between two checks of the deadline: about a millisecond.
_STEPS = 10_000
_PRAGMAS = (
    "foreign_keys = ON",
    "synchronous = FULL",
    "cell_size_check = ON",
    "temp_store = MEMORY",
    "secure_delete = ON",  # zeroes what was deleted, for 3 to 7 % more writing
    # 64 MB of pages per connection instead of a memory map (mmap_size): a mapped file that another
    # program truncates kills the process with SIGBUS, and cell_size_check verifies a mapped page at
    # every access, which makes FTS5 five times slower.
    "cache_size = -65536",
)


def uri(path: Path) -> str:
    """A path as a URI for SQLite, with its special characters escaped."""
    return "file:" + str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


class File:
    """A database file for any number of threads.

    `reading()` and `writing()` give each thread a connection of its own. After `idle_seconds`
    without a transaction the log is written into the file, which is then whole by itself.
    """

    dialect: SqlDialect = SQLITE
    published = False
    """Whether its documents were read on other machines."""
    format = schema.VERSION
    """The version of the schema."""
    set_aside = ""
    """Which log of another file lay beside this one when it was opened, and where it is now."""
    _clock = staticmethod(time.monotonic)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        busy_timeout: float = 30.0,
        read_timeout: float = 10.0,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.memory = os.fspath(path) == MEMORY
        self.path = Path(MEMORY) if self.memory else _resolved(Path(path))
        self.place = str(self.path)  # where it is, for people
        self._busy_ms = int(busy_timeout * 1000)
        self._read_timeout = read_timeout
        self._local = threading.local()
        self._open: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
        self.closed = False
        self._raws = contextlib.ExitStack()
        self._raw: apsw.VFSFile | None = None  # the bytes of the file, to tie its log to it
        self._identity: tuple[int, int] | None = None
        self._log = log.log_of(self.path)
        self._idle_seconds = idle_seconds
        self._process, self._idle = os.getpid(), threading.Condition()  # which guards what follows
        self._written, self._emptier = 0.0, False  # the last commit; whether a thread waits
        self._name = f"file:/{os.urandom(16).hex()}?vfs=memdb"
        self._check = weakref.WeakMethod[Callable[[], Sequence[str]]](self.flaws)
        with self._translated():
            self.read_only = not self.memory and (read_only or not self._writable())
            if not self.memory:
                self._refuse_foreign()
            self._identity = self._found()
            self._keeper = self._connection()  # keeps a database in memory alive until close
            if not self.read_only:
                if not self.memory:
                    self._raw = self._raws.enter_context(log.raw_file(self.path, writing=True))
                    self._check_place()
                self._prepare(self._keeper)
                if self._log_bytes():
                    self._empty_log_when_idle()
            elif _mark(self._keeper).version < schema.VERSION:
                raise errors.ReadOnly(
                    f"{self.path} has an old format: open it once where it can be written, then "
                    f"copy it back"
                )

    def register_check(self, check: Callable[[], Sequence[str]]) -> None:
        """Set the method that finds problems of the file, in place of `flaws`.

        Only a weak reference to its object is kept. It decides whether an unexpected error is
        damage.
        """
        self._check = weakref.WeakMethod(check)

    def bytes(self) -> int:
        """The size of the file, with its log."""
        if self.memory:
            with self.reading(limited=False) as sql:
                return int(
                    sql.execute(
                        "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
                    ).get
                )
        return (self.path.stat().st_size if self.path.exists() else 0) + self._log_bytes()

    def _log_bytes(self) -> int:
        """The size of the log; 0 if there is none."""
        try:
            return 0 if self.memory else self._log.stat().st_size
        except FileNotFoundError:
            return 0

    def notes(self) -> list[str]:
        """What a person should look after beside the file: logs that were set aside."""
        aside = [] if self.memory else log.logs_set_aside(self.path)
        return [
            f"{each} is the log of a file that was at {self.path} before this one, and was set "
            "aside: delete it when you do not miss what was written last"
            for each in aside
        ]

    def table_sizes(self) -> list[tuple[str, int]]:
        """The tables and their indexes, each by the name of its table, and their bytes."""
        with self.reading(limited=False) as sql:
            tables = dict(sql.execute("SELECT name, tbl_name FROM sqlite_schema"))
            sizes = sql.execute("SELECT name, pgsize FROM dbstat WHERE aggregate = TRUE")
            return [(tables.get(name, name), size) for name, size in sizes]

    def require_file(self, what: str) -> None:
        """Raise ReadOnly if this is no file, but a published database."""

    def version(self) -> int:
        """A number that is another one after any other thread or process has changed the file.

        It is another one as well when a log was written into the file.
        """
        with self.reading() as sql:
            return int(sql.execute("PRAGMA data_version").get)

    def close(self) -> None:
        """Write the log into the file, unless others read it, and close every connection."""
        if self.closed:
            return
        self._notice_fork()
        with self._idle:
            self.closed = True
            self._idle.notify_all()
            self._idle.wait_for(lambda: not self._emptier)
        if self._raw is not None:
            self._empty_log(self._keeper)
            if log.is_foreign(self._raw, self._log):  # the file was overwritten
                for connection in list(self._open):
                    connection.config(_KEEP_LOG, 1)
        for connection in list(self._open):
            with contextlib.suppress(apsw.ThreadingViolationError):
                connection.close()
        self._raws.close()
        if (
            self.read_only
            and self._identity == self._found()
            and self._log.exists()
            and not self._log_bytes()
            and os.access(self._log, os.W_OK)
        ):
            # A reader had to create an empty log and cannot delete it. A writer deletes it when it
            # closes its connection.
            with (
                contextlib.suppress(apsw.Error),
                contextlib.closing(
                    apsw.Connection(
                        uri(self.path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
                    )
                ) as writer,
            ):
                _mark(writer)

    def check_log_is_empty(self) -> None:
        """Raise Busy if the log beside the file still has pages, because others read them."""
        if self._log_bytes():
            raise errors.Busy(
                f"other processes are reading {self.path}, so {self._log.name} still has what was "
                "deleted: close them, or do this again later"
            )

    def flaws(self) -> list[str]:
        """What SQLite's own checks find, FTS5's included, and rows that refer to missing ones."""
        with self.reading(limited=False) as sql:
            found = [
                str(row[0]) for row in sql.execute("PRAGMA integrity_check(100)") if row[0] != "ok"
            ]
            return found + [
                f"{table}: row {row} refers to a missing row of {parent}"
                for table, row, parent, _ in sql.execute("PRAGMA foreign_key_check")
            ]

    @contextlib.contextmanager
    def reading(self, *, limited: bool = True) -> Iterator[Sql]:
        """A connection in a read transaction, which sees one snapshot of the file.

        A question has a deadline (`limited`); maintenance, and what a writer reads, has none.
        """
        with self._translated(), self._transaction("BEGIN") as (connection, joined):
            if joined:  # the deadline of the outer transaction, if it has one
                yield connection
                return
            with deadline.running(self._read_timeout) if limited else deadline.suspended():
                yield connection

    def deadline(self, cancelled: CancelCheck | None = None) -> AbstractContextManager[object]:
        """Give all reads of a block one deadline together instead of one each."""
        return deadline.shared(self._read_timeout, cancelled)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Sql]:
        """A write transaction: committed at the end of the block, rolled back if the block raises.

        Inside of another one it joins that one, which then commits.
        """
        if self.read_only:
            raise errors.ReadOnly(
                f"{self.path} is open for reading only, so nothing can be changed in it"
            )
        with (
            self._translated(),
            self._transaction("BEGIN IMMEDIATE") as (connection, joined),
            deadline.suspended(),
        ):
            if joined:
                yield connection
                return
            begins_log, changes = self._begins_log(connection), connection.total_changes()
            yield connection
            if connection.total_changes() != changes:
                self._tie_log(connection, begins_log)
            connection.execute("COMMIT")
            self._check_place()
            self._empty_log_when_idle()

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[tuple[FileConnection, bool]]:
        """A connection in a transaction, and whether the transaction was already open.

        SQLite has no nested transactions, so an inner block joins the transaction of the outer one,
        and only the outermost ends it: by COMMIT (in `writing`) or, if that was not reached, by
        ROLLBACK here. `begin` is BEGIN (deferred: a snapshot from the first read on, no lock) or
        BEGIN IMMEDIATE (the write lock at once). A deferred transaction that begins to write later
        fails with SQLITE_BUSY at once when others have committed meanwhile, because its snapshot is
        old; waiting cannot help. Hence writers are immediate.
        """
        connection = self._connection()
        if connection.in_transaction:
            yield connection, True
            return
        try:
            self._wait_for(connection, begin)
            # SQLite increments schema_version with every change of the schema; together with
            # user_version it shows whether what was verified still holds. Both are read inside the
            # transaction, so nothing can change between this check and the first use.
            if (marks := _marks(connection)) != self._local.marks:
                self._verify(connection)
                self._local.marks = marks
            self._local.transaction = object()
            yield connection, False
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    @property
    def transaction(self) -> object:
        """A mark of this thread's transaction, another one for each."""
        return self._local.transaction

    @contextlib.contextmanager
    def outside(self) -> Iterator[Sql]:
        """A connection without a transaction, for VACUUM and the like."""
        with self._translated():
            yield self._connection()

    def _wait_for(self, connection: apsw.Connection, statement: str) -> None:
        """Execute a statement that needs a lock, repeatedly until the timeout.

        SQLite's own busy handler is not called for every lock, e.g. not for a change of journal
        mode. Where it is, it waits in each attempt, so it may wait for what is left only.
        """
        deadline, left = self._clock() + self._busy_ms / 1000, self._busy_ms
        try:
            while True:
                try:
                    connection.execute(statement).fetchall()
                    return
                except apsw.BusyError:
                    left = int((deadline - self._clock()) * 1000)
                    if left <= 0:
                        raise
                    time.sleep(min(left / 1000, random.uniform(0.01, 0.1)))  # noqa: S311
                    connection.set_busy_timeout(left)
        finally:
            if left != self._busy_ms:
                connection.set_busy_timeout(self._busy_ms)

    def _connection(self) -> FileConnection:
        if self.closed:
            raise errors.Closed(
                f"{self.path} was closed; open it again with Database({str(self.path)!r})"
            )
        self._check_place()
        held: tuple[int, FileConnection] | None = getattr(self._local, "held", None)
        if held is not None and held[0] == os.getpid():
            return held[1]
        if held is not None:
            _inherited.append(held[1])  # a forked child must not even close its parent's connection
        connection = self._connect()
        self._check_place()  # it may have been replaced before it was connected to
        connection.config(_KEEP_LOG, 0)
        self._local.held = (os.getpid(), connection)
        self._open.add(connection)
        return connection

    def _check_place(self) -> None:
        """Raise Unwritable if the file was moved, deleted or replaced since it was opened.

        SQLite would go on writing into the deleted file, and every acknowledged change would be
        lost.
        """
        if self._identity != (found := self._found()) and self._identity is not None:
            raise self._replaced("replaced" if found else "moved or deleted")

    def _replaced(self, how: str) -> errors.Unwritable:
        return errors.Unwritable(
            f"{self.path} was {how} while it was open: put it back, or open it again"
        )

    def _found(self) -> tuple[int, int] | None:
        """Device and inode of the file that is now at the path; None if there is none."""
        if self.memory:
            return None
        try:
            info = self.path.stat()
        except OSError:
            return None
        return info.st_dev, info.st_ino

    def _connect(self) -> FileConnection:
        connection = FileConnection(self._uri(), flags=self._flags())
        connection.set_busy_timeout(self._busy_ms)
        for setting, value in (
            (_KEEP_LOG, 1),
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
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)
        vec0.load(connection)
        fts5.register(connection)
        for name, (function, arguments) in FUNCTIONS.items():
            connection.create_scalar_function(name, function, arguments, deterministic=True)
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").fetchall()
        connection.set_progress_handler(_progressed, _STEPS)
        return connection

    def _uri(self) -> str:
        if self.memory:
            return self._name
        # In a read-only folder, without a log beside the file, no process can be writing.
        unchanging = self.read_only and not os.access(self.path.parent, os.W_OK)
        return f"{uri(self.path)}{'?immutable=1' if unchanging and not self._log_bytes() else ''}"

    def _flags(self) -> int:
        mode = apsw.SQLITE_OPEN_READONLY if self.read_only else apsw.SQLITE_OPEN_READWRITE
        return mode | apsw.SQLITE_OPEN_URI | (apsw.SQLITE_OPEN_CREATE if self.memory else 0)

    def _writable(self) -> bool:
        """Whether the file can be written; a missing one is created, readable by its owner only."""
        if self.path.is_dir():
            raise errors.NotOurFile(f"{self.path} is a folder; name a file in it")
        if not self.path.exists():
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        return os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)

    def _refuse_foreign(self) -> None:
        """Raise unless the file is ours, empty, or an unfinished one of ours; change no byte of it.

        First the header decides (magic bytes, journal mode), then the schema, through a read-only
        connection. A writing connection would already be too much: SQLite rolls back a hot journal
        when it opens a file and checkpoints a log when it closes it, both of which belong to
        another program here. See "Database File Format" and "Atomic Commit" in SQLite's
        documentation.
        """
        if not self.path.exists():
            raise errors.Unwritable(
                f"{self.path} does not exist, and a read-only database cannot be made"
            )
        if not self.path.is_file():
            raise errors.NotOurFile(f"{self.path} is a device or a pipe; name an ordinary file")
        head = _head(self.path)
        if not head:
            return
        shrinks = self._journal_shrinks()  # after the file: whoever makes it removes the journal
        if shrinks is not None and (_is_void(head) if shrinks else is_marked(head)):
            return  # a power cut came while it was made or became a WAL file: a writer undoes that
        if not head.startswith(_SQLITE):
            raise errors.NotOurFile(f"{self.path} is not a SQLite database; it was left as it is")
        # Read and write version: 1 is a rollback journal, 2 a WAL. Setting the journal mode would
        # overwrite anything else.
        if head[18:20] not in (b"\1\1", b"\2\2"):
            raise errors.Damaged(
                f"{self.path} is damaged (its journal is of no known kind); it was left as it is: "
                f"{HELP}"
            )
        if is_marked(head):
            self._set_foreign_log_aside()
        self._verify_as_reader()
        if shrinks:
            raise errors.Damaged(
                f"{self.path}-journal would empty {self.path}, but does not belong to it; both "
                "were left as they are: move the journal away"
            )

    def _set_foreign_log_aside(self) -> None:
        """Keep SQLite from applying a log that was not written on top of this file.

        It is renamed while no connection to this file exists. A process that had opened the file
        which was here before goes on with the renamed log.
        """

        def foreign() -> bool:
            return bool(self._log_bytes()) and log.is_foreign(file, self._log)

        with log.raw_file(self.path, writing=not self.read_only) as file:
            deadline = time.monotonic() + self._busy_ms / 1000
            while foreign():
                if self.read_only:
                    raise errors.Damaged(
                        f"{self._log} was not written for {self.path}, but for a file that was "
                        "there before: open the file once for writing, which sets that log aside, "
                        "or move it away"
                    )
                try:
                    file.xLock(apsw.SQLITE_LOCK_SHARED)
                    file.xLock(apsw.SQLITE_LOCK_EXCLUSIVE)
                    if foreign():
                        aside = log.set_aside(self._log)
                        self.set_aside = (
                            f"{self._log.name} was not written for {self.path}, but for a file "
                            f"that was there before: it was set aside as {aside}"
                        )
                except apsw.BusyError:
                    if time.monotonic() > deadline:
                        raise errors.Busy(
                            f"{self.path} was overwritten while a process had it open, whose log "
                            f"is {self._log.name}: close that process and try again"
                        ) from None
                    time.sleep(0.05)
                finally:
                    file.xUnlock(apsw.SQLITE_LOCK_NONE)

    def _begins_log(self, connection: apsw.Connection) -> bool:
        """Whether a write transaction is the first one of a log.

        Raises Unwritable if the file was overwritten since it was opened.
        """
        if self._raw is None:
            return False
        header = self._raw.xRead(log.HEADER_BYTES, 0)
        stored, empty = log.Mark.in_header(header), not self._log_bytes()
        if stored.tie == _mark(connection).tie:
            return empty
        # A transaction that failed, or whose process was killed, after it had written a tie into
        # the file changed nothing else there. It may be in the log; if this connection does not
        # see it there, it is not in the log's index, and will be overwritten.
        found = None if empty else log.first_mark(self._log)
        if (found is None or found.tie == stored.tie) and all(
            int.from_bytes(header[place : place + 4], "big") == _pragma(connection, name)
            for name, place in _COUNTS.items()
        ):
            return True
        raise self._replaced("overwritten")

    def _tie_log(self, connection: apsw.Connection, begins_log: bool) -> None:
        """Write the tie between file and log into the log, at the end of a write transaction.

        The first one of a log makes a new tie, and first writes it into the file: SQLite has
        nothing to write there now, and whoever copied the file before has the old one.
        """
        if self._raw is None:
            return
        mark = _mark(connection)
        if begins_log:
            stored = log.Mark.in_header(self._raw.xRead(log.HEADER_BYTES, 0))
            if stored.version:  # else the file is being made and has nothing to lose
                mark = mark.retied()
                self._raw.xWrite(stored._replace(tie=mark.tie).stored, log.MARK_PLACE)
                self._raw.xSync(apsw.SQLITE_SYNC_FULL)
        connection.execute(f"PRAGMA user_version = {mark.user_version}")

    def _empty_log_when_idle(self) -> None:
        """Have a thread write the log into the file when nothing was written for a while."""
        if self._raw is None:
            return
        self._notice_fork()
        with self._idle:
            self._written = time.monotonic()
            if not self._emptier and not self.closed:
                self._emptier = True
                threading.Thread(
                    target=self._wait_and_empty_log, name="mcpvectordb-log", daemon=True
                ).start()

    def _notice_fork(self) -> None:
        """Forget the thread of a parent process, which may have held the lock at the fork."""
        if self._process != os.getpid():
            self._process, self._idle = os.getpid(), threading.Condition()
            self._emptier = False

    def _wait_and_empty_log(self) -> None:
        with self._idle:
            while not self.closed:
                written = self._written
                left = written + self._idle_seconds - time.monotonic()
                if left > 0:
                    self._idle.wait(left)
                    continue
                emptied = False
                self._idle.release()
                try:
                    with (
                        contextlib.suppress(apsw.Error),
                        contextlib.closing(
                            apsw.Connection(uri(self.path), flags=self._flags())
                        ) as connection,
                    ):
                        connection.config(_KEEP_LOG, 1)
                        emptied = self._empty_log(connection)
                finally:
                    self._idle.acquire()
                if emptied and written == self._written:
                    break
                if not emptied:
                    self._idle.wait(max(self._idle_seconds, 0.1))
            self._emptier = False
            self._idle.notify_all()

    def _empty_log(self, connection: apsw.Connection) -> bool:
        """Write the log into the file and truncate it, if nobody reads it; whether that is done.

        Nothing is written into a file that has taken the place of this one.
        """
        if self._raw is None or not self._log_bytes():
            return True
        with contextlib.suppress(apsw.Error):
            connection.set_busy_timeout(0)
            _mark(connection)  # opens the file, if that is still to be done
            if self._identity == self._found() and not log.is_foreign(self._raw, self._log):
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                return True
        return False

    def _journal_shrinks(self) -> bool | None:
        """Whether a journal beside the file says that it was empty before; None without one."""
        try:
            with Path(f"{self.path}-journal").open("rb") as file:
                journal = file.read(20)
        except OSError:
            return None
        return journal[16:] == bytes(4) if journal.startswith(_JOURNAL) else None

    def _verify_as_reader(self) -> None:
        """Verify the schema through a reader that leaves no log behind.

        Without a log no process has the file open, and it can be opened as immutable.
        """
        alone = not self._log.exists()
        try:
            self._verify_uri(f"{uri(self.path)}?immutable=1" if alone else self._uri())
        except (apsw.Error, errors.DatabaseError):
            if not alone or not self._log.exists():
                raise
            self._verify_uri(self._uri())  # another process opened it in between

    def _verify_uri(self, name: str) -> None:
        with contextlib.closing(
            apsw.Connection(name, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        ) as reader:
            reader.set_busy_timeout(self._busy_ms)
            reader.execute("BEGIN")
            self._verify(reader)

    def _verify(self, connection: apsw.Connection) -> None:
        """Raise unless the schema is exactly the one that this version creates.

        Call it in a transaction, before anything else is read.
        """
        application, version = _pragma(connection, "application_id"), _mark(connection).version
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
        """Create the schema of a new file, or migrate an old one, in one transaction."""
        if not self.memory:
            if _pragma(connection, "page_count") == 0:
                connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            self._wait_for(connection, "PRAGMA journal_mode = WAL")
        if _mark(connection).version < schema.VERSION:
            with self.writing():  # another process may have been faster
                for version in range(_mark(connection).version, schema.VERSION):
                    schema.migrate(connection, version)
                self._local.marks = _marks(connection)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate errors of SQLite and the system about the file into ours; leave all others.

        An error that no translation covers is damage if a check of the file finds problems;
        otherwise it is a bug, and is raised as it is.
        """
        try:
            yield
        except errors.MCPVectorDBError:
            raise
        except Exception as error:
            translated = ours(error, self.path)
            if translated is None and (isinstance(error, OSError) or not self._explains()):
                raise
            if translated is None:
                said = f"{type(error).__name__}: {error}"
                translated = errors.Damaged(f"{self.path} is damaged ({said}): {HELP}")
            raise translated from error

    def _explains(self) -> bool:
        """Whether the file itself is the reason for an error that no sound file can cause."""
        if getattr(self._local, "checking", False):
            return True  # the check itself failed
        self._local.checking = True
        try:
            # Inside another transaction nothing is checked: it is called again after the rollback.
            return not self._connection().in_transaction and bool((self._check() or self.flaws)())
        except errors.MCPVectorDBError as error:
            return isinstance(error, errors.Damaged)
        except apsw.Error:
            return True
        finally:
            self._local.checking = False


# Connections of a parent process: referenced for ever, because the destructor would close them.
_inherited: list[apsw.Connection] = []


def _resolved(path: Path) -> Path:
    try:
        resolved = path.expanduser().resolve()
    except (RuntimeError, OSError) as error:
        raise errors.Unwritable(f"{path} is a link that leads nowhere: {error}") from error
    circle = False
    with contextlib.suppress(OSError):  # a name that the system refuses is refused when it is used
        circle = resolved.is_symlink()  # Python 3.13 and later leave links in a circle as they are
    if circle:
        raise errors.Unwritable(f"{path} is a link that leads nowhere: links in a circle")
    return resolved


def _head(path: Path) -> bytes:
    """The first page of a file, and one byte more if there is one."""
    try:
        with log.raw_file(path) as file:
            return file.xRead(PAGE_SIZE + 1, 0)
    except apsw.CantOpenError:
        path.open("rb").close()  # raises what is the matter
        raise


def is_marked(head: bytes) -> bool:
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


def _progressed() -> bool:
    """SQLite's progress handler: an exception stops the statement; True would, too."""
    deadline.check()
    return False


def _marks(connection: apsw.Connection) -> tuple[int, int]:
    """Two counters, one of which differs after any change of the schema or the format."""
    return _pragma(connection, "schema_version"), _mark(connection).version


def _mark(connection: apsw.Connection) -> log.Mark:
    return log.Mark.of(_pragma(connection, "user_version"))


def _pragma(connection: apsw.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").get)
