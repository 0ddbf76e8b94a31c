"""Who owns the schema: a role that nobody can log in as, wherever such a role can be made.

Functions that run with the owner's rights (SECURITY DEFINER) can then do nothing that is not about
the schema, whoever published first. Members of the role administer it.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import psycopg
from psycopg import sql as names

from mcpvectordb.errors import quoted
from mcpvectordb.postgres.connection import Connection

_OWNER = (
    "SELECT r.rolname, r.rolcanlogin OR r.rolsuper, r.rolsuper, pg_has_role(r.oid, 'USAGE') "
    "FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner WHERE n.nspname = 'mcpvectordb'"
)
# It has no rights but those on the schema.
_SUITS = (
    "SELECT NOT (rolcanlogin OR rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls "
    "OR rolreplication OR EXISTS (SELECT FROM pg_auth_members m WHERE m.member = r.oid)) "
    "FROM pg_roles r WHERE rolname = %s"
)
# Sequences of columns go with their table.
_RELATIONS = (
    "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'mcpvectordb'::regnamespace "
    "AND c.relkind IN ('r', 'v', 'S') AND c.relowner <> %s AND NOT EXISTS (SELECT FROM "
    "pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid "
    "AND d.deptype IN ('i', 'a') AND d.refclassid = 'pg_class'::regclass)"
)
_ROUTINES = (
    "SELECT p.proname, pg_get_function_identity_arguments(p.oid) FROM pg_proc p "
    "WHERE p.pronamespace = 'mcpvectordb'::regnamespace AND p.proowner <> %s"
)


class SchemaOwner(NamedTuple):
    """The role that owns the schema; whether it could log in, and whether this session is it."""

    name: str
    may_log_in: bool
    is_superuser: bool
    is_own: bool

    def notice(self, database: str) -> str:
        """What an administrator should do about it; "" if nothing."""
        if not self.may_log_in:
            return ""
        role = role_name(database)
        return (
            f"the role {quoted(self.name)}, which can log in, owns the schema mcpvectordb: let an "
            f'administrator run CREATE ROLE "{role}"; GRANT "{role}" TO "{self.name}"; the next '
            "publish by that role makes it the owner"
        )


def found(sql: Connection) -> SchemaOwner:
    """The owner of the schema."""
    row: Any = sql.execute(_OWNER).fetchone()
    return SchemaOwner(*row)


def role_name(database: str) -> str:
    """The name of the role that is to own the schema of a database: roles belong to all of them."""
    name = f"mcpvectordb_owner_{database}"
    if len(name.encode()) < 64:
        return name
    return f"mcpvectordb_owner_{hashlib.sha256(database.encode()).hexdigest()[:32]}"


def can_settle(sql: Connection) -> bool:
    """Whether the owner may log in and this session has its rights, so that `settle` may help."""
    owner = found(sql)
    return owner.may_log_in and owner.is_own


def settle(sql: Connection) -> None:
    """Give the schema, and all in it, to a role that nobody can log in as, if that is possible.

    The owner before becomes a member of that role, so it can do what it could. A role that can make
    no other role needs one that an administrator has made and granted to it.
    """
    before = found(sql)
    role = role_name(sql.info.dbname)
    if not before.is_own:
        return
    try:
        with sql.transaction():
            if before.may_log_in:
                _appoint(sql, role, before)
            _hand_over(sql, found(sql).name)
    except (psycopg.errors.InsufficientPrivilege, _NotPossible):
        return  # `notice` says so


class _NotPossible(Exception):
    pass


def _appoint(sql: Connection, role: str, before: SchemaOwner) -> None:
    """Make the role, if there is none, and make it the owner of the schema itself."""
    identifier, former = names.Identifier(role), names.Identifier(before.name)
    known: Any = sql.execute(_SUITS, (role,)).fetchone()
    if known is None:
        able: Any = sql.execute(
            "SELECT rolcreaterole OR rolsuper FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
        if not able[0]:
            raise _NotPossible
        sql.execute(names.SQL("CREATE ROLE {} NOLOGIN").format(identifier))
    elif not known[0]:
        raise _NotPossible
    usable = "SELECT pg_has_role(%s, %s, 'USAGE')"
    if not before.is_superuser:
        member: Any = sql.execute(usable, (before.name, role)).fetchone()
        if not member[0]:
            sql.execute(names.SQL("GRANT {} TO {}").format(identifier, former))
            member = sql.execute(usable, (before.name, role)).fetchone()
        if not member[0]:
            raise _NotPossible
    sql.execute(names.SQL("ALTER SCHEMA mcpvectordb OWNER TO {}").format(identifier))


def _hand_over(sql: Connection, owner: str) -> None:
    """Give all that is in the schema to its owner."""
    identifier = names.Identifier(owner)
    key: Any = sql.execute("SELECT oid FROM pg_roles WHERE rolname = %s", (owner,)).fetchone()
    for (name,) in sql.execute(_RELATIONS, key).fetchall():
        sql.execute(
            names.SQL("ALTER TABLE mcpvectordb.{} OWNER TO {}").format(
                names.Identifier(str(name)), identifier
            )
        )
    for name, arguments in sql.execute(_ROUTINES, key).fetchall():
        sql.execute(
            names.SQL("ALTER ROUTINE mcpvectordb.{}({}) OWNER TO {}").format(
                names.Identifier(str(name)),
                names.SQL(str(arguments)),
                identifier,
            )
        )
