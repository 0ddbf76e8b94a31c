"""Relevance: how likely it is, 0 to 1, that a judge would call a hit relevant. Pure.

A fused score only compares the candidates of one query: the best of them is near 1 even if none is
relevant. Four things mean the same for every query, in a file of five notes as in one of a million
passages: the cosine, how many of the query's words a passage has, how many passages were searched
(the best of many strangers is near by chance), and the rank. A passage that says it in other words
is judged by its cosine alone. Where a cross-encoder has read the passages, its score takes the
place of the first two.

The weights (logistic regression) are fitted on judged collections, sampled down to files of 5, 50
and 500 documents, whose queries were also asked of each other's documents, which do not answer
them: `python -m benchmarks relevance` fits them again, evaluates them by leaving out one collection
at a time, and prints the constants below. Half of all queries are assumed to have no answer.

No relevance is given where nothing was judged: for other models; for meaning in other languages
than English or, with a multilingual model, Chinese, and across languages; by words alone, for
queries in other than Latin letters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.index.chunks import QueryEmbedding
from mcpvectordb.records import WEAK, Scores
from mcpvectordb.text.query import Query
from mcpvectordb.text.tokens import CJK, is_foreign, is_non_latin

# Rows whose evidence is looked at. Those below them lose by their rank alone, so that relevance
# does not depend on how many results are asked for.
JUDGED = 10
ENGLISH, CHINESE = "en", "zh"
SINGLE = -1.3  # added to the weight of the rank of memories: turns of conversations, as judged
_SURE = 1e-6  # scores of a cross-encoder are clipped this far from 0 and 1: log odds stay finite


class Evidence(NamedTuple):
    """What is known of a hit: its scores, its text, and which share of the query's words it has."""

    scores: Scores
    text: str
    share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """The log odds of being relevant: `base`, plus the weighted evidence.

    `passages` is the weight of the decimal logarithm of how many were searched, and `rank` that of
    the natural logarithm of a hit's rank: both are 0 or less, all others but the base 0 or more.
    """

    base: float
    cosine: float = 0.0
    words: float = 0.0
    reread: float = 0.0
    passages: float = 0.0
    rank: float = 0.0

    def log_odds(self, found: Evidence, passages: int) -> float:
        """The log odds of a first hit; evidence whose weight is 0 may be missing."""
        return (
            self.base
            + self.cosine * min(1.0, max(-1.0, found.scores.vector or 0.0))
            + self.words * words(found.share, found.scores, passages)
            + self.reread * reread(found.scores)
            + self.passages * math.log10(max(1, passages))
        )


BY_WORDS = Weights(base=-5.92, words=8.36, passages=-0.32, rank=-0.57)
BY_READING = Weights(base=-1.25, reread=0.29)
BY_MEANING = {
    "all-MiniLM-L6-v2": Weights(base=-3.7, cosine=10.11, passages=-0.61, rank=-0.59),
    "bge-small-en-v1.5": Weights(base=-11.51, cosine=18.1, passages=-0.53, rank=-0.75),
    "multilingual-e5-small": Weights(base=-43.22, cosine=51.86, passages=-0.59, rank=-0.77),
    "potion-base-8M": Weights(base=-4.6, cosine=12.0, passages=-0.6, rank=-0.65),
}
BY_BOTH = {
    "all-MiniLM-L6-v2": Weights(base=-4.43, cosine=7.32, words=3.09, passages=-0.58, rank=-0.53),
    "bge-small-en-v1.5": Weights(base=-10.51, cosine=13.38, words=3.06, passages=-0.51, rank=-0.6),
    "multilingual-e5-small": Weights(
        base=-33.01, cosine=36.79, words=3.86, passages=-0.59, rank=-0.53
    ),
    # By the cosines of sixteen questions and answers, on the scale of the others.
    "potion-base-8M": Weights(base=-5.0, cosine=9.5, words=3.2, passages=-0.56, rank=-0.55),
}
# What meaning alone lacks, in log odds, where words were searched, too: a paraphrase has none of
# the query's words, and words that are missing must not make a stranger of it. As little as lets
# nine of ten strangers be told.
PARAPHRASE = {
    "all-MiniLM-L6-v2": 0.1,
    "bge-small-en-v1.5": 0.35,
    "multilingual-e5-small": 0.35,
    "potion-base-8M": 0.35,
}


def words(share: float, scores: Scores, passages: int) -> float:
    """How much of a query's words a hit has, 0 to 1: its `share`, and rare ones count more.

    Which words are rare is told by BM25, whose statistics mean nothing in a few notes: from a
    thousand passages on it has half of the say, in fewer less.
    """
    if not scores.text or not scores.reach:
        return share
    covered = 1.5 * scores.text / (scores.text + scores.reach / 2)  # 1: an average chunk has all
    say = min(1.0, math.log10(max(1, passages)) / 3) / 2
    return (1 - say) * share + say * min(1.0, covered)


