"""The schema: how it is made and migrated, and exactly which rows sqlite_schema may have.

A migration is a file migrations/NNN_name.sql; the version of a file (the lowest 8 bits of `PRAGMA
user_version`, see `log`) is the number of migrations that it has seen. vec0 tables and the indexes
of metadata keys come and go with the data, so the rows that are expected depend on which of them a
file has.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from pathlib import Path

import apsw

from mcpvectordb.storage import vec0
from mcpvectordb.storage.log import Mark

APPLICATION_ID = 0x4D435644  # "MCVD"
MIGRATIONS = tuple(sorted(Path(__file__).with_name("migrations").glob("*.sql")))
VERSION = len(MIGRATIONS)

RECORDED = Path(__file__).with_name("schema.json")
"""The rows of a new file, as migrations make them, which costs 15 ms of CPU."""

_KEY_INDEX = re.compile(r'CREATE INDEX "context_key_([A-Za-z0-9_.-]{1,64})" ON contexts .*')

Row = tuple[object, ...]
"""(type, name, tbl_name, sql) of sqlite_schema."""

# What ANALYZE leaves in any file. Every other row must be one that this module makes.
STATISTICS: frozenset[Row] = frozenset(
    ("table", name, name, f"CREATE TABLE {name}({columns})")
    for name, columns in (
        ("sqlite_stat1", "tbl,idx,stat"),
        ("sqlite_stat4", "tbl,idx,neq,nlt,ndlt,sample"),
    )
)


def expected_rows(version: int, rows: frozenset[Row]) -> frozenset[Row]:
    """The rows of a sound file of this version with the vec0 tables and key indexes of `rows`."""
    found = [vec0.STATEMENT.fullmatch(str(row[3])) for row in rows]
    tables = frozenset((match[1], int(match[2])) for match in found if match)
    indexes = (_KEY_INDEX.fullmatch(str(row[3])) for row in rows)
    keys = frozenset(match[1] for match in indexes if match)
    if version == VERSION and len({key.lower() for key in keys}) == len(keys):
        # Another version of SQLite may write its shadow tables differently: then they are made.
        sound = recorded_rows() | made_rows(0, tables, frozenset())
        sound |= {("index", f"context_key_{key}", "contexts", key_index(key)) for key in keys}
        if rows == sound:
            return sound
    return made_rows(version, tables, keys)


@functools.cache
def recorded_rows() -> frozenset[Row]:
    """The rows of a file of this version without vec0 tables and key indexes."""
    return frozenset(map(tuple, json.loads(RECORDED.read_text("utf-8"))))


def key_index(key: str) -> str:
    """The statement that creates the index of a metadata key of memories.

    The key has nothing but letters, digits, and _ . - in it.
    """
    value = f"json_extract(folded, '$.\"{key}\"')"
    return (
        f'CREATE INDEX "context_key_{key}" ON contexts ({value}, created_at) '
        f"WHERE {value} IS NOT NULL"
    )


def migrate(connection: apsw.Connection, version: int) -> None:
    """Take the schema from `version` to the next one, inside the caller's transaction."""
    connection.execute(MIGRATIONS[version].read_text("utf-8"))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    mark = Mark.of(connection.execute("PRAGMA user_version").get)._replace(version=version + 1)
    connection.execute(f"PRAGMA user_version = {mark.user_version}")


@functools.lru_cache(maxsize=64)
def made_rows(
    version: int, vector_tables: frozenset[tuple[str, int]], keys: frozenset[str]
) -> frozenset[Row]:
    """The rows of a schema that is created in memory for comparison."""
    scratch = apsw.Connection(":memory:")
    vec0.load(scratch)
    for step in range(version):
        migrate(scratch, step)
    statements = [vec0.create_statement(name, dimension) for name, dimension in vector_tables]
    for statement in [*statements, *(key_index(key) for key in keys)]:
        with contextlib.suppress(apsw.SQLError):  # what cannot be created is not expected
            scratch.execute(statement)
    rows = frozenset(scratch.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"))
    scratch.close()
    return rows
