"""Vectors of a file as they are published: their numbers as a vector, or as they are in the file"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import apsw

from mcpvectordb.postgres import staged
from mcpvectordb.postgres.connection import Connection
from mcpvectordb.postgres.differences import Differences, State, digest
from mcpvectordb.postgres.publication import Batch, Publication, batches, gone_batches, states

MOST_NUMBERS = 16_000  # of a vector of pgvector
_SELECT = (
    "SELECT v.key, v.store, v.dimension, v.namespace, v.id, v.metadata, v.stamp FROM vectors v "
)


class VectorsToPublish:
    """The vectors of the file; none if only some libraries are published."""

    def __init__(self, publication: Publication) -> None:
        self._publication, self._origin = publication, publication.origin

    def local(self, sql: apsw.Connection) -> Iterator[State]:
        """The vectors of the file; one whose numbers change gets another stamp."""
        if self._publication.libraries is None:
            for key, *values in sql.execute(f"{_SELECT} ORDER BY v.key"):
                yield State(self._origin.id(key), (digest(*values),))

    def remote(self, sql: Connection) -> Iterator[State]:
        """The vectors that are published."""
        yield from states(
            sql,
            "SELECT key, row_digest FROM vectors WHERE origin = %s ORDER BY key",
            self._origin,
        )

    def batches(self, sql: Connection, found: Differences) -> Iterator[Batch]:
        """What to write, then what to remove."""
        for items in batches(sorted([*found.added, *found.changed])):
            yield Batch(items)
        yield from gone_batches(found.gone)

    def write(self, local: apsw.Connection, remote: Connection, batch: Batch) -> None:
        """Write vectors, in place of those that are published under their keys."""
        keys = [each.key for each in batch.items]
        remote.execute("DELETE FROM vectors WHERE key = ANY(%s)", ([*batch.gone, *keys],))
        own = json.dumps([self._origin.own(key) for key in keys])
        staged.put(remote, staged.VECTORS, self._rows(local, own))
        staged.put(remote, staged.VECTOR_EMBEDDINGS, self._embeddings(local, own))

    def _rows(self, sql: apsw.Connection, keys: str) -> Iterator[list[Any]]:
        for key, store, *values, metadata, stamp in sql.execute(
            f"{_SELECT} WHERE v.key IN (SELECT value FROM json_each(?)) ORDER BY v.key", (keys,)
        ):
            said = digest(store, *values, metadata, stamp)
            ids = [self._origin.id(key), self._origin.key, self._origin.id(store)]
            yield [*ids, *values, metadata, metadata, said]

    def _embeddings(self, sql: apsw.Connection, keys: str) -> Iterator[list[Any]]:
        for key, store, dimension, raw in sql.execute(
            "SELECT v.key, v.store, v.dimension, e.embedding FROM vectors v "
            "JOIN vector_embeddings e ON e.vector = v.key "
            "WHERE v.key IN (SELECT value FROM json_each(?)) ORDER BY v.key",
            (keys,),
        ):
            ids = [self._origin.id(key), self._origin.key, self._origin.id(store)]
            yield [*ids, dimension, *numbers(raw, dimension)]


def numbers(raw: bytes, dimension: int) -> tuple[bytes | None, bytes | None]:
    """The float32 numbers of a vector, if PostgreSQL can have them; its own, unless they are it."""
    import numpy as np

    single = len(raw) == 4 * dimension
    with np.errstate(over="ignore"):
        near = np.frombuffer(raw, "<f4" if single else "<f8").astype("<f4")
    fits = dimension <= MOST_NUMBERS and bool(np.isfinite(near).all())
    return near.tobytes() if fits else None, None if fits and single else raw
