"""Who may read and publish: rights of PostgreSQL's roles, and the rows that they see.

A role needs the rights of SQL on the tables, and a row in `grants`, by which row-level security
decides which origins it sees. Names of roles and origins are never part of a statement as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Literal

from psycopg import sql as names

from mcpvectordb.errors import InvalidInput, NotFound, quoted
from mcpvectordb.metadata import storable
from mcpvectordb.postgres import origins, schema, staged
from mcpvectordb.postgres.connection import Connection, Server
from mcpvectordb.postgres.values import to_text

Right = Literal["read", "publish"]

_READ = (
    "GRANT USAGE ON SCHEMA mcpvectordb TO {}",
    "GRANT SELECT ON ALL TABLES IN SCHEMA mcpvectordb TO {}",
)
_MAINTAINED = (*(table.name for table in staged.TABLES), *staged.WORD_TABLES)
_WRITTEN = (*(table.name for table in staged.TABLES), "libraries", "library_notes", "stores")
_PUBLISH = (
    *_READ,
    f"GRANT INSERT, DELETE ON {', '.join(_WRITTEN)} TO {{}}",
    "GRANT INSERT ON origins TO {}",
    # Not of words: postings are made of these when a row is added.
    "GRANT UPDATE ON origins, documents, stores TO {}",
    "GRANT UPDATE (embeddings_digest) ON contexts TO {}",
    "GRANT INSERT ON models TO {}",
    "GRANT USAGE ON SEQUENCE origin_keys TO {}",
    "GRANT EXECUTE ON FUNCTION make_graphs TO {}",
)
_MAINTAIN = f"GRANT MAINTAIN ON {', '.join(_MAINTAINED)} TO {{}}"  # VACUUM, from 17 on


def grant(url: str, role: str, right: Right, only: Sequence[str] | None = None) -> None:
    """Let a role read, or read and publish, these origins or all of them, later ones included.

    The role must exist; only the schema's owner can do this. It replaces what was granted to the
    role before. Origins that do not exist yet are made.
    """
    _check(role, right, only)
    with closing(Server(url)) as server:
        schema.migrate(server)
        with server.writing() as sql:
            _require_role(sql, role)
            _withdraw(sql, role)
            recent = sql.info.server_version >= 170000
            statements = _READ if right == "read" else (*_PUBLISH, *([_MAINTAIN] * recent))
            for statement in statements:
                sql.execute(names.SQL(statement).format(names.Identifier(role)))
            for origin in [None] if only is None else [_origin(sql, each) for each in only]:
                sql.execute(
                    "INSERT INTO grants (role, origin, publishes) VALUES (%s, %s, %s)",
                    (role, origin, right == "publish"),
                )


def revoke(url: str, role: str) -> None:
    """Take from a role all that was granted to it."""
    _check(role, "read", None)
    with closing(Server(url)) as server:
        schema.check(server)
        with server.writing() as sql:
            _require_role(sql, role)
            _withdraw(sql, role)


def _check(role: str, right: str, only: Sequence[str] | None) -> None:
    if "\0" in storable(role, "role", blank=False):
        raise InvalidInput("role has a NUL character, which no role has")
    if right not in ("read", "publish"):
        raise InvalidInput(f"right must be read or publish, not {quoted(right)}")
    if only is not None and (isinstance(only, str) or not only):
        raise InvalidInput("only must be a list of origins, or None for all of them")
    for each in only or ():
        origins.checked_name(each)


def _require_role(sql: Connection, role: str) -> None:
    if sql.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone() is None:
        raise NotFound(
            f"there is no role {quoted(role)}: make it with CREATE ROLE … LOGIN PASSWORD … first"
        )


def _withdraw(sql: Connection, role: str) -> None:
    sql.execute("DELETE FROM grants WHERE role = %s", (role,))
    for kind in ("TABLES", "SEQUENCES", "FUNCTIONS"):
        sql.execute(
            names.SQL("REVOKE ALL ON ALL {} IN SCHEMA mcpvectordb FROM {}").format(
                names.SQL(kind), names.Identifier(role)
            )
        )
    sql.execute(
        names.SQL("REVOKE ALL ON SCHEMA mcpvectordb FROM {}").format(names.Identifier(role))
    )


def _origin(sql: Connection, name: str) -> int:
    """The key of an origin, which is made if it does not exist."""
    stored = to_text(name)
    row = sql.execute("SELECT key FROM origins WHERE name = %s", (stored,)).fetchone()
    if row is None:
        row = sql.execute(
            "INSERT INTO origins (name) VALUES (%s) RETURNING key", (stored,)
        ).fetchone()
    return int(str(row[0])) if row else 0
