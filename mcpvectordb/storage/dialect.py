"""What readers must know of the engine behind a connection: SQLite, or PostgreSQL.

Most statements that read are the same in both. A published database has the tables of many files,
so a name of a library is one of an origin there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeGuard

import apsw

from mcpvectordb import filters


@dataclass(frozen=True, slots=True, eq=False)
class SqlDialect:
    """The parts of statements that differ.

    filters   how conditions are compiled
    root      SQL of the folder that the library of document `d` follows, or NULL
    path      SQL of the path of document `d`, where it is stored
    origins   SQL of the origin of document `d`, context `x` and vector `v`, where there are several
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


def is_database_url(path: object) -> TypeGuard[str]:
    """Whether a path names a PostgreSQL database rather than a file."""
    return isinstance(path, str) and path.startswith(("postgresql://", "postgres://"))


def dialect_of(sql: apsw.Connection) -> SqlDialect:
    """The dialect of a connection."""
    return sql.dialect if isinstance(sql, DialectConnection) else SQLITE
