"""Values of a setting compared on the same queries, and what follows from that: nothing that chance
explains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

FEWEST_QUERIES = 20  # from which anything is concluded
SURE = 2.0  # standard errors by which a difference must exceed zero
WORTH = 0.01  # what a difference must be to matter


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """A value of a setting, how it did, and what it gains against the value in force, give or take
    a standard error.
    """

    value: float
    score: float
    gain: float
    error: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Values of a setting on the same queries; `advised` is the one in force where no other is
    surely better.
    """

    setting: str
    measure: str
    queries: int
    current: float
    tried: tuple[Tried, ...]
    advised: float
    advice: str


def comparison(
    setting: str, measure: str, current: float, scores: Mapping[float, Sequence[float]]
) -> Comparison:
    """Compare the scores that each value of a setting reached, query by query, with those of the
    value in force.
    """
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


def compared(current: float, scores: Mapping[float, Sequence[float]]) -> tuple[Tried, ...]:
    """What each value gains against the one in force, query by query."""
    tried = []
    for value in sorted(scores):
        gains = [new - old for new, old in zip(scores[value], scores[current], strict=True)]
        error = stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0
        tried.append(Tried(value=value, score=fmean(scores[value]), gain=fmean(gains), error=error))
    return tuple(tried)


def better(current: float, tried: Sequence[Tried]) -> Tried | None:
    """The value to prefer: of those that are surely better and as good as the best within its
    error, the nearest.
    """
    sure = [each for each in tried if each.gain >= WORTH and each.gain > SURE * each.error]
    best = max(sure, key=lambda each: each.gain, default=None)
    if best is None:
        return None
    return min(
        (each for each in sure if each.gain >= best.gain - best.error),
        key=lambda each: abs(each.value - current),
    )


def _sentence(setting: str, current: float, best: Tried | None, tried: Sequence[Tried]) -> str:
    if best is None:
        return _NOTHING[setting].format(current=current, least=tried[0].value, most=tried[-1].value)
    way = "less" if best.value < current else "more"
    gain = f"{best.gain:+.3f} ± {best.error:.3f}"
    return (_BETTER.get((setting, way)) or _BETTER[setting, ""]).format(
        current=current, best=best.value, gain=gain
    )


_NOTHING = {
    "vector_weight": "Vector weight: keep {current:g}. This sample shows none from {least:g} to "
    "{most:g} to be surely better.",
    "rerank": "Reranking: leave it off. This sample shows no gain beyond chance, and it takes its "
    "time.",
    "chunk_size": "Chunk size: keep {current:g} tokens. This sample shows none from {least:g} to "
    "{most:g} to be surely better.",
}
_BETTER = {
    (
        "vector_weight",
        "more",
    ): "Vector weight: {best:g} instead of {current:g} (MRR@10 {gain}), although these queries "
    "favour words: "
    "set MCPVECTORDB_VECTOR_WEIGHT={best:g}.",
    (
        "vector_weight",
        "less",
    ): "Vector weight: {best:g} instead of {current:g} (MRR@10 {gain}) for queries in the "
    "documents' own words, as these are: "
    "set MCPVECTORDB_VECTOR_WEIGHT={best:g} only if yours are like that.",
    (
        "rerank",
        "",
    ): "Reranking: worth its time on these queries (MRR@10 {gain}): search with --rerank.",
    (
        "chunk_size",
        "",
    ): "Chunk size: {best:g} tokens instead of {current:g} ({gain} of a passage found). A file "
    "keeps the size it was made "
    "with: ingest into a new one with MCPVECTORDB_CHUNK_SIZE={best:g}.",
}
