"""A PostgreSQL database: connections, errors in the words of this library, and readers' sessions.

A `Session` is used as a connection to SQLite is: statements have ? for their bindings, results are
plain rows, JSON stays text, and an embedding is the bytes of its float32 numbers, as in the file.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import psycopg
from psycopg import errors as postgres
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo, Format
from psycopg.types import TypeInfo
from psycopg.types.string import StrBinaryDumper, TextBinaryLoader

from mcpvectordb import errors
from mcpvectordb.errors import quoted
from mcpvectordb.filters.postgres import POSTGRES
from mcpvectordb.metadata import decode, decode_list, encode, storable
from mcpvectordb.storage import deadline
from mcpvectordb.storage.dialect import DATABASE_URL, SqlDialect
from mcpvectordb.storage.lazy import np

CONNECT_SECONDS = 10
# NULLS NOT DISTINCT came with 15, half floats and sign bits with pgvector 0.7.
OLDEST_SERVER, OLDEST_PGVECTOR = 150000, (0, 7)

Connection = psycopg.Connection[tuple[object, ...]]


def sql_file(name: str) -> str:
    """The SQL in a file of this folder."""
    return Path(__file__).with_name(f"{name}.sql").read_text(encoding="utf-8")


# Temporary tables come last in the search path, so that none can stand in for a table of ours.
# Until it is set, functions of whoever may create some in `public` could be meant.
_SETTLE = sql_file("settle").encode()


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
        self.closed = False

    def close(self) -> None:
        """Close all connections."""
        self.closed = True
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
        with self.outside() as connection:
            if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                yield connection
                return
            try:
                connection.execute(begin.encode())
            except psycopg.OperationalError:  # it was cut since its last use
                self._drop()
                connection = self._connection()
                connection.execute(begin.encode())
            try:
                yield connection
            finally:
                with contextlib.suppress(psycopg.OperationalError):  # it was cut
                    connection.rollback()

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """This thread's connection in a transaction, committed at the end of the block."""
        with self.outside() as connection, connection.transaction():
            yield connection

    @contextlib.contextmanager
    def outside(self) -> Iterator[Connection]:
        """This thread's connection without a transaction: each statement is its own.

        Errors of PostgreSQL are raised as those of this library.
        """
        try:
            yield self._connection()
        except psycopg.Error as error:
            raised = ours(error, self.name, self._secrets) or error
            if isinstance(raised, errors.Unreachable):
                self._drop()  # psycopg may take a cut connection for one that is still busy
            raise raised from None

    def _connection(self) -> Connection:
        if self.closed:
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
            said = " ".join(masked(str(error), self._secrets).split())
            why = "cannot be reached: is the server running there?"
            if any(each in said for each in ("password", "authentication", "no pg_hba.conf entry")):
                why = "refused the login: check the user and the password"
            raise errors.Unreachable(f"{self.name} {why} ({said:.500})") from None
        _, encoding = connection.execute(_SETTLE).fetchone() or ("", "")
        if connection.info.server_version < OLDEST_SERVER or encoding != "UTF8":
            version = connection.info.server_version
            connection.close()
            raise errors.NotOurFile(
                f"{self.name} is PostgreSQL {version // 10000} in {encoding}: PostgreSQL "
                f"{OLDEST_SERVER // 10000} or newer and a database in UTF8 are needed"
            )
        return connection


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


_CUT = ("08", "57P")  # beginnings of SQLSTATE: connection exceptions, shutdowns


