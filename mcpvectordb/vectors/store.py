"""The tables of vectors, and the vector index over them.

The tables vectors and vector_embeddings are the truth. A part (one dimension of one store) whose
store ranks by cosine gets a vec0 table once it has some hundred rows; every other part is always
compared exactly. All methods work inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

import apsw

from mcpvectordb.index import Allowed, Ranked, arrays
from mcpvectordb.index.arrays import Group
from mcpvectordb.index.columns import ColumnSource
from mcpvectordb.index.memory import Memory
from mcpvectordb.index.tuning import DEFAULT, Tuning
from mcpvectordb.index.vector import VectorIndex
from mcpvectordb.records import Condition
from mcpvectordb.storage import vec0

if TYPE_CHECKING:
    from mcpvectordb.index.arrays import Floats


FILTERED = ColumnSource(
    rows="vectors v",
    of_group="v.part = {group}",
    id="v.key",
    fields={"namespace": "v.namespace"},
    metadata="v.metadata",
)


@dataclass(frozen=True, slots=True)
class StoreRow:
    """A row of the table stores."""

    key: int
    metric: str


@dataclass(frozen=True, slots=True)
class VectorFilter:
    """A condition on vectors `v` in SQL with its bindings, and the conditions it is made of.

    The SQL is "1" if there are none.
    """

    sql: str
    bindings: tuple[Any, ...]
    conditions: tuple[Condition, ...]

    def allowed(self, part: int) -> Allowed:
        """The keys of the vectors of a part that fulfil the condition."""
        return (
            Allowed()
            if self.sql == "1"
            else Allowed(
                f"SELECT v.key FROM vectors v WHERE v.part = ? AND {self.sql}",
                (part, *self.bindings),
                self.conditions,
            )
        )


def part(store: int, dimension: int) -> int:
    """The number of a part, equal to the generated column `part` of the table vectors."""
    return store * 100_000 + dimension


class VectorStore:
    """Writes and ranks the tables vectors and vector_embeddings."""

    def __init__(self, memory: Memory | None = None, tuning: Tuning = DEFAULT) -> None:
        self._tuning = tuning
        self._index = VectorIndex(
            "vector", "vector_values", "key", "part", memory, FILTERED, tuning
        )

    def put(
        self,
        sql: apsw.Connection,
        store: StoreRow,
        namespace: str,
        ids: Sequence[str],
        metadata: Sequence[str],
        groups: Sequence[Group],
    ) -> int:
        """Write vectors with distinct ids; returns how many replaced one (these keep their key)."""
        coded = self._coded(sql, store, groups)
        keys, known = _claim(sql, store.key, namespace, ids, metadata, groups)
        self._remove_codes(sql, known, coded)
        for group in groups:
            chosen = [keys[position] for position in group.positions]
            sql.executemany(
                "INSERT INTO vector_embeddings (vector, embedding) VALUES (?, ?) "
                "ON CONFLICT (vector) DO UPDATE SET embedding = excluded.embedding",
                zip(chosen, arrays.packed(group.rows), strict=True),
            )
            if (own := part(store.key, group.dimension)) in coded:
                self._index.add_many(sql, own, chosen, group.rows)
        return len(known)

    def remove(self, sql: apsw.Connection, store: StoreRow, namespace: str, id: str) -> bool:
        """Delete a vector; returns whether it existed."""
        known = list(_known(sql, store.key, namespace, [id]).values())
        self._remove_codes(sql, known, self._index.coded(sql))
        sql.executemany("DELETE FROM vectors WHERE key = ?", ((key,) for key, _ in known))
        return bool(known)

    def nearest(
        self,
        sql: apsw.Connection,
        store: StoreRow,
        queries: Floats,
        chosen: VectorFilter,
        limit: int,
    ) -> list[Ranked]:
        """The keys of the vectors nearest to each query, with their scores, best first."""
        own = part(store.key, queries.shape[1])
        found = self._index.nearest_each(
            sql, own, queries, chosen.allowed(own), limit, store.metric
        )
        return [neighbours.ranked for neighbours in found]

    def others(
        self,
        sql: apsw.Connection,
        store: StoreRow,
        dimension: int,
        chosen: VectorFilter,
        limit: int,
    ) -> list[int]:
        """The keys of the first vectors of other dimensions."""
        return [
            key
            for (key,) in sql.execute(
                "SELECT v.key FROM vectors v JOIN vector_embeddings e ON e.vector = v.key "
                f"WHERE v.store = ? AND v.dimension <> ? AND {chosen.sql} "
                "ORDER BY v.key LIMIT ?",
                (store.key, dimension, *chosen.bindings, limit),
            )
        ]

    # Maintenance.

    def optimize(self, sql: apsw.Connection) -> None:
        """Free what deleted rows still occupy inside the vec0 tables."""
        self.rebuild(sql)

    def rebuild(self, sql: apsw.Connection) -> None:
        """Create the vec0 tables again, for the parts that need one."""
        for coded in self._index.coded(sql):
            self._index.drop(sql, coded)
        for store, dimension in _parts(sql):
            if self._pays(sql, store, dimension):
                self._index.fill(sql, part(store.key, dimension), dimension)

    def problems(self, sql: apsw.Connection) -> Iterator[str]:
        """The problems of the vectors and their codes, one sentence each."""
        for (key,) in sql.execute(
            "SELECT key FROM vectors WHERE key NOT IN (SELECT vector FROM vector_embeddings)"
        ):
            yield f"vectors: {key} has no embedding"
        coded = set(self._index.coded(sql))
        for store, dimension in _parts(sql):
            own = part(store.key, dimension)
            yield from (self._index.problems if own in coded else self._index.embedding_problems)(
                sql, own, dimension
            )
            coded.discard(own)
        for left in sorted(coded):  # parts without a single vector
            yield from self._index.problems(sql, left, left % 100_000)

    def _coded(self, sql: apsw.Connection, store: StoreRow, groups: Sequence[Group]) -> list[int]:
        """The parts that have a vec0 table; those that are about to grow large get theirs now."""
        coded = self._index.coded(sql)
        for group in groups:
            own = part(store.key, group.dimension)
            if own not in coded and self._pays(sql, store, group.dimension, len(group.positions)):
                self._index.fill(sql, own, group.dimension)
                coded.append(own)
        return coded

    def _remove_codes(
        self, sql: apsw.Connection, known: Sequence[tuple[int, int]], coded: Sequence[int]
    ) -> None:
        for own in coded:
            self._index.remove(sql, own, [key for key, its in known if its == own])

    def _pays(self, sql: apsw.Connection, store: StoreRow, dimension: int, more: int = 0) -> bool:
        """Whether a part, with so many vectors more, is faster to search with codes."""
        if store.metric != "cosine" or dimension > vec0.MAX_DIMENSION:
            return False
        most = min(self._tuning.coded_rows, self._tuning.exact_rows)
        rows = f"SELECT 1 FROM vectors WHERE part = ? LIMIT {most + 1}"
        count = sql.execute(f"SELECT count(*) FROM ({rows})", (part(store.key, dimension),)).get
        return bool(count + more > most)


def _parts(sql: apsw.Connection) -> list[tuple[StoreRow, int]]:
    return [
        (StoreRow(key, metric), dimension)
        for key, metric, dimension in sql.execute(
            "SELECT DISTINCT s.key, s.metric, v.dimension "
            "FROM vectors v JOIN stores s ON s.key = v.store ORDER BY v.part"
        )
    ]


def _claim(
    sql: apsw.Connection,
    store: int,
    namespace: str,
    ids: Sequence[str],
    metadata: Sequence[str],
    groups: Sequence[Group],
) -> tuple[list[int], list[tuple[int, int]]]:
    """Insert or update the row of each id: the key of each, and (key, old part) of known ones.

    All ids are inserted at once under new keys; only if some existed are these looked up and
    updated.
    """
    dimensions = [0] * len(ids)
    for group in groups:
        dimension = group.dimension
        for position in group.positions:
            dimensions[position] = dimension
    last = sql.execute("SELECT seq FROM sqlite_sequence WHERE name = 'vectors'").get or 0
    keys = list(range(last + 1, last + 1 + len(ids)))
    before = sql.total_changes()
    sql.executemany(
        "INSERT INTO vectors (key, store, namespace, id, dimension, metadata) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (store, namespace, id) DO NOTHING",
        zip(keys, repeat(store), repeat(namespace), ids, dimensions, metadata),
    )
    if sql.total_changes() - before == len(ids):  # the usual case, without a look-up for each id
        return keys, []
    known = {
        id: found for id, found in _known(sql, store, namespace, ids).items() if found[0] <= last
    }
    sql.executemany(
        "UPDATE vectors SET dimension = ?, metadata = ? WHERE key = ?",
        (
            (its, text, known[id][0])
            for id, its, text in zip(ids, dimensions, metadata, strict=True)
            if id in known
        ),
    )
    return [known[id][0] if id in known else key for id, key in zip(ids, keys, strict=True)], list(
        known.values()
    )


def _known(
    sql: apsw.Connection, store: int, namespace: str, ids: Sequence[str]
) -> dict[str, tuple[int, int]]:
    """(key, part) of those ids that exist."""
    rows = sql.executemany(
        "SELECT id, key, part FROM vectors WHERE store = ? AND namespace = ? AND id = ?",
        ((store, namespace, id) for id in ids),
    )
    return {id: (key, own) for id, key, own in rows}
