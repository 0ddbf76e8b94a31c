"""The ranker: from a question to the best passages, documents or memories, in one snapshot.

Retrievers (`words`, `meaning`) rank some candidates each. Fusion makes one ranking of them:

convex  Every candidate gets both true scores (the BM25 of those that only meaning found, the
        cosine of those that only words found), and the scores are combined (`fusion.fuse`: a
        completed convex combination). The query's embedding is moved towards the three best
        (Rocchio), and the combination is computed again with the cosines to that. All of these
        cosines are those of the codes; embeddings are read of the results only, to report exact
        cosines.
rrf     Reciprocal ranks are summed. Two surfaces' specifications show its numbers.

Then newer items are preferred, the best are read by a cross-encoder, and their relevance is judged.
What differs between passages, documents and memories is what an id means: that of a passage, or of
an item that has several, by its nearest one (`meaning.OwnerRetriever`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import apsw

from mcpvectordb.errors import InvalidInput, quoted
from mcpvectordb.index import Allowed, Ranked
from mcpvectordb.index.encoder import BLIND_VECTOR_WEIGHT
from mcpvectordb.index.keyword import NO_MATCH, KeywordMatch
from mcpvectordb.index.models import QueryEmbedding
from mcpvectordb.records import Explained, Mode, Scores
from mcpvectordb.search import fusion, relevance
from mcpvectordb.search.explain import StatementLog
from mcpvectordb.search.meaning import MeaningRetriever, OwnerRetriever
from mcpvectordb.search.recency import Recency
from mcpvectordb.search.relevance import UNCALIBRATED, Judge, judged_language
from mcpvectordb.search.snippets import Snippets
from mcpvectordb.text.bm25 import saturate
from mcpvectordb.text.query import Query
from mcpvectordb.text.tokens import is_non_latin

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FEEDBACK = 3  # best candidates towards which the query's embedding is moved
# Scores that differ by less than this are not stretched to the whole scale of 0 to 1: BM25 as a
# share of its highest value, cosines as they are. Candidates of more than a few texts differ more.
TEXT_SPAN, VECTOR_SPAN = 1.0, 0.2
NO_WORDS = "the query has no words to look for"
MODES = ("hybrid", "text", "vector")
MAX_RESULTS = 5_000  # that are ranked: vector ranking of twice as many takes seconds
RRF_K, MAX_RRF_K = 60, 1_000  # as in the paper of reciprocal rank fusion, and the largest allowed

Fusion = Literal["convex", "rrf"]

Blend = Callable[[Sequence[float], Sequence[float]], list[tuple[int, float]]]
"""From scores and the cross-encoder's scores to (place, score), best first."""

Row = tuple[int, float, Scores]
"""(id, score, scores)"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A checked query, and how to answer it."""

    text: str
    mode: Mode = "hybrid"
    limit: int = 10
    offset: int = 0
    fusion: Fusion = "convex"
    rrf_k: int = RRF_K
    rerank: bool = False
    recency: Recency | None = None
    min_score: float = 0.0
    min_relevance: float = 0.0
    explain: bool = False

    def __post_init__(self) -> None:
        checked_window(self.limit, self.offset)
        for name, value, known in (
            ("mode", self.mode, MODES),
            ("fusion", self.fusion, ("convex", "rrf")),
        ):
            if value not in known:
                names = f"{', '.join(known[:-1])} or {known[-1]}"
                raise InvalidInput(f"{name} must be {names}, not {quoted(value)}")
        k = self.rrf_k
        if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_RRF_K:
            raise InvalidInput(f"rrf_k must be a whole number of 1 to {MAX_RRF_K}, not {quoted(k)}")
        relevance.checked(self.min_relevance)

    @property
    def wanted(self) -> int:
        """The number of results to rank."""
        return self.limit + self.offset


