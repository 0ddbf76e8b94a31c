"""Retrieval by meaning: passages by the cosines of their embeddings to the query's.

While passages wait for the file's model, those that have provisional embeddings are searched by
these (`index.encoder`), and the cosines of two models do not compare: that of a question and
an unrelated passage is .41 ± .07 by one, .07 ± .11 by another. So a provisional cosine c is taken
for the cosine by the file's model that lies as many standard deviations above the mean:
m + s · (c - m') / s', where m and s are mean and deviation of the query's cosines to a sample of
the passages that the file's model has embedded, m' and s' to a sample of the others (z-scores). Of
rankings by rank, by minimum and maximum and by a fixed scale, none came near it in all collections
(benchmarks/results/provisional.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from mcpvectordb.index.arrays import CodedRows
from mcpvectordb.index.chunks import ChunkIndex, QueryEmbedding
from mcpvectordb.index.resident import Allowed, Ranked
from mcpvectordb.index.vector import CodedPassages, Embeddings
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mcpvectordb.index.arrays import Floats

    Cosine = TypeVar("Cosine", float, NDArray[np.float64])

SAMPLE = 256  # passages of each model by which its cosines are scaled
USUAL_DEVIATION = 0.1  # of cosines, where there are too few passages to tell


class Spread(NamedTuple):
    """Mean and standard deviation of some cosines."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, cosines: Sequence[float]) -> Spread:
        """That of these cosines; of fewer than two only the mean is known."""
        from statistics import fmean, pstdev

        return cls(fmean(cosines) if cosines else 0.0, pstdev(cosines or [0.0]) or USUAL_DEVIATION)

    def convert(self, cosine: Cosine, to: Spread) -> Cosine:
        """The value that deviates as much in another spread as a cosine does in this one."""
        return to.mean + to.deviation * (cosine - self.mean) / self.deviation


