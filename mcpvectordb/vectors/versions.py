"""Vectors as versions of the history; a body is the embedding as it is stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import apsw

from mcpvectordb.history.versions import LOCAL, Item, Version, body_name

SHELF = "vectors"
_SELECT = (
    "SELECT s.name, v.id, v.namespace, v.stamp, s.metric, v.dimension, v.metadata, e.embedding "
    "FROM vectors v JOIN stores s ON s.key = v.store JOIN vector_embeddings e ON e.vector = v.key"
)
_ITEM = "WHERE s.name = ? AND v.id = ? AND v.namespace = ?"


def by_key(sql: apsw.Connection, key: int) -> tuple[Version, bytes] | None:
    """The version of a stored vector, and its embedding."""
    row = sql.execute(f"{_SELECT} WHERE v.key = ?", (key,)).fetchone()
    return None if row is None else (_version(row), row[-1])


def find(sql: apsw.Connection, item: Item) -> Version | None:
    """The present version of a vector; None if there is none."""
    row = sql.execute(f"{_SELECT} {_ITEM}", item[1:]).fetchone()
    return None if row is None else _version(row)


def present(sql: apsw.Connection, stamps: Collection[int] | None = None) -> Iterator[Version]:
    """The present versions of all vectors, or of those that were changed at these stamps."""
    chosen = "" if stamps is None else " WHERE v.stamp IN (SELECT value FROM json_each(?))"
    bindings = () if stamps is None else (json.dumps(list(stamps)),)
    for row in sql.execute(f"{_SELECT}{chosen} ORDER BY v.key", bindings):
        yield _version(row)


def embedding(sql: apsw.Connection, item: Item) -> bytes:
    """The embedding of a stored vector, as it is stored; b"" without one."""
    row = sql.execute(f"{_SELECT} {_ITEM}", item[1:]).fetchone()
    return b"" if row is None else bytes(row[-1])


def _version(row: Sequence[Any]) -> Version:
    store, id, namespace, stamp, metric, dimension, metadata, values = row
    fields = {
        "dimension": dimension,
        "metadata": metadata,
        "hash": hashlib.sha256(values).hexdigest(),
        LOCAL: {"metric": metric},  # the store's, which may be another one in another file
    }
    return Version(Item(SHELF, store, id, namespace), stamp, fields, body_name(values))
