from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.search import fusion

scores = st.dictionaries(st.integers(1, 40), st.floats(0, 30, allow_nan=False), max_size=30)


def order(leg: dict[int, float]) -> list[int]:
    return sorted(leg, key=lambda id: (-leg[id], id))


def combined(
    legs: list[dict[int, float]],
    weights: list[float | dict[int, float]],
    tiers: dict[int, int],
    spans: Sequence[float] = (),
) -> list[tuple[int, float]]:
    """`fusion.fuse` of scores by id: an id that a leg lacks has none."""
    ids = list(tiers)
    return fusion.fuse(
        np.array(ids, np.int64),
        [np.array([leg.get(id, np.nan) for id in ids], np.float64) for leg in legs],
        [
            np.array([each[id] for id in ids], np.float64) if isinstance(each, dict) else each
            for each in weights
        ],
        np.array(list(tiers.values()), np.int64),
        spans,
    )


def fuse(
    legs: list[dict[int, float]], weights: list[float], depth: int = 10
) -> list[tuple[int, float]]:
    return combined(legs, [*weights], fusion.tiers([order(leg) for leg in legs], depth))


@given(leg=scores)
def test_one_list_alone_keeps_its_order(leg: dict[int, float]) -> None:
    fused = fuse([leg], [1.0], depth=100)
    values = [leg[id] for id, _ in fused]
    assert values == sorted(values, reverse=True)


@given(first=scores, second=scores, weight=st.floats(0.1, 0.9))
def test_the_order_of_the_lists_does_not_matter(
    first: dict[int, float], second: dict[int, float], weight: float
) -> None:
    one = fuse([first, second], [weight, 1 - weight])
    other = fuse([second, first], [1 - weight, weight])
    assert {id for id, _ in one} == {id for id, _ in other} == first.keys() | second.keys()
    close = dict(other)
    assert all(abs(score - close[id]) < 1e-9 for id, score in one)


@given(first=scores, second=scores)
def test_scores_are_between_0_and_1_and_never_rise(
    first: dict[int, float], second: dict[int, float]
) -> None:
    values = [score for _, score in fuse([first, second], [0.4, 0.6])]
    assert all(0 <= value <= 1 for value in values)
    assert values == sorted(values, reverse=True)


@given(first=scores, second=scores, depth=st.integers(1, 10))
def test_a_longer_list_begins_with_the_shorter_one(
    first: dict[int, float], second: dict[int, float], depth: int
) -> None:
    rankings = [order(first), order(second)]
    short = fusion.tiers([each[:depth] for each in rankings], depth)
    long = fusion.tiers([each[: 2 * depth] for each in rankings], depth)
    few = combined([first, second], [0.5, 0.5], short)
    assert combined([first, second], [0.5, 0.5], long)[: len(few)] == few


def test_an_item_that_both_legs_rank_high_comes_before_the_first_of_one_leg() -> None:
    fused = fuse([{1: 10.0, 2: 9.0, 3: 0.0}, {3: 0.9, 2: 0.85, 1: 0.1}], [0.5, 0.5])
    assert fused[0][0] == 2


def test_an_item_without_a_score_in_one_leg_gets_that_of_the_other() -> None:
    fused = dict(fuse([{1: 10.0, 2: 5.0, 3: 0.0}, {2: 0.9, 3: 0.1}], [0.5, 0.5]))
    assert fused[1] == 1.0


@given(leg=st.dictionaries(st.integers(1, 40), st.floats(0.5, 0.6), min_size=1))
def test_scores_that_differ_by_less_than_the_span_stay_near_each_other(
    leg: dict[int, float],
) -> None:
    tiers = dict.fromkeys(leg, 0)
    (_, best), *others = combined([leg], [1.0], tiers, [0.2])
    assert best == 1 and all(1 - score <= 0.1 / 0.2 + 1e-9 for _, score in others)


def test_near_identical_cosines_score_nearly_the_same() -> None:
    cosines = {1: 0.595, 2: 0.591, 3: 0.577}
    stretched = [score for _, score in fuse([cosines], [1.0])]
    assert stretched == pytest.approx([1, 0.78, 0], abs=0.01)
    near = [score for _, score in combined([cosines], [1.0], dict.fromkeys(cosines, 0), [0.2])]
    assert near == pytest.approx([1, 0.98, 0.91], abs=0.01)


@given(leg=scores, depth=st.integers(1, 10), weights=scores)
def test_weighed_scores_never_rise_and_deeper_tiers_stay_behind(
    leg: dict[int, float], depth: int, weights: dict[int, float]
) -> None:
    tiers = fusion.tiers([order(leg)], depth)
    weighed = fusion.weighed(combined([leg], [1.0], tiers), weights, tiers)
    values = [score for _, score in weighed]
    assert values == sorted(values, reverse=True)
    assert [tiers[id] for id, _ in weighed] == sorted(tiers.values())


def test_a_weight_changes_the_order() -> None:
    fused = [(1, 1.0), (2, 0.8), (3, 0.5)]
    assert fusion.weighed(fused, {1: 0.5}, dict.fromkeys((1, 2, 3), 0)) == [
        (2, 0.8),
        (1, 0.5),
        (3, 0.5),
    ]


