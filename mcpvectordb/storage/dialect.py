"""What readers must know of the engine behind a connection: SQLite, or PostgreSQL.

Most statements that read are the same in both. A published database has the tables of many files,
so a name of a library is one of an origin there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard

import apsw

from mcpvectordb.errors import InvalidInput
from mcpvectordb.filters import dialect as filter_dialect


@dataclass(frozen=True, slots=True, eq=False)
class SqlDialect:
    """The parts of statements that differ.

    filters   how conditions are compiled
    root      SQL of the folder that the library of document `d` follows or was ingested from, or
              NULL
    folders   SQL of the folders that it was ingested from so far (`libraries.ingested_from`)
    of_root   the columns of documents on which these two depend
    path      SQL of the path of document `d`, where it is stored
    origins   SQL of the origin of document `d`, memory `x` and vector `v`, where there are several
    metadata  the column of metadata that conditions are about
    own_date  SQL of the date that document `d` gives itself (`dates.own`), or NULL
    raw       SQL of the numbers of a user's vector where its embedding does not hold them
    explain   what stands before a statement so that its plan is returned
    """

    filters: filter_dialect.FilterDialect
    root: str
    folders: str = "NULL"
    of_root: str = "library"
    path: str = ""
    origins: dict[str, str] = field(default_factory=dict)
    metadata: str = "metadata"
    own_date: str = (
        # Most documents have none, and are not parsed.
        "CASE WHEN instr(d.metadata, '\"date\"') THEN own_date(d.metadata ->> '$.date') END"
    )
    raw: str = "NULL"
    explain: str = "EXPLAIN QUERY PLAN"


_FOLDERS = (
    "FROM settings WHERE name = 'folders:' || d.library "
    "AND CASE WHEN json_valid(value) THEN json_type(value, '$[0]') = 'text' END"
)
SQLITE = SqlDialect(
    filter_dialect.SQLITE,
    "coalesce((SELECT root FROM libraries WHERE name = d.library), "
    f"(SELECT value ->> '$[0]' {_FOLDERS}))",
    folders=f"(SELECT value {_FOLDERS})",
)


class SqlRows(Protocol):
    """The rows that a statement returns, read one by one or all at once."""

    def __iter__(self) -> Iterator[Any]: ...

    def __next__(self) -> Any: ...

    def fetchone(self) -> Any:
        """The next row; None after the last."""

    def fetchall(self) -> list[Any]:
        """The rows that are left."""

    @property
    def get(self) -> Any:
        """The only value of the first row, or the row if it has several; None if there is none."""


class Sql(Protocol):
    """A connection in a transaction, to either engine. That to PostgreSQL never writes."""

    dialect: SqlDialect
    exec_trace: Any

    @property
    def may_roll_back(self) -> bool:
        """Whether what it reads includes what its transaction has written itself."""

    def execute(self, statement: str, bindings: Any = None, /) -> SqlRows:
        """Run one statement, whose bindings are marked by ?."""

    def executemany(self, statement: str, bindings: Iterable[Any], /) -> SqlRows:
        """Run one statement once for each row of bindings."""

    def changes(self) -> int:
        """How many rows the last statement has changed."""

    def total_changes(self) -> int:
        """How many rows were changed since the connection was opened."""

    def last_insert_rowid(self) -> int:
        """The key of the row that was inserted last."""


class FileConnection(apsw.Connection):
    """A connection to a file, or to a database in memory."""

    dialect: SqlDialect = SQLITE

    @property
    def may_roll_back(self) -> bool:
        """Whether what it reads includes what its transaction has written itself."""
        return self.txn_state("main") == apsw.SQLITE_TXN_WRITE


# The scheme in any case, also as SQLAlchemy writes it (postgresql+psycopg).
DATABASE_URL = re.compile(r"\s*postgres(?:ql)?(?:\+\w+)?://", re.IGNORECASE)
_URL = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]+://")


def is_database_url(path: object) -> TypeGuard[str]:
    """Whether a path names a PostgreSQL database rather than a file.

    Raises InvalidInput for any other URL, which it does not repeat: it may have a password.
    """
    if not isinstance(path, str):
        return False
    if DATABASE_URL.match(path):
        return True
    if _URL.match(path):
        raise InvalidInput(
            "this URL names no database that can be opened: a database is a file, or "
            "postgresql://user:password@host/name"
        )
    return False
