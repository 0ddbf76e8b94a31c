"""Vector search in PostgreSQL: pgvector chooses candidates, exact cosines decide.

Up to some ten thousand embeddings, of a model or of what a filter allows, pgvector compares all.
Above, its HNSW graph of half floats (or sign bits) chooses; under a filter it goes on until it has
found enough. The candidates' embeddings are read, and compared by the same code as those of a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mcpvectordb.errors import InvalidInput, quoted
from mcpvectordb.index import arrays
from mcpvectordb.index.arrays import CodedRows, Embeddings
from mcpvectordb.index.resident import EVERYTHING, Allowed, Ranked
from mcpvectordb.index.vector import EmbeddingTable, VectorIndex
from mcpvectordb.postgres.connection import bound_vector
from mcpvectordb.postgres.keyword import LISTED, allowed_one, chosen
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.lazy import np
from mcpvectordb.store import ItemFilter
from mcpvectordb.vectors.store import StoreRow, VectorStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mcpvectordb.index.arrays import Floats

MARGIN = 20  # more than are wanted: pgvector's cosines are rounded to float32
OVERFETCH = 2  # candidates of a graph per neighbour that is wanted
# Entries that a graph keeps while it searches (ef_search). Of 100,000 passages embedded by a static
# model, of 60 questions the nearest ten and hundred were found to a share of .977 and .950 by 200
# entries, .992 and .979 by 400, .997 and .991 by 800; pgvector takes up to 1,000.
LEAST_SEARCHED, MOST_SEARCHED = 800, 1_000
TESTED = 0.4  # of the most that are compared, above which the graph chooses under a filter
FILTERED_SEARCHED = 600  # at a time, under a filter: a tenth of twice as many are enough
MOST_SCANNED = 200_000  # entries that it visits under a filter before all allowed are compared
MOST_NUMBERS = 16_000  # of a vector of pgvector
HALF_FLOATS = 4_000  # dimensions that a graph of half floats takes; above, it is of sign bits


class PostgresVectorIndex(VectorIndex):
    """The embeddings of passages in a table, in groups by their model."""

    def __init__(self, table: str, *, exact_rows: int) -> None:
        super().__init__(EmbeddingTable("", table, "chunk", "model"))
        self._exact_rows = exact_rows

    def nearest(
        self, sql: Sql, group: int, embedding: bytes, allowed: Allowed, limit: int
    ) -> Ranked:
        """(id, exact cosine) of the nearest to a float32 embedding, best first."""
        query = np.frombuffer(embedding, np.float32).astype(np.float64)
        found = self.candidates(sql, group, embedding, allowed, limit, MARGIN)
        scores = arrays.cosine(found.rows, query)
        return arrays.ranked(np.array(found.ids, np.int64), scores, limit)

    def code_view(self, sql: Sql, group: int, dimension: int, allowed: Allowed) -> CodedCandidates:
        """The allowed ids, to be ranked by the codes of their embeddings, as those of a file."""
        return CodedCandidates(self, sql, group, dimension, allowed)

    def preload(self, sql: Sql, group: int, dimension: int, budget: int) -> None:
        """Nothing is kept here: the server has its own memory."""

    def _stored(
        self, sql: Sql, group: int, dimension: int, allowed: Allowed = EVERYTHING
    ) -> Iterator[list[tuple[int, bytes]]]:
        # psycopg holds all rows that a statement returns.
        within = f"AND chunk IN ({allowed.select}) " if allowed.select else ""
        last, most = -1, arrays.block_rows(dimension)
        while True:
            rows: list[Any] = sql.execute(
                f"SELECT chunk, embedding FROM {self._table} WHERE model = ? AND chunk > ? "
                f"AND vector_dims(embedding) = {dimension} {within}ORDER BY chunk LIMIT ?",
                (group, last, *allowed.bindings, most),
            ).fetchall()
            if rows:
                yield rows
            if len(rows) < most:
                return
            last = rows[-1][0]

    def candidates(
        self, sql: Sql, group: int, embedding: bytes, allowed: Allowed, limit: int, margin: int
    ) -> Embeddings:
        """The embeddings among which the nearest are, with a margin if all are compared."""
        allowed = chosen(sql, allowed, self._exact_rows, TESTED)
        within = f"AND chunk IN ({allowed.select}) " if allowed.select else ""
        vector, dimension = bound_vector(embedding), len(embedding) // 4
        wanted = (1 if allowed.conditions else OVERFETCH) * limit + MARGIN
        graph = f"{self._table}_graph_{group:d}"
        searched = FILTERED_SEARCHED if allowed.conditions else LEAST_SEARCHED
        if allowed.select != LISTED and _prepare_graph(sql, graph, wanted, searched):
            tested = f"AND {allowed_one(allowed, 'chunk').sql} " if allowed.conditions else within
            rows = sql.execute(
                f"SELECT chunk, embedding FROM {self._table} WHERE model = {group:d} {tested}"
                f"ORDER BY {nearness(dimension)} LIMIT ?",
                (*allowed.bindings, vector, wanted),
            ).fetchall()
            if len(rows) == wanted:
                return Embeddings.of(rows, dimension)
        # The cosine of a zero embedding is 0 here, and no number to pgvector.
        rows = sql.execute(
            f"SELECT chunk, embedding FROM {self._table} WHERE model = ? "
            f"AND vector_dims(embedding) = {dimension} {within}"
            "ORDER BY coalesce(nullif(embedding <=> ?::vector, 'NaN'), 1), chunk LIMIT ?",
            (group, *allowed.bindings, vector, limit + margin),
        ).fetchall()
        return Embeddings.of(rows, dimension)


class CodedCandidates:
    """What may be found for one query, by the codes of embeddings.

    Embeddings choose the nearest, with a margin, because codes order them a little otherwise.
    """

    def __init__(
        self, index: PostgresVectorIndex, sql: Sql, group: int, dimension: int, allowed: Allowed
    ) -> None:
        self._index, self._sql, self._allowed = index, sql, allowed
        self._group, self._dimension = group, dimension
        self._known = self._read([])

    def best(self, query: Floats, limit: int) -> Ranked:
        """(id, cosine) of the nearest by their codes, best first."""
        embedding = query.astype(np.float32).tobytes()
        found = self._index.candidates(
            self._sql, self._group, embedding, self._allowed, limit, limit + MARGIN
        )
        self._known = CodedRows.of(found.ids, found.rows)
        return self._known.best(query, limit)

    def rows(self, ids: NDArray[np.int64]) -> CodedRows:
        """The codes of those of the given ids that have one; those of candidates are known."""
        known = np.isin(self._known.ids, ids)
        others = self._read(np.setdiff1d(ids, self._known.ids).tolist())
        return CodedRows(
            np.concatenate([self._known.ids[known], others.ids]),
            np.concatenate([self._known.codes[known], others.codes]),
            np.concatenate([self._known.lengths[known], others.lengths]),
        )

    def _read(self, ids: Sequence[int]) -> CodedRows:
        found = self._index.embeddings(self._sql, self._group, self._dimension, ids)
        return CodedRows.of(found.ids, found.rows)


def _prepare_graph(sql: Sql, name: str, wanted: int, least: int = LEAST_SEARCHED) -> bool:
    """Whether there is such a graph: they are made where there is too much to compare it all.

    This transaction's searches of it go on until they have found so many.
    """
    if sql.execute("SELECT to_regclass(?)::oid", (name,)).get is None:
        return False
    searched = min(MOST_SEARCHED, max(least, wanted))
    sql.execute(
        f"SELECT set_config('hnsw.ef_search', '{searched}', true), "
        "set_config('hnsw.iterative_scan', 'relaxed_order', true), "
        f"set_config('hnsw.max_scan_tuples', '{MOST_SCANNED}', true)"
    )
    return True


def nearness(dimension: int) -> str:
    """The distance by which a graph is ordered, exactly as its index has it."""
    if dimension <= HALF_FLOATS:
        return (
            f"l2_normalize(embedding)::halfvec({dimension}) <=> "
            f"l2_normalize(?::vector)::halfvec({dimension})"
        )
    return (
        f"binary_quantize(embedding)::bit({dimension}) <~> "
        f"binary_quantize(?::vector)::bit({dimension})"
    )


# --- the vectors that users brought along
#
# Origins may have stores of the same name, which are then one store to readers.

# pgvector's distances, which ascend from the nearest; that of a dot product is negative.
_DISTANCES = {"cosine": "<=>", "dot": "<#>", "euclidean": "<->"}


class PostgresVectorStore(VectorStore):
    """Ranks the tables vectors and vector_embeddings."""

    def __init__(self) -> None:
        """Without the parts that write."""

    def named(self, sql: Sql, name: str) -> StoreRow | None:
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
        self, sql: Sql, store: StoreRow, query: Floats, chosen: ItemFilter, limit: int
    ) -> Ranked:
        """The keys of the vectors nearest to a query, with their scores, best first."""
        rows: list[Any] = sql.execute(
            "SELECT vector, embedding, raw FROM vector_embeddings WHERE vector = ANY(?)",
            (self._candidates(sql, store, query, chosen, limit),),
        ).fetchall()
        numbers = arrays.unpacked([raw or embedding for _, embedding, raw in rows], len(query))
        scores = arrays.METRICS[store.metric](numbers, query.astype(np.float64))
        return arrays.ranked(np.array([key for key, *_ in rows], np.int64), scores, limit)

    def _candidates(
        self, sql: Sql, store: StoreRow, query: Floats, chosen: ItemFilter, limit: int
    ) -> list[int]:
        """The keys among which the nearest are; those that pgvector cannot hold all are."""
        dimension = len(query)
        with np.errstate(over="ignore", under="ignore"):
            narrow = query.astype(np.float32)
        of_dimension = (
            "SELECT v.key FROM vectors v JOIN vector_embeddings e ON e.vector = v.key "
            f"WHERE e.store = ANY(?) AND e.dimension = ? AND {chosen.condition}"
        )
        bindings = (list(store.keys), dimension, *chosen.bindings)
        if dimension > MOST_NUMBERS or not np.isfinite(narrow).all():
            # Numbers that pgvector cannot compare: all are compared here.
            return [key for (key,) in sql.execute(of_dimension, bindings)]
        vector = bound_vector(narrow.tobytes())
        held = sql.execute(f"{of_dimension} AND e.embedding IS NULL", bindings)
        found = [key for (key,) in held]
        graph = f"vector_embeddings_graph_{store.keys[0]:d}_{dimension:d}"
        wanted = OVERFETCH * limit + MARGIN
        alone = store.metric == "cosine" and len(store.keys) == 1
        if alone and _prepare_graph(sql, graph, wanted):
            near = sql.execute(
                "SELECT e.vector FROM vector_embeddings e WHERE "
                f"e.store = {store.keys[0]:d} AND e.dimension = {dimension:d} AND EXISTS "
                f"(SELECT 1 FROM vectors v WHERE v.key = e.vector AND {chosen.condition}) "
                f"ORDER BY {nearness(dimension)} LIMIT ?",
                (*chosen.bindings, vector, wanted),
            ).fetchall()
            if len(near) == wanted:
                return [*found, *(key for (key,) in near)]
        distance = f"e.embedding {_DISTANCES[store.metric]} ?::vector"
        rows = sql.execute(
            f"{of_dimension} AND e.embedding IS NOT NULL ORDER BY "
            f"coalesce(nullif({distance}, 'NaN'), 1), v.key LIMIT ?",
            (*bindings, vector, limit + MARGIN),
        )
        return [*found, *(key for (key,) in rows)]
