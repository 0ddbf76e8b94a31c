"""The vectors shelf: embeddings that users bring along, stored under ids and ranked by a metric."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, overload

from mcpvectordb import filters
from mcpvectordb.errors import Damaged, InvalidInput, NotFound, quoted
from mcpvectordb.filters import Where
from mcpvectordb.history.versions import Item
from mcpvectordb.index import arrays
from mcpvectordb.index.arrays import METRICS, Group
from mcpvectordb.index.resident import Ranked
from mcpvectordb.metadata import checked_page, decode, encode, storable
from mcpvectordb.ranking.ranker import StatementLog
from mcpvectordb.ranking.why_empty import FilteredItems, unknown_name, why_empty
from mcpvectordb.records import Condition, Hit, Metric, Page, Results, Scores
from mcpvectordb.storage.dialect import Sql, SqlDialect
from mcpvectordb.store import ItemFilter, OpenStore, every, one_or_all
from mcpvectordb.vectors.store import MAX_ID, MAX_NAME, SHELF, VectorStore
from mcpvectordb.vectors.vector import Added, AddedMany, Namespace, Store, Vector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Embedding = Sequence[float] | NDArray[np.number[Any]]
    Embeddings = Sequence[Embedding] | NDArray[np.number[Any]]


_STORE = "(SELECT name FROM stores WHERE key = v.store)"
_FIELDS = {"id": "v.id", "store": _STORE, "namespace": "v.namespace", "dimension": "v.dimension"}
_KINDS: filters.Kinds = {
    **dict.fromkeys(("id", "store", "namespace", "origin"), "text"),
    "dimension": "number",
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
        self._store, self._file, self._history = store, store.file, store.history
        self._tables = self.versioned = tables

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
        updated = self._put(
            [_name(id, "id", MAX_ID, blank=False)], [encoded], [group], store, namespace, metric
        )
        raw = arrays.packed(group.rows)[0].tobytes()
        vector = _vector((0, id, store, namespace, group.dimension, raw, None, encoded))
        return Added(status="updated" if updated else "added", vector=vector)

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
        encoded = ["{}"] * len(names)
        if metadata is not None:
            if isinstance(metadata, str | bytes | Mapping) or not isinstance(metadata, Sequence):
                raise InvalidInput(
                    "metadata must be a list with an object for each id, not a "
                    f"{type(metadata).__name__}"
                )
            _same_length("metadata", len(metadata), len(names))
            encoded = [encode(each, f"metadata[{place}]") for place, each in enumerate(metadata)]
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
        _check_place(store, namespace)
        with self._file.reading() as sql:
            if as_of is None:
                return one_or_all(ids, lambda id: self._one(sql, store, namespace, id))
            limit = self._history.limit(sql, as_of)
            return one_or_all(
                ids, lambda id: self._past(sql, Item(SHELF, store, id, namespace), limit)
            )

    def _one(self, sql: Sql, store: str, namespace: str, id: str) -> Vector:
        found = self._rows(
            sql,
            "v.store IN (SELECT key FROM stores WHERE name = ?) AND v.namespace = ? AND v.id = ? "
            "ORDER BY v.key LIMIT 1",
            (store, namespace, storable(id, "id")),
        )
        if not found:
            raise NotFound(
                f"no vector has the id {quoted(id)} in the store {quoted(store)}, namespace "
                f"{quoted(namespace)}"
            )
        return found[0][1]

    def _past(self, sql: Sql, item: Item, limit: int) -> Vector:
        last = self._history.at(sql, item, self._tables.find(sql, item), limit)
        if last is None or last.fields is None:
            raise NotFound(f"there was no vector {quoted(item.name)} at that time")
        raw = self._history.body(sql, last, self._tables.body)
        fields = last.fields["dimension"], raw, None, last.fields["metadata"]
        return _vector((0, item.name, item.place, item.twin, *fields))

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
        chosen = self._chosen(store, namespace, where)
        with self._file.reading() as sql:
            found = self._rows(
                sql,
                f"{chosen.condition} ORDER BY v.key DESC LIMIT ? OFFSET ?",
                (*chosen.bindings, limit, offset),
            )
            return Page(items=tuple(vector for _, vector in found))

    def __iter__(self) -> Iterator[Vector]:
        """All vectors of all stores, in the order in which they were added."""
        return every(
            self._store,
            lambda sql, key, most: self._rows(sql, "v.key > ? ORDER BY v.key LIMIT ?", (key, most)),
        )

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
        chosen = self._chosen(store, namespace, where)
        with self._file.reading() as sql:
            return chosen.count(sql, "vectors v")

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
        conditions = self._chosen(store, namespace, where).conditions
        with self._file.reading() as sql:
            found = None if store is None else self._tables.named(sql, store)
            if store is not None and found is None:
                known = [name for (name,) in sql.execute("SELECT name FROM stores")]
                return unknown_name("store", store, known)
            rows = f"vectors v WHERE {found.sql if found else filters.EVERYTHING}"
            items = FilteredItems(
                noun="vector",
                rows=rows,
                newest="v.key DESC",
                fields=_fields(self._file.dialect),
                metadata=f"v.{self._file.dialect.metadata}",
                names={"namespace": f"SELECT DISTINCT v.namespace FROM {rows}"},
            )
            return why_empty(sql, items, conditions)

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
                    (_name(store, "store", blank=False),),
                )
            ]

    def delete(
        self, ids: str | Iterable[str], *, store: str = "default", namespace: str = ""
    ) -> int:
        """Delete the vectors with these ids, all of them or none; the number of deleted ones.

        Unknown ids are no error.
        """
        _check_place(store, namespace)
        wanted = {storable(id, "id") for id in ([ids] if isinstance(ids, str) else ids)}
        with self._file.writing() as sql:
            items = (Item(SHELF, store, id, namespace) for id in wanted)
            return sum(self._tables.delete(sql, item) for item in items)

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
        [query] = arrays.one(embedding).rows
        checked_page(limit, 0)
        _name(store, "store", blank=False)
        chosen = self._chosen(None, namespace, where)
        near: Ranked = []
        others: list[int] = []
        figure: Callable[[float], float] = float
        with self._file.reading() as sql:
            with StatementLog(sql, explain) as log:
                if limit and (row := self._tables.named(sql, store)) is not None:
                    near = self._tables.nearest(sql, row, query, chosen, limit)
                    if row.metric == "euclidean":
                        figure = abs
                    elif missing := limit - len(near):
                        others = self._tables.others(sql, row, len(query), chosen, missing)
                keys = [*(key for key, _ in near), *others]
                wanted = json.dumps(keys)
                vectors = dict(
                    self._rows(sql, "v.key IN (SELECT value FROM json_each(?))", (wanted,))
                )
            explained = log.explained(len(vectors)) if explain else None
        if missing_keys := set(keys) - vectors.keys():
            raise Damaged(
                f"the index names vector {min(missing_keys)}, which is not there: run `mcpvectordb "
                f"check`, then `salvage`"
            )
        hits = [
            Hit(
                item=vectors[key],
                score=score,
                scores=Scores(vector=figure(score), vector_rank=rank),
            )
            for rank, (key, score) in enumerate(near, 1)
        ]
        hits += [Hit(item=vectors[key], score=0.0, scores=Scores(vector=0.0)) for key in others]
        note = "" if hits else self.why_empty(store=store, namespace=namespace, where=where)
        return Results(hits=tuple(hits), legs=("vector",), note=note, explained=explained)

    def _put(
        self,
        ids: list[str],
        encoded: list[str],
        groups: Sequence[Group],
        store: str,
        namespace: str,
        metric: str | None,
    ) -> int:
        _check_place(store, namespace)
        if metric is not None and (not isinstance(metric, str) or metric not in METRICS):
            raise InvalidInput(f"metric must be {', '.join(METRICS)}, not {quoted(metric)}")
        with self._file.writing() as sql:
            found = self._tables.named(sql, store)
            if found is None:
                found = self._tables.create(sql, store, metric or "cosine")
            if metric not in (None, found.metric):
                raise InvalidInput(
                    f"the store {quoted(store)} ranks by {found.metric}, which cannot be "
                    f"changed to {metric}: use another store"
                )
            return self._tables.put(sql, found, namespace, ids, encoded, groups)

    def _rows(self, sql: Sql, chosen: str, bindings: Sequence[Any]) -> list[tuple[int, Vector]]:
        """(key, vector) of the rows that SQL after WHERE chooses."""
        rows = sql.execute(f"{_select(self._file.dialect)} WHERE {chosen}", bindings)
        return [(row[0], _vector(row)) for row in rows]

    def _chosen(self, store: str | None, namespace: str | None, where: Where | None) -> ItemFilter:
        """The vectors of a store (or of all) and of a namespace that fulfil all conditions."""
        dialect = self._file.dialect
        conditions = filters.conditions(where, _KINDS)
        if namespace is not None:
            conditions.insert(0, Condition("namespace", "eq", _name(namespace, "namespace")))
        condition, bindings = filters.compile(
            conditions, _fields(dialect), f"v.{dialect.metadata}", dialect.filters
        )
        if store is not None:
            condition = f"v.store IN (SELECT key FROM stores WHERE name = ?) AND {condition}"
            bindings.insert(0, _name(store, "store", blank=False))
        return ItemFilter(condition, tuple(bindings), tuple(conditions))


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


def _name(text: str, name: str, most: int = MAX_NAME, *, blank: bool = True) -> str:
    """A text by which vectors are named, if it can be one; raises InvalidInput."""
    if len(storable(text, name, blank=blank)) > most:
        raise InvalidInput(f"{name} is {len(text):,} characters long; it has at most {most:,}")
    return text


def _check_place(store: str, namespace: str) -> None:
    _name(store, "store", blank=False)
    _name(namespace, "namespace")


def _checked_ids(ids: Iterable[str]) -> list[str]:
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise InvalidInput(f"ids must be a list of texts, not a {type(ids).__name__}")
    names = list(ids)
    # A fast test that most lists pass; only others are checked one by one.
    if not all(
        type(id) is str and id.isascii() and id.strip() and len(id) <= MAX_ID for id in names
    ):
        names = [_name(id, f"ids[{place}]", MAX_ID, blank=False) for place, id in enumerate(names)]
    last = {id: position for position, id in enumerate(names)}
    if len(last) < len(names):
        twice = next(position for position, id in enumerate(names) if last[id] != position)
        raise InvalidInput(
            f"ids[{twice}] and ids[{last[names[twice]]}] are the same: {quoted(names[twice])}"
        )
    return names


def _same_length(name: str, length: int, ids: int) -> None:
    if length != ids:
        raise InvalidInput(f"there are {ids:,} ids, but {name} has {length:,}: give one for each")
