"""Pure arithmetic on scores: fusion of ranked lists into one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

# Candidates of each leg that are fused with each other; deeper ones follow in tiers (`tiers`), so
# that asking for more results does not change the first ones.
DEPTH = 100


def fuse(
    ids: NDArray[np.int64],
    legs: Sequence[Numbers],
    weights: Sequence[Numbers | float],
    tiers: NDArray[np.int64],
    spans: Sequence[float] = (),
    *,
    newest: bool = False,
) -> list[tuple[int, float]]:
    """Completed convex combination: (id, score) pairs, best first, scores 0 to 1, not increasing.

    Each leg has the true score of every candidate that it can score, also of those that only
    another leg found ("completed"), and NaN for the others. Its scores are scaled to 0..1 by their
    minimum and maximum over the candidates of tier 0 and averaged by weight. A leg whose scores lie
    within less than its span (0 unless given) is scaled by that span: what differs little keeps
    differing little. A candidate without a score in a leg gets the average of the others. Bruch,
    Gai and Ingber (2023) compare this convex combination with reciprocal rank fusion: it uses how
    far scores are apart, not only their order. Candidates of a deeper tier come after all of the
    shallower ones and never score higher, so a longer list always begins with the shorter one. Of
    equal scores the lower id comes first, or with `newest` the higher one.
    """
    import numpy as np

    sums, totals = np.zeros(len(ids)), np.zeros(len(ids))
    for leg, weight, span in zip(legs, weights, spans or [0.0] * len(legs), strict=True):
        known = ~np.isnan(leg)
        sums += np.where(known, _stretched(leg, known & (tiers == 0), span) * weight, 0.0)
        totals += np.where(known, weight, 0.0)
    scores = np.divide(sums, totals, out=np.zeros(len(ids)), where=totals > 0)
    order = np.lexsort((-ids if newest else ids, -scores, tiers))
    falling = np.minimum.accumulate(scores[order])
    return list(zip(ids[order].tolist(), falling.tolist(), strict=True))


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
    best: dict[int, int] = {}
    for ranking in rankings:
        for rank, id in enumerate(ranking, 1):
            best[id] = min(rank, best.get(id, rank))
    return {
        id: 0 if rank <= depth else math.ceil(math.log2(rank / depth)) for id, rank in best.items()
    }


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


def rewarded(
    fused: Sequence[tuple[int, float]], rankings: Sequence[Sequence[int]]
) -> list[tuple[int, float]]:
    """Fused scores with a bonus for the first three of any ranking, best first.

    The first gets 0.05, second and third 0.02.
    """
    bonus: dict[int, float] = {}
    for ranking in rankings:
        for id, reward in zip(ranking, (0.05, 0.02, 0.02), strict=False):
            bonus[id] = max(reward, bonus.get(id, 0.0))
    return sorted(
        ((id, score + bonus.get(id, 0.0)) for id, score in fused), key=lambda pair: -pair[1]
    )


def positioned(reranked: Sequence[float]) -> list[tuple[int, float]]:
    """Blend ranks with a reranker's scores, given in rank order: (position, score), best first.

    The higher a rank, the larger its weight: 3/4 for the first three, 3/5 down to the tenth, 2/5
    below.
    """
    scores = []
    for position, figure in enumerate(reranked):
        trust = 0.75 if position < 3 else 0.60 if position < 10 else 0.40
        scores.append((position, trust / (position + 1) + (1 - trust) * figure))
    return sorted(scores, key=lambda pair: -pair[1])


def blended(scores: Sequence[float], reranked: Sequence[float]) -> list[tuple[int, float]]:
    """Blend scores with a reranker's in equal parts: (position, score), best first.

    The result is on the scale of the given scores.
    """
    import numpy as np

    places = np.arange(len(scores))
    legs = [np.array(leg, np.float64) for leg in (scores, reranked)]
    halves = fuse(places, legs, [0.5, 0.5], np.zeros_like(places))
    low, high = (min(scores), max(scores)) if scores else (0.0, 0.0)
    return [(position, low + (high - low) * half) for position, half in halves]


def _stretched(leg: Numbers, over: NDArray[np.bool_], least: float) -> Numbers:
    """The scores of a leg on a scale whose 1 is the best of the candidates `over`."""
    import numpy as np

    known = leg[over]
    if not len(known):
        return np.zeros(len(leg))
    low, high = float(known.min()), float(known.max())
    if high == low:  # all match equally, or none does
        return np.full(len(leg), 1.0 if low > 0 else 0.0)
    span = max(high - low, least)
    base = 1 - (high - low) / span  # of the lowest: the highest is always 1
    return np.clip(base + (leg - low) / span, 0.0, 1.0)
