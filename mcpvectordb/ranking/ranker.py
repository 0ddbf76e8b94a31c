"""The ranker: from a question to the best passages, documents or memories, in one snapshot.

Retrievers (`words`, `meaning`) rank some candidates each. Fusion makes one ranking of them:

convex  Every candidate gets both true scores (the BM25 of those that only meaning found, the
        cosine of those that only words found), and the scores are combined (`fuse`: a completed
        convex combination). The query's embedding is moved towards the three best (Rocchio), and
        the combination is computed again with the cosines to that. All of these cosines are those
        of the codes; embeddings are read of the results only, to report exact cosines.
rrf     Reciprocal ranks are summed. Two surfaces' specifications show its numbers.

Then newer items are preferred, the best are read by a cross-encoder, and their relevance is judged.
What differs between passages, documents and memories is what an id means: that of a passage, or of
an item that has several, by its nearest one (`meaning.OwnerRetriever`).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import apsw

from mcpvectordb import dates
from mcpvectordb.errors import InvalidInput, quoted
from mcpvectordb.index.chunks import QueryEmbedding
from mcpvectordb.index.encoder import BLIND_VECTOR_WEIGHT, NO_WORDS
from mcpvectordb.index.keyword import NO_MATCH, KeywordMatch
from mcpvectordb.index.resident import Allowed, Ranked
from mcpvectordb.metadata import checked_page
from mcpvectordb.ranking import relevance
from mcpvectordb.ranking.meaning import MeaningRetriever, OwnerRetriever
from mcpvectordb.ranking.relevance import UNCALIBRATED, Judge
from mcpvectordb.ranking.snippets import word_shares
from mcpvectordb.records import RRF_K, Explained, Fusion, Hit, Mode, Results, Scores
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.lazy import np
from mcpvectordb.text.query import Query, saturate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

FEEDBACK = 3  # best candidates towards which the query's embedding is moved
# Candidates of each retriever that are fused with each other; deeper ones follow in tiers
# (`tiers`), so that asking for more results does not change the first ones.
DEPTH = 100
# What is among the first AGREED of both retrievers is among the first KEPT of their fusion.
AGREED, KEPT = 3, 5
BESIDE = 30  # candidates of each retriever whose neighbours are candidates, too
# Scores that differ by less than this are not stretched to the whole scale of 0 to 1: BM25 as a
# share of its highest value, cosines as they are. Candidates of more than a few texts differ more.
TEXT_SPAN, VECTOR_SPAN = 1.0, 0.2
MODES = ("hybrid", "text", "vector")
MAX_RESULTS = 5_000  # that are ranked: vector ranking of twice as many takes seconds
MAX_RRF_K = 1_000

T = TypeVar("T")

Blend = Callable[[Sequence[float], Sequence[float]], list[tuple[int, float]]]
"""From scores and the cross-encoder's scores to (place, score), best first."""

Row = tuple[int, float, Scores]
"""(id, score, scores)"""

Weigh = Callable[[Sequence[int], "Recency"], Mapping[int, float]]
"""How much each of some ids counts by its age."""


@dataclass(frozen=True, slots=True)
class Recency:
    """A preference for what is newer: how much a time counts, seen from `now`."""

    half_life: timedelta
    now: datetime

    @staticmethod
    def parse(newer: str | None, now: datetime) -> Recency | None:
        """The preference that `newer`, a half-life such as 30d, asks for; None asks for none."""
        return None if newer is None else Recency(dates.duration(newer, "newer"), now)

    def weight(self, moment: str) -> float:
        """1 for the present and the future, half as much for each half-life that has passed."""
        try:
            when = datetime.fromisoformat(moment)
        except ValueError:  # of a server that sends what is no time
            return 1.0
        age = self.now - (when if when.tzinfo else when.replace(tzinfo=UTC))
        return float(0.5 ** max(0.0, age / self.half_life))


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
        checked_relevance(self.min_relevance)

    @property
    def wanted(self) -> int:
        """The number of results to rank."""
        return self.limit + self.offset


def checked_relevance(least: float) -> float:
    """`least` if it is a valid minimum of relevance; raises InvalidInput otherwise."""
    if isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least <= 1:
        raise InvalidInput(f"min_relevance must be 0 to 1, not {least!r}")
    return float(least)


