"""Hybrid search over one index: keyword and vector ranking, and their fusion.

Each leg ranks some candidates. Then every candidate gets both true scores (the BM25 of those that
only the vector leg found, the cosine of those that only the keyword leg found), and the scores are
combined (`fusion.fuse`: a completed convex combination). The query's embedding is moved towards the
three best (Rocchio), and the combination is computed again with the cosines to that. All of these
cosines are those of the codes; embeddings are read of the results only, to report exact cosines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import apsw

from mcpvectordb.errors import InvalidInput
from mcpvectordb.index import Allowed, Ranked
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.encoder import BLIND_VECTOR_WEIGHT
from mcpvectordb.index.keyword import NO_MATCH, KeywordMatch
from mcpvectordb.index.models import QueryEmbedding
from mcpvectordb.records import Mode, Scores
from mcpvectordb.search import fusion
from mcpvectordb.search.relevance import Judge, judged_language
from mcpvectordb.search.vector_leg import VectorLeg
from mcpvectordb.text.bm25 import saturate
from mcpvectordb.text.query import Query, parse_query
from mcpvectordb.text.tokens import is_non_latin

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FEEDBACK_CHUNKS = 3  # best chunks towards which the query's embedding is moved
# Scores that differ by less than this are not stretched to the whole scale of 0 to 1: BM25 as a
# share of its highest value, cosines as they are. Candidates of more than a few texts differ more.
TEXT_SPAN, VECTOR_SPAN = 1.0, 0.2
NO_WORDS = "the query has no words to look for"
MODES = ("hybrid", "text", "vector")
MAX_RESULTS = 5_000  # that are ranked: vector ranking of twice as many takes seconds

Weigh = Callable[[Sequence[int]], Mapping[int, float]]
"""From chunks to a weight of each, 0 to 1."""

ScoredChunk = tuple[int, float, Scores]
"""(chunk, score, scores)"""


@dataclass(frozen=True, slots=True)
class ChunkRanking:
    """Chunks, best first; which legs ran, why others did not, and the judge of their relevance."""

    rows: list[ScoredChunk]
    legs: tuple[str, ...]
    reasons: Mapping[str, str]
    judge: Judge


def checked_page(limit: int, offset: int) -> None:
    """Raise InvalidInput unless limit and offset are whole numbers of 0 or more."""
    for name, value in (("limit", limit), ("offset", offset)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            raise InvalidInput(f"{name} must be a whole number of 0 or more, not {value!r}")


def checked_window(limit: int, offset: int) -> int:
    """The number of results to rank for a page; raises InvalidInput if these are too many."""
    checked_page(limit, offset)
    if limit + offset > MAX_RESULTS:
        raise InvalidInput(
            f"limit + offset is {limit + offset:,}, but at most {MAX_RESULTS:,} results are "
            "ranked: narrow the search, or browse"
        )
    return limit + offset


def checked_mode(mode: str) -> Mode:
    """`mode` if it is a known one; raises InvalidInput otherwise."""
    for known in MODES:
        if mode == known:
            # mypy does not narrow a loop variable to the literal
            return known  # type: ignore[return-value]
    raise InvalidInput(f"mode must be hybrid, text or vector, not {mode!r}")


def rank_chunks(
    sql: apsw.Connection,
    index: ChunkIndex,
    text: str,
    query_embedding: QueryEmbedding | str,
    mode: Mode,
    allowed: Allowed,
    wanted: int,
    weigh: Weigh | None = None,
) -> ChunkRanking:
    """The `wanted` best chunks for a query.

    `query_embedding` is the query's embedding, or the reason why there is none. `weigh` returns by
    what the scores of chunks are multiplied before the best are chosen.
    """
    query, depth = parse_query(text), fusion.tier_depth(wanted)
    matched, leg = NO_MATCH, None
    legs: list[str] = []
    reasons: dict[str, str] = {}
    if mode != "vector":
        if query.match:
            matched = index.keyword.match(sql, query, allowed, depth)
            legs.append("text")
        else:
            reasons["text"] = NO_WORDS
    if mode != "text":
        if isinstance(query_embedding, QueryEmbedding):
            leg = VectorLeg(sql, index, query_embedding)
            legs.append("vector")
        else:
            reasons["vector"] = query_embedding
    narrowed = index.keyword.narrowed(query, allowed) if leg else allowed
    if leg and len(legs) == 2 and isinstance(query_embedding, QueryEmbedding):
        weights = _CosineWeights.of(query, query_embedding, matched.code_share)
        near = leg.candidates(narrowed, depth)
        candidates = _Candidates(matched, near)
        fused = candidates.fuse(leg, weights)
    elif leg:
        near = leg.nearest(narrowed, depth)
        candidates = _Candidates(matched, near)
        fused = [(id, min(1.0, max(0.0, cosine))) for id, cosine in near]
    else:
        candidates = _Candidates(matched, [])
        fused = [(id, saturate(score)) for id, score in matched.best]
    recency: Mapping[int, float] = {}
    if weigh is not None:
        recency = weigh([id for id, _ in fused])
        fused = fusion.weighed(fused, recency, candidates.tiers)
    best = fused[:wanted]
    if leg:
        leg.complete([id for id, _ in best])
    rows = [(id, score, candidates.scores(id, leg, recency.get(id))) for id, score in best]
    return ChunkRanking(rows, tuple(legs), reasons, judge(text, query, query_embedding))


class _CosineWeights(NamedTuple):
    """The weights of cosines in fusion: of those by the file's model, and of provisional ones."""

    own: float
    provisional: float

    @classmethod
    def of(cls, query: Query, embedding: QueryEmbedding, code_share: float) -> _CosineWeights:
        """The weights for a query: the more of its BM25 is due to codes, the less cosines mean."""

        def weight(usual: float) -> float:
            if query.exact:
                return BLIND_VECTOR_WEIGHT
            return min(usual, usual + (BLIND_VECTOR_WEIGHT - usual) * code_share)

        return cls(weight(embedding.weight), weight((embedding.provisional or embedding).weight))


