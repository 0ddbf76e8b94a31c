"""Compares values of a setting on the same queries, and advises one if chance does not explain it.

The test is a paired one: a difference must exceed two standard errors of the differences between
the queries' scores, and be large enough to matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

FEWEST_QUERIES = 20  # with fewer, nothing is advised
SIGNIFICANT = 2.0  # standard errors by which a difference must exceed zero
RELEVANT = 0.01  # the smallest difference that matters


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedValue:
    """A value of a setting, its mean score, and its mean gain over the current value.

    `error` is the standard error of the gain.
    """

    value: float
    score: float
    gain: float
    error: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Values of a setting on the same queries; `advised` is `current` if no other is better."""

    setting: str
    measure: str
    queries: int
    current: float
    tried: tuple[TriedValue, ...]
    advised: float
    advice: str


def comparison(
    setting: str, measure: str, current: float, scores: Mapping[float, Sequence[float]]
) -> Comparison:
    """Compare the scores of each value of a setting with those of the current one, by query."""
    tried = compared(current, scores)
    best = better(current, tried) if len(scores[current]) >= FEWEST_QUERIES else None
    return Comparison(
        setting=setting,
        measure=measure,
        queries=len(scores[current]),
        current=current,
        tried=tried,
        advised=best.value if best else current,
        advice=_sentence(setting, current, best, tried),
    )


def compared(current: float, scores: Mapping[float, Sequence[float]]) -> tuple[TriedValue, ...]:
    """The gain of each value over the current one, query by query."""
    tried = []
    for value in sorted(scores):
        gains = [new - old for new, old in zip(scores[value], scores[current], strict=True)]
        error = stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0
        tried.append(
            TriedValue(value=value, score=fmean(scores[value]), gain=fmean(gains), error=error)
        )
    return tuple(tried)


def better(current: float, tried: Sequence[TriedValue]) -> TriedValue | None:
    """The value to advise, or None if none is significantly better than the current one.

    Of those that are as good as the best within its standard error, it is the nearest.
    """
    significant = [
        each for each in tried if each.gain >= RELEVANT and each.gain > SIGNIFICANT * each.error
    ]
    best = max(significant, key=lambda each: each.gain, default=None)
    if best is None:
        return None
    return min(
        (each for each in significant if each.gain >= best.gain - best.error),
        key=lambda each: abs(each.value - current),
    )


def _sentence(
    setting: str, current: float, best: TriedValue | None, tried: Sequence[TriedValue]
) -> str:
    if best is None:
        return _NOTHING[setting].format(current=current, least=tried[0].value, most=tried[-1].value)
    way = "less" if best.value < current else "more"
    gain = f"{best.gain:+.3f} ± {best.error:.3f}"
    return (_BETTER.get((setting, way)) or _BETTER[setting, ""]).format(
        current=current, best=best.value, gain=gain
    )


_NOTHING = {
    "vector_weight": "Vector weight: keep {current:g}. In this sample no value from {least:g} to "
    "{most:g} is significantly better.",
    "rerank": "Reranking: leave it off. In this sample its gain is not significant, and it takes "
    "time.",
    "chunk_size": "Chunk size: keep {current:g} tokens. In this sample no size from {least:g} to "
    "{most:g} is significantly better.",
}
# By the setting, and by whether the better value is less or more where that matters.
_BETTER = {
    ("vector_weight", "more"): (
        "Vector weight: {best:g} instead of {current:g} (MRR@10 {gain}), although these queries "
        "favour keyword search: set MCPVECTORDB_VECTOR_WEIGHT={best:g}."
    ),
    ("vector_weight", "less"): (
        "Vector weight: {best:g} instead of {current:g} (MRR@10 {gain}) for queries in words of "
        "the documents, as these are: set MCPVECTORDB_VECTOR_WEIGHT={best:g} only if yours are "
        "like that."
    ),
    ("rerank", ""): (
        "Reranking: worth its time on these queries (MRR@10 {gain}): search with --rerank."
    ),
    ("chunk_size", ""): (
        "Chunk size: {best:g} tokens instead of {current:g} ({gain} of a passage found). The size "
        "of a file does not change: ingest into a new one with MCPVECTORDB_CHUNK_SIZE={best:g}."
    ),
}