@dataclass(slots=True)
class Ranking:
    """Rows, best first, and how they were found.

    `found` has what each retriever that ran returned, `reasons` why others did not. `meaning` is
    the retriever that knows the exact cosines.
    """

    rows: list[Row] = field(default_factory=list)
    found: dict[str, Ranked] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    explained: dict[str, Explained] = field(default_factory=dict)
    judge: Judge = UNCALIBRATED
    meaning: MeaningRetriever | OwnerRetriever | None = None
    matched: KeywordMatch = NO_MATCH

    @property
    def counts(self) -> dict[str, int]:
        """How many items each retriever found, how many both found, and how many in all."""
        text, vector = (set(dict(self.found.get(name, ()))) for name in ("text", "vector"))
        return {
            "text": len(text),
            "vector": len(vector),
            "both": len(text & vector),
            "total": len(text | vector),
        }


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


@dataclass(frozen=True, slots=True)
class Retrievers:
    """What can find something for a query.

    words    the best candidates by words, of a number of them, or the reason why there are none
    meaning  the retriever by meaning, or the reason why there is none
    allowed  what meaning may find
    newest   whether the later of two equal candidates comes first
    """

    sql: apsw.Connection
    query: Query
    words: Callable[[int], KeywordMatch] | str
    meaning: MeaningRetriever | OwnerRetriever | str
    allowed: Allowed
    embedding: QueryEmbedding | str
    newest: bool = False

    def run(self, question: Question, depth: int, *, exact: bool = False) -> Ranking:
        """What each retriever finds that the mode asks for, without a fusion of them.

        With `exact`, or by meaning alone, cosines are exact; otherwise those of the codes.
        """
        ranking = Ranking(judge=judge(question.text, self.query, self.embedding))
        if question.mode != "vector":
            if isinstance(self.words, str):
                ranking.reasons["text"] = self.words
            else:
                with StatementLog(self.sql, question.explain) as log:
                    ranking.matched = self.words(depth)
                ranking.found["text"] = ranking.matched.best
                if question.explain:
                    ranking.explained["text"] = log.explained(len(ranking.matched.best))
        if question.mode != "text":
            if isinstance(self.meaning, str):
                ranking.reasons["vector"] = self.meaning
            else:
                alone = "text" not in ranking.found
                find = self.meaning.nearest if exact or alone else self.meaning.candidates
                with StatementLog(self.sql, question.explain) as log:
                    ranking.found["vector"] = find(self.allowed, depth)
                ranking.meaning = self.meaning
                if question.explain:
                    ranking.explained["vector"] = log.explained(len(ranking.found["vector"]))
        return ranking

    def rank(
        self, question: Question, wanted: int, weigh: Callable[[Sequence[int]], Mapping[int, float]]
    ) -> Ranking:
        """The `wanted` best by the convex combination.

        `weigh` returns by what the scores of candidates are multiplied before the best are chosen,
        as far as that is not 1.
        """
        ranking = self.run(question, fusion.tier_depth(wanted))
        candidates = _Candidates(ranking)
        if len(ranking.found) == 2 and isinstance(self.embedding, QueryEmbedding):
            share = ranking.matched.code_share
            weights = _CosineWeights.of(self.query, self.embedding, share)
            fused = candidates.fuse(weights, newest=self.newest)
        else:
            fused = [(id, alone(ranking, score)) for id, score in candidates.only]
        recency = weigh([id for id, _ in fused])
        if recency:
            fused = fusion.weighed(fused, recency, candidates.tiers)
        best = fused[:wanted]
        if ranking.meaning:
            ranking.meaning.complete([id for id, _ in best])
        ranking.rows = [(id, score, candidates.scores(id, recency.get(id))) for id, score in best]
        return ranking