def checked_window(limit: int, offset: int) -> None:
    """Raise InvalidInput unless a page is one of those that are ranked."""
    checked_page(limit, offset)
    if limit + offset > MAX_RESULTS:
        raise InvalidInput(
            f"limit + offset is {limit + offset:,}, but at most {MAX_RESULTS:,} results are "
            "ranked: narrow the search, or browse"
        )


class StatementLog:
    """Measures the time of its `with` block and, if `on`, records the plans of its SELECTs."""

    def __init__(self, sql: Sql, on: bool) -> None:
        self._sql, self._on = sql, on
        self._statements: list[tuple[str, Any]] = []
        self._milliseconds = 0.0

    def __enter__(self) -> Self:
        if self._on:
            self._sql.exec_trace = self._trace
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._milliseconds = 1000 * (time.perf_counter() - self._began)
        if self._on:
            self._sql.exec_trace = None

    def explained(self, rows: int) -> Explained:
        """The time, the number of rows and the recorded plans."""
        plans = [
            line
            for statement, bindings in self._statements
            for line in _plan(self._sql, statement, bindings)
        ]
        return Explained(milliseconds=self._milliseconds, rows=rows, plan="\n".join(plans))

    def _trace(self, _: apsw.Cursor, statement: str, bindings: Any) -> bool:
        if statement.lstrip().startswith("SELECT"):
            self._statements.append((statement, bindings))
        return True


def _plan(sql: Sql, statement: str, bindings: Any) -> list[str]:
    rows: list[Any] = sql.execute(f"{sql.dialect.explain} {statement}", bindings).fetchall()
    if len(rows[0]) == 1:  # PostgreSQL's, which are lines already
        return [str(line) for (line,) in rows]
    depths = {0: -1}
    lines = []
    for id, parent, _, detail in rows:
        depths[id] = depths.get(parent, -1) + 1
        lines.append("  " * depths[id] + str(detail))
    return lines


