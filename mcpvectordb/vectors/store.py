"""The tables of vectors, and the vector index over them.

The tables vectors and vector_embeddings are the truth. A part (one dimension of one store) whose
store ranks by cosine gets a vec0 table once it has some hundred rows; every other part is always
compared exactly. All methods work inside the caller's transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from mcpvectordb import filters
from mcpvectordb.history.log import History
from mcpvectordb.history.versions import Item, Version
from mcpvectordb.index import Allowed, Ranked, arrays
from mcpvectordb.index.arrays import Group
from mcpvectordb.index.columns import ColumnSource
from mcpvectordb.index.resident import ResidentEntries
from mcpvectordb.index.tuning import DEFAULT, Tuning
from mcpvectordb.index.vector import VectorIndex
from mcpvectordb.records import Condition
from mcpvectordb.storage import vec0
from mcpvectordb.storage.file import File
from mcpvectordb.vectors.items import VectorItems, numbers

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
    """A row of the table stores; in a published database those of all origins with its name."""

    key: int
    metric: str
    keys: tuple[int, ...] = ()

    @property
    def sql(self) -> str:
        """The condition that a vector `v` is in it."""
        return f"v.store IN ({', '.join(f'{key:d}' for key in self.keys or (self.key,))})"


@dataclass(frozen=True, slots=True)
class VectorFilter:
    """A condition on vectors `v` in SQL with its bindings, and the conditions it is made of.

    The SQL is EVERYTHING if there are none.
    """

    sql: str
    bindings: tuple[Any, ...]
    conditions: tuple[Condition, ...]

    def allowed(self, part: int) -> Allowed:
        """The keys of the vectors of a part that fulfil the condition."""
        return (
            Allowed()
            if self.sql == filters.EVERYTHING
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

    def __init__(
        self, history: History, memory: ResidentEntries | None = None, tuning: Tuning = DEFAULT
    ) -> None:
        self._history, self._tuning = history, tuning
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
        *,
        anew: bool = False,
    ) -> int:
        """Write vectors with distinct ids; returns how many replaced one (these keep their key).

        The history keeps those that are replaced by something else or, with `anew`, by the same.
        """
        coded = self._coded(sql, store, groups)
        rows = _NewVectors(store.key, namespace, ids, metadata, groups)
        keys, known = _claim(sql, rows, self._history.stamp(sql))
        if known:
            self._replace(sql, rows, keys, known, anew)
        self._remove_codes(sql, list(known.values()), coded)
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

    def _replace(
        self,
        sql: apsw.Connection,
        rows: _NewVectors,
        keys: Sequence[int],
        known: Mapping[int, tuple[int, int]],
        anew: bool,
    ) -> None:
        """Update the rows of known vectors, except those that stay what they are."""
        for group in rows.groups:
            for position, row in zip(group.positions, arrays.packed(group.rows), strict=True):
                found = VectorItems.by_key(sql, keys[position]) if position in known else None
                if found is None or found.fields is None:
                    continue
                after = (group.dimension, rows.metadata[position])
                before = (found.fields["dimension"], found.fields["metadata"])
                same = found.fields["hash"] == hashlib.sha256(row.tobytes()).hexdigest()
                if anew or before != after or not same:
                    self._history.keep(sql, found, VectorItems.body(sql, found))
                    sql.execute(
                        "UPDATE vectors SET dimension = ?, metadata = ?, stamp = ? WHERE key = ?",
                        (*after, self._history.stamp(sql), keys[position]),
                    )

    def find(self, sql: apsw.Connection, name: str) -> StoreRow | None:
        """The store with this name; None if there is none."""
        row = sql.execute("SELECT key, metric FROM stores WHERE name = ?", (name,)).fetchone()
        return StoreRow(*row) if row else None

    def create(self, sql: apsw.Connection, name: str, metric: str) -> StoreRow:
        """Make a store."""
        sql.execute(
            "INSERT INTO stores (name, metric, stamp) VALUES (?, ?, ?)",
            (name, metric, self._history.stamp(sql)),
        )
        return StoreRow(sql.last_insert_rowid(), metric)

    def remove(self, sql: apsw.Connection, store: StoreRow, namespace: str, id: str) -> bool:
        """Delete a vector, which the history keeps; returns whether it existed."""
        known = list(_known(sql, store.key, namespace, [id]).values())
        items = []
        for key, _ in known:
            if (found := VectorItems.by_key(sql, key)) is not None:
                self._history.keep(sql, found, VectorItems.body(sql, found))
                items.append(found.item)
        self._remove_codes(sql, known, self._index.coded(sql))
        sql.executemany("DELETE FROM vectors WHERE key = ?", ((key,) for key, _ in known))
        for item in items:
            self._history.bury(sql, item)
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
        return self._index.nearest_each(sql, own, queries, chosen.allowed(own), limit, store.metric)

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
                f"WHERE {store.sql} AND v.dimension <> ? AND {chosen.sql} "
                "ORDER BY v.key LIMIT ?",
                (dimension, *chosen.bindings, limit),
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
        for (key,) in sql.execute(
            "SELECT key FROM vectors v JOIN vector_embeddings e ON e.vector = v.key "
            "WHERE octet_length(embedding) = 2 * dimension"
        ):
            yield f"vectors: the embedding of {key} has lost a half of its bytes"
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


class RestoredVectors(VectorItems):
    """The vectors of a file, of which versions come back."""

    def __init__(self, file: File, store: VectorStore) -> None:
        self._file, self._store = file, store

    def restore(self, version: Version, content: bytes) -> None:
        """Store a vector as it was."""
        item, fields = version.item, version.fields or {}
        group = arrays.one(numbers(content, fields["dimension"]))
        with self._file.writing() as sql:
            row = self._store.find(sql, item.place)
            row = row or self._store.create(sql, item.place, version.local["metric"])
            self._store.put(
                sql, row, item.twin, [item.name], [fields["metadata"]], [group], anew=True
            )

    def remove(self, item: Item) -> None:
        """Delete a vector, if it is there."""
        with self._file.writing() as sql:
            row = self._store.find(sql, item.place)
            if row is not None:
                self._store.remove(sql, row, item.twin, item.name)


def _parts(sql: apsw.Connection) -> list[tuple[StoreRow, int]]:
    return [
        (StoreRow(key, metric), dimension)
        for key, metric, dimension in sql.execute(
            "SELECT DISTINCT s.key, s.metric, v.dimension "
            "FROM vectors v JOIN stores s ON s.key = v.store ORDER BY v.part"
        )
    ]


class _NewVectors(NamedTuple):
    """Vectors to be written: an id, metadata, and in one of the groups an embedding for each."""

    store: int
    namespace: str
    ids: Sequence[str]
    metadata: Sequence[str]
    groups: Sequence[Group]


def _claim(
    sql: apsw.Connection, rows: _NewVectors, stamp: int
) -> tuple[list[int], dict[int, tuple[int, int]]]:
    """Insert the row of each id that is new: the key of each, and (key, old part) of known ones,
    by their position.

    All ids are inserted at once under new keys; only if some existed are these looked up.
    """
    ids = rows.ids
    dimensions = [0] * len(ids)
    for group in rows.groups:
        dimension = group.dimension
        for position in group.positions:
            dimensions[position] = dimension
    last = sql.execute("SELECT seq FROM sqlite_sequence WHERE name = 'vectors'").get or 0
    keys = list(range(last + 1, last + 1 + len(ids)))
    before = sql.total_changes()
    sql.executemany(
        "INSERT INTO vectors (key, store, namespace, id, dimension, metadata, stamp) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (store, namespace, id) DO NOTHING",
        zip(
            keys,
            repeat(rows.store),
            repeat(rows.namespace),
            ids,
            dimensions,
            rows.metadata,
            repeat(stamp),
        ),
    )
    if sql.total_changes() - before == len(ids):  # the usual case, without a look-up for each id
        return keys, {}
    found = _known(sql, rows.store, rows.namespace, ids)
    known = {
        position: found[id]
        for position, id in enumerate(ids)
        if id in found and found[id][0] <= last
    }
    for position, (key, _) in known.items():
        keys[position] = key
    return keys, known


def _known(
    sql: apsw.Connection, store: int, namespace: str, ids: Sequence[str]
) -> dict[str, tuple[int, int]]:
    """(key, part) of those ids that exist."""
    rows = sql.executemany(
        "SELECT id, key, part FROM vectors WHERE store = ? AND namespace = ? AND id = ?",
        ((store, namespace, id) for id in ids),
    )
    return {id: (key, own) for id, key, own in rows}
