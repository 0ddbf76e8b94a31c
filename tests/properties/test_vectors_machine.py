"""After any sequence of operations on vectors, the file equals a model and ranks as exact scores do."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from mcpvectordb import Database, Results, Vector
from mcpvectordb.index.tuning import Tuning
from tests.properties.machines import DatabaseMachine
from tests.support import scaled

METRICS = {"round": "cosine", "flat": "dot", "far": "euclidean"}
STORES = st.sampled_from(sorted(METRICS))
NAMESPACES = st.sampled_from(["", "n"])
IDS = st.sampled_from(["a", "b", "c", "d", "e", "f", "g", "h"])
NUMBERS = st.sampled_from([0.0, 1.0, -1.0, 0.1, 3.0, 1e-3, 1e6, -2.5e6]) | st.floats(-10, 10)
EMBEDDINGS = st.integers(1, 3).flatmap(lambda size: st.lists(NUMBERS, min_size=size, max_size=size))
KINDS = st.sampled_from(["x", "y"])
ITEMS = st.dictionaries(IDS, st.tuples(EMBEDDINGS, KINDS), max_size=8)


class Kept(NamedTuple):
    embedding: list[float]
    kind: str


Key = tuple[str, str, str]


def score(metric: str, row: Sequence[float], query: Sequence[float]) -> float:
    if metric == "euclidean":
        return -math.dist(row, query)
    product = math.fsum(p * q for p, q in zip(row, query, strict=True))
    if metric == "dot":
        return product
    lengths = math.hypot(*row) * math.hypot(*query)
    return product / lengths if lengths else 0.0


def tolerance(metric: str, row: Sequence[float], query: Sequence[float]) -> float:
    """The largest difference that two orders of summation in float64 can make."""
    sizes = {
        "cosine": 1.0,
        "dot": sum(abs(p * q) for p, q in zip(row, query, strict=True)),
        "euclidean": math.dist(row, query),
    }
    return 1e-14 * sizes[metric]


class VectorsMachine(DatabaseMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model: dict[Key, Kept] = {}
        self.tuning = Tuning()

    def opened(self, path: Path) -> Database:
        return Database(path, tuning=self.tuning)

    # With two exact rows, quantized codes are made, used and stored.
    @initialize(
        exact_rows=st.sampled_from([2, 5_000]),
        store=STORES,
        namespace=NAMESPACES,
        items=ITEMS.filter(bool),
    )
    def start(
        self,
        exact_rows: int,
        store: str,
        namespace: str,
        items: dict[str, tuple[list[float], str]],
    ) -> None:
        self.tuning = Tuning(exact_rows=exact_rows)
        self.open()
        self.add_many(store, namespace, items)

    @rule(
        store=STORES,
        namespace=NAMESPACES,
        id=IDS,
        embedding=EMBEDDINGS,
        kind=KINDS,
        as_array=st.booleans(),
    )
    def add(
        self, store: str, namespace: str, id: str, embedding: list[float], kind: str, as_array: bool
    ) -> None:
        key = (store, namespace, id)
        done = self.db.vectors.add(
            id,
            np.array(embedding) if as_array else embedding,
            store=store,
            namespace=namespace,
            metadata={"kind": kind},
            metric=METRICS[store],
        )
        assert done.status == ("updated" if key in self.model else "added")
        self.model[key] = Kept(embedding, kind)

    @rule(
        store=STORES,
        namespace=NAMESPACES,
        items=ITEMS,
    )
    def add_many(
        self, store: str, namespace: str, items: dict[str, tuple[list[float], str]]
    ) -> None:
        new = {(store, namespace, id): Kept(*value) for id, value in items.items()}
        done = self.db.vectors.add_many(
            list(items),
            [embedding for embedding, _ in items.values()],
            store=store,
            namespace=namespace,
            metadata=[{"kind": kind} for _, kind in items.values()],
            metric=METRICS[store],
        )
        assert (
            done.updated == len(new.keys() & self.model.keys())
            and done.added == len(new) - done.updated
        )
        self.model |= new

    @rule(store=STORES, namespace=NAMESPACES, id=IDS)
    def delete(self, store: str, namespace: str, id: str) -> None:
        key = (store, namespace, id)
        assert self.db.vectors.delete(id, store=store, namespace=namespace) == (key in self.model)
        self.model.pop(key, None)

    @rule(
        store=STORES,
        query=EMBEDDINGS,
        namespace=st.none() | NAMESPACES,
        kind=st.none() | KINDS,
        limit=st.integers(1, 20),
    )
    def search(
        self, store: str, query: list[float], namespace: str | None, kind: str | None, limit: int
    ) -> None:
        where = None if kind is None else {"metadata.kind": kind}
        found = self.db.vectors.search(
            query, store=store, namespace=namespace, where=where, limit=limit
        )
        allowed = [
            key
            for key, kept in self.model.items()
            if key[0] == store and namespace in (None, key[1]) and kind in (None, kept.kind)
        ]
        assert self.db.vectors.count(store=store, namespace=namespace, where=where) == len(allowed)
        self.compare(found, store, query, allowed, limit)

    @precondition(lambda self: self.model)
    @rule(store=STORES, data=st.data())
    def find_again(self, store: str, data: st.DataObject) -> None:
        keys = [key for key in self.model if key[0] == store]
        if keys:
            key = data.draw(st.sampled_from(keys))
            queries = [self.model[key].embedding, [1.0, 2.0, 3.0]]
            for query in queries:
                found = self.db.vectors.search(query, store=store, limit=30)
                self.compare(found, store, query, keys, 30)

    def compare(
        self, found: Results[Vector], store: str, query: list[float], allowed: list[Key], limit: int
    ) -> None:
        """Assert that hits are ranked by their exact scores, and ties by insertion.

        Vectors of another dimension than the query follow, in the order of their insertion.
        """
        metric = METRICS[store]
        fitting = [key for key in allowed if len(self.model[key].embedding) == len(query)]
        exact = {key: score(metric, self.model[key].embedding, query) for key in fitting}
        others = [] if metric == "euclidean" else [key for key in allowed if key not in exact]
        slack = {key: tolerance(metric, self.model[key].embedding, query) for key in fitting}
        hits = {(hit.item.store, hit.item.namespace, hit.item.id): hit.score for hit in found}
        assert len(hits) == len(found) == min(limit, len(fitting) + len(others))
        ranked = [key for key in hits if key in exact]
        assert list(hits) == ranked + others[: len(hits) - len(ranked)] and len(ranked) == min(
            limit, len(fitting)
        )
        assert all(abs(hits[key] - exact[key]) <= slack[key] for key in ranked)
        assert all(hits[key] == 0.0 for key in hits if key not in exact)
        places = {key: place for place, key in enumerate(self.model)}
        for better, worse in itertools.pairwise(ranked):
            assert hits[better] > hits[worse] or (
                hits[better] == hits[worse] and places[better] < places[worse]
            )
        if ranked:
            lowest = min(hits[key] for key in ranked)
            assert all(exact[key] <= lowest + slack[key] for key in fitting if key not in hits)

    def assert_file_equals_model(self) -> None:
        vectors = self.db.vectors.browse(store=None, limit=1000)
        assert {
            (each.store, each.namespace, each.id): Kept(
                each.embedding.tolist(), each.metadata["kind"]
            )
            for each in vectors
        } == self.model
        assert [(each.store, each.namespace, each.id) for each in reversed(vectors)] == list(
            self.model
        )
        assert {
            (each.name, space.name): space.vectors
            for each in self.db.vectors.stores()
            for space in self.db.vectors.namespaces(each.name)
        } == {
            (store, namespace): sum(key[:2] == (store, namespace) for key in self.model)
            for store, namespace, _ in self.model
        }


TestVectors = VectorsMachine.TestCase
TestVectors.settings = settings(max_examples=scaled(30), stateful_step_count=20)