@dataclass(slots=True)
class Ranking:
    """Rows, best first, and how they were found.

    `found` has what each retriever that ran returned, `reasons` why others did not. `meaning` is
    the retriever that knows the exact cosines. `verdict` and `uncalibrated` are those of `Results`.
    """

    query: Query = field(default_factory=Query)
    judge: Judge = UNCALIBRATED
    rows: list[Row] = field(default_factory=list)
    found: dict[str, Ranked] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    explained: dict[str, Explained] = field(default_factory=dict)
    meaning: MeaningRetriever | OwnerRetriever | None = None
    matched: KeywordMatch = NO_MATCH
    verdict: str = ""
    uncalibrated: str = ""
    note: str = ""

    @contextmanager
    def explaining(self, sql: Sql, question: Question, name: str) -> Iterator[None]:
        """Add the statements that a retriever runs in the block, if the question asks for them."""
        if not question.explain:
            yield
            return
        with StatementLog(sql, True) as log:
            yield
        self.explained[name] = log.explained(len(self.found[name]))

    def first(self, name: str) -> list[int]:
        """The first AGREED that a retriever has found."""
        return [id for id, _ in self.found[name][:AGREED]]

    def alone(self, score: float) -> float:
        """The score, 0 to 1, of what one retriever alone has found."""
        return saturate(score) if "text" in self.found else min(1.0, max(0.0, score))

    def age(self, question: Question, weigh: Weigh) -> None:
        """Multiply the scores of all rows by the weights of their ages, and order them by that."""
        if question.recency is None:
            return
        weights = weigh([id for id, _, _ in self.rows], question.recency)
        aged = [
            (id, score * weights[id], replace(scores, recency=weights[id]))
            for id, score, scores in self.rows
        ]
        self.rows = sorted(aged, key=lambda row: -row[1])

    def rerank(self, figures: Sequence[float] | str, blend: Blend) -> None:
        """Blend the scores of the first rows with the cross-encoder's, or note why it has none.

        Rows that the cross-encoder did not read keep their order behind those that it did.
        """
        if isinstance(figures, str):
            self.reasons["rerank"] = figures
            return
        first, rest = self.rows[: len(figures)], self.rows[len(figures) :]
        aged = [
            figure * (1.0 if row[2].recency is None else row[2].recency)
            for figure, row in zip(figures, first, strict=True)
        ]
        read = [
            (first[place][0], score, replace(first[place][2], rerank=figures[place]))
            for place, score in blend([score for _, score, _ in first], aged)
        ]
        self.found["rerank"] = [(id, score) for id, score, _ in read]
        self.rows = read + [(id, min(score, read[-1][1]), scores) for id, score, scores in rest]

    def page(self, question: Question) -> list[Row]:
        """The rows that a question asks for, as far as their scores suffice."""
        rows = self.rows[question.offset : question.wanted]
        return [row for row in rows if row[1] >= question.min_score]

    def judged(
        self, question: Question, first: Sequence[tuple[Scores, str, str]], passages: int
    ) -> list[tuple[Row, float | None]]:
        """The rows of the page that are relevant enough, with their relevance; sets the verdict.

        `first` are the first rows (`relevance.JUDGED` of them, if there are so many): scores, the
        text, and what was searched of it, with titles and headings. `passages` is how many were
        searched.
        """
        shares = word_shares(self.query, [searched for _, _, searched in first])
        evidence = [
            relevance.Evidence(scores, text, share)
            for (scores, text, _), share in zip(first, shares, strict=True)
        ]
        page = self.page(question)
        ranks = range(question.offset + 1, question.offset + len(page) + 1)
        known = self.judge.relevance(evidence, passages, ranks)
        least = question.min_relevance
        self.uncalibrated = self.judge.reason if None in known else ""
        if least and self.uncalibrated:
            self.reasons["relevance"] = self.uncalibrated
        self.verdict = relevance.verdict(known, least)
        if not page:
            self.note = self._why_empty(question, passages)
        return [
            (row, each)
            for row, each in zip(page, known, strict=True)
            if each is None or each >= least
        ]

    def _why_empty(self, question: Question, searched: int) -> str:
        """Why a page has no rows, as far as the question itself explains it."""
        query = self.query
        if not self.found:
            return NO_WORDS if NO_WORDS in self.reasons.values() else ""
        if not searched:
            return ""
        if self.rows and question.offset >= len(self.rows):
            return f"offset {question.offset} is past the last of {len(self.rows)} results"
        if self.rows:
            return f"no result has a score of {question.min_score} or more"
        if query.required:
            phrases = " and ".join(quoted(each) for each in query.quoted)
            return f"nothing that was searched has {phrases}, word for word" + (
                ", and these words are too common to search by: add one that says what you look for"
                if query.common
                else ""
            )
        if query.excluded:
            return "all that matches has a word that the query excludes by a minus"
        return "nothing that was searched matches these words"

    def results(
        self, question: Question, hits: Sequence[Hit[T]], began: float, **more: Any
    ) -> Results[T]:
        """The answer to a question that was asked at `began`."""
        explained = Explained(
            milliseconds=1000 * (time.perf_counter() - began),
            rows=len(hits),
            plan="\n".join(leg.plan for leg in self.explained.values()),
            legs=self.explained,
        )
        return Results(
            hits=tuple(hits),
            legs=tuple(self.found),
            reasons=self.reasons,
            verdict=self.verdict,
            uncalibrated=self.uncalibrated,
            note=self.note,
            explained=explained if question.explain else None,
            **more,
        )


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known of candidates by what surrounds them.

    words    the BM25 of each together with its neighbours, None if it has none
    meaning  the part of meaning's usual weight that is left beside such words
    legs     further scores of each, 0 to 1, with the weight of each leg
    """

    words: Numbers | None
    meaning: float
    legs: Sequence[tuple[Numbers, float]]


class Neighbourhood(Protocol):
    """Says what surrounds candidates. It is asked about the first tier only (`tiers`)."""

    def beside(self, ids: Sequence[int]) -> Sequence[int]:
        """What stands beside candidates and may be found, too."""

    def around(self, ids: NDArray[np.int64]) -> Surroundings | None:
        """What surrounds candidates, whose ids ascend; None if nothing does."""


@dataclass(frozen=True, slots=True)
class Retrievers:
    """What can find something for a query.

    words    the best candidates by words, of a number of them, or the reason why there are none
    meaning  the retriever by meaning, or the reason why there is none
    allowed  what meaning may find
    newest   whether the later of two equal candidates comes first
    near     says what surrounds candidates, where anything may
    """

    sql: Sql
    query: Query
    words: Callable[[int], KeywordMatch] | str
    meaning: MeaningRetriever | OwnerRetriever | str
    allowed: Allowed
    embedding: QueryEmbedding | str
    newest: bool = False
    near: Neighbourhood | None = None

    def ranking(self, question: Question) -> Ranking:
        """A ranking without rows, and with the judge of its results' relevance."""
        return Ranking(self.query, relevance.judge(question.text, self.query, self.embedding))

    def run(self, question: Question, depth: int, *, exact: bool = False) -> Ranking:
        """What each retriever finds that the mode asks for, without a fusion of them.

        With `exact`, or by meaning alone, cosines are exact; otherwise those of the codes.
        """
        ranking = self.ranking(question)
        if question.mode != "vector":
            if isinstance(self.words, str):
                ranking.reasons["text"] = self.words
            else:
                with ranking.explaining(self.sql, question, "text"):
                    ranking.matched = self.words(depth)
                    ranking.found["text"] = ranking.matched.best
        if question.mode != "text":
            if isinstance(self.meaning, str):
                ranking.reasons["vector"] = self.meaning
            else:
                alone = "text" not in ranking.found
                find = self.meaning.nearest if exact or alone else self.meaning.candidates
                with ranking.explaining(self.sql, question, "vector"):
                    ranking.found["vector"] = find(self.allowed, depth)
                ranking.meaning = self.meaning
        return ranking

    def rank(self, question: Question, wanted: int, weigh: Weigh) -> Ranking:
        """The `wanted` best by the convex combination; ages count before they are chosen."""
        ranking = self.run(question, tier_depth(wanted))
        text, near = (dict(ranking.found.get(name, ())) for name in ("text", "vector"))
        text_rank, vector_rank = (dict(zip(each, itertools.count(1))) for each in (text, near))
        tier = tiers([list(text), list(near)])
        if ranking.meaning is not None and "text" in ranking.found:
            if self.near is not None:
                beside = self.near.beside([*list(text)[:BESIDE], *list(near)[:BESIDE]])
                tier |= dict.fromkeys(beside, 0)
            both = {*ranking.first("text")} & {*ranking.first("vector")}
            ids = np.array(sorted(tier), np.int64)
            bm25 = ranking.matched.scores(ids)
            text = dict(zip(ids.tolist(), bm25.tolist(), strict=True))
            depths = np.array([tier[id] for id in text])
            fused = self._fused(ranking, ranking.meaning, ids, bm25, depths)
            fused = kept_high(fused, both)
        else:
            fused = [(id, ranking.alone(score)) for id, score in (text or near).items()]
        recency: Mapping[int, float] = {}
        if question.recency is not None:
            recency = weigh([id for id, _ in fused], question.recency)
            fused = weighed(fused, recency, tier)
        best = fused[:wanted]
        exact = ranking.meaning.exact([id for id, _ in best]) if ranking.meaning else {}
        reach = ranking.matched.full_score
        ranking.rows = [
            (
                id,
                score,
                Scores(
                    text=text.get(id),
                    text_rank=text_rank.get(id),
                    vector=exact.get(id),
                    vector_rank=vector_rank.get(id),
                    rrf=None,
                    rerank=None,
                    reach=reach,
                    recency=recency.get(id),
                ),
            )
            for id, score in best
        ]
        return ranking

    def _fused(
        self,
        ranking: Ranking,
        meaning: MeaningRetriever | OwnerRetriever,
        ids: NDArray[np.int64],
        bm25: Numbers,
        depths: NDArray[np.int64],
    ) -> Ranked:
        """All candidates by both scores, after pseudo-relevance feedback from the best ones.

        `ids` ascend; `depths` are their tiers.
        """
        weight = self._weight(ranking.matched.code_share)
        first = depths == 0
        known = self.near.around(ids[first]) if self.near is not None and first.any() else None
        further: list[Leg] = []
        if known is not None:
            if known.words is not None:
                bm25[first] = known.words
            weight *= known.meaning
            for leg, part in known.legs:
                whole = np.full(len(ids), np.nan)
                whole[first] = leg
                further.append(weighted(whole, part, first, 1.0))
        words = weighted(bm25, 1 - weight, first, TEXT_SPAN * float(bm25.max(initial=0.0)))

        def fused(cosines: Numbers) -> tuple[NDArray[np.int64], Numbers]:
            legs = [words, weighted(cosines, weight, first, VECTOR_SPAN), *further]
            return summed(ids, legs, depths, newest=self.newest)

        best = fused(meaning.cosines(ids))[0][:FEEDBACK].tolist()
        found, scores = fused(meaning.cosines(ids, best))
        return list(zip(found.tolist(), scores.tolist(), strict=True))

    def _weight(self, code_share: float) -> float:
        """The weight of cosines: the more of the query's BM25 is due to codes, the lower."""
        if self.query.exact or not isinstance(self.embedding, QueryEmbedding):
            return BLIND_VECTOR_WEIGHT
        usual = self.embedding.weight
        return min(usual, usual + (BLIND_VECTOR_WEIGHT - usual) * code_share)