def alone(ranking: Ranking, score: float) -> float:
    """The score, 0 to 1, of what one retriever alone has found."""
    return saturate(score) if "text" in ranking.found else min(1.0, max(0.0, score))


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
    """The candidates of a ranking's retrievers, with their scores and ranks in each."""

    def __init__(self, ranking: Ranking) -> None:
        self._ranking, self._text = ranking, dict(ranking.found.get("text", ()))
        self._text_rank = {id: rank for rank, id in enumerate(self._text, 1)}
        near = ranking.found.get("vector", ())
        self._vector_rank = {id: rank for rank, (id, _) in enumerate(near, 1)}
        self.tiers = fusion.tiers([list(self._text_rank), list(self._vector_rank)])

    @property
    def only(self) -> Ranked:
        """What one retriever has found, where there are not two."""
        return next(iter(self._ranking.found.values()), [])

    def fuse(self, weights: _CosineWeights, *, newest: bool) -> Ranked:
        """The candidates by both scores, after pseudo-relevance feedback from the best ones.

        Each gets both true scores before, also those that only the other retriever found.
        """
        import numpy as np

        meaning = self._ranking.meaning
        assert meaning is not None, "both retrievers have run"  # noqa: S101
        missing = [id for id in self._vector_rank if id not in self._text]
        self._text |= self._ranking.matched.scores(missing)
        ids = np.array(sorted(self.tiers), np.int64)
        tiers, text = (
            np.array([figures[id] for id in ids.tolist()]) for figures in (self.tiers, self._text)
        )
        cosines = meaning.cosines(ids)
        weight = np.where(meaning.provisional(ids), weights.provisional, weights.own)
        spans = [TEXT_SPAN * max(self._text.values(), default=0.0), VECTOR_SPAN]

        def fused(cosines: NDArray[np.float64]) -> Ranked:
            return fusion.fuse(
                ids, [text, cosines], [1 - weight, weight], tiers, spans, newest=newest
            )

        best = [id for id, _ in fused(cosines)[:FEEDBACK]]
        return fused(meaning.cosines(ids, best))

    def scores(self, id: int, recency: float | None) -> Scores:
        """The scores and ranks of a candidate by both retrievers."""
        meaning = self._ranking.meaning
        return Scores(
            text=self._text.get(id),
            text_rank=self._text_rank.get(id),
            vector=meaning.cosine(id) if meaning else None,
            vector_rank=self._vector_rank.get(id),
            reach=self._ranking.matched.full_score,
            recency=recency,
            provisional=meaning is not None and meaning.is_provisional(id),
        )


def rerank(ranking: Ranking, figures: Sequence[float] | str, blend: Blend) -> None:
    """Blend the scores of the first rows with the cross-encoder's; a text says why there are none.

    Rows that the cross-encoder did not read keep their order behind those that it did.
    """
    if isinstance(figures, str):
        ranking.reasons["rerank"] = figures
        return
    first, rest = ranking.rows[: len(figures)], ranking.rows[len(figures) :]
    aged = [
        figure * (1.0 if row[2].recency is None else row[2].recency)
        for figure, row in zip(figures, first, strict=True)
    ]
    read = [
        (first[place][0], score, replace(first[place][2], rerank=figures[place]))
        for place, score in blend([score for _, score, _ in first], aged)
    ]
    ranking.found["rerank"] = [(id, score) for id, score, _ in read]
    ranking.rows = read + [(id, min(score, read[-1][1]), scores) for id, score, scores in rest]


class Judged(NamedTuple):
    """The relevance of each row of a page, and what is said of the page as a whole."""

    known: list[float | None]
    verdict: str
    uncalibrated: str


def judged(
    question: Question,
    ranking: Ranking,
    page: Sequence[Row],
    texts: Sequence[str],
    passages: Callable[[], Sequence[str]],
    few: Callable[[], bool],
) -> Judged:
    """Judge a page whose rows have these texts.

    `passages` are what was searched of them, with titles and headings; `few` says whether few
    passages were searched. Both are rarely asked for.
    """
    known = relevance.shared(
        [
            ranking.judge.relevance(scores, text)
            for (_, _, scores), text in zip(page, texts, strict=True)
        ],
        texts,
    )
    uncalibrated = ranking.judge.reason if None in known else ""
    if question.min_relevance and uncalibrated:
        ranking.reasons["relevance"] = uncalibrated
    verdict = relevance.verdict(known, question.min_relevance)
    if verdict:  # which is rare
        snippets = Snippets(question.text)
        words = max(map(snippets.share, passages()), default=0.0)
        verdict = relevance.verdict(known, question.min_relevance, words, few=few())
    return Judged(known, verdict, uncalibrated)
