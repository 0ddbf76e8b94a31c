"""What roles may do with the schema: all of it is granted here, by name.

After every migration each role but the owner loses everything, PUBLIC included, and those that
`grants` names get these rights again. So nothing is left that an earlier version, a default of
PostgreSQL or one of the database gave. Names of roles are never part of a statement as text.
"""

from __future__ import annotations

from typing import Any, Literal

from psycopg import sql as names

from mcpvectordb.postgres import staged
from mcpvectordb.postgres.connection import Connection

Right = Literal["read", "publish"]

_FILLED = tuple(table.name for table in staged.TABLES)
_WRITTEN = (*_FILLED, "libraries", "library_notes", "stores")
_VIEWS = (
    "published_documents",
    "unpublished_documents",
    "document_pending",
    "context_pending",
    "library_skipped",
    "settings",
)
_READ_TABLES = (
    *_WRITTEN,
    *staged.WORD_TABLES,
    "totals",
    "origins",
    "models",
    "grants",
    "schema_version",
    *_VIEWS,
)
_READ_FUNCTIONS = (
    "readable_origins()",
    "json_each(text)",
    "number(text)",
    "numeral(text)",
    "canonical_json(json)",
    "no_members()",
    "folded(text)",
    "folded(json)",
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
    f"GRANT UPDATE ({', '.join(staged.changed(staged.DOCUMENTS))}) "
    "ON mcpvectordb.documents TO {}",
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
_MAINTAIN = f"GRANT MAINTAIN ON {_of((*_FILLED, *staged.WORD_TABLES))} TO {{}}"

_WITHDRAW = (
    *(
        f"REVOKE ALL ON ALL {kind} IN SCHEMA mcpvectordb FROM {{}} CASCADE"
        for kind in ("TABLES", "SEQUENCES", "ROUTINES")
    ),
    "REVOKE ALL ON SCHEMA mcpvectordb FROM {} CASCADE",
)
# The roles that have a right on the schema or anything in it.
_GRANTEES = """
SELECT DISTINCT r.rolname FROM (
    SELECT nspowner, nspacl FROM pg_namespace WHERE nspname = 'mcpvectordb'
    UNION ALL SELECT relowner, relacl FROM pg_class
    WHERE relnamespace = 'mcpvectordb'::regnamespace
    UNION ALL SELECT c.relowner, t.attacl FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid
    WHERE c.relnamespace = 'mcpvectordb'::regnamespace
    UNION ALL SELECT proowner, proacl FROM pg_proc
    WHERE pronamespace = 'mcpvectordb'::regnamespace
) AS held (owner, acl), aclexplode(held.acl) AS a JOIN pg_roles r ON r.oid = a.grantee
WHERE a.grantee <> held.owner
"""


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
    for (role,) in sql.execute(_GRANTEES).fetchall():
        withdraw(sql, str(role))
    granted: list[Any] = sql.execute(
        "SELECT role, bool_or(publishes), bool_or(publishes AND origin IS NULL) "
        "FROM mcpvectordb.grants WHERE role IN (SELECT rolname FROM pg_roles) GROUP BY role"
    ).fetchall()
    for role, publishes, anything in granted:
        give(sql, str(role), "publish" if publishes else "read", anything=bool(anything))
