"""What an origin has beside its items: its model, libraries with their notes, stores of vectors.

There is little of it, so it is read and compared as a whole, and written anew where it differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import apsw

from mcpvectordb.index.models import ModelRow
from mcpvectordb.postgres.connection import Connection
from mcpvectordb.postgres.origins import Origin
from mcpvectordb.postgres.publication import Publication
from mcpvectordb.postgres.values import to_text

_LIBRARIES = "name, root, pattern, ignore, description, created_at"


class Catalogue(NamedTuple):
    """Rows of libraries, of their notes and of stores, without the origin."""

    libraries: list[tuple[Any, ...]]
    notes: list[tuple[Any, ...]]
    stores: list[tuple[Any, ...]]


def model_key(sql: Connection, model: ModelRow) -> int:
    """The number of a model, which origins share that use the same one."""
    row = sql.execute(
        "SELECT model_key(%s, %s, %s)",
        (to_text(model.name), to_text(model.digest), model.dimension),
    ).fetchone()
    return int(str(row[0])) if row else 0


def local(sql: apsw.Connection, publication: Publication) -> Catalogue:
    """The catalogue of a file, with keys as they are published."""
    chosen, origin = publication.libraries, publication.origin
    libraries = [
        row
        for row in sql.execute(f"SELECT {_LIBRARIES} FROM libraries ORDER BY name")
        if chosen is None or row[0] in chosen
    ]
    named = {row[0] for row in libraries}
    notes = sql.execute("SELECT library, path, text FROM library_notes ORDER BY library, path")
    stores = sql.execute(
        "SELECT key, name, metric FROM stores WHERE ? ORDER BY key", (chosen is None,)
    )
    return Catalogue(
        [_stored(row) for row in libraries],
        [_stored(row) for row in notes if row[0] in named],
        [(origin.id(int(str(key))), *_stored(others)) for key, *others in stores],
    )


def remote(sql: Connection, origin: Origin) -> Catalogue:
    """The catalogue that is published."""

    def rows(statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in sql.execute(statement.encode(), (origin.key,))]

    return Catalogue(
        rows(f"SELECT {_LIBRARIES} FROM libraries WHERE origin = %s ORDER BY name"),
        rows("SELECT library, path, text FROM library_notes WHERE origin = %s ORDER BY 1, 2"),
        rows("SELECT key, name, metric FROM stores WHERE origin = %s ORDER BY key"),
    )


def write(sql: Connection, origin: Origin, before: Catalogue, after: Catalogue) -> None:
    """Bring a published catalogue up to date; vectors of stores that are gone go with them."""
    if before[:2] != after[:2]:
        sql.execute("DELETE FROM libraries WHERE origin = %s", (origin.key,))
        _insert(sql, f"libraries (origin, {_LIBRARIES})", origin, after.libraries)
        _insert(sql, "library_notes (origin, library, path, text)", origin, after.notes)
    gone = {row[0] for row in before.stores} - {row[0] for row in after.stores}
    sql.execute("DELETE FROM stores WHERE key = ANY(%s)", (sorted(gone),))
    known = {row[0] for row in before.stores}
    changed = [row for row in after.stores if row not in before.stores]
    for key, name, metric in (row for row in changed if row[0] in known):
        sql.execute("UPDATE stores SET name = %s, metric = %s WHERE key = %s", (name, metric, key))
    new = [row for row in changed if row[0] not in known]
    _insert(sql, "stores (origin, key, name, metric)", origin, new)


def _insert(sql: Connection, into: str, origin: Origin, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        marks = ", ".join(["%s"] * (len(rows[0]) + 1))
        with sql.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {into} VALUES ({marks})".encode(),
                [(origin.key, *row) for row in rows],
            )


def _stored(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(to_text(each) if isinstance(each, str) else each for each in row)