def reread(scores: Scores) -> float:
    """The score of a cross-encoder as log odds."""
    figure = min(1 - _SURE, max(_SURE, 0.5 if scores.rerank is None else scores.rerank))
    return math.log(figure / (1 - figure))


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges the hits of one query by the evidence that there is for each.

    `model` is the catalogue's name of the embedding model, "" for others and if there was none. An
    `exact` query has nothing but codes, whose embeddings mean nothing; a `foreign` one is in other
    than Latin letters. `language` is one of those in which hits were judged (`judged_language`).
    `single` hits are memories, of which mostly one answers a question, while of the passages of
    documents several do. Nothing is relevant to a `wordless` query, which has punctuation alone.
    """

    model: str = ""
    exact: bool = False
    foreign: bool = False
    language: str = ENGLISH
    single: bool = False
    wordless: bool = False

    def relevance(
        self, first: Sequence[Evidence], passages: int, ranks: range
    ) -> list[float | None]:
        """The relevance of the hits of some ranks, by the evidence of the first JUDGED of all.

        It never rises from one rank to the next: a hit is at least as likely to be relevant as any
        that ranks below it. None where it is not calibrated.
        """
        if self.wordless:
            return [0.0 for _ in ranks]
        latin_only = self._latin_only
        weights = [self._weights(each, latin_only) for each in first]
        falls = [(by.rank if by else 0.0) + (SINGLE if self.single else 0.0) for by in weights]
        odds = [
            None if by is None else self._log_odds(by, each, passages) + fall * math.log(rank)
            for rank, (by, each, fall) in enumerate(zip(weights, first, falls, strict=True), 1)
        ]
        below = accumulate((-math.inf if each is None else each for each in odds[::-1]), max)
        best = [None if own is None else most for own, most in zip(odds[::-1], below, strict=True)]
        known = best[::-1]
        last = known[-1] if known else None
        return [
            _chance(known[rank - 1])
            if rank <= len(known)
            else _chance(None if last is None else last + falls[-1] * math.log(rank / len(known)))
            for rank in ranks
        ]

    def _log_odds(self, by: Weights, found: Evidence, passages: int) -> float:
        """Of a first hit; by words and meaning together, or by meaning alone if that says more."""
        odds = by.log_odds(found, passages)
        if by is not BY_BOTH.get(self.model):
            return odds
        alone = BY_MEANING[self.model].log_odds(found, passages)
        return max(odds, alone - PARAPHRASE[self.model])

    def _weights(self, found: Evidence, latin_only: bool) -> Weights | None:
        scores = found.scores
        # A passage in another language than the query has a lower cosine than one in its own.
        if not latin_only and judged_language(found.text) != self.language:
            return None
        if self.foreign and (scores.vector is None or latin_only):
            return None
        if scores.rerank is not None:
            return None if self.foreign else BY_READING
        if self.exact or scores.vector is None:
            return BY_WORDS if scores.text is not None else None
        if self.language != ENGLISH and (latin_only or not self.language):
            return None
        return (BY_MEANING if scores.text is None else BY_BOTH).get(self.model)

    @property
    def _latin_only(self) -> bool:
        return self.model not in BY_BOTH or CATALOGUE[self.model].latin_only

    @property
    def reason(self) -> str:
        """Why hits have no relevance, for those that have none."""
        if not self._latin_only:
            return (
                "it is calibrated for what meaning finds in the language of the query, if that is "
                "English or Chinese"
            )
        if self.foreign:
            return "it is calibrated for queries in Latin letters only"
        if self.language != ENGLISH:
            return "it is calibrated for queries in English only"
        return "it is not calibrated for this way of searching" + (
            "" if self.model else " or this model"
        )


UNCALIBRATED = Judge()


def _chance(log_odds: float | None) -> float | None:
    if log_odds is None:
        return None
    odds = math.exp(-abs(log_odds))
    return 1 / (1 + odds) if log_odds >= 0 else odds / (1 + odds)


def judge(text: str, query: Query, query_embedding: QueryEmbedding | str) -> Judge:
    """The judge of the relevance of a query's results."""
    found = query_embedding if isinstance(query_embedding, QueryEmbedding) else None
    non_latin, foreign = is_non_latin(text), is_foreign(text)
    return Judge(
        found.name if found else "",
        exact=query.exact,
        foreign=non_latin,
        language=_language(text) if foreign else ENGLISH,
        wordless=not any(map(str.isalnum, text)),
    )


def judged_language(text: str) -> str:
    """ENGLISH or CHINESE (any CJK text), as far as letters and stop words tell; "" for others."""
    return _language(text) if is_foreign(text) else ENGLISH


def _language(foreign: str) -> str:
    return CHINESE if CJK.search(foreign) else ""


def verdict(found: Sequence[float | None], least: float = 0.0) -> str:
    """A sentence that says that all results are weak or none reaches `least`; "" otherwise.

    It is "", too, if the relevance of any result is unknown.
    """
    known = [each for each in found if each is not None]
    best = max(known, default=1.0)
    if len(known) < len(found) or best >= max(WEAK, least):
        return ""
    if best < WEAK:
        return "Nothing relevant was found: even the best match is weak."
    return (
        f"Nothing relevant enough was found: the best match has a relevance of {best:.2f}, and "
        f"{least:.2f} was asked for."
    )
