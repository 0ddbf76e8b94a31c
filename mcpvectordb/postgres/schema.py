"""The schema `mcpvectordb`: made and migrated version by version, its owner, and what roles may do.

A migration is a file migrations/NNN_name.sql; the version is the number of those that were run.
After them all rights are granted anew, and the schema gets its owner. All of it is one transaction
under a lock, so several publishers may begin at the same time.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any, Literal, NamedTuple

import psycopg
from psycopg import sql as names

from mcpvectordb import errors
from mcpvectordb.errors import quoted
from mcpvectordb.postgres import staged
from mcpvectordb.postgres.connection import OLDEST_PGVECTOR, Connection, Server, sql_file

MIGRATIONS = tuple(sorted(Path(__file__).with_name("migrations").glob("*.sql")))
VERSION = len(MIGRATIONS)
_LOCK = 0x4D435644  # "MCVD", the number of the advisory lock of migrations


def version(sql: Connection) -> int:
    """The version of the schema; 0 if there is none."""
    row = sql.execute("SELECT to_regclass('mcpvectordb.schema_version') IS NOT NULL").fetchone()
    if row is None or not row[0]:
        return 0
    found = sql.execute("SELECT version FROM mcpvectordb.schema_version").fetchone()
    return int(str(found[0])) if found else 0


def check(server: Server) -> None:
    """Raise unless the database has the schema of this version of the library."""
    with server.reading() as sql:
        known = version(sql)
    if not known:
        raise errors.NotOurFile(
            f"nothing was published to {server.name} yet: run `mcpvectordb publish` first"
        )
    _refuse_newer(server, known)
    if known < VERSION:
        raise errors.NotOurFile(
            f"the schema of {server.name} is of version {known}, this mcpvectordb needs {VERSION}: "
            "let its owner publish once with this version"
        )


def migrate(server: Server) -> None:
    """Make the schema, or bring it to the present version, and give it to a fitting owner."""
    with server.outside() as sql:
        known = version(sql)
        _refuse_newer(server, known)
        if known == VERSION and not ((owner := _owner(sql)).may_log_in and owner.is_own):
            return  # the schema is what it should be, or somebody else must give it to its owner
    with server.writing() as sql:
        sql.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        known = version(sql)
        _refuse_newer(server, known)
        if not known:
            _ensure_pgvector(sql, server)
            sql.execute("CREATE SCHEMA mcpvectordb")
            sql.execute("CREATE TABLE mcpvectordb.schema_version (version integer NOT NULL)")
            sql.execute("INSERT INTO mcpvectordb.schema_version VALUES (0)")
        for migration in MIGRATIONS[known:]:
            sql.execute(migration.read_bytes())
        if known < VERSION:
            sql.execute("UPDATE schema_version SET version = %s", (VERSION,))
            renew(sql)
        _settle(sql)


def notice(server: Server) -> str:
    """What an administrator should do about the schema's owner; "" if nothing."""
    with server.reading() as sql:
        owner, role = _owner(sql), role_name(sql.info.dbname)
    if not owner.may_log_in:
        return ""
    return (
        f"the role {quoted(owner.name)}, which can log in, owns the schema mcpvectordb: let an "
        f'administrator run CREATE ROLE "{role}"; GRANT "{role}" TO "{owner.name}"; the next '
        "publish by that role makes it the owner"
    )


def _ensure_pgvector(sql: Connection, server: Server) -> None:
    try:
        with sql.transaction():
            sql.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except (psycopg.errors.UndefinedFile, psycopg.errors.FeatureNotSupported):
        raise errors.NotOurFile(
            f"{server.name} has no pgvector, which is needed: install it on the server (the "
            "package is called postgresql-18-pgvector or pgvector), then try again"
        ) from None
    except psycopg.errors.InsufficientPrivilege:
        raise errors.ReadOnly(
            f"the extension vector is not active in {server.name}: let an administrator run "
            "CREATE EXTENSION vector there, then try again"
        ) from None
    row = sql.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
    found = str(row[0]) if row else "0"
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST_PGVECTOR:
        raise errors.NotOurFile(
            f"{server.name} has pgvector {found}; "
            f"{'.'.join(map(str, OLDEST_PGVECTOR))} or newer is needed"
        )