class MeaningRetriever:
    """Ranks the passages of one index for one query, in the caller's transaction.

    `nearest` and `compared` read embeddings and are exact; `candidates` and `cosines` go by codes.
    The cosines that they return compare with each other; `exact` has those that are true by the
    model of each passage.
    """

    def __init__(self, sql: Sql, index: ChunkIndex, query: QueryEmbedding) -> None:
        self._own = _ModelPassages(sql, index, query)
        self._provisional = (
            _ModelPassages(sql, index, query.provisional) if query.provisional else None
        )

    def nearest(self, allowed: Allowed, limit: int) -> Ranked:
        """(id, exact cosine) of the nearest passages, best first."""
        near = self._own.nearest(allowed, limit)
        if self._provisional is None:
            return near
        self._provisional.nearest(allowed, limit)
        return _first(self.compared(()), limit)

    def compared(self, ids: Sequence[int]) -> dict[int, float]:
        """The exact cosines of passages that have an embedding, and of all that were read before.

        They are on the scale of the file's model.
        """
        for group in self._groups:
            group.read(ids)
        own = self._own.known
        if self._provisional is None or not self._provisional.known or not own:
            return own or (self._provisional.known if self._provisional else own)
        scale, to = self._provisional.spread(), self._own.spread()
        others = self._provisional.known
        return {**{id: scale.convert(cosine, to) for id, cosine in others.items()}, **own}

    def exact(self, ids: Sequence[int]) -> dict[int, tuple[float, bool]]:
        """(exact cosine, whether it is provisional) of the passages that have an embedding."""
        found: dict[int, tuple[float, bool]] = {}
        for group in self._groups:
            group.read(ids)
            known, fast = group.known, group.query.is_provisional
            found = {id: (known[id], fast) for id in ids if id in known} | found
        return found

    def candidates(self, allowed: Allowed, limit: int) -> Ranked:
        """(id, cosine) of the nearest passages by their codes, best first."""
        near = self._own.candidates(allowed, limit)
        if self._provisional is None:
            return near
        others = self._provisional.candidates(allowed, limit)
        if not near or not others:
            return near or others
        scale, to = self._provisional.spread(), self._own.spread()
        return _first(
            {**{id: scale.convert(cosine, to) for id, cosine in others}, **dict(near)}, limit
        )

    def cosines(self, ids: NDArray[np.int64], relevant: Sequence[int] = ()) -> NDArray[np.float64]:
        """The cosines of passages by their codes, NaN for those without an embedding.

        They are cosines to the query or, with `relevant` passages, to the query as these move it
        (Rocchio). `ids` ascend, and `candidates` was called before.
        """
        own = self._own.cosines(ids, relevant)
        if self._provisional is None:
            return own
        others, missing = self._provisional.cosines(ids, relevant), np.isnan(own)
        # Of none by the file's model there is no scale, and nothing to compare with.
        if missing.all() or np.isnan(others).all():
            return np.where(missing, others, own)
        scale, to = self._provisional.spread(relevant), self._own.spread(relevant)
        return np.where(missing, scale.convert(others, to), own)

    def provisional(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which passages have no cosine but a provisional one, after `cosines` of the same ids."""
        if self._provisional is None:
            return np.zeros(len(ids), bool)
        missing: NDArray[np.bool_] = np.isnan(self._own.cosines(ids))
        return missing & ~np.isnan(self._provisional.cosines(ids))

    @property
    def _groups(self) -> list[_ModelPassages]:
        return [each for each in (self._own, self._provisional) if each is not None]


class _ModelPassages:
    """The passages that one model has embedded, and the query by it.

    `known` are the exact cosines that were computed.
    """

    def __init__(self, sql: Sql, index: ChunkIndex, query: QueryEmbedding) -> None:
        self._sql, self._vectors, self.query = sql, index.vector, query
        self._embedding = np.frombuffer(query.embedding, np.float32)
        self._dimension = len(self._embedding)
        self._view: CodedPassages | None = None
        self._coded: CodedRows | None = None
        self.known: dict[int, float] = {}

    def nearest(self, allowed: Allowed, limit: int) -> Ranked:
        near = self._vectors.nearest(
            self._sql, self.query.model, self.query.embedding, allowed, limit
        )
        self.known = dict(near)
        return near

    def read(self, ids: Sequence[int]) -> None:
        missing = [id for id in ids if id not in self.known]
        if missing:
            self.known |= self._vectors.embeddings(
                self._sql, self.query.model, self._dimension, missing
            ).cosines(self._embedding)

    def candidates(self, allowed: Allowed, limit: int) -> Ranked:
        self._view = self._vectors.code_view(self._sql, self.query.model, self._dimension, allowed)
        return self._view.best(self._embedding, limit)

    def cosines(self, ids: NDArray[np.int64], relevant: Sequence[int] = ()) -> NDArray[np.float64]:
        """The cosines of ascending ids by their codes, which are looked up once."""
        if self._coded is None and self._view is not None:
            self._coded = self._view.rows(ids)
        found = np.full(len(ids), np.nan)
        if self._coded is not None and len(self._coded.ids):
            places = np.searchsorted(ids, self._coded.ids)
            found[places] = self._coded.cosines(self._moved(relevant))
        return found

    def spread(self, relevant: Sequence[int] = ()) -> Spread:
        """The spread of the query's cosines to the group's passages, whatever a filter allows."""
        return Spread.of(list(self._sample.cosines(self._moved(relevant)).values()))

    def _moved(self, relevant: Sequence[int]) -> Floats:
        if not relevant or self._coded is None:
            return self._embedding
        return self._coded.rocchio(self._embedding, relevant)

    @cached_property
    def _sample(self) -> Embeddings:
        return self._vectors.sample(self._sql, self.query.model, self._dimension, SAMPLE)


def _first(cosines: dict[int, float], limit: int) -> Ranked:
    return sorted(cosines.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]


class OwnerRetriever:
    """Ranks whole items for one query, each by its nearest passage (`passage`)."""

    def __init__(self, sql: Sql, index: ChunkIndex, query: QueryEmbedding) -> None:
        self._sql, self._index = sql, index
        self._passages = MeaningRetriever(sql, index, query)
        self._owners: dict[int, int] = {}
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
            known = np.flatnonzero(~np.isnan(cosines))
            for place in known[np.argsort(cosines[known], kind="stable")]:
                self.passage[int(owners[place])] = int(chunks[place])  # the nearest comes last
        return best

    def exact(self, ids: Sequence[int]) -> dict[int, tuple[float, bool]]:
        """(exact cosine, whether it is provisional) of items, by their nearest passages."""
        near = {id: self.passage[id] for id in ids if id in self.passage}
        found = self._passages.exact(list(near.values()))
        return {id: found[chunk] for id, chunk in near.items() if chunk in found}

    def look_up(self, ids: Sequence[int]) -> None:
        """Read the exact cosines of items that meaning has not found."""
        owner = self._index.chunks_of(self._sql, ids)
        found = self._passages.compared(list(owner))
        near = [chunk for chunk in owner if chunk in found]
        for chunk in sorted(near, key=found.__getitem__):  # the nearest of each comes last
            self.passage[owner[chunk]] = chunk

    def provisional(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which items have none but provisional cosines, after `cosines` of the same ids."""
        chunks, owners = self._chunks_of(ids)
        own = np.ones(len(ids), bool)
        np.logical_and.at(own, np.searchsorted(ids, owners), self._passages.provisional(chunks))
        return own & np.isin(ids, owners)

    def _ranked(
        self, rank: Callable[[Allowed, int], Ranked], allowed: Allowed, limit: int
    ) -> Ranked:
        best = best_of_owners(self._sql, self._index, partial(rank, allowed), limit, limit + 20)
        self.passage |= {id: chunk for id, (chunk, _) in best.items()}
        return [(id, cosine) for id, (_, cosine) in best.items()][:limit]

    def _chunks_of(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ascending ids of the passages of items, and the item of each; looked up once."""
        if not self._owners:
            self._owners = self._index.chunks_of(self._sql, ids.tolist())
        chunks = np.array(sorted(self._owners), np.int64)
        return chunks, np.array([self._owners[chunk] for chunk in chunks.tolist()], np.int64)


def best_of_owners(
    sql: Sql, index: ChunkIndex, rank: Callable[[int], Ranked], wanted: int, depth: int
) -> dict[int, tuple[int, float]]:
    """(best passage, score) of the owners of the best passages, best first.

    One long item can own all of the best passages. So their number, at first `depth`, grows
    fourfold until they belong to as many items as are wanted, or until there are no more.
    """
    while True:
        passages = rank(depth)
        owner = index.owner_of(sql, [id for id, _ in passages])
        best: dict[int, tuple[int, float]] = {}
        for id, score in passages:
            if id in owner:
                best.setdefault(owner[id], (id, score))
        if len(best) >= wanted or len(passages) < depth:
            return best
        depth *= 4
