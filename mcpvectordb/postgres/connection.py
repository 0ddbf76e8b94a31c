"""A PostgreSQL database: connections, errors in the words of this library, and readers' sessions.

A `Session` is used as a connection to SQLite is: statements have ? for their bindings, results are
plain rows, JSON stays text, and an embedding is the bytes of its float32 numbers, as in the file.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
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
        with self.translated():
            connection = self._connection()
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


# --- sessions

_log = logging.getLogger(__name__)
_BINDING = re.compile(r"'[^']*'|\"[^\"]*\"|\?(\d*)")

# Dates that there are, in the forms of `dates.own`.
_DAY = (
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    "|02-(0[1-9]|1[0-9]|2[0-8]))"
)
_LEAP_DAY = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29"
_TIME = "([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?"
_OFFSET = "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_NAMED = "(d.fields ->> 'date')"
_WHOLE = f"left({_NAMED} || '-01-01', 10)"
_EXACT = f"regexp_replace({_NAMED}, '([.][0-9]{{6}})[0-9]+', '\\1')"  # not rounded
_OWN_DATE = (
    f"CASE WHEN left({_NAMED}, 4) IN ('0000', '0001', '9999') THEN NULL "
    f"WHEN {_NAMED} ~ '^[0-9]{{4}}(-(0[1-9]|1[0-2]))?$' THEN {_WHOLE} || 'T00:00:00.000000+00:00' "
    f"WHEN {_NAMED} ~ '^([0-9]{{4}}-{_DAY}|{_LEAP_DAY}){_TIME}{_OFFSET}?)?$' THEN to_char("
    f"CASE WHEN {_NAMED} ~ '{_OFFSET}$' AND length({_NAMED}) > 10 "
    f"THEN {_EXACT}::timestamptz AT TIME ZONE 'UTC' ELSE {_EXACT}::timestamp END, "
    """'YYYY-MM-DD"T"HH24:MI:SS.US+00:00') END"""
)

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
    own_date=_OWN_DATE,
    raw="e.raw",
    explain="EXPLAIN",
)


NOT_PUBLISHED = (
    "a published database has what is searched, and not what only files have, such as their "
    "history: ask the file that it came from, or change it there and run `mcpvectordb publish`"
)


class FetchedRows:
    """The rows of a statement, with the methods of apsw's cursor that readers use."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = iter(rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self

    def __next__(self) -> tuple[Any, ...]:
        return next(self._rows)

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row; None after the last."""
        return next(self, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The rows that are left."""
        return list(self)

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

    def execute(self, statement: str, bindings: Sequence[Any] | None = None) -> FetchedRows:
        """Run one statement within the deadline of the read."""
        deadline.check()
        if self.exec_trace is not None:
            self.exec_trace(None, statement, bindings)
        try:
            with psycopg.RawCursor(self.connection) as cursor:
                cursor.execute(numbered(statement), tuple(bindings or ()), binary=True)
                found = cursor.fetchall()
                return FetchedRows(
                    readable([each.name for each in cursor.description or ()], found)
                )
        except (postgres.UndefinedTable, postgres.UndefinedColumn, postgres.UndefinedFunction):
            # The schema is known to be ours: it is something that only files have.
            raise errors.ReadOnly(NOT_PUBLISHED) from None

    def executemany(self, statement: str, bindings: Iterable[Any]) -> FetchedRows:
        """Raise ReadOnly: a session only reads."""
        raise errors.ReadOnly(NOT_PUBLISHED)

    def changes(self) -> int:
        """None are made in a session."""
        return 0

    total_changes = last_insert_rowid = changes


def readable(columns: Sequence[str], rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows in which JSON that nobody could have stored in a file is empty; that is logged.

    The constraints of the schema keep out most of it. The rest (numbers of thousands of digits,
    half of a surrogate pair …) must not end the searches of all who may see the row.
    """
    for place, column in enumerate(columns):
        if column not in _JSON:
            continue
        check, empty = _JSON[column]
        for at, row in enumerate(rows):
            if row[place] is None or check(row[place]):
                continue
            rows[at] = (*row[:place], empty, *row[place + 1 :])
            _log.warning(
                "%s that was published cannot be read, and is shown as empty: publish its file "
                "again (%s)",
                column,
                quoted(row[place]),
            )
    return rows


def _is_metadata(text: str) -> bool:
    try:
        encode(decode(text))
    except (errors.Damaged, errors.InvalidInput):
        return False
    return True


def _is_list(text: str) -> bool:
    try:
        return all(storable(each, "text") == each for each in decode_list(text))
    except (errors.Damaged, errors.InvalidInput):
        return False


_JSON = {
    "metadata": (_is_metadata, "{}"),
    "headings": (_is_list, "[]"),
    "ignore": (_is_list, "[]"),
}


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
        numbers = array("f", bytes(data)[4:])
        if sys.byteorder == "little":
            numbers.byteswap()
        return numbers.tobytes()


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
    return str(array("f", embedding).tolist())


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