def _refuse_newer(server: Server, known: int) -> None:
    if known > VERSION:
        raise errors.NewerFile(
            f"the schema of {server.name} is of version {known}, written by a newer mcpvectordb "
            f"than this one, which knows {VERSION}: update mcpvectordb"
        )


# --- who owns it: a role that nobody can log in as, wherever such a role can be made
#
# Functions that run with the owner's rights (SECURITY DEFINER) can then do nothing that is not
# about the schema, whoever published first. Members of the role administer it.

_OWNED_BY = (
    "SELECT r.rolname, r.rolcanlogin OR r.rolsuper, r.rolsuper, pg_has_role(r.oid, 'USAGE') "
    "FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner WHERE n.nspname = 'mcpvectordb'"
)
# It has no rights but those on the schema.
_SUITS = (
    "SELECT NOT (rolcanlogin OR rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls "
    "OR rolreplication OR EXISTS (SELECT FROM pg_auth_members m WHERE m.member = r.oid)) "
    "FROM pg_roles r WHERE rolname = %s"
)


class SchemaOwner(NamedTuple):
    """The role that owns the schema; whether it could log in, and whether this session is it."""

    name: str
    may_log_in: bool
    is_superuser: bool
    is_own: bool


def _owner(sql: Connection) -> SchemaOwner:
    """The owner of the schema."""
    row: Any = sql.execute(_OWNED_BY).fetchone()
    return SchemaOwner(*row)


def role_name(database: str) -> str:
    """The name of the role that is to own the schema of a database: roles belong to all of them."""
    name = f"mcpvectordb_owner_{database}"
    if len(name.encode()) < 64:
        return name
    return f"mcpvectordb_owner_{hashlib.sha256(database.encode()).hexdigest()[:32]}"


def _settle(sql: Connection) -> None:
    """Give the schema, and all in it, to a role that nobody can log in as, if that is possible.

    The owner before becomes a member of that role, so it can do what it could. A role that can make
    no other role needs one that an administrator has made and granted to it.
    """
    before = _owner(sql)
    if not before.is_own:
        return
    # Where it is not possible, `notice` says so.
    with contextlib.suppress(psycopg.errors.InsufficientPrivilege), sql.transaction():
        if before.may_log_in:
            _appoint(sql, role_name(sql.info.dbname), before)
        sql.execute(sql_file("hand_over").encode())


