"""The vector leg of a search: passages by the cosines of their embeddings to the query's.

While passages wait for the file's model, those that have provisional embeddings are searched by
these (`index.provisional`), and the cosines of two models do not compare: that of a question and
an unrelated passage is .41 ± .07 by one, .07 ± .11 by another. So a provisional cosine c is taken
for the cosine by the file's model that lies as many standard deviations above the mean:
m + s · (c - m') / s', where m and s are mean and deviation of the query's cosines to a sample of
the passages that the file's model has embedded, m' and s' to a sample of the others (z-scores). Of
rankings by rank, by minimum and maximum and by a fixed scale, none came near it in all collections
(benchmarks/README.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from statistics import fmean, pstdev
from typing import NamedTuple

import apsw

from mcpvectordb.index import Allowed, Ranked
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.models import QueryEmbedding
from mcpvectordb.index.vector import Embeddings

SAMPLE = 256  # passages of each model by which its cosines are scaled
USUAL_DEVIATION = 0.1  # of cosines, where there are too few passages to tell


class Spread(NamedTuple):
    """Mean and standard deviation of some cosines."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, cosines: Sequence[float]) -> Spread:
        """That of these cosines; of fewer than two only the mean is known."""
        return cls(fmean(cosines) if cosines else 0.0, pstdev(cosines or [0.0]) or USUAL_DEVIATION)

    def convert(self, cosine: float, to: Spread) -> float:
        """The value that deviates as much in another spread as a cosine does in this one."""
        return to.mean + to.deviation * (cosine - self.mean) / self.deviation


class VectorLeg:
    """The vector leg of one query over one index, in the caller's transaction.

    Embeddings are read once. The cosines that it returns compare with each other; `cosine` has
    those that are true by the model of each passage.
    """

    def __init__(self, sql: apsw.Connection, index: ChunkIndex, query: QueryEmbedding) -> None:
        self._own = _ModelPassages(sql, index, query)
        self._provisional = (
            _ModelPassages(sql, index, query.provisional) if query.provisional else None
        )

    def nearest(self, allowed: Allowed, limit: int) -> Ranked:
        """(id, cosine) of the nearest passages, best first."""
        near = self._own.nearest(allowed, limit)
        if self._provisional is None:
            return near
        self._provisional.nearest(allowed, limit)
        return sorted(self._compared().items(), key=lambda pair: (-pair[1], pair[0]))[:limit]

    def complete(self, ids: Sequence[int]) -> dict[int, float]:
        """The cosines of the nearest and of other passages that have an embedding."""
        for group in self._groups:
            group.read(ids)
        return self._compared()

    def moved(self, relevant: Sequence[int]) -> dict[int, float]:
        """The same cosines to the query as relevant passages move it (Rocchio)."""
        return self._compared(relevant)

    def cosine(self, id: int) -> float | None:
        """The cosine of a passage by the model that has embedded it."""
        return next((each.known[id] for each in self._groups if id in each.known), None)

    def is_provisional(self, id: int) -> bool:
        """Whether the embedding of a passage is a provisional one."""
        return any(id in each.known for each in self._groups if each.query.is_provisional)

    @property
    def _groups(self) -> list[_ModelPassages]:
        return [each for each in (self._own, self._provisional) if each is not None]

    def _compared(self, relevant: Sequence[int] = ()) -> dict[int, float]:
        """The cosines of all passages that were read, on the scale of the file's model."""
        own = self._own.cosines(relevant)
        if self._provisional is None or not self._provisional.known:
            return own
        others = self._provisional.cosines(relevant)
        # Of none by the file's model there is no scale, and nothing to compare with.
        if not own:
            return others
        scale, to = self._provisional.spread(relevant), self._own.spread(relevant)
        return {**{id: scale.convert(cosine, to) for id, cosine in others.items()}, **own}


class _ModelPassages:
    """The passages that one model has embedded, as far as they were read, and the query by it."""

    def __init__(self, sql: apsw.Connection, index: ChunkIndex, query: QueryEmbedding) -> None:
        self._sql, self._vectors, self.query = sql, index.vector, query
        self._dimension = len(query.embedding) // 4
        self._read: Embeddings | None = None
        self.known: dict[int, float] = {}

    def nearest(self, allowed: Allowed, limit: int) -> Ranked:
        near, self._read = self._vectors.nearest(
            self._sql, self.query.model, self.query.embedding, allowed, limit
        )
        self.known = dict(near)
        return near

    def read(self, ids: Sequence[int]) -> None:
        self._read = self._vectors.embeddings(
            self._sql, self.query.model, self._dimension, ids, self._read
        )
        self.known = self._read.cosines(self.query.embedding)

    def cosines(self, relevant: Sequence[int]) -> dict[int, float]:
        if not relevant or self._read is None:
            return self.known
        return self._read.cosines(self._moved(relevant))

    def spread(self, relevant: Sequence[int]) -> Spread:
        """The spread of the query's cosines to the group's passages, whatever a filter allows."""
        return Spread.of(list(self._sample.cosines(self._moved(relevant)).values()))

    def _moved(self, relevant: Sequence[int]) -> bytes:
        embedding = self.query.embedding
        return self._read.rocchio(embedding, relevant) if self._read and relevant else embedding

    @cached_property
    def _sample(self) -> Embeddings:
        return self._vectors.sample(self._sql, self.query.model, self._dimension, SAMPLE)