# Fusion of ranked lists into one: pure arithmetic on scores.


Leg = tuple["Numbers", "Numbers | float"]
"""The scores of candidates by one retriever times its weight, and the weight of each of them."""


def fuse(
    ids: NDArray[np.int64],
    legs: Sequence[Numbers],
    weights: Sequence[float],
    tiers: NDArray[np.int64],
    spans: Sequence[float] = (),
    *,
    newest: bool = False,
) -> tuple[NDArray[np.int64], Numbers]:
    """Completed convex combination: ids, best first, and their scores, 0 to 1, not increasing.

    Each leg has the true score of every candidate that it can score, also of those that only
    another leg found ("completed"), and NaN for the others. Its scores are scaled to 0..1 by their
    minimum and maximum over the candidates of tier 0 and averaged by weight. A leg whose scores lie
    within less than its span (0 unless given) is scaled by that span: what differs little keeps
    differing little. A candidate without a score in a leg gets the average of the others. Bruch,
    Gai and Ingber (2023) compare this convex combination with reciprocal rank fusion: it uses how
    far scores are apart, not only their order. Candidates of a deeper tier come after all of the
    shallower ones and never score higher, so a longer list always begins with the shorter one. The
    ids ascend; of equal scores the lower id comes first, or with `newest` the higher one.
    """
    each = zip(legs, weights, spans or [0.0] * len(legs), strict=True)
    parts = [weighted(leg, weight, tiers == 0, span) for leg, weight, span in each]
    return summed(ids, parts, tiers, newest=newest)


