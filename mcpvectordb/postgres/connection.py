"""Connections to a PostgreSQL database, and its errors translated into those of this library."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator, Sequence
from urllib.parse import quote, quote_plus

import psycopg
from psycopg import errors as postgres
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from mcpvectordb import errors
from mcpvectordb.storage.dialect import DATABASE_URL

SCHEMA = "mcpvectordb"
CONNECT_SECONDS = 10
# NULLS NOT DISTINCT came with 15, half floats and sign bits with pgvector 0.7.
OLDEST_SERVER, OLDEST_PGVECTOR = 150000, (0, 7)

Connection = psycopg.Connection[tuple[object, ...]]

# Temporary tables come last in the search path, so that none can stand in for a table of ours.
# Until it is set, functions of whoever may create some in `public` could be meant.
_SETTLE = (
    "SELECT pg_catalog.set_config('search_path', 'mcpvectordb, ' OPERATOR(pg_catalog.||) "
    "pg_catalog.quote_ident(coalesce((SELECT n.nspname::pg_catalog.text "
    "FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n "
    "ON n.oid OPERATOR(pg_catalog.=) e.extnamespace "
    "WHERE e.extname OPERATOR(pg_catalog.=) 'vector'::pg_catalog.name), 'public')) "
    "OPERATOR(pg_catalog.||) ', pg_temp', false), pg_catalog.current_setting('server_encoding')"
)


class Server:
    """The PostgreSQL database that a URL names; any number of threads may use it.

    Each thread has a connection of its own, which is made when it is needed. One that was cut is
    replaced by the next call.
    """

    def __init__(self, url: str) -> None:
        self._url = DATABASE_URL.sub("postgresql://", url, count=1)
        self.name, self._secrets = _parts(self._url)
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
            raised = ours(error, self.name, self._secrets) or error
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
        short = " ".join(masked(message, self._secrets).split())
        if "password" in short or "authentication" in short or "no pg_hba.conf entry" in short:
            return f"{self.name} refused the login: check the user and the password ({short:.500})"
        return f"{self.name} cannot be reached: is the server running there? ({short:.500})"


def masked(text: str, secrets: Sequence[str]) -> str:
    """A text without these secrets, whether they stand there as they are or as in a URL."""
    forms = {form for each in secrets for form in (each, quote(each, safe=""), quote_plus(each))}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, "***")
    return text


def _parts(url: str) -> tuple[str, tuple[str, ...]]:
    """What a URL is called in messages, which has no secrets; these secrets."""
    try:
        if _is_misread(url):
            raise psycopg.ProgrammingError
        options = [*Conninfo.parse(url.encode()), *Conninfo.get_defaults()]
        found = conninfo_to_dict(url)
    except (psycopg.Error, UnicodeError):
        raise errors.InvalidInput(
            "the URL of the database cannot be read: it has the form "
            "postgresql://user:password@host:5432/name, with special characters of its parts as "
            "%40 (@), %2F (/), %3A (:), %25 (%)"
        ) from None
    user = f"{found['user']}@" if found.get("user") else ""
    port = f":{found['port']}" if found.get("port") else ""
    place = f"{user}{found.get('host') or ''}{port}/{found.get('dbname') or ''}"
    # libpq marks the options that no form should show by a star.
    secrets = {each.val.decode() for each in options if each.val and each.dispchar == b"*"}
    return f"postgresql://{place}", tuple(secrets)


def _is_misread(url: str) -> bool:
    """Whether libpq would take a part of a password for a host, a port or a name.

    It ends the password at the first @, and begins the name at the first /, so a URL has one @ at
    most, before the first /, and then whole numbers for ports. Without a host and a user, the
    options after the ? may have more of them.
    """
    _, separator, rest = url.partition("://")
    if not separator or not DATABASE_URL.match(url):
        return False  # keywords and values
    place = re.split("[/?]", rest, maxsplit=1)[0]
    before, at, after = rest.rpartition("@")
    if not place or not at:
        ports = place
    elif "@" in before or "/" in before:
        return True
    else:
        ports = re.split("[/?]", after, maxsplit=1)[0]
    return not all(re.fullmatch(r"(\[[^\]]*\]|[^:]*)(:\d*)?", each) for each in ports.split(","))


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


def ours(error: psycopg.Error, name: str, secrets: Sequence[str] = ()) -> Exception | None:
    """The error to raise for one of PostgreSQL; None if it is none that a user can do much about.

    It repeats none of the secrets.
    """
    said = " ".join(masked(str(error), secrets).split())[:300]
    for kinds, make, text in _TRANSLATIONS:
        if isinstance(error, kinds):
            return make(text.format(name=name, error=said))
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
        error.sqlstate is None or error.sqlstate.startswith(_CUT_STATES)
    ):
        return errors.Unreachable(_CUT.format(name=name, error=said))
    return type(error)(said) if masked(str(error), secrets) != str(error) else None
