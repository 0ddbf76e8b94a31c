"""Who may read and publish: rights of PostgreSQL's roles, and the rows that they see.

A role needs the rights of SQL on the tables, and a row in `grants`, by which row-level security
decides which origins it sees. Names of origins are never part of a statement as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from mcpvectordb.errors import InvalidInput, NotFound, quoted
from mcpvectordb.metadata import storable
from mcpvectordb.postgres import origins, rights, schema
from mcpvectordb.postgres.connection import Connection, Server
from mcpvectordb.postgres.rights import Right
from mcpvectordb.postgres.values import to_text


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
            rights.give(sql, role, right, anything=only is None)
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
    rights.withdraw(sql, role)


def _origin(sql: Connection, name: str) -> int:
    """The key of an origin, which is made if it does not exist."""
    stored = to_text(name)
    row = sql.execute("SELECT key FROM origins WHERE name = %s", (stored,)).fetchone()
    if row is None:
        row = sql.execute(
            "INSERT INTO origins (name) VALUES (%s) RETURNING key", (stored,)
        ).fetchone()
    return int(str(row[0])) if row else 0