def test_legs_return_whole_tiers() -> None:
    assert [fusion.tier_depth(wanted) for wanted in (0, 1, 100, 101, 200, 201, 1000)] == [
        100,
        100,
        100,
        200,
        200,
        400,
        1600,
    ]


rankings = st.lists(st.lists(st.integers(1, 12), unique=True, max_size=10), max_size=3)


@given(lists=rankings, k=st.integers(1, 1000))
def test_rrf_is_the_sum_of_reciprocal_ranks(lists: list[list[int]], k: int) -> None:
    fused = fusion.rrf(lists, k)
    assert {id for id, _ in fused} == {id for each in lists for id in each}
    for id, score in fused:
        assert (
            abs(score - sum(1 / (k + each.index(id) + 1) for each in lists if id in each)) < 1e-12
        )
    assert [score for _, score in fused] == sorted((score for _, score in fused), reverse=True)


@given(one=st.lists(st.integers(1, 12), unique=True, max_size=10))
def test_rrf_of_one_list_keeps_its_order(one: list[int]) -> None:
    assert [id for id, _ in fusion.rrf([one])] == one


def test_rrf_prefers_items_of_two_lists_and_applies_weights() -> None:
    assert fusion.rrf([[1, 2, 3], [4, 2, 5]])[0] == (2, 2 / 62)
    assert fusion.rrf([[1], [2]], weights=[1, 2])[0] == (2, 2 / 61)
    assert [id for id, _ in fusion.rrf([[7], [5]])] == [5, 7]


def test_the_first_of_any_ranking_gets_a_bonus_and_second_and_third_a_smaller_one() -> None:
    fused = [(1, 0.04), (2, 0.03), (3, 0.02), (4, 0.01)]
    assert fusion.rewarded(fused, [[4, 3], [2, 9, 3]]) == [
        (2, pytest.approx(0.08)),
        (4, pytest.approx(0.06)),
        (1, 0.04),
        (3, pytest.approx(0.04)),
    ]
    assert fusion.rewarded(fused, [[4, 1], [1, 4]])[0] == (1, pytest.approx(0.09))


def test_high_ranks_weigh_more_than_the_reranker() -> None:
    assert fusion.positioned([0.0, 1.0]) == [(0, 0.75), (1, pytest.approx(0.75 / 2 + 0.25))]
    best = dict(fusion.positioned([0.5] * 12))
    assert best[2] == pytest.approx(0.75 / 3 + 0.125)
    assert best[3] == pytest.approx(0.6 / 4 + 0.2) and best[9] == pytest.approx(0.6 / 10 + 0.2)
    assert best[10] == pytest.approx(0.4 / 11 + 0.3)
    order = [position for position, _ in fusion.positioned([0.0] * 10 + [1.0])]
    assert order[:3] == [0, 10, 1]


def test_blended_weighs_scores_and_reranker_equally_on_the_scale_of_the_scores() -> None:
    assert fusion.blended([0.9, 0.8, 0.5], [0.1, 0.9, 0.2]) == [
        (1, pytest.approx(0.5 + 0.4 * (0.75 + 1) / 2)),
        (0, pytest.approx(0.5 + 0.4 * 0.5)),
        (2, pytest.approx(0.5 + 0.4 * 0.125 / 2)),
    ]
    assert fusion.blended([], []) == []
    assert fusion.blended([0.7, 0.7], [0.1, 0.9]) == [(1, 0.7), (0, 0.7)]


@given(scores=st.lists(st.floats(0, 1), max_size=8), data=st.data())
def test_blended_scores_never_rise_and_stay_between_the_given_ones(
    scores: list[float], data: st.DataObject
) -> None:
    figures = data.draw(st.lists(st.floats(0, 1), min_size=len(scores), max_size=len(scores)))
    blended = fusion.blended(scores, figures)
    assert sorted(place for place, _ in blended) == list(range(len(scores)))
    values = [score for _, score in blended]
    assert values == sorted(values, reverse=True)
    assert all(min(scores) - 1e-9 <= value <= max(scores) + 1e-9 for value in values)
    positioned = [score for _, score in fusion.positioned(figures)]
    assert positioned == sorted(positioned, reverse=True) and all(
        0 <= score <= 1 for score in positioned
    )


def test_a_candidate_may_have_weights_of_its_own() -> None:
    text, vector = {1: 2.0, 2: 1.0, 3: 0.0}, {1: 0.0, 2: 0.5, 3: 1.0}
    tiers = dict.fromkeys(text, 0)
    same = combined([text, vector], [0.4, 0.6], tiers)
    assert (
        combined([text, vector], [dict.fromkeys(text, 0.4), {1: 0.6, 2: 0.6, 3: 0.6}], tiers)
        == same
    )
    doubted = combined([text, vector], [{1: 0.4, 2: 0.4, 3: 0.9}, {1: 0.6, 2: 0.6, 3: 0.1}], tiers)
    assert dict(doubted) == pytest.approx({1: 0.4, 2: 0.5, 3: 0.1})
