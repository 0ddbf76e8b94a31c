"""The schema `mcpvectordb` of a PostgreSQL database: made and migrated here, one version at a time.

A migration is a file migrations/NNN_name.sql; the version is the number of those that were run.
After them all rights are granted anew (`rights`), and the schema gets its owner (`owner`). All of
it is one transaction under a lock, so several publishers may begin at the same time.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
from psycopg import sql as names

from mcpvectordb import errors
from mcpvectordb.postgres import owner, rights
from mcpvectordb.postgres.connection import OLDEST_PGVECTOR, SCHEMA, Connection, Server

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
        if known == VERSION and not owner.can_settle(sql):
            return
    with server.writing() as sql:
        sql.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        known = version(sql)
        _refuse_newer(server, known)
        if not known:
            _found(sql, server)
        for migration in MIGRATIONS[known:]:
            sql.execute(migration.read_bytes())
        if known < VERSION:
            sql.execute("UPDATE schema_version SET version = %s", (VERSION,))
            rights.renew(sql)
        owner.settle(sql)


def notice(server: Server) -> str:
    """What an administrator should do about the schema's owner; "" if nothing."""
    with server.reading() as sql:
        return owner.found(sql).notice(sql.info.dbname)


def _found(sql: Connection, server: Server) -> None:
    """Make the extension and an empty schema."""
    _ensure_pgvector(sql, server)
    sql.execute(names.SQL("CREATE SCHEMA {}").format(names.Identifier(SCHEMA)))
    sql.execute("CREATE TABLE mcpvectordb.schema_version (version integer NOT NULL)")
    sql.execute("INSERT INTO mcpvectordb.schema_version VALUES (0)")


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
