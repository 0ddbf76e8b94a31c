"""A connection to PostgreSQL that readers use as they use one to SQLite.

Statements have ? for their bindings, results are plain rows, JSON stays text, and an embedding is
the bytes of its float32 numbers, as in the file.
"""

from __future__ import annotations

import logging
import re
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import apsw
import psycopg
from psycopg import errors as undefined
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.types import TypeInfo
from psycopg.types.string import StrBinaryDumper, TextBinaryLoader

from mcpvectordb.errors import Damaged, InvalidInput, ReadOnly, quoted
from mcpvectordb.filters.postgres import POSTGRES
from mcpvectordb.metadata import decode, decode_list, encode, storable
from mcpvectordb.postgres.values import from_text, to_text
from mcpvectordb.storage import deadline
from mcpvectordb.storage.dialect import DialectConnection, SqlDialect

_log = logging.getLogger(__name__)
_MARK = re.compile(r"'[^']*'|\"[^\"]*\"|\?(\d*)")

DIALECT = SqlDialect(
    POSTGRES,
    "(SELECT root FROM libraries l WHERE l.origin = d.origin AND l.name = d.library)",
    path="d.path",
    origins={
        "document": "(SELECT name FROM origins WHERE key = d.origin)",
        "context": "(SELECT name FROM origins WHERE key = x.origin)",
        "vector": "(SELECT name FROM origins WHERE key = v.origin)",
    },
    metadata="fields",
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
        self._rows, self._next = rows, 0

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self

    def __next__(self) -> tuple[Any, ...]:
        if self._next == len(self._rows):
            raise StopIteration
        self._next += 1
        return self._rows[self._next - 1]

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


class Session(DialectConnection):
    """One connection; `exec_trace` is called with each statement, if it is set.

    `kept` is what the statements of one transaction share.
    """

    dialect = DIALECT

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection, self.kept = connection, dict[Any, Any]()
        self.exec_trace: Callable[[Any, str, Any], object] | None = None
        equip(connection)

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
        except (undefined.UndefinedTable, undefined.UndefinedColumn, undefined.UndefinedFunction):
            # The schema is known to be ours: it is something that only files have.
            raise ReadOnly(NOT_PUBLISHED) from None

    def __getattr__(self, name: str) -> NoReturn:
        """Raise ReadOnly for the methods of SQLite's connections that only writers call."""
        if hasattr(apsw.Connection, name):
            raise ReadOnly(NOT_PUBLISHED)
        raise AttributeError(name)


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
    except (Damaged, InvalidInput):
        return False
    return True


def _is_list(text: str) -> bool:
    try:
        return all(storable(each, "text") == each for each in decode_list(text))
    except (Damaged, InvalidInput):
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

    return _MARK.sub(put, statement).encode()


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


class _TextDumper(StrBinaryDumper):
    """Text as it is stored."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(to_text(obj))


def equip(connection: psycopg.Connection[Any]) -> None:
    """Let a connection send text as text, and return JSON and embeddings as the file does."""
    connection.prepare_threshold = None  # plans depend on what is asked for
    adapters = connection.adapters
    adapters.register_dumper(str, _TextDumper)
    for name in ("text", "json"):
        adapters.register_loader(name, _TextLoader)
    vector = TypeInfo.fetch(connection, "vector")
    if vector is not None:
        adapters.register_loader(vector.oid, _EmbeddingLoader)


def bound_vector(embedding: bytes) -> str:
    """The numbers of a float32 embedding as pgvector reads them."""
    return str(array("f", embedding).tolist())