def weighted(leg: Numbers, weight: float, first: NDArray[np.bool_], least: float) -> Leg:
    """The scores of a leg on a scale whose 1 is the best of the `first` candidates, by weight."""
    known = ~np.isnan(leg)
    among = leg[known & first]
    if not len(among):
        return np.zeros(len(leg)), np.where(known, weight, 0.0)
    low, high = float(among.min()), float(among.max())
    if high == low:  # all match equally, or none does
        scores = np.full(len(leg), weight if low > 0 else 0.0)
    else:
        span = max(high - low, least)
        scores = (leg - low) / span
        scores += 1 - (high - low) / span  # of the lowest: the highest is always 1
        np.minimum(np.maximum(scores, 0.0, out=scores), 1.0, out=scores)
        scores *= weight
    if known.all():
        return scores, weight
    scores[~known] = 0.0
    return scores, np.where(known, weight, 0.0)


def summed(
    ids: NDArray[np.int64], legs: Sequence[Leg], tiers: NDArray[np.int64], *, newest: bool
) -> tuple[NDArray[np.int64], Numbers]:
    """The average of weighted legs; see `fuse`."""
    total: Numbers | float = sum(weight for _, weight in legs)
    scores = sum((leg for leg, _ in legs), np.zeros(len(ids)))
    if isinstance(total, float):
        scores /= total or 1.0
    else:
        scores = np.divide(scores, total, out=np.zeros(len(ids)), where=total > 0)
    if newest:
        ids, scores, tiers = ids[::-1], scores[::-1], tiers[::-1]
    order = np.lexsort((-scores, tiers))
    return ids[order], np.minimum.accumulate(scores[order])


