"""Connections to a PostgreSQL database, and its errors translated into those of this library."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import psycopg
from psycopg import errors as postgres
from psycopg.conninfo import conninfo_to_dict

from mcpvectordb import errors

SCHEMA = "mcpvectordb"
CONNECT_SECONDS = 10
# NULLS NOT DISTINCT came with 15, half floats and sign bits with pgvector 0.7.
OLDEST_SERVER, OLDEST_PGVECTOR = 150000, (0, 7)

Connection = psycopg.Connection[tuple[object, ...]]

# Temporary tables come last in the search path, so that none can stand in for a table of ours.
_SETTLE = (
    "SELECT set_config('search_path', format('%I, %I, pg_temp', 'mcpvectordb', coalesce("
    "(SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace "
    "WHERE e.extname = 'vector'), 'public')), false), current_setting('server_encoding')"
)


class Server:
    """The PostgreSQL database that a URL names; any number of threads may use it.

    Each thread has a connection of its own, which is made when it is needed. One that was cut is
    replaced by the next call.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.name, self._password = _parts(url)
        self._local = threading.local()
        self._open: set[Connection] = set()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        while self._open:
            self._open.pop().close()

    @contextlib.contextmanager
    def reading(self, seconds: float | None = None) -> Iterator[Connection]:
        """This thread's connection in a transaction that sees one snapshot and writes nothing.

        Inside of another block it joins that one. A statement may take so many seconds.
        """
        # The scores of some hundred thousand passages must not go through files.
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL work_mem = '64MB'"
        if seconds is not None:
            begin += f"; SET LOCAL statement_timeout = {max(1, round(1000 * seconds))}"
        with self.translated():
            connection = self._connection()
            if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                yield connection
                return
            connection = self._begun(connection, begin.encode())
            try:
                yield connection
            finally:
                with contextlib.suppress(psycopg.OperationalError):  # it was cut
                    connection.rollback()

    def _begun(self, connection: Connection, begin: bytes) -> Connection:
        """A connection in a transaction: another one, if this one was cut since its last use."""
        try:
            connection.execute(begin)
        except psycopg.OperationalError:
            self._drop()
            connection = self._connection()
            connection.execute(begin)
        return connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """This thread's connection in a transaction, committed at the end of the block."""
        with self.translated():
            connection = self._connection()
            with connection.transaction():
                yield connection

    @contextlib.contextmanager
    def outside(self) -> Iterator[Connection]:
        """This thread's connection without a transaction: each statement is its own."""
        with self.translated():
            yield self._connection()

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Raise errors of PostgreSQL as those of this library."""
        try:
            yield
        except psycopg.Error as error:
            raised = ours(error, self.name) or error
            if isinstance(raised, errors.Unreachable):
                self._drop()  # psycopg may take a cut connection for one that is still busy
            raise raised from None

    def _connection(self) -> Connection:
        if self._closed:
            raise errors.Closed(f"the connection to {self.name} was closed; open it again")
        held: Connection | None = getattr(self._local, "connection", None)
        if held is not None and not held.closed:
            return held
        self._drop()
        self._local.connection = connection = self._connect()
        self._open.add(connection)
        return connection

    def _drop(self) -> None:
        """Give up this thread's connection, if it has one."""
        held: Connection | None = getattr(self._local, "connection", None)
        if held is not None:
            self._open.discard(held)
            held.close()
            self._local.connection = None

    def _connect(self) -> Connection:
        try:
            connection = psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                application_name="mcpvectordb",
                client_encoding="utf8",
            )
        except psycopg.OperationalError as error:
            raise errors.Unreachable(self._why_unreachable(str(error))) from None
        _, encoding = connection.execute(_SETTLE).fetchone() or ("", "")
        if connection.info.server_version < OLDEST_SERVER or encoding != "UTF8":
            version = connection.info.server_version
            connection.close()
            raise errors.NotOurFile(
                f"{self.name} is PostgreSQL {version // 10000} in {encoding}: PostgreSQL "
                f"{OLDEST_SERVER // 10000} or newer and a database in UTF8 are needed"
            )
        return connection

    def _why_unreachable(self, message: str) -> str:
        if self._password:
            message = message.replace(self._password, "***")
        short = " ".join(message.split())
        if "password" in short or "authentication" in short or "no pg_hba.conf entry" in short:
            return f"{self.name} refused the login: check the user and the password ({short:.500})"
        return f"{self.name} cannot be reached: is the server running there? ({short:.500})"


def _parts(url: str) -> tuple[str, str]:
    """What a URL is called in messages, which is all of it but the password; the password."""
    try:
        found = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise errors.InvalidInput(
            "the URL of the database cannot be read: it has the form "
            "postgresql://user:password@host:5432/name, with special characters as %40"
        ) from None
    user = f"{found['user']}@" if found.get("user") else ""
    port = f":{found['port']}" if found.get("port") else ""
    place = f"{user}{found.get('host') or ''}{port}/{found.get('dbname') or ''}"
    return f"postgresql://{place}", str(found.get("password") or "")


_TRANSLATIONS: tuple[tuple[tuple[type[psycopg.Error], ...], type[Exception], str], ...] = (
    (
        (postgres.QueryCanceled,),
        errors.ReadTimeout,
        "{name} took longer than it may; nothing was changed",
    ),
    (
        (
            postgres.LockNotAvailable,
            postgres.ObjectInUse,
            postgres.DeadlockDetected,
            postgres.SerializationFailure,
        ),
        errors.Busy,
        "others kept what was asked for at {name} locked; try again ({error})",
    ),
    (
        (postgres.InsufficientPrivilege,),
        errors.ReadOnly,
        "this role has no right to do that at {name}: have the owner run `mcpvectordb grant` "
        "({error})",
    ),
    (
        (postgres.ReadOnlySqlTransaction,),
        errors.ReadOnly,
        "{name} can only be read, as a replica is: publish to the primary server ({error})",
    ),
    (
        (postgres.DiskFull, postgres.OutOfMemory, postgres.ConfigurationLimitExceeded),
        errors.Unwritable,
        "{name} has no room left; what was published before is as it was ({error})",
    ),
    (
        (postgres.UndefinedTable, postgres.InvalidSchemaName, postgres.UndefinedColumn),
        errors.NotOurFile,
        "{name} has not what is expected in its schema mcpvectordb: publish a file to it first "
        "({error})",
    ),
    (
        (postgres.DataCorrupted, postgres.IndexCorrupted),
        errors.Damaged,
        "{name} is damaged ({error}): go back to a copy, or publish again into an empty database",
    ),
)
_CUT = "the connection to {name} was cut; the next call makes a new one ({error})"
_CUT_STATES = ("08", "57P")  # beginnings of SQLSTATE: connection exceptions, shutdowns


def ours(error: psycopg.Error, name: str) -> Exception | None:
    """The error to raise for one of PostgreSQL; None if it is none that a user can do much about"""
    said = " ".join(str(error).split())[:300]
    for kinds, make, text in _TRANSLATIONS:
        if isinstance(error, kinds):
            return make(text.format(name=name, error=said))
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
        error.sqlstate is None or error.sqlstate.startswith(_CUT_STATES)
    ):
        return errors.Unreachable(_CUT.format(name=name, error=said))
    return None
