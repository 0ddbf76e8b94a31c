"""The reference values come from trec_eval's own code: ir_measures 0.4.3 on pytrec_eval-terrier
0.5.11, given the `CASES` below as qrels and as a run whose scores fall with the rank, with nDCG@10,
R@10, R@100 and RR@10 per query.
"""

from __future__ import annotations

import pytest

from benchmarks import metrics


def shuffled(documents: int, step: int) -> list[str]:
    """Every document once, in an order that looks random; step and documents have no common
    divisor.
    """
    return [f"d{i * step % documents}" for i in range(1, documents + 1)]


CASES = {
    "first": (["a", "b", "c"], {"a": 1}),
    "third": (["x", "y", "a", "z"], {"a": 1}),
    "nothing found": (["x", "y", "z"], {"a": 1, "b": 2}),
    "nothing returned": ([], {"a": 3}),
    "graded": (["b", "x", "a", "c", "y", "e"], {"a": 3, "b": 1, "c": 2, "d": 3, "e": 0}),
    "negative": (["bad", "a", "worse", "b"], {"a": 2, "b": 1, "bad": -1, "worse": -2}),
    "eleventh": ([f"x{i}" for i in range(10)] + ["a", "b"], {"a": 1, "b": 1}),
    "more relevant than ten": (shuffled(60, 7), {f"d{i}": 1 + i % 3 for i in range(0, 60, 4)}),
    "deep": (shuffled(151, 44), {f"d{i}": i % 5 for i in range(0, 151, 3)}),
    "deeper": (shuffled(251, 100), {f"d{i}": i % 2 + 1 for i in range(0, 251, 25)}),
}

#                         nDCG@10     R@10        R@100       RR@10
REFERENCE = {
    "first": (1.0000000000, 1.0000000000, 1.0000000000, 1.0000000000),
    "third": (0.5000000000, 1.0000000000, 1.0000000000, 0.3333333333),
    "nothing found": (0.0000000000, 0.0000000000, 0.0000000000, 0.0000000000),
    "nothing returned": (0.0000000000, 0.0000000000, 0.0000000000, 0.0000000000),
    "graded": (0.5315681641, 0.7500000000, 0.7500000000, 1.0000000000),
    "negative": (0.6433224083, 1.0000000000, 1.0000000000, 0.5000000000),
    "eleventh": (0.0000000000, 0.0000000000, 1.0000000000, 0.0000000000),
    "more relevant than ten": (0.1502003292, 0.1333333333, 1.0000000000, 0.2500000000),
    "deep": (0.2062226309, 0.1000000000, 0.7250000000, 0.3333333333),
    "deeper": (0.2176889663, 0.1818181818, 0.4545454545, 1.0000000000),
}


@pytest.mark.parametrize("name", CASES)
def test_the_measures_agree_with_trec_eval(name: str) -> None:
    ranking, judged = CASES[name]
    found = (
        metrics.ndcg(ranking, judged, 10),
        metrics.recall(ranking, judged, 10),
        metrics.recall(ranking, judged, 100),
        metrics.reciprocal_rank(ranking, judged, 10),
    )
    assert found == pytest.approx(REFERENCE[name], abs=1e-9)
