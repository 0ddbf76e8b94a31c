"""Vector search in PostgreSQL: pgvector chooses candidates, exact cosines decide.

Up to some ten thousand embeddings, of a model or of what a filter allows, pgvector compares all.
Above, its HNSW graph of half floats (or sign bits) chooses; under a filter it goes on until it has
found enough. The candidates' embeddings are read, and compared by the same code as those of a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import apsw

from mcpvectordb.index import EVERYTHING, Allowed, Ranked, arrays, metrics
from mcpvectordb.index.codes import CodedRows
from mcpvectordb.index.vector import Embeddings, VectorIndex
from mcpvectordb.postgres.chosen import chosen, is_list
from mcpvectordb.postgres.session import bound_vector
from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mcpvectordb.index.arrays import Floats

MARGIN = 20  # more than are wanted: pgvector's cosines are rounded to float32
OVERFETCH = 2  # candidates of a graph per neighbour that is wanted
# Entries that a graph keeps while it searches (ef_search). Of 100,000 passages embedded by a static
# model, of 60 questions the nearest ten and hundred were found to a share of .977 and .950 by 200
# entries, .992 and .979 by 400, .997 and .991 by 800; pgvector takes up to 1,000.
LEAST_SEARCHED, MOST_SEARCHED = 800, 1_000
MOST_SCANNED = 200_000  # entries that it visits under a filter before all allowed are compared
HALF_FLOATS = 4_000  # dimensions that a graph of half floats takes; above, it is of sign bits


class PostgresVectorIndex(VectorIndex):
    """The embeddings of passages in a table, in groups by their model."""

    def __init__(self, table: str, *, exact_rows: int) -> None:
        self._table, self._exact_rows = table, exact_rows

    def nearest(
        self, sql: apsw.Connection, group: int, embedding: bytes, allowed: Allowed, limit: int
    ) -> Ranked:
        """(id, exact cosine) of the nearest to a float32 embedding, best first."""
        query = np.frombuffer(embedding, np.float32)
        found = self.candidates(sql, group, embedding, allowed, limit, MARGIN)
        return ranked(found.ids, found.rows, query, "cosine", limit)

    def code_view(
        self, sql: apsw.Connection, group: int, dimension: int, allowed: Allowed
    ) -> CodedCandidates:
        """The allowed ids, to be ranked by the codes of their embeddings, as those of a file."""
        return CodedCandidates(self, sql, group, dimension, allowed)

    def preload(self, sql: apsw.Connection, group: int, dimension: int, budget: int) -> None:
        """Nothing is kept here: the server has its own memory."""

    def embeddings(
        self, sql: apsw.Connection, group: int, dimension: int, ids: Sequence[int]
    ) -> Embeddings:
        """The embeddings of the given ids that have one."""
        statement = (
            f"SELECT chunk, embedding FROM {self._table} WHERE model = ? AND chunk = ANY(?) "
            f"AND vector_dims(embedding) = {dimension} ORDER BY chunk"
        )
        rows = sql.execute(statement, (group, list(ids))) if ids else ()
        return _embeddings(rows, dimension)

    def blocks(
        self, sql: apsw.Connection, group: int, dimension: int, allowed: Allowed = EVERYTHING
    ) -> Iterator[tuple[list[int], NDArray[np.float64]]]:
        """(ids, embeddings) of a group by id, some at a time."""
        within = f"AND chunk IN ({allowed.select}) " if allowed.select else ""
        last = -1
        while True:
            rows: list[Any] = sql.execute(
                f"SELECT chunk, embedding FROM {self._table} WHERE model = ? AND chunk > ? "
                f"AND vector_dims(embedding) = {dimension} {within}ORDER BY chunk LIMIT ?",
                (group, last, *allowed.bindings, arrays.block_rows(dimension)),
            ).fetchall()
            if not rows:
                return
            last = rows[-1][0]
            yield [id for id, _ in rows], arrays.unpacked([each for _, each in rows], dimension)

    def candidates(
        self,
        sql: apsw.Connection,
        group: int,
        embedding: bytes,
        allowed: Allowed,
        limit: int,
        margin: int,
    ) -> Embeddings:
        """The embeddings among which the nearest are, with a margin if all are compared."""
        allowed = chosen(sql, allowed, self._exact_rows)
        if not is_list(allowed) and self._has_graph(sql, group):
            wanted = OVERFETCH * limit + MARGIN
            found = self._by_graph(sql, group, embedding, allowed, wanted)
            if len(found.ids) == wanted:
                return found
        return self._by_comparison(sql, group, embedding, allowed, limit + margin)

    def _has_graph(self, sql: apsw.Connection, group: int) -> bool:
        """Whether a model has a graph, which is made when it has too many embeddings to compare."""
        name = f"{self._table}_graph_{group:d}"
        return sql.execute("SELECT to_regclass(?)::oid", (name,)).get is not None

    def _by_comparison(
        self, sql: apsw.Connection, group: int, embedding: bytes, allowed: Allowed, wanted: int
    ) -> Embeddings:
        within = f"AND chunk IN ({allowed.select}) " if allowed.select else ""
        # The cosine of a zero embedding is 0 here, and no number to pgvector.
        rows = sql.execute(
            f"SELECT chunk, embedding FROM {self._table} WHERE model = ? "
            f"AND vector_dims(embedding) = {len(embedding) // 4} {within}"
            "ORDER BY coalesce(nullif(embedding <=> ?::vector, 'NaN'), 1), chunk LIMIT ?",
            (group, *allowed.bindings, bound_vector(embedding), wanted),
        )
        return _embeddings(rows, len(embedding) // 4)

    def _by_graph(
        self, sql: apsw.Connection, group: int, embedding: bytes, allowed: Allowed, wanted: int
    ) -> Embeddings:
        prepare_graph(sql, wanted)
        within = f"AND chunk IN ({allowed.select}) " if allowed.select else ""
        rows = sql.execute(
            f"SELECT chunk, embedding FROM {self._table} WHERE model = {group:d} {within}"
            f"ORDER BY {nearness(len(embedding) // 4)} LIMIT ?",
            (*allowed.bindings, bound_vector(embedding), wanted),
        )
        return _embeddings(rows, len(embedding) // 4)


class CodedCandidates:
    """What may be found for one query, by the codes of embeddings.

    Embeddings choose the nearest, with a margin, because codes order them a little otherwise.
    """

    def __init__(
        self,
        index: PostgresVectorIndex,
        sql: apsw.Connection,
        group: int,
        dimension: int,
        allowed: Allowed,
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
        )

    def _read(self, ids: Sequence[int]) -> CodedRows:
        found = self._index.embeddings(self._sql, self._group, self._dimension, ids)
        return CodedRows.of(found.ids, found.rows)


def _embeddings(rows: Iterable[Any], dimension: int) -> Embeddings:
    """The embeddings of (id, embedding) rows."""
    found = list(rows)
    if not found:
        return Embeddings([], np.empty((0, dimension)))
    return Embeddings(
        [id for id, _ in found], arrays.unpacked([each for _, each in found], dimension)
    )


def prepare_graph(sql: apsw.Connection, wanted: int) -> None:
    """Let this transaction's searches of graphs go on until they have found so many."""
    searched = min(MOST_SEARCHED, max(LEAST_SEARCHED, wanted))
    sql.execute(
        f"SELECT set_config('hnsw.ef_search', '{searched}', true), "
        "set_config('hnsw.iterative_scan', 'relaxed_order', true), "
        f"set_config('hnsw.max_scan_tuples', '{MOST_SCANNED}', true)"
    )


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


def ranked(
    ids: Sequence[int], rows: NDArray[np.float64], query: Floats, metric: str, limit: int
) -> Ranked:
    """(id, score) of the best of some embeddings, by a metric."""
    scores = metrics.METRICS[metric](rows, query.astype(np.float64))
    places = metrics.best(np.array(ids, np.int64), scores, limit)
    return [(ids[place], float(scores[place])) for place in places]
