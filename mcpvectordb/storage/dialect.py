"""What readers must know of the engine behind a connection: SQLite, or PostgreSQL.

Most statements that read are the same in both. A published database has the tables of many files,
so a name of a library is one of an origin there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeGuard

import apsw

from mcpvectordb import filters
from mcpvectordb.errors import InvalidInput


@dataclass(frozen=True, slots=True, eq=False)
class SqlDialect:
    """The parts of statements that differ.

    filters   how conditions are compiled
    root      SQL of the folder that the library of document `d` follows, or NULL
    path      SQL of the path of document `d`, where it is stored
    origins   SQL of the origin of document `d`, memory `x` and vector `v`, where there are several
    metadata  the column of metadata that conditions are about
    raw       SQL of the numbers of a user's vector where its embedding does not hold them
    explain   what stands before a statement so that its plan is returned
    """

    filters: filters.FilterDialect
    root: str
    path: str = ""
    origins: dict[str, str] = field(default_factory=dict)
    metadata: str = "metadata"
    raw: str = "NULL"
    explain: str = "EXPLAIN QUERY PLAN"


SQLITE = SqlDialect(filters.SQLITE, "(SELECT root FROM libraries WHERE name = d.library)")


class DialectConnection:
    """A connection to another engine than SQLite, which says so."""

    dialect: SqlDialect


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


def dialect_of(sql: apsw.Connection) -> SqlDialect:
    """The dialect of a connection."""
    return sql.dialect if isinstance(sql, DialectConnection) else SQLITE