def ours(error: psycopg.Error, name: str, secrets: Sequence[str] = ()) -> Exception | None:
    """The error to raise for one of PostgreSQL; None if it is none that a user can do much about.

    It repeats none of the secrets.
    """
    said = " ".join(masked(str(error), secrets).split())[:300]
    match error:
        case postgres.QueryCanceled():
            return errors.ReadTimeout(f"{name} took longer than it may; nothing was changed")
        case (
            postgres.LockNotAvailable()
            | postgres.ObjectInUse()
            | postgres.DeadlockDetected()
            | postgres.SerializationFailure()
        ):
            return errors.Busy(
                f"others kept what was asked for at {name} locked; try again ({said})"
            )
        case postgres.InsufficientPrivilege():
            return errors.ReadOnly(
                f"this role has no right to do that at {name}: have the owner run `mcpvectordb "
                f"grant` ({said})"
            )
        case postgres.ReadOnlySqlTransaction():
            return errors.ReadOnly(
                f"{name} can only be read, as a replica is: publish to the primary server ({said})"
            )
        case postgres.DiskFull() | postgres.OutOfMemory() | postgres.ConfigurationLimitExceeded():
            return errors.Unwritable(
                f"{name} has no room left; what was published before is as it was ({said})"
            )
        case postgres.UndefinedTable() | postgres.InvalidSchemaName() | postgres.UndefinedColumn():
            return errors.NotOurFile(
                f"{name} has not what is expected in its schema mcpvectordb: publish a file to it "
                f"first ({said})"
            )
        case postgres.DataCorrupted() | postgres.IndexCorrupted():
            return errors.Damaged(
                f"{name} is damaged ({said}): go back to a copy, or publish again into an empty "
                "database"
            )
        case psycopg.OperationalError() | psycopg.InterfaceError() if (
            error.sqlstate is None or error.sqlstate.startswith(_CUT)
        ):
            return errors.Unreachable(
                f"the connection to {name} was cut; the next call makes a new one ({said})"
            )
    return type(error)(said) if masked(str(error), secrets) != str(error) else None


# --- sessions

_log = logging.getLogger(__name__)
_BINDING = re.compile(r"'[^']*'|\"[^\"]*\"|\?(\d*)")

# How much of a source stands before what its path shows of it: the folder that the library was
# ingested from. Published are paths, and only the folders that libraries follow.
_BEFORE = "length(d.source) - length(d.path) + length(d.library)"

DIALECT = SqlDialect(
    POSTGRES,
    "coalesce((SELECT root FROM libraries l WHERE l.origin = d.origin AND l.name = d.library), "
    f"CASE WHEN {_BEFORE} > 0 AND substr(d.source, {_BEFORE} + 1) = "
    f"substr(d.path, length(d.library) + 1) THEN left(d.source, {_BEFORE}) END)",
    of_root="origin, library, source, path",
    path="d.path",
    origins={
        "document": "(SELECT name FROM origins WHERE key = d.origin)",
        "context": "(SELECT name FROM origins WHERE key = x.origin)",
        "vector": "(SELECT name FROM origins WHERE key = v.origin)",
    },
    metadata="fields",
    own_date=sql_file("own_date"),  # dates that there are, in the forms of `dates.own`
    raw="e.raw",
    explain="EXPLAIN",
)


NOT_PUBLISHED = (
    "a published database has what is searched, and not what only files have, such as their "
    "history: ask the file that it came from, or change it there and run `mcpvectordb publish`"
)


class SessionRows(psycopg.RawCursor[Any]):
    """The rows of a statement, with what readers use of apsw's cursor."""

    @property
    def get(self) -> Any:
        """The only value of the first row, or the row if it has several; None if there is none."""
        row = self.fetchone()
        return row[0] if row is not None and len(row) == 1 else row


class Session:
    """One connection; `exec_trace` is called with each statement, if it is set.

    `kept` is what the statements of one transaction share.
    """

    dialect = DIALECT
    may_roll_back = False  # nothing is written

    def __init__(self, connection: Connection) -> None:
        self.connection, self.kept = connection, dict[Any, Any]()
        self.exec_trace: Callable[[Any, str, Any], object] | None = None
        connection.prepare_threshold = None  # plans depend on what is asked for
        adapters = connection.adapters
        adapters.register_dumper(str, TextDumper)
        for name in ("text", "json"):
            adapters.register_loader(name, _TextLoader)
        vector = TypeInfo.fetch(connection, "vector")
        if vector is not None:
            adapters.register_loader(vector.oid, _EmbeddingLoader)

    def execute(self, statement: str, bindings: Sequence[Any] | None = None) -> SessionRows:
        """Run one statement within the deadline of the read."""
        deadline.check()
        if self.exec_trace is not None:
            self.exec_trace(None, statement, bindings)
        cursor = SessionRows(self.connection, row_factory=readable)
        try:
            return cursor.execute(numbered(statement), tuple(bindings or ()), binary=True)
        except (postgres.UndefinedTable, postgres.UndefinedColumn, postgres.UndefinedFunction):
            # The schema is known to be ours: it is something that only files have.
            raise errors.ReadOnly(NOT_PUBLISHED) from None

    def executemany(self, statement: str, bindings: Iterable[Any]) -> SessionRows:
        """Raise ReadOnly: a session only reads."""
        raise errors.ReadOnly(NOT_PUBLISHED)

    def changes(self) -> int:
        """None are made in a session."""
        return 0

    total_changes = last_insert_rowid = changes


