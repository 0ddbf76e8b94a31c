"""The vectors shelf: embeddings that users bring along, stored under ids and ranked by a metric."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, overload

import apsw

from mcpvectordb import filters
from mcpvectordb.errors import Damaged, InvalidInput, NotFound, quoted
from mcpvectordb.filters import Where
from mcpvectordb.history.versions import Item
from mcpvectordb.index import arrays
from mcpvectordb.index.arrays import Group
from mcpvectordb.index.metrics import METRICS
from mcpvectordb.metadata import decode, encode, storable
from mcpvectordb.records import (
    Condition,
    Hit,
    Metric,
    Page,
    Results,
    Scores,
)
from mcpvectordb.search.explain import StatementLog
from mcpvectordb.search.ranker import checked_page
from mcpvectordb.search.why_empty import FilteredItems, unknown_name, why_empty
from mcpvectordb.storage.dialect import SqlDialect, dialect_of
from mcpvectordb.store import OpenStore, every, one_or_all
from mcpvectordb.vectors.items import MAX_ID, MAX_NAME, VectorItems
from mcpvectordb.vectors.store import RestoredVectors, StoreRow, VectorFilter, VectorStore
from mcpvectordb.vectors.vector import Added, AddedMany, Namespace, Store, Vector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Embedding = Sequence[float] | NDArray[np.number[Any]]
    Embeddings = Sequence[Embedding] | NDArray[np.number[Any]]


_STORE = "(SELECT name FROM stores WHERE key = v.store)"
_FIELDS = {"id": "v.id", "store": _STORE, "namespace": "v.namespace", "dimension": "v.dimension"}
_KINDS: filters.Kinds = {
    "id": "text",
    "store": "text",
    "namespace": "text",
    "dimension": "number",
    "origin": "text",
}


@cache
def _fields(dialect: SqlDialect) -> Mapping[str, str]:
    return {**_FIELDS, "origin": dialect.origins["vector"]} if dialect.origins else _FIELDS


@cache
def _select(dialect: SqlDialect) -> str:
    return (
        f"SELECT v.key, v.id, {_STORE}, v.namespace, v.dimension, e.embedding, {dialect.raw}, "
        "v.metadata FROM vectors v JOIN vector_embeddings e ON e.vector = v.key"
    )


class Vectors:
    """`Database.vectors`.

    An embedding is a list, a tuple or an array of 1 to 16,384 finite numbers; vectors of several
    dimensions may share a store. An id is unique in its namespace of its store. A store is created
    by the first vector that is added to it, and its metric ("cosine" unless another is named then)
    cannot be changed. Numbers are returned exactly as they were given; those of float32 arrays take
    half the space of others.
    """

    def __init__(self, store: OpenStore, tables: VectorStore) -> None:
        self._open, self._file, self._history = store, store.file, store.history
        self._store = tables
        self.versioned = RestoredVectors(store.file, tables)

    def add(
        self,
        id: str,
        embedding: Embedding,
        *,
        store: str = "default",
        namespace: str = "",
        metadata: Mapping[str, Any] | None = None,
        metric: Metric | None = None,
    ) -> Added:
        """Store an embedding; one with the same id is replaced together with its metadata.

        A replaced one keeps its place among results of equal score.
        """
        group, encoded = arrays.one(embedding), encode(metadata)
        updated = self._put([_checked_id(id, "id")], [encoded], [group], store, namespace, metric)
        row = (
            0,
            id,
            store,
            namespace,
            group.dimension,
            arrays.packed(group.rows)[0].tobytes(),
            None,
            encoded,
        )
        return Added(status="updated" if updated else "added", vector=_vector(row))

    def add_many(
        self,
        ids: Iterable[str],
        embeddings: Embeddings,
        *,
        store: str = "default",
        namespace: str = "",
        metadata: Sequence[Mapping[str, Any] | None] | None = None,
        metric: Metric | None = None,
    ) -> AddedMany:
        """Store many embeddings (a matrix or a list), one for each id: all of them or none.

        `metadata`, if given, has one entry for each id. It is one transaction, and other writers
        wait for its end: for millions of rows call it for some tens of thousands at a time.
        """
        names = _checked_ids(ids)
        groups = arrays.many(embeddings)
        _same_length("embeddings", sum(len(group.positions) for group in groups), len(names))
        encoded = _encoded_all(metadata, len(names))
        updated = self._put(names, encoded, groups, store, namespace, metric) if names else 0
        return AddedMany(added=len(names) - updated, updated=updated)

    @overload
    def get(  # type: ignore[overload-overlap]
        self,
        ids: str,
        *,
        store: str = "default",
        namespace: str = "",
        as_of: str | int | None = None,
    ) -> Vector: ...
    @overload
    def get(
        self,
        ids: Iterable[str],
        *,
        store: str = "default",
        namespace: str = "",
        as_of: str | int | None = None,
    ) -> list[Vector]: ...
    def get(
        self,
        ids: str | Iterable[str],
        *,
        store: str = "default",
        namespace: str = "",
        as_of: str | int | None = None,
    ) -> Vector | list[Vector]:
        """The vector with this id (raises NotFound), or those of several ids that there are.

        With `as_of` it is as it was at a time (2026-11-29, today, 2d …) or right after a change,
        given by its number in `Database.history`.
        """
        _checked_store(store), _checked_namespace(namespace)
        with self._file.reading() as sql:
            if as_of is None:
                return one_or_all(ids, lambda id: self._one(sql, store, namespace, id))
            return one_or_all(
                ids, lambda id: self._past(sql, Item("vectors", store, id, namespace), as_of)
            )

    def _one(self, sql: apsw.Connection, store: str, namespace: str, id: str) -> Vector:
        row = sql.execute(
            f"{_select(self._file.dialect)} WHERE v.store IN (SELECT key FROM stores "
            "WHERE name = ?) AND v.namespace = ? AND v.id = ? ORDER BY v.key",
            (store, namespace, storable(id, "id")),
        ).fetchone()
        if row is None:
            raise NotFound(
                f"no vector has the id {quoted(id)} in the store {quoted(store)}, namespace "
                f"{quoted(namespace)}"
            )
        return _vector(row)

    def _past(self, sql: apsw.Connection, item: Item, as_of: str | int) -> Vector:
        limit = self._history.limit(sql, as_of)
        last = self._history.at(sql, item, VectorItems.find(sql, item), limit)
        if last is None or last.fields is None:
            raise NotFound(f"there was no vector {quoted(item.name)} at that time")
        return Vector(
            id=item.name,
            store=item.place,
            namespace=item.twin,
            dimension=last.fields["dimension"],
            raw=self._history.body(sql, last, VectorItems.body),
            metadata=decode(last.fields["metadata"]),
        )

    def browse(
        self,
        *,
        store: str | None = "default",
        namespace: str | None = None,
        where: Where | None = None,
        limit: int = 10,
        offset: int = 0,
    ) -> Page[Vector]:
        """Vectors of a store (or, with None, of all) that fulfil all conditions, newest first."""
        checked_page(limit, offset)
        chosen = _chosen(store, namespace, where, self._file.dialect)
        with self._file.reading() as sql:
            rows = sql.execute(
                f"{_select(self._file.dialect)} WHERE {chosen.sql} ORDER BY v.key DESC "
                "LIMIT ? OFFSET ?",
                (*chosen.bindings, limit, offset),
            )
            return Page(items=tuple(_vector(row) for row in rows))

    def __iter__(self) -> Iterator[Vector]:
        """All vectors of all stores, in the order in which they were added."""
        return every(self._open, _after)

    def count(
        self,
        *,
        store: str | None = "default",
        namespace: str | None = None,
        where: Where | None = None,
    ) -> int:
        """The number of vectors of a store (or, with None, of all) that fulfil all conditions.

        These are the vectors that a search would rank.
        """
        chosen = _chosen(store, namespace, where, self._file.dialect)
        with self._file.reading() as sql:
            return int(
                sql.execute(
                    f"SELECT count(*) FROM vectors v WHERE {chosen.sql}", chosen.bindings
                ).get
            )

    def why_empty(
        self,
        *,
        store: str | None = "default",
        namespace: str | None = None,
        where: Where | None = None,
    ) -> str:
        """Why no vector matches, as far as the conditions by themselves explain it, or "".

        It names a store, namespace or metadata key that does not exist, with similar ones. `search`
        puts it into the `note` of empty results.
        """
        chosen = _chosen(store, namespace, where, self._file.dialect)
        with self._file.reading() as sql:
            shelved = None if store is None else self._store.find(sql, store)
            if store is not None and shelved is None:
                known = [name for (name,) in sql.execute("SELECT name FROM stores")]
                return unknown_name("store", store, known)
            rows = f"vectors v WHERE {shelved.sql if shelved else filters.EVERYTHING}"
            items = FilteredItems(
                noun="vector",
                rows=rows,
                newest="v.key DESC",
                fields=_fields(self._file.dialect),
                metadata=f"v.{self._file.dialect.metadata}",
                names={"namespace": f"SELECT DISTINCT v.namespace FROM {rows}"},
            )
            return why_empty(sql, items, chosen.conditions)

    def stores(self) -> list[Store]:
        """All stores, by name; an emptied one keeps its name and metric."""
        with self._file.reading() as sql:
            return [
                Store(name=name, metric=metric, vectors=vectors)
                for name, metric, vectors in sql.execute(
                    "SELECT s.name, s.metric, count(v.key) FROM stores s LEFT JOIN vectors v "
                    "ON v.store = s.key GROUP BY s.name, s.metric ORDER BY s.name"
                )
            ]

    def namespaces(self, store: str = "default") -> list[Namespace]:
        """The namespaces of a store that have vectors, by name."""
        with self._file.reading() as sql:
            return [
                Namespace(name=name, vectors=vectors)
                for name, vectors in sql.execute(
                    "SELECT namespace, count(*) FROM vectors "
                    "WHERE store IN (SELECT key FROM stores WHERE name = ?) "
                    "GROUP BY namespace ORDER BY namespace",
                    (_checked_store(store),),
                )
            ]

    def delete(
        self, ids: str | Iterable[str], *, store: str = "default", namespace: str = ""
    ) -> int:
        """Delete the vectors with these ids, all of them or none; the number of deleted ones.

        Unknown ids are no error.
        """
        _checked_store(store), _checked_namespace(namespace)
        wanted = {storable(id, "id") for id in ([ids] if isinstance(ids, str) else ids)}
        with self._file.writing() as sql:
            shelved = self._store.find(sql, store)
            if shelved is None:
                return 0
            return sum(self._store.remove(sql, shelved, namespace, id) for id in wanted)

    def search(
        self,
        embedding: Embedding,
        *,
        store: str = "default",
        namespace: str | None = None,
        where: Where | None = None,
        limit: int = 10,
        explain: bool = False,
    ) -> Results[Vector]:
        """The vectors of a store nearest to an embedding by the store's metric.

        Conditions apply before the cut to `limit`. A score is higher for what is nearer: the cosine
        (-1 to 1), the dot product, or the negative Euclidean distance (-2.5 for a distance of 2.5);
        `scores.vector` is the metric's own value. Equal scores come in the order in which the
        vectors were added. Vectors of another dimension score 0 and follow after all others without
        a rank; by distance they are left out. Up to 5,000 vectors, and always by dot product and
        distance, the ranking is exact; above, by cosine, it is exact among the candidates that the
        index chooses. An unknown store or namespace is treated as an empty one, and the `note` of
        the results says so. `explain` adds the time, and the plans of the statements that were run.
        """
        return self._search([arrays.one(embedding)], store, namespace, where, limit, explain)[0]

    def search_many(
        self,
        embeddings: Embeddings,
        *,
        store: str = "default",
        namespace: str | None = None,
        where: Where | None = None,
        limit: int = 10,
    ) -> list[Results[Vector]]:
        """The results of `search` for each embedding, in order, from one snapshot of the file."""
        return self._search(arrays.many(embeddings), store, namespace, where, limit)

    def _put(
        self,
        ids: list[str],
        encoded: list[str],
        groups: Sequence[Group],
        store: str,
        namespace: str,
        metric: str | None,
    ) -> int:
        _checked_store(store), _checked_namespace(namespace)
        if metric is not None and (not isinstance(metric, str) or metric not in METRICS):
            raise InvalidInput(f"metric must be {', '.join(METRICS)}, not {quoted(metric)}")
        with self._file.writing() as sql:
            shelved = self._store.find(sql, store)
            if shelved is None:
                shelved = self._store.create(sql, store, metric or "cosine")
            if metric not in (None, shelved.metric):
                raise InvalidInput(
                    f"the store {quoted(store)} ranks by {shelved.metric}, which cannot be "
                    f"changed to {metric}: use another store"
                )
            return self._store.put(sql, shelved, namespace, ids, encoded, groups)

    def _search(
        self,
        groups: Sequence[Group],
        store: str,
        namespace: str | None,
        where: Where | None,
        limit: int,
        explain: bool = False,
    ) -> list[Results[Vector]]:
        checked_page(limit, 0)
        _checked_store(store)
        chosen = _chosen(None, namespace, where, self._file.dialect)
        found: dict[int, list[tuple[int, float, Scores]]] = {}
        with self._file.reading() as sql:
            with StatementLog(sql, explain) as log:
                if limit and (shelved := self._store.find(sql, store)) is not None:
                    for group in groups:
                        found |= self._ranked(sql, shelved, group, chosen, limit)
                vectors = _vectors(sql, {key for rows in found.values() for key, _, _ in rows})
            explained = log.explained(len(vectors)) if explain else None
        note = "" if vectors else self.why_empty(store=store, namespace=namespace, where=where)
        return [
            Results(
                hits=tuple(
                    Hit(item=vectors[key], score=score, scores=scores)
                    for key, score, scores in found.get(position, ())
                ),
                legs=("vector",),
                note=note,
                explained=explained,
            )
            for position in range(sum(len(group.positions) for group in groups))
        ]

    def _ranked(
        self, sql: apsw.Connection, store: StoreRow, group: Group, chosen: VectorFilter, limit: int
    ) -> dict[int, list[tuple[int, float, Scores]]]:
        """(key, score, scores) of what is nearest to each row of the group, by its position."""
        nearest = self._store.nearest(sql, store, group.rows, chosen, limit)
        # All queries rank the same rows, so each lacks as many.
        missing = 0 if store.metric == "euclidean" else limit - len(nearest[0])
        others = self._store.others(sql, store, group.dimension, chosen, missing) if missing else []
        figure = abs if store.metric == "euclidean" else float
        return {
            position: [
                *(
                    (key, score, Scores(vector=figure(score), vector_rank=rank))
                    for rank, (key, score) in enumerate(ranked, 1)
                ),
                *((key, 0.0, Scores(vector=0.0)) for key in others),
            ]
            for position, ranked in zip(group.positions, nearest, strict=True)
        }


def _after(sql: apsw.Connection, key: int, most: int) -> list[tuple[int, Vector]]:
    rows = sql.execute(
        f"{_select(dialect_of(sql))} WHERE v.key > ? ORDER BY v.key LIMIT ?", (key, most)
    )
    return [(row[0], _vector(row)) for row in rows]


def _vectors(sql: apsw.Connection, keys: Collection[int]) -> dict[int, Vector]:
    rows = sql.execute(
        f"{_select(dialect_of(sql))} WHERE v.key IN (SELECT value FROM json_each(?))",
        (json.dumps(list(keys)),),
    )
    found = {row[0]: _vector(row) for row in rows}
    if missing := set(keys) - found.keys():
        raise Damaged(
            f"the index names vector {min(missing)}, which is not there: run `mcpvectordb check`, "
            f"then `salvage`"
        )
    return found


def _vector(row: Sequence[Any]) -> Vector:
    _, id, store, namespace, dimension, embedding, raw, text = row
    return Vector(
        id=id,
        store=store,
        namespace=namespace,
        dimension=dimension,
        raw=embedding if raw is None else raw,
        metadata=decode(text),
    )


def _chosen(
    store: str | None, namespace: str | None, where: Where | None, dialect: SqlDialect
) -> VectorFilter:
    conditions = filters.conditions(where, _KINDS)
    if namespace is not None:
        conditions.insert(0, Condition("namespace", "eq", _checked_namespace(namespace)))
    condition, bindings = filters.compile(
        conditions, _fields(dialect), f"v.{dialect.metadata}", dialect.filters
    )
    if store is not None:
        condition = f"v.store IN (SELECT key FROM stores WHERE name = ?) AND {condition}"
        bindings.insert(0, _checked_store(store))
    return VectorFilter(condition, tuple(bindings), tuple(conditions))


def _checked_store(name: str) -> str:
    return _no_longer_than(MAX_NAME, storable(name, "store", blank=False), "store")


def _checked_namespace(name: str) -> str:
    return _no_longer_than(MAX_NAME, storable(name, "namespace"), "namespace")


def _checked_id(id: str, name: str) -> str:
    return _no_longer_than(MAX_ID, storable(id, name, blank=False), name)


def _checked_ids(ids: Iterable[str]) -> list[str]:
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise InvalidInput(f"ids must be a list of texts, not a {type(ids).__name__}")
    names = list(ids)
    # A fast test that most lists pass; only others are checked one by one.
    if not all(
        type(id) is str and id.isascii() and id.strip() and len(id) <= MAX_ID for id in names
    ):
        names = [_checked_id(id, f"ids[{position}]") for position, id in enumerate(names)]
    last = {id: position for position, id in enumerate(names)}
    if len(last) < len(names):
        twice = next(position for position, id in enumerate(names) if last[id] != position)
        raise InvalidInput(
            f"ids[{twice}] and ids[{last[names[twice]]}] are the same: {quoted(names[twice])}"
        )
    return names


def _no_longer_than(most: int, text: str, name: str) -> str:
    if len(text) > most:
        raise InvalidInput(f"{name} is {len(text):,} characters long; it has at most {most:,}")
    return text


def _encoded_all(given: Sequence[Mapping[str, Any] | None] | None, count: int) -> list[str]:
    if given is None:
        return ["{}"] * count
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Sequence):
        raise InvalidInput(
            f"metadata must be a list with an object for each id, not a {type(given).__name__}"
        )
    _same_length("metadata", len(given), count)
    return [encode(each, f"metadata[{position}]") for position, each in enumerate(given)]


def _same_length(name: str, length: int, ids: int) -> None:
    if length != ids:
        raise InvalidInput(f"there are {ids:,} ids, but {name} has {length:,}: give one for each")
