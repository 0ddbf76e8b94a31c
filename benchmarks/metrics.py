"""Measures of a ranking against judgments, as trec_eval defines them. Pure.

`ranking` is document ids, best first; `judged` is the relevance of each judged document, of which 0
and less is none. A query without any relevant document measures nothing: leave it out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

Measure = Callable[[Sequence[str], Mapping[str, int], int], float]


def ndcg(ranking: Sequence[str], judged: Mapping[str, int], depth: int) -> float:
    """Normalized discounted cumulative gain of the first `depth` documents."""
    best = _discounted(sorted(judged.values(), reverse=True)[:depth])
    return _discounted([judged.get(id, 0) for id in ranking[:depth]]) / best if best else 0.0


def recall(ranking: Sequence[str], judged: Mapping[str, int], depth: int) -> float:
    """The share of the relevant documents that are among the first `depth`."""
    relevant = _relevant(judged)
    return len(relevant.intersection(ranking[:depth])) / len(relevant) if relevant else 0.0


def reciprocal_rank(ranking: Sequence[str], judged: Mapping[str, int], depth: int) -> float:
    """1 / rank of the first relevant document; 0 if it is not among the first `depth`."""
    relevant = _relevant(judged)
    return next((1 / rank for rank, id in enumerate(ranking[:depth], 1) if id in relevant), 0.0)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that is at least as large as this share of them."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _discounted(gains: Sequence[int]) -> float:
    return sum(max(0, gain) / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


def _relevant(judged: Mapping[str, int]) -> set[str]:
    return {id for id, relevance in judged.items() if relevance > 0}