def kept_high(fused: Ranked, both: Set[int]) -> Ranked:
    """A ranking with some ids among its first KEPT: what both retrievers rank high is not lost.

    A combination of two scores holds that by itself, feedback from other candidates may not.
    """
    if both <= {id for id, _ in fused[:KEPT]}:
        return fused
    others = (id for id, _ in fused if id not in both)
    high = {*both, *itertools.islice(others, KEPT - len(both))}
    ids = sorted((id for id, _ in fused), key=lambda id: id not in high)
    scores = dict(fused)
    best = itertools.accumulate((scores[id] for id in reversed(ids)), max)
    return list(zip(ids, list(best)[::-1], strict=True))


def weighed(
    fused: Sequence[tuple[int, float]], weights: Mapping[int, float], tiers: Mapping[int, int]
) -> list[tuple[int, float]]:
    """Fused scores multiplied by a weight of each id (1 unless given), in their new order.

    Deeper tiers still come after shallower ones, as in `fuse`.
    """
    scores = {id: score * weights.get(id, 1.0) for id, score in fused}
    order = sorted(scores, key=lambda id: (tiers[id], -scores[id], id))
    return list(zip(order, itertools.accumulate((scores[id] for id in order), min), strict=True))


def tiers(rankings: Sequence[Sequence[int]], depth: int = DEPTH) -> dict[int, int]:
    """The tier of every id: 0 within the first `depth` of any ranking, one more per doubling.

    Without tiers, a candidate from deep in one ranking could be placed before earlier results as
    soon as more results are asked for: pages would overlap. Within a tier all candidates are fused;
    as tiers double, any number of results needs few of them (`tier_depth`).
    """
    found: dict[int, int] = {}
    for ranking in rankings:
        found |= dict.fromkeys(ranking[:depth], 0)
    for ranking in rankings:
        for rank, id in enumerate(ranking[depth:], depth + 1):
            tier = math.ceil(math.log2(rank / depth))
            found[id] = min(tier, found.get(id, tier))
    return found


def tier_depth(wanted: int, depth: int = DEPTH) -> int:
    """How many candidates each leg must return for `wanted` results, in whole tiers."""
    return depth if wanted <= depth else depth * 2 ** math.ceil(math.log2(wanted / depth))


def rrf(
    rankings: Sequence[Sequence[int]], k: int = 60, weights: Sequence[float] | None = None
) -> list[tuple[int, float]]:
    """Reciprocal rank fusion: (id, sum of weight / (k + rank)) pairs, best first.

    Ranks count from 1; weights are 1 unless given. Equal sums are ordered by the best rank, then by
    id. (Cormack, Clarke and Büttcher, 2009)
    """
    scores: dict[int, float] = {}
    best: dict[int, int] = {}
    for ranking, weight in zip(rankings, weights or [1.0] * len(rankings), strict=True):
        for rank, id in enumerate(ranking, 1):
            scores[id] = scores.get(id, 0.0) + weight / (k + rank)
            best[id] = min(rank, best.get(id, rank))
    return sorted(scores.items(), key=lambda pair: (-pair[1], best[pair[0]], pair[0]))


def blended(scores: Sequence[float], reranked: Sequence[float]) -> list[tuple[int, float]]:
    """Blend scores with a reranker's in equal parts: (position, score), best first.

    The result is on the scale of the given scores.
    """
    places = np.arange(len(scores))
    legs = [np.array(leg, np.float64) for leg in (scores, reranked)]
    order, halves = fuse(places, legs, [0.5, 0.5], np.zeros_like(places))
    low, high = (min(scores), max(scores)) if scores else (0.0, 0.0)
    blend = (low + (high - low) * half for half in halves.tolist())
    return list(zip(order.tolist(), blend, strict=True))
