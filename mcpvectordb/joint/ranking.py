"""Rankings of documents and memories made one. Pure.

Two rankings are merged by relevance, the probability that a judge would call a hit relevant: it has
the same meaning for passages of documents and for memories, while their scores do not compare. Each
ranking keeps its own order. Where the relevance of any hit is unknown (a model or a script without
calibration, memories that were searched by words only), the rankings alternate, the first one
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from mcpvectordb.memories.memory import Memory
from mcpvectordb.records import Chunk, Hit
from mcpvectordb.search import fusion

RRF_K = 60  # the constant of reciprocal rank fusion, as in its paper
FIRST_WEIGHT = 2.0  # of the first of several searches; the others count 1

Found = Hit[Chunk | Memory]


def key(hit: Found) -> int:
    """The number of a hit among those of both shelves: even for documents, odd for memories."""
    return 2 * hit.item.id + isinstance(hit.item, Memory)


def merge(first: Sequence[Found], second: Sequence[Found]) -> list[Found]:
    """Two rankings as one."""
    known = all(hit.relevance is not None for hit in (*first, *second))
    weigh = _worth if known else _by_rank
    tagged = [
        (-worth, number, place, hit)
        for number, ranking in enumerate((first, second))
        for place, (worth, hit) in enumerate(zip(weigh(ranking), ranking, strict=True))
    ]
    return [hit for _, _, _, hit in sorted(tagged, key=lambda each: each[:3])]


def _worth(ranking: Sequence[Found]) -> list[float]:
    """The relevance of each hit, or of the best one below it: so a merge by it keeps the order.

    Where newer hits are preferred, it loses with age as the score does.
    """
    relevances = [
        (hit.relevance or 0.0) * (1.0 if hit.scores.recency is None else hit.scores.recency)
        for hit in reversed(ranking)
    ]
    return list(accumulate(relevances, max))[::-1]


def _by_rank(ranking: Sequence[Found]) -> list[float]:
    return [-float(place) for place in range(len(ranking))]


def fuse(rankings: Sequence[Sequence[Found]]) -> list[Found]:
    """The rankings of several searches as one, by reciprocal ranks; the first counts double.

    A hit has the highest relevance that any of the searches gave it, and the score of a hit that
    is first everywhere is 1.
    """
    if len(rankings) == 1:
        return list(rankings[0])
    weights = [FIRST_WEIGHT] + [1.0] * (len(rankings) - 1)
    hits: dict[int, Found] = {}
    for ranking in rankings:
        for hit in ranking:
            best = hits.setdefault(key(hit), hit)
            if (hit.relevance or 0.0) > (best.relevance or 0.0):
                hits[key(hit)] = replace(best, relevance=hit.relevance)
    fused = fusion.rrf([[key(hit) for hit in each] for each in rankings], RRF_K, weights)
    highest = sum(weights) / (RRF_K + 1)
    return [replace(hits[each], score=min(1.0, rrf / highest)) for each, rrf in fused]


def grouped(hits: Sequence[Found]) -> list[Found]:
    """The hits with the best passage of each document, and all memories, before the others."""
    first: dict[object, Found] = {}
    for hit in hits:
        owner = hit.item.document.id if isinstance(hit.item, Chunk) else key(hit)
        first.setdefault(owner, hit)
    best = set(map(key, first.values()))
    return [*first.values(), *(hit for hit in hits if key(hit) not in best)]
