"""The vectors that users brought along, ranked in PostgreSQL.

Origins may have stores of the same name, which are then one store to readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from mcpvectordb.errors import InvalidInput, quoted
from mcpvectordb.history.log import History
from mcpvectordb.index import Ranked, arrays
from mcpvectordb.postgres.session import bound_vector
from mcpvectordb.postgres.vector import (
    MARGIN,
    OVERFETCH,
    nearness,
    prepare_graph,
    ranked,
)
from mcpvectordb.storage.lazy import np
from mcpvectordb.vectors.store import StoreRow, VectorFilter, VectorStore

if TYPE_CHECKING:
    from mcpvectordb.index.arrays import Floats

# pgvector's distances, which ascend from the nearest; that of a dot product is negative.
_DISTANCES = {"cosine": "<=>", "dot": "<#>", "euclidean": "<->"}


class _Dimension(NamedTuple):
    """The vectors of one dimension in the stores of one name."""

    stores: tuple[int, ...]
    dimension: int
    metric: str


class PostgresVectorStore(VectorStore):
    """Ranks the tables vectors and vector_embeddings."""

    def __init__(self, history: History) -> None:
        self._history = history

    def find(self, sql: apsw.Connection, name: str) -> StoreRow | None:
        """The stores with this name; None if there is none."""
        rows: list[Any] = sql.execute(
            "SELECT key, metric FROM stores WHERE name = ? ORDER BY key", (name,)
        ).fetchall()
        kinds = sorted({metric for _, metric in rows})
        if len(kinds) > 1:
            raise InvalidInput(
                f"origins have stores {quoted(name)} that rank by {' and by '.join(kinds)}, which "
                "cannot be ranked together: search the file of one of them"
            )
        return StoreRow(rows[0][0], kinds[0], tuple(key for key, _ in rows)) if rows else None

    def nearest(
        self,
        sql: apsw.Connection,
        store: StoreRow,
        queries: Floats,
        chosen: VectorFilter,
        limit: int,
    ) -> list[Ranked]:
        """The keys of the vectors nearest to each query, with their scores, best first."""
        part = _Dimension(store.keys, queries.shape[1], store.metric)
        return [self._nearest(sql, part, query, chosen, limit) for query in queries]

    def _nearest(
        self,
        sql: apsw.Connection,
        part: _Dimension,
        query: Floats,
        chosen: VectorFilter,
        limit: int,
    ) -> Ranked:
        ids = self._candidates(sql, part, query, chosen, limit)
        rows: list[Any] = sql.execute(
            "SELECT vector, embedding, raw FROM vector_embeddings WHERE vector = ANY(?)", (ids,)
        ).fetchall()
        if not rows:
            return []
        numbers = arrays.unpacked([raw or embedding for _, embedding, raw in rows], part.dimension)
        return ranked([key for key, *_ in rows], numbers, query, part.metric, limit)

    def _candidates(
        self,
        sql: apsw.Connection,
        part: _Dimension,
        query: Floats,
        chosen: VectorFilter,
        limit: int,
    ) -> list[int]:
        """The keys among which the nearest are; those that pgvector cannot hold all are."""
        of_part = (
            "FROM vectors v JOIN vector_embeddings e ON e.vector = v.key "
            f"WHERE e.store = ANY(?) AND e.dimension = ? AND {chosen.sql}"
        )
        bindings = (list(part.stores), part.dimension, *chosen.bindings)
        held = f"SELECT v.key {of_part} AND e.embedding IS NULL"
        found = [key for (key,) in sql.execute(held, bindings)]
        vector = _held(query)
        if vector is None:  # numbers that pgvector cannot compare: all are compared here
            rows = sql.execute(f"SELECT v.key {of_part}", bindings)
            return [key for (key,) in rows]
        near: list[int] = []
        if self._has_graph(sql, part):
            near = self._by_graph(sql, part, vector, chosen, OVERFETCH * limit + MARGIN)
            if len(near) == OVERFETCH * limit + MARGIN:
                return [*found, *near]
        distance = f"e.embedding {_DISTANCES[part.metric]} ?::vector"
        rows = sql.execute(
            f"SELECT v.key {of_part} AND e.embedding IS NOT NULL ORDER BY "
            f"coalesce(nullif({distance}, 'NaN'), 1), v.key LIMIT ?",
            (*bindings, vector, limit + MARGIN),
        )
        return [*found, *(key for (key,) in rows)]

    def _has_graph(self, sql: apsw.Connection, part: _Dimension) -> bool:
        """Whether the only store of a part has a graph, and so many vectors that it pays."""
        if part.metric != "cosine" or len(part.stores) > 1:
            return False
        name = f"vector_embeddings_graph_{part.stores[0]:d}_{part.dimension:d}"
        return sql.execute("SELECT to_regclass(?)::oid", (name,)).get is not None

    def _by_graph(
        self, sql: apsw.Connection, part: _Dimension, vector: str, chosen: VectorFilter, wanted: int
    ) -> list[int]:
        prepare_graph(sql, wanted)
        rows = sql.execute(
            "SELECT e.vector FROM vector_embeddings e WHERE "
            f"e.store = {part.stores[0]:d} AND e.dimension = {part.dimension:d} AND EXISTS "
            f"(SELECT 1 FROM vectors v WHERE v.key = e.vector AND {chosen.sql}) "
            f"ORDER BY {nearness(part.dimension)} LIMIT ?",
            (*chosen.bindings, vector, wanted),
        )
        return [key for (key,) in rows]


def _held(query: Floats) -> str | None:
    """An embedding as pgvector reads it; None if it cannot hold its numbers or so many."""
    with np.errstate(over="ignore", under="ignore"):
        narrow = query.astype(np.float32)
    if len(query) > 16_000 or not np.isfinite(narrow).all():
        return None
    return bound_vector(narrow.tobytes())