def judge(text: str, query: Query, query_embedding: QueryEmbedding | str) -> Judge:
    """The judge of the relevance of a query's results."""
    found = query_embedding if isinstance(query_embedding, QueryEmbedding) else None
    fast = found.provisional if found else None
    return Judge(
        found.name if found else "",
        exact=query.exact,
        foreign=is_non_latin(text),
        language=judged_language(text),
        provisional=fast.name if fast else "",
    )


class _Candidates:
    """The candidates of both legs, with their scores and ranks in each."""

    def __init__(self, matched: KeywordMatch, near: Ranked) -> None:
        self._matched, self._text = matched, dict(matched.best)
        self._text_rank = {id: rank for rank, id in enumerate(self._text, 1)}
        self._vector_rank = {id: rank for rank, (id, _) in enumerate(near, 1)}
        self.tiers = fusion.tiers([list(self._text_rank), list(self._vector_rank)])

    def fuse(self, leg: VectorLeg, weights: _CosineWeights) -> Ranked:
        """The candidates by both scores, after pseudo-relevance feedback from the best ones.

        Each gets both true scores before, also those that only the other leg found.
        """
        import numpy as np

        missing = [id for id in self._vector_rank if id not in self._text]
        self._text |= self._matched.scores(missing)
        ids = np.array(sorted(self.tiers), np.int64)
        tiers, text = (
            np.array([figures[id] for id in ids.tolist()]) for figures in (self.tiers, self._text)
        )
        cosines = leg.cosines(ids)
        weight = np.where(leg.provisional(ids), weights.provisional, weights.own)
        spans = [TEXT_SPAN * max(self._text.values(), default=0.0), VECTOR_SPAN]

        def fused(cosines: NDArray[np.float64]) -> Ranked:
            return fusion.fuse(ids, [text, cosines], [1 - weight, weight], tiers, spans)

        best = [id for id, _ in fused(cosines)[:FEEDBACK_CHUNKS]]
        return fused(leg.cosines(ids, best))

    def scores(self, id: int, leg: VectorLeg | None, recency: float | None) -> Scores:
        """The scores and ranks of a candidate in both legs."""
        return Scores(
            text=self._text.get(id),
            text_rank=self._text_rank.get(id),
            vector=leg.cosine(id) if leg else None,
            vector_rank=self._vector_rank.get(id),
            reach=self._matched.full_score,
            recency=recency,
            provisional=leg is not None and leg.is_provisional(id),
        )