_EMPTY = {"metadata": "{}", "headings": "[]", "ignore": "[]"}  # columns of JSON


def readable(cursor: psycopg.Cursor[Any]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Make rows in which JSON that nobody could have stored in a file is empty; that is logged.

    The constraints of the schema keep out most of it. The rest (numbers of thousands of digits,
    half of a surrogate pair …) must not end the searches of all who may see the row.
    """
    columns = [each.name for each in cursor.description or ()]
    if not _EMPTY.keys() & columns:
        return tuple

    def checked(column: str, value: Any) -> Any:
        if value is None or column not in _EMPTY:
            return value
        try:
            if column == "metadata":
                encode(decode(value))
            else:
                for each in decode_list(value):
                    storable(each, "text")
        except (errors.Damaged, errors.InvalidInput):
            _log.warning(
                "%s that was published cannot be read, and is shown as empty: publish its file "
                "again (%s)",
                column,
                quoted(value),
            )
            return _EMPTY[column]
        return value

    return lambda values: tuple(map(checked, columns, values))


@lru_cache(maxsize=512)
def numbered(statement: str) -> bytes:
    """A statement with its ? (or ?1) numbered as PostgreSQL does ($1)."""
    count = 0

    def put(match: re.Match[str]) -> str:
        nonlocal count
        if match[1] is None:
            return match[0]
        count += 1
        return f"${match[1] or count}"

    return _BINDING.sub(put, statement).encode()


class _EmbeddingLoader(Loader):
    """A vector of pgvector as the bytes of its numbers: it is sent as their count (two bytes), two
    unused bytes, and the numbers in network byte order.
    """

    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return np.frombuffer(data, ">f4", offset=4).astype("<f4").tobytes()


class _TextLoader(TextBinaryLoader):
    """Text, and JSON as text, as the file has it."""

    def load(self, data: Buffer) -> str:
        return from_text(str(super().load(data)))


class TextDumper(StrBinaryDumper):
    """Text as it is stored."""

    def dump(self, obj: str) -> Buffer | None:
        """The bytes that are sent."""
        return super().dump(to_text(obj))


def bound_vector(embedding: bytes) -> str:
    """The numbers of a float32 embedding as pgvector reads them."""
    return str(np.frombuffer(embedding, "<f4").tolist())


# --- values that PostgreSQL cannot hold as they are, and back
#
# Its texts have no U+0000, and neither have those of its JSON. The character is written as U+FDD0 0
# instead, and U+FDD0, which Unicode reserves for such uses and texts hardly ever have, as U+FDD0 1.
# So nothing is lost, and equal texts stay equal.

_ESCAPE = "\ufdd0"


def to_text(text: str) -> str:
    """A text as PostgreSQL stores it."""
    if "\0" not in text and _ESCAPE not in text:
        return text
    return text.replace(_ESCAPE, _ESCAPE + "1").replace("\0", _ESCAPE + "0")


def from_text(stored: str) -> str:
    """The text that `to_text` was given."""
    if _ESCAPE not in stored:
        return stored
    return stored.replace(_ESCAPE + "0", "\0").replace(_ESCAPE + "1", _ESCAPE)


def to_json(text: str) -> str:
    """Stored JSON for a column of type json, with its texts and keys as `to_text` writes them."""
    if "\\u0000" not in text and _ESCAPE not in text:
        return text
    return json.dumps(_escaped(json.loads(text)), ensure_ascii=False, separators=(",", ":"))


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return to_text(value)
        case dict():
            return {to_text(key): _escaped(item) for key, item in value.items()}
        case list():
            return [_escaped(item) for item in value]
    return value
