"""Retrieval by meaning: passages by the cosines of their embeddings to the query's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from mcpvectordb.index.arrays import CodedRows
from mcpvectordb.index.chunks import ChunkIndex, QueryEmbedding
from mcpvectordb.index.resident import Allowed, Ranked
from mcpvectordb.index.vector import CodedPassages
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class MeaningRetriever:
    """Ranks the passages of one index for one query, in the caller's transaction.

    `nearest` and `exact` read embeddings; `candidates` and `cosines` go by codes.
    """

    def __init__(self, sql: Sql, index: ChunkIndex, query: QueryEmbedding) -> None:
        self._sql, self._vectors, self._query = sql, index.vector, query
        self._embedding = np.frombuffer(query.embedding, np.float32)
        self._dimension = len(self._embedding)
        self._view: CodedPassages | None = None
        self._coded: CodedRows | None = None
        self._known: dict[int, float] = {}

    def nearest(self, allowed: Allowed, limit: int) -> Ranked:
        """(id, exact cosine) of the nearest passages, best first."""
        near = self._vectors.nearest(
            self._sql, self._query.model, self._query.embedding, allowed, limit
        )
        self._known |= near
        return near

    def exact(self, ids: Sequence[int]) -> dict[int, float]:
        """The exact cosines of those passages that have an embedding."""
        missing = [id for id in ids if id not in self._known]
        if missing:
            self._known |= self._vectors.embeddings(
                self._sql, self._query.model, self._dimension, missing
            ).cosines(self._embedding)
        return {id: self._known[id] for id in ids if id in self._known}

    def candidates(self, allowed: Allowed, limit: int) -> Ranked:
        """(id, cosine) of the nearest passages by their codes, best first."""
        self._coded = None
        self._view = self._vectors.code_view(self._sql, self._query.model, self._dimension, allowed)
        return self._view.best(self._embedding, limit)

    def cosines(self, ids: NDArray[np.int64], relevant: Sequence[int] = ()) -> NDArray[np.float64]:
        """The cosines of passages by their codes, NaN for those without an embedding.

        They are cosines to the query or, with `relevant` passages, to the query as these move it
        (Rocchio). `ids` ascend and are the same in every call after one of `candidates`.
        """
        if self._coded is None and self._view is not None:
            self._coded = self._view.rows(ids)
        if self._coded is None or not len(self._coded.ids):
            return np.full(len(ids), np.nan)
        query = self._coded.rocchio(self._embedding, relevant) if relevant else self._embedding
        cosines = self._coded.cosines(query)
        if np.array_equal(ids, self._coded.ids):
            return cosines
        found = np.full(len(ids), np.nan)
        found[np.searchsorted(ids, self._coded.ids)] = cosines
        return found


class Owned(Protocol):
    """Which passages belong to which items."""

    def owner_of(self, sql: Sql, ids: Sequence[int]) -> dict[int, int]:
        """The owner of each of these passages that exists."""

    def chunks_of(
        self, sql: Sql, owners: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The passages of these owners, and the owner of each."""


class OwnerRetriever:
    """Ranks whole items for one query, each by its nearest passage (`passage`).

    `owned` knows which passages are whose, if not the index.
    """

    def __init__(
        self, sql: Sql, index: ChunkIndex, query: QueryEmbedding, owned: Owned | None = None
    ) -> None:
        self._sql, self._owned = sql, owned or index
        self._passages = MeaningRetriever(sql, index, query)
        self._owners: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
        self.passage: dict[int, int] = {}

    def nearest(self, allowed: Allowed, limit: int) -> Ranked:
        """(id, exact cosine) of the nearest items, best first."""
        return self._ranked(self._passages.nearest, allowed, limit)

    def candidates(self, allowed: Allowed, limit: int) -> Ranked:
        """(id, cosine) of the nearest items by their passages' codes, best first."""
        return self._ranked(self._passages.candidates, allowed, limit)

    def cosines(self, ids: NDArray[np.int64], relevant: Sequence[int] = ()) -> NDArray[np.float64]:
        """The highest cosine of each item's passages by their codes; see `MeaningRetriever`."""
        chunks, owners = self._chunks_of(ids)
        near = [self.passage[id] for id in relevant if id in self.passage]
        cosines = self._passages.cosines(chunks, near)
        best = np.full(len(ids), np.nan)
        np.fmax.at(best, np.searchsorted(ids, owners), cosines)
        if not near:
            order = np.argsort(cosines, kind="stable")  # the nearest of each comes last, then NaN
            order = order[: np.count_nonzero(~np.isnan(cosines))]
            self.passage |= zip(owners[order].tolist(), chunks[order].tolist(), strict=True)
        return best

    def exact(self, ids: Sequence[int]) -> dict[int, float]:
        """The exact cosines of items, by their nearest passages."""
        near = {id: self.passage[id] for id in ids if id in self.passage}
        found = self._passages.exact(list(near.values()))
        return {id: found[chunk] for id, chunk in near.items() if chunk in found}

    def look_up(self, ids: Sequence[int]) -> None:
        """Read the exact cosines of items that meaning has not found."""
        chunks, owners = self._owned.chunks_of(self._sql, np.array(ids, np.int64))
        owner = dict(zip(chunks.tolist(), owners.tolist(), strict=True))
        found = self._passages.exact(list(owner))
        for chunk in sorted(found, key=found.__getitem__):  # the nearest of each comes last
            self.passage[owner[chunk]] = chunk

    def _ranked(
        self, rank: Callable[[Allowed, int], Ranked], allowed: Allowed, limit: int
    ) -> Ranked:
        best = best_of_owners(self._sql, self._owned, partial(rank, allowed), limit, limit + 20)
        self.passage |= {id: chunk for id, (chunk, _) in best.items()}
        return [(id, cosine) for id, (_, cosine) in best.items()][:limit]

    def _chunks_of(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ascending ids of the passages of items, and the item of each; looked up once."""
        if self._owners is None:
            chunks, owners = self._owned.chunks_of(self._sql, ids)
            order = chunks.argsort()
            self._owners = chunks[order], owners[order]
        return self._owners


def best_of_owners(
    sql: Sql, owned: Owned, rank: Callable[[int], Ranked], wanted: int, depth: int
) -> dict[int, tuple[int, float]]:
    """(best passage, score) of the owners of the best passages, best first.

    One long item can own all of the best passages. So their number, at first `depth`, grows
    fourfold until they belong to as many items as are wanted, or until there are no more.
    """
    while True:
        passages = rank(depth)
        owner = owned.owner_of(sql, [id for id, _ in passages])
        best: dict[int, tuple[int, float]] = {}
        for id, score in passages:
            if id in owner:
                best.setdefault(owner[id], (id, score))
        if len(best) >= wanted or len(passages) < depth:
            return best
        depth *= 4
