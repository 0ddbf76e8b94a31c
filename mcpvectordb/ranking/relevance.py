"""Relevance: the calibrated probability (0 to 1) that a judge would call a hit relevant. Pure.

A fused score only compares the candidates of one query: the best of them is near 1 even if none is
relevant. The cosine, the score of a cross-encoder, and the share of a query's words that a chunk
has mean the same for every query. Their weights (logistic regression) are fitted on judged
collections, whose queries were also run against each other's documents, which do not answer them:
`python -m benchmarks relevance` fits them again, evaluates them by leaving out one collection at a
time, and prints the constants below. Half of all queries are assumed to have no answer.

No relevance is given where nothing was judged: for other models; for meaning in other languages
than English or, with a multilingual model, Chinese, and across languages; by words alone, for
queries in other than Latin letters.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.errors import InvalidInput
from mcpvectordb.index.chunks import QueryEmbedding
from mcpvectordb.records import Scores
from mcpvectordb.text.query import Query
from mcpvectordb.text.tokens import CJK, is_foreign, is_non_latin

# If all results have a lower relevance than this, the verdict is that nothing relevant was found,
# unless one of them has half of the query's words: a false verdict is worse than a weak hit. It is
# given for at most 3 % of the questions of any collection that have an answer.
WEAK, MANY_WORDS = 0.05, 0.5
# Among fewer passages BM25 does not tell rare words from common ones, and right answers get low
# figures: they are shown without a verdict.
FEW_PASSAGES = 300
_SEPARATORS, _WORD = re.compile(r"\W+"), re.compile(r"\w+")
ENGLISH, CHINESE = "en", "zh"
_SURE = 1e-6  # scores of a cross-encoder are clipped this far from 0 and 1: log odds stay finite


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """The log odds of being relevant: `base`, plus the weighted evidence.

    All weights but the base are 0 or more.
    """

    base: float
    cosine: float = 0.0
    coverage: float = 0.0
    reread: float = 0.0

    def chance(self, scores: Scores) -> float:
        """The probability of being relevant; evidence whose weight is 0 may be missing."""
        log_odds = (
            self.base
            + self.cosine * min(1.0, max(-1.0, scores.vector or 0.0))
            + self.coverage * coverage(scores)
            + self.reread * reread(scores)
        )
        odds = math.exp(-abs(log_odds))
        return 1 / (1 + odds) if log_odds >= 0 else odds / (1 + odds)


BY_WORDS = Weights(base=-8.27, coverage=12.02)
BY_READING = Weights(base=-1.25, reread=0.29)
BY_MEANING = {
    "all-MiniLM-L6-v2": Weights(base=-6.3, cosine=9.13),
    "bge-small-en-v1.5": Weights(base=-14.79, cosine=18.26),
    "multilingual-e5-small": Weights(base=-46.65, cosine=51.82),
    "potion-base-8M": Weights(base=-7.31, cosine=9.66),
}
BY_BOTH = {
    "all-MiniLM-L6-v2": Weights(base=-7.08, cosine=5.47, coverage=5.7),
    "bge-small-en-v1.5": Weights(base=-12.25, cosine=11.05, coverage=5.63),
    "multilingual-e5-small": Weights(base=-31.77, cosine=31.84, coverage=5.59),
    "potion-base-8M": Weights(base=-8.41, cosine=4.1, coverage=8.56),
}


def coverage(scores: Scores) -> float:
    """The share of a query's words that a chunk has, by BM25, 0 to 1.

    It is 2/3 for a chunk of average length that has each of them once.
    """
    text, reach = scores.text or 0.0, scores.reach or 0.0
    return text / (text + reach / 2) if text > 0 else 0.0


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
    `provisional` is the name of the model of provisional embeddings.
    """

    model: str = ""
    exact: bool = False
    foreign: bool = False
    language: str = ENGLISH
    provisional: str = ""

    def relevance(self, scores: Scores, text: str | None = None) -> float | None:
        """The probability that a hit with this text is relevant; None if that is not calibrated.

        A passage in another language than the query has a lower cosine than one in its own.
        """
        if text is not None and not self._latin_only and judged_language(text) != self.language:
            return None
        weights = self._weights(scores)
        return None if weights is None else weights.chance(scores)

    def is_weak(self, scores: Scores) -> bool:
        """Whether a hit is known to be hardly relevant."""
        found = self.relevance(scores)
        return found is not None and found < WEAK

    def _weights(self, scores: Scores) -> Weights | None:
        if self.foreign and (scores.vector is None or self._latin_only):
            return None
        if scores.rerank is not None:
            return None if self.foreign else BY_READING
        by_words = scores.text is not None and scores.reach is not None
        if self.exact or scores.vector is None:
            return BY_WORDS if by_words else None
        if self.language != ENGLISH and (self._latin_only or not self.language):
            return None
        model = self.provisional if self.provisional and scores.provisional else self.model
        return (BY_BOTH if by_words else BY_MEANING).get(model)

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


def judged_language(text: str) -> str:
    """ENGLISH or CHINESE (any CJK text), as far as letters and stop words tell; "" for others."""
    if not is_foreign(text):
        return ENGLISH
    return CHINESE if CJK.search(text) else ""


def shared(found: Sequence[float | None], texts: Sequence[str]) -> list[float | None]:
    """The relevance of some passages, where those of equal words share the highest of theirs.

    Titles and headings are part of what is searched: the same sentence in two documents has two
    cosines and two BM25 scores, though it says the same in both.
    """
    # Few passages are equal: only those that begin with the same word are compared.
    beginnings = [_word(text) for text in texts]
    often = Counter(beginnings)
    keys = [
        _SEPARATORS.sub(" ", text.casefold()).strip() if often[beginning] > 1 else beginning
        for text, beginning in zip(texts, beginnings, strict=True)
    ]
    best: dict[str, float] = {}
    for key, each in zip(keys, found, strict=True):
        if each is not None:
            best[key] = max(each, best.get(key, 0.0))
    return [None if each is None else best[key] for key, each in zip(keys, found, strict=True)]


def _word(text: str) -> str:
    first = _WORD.search(text)
    return first[0].casefold() if first else text


def checked(least: float) -> float:
    """`least` if it is a valid minimum of relevance; raises InvalidInput otherwise."""
    if isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least <= 1:
        raise InvalidInput(f"min_relevance must be 0 to 1, not {least!r}")
    return float(least)


def verdict(
    found: Sequence[float | None], least: float = 0.0, words: float = 0.0, *, few: bool = False
) -> str:
    """A sentence that says that all results are weak or none reaches `least`; "" otherwise.

    It is "", too, if the relevance of any result is unknown. `words` is the highest share of the
    query's words that a result has: with MANY_WORDS no result counts as weak, and none does where
    `few` passages were searched.
    """
    known = [each for each in found if each is not None]
    best, weak = max(known, default=1.0), WEAK if words < MANY_WORDS and not few else 0.0
    if len(known) < len(found) or best >= max(weak, least):
        return ""
    which = "result" if best < least else "of these results"
    chance = f"the best {which} has a chance of {_percent(best)} of being relevant"
    return (
        f"Nothing relevant was found: {chance}."
        if best < weak
        else (
            f"Nothing relevant enough was found: {chance}, and {round(100 * least)} % was asked "
            f"for."
        )
    )


def _percent(chance: float) -> str:
    return f"about {round(100 * chance)} %" if chance >= 0.01 else "less than 1 %"
