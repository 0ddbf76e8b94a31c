"""The tables of vectors, the vector index over them, and the one form of a vector as an item.

The tables vectors and vector_embeddings are the truth. A part (one dimension of one store) whose
store ranks by cosine gets a vec0 table once it has some hundred rows; every other part is always
compared exactly. The body of a version, and its content, are the numbers of the embedding as they
are stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

from mcpvectordb import metadata
from mcpvectordb.errors import InvalidInput, quoted
from mcpvectordb.history.log import History
from mcpvectordb.history.versions import LOCAL, Item, Version, VersionedShelf, body_name
from mcpvectordb.index import arrays
from mcpvectordb.index.arrays import METRICS, Group
from mcpvectordb.index.resident import ColumnSource, Ranked, ResidentEntries, selected
from mcpvectordb.index.vector import EmbeddingTable, VectorIndex
from mcpvectordb.metadata import from_base64, storable
from mcpvectordb.storage import vec0
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.file import File
from mcpvectordb.store import ItemFilter
from mcpvectordb.vectors.vector import numbers

if TYPE_CHECKING:
    from mcpvectordb.index.arrays import Floats

SHELF = "vectors"
MAX_NAME = 200  # characters of a store or namespace: it is shown in listings
MAX_ID = 4_096  # characters of an id: enough for any path or URL
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


def part(store: int, dimension: int) -> int:
    """The number of a part, equal to the generated column `part` of the table vectors."""
    return store * 100_000 + dimension


class VectorStore(VersionedShelf):
    """Writes, ranks and versions the vectors of all stores.

    Methods with `sql` work inside the caller's transaction.
    """

    shelf, noun = SHELF, "vector"
    key, stamp = "v.key", "v.stamp"
    identity = "s.name = :place AND v.id = :name AND v.namespace = :twin"
    select = (
        "SELECT s.name, v.id, v.namespace, v.stamp, s.metric, v.dimension, v.metadata, "
        "e.embedding FROM vectors v JOIN stores s ON s.key = v.store "
        "JOIN vector_embeddings e ON e.vector = v.key"
    )

    @classmethod
    def version(cls, sql: Sql, row: Sequence[Any]) -> Version:
        """The version in a row."""
        store, id, namespace, stamp, metric, dimension, values, raw = row
        fields = {
            "dimension": dimension,
            "metadata": values,
            "hash": hashlib.sha256(raw).hexdigest(),
            LOCAL: {"metric": metric},  # the store's, which may be another one in another file
        }
        return Version(Item(SHELF, store, id, namespace), stamp, fields, body_name(raw))

    @classmethod
    def body(cls, sql: Sql, version: Version) -> bytes:
        """The embedding of a stored vector, as it is stored; b"" without one."""
        row = sql.execute(f"{cls.select} WHERE {cls.identity}", version.item._asdict()).fetchone()
        return b"" if row is None else bytes(row[-1])

    @classmethod
    def content(cls, body: bytes) -> bytes:
        """The body itself."""
        return body

    @classmethod
    def label(cls, sql: Sql, version: Version) -> str:
        """store/namespace/id, without an empty namespace."""
        item = version.item
        return "/".join(filter(None, (item.place, item.twin, item.name)))

    @classmethod
    def check(cls, version: Version, content: bytes) -> None:
        """Raise an error unless a version has what a vector has."""
        fields = version.fields or {}
        dimension, metric = fields["dimension"], version.local["metric"]
        if not isinstance(metric, str) or metric not in METRICS:
            raise InvalidInput(f"metric must be {', '.join(METRICS)}, not {quoted(metric)}")
        if type(dimension) is not int or len(content) not in (4 * dimension, 8 * dimension):
            raise InvalidInput(f"raw has not the size of {quoted(dimension)} numbers")
        metadata.received(fields["metadata"])
        storable(version.item.place, "store", blank=False)
        storable(version.item.name, "id", blank=False)
        stored = arrays.packed(arrays.one(numbers(content, dimension)).rows)[0].tobytes()
        if hashlib.sha256(stored).hexdigest() != fields["hash"]:
            raise InvalidInput("its numbers are not as they are stored")

    @classmethod
    def line(cls, version: Version, content: bytes) -> dict[str, Any]:
        """A vector as an export has it."""
        item, fields = version.item, version.fields or {}
        return {
            "store": item.place,
            "namespace": item.twin,
            "id": item.name,
            "dimension": fields["dimension"],
            "raw": content,
            "metadata": metadata.decode(fields["metadata"]),
        }

    @classmethod
    def of_line(cls, line: Mapping[str, Any], metrics: Mapping[str, str]) -> tuple[Version, bytes]:
        """The vector of such a line, which may say anything; raises InvalidInput.

        `metrics` are those of the export's stores.
        """
        raw = from_base64(line.get("raw"), "raw")
        item = Item(SHELF, *(storable(line.get(each), each) for each in ("store", "id")))
        item = item._replace(twin=storable(line.get("namespace"), "namespace"))
        if max(len(item.place), len(item.twin)) > MAX_NAME or len(item.name) > MAX_ID:
            raise InvalidInput(f"an id has more than {MAX_ID}, or a name {MAX_NAME} characters")
        fields = {
            "dimension": line.get("dimension"),
            "metadata": metadata.encode(line.get("metadata")),
            "hash": hashlib.sha256(raw).hexdigest(),
            LOCAL: {"metric": metrics.get(item.place)},
        }
        version = Version(item, 0, fields)
        cls.check(version, raw)
        return version, raw

    def __init__(self, file: File, history: History, memory: ResidentEntries) -> None:
        self._file, self._history, self._tuning = file, history, memory.tuning
        self._index = VectorIndex(
            EmbeddingTable("vector", "vector_values", "key", "part"), memory, FILTERED
        )

    def restore(self, version: Version, content: bytes) -> None:
        """Store a vector as it was."""
        item, fields = version.item, version.fields or {}
        group = arrays.one(numbers(content, fields["dimension"]))
        with self._file.writing() as sql:
            row = self.named(sql, item.place)
            row = row or self.create(sql, item.place, version.local["metric"])
            self.put(sql, row, item.twin, [item.name], [fields["metadata"]], [group], anew=True)

    def remove(self, item: Item) -> None:
        """Delete a vector, if it is there."""
        with self._file.writing() as sql:
            self.delete(sql, item)

    def put(
        self,
        sql: Sql,
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
        stamp = self._history.stamp(sql)
        keys, known = _claim(sql, store.key, namespace, ids, metadata, groups, stamp)
        self._remove_codes(sql, list(known.values()), coded)
        for group in groups:
            chosen = [keys[position] for position in group.positions]
            rows = arrays.packed(group.rows)
            for position, row in zip(group.positions, rows, strict=True) if known else ():
                if position in known:
                    after = group.dimension, metadata[position]
                    self._replace(sql, keys[position], after, row.tobytes(), anew)
            sql.executemany(
                "INSERT INTO vector_embeddings (vector, embedding) VALUES (?, ?) "
                "ON CONFLICT (vector) DO UPDATE SET embedding = excluded.embedding",
                zip(chosen, rows, strict=True),
            )
            if (own := part(store.key, group.dimension)) in coded:
                self._index.add_many(sql, own, chosen, group.rows)
        return len(known)

    def _replace(self, sql: Sql, key: int, after: tuple[int, str], raw: bytes, anew: bool) -> None:
        """Update the row of a vector to a dimension and metadata, unless it stays what it is."""
        found = self.by_key(sql, key)
        if found is None or found.fields is None:
            return
        before = found.fields["dimension"], found.fields["metadata"]
        same = found.fields["hash"] == hashlib.sha256(raw).hexdigest()
        if anew or before != after or not same:
            self._history.keep(sql, found, self.body(sql, found))
            sql.execute(
                "UPDATE vectors SET dimension = ?, metadata = ?, stamp = ? WHERE key = ?",
                (*after, self._history.stamp(sql), key),
            )

    def named(self, sql: Sql, name: str) -> StoreRow | None:
        """The store with this name; None if there is none."""
        row = sql.execute("SELECT key, metric FROM stores WHERE name = ?", (name,)).fetchone()
        return StoreRow(*row) if row else None

    def create(self, sql: Sql, name: str, metric: str) -> StoreRow:
        """Make a store."""
        sql.execute(
            "INSERT INTO stores (name, metric, stamp) VALUES (?, ?, ?)",
            (name, metric, self._history.stamp(sql)),
        )
        return StoreRow(sql.last_insert_rowid(), metric)

    def delete(self, sql: Sql, item: Item) -> bool:
        """Delete a vector, which the history keeps; returns whether it existed."""
        rows = "SELECT v.key, v.part FROM vectors v JOIN stores s ON s.key = v.store"
        row = sql.execute(f"{rows} WHERE {self.identity}", item._asdict()).fetchone()
        if row is None:
            return False
        found = self.by_key(sql, row[0])
        if found is not None:
            self._history.keep(sql, found, self.body(sql, found))
        self._remove_codes(sql, [row], self._index.coded(sql))
        sql.execute("DELETE FROM vectors WHERE key = ?", (row[0],))
        if found is not None:
            self._history.bury(sql, item)
        return True

    def nearest(
        self, sql: Sql, store: StoreRow, query: Floats, chosen: ItemFilter, limit: int
    ) -> Ranked:
        """The keys of the vectors nearest to a query, with their scores, best first."""
        own = part(store.key, len(query))
        allowed = chosen.allowed(
            f"SELECT v.key FROM vectors v WHERE v.part = {own:d} AND", chosen.conditions
        )
        return self._index.nearest_by(sql, own, query, allowed, limit, store.metric)

    def others(
        self, sql: Sql, store: StoreRow, dimension: int, chosen: ItemFilter, limit: int
    ) -> list[int]:
        """The keys of the first vectors of other dimensions."""
        return selected(
            sql,
            "SELECT v.key FROM vectors v JOIN vector_embeddings e ON e.vector = v.key "
            f"WHERE {store.sql} AND v.dimension <> ? AND {chosen.condition} "
            "ORDER BY v.key LIMIT ?",
            (dimension, *chosen.bindings, limit),
        )

    # Maintenance.

    def rebuild(self, sql: Sql) -> None:
        """Create the vec0 tables again, for the parts that need one."""
        for coded in self._index.coded(sql):
            self._index.drop(sql, coded)
        for store, dimension in _parts(sql):
            if self._pays(sql, store, dimension):
                self._index.fill(sql, part(store.key, dimension), dimension)

    optimize = rebuild  # which frees what deleted rows still occupy inside the vec0 tables

    def problems(self, sql: Sql) -> Iterator[str]:
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
            yield from self._index.problems(sql, own, dimension)
            coded.discard(own)
        for left in sorted(coded):  # parts without a single vector
            yield from self._index.problems(sql, left, left % 100_000)

    def _coded(self, sql: Sql, store: StoreRow, groups: Sequence[Group]) -> list[int]:
        """The parts that have a vec0 table; those that are about to grow large get theirs now.

        So the codes of many new vectors are made of what is in memory.
        """
        coded = self._index.coded(sql)
        for group in groups:
            own = part(store.key, group.dimension)
            if own not in coded and self._pays(sql, store, group.dimension, len(group.positions)):
                self._index.fill(sql, own, group.dimension)
                coded.append(own)
        return coded

    def _remove_codes(
        self, sql: Sql, known: Sequence[tuple[int, int]], coded: Sequence[int]
    ) -> None:
        for own in coded:
            self._index.remove(sql, own, [key for key, its in known if its == own])

    def _pays(self, sql: Sql, store: StoreRow, dimension: int, more: int = 0) -> bool:
        """Whether a part, with so many vectors more, is faster to search with codes."""
        if store.metric != "cosine" or dimension > vec0.MAX_DIMENSION:
            return False
        most = min(self._tuning.coded_rows, self._tuning.exact_rows)
        rows = f"SELECT 1 FROM vectors WHERE part = ? LIMIT {most + 1}"
        count = sql.execute(f"SELECT count(*) FROM ({rows})", (part(store.key, dimension),)).get
        return bool(count + more > most)


def _parts(sql: Sql) -> list[tuple[StoreRow, int]]:
    return [
        (StoreRow(key, metric), dimension)
        for key, metric, dimension in sql.execute(
            "SELECT DISTINCT s.key, s.metric, v.dimension "
            "FROM vectors v JOIN stores s ON s.key = v.store ORDER BY v.part"
        )
    ]


def _claim(
    sql: Sql,
    store: int,
    namespace: str,
    ids: Sequence[str],
    metadata: Sequence[str],
    groups: Sequence[Group],
    stamp: int,
) -> tuple[list[int], dict[int, tuple[int, int]]]:
    """Insert the row of each id that is new: the key of each, and (key, old part) of known ones,
    by their position.

    All ids are inserted at once under new keys; only if some existed are these looked up.
    """
    dimensions = {position: group.dimension for group in groups for position in group.positions}
    last = sql.execute("SELECT seq FROM sqlite_sequence WHERE name = 'vectors'").get or 0
    keys = list(range(last + 1, last + 1 + len(ids)))
    before = sql.total_changes()
    sql.executemany(
        "INSERT INTO vectors (key, store, namespace, id, dimension, metadata, stamp) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (store, namespace, id) DO NOTHING",
        zip(
            keys,
            repeat(store),
            repeat(namespace),
            ids,
            map(dimensions.__getitem__, range(len(ids))),
            metadata,
            repeat(stamp),
        ),
    )
    if sql.total_changes() - before == len(ids):  # the usual case, without a look-up for each id
        return keys, {}
    rows = sql.executemany(
        "SELECT id, key, part FROM vectors WHERE store = ? AND namespace = ? AND id = ?",
        ((store, namespace, id) for id in ids),
    )
    found = {id: (key, own) for id, key, own in rows}
    known = {
        position: found[id]
        for position, id in enumerate(ids)
        if id in found and found[id][0] <= last
    }
    for position, (key, _) in known.items():
        keys[position] = key
    return keys, known
