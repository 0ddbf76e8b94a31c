from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.bench.advice import (
    FEWEST_QUERIES,
    RELEVANT,
    SIGNIFICANT,
    TriedValue,
    better,
    compared,
    comparison,
)

scores = st.lists(st.tuples(*[st.sampled_from([0.0, 0.25, 0.5, 1.0])] * 3), min_size=2, max_size=60)


def test_a_gain_is_the_mean_difference_with_its_standard_error() -> None:
    half, full = compared(0.5, {0.5: [0.0, 1.0, 0.5], 1.0: [1.0, 1.0, 0.5]})
    assert (half.gain, half.error, half.score) == (0, 0, 0.5)
    assert full.gain == pytest.approx(1 / 3)
    assert full.error == pytest.approx(math.sqrt(((2 / 3) ** 2 + 2 / 9) / 2) / math.sqrt(3))


@given(scores)
def test_only_a_significantly_better_value_is_advised(
    rows: list[tuple[float, float, float]],
) -> None:
    columns = dict(zip((0.4, 0.5, 0.6), map(list, zip(*rows, strict=True)), strict=True))
    tried = compared(0.5, columns)
    best = better(0.5, tried)
    if best is None:
        assert all(each.gain < RELEVANT or each.gain <= SIGNIFICANT * each.error for each in tried)
    else:
        assert best.value != 0.5
        assert best.gain >= RELEVANT and best.gain > SIGNIFICANT * best.error


def test_of_equally_good_values_the_nearest_is_advised() -> None:
    tried = [
        TriedValue(value=value, score=0.5, gain=gain, error=0.01)
        for value, gain in ((0.2, 0.05), (0.3, 0.045), (0.4, 0.02))
    ]
    assert better(0.6, tried) == tried[1]


def test_a_few_queries_advise_nothing() -> None:
    few = comparison(
        "rerank", "MRR@10", 0, {0: [0.0] * (FEWEST_QUERIES - 1), 1: [1.0] * (FEWEST_QUERIES - 1)}
    )
    assert few.advised == 0
    assert few.advice.startswith("Reranking: leave it off.")


@pytest.mark.parametrize(
    ("setting", "current", "best", "sentence"),
    [
        (
            "vector_weight",
            0.6,
            0.8,
            "0.8 instead of 0.6 (MRR@10 +1.000 ± 0.000), although these queries favour "
            "keyword search: set MCPVECTORDB_VECTOR_WEIGHT=0.8.",
        ),
        (
            "vector_weight",
            0.6,
            0.3,
            "set MCPVECTORDB_VECTOR_WEIGHT=0.3 only if yours are like that.",
        ),
        (
            "rerank",
            0,
            1,
            "Reranking: worth its time on these queries (MRR@10 +1.000 ± 0.000): search with "
            "--rerank.",
        ),
        ("chunk_size", 200, 100, "ingest into a new one with MCPVECTORDB_CHUNK_SIZE=100."),
    ],
)
def test_advice_names_the_setting_to_change(
    setting: str, current: float, best: float, sentence: str
) -> None:
    found = comparison(setting, "", current, {current: [0.0] * 30, best: [1.0] * 30})
    assert found.advised == best
    assert found.advice.endswith(sentence)


def test_without_a_difference_the_current_value_is_advised() -> None:
    same = comparison("chunk_size", "", 200, dict.fromkeys((100, 200, 400), [0.5, 1.0] * 20))
    assert same.advised == 200
    assert same.advice == (
        "Chunk size: keep 200 tokens. In this sample no size from 100 to 400 is significantly "
        "better."
    )