def _appoint(sql: Connection, role: str, before: SchemaOwner) -> None:
    """Make the role, if there is none, and make it the owner of the schema itself.

    Raises psycopg's Rollback, which ends the transaction around it, if that is not possible.
    """
    identifier, former = names.Identifier(role), names.Identifier(before.name)
    known: Any = sql.execute(_SUITS, (role,)).fetchone()
    if known is None:
        able: Any = sql.execute(
            "SELECT rolcreaterole OR rolsuper FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
        if not able[0]:
            raise psycopg.Rollback
        sql.execute(names.SQL("CREATE ROLE {} NOLOGIN").format(identifier))
    elif not known[0]:
        raise psycopg.Rollback
    usable = "SELECT pg_has_role(%s, %s, 'USAGE')"
    if not before.is_superuser:
        member: Any = sql.execute(usable, (before.name, role)).fetchone()
        if not member[0]:
            sql.execute(names.SQL("GRANT {} TO {}").format(identifier, former))
            member = sql.execute(usable, (before.name, role)).fetchone()
        if not member[0]:
            raise psycopg.Rollback
    sql.execute(names.SQL("ALTER SCHEMA mcpvectordb OWNER TO {}").format(identifier))


# --- what roles may do: all of it is granted here, by name
#
# After every migration each role but the owner loses everything, PUBLIC included, and those that
# `grants` names get these rights again. So nothing is left that an earlier version, a default of
# PostgreSQL or one of the database gave. Names of roles are never part of a statement as text.

Right = Literal["read", "publish"]

_WRITTEN = (*staged.TABLES, "libraries", "library_notes", "stores")
_READ_TABLES = (
    *_WRITTEN,
    *staged.WORD_TABLES,
    *"totals origins models grants schema_version published_documents".split(),
    *"unpublished_documents document_pending context_pending library_skipped settings".split(),
)
_READ_FUNCTIONS = tuple(
    "readable_origins() json_each(text) number(text) numeral(text) canonical_json(json) "
    "no_members() folded(text) folded(json)".split()
)


def _of(things: tuple[str, ...]) -> str:
    return ", ".join(f"mcpvectordb.{each}" for each in things)


_READ = (
    "GRANT USAGE ON SCHEMA mcpvectordb TO {}",
    f"GRANT SELECT ON {_of(_READ_TABLES)} TO {{}}",
    f"GRANT EXECUTE ON FUNCTION {_of(_READ_FUNCTIONS)} TO {{}}",
)
_PUBLISH = (
    *_READ,
    f"GRANT INSERT, DELETE ON {_of(_WRITTEN)} TO {{}}",
    # Neither keys and names, nor words: postings are made of these when a row is added.
    "GRANT UPDATE (file, publisher, model, libraries, published_at) ON mcpvectordb.origins TO {}",
    f"GRANT UPDATE ({', '.join(staged.changed('documents'))}) ON mcpvectordb.documents TO {{}}",
    "GRANT UPDATE (embeddings_digest) ON mcpvectordb.contexts TO {}",
    "GRANT UPDATE (name, metric) ON mcpvectordb.stores TO {}",
    "GRANT EXECUTE ON FUNCTION mcpvectordb.writable_origins(), "
    "mcpvectordb.model_key(text, text, integer), mcpvectordb.make_graphs(bigint) TO {}",
)
# Of those who may publish under any name.
_FOUND = (
    "GRANT INSERT (name, file) ON mcpvectordb.origins TO {}",
    "GRANT USAGE ON SEQUENCE mcpvectordb.origin_keys TO {}",
)
# VACUUM, from 17 on.
_MAINTAIN = f"GRANT MAINTAIN ON {_of((*staged.TABLES, *staged.WORD_TABLES))} TO {{}}"

_WITHDRAW = (
    *(
        f"REVOKE ALL ON ALL {kind} IN SCHEMA mcpvectordb FROM {{}} CASCADE"
        for kind in ("TABLES", "SEQUENCES", "ROUTINES")
    ),
    "REVOKE ALL ON SCHEMA mcpvectordb FROM {} CASCADE",
)


def give(sql: Connection, role: str, right: Right, *, anything: bool) -> None:
    """Let a role read, or read and publish, `anything` or certain origins."""
    statements = list(_READ if right == "read" else _PUBLISH)
    if right == "publish":
        statements += [_MAINTAIN] if sql.info.server_version >= 170000 else []
        statements += _FOUND if anything else ()
    for statement in statements:
        sql.execute(names.SQL(statement).format(names.Identifier(role)))


def withdraw(sql: Connection, role: str | None) -> None:
    """Take everything from a role, or (None) from PUBLIC."""
    grantee = names.SQL("PUBLIC") if role is None else names.Identifier(role)
    for statement in _WITHDRAW:
        sql.execute(names.SQL(statement).format(grantee))


def renew(sql: Connection) -> None:
    """Give each role what `grants` says of it, and nothing else to anybody."""
    withdraw(sql, None)
    for (role,) in sql.execute(sql_file("grantees").encode()).fetchall():
        withdraw(sql, str(role))
    granted: list[Any] = sql.execute(
        "SELECT role, bool_or(publishes), bool_or(publishes AND origin IS NULL) "
        "FROM mcpvectordb.grants WHERE role IN (SELECT rolname FROM pg_roles) GROUP BY role"
    ).fetchall()
    for role, publishes, anything in granted:
        give(sql, str(role), "publish" if publishes else "read", anything=bool(anything))
