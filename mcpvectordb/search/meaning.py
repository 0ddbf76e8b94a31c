"""Retrieval by meaning: passages by the cosines of their embeddings to the query's.

While passages wait for the file's model, those that have provisional embeddings are searched by
these (`index.provisional`), and the cosines of two models do not compare: that of a question and
an unrelated passage is .41 ± .07 by one, .07 ± .11 by another. So a provisional cosine c is taken
for the cosine by the file's model that lies as many standard deviations above the mean:
m + s · (c - m') / s', where m and s are mean and deviation of the query's cosines to a sample of
the passages that the file's model has embedded, m' and s' to a sample of the others (z-scores). Of
rankings by rank, by minimum and maximum and by a fixed scale, none came near it in all collections
(benchmarks/results/provisional.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import apsw

from mcpvectordb.index import Allowed, Ranked
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.codes import CodedRows
from mcpvectordb.index.models import QueryEmbedding
from mcpvectordb.index.vector import CodedPassages, Embeddings

if TYPE_CHECKING:
    import numpy as np
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

    `nearest` and `complete` read embeddings and are exact; `candidates` and `cosines` go by codes.
    The cosines that they return compare with each other; `cosine` has those that are true by the
    model of each passage, of those passages whose embeddings were read.
    """

    def __init__(self, sql: apsw.Connection, index: ChunkIndex, query: QueryEmbedding) -> None:
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
        return _first(self._compared(), limit)

    def complete(self, ids: Sequence[int]) -> dict[int, float]:
        """The exact cosines of passages that have an embedding, added to those of the nearest."""
        for group in self._groups:
            group.read(ids)
        return self._compared()

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
        import numpy as np

        own = self._own.cosines(ids, relevant)
        if self._provisional is None:
            return own
        others, missing = self._provisional.cosines(ids, relevant), np.isnan(own)
        # Of none by the file's model there is no scale, and nothing to compare with.
        if missing.all() or np.isnan(others).all():
            return np.where(missing, others, own)
        scale, to = self._provisional.spread(relevant), self._own.spread(relevant)
        return np.where(missing, scale.convert(others, to), own)

    def cosine(self, id: int) -> float | None:
        """The exact cosine of a passage by the model that has embedded it, if that was read."""
        return next((each.known[id] for each in self._groups if id in each.known), None)

    def is_provisional(self, id: int) -> bool:
        """Whether the embedding that was read of a passage is a provisional one."""
        return any(id in each.known for each in self._groups if each.query.is_provisional)

    def provisional(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which passages have no cosine but a provisional one, after `cosines` of the same ids."""
        import numpy as np

        if self._provisional is None:
            return np.zeros(len(ids), bool)
        missing: NDArray[np.bool_] = np.isnan(self._own.cosines(ids))
        return missing & ~np.isnan(self._provisional.cosines(ids))

    @property
    def _groups(self) -> list[_ModelPassages]:
        return [each for each in (self._own, self._provisional) if each is not None]

    def _compared(self) -> dict[int, float]:
        """The cosines of all passages that were read, on the scale of the file's model."""
        own = self._own.known
        if self._provisional is None or not self._provisional.known or not own:
            return own or (self._provisional.known if self._provisional else own)
        scale, to = self._provisional.spread(), self._own.spread()
        others = self._provisional.known
        return {**{id: scale.convert(cosine, to) for id, cosine in others.items()}, **own}


class _ModelPassages:
    """The passages that one model has embedded, and the query by it.

    `known` are the exact cosines that were computed.
    """

    def __init__(self, sql: apsw.Connection, index: ChunkIndex, query: QueryEmbedding) -> None:
        import numpy as np

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
        import numpy as np

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
        return self._coded.rocchio(self._embedding, relevant) if self._coded else self._embedding

    @cached_property
    def _sample(self) -> Embeddings:
        return self._vectors.sample(self._sql, self.query.model, self._dimension, SAMPLE)


def _first(cosines: dict[int, float], limit: int) -> Ranked:
    return sorted(cosines.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]


class OwnerRetriever:
    """Ranks whole items for one query, each by its nearest passage (`passage`).

    One long item can own all of the nearest passages. So their number grows fourfold until they
    belong to enough items, or until there are no more.
    """

    def __init__(self, sql: apsw.Connection, index: ChunkIndex, query: QueryEmbedding) -> None:
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
        import numpy as np

        chunks, owners = self._chunks_of(ids)
        near = [self.passage[id] for id in relevant if id in self.passage]
        cosines = self._passages.cosines(chunks, near)
        best = np.full(len(ids), np.nan)
        np.fmax.at(best, np.searchsorted(ids, owners), cosines)
        if not near:
            for place in np.argsort(cosines, kind="stable"):  # the nearest of each comes last
                self.passage[int(owners[place])] = int(chunks[place])
        return best

    def complete(self, ids: Sequence[int]) -> dict[int, float]:
        """The exact cosines of items by their nearest passages."""
        near = {self.passage[id]: id for id in ids if id in self.passage}
        found = self._passages.complete(list(near))
        return {id: found[chunk] for chunk, id in near.items() if chunk in found}

    def look_up(self, ids: Sequence[int]) -> None:
        """Read the exact cosines of items that meaning has not found."""
        owner = self._index.chunks_of(self._sql, ids)
        found = self._passages.complete(list(owner))
        near = [chunk for chunk in owner if chunk in found]
        for chunk in sorted(near, key=found.__getitem__):  # the nearest of each comes last
            self.passage[owner[chunk]] = chunk

    def cosine(self, id: int) -> float | None:
        """The exact cosine of an item's nearest passage, if that was read."""
        return self._passages.cosine(self.passage[id]) if id in self.passage else None

    def is_provisional(self, id: int) -> bool:
        """Whether the embedding that was read of an item is a provisional one."""
        return id in self.passage and self._passages.is_provisional(self.passage[id])

    def provisional(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which items have none but provisional cosines, after `cosines` of the same ids."""
        import numpy as np

        chunks, owners = self._chunks_of(ids)
        own = np.ones(len(ids), bool)
        np.logical_and.at(own, np.searchsorted(ids, owners), self._passages.provisional(chunks))
        return own & np.isin(ids, owners)

    def _ranked(
        self, rank: Callable[[Allowed, int], Ranked], allowed: Allowed, limit: int
    ) -> Ranked:
        depth = limit + 20
        while True:
            chunks = rank(allowed, depth)
            owner = self._index.owner_of(self._sql, [chunk for chunk, _ in chunks])
            best: dict[int, tuple[int, float]] = {}
            for chunk, cosine in chunks:
                if chunk in owner:
                    best.setdefault(owner[chunk], (chunk, cosine))
            if len(best) >= limit or len(chunks) < depth:
                break
            depth *= 4
        self.passage |= {id: chunk for id, (chunk, _) in best.items()}
        return [(id, cosine) for id, (_, cosine) in best.items()][:limit]

    def _chunks_of(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ascending ids of the passages of items, and the item of each; looked up once."""
        import numpy as np

        if not self._owners:
            self._owners = self._index.chunks_of(self._sql, ids.tolist())
        chunks = np.array(sorted(self._owners), np.int64)
        return chunks, np.array([self._owners[chunk] for chunk in chunks.tolist()], np.int64)
