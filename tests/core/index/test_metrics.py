from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from mcpvectordb.index.metrics import METRICS, best, cosine, dot, euclidean

MODERATE = st.floats(-1e6, 1e6)
ANY = (
    st.floats(allow_nan=False, allow_infinity=False)
    | MODERATE
    | st.sampled_from([0.0, 1e-320, 1e308, -1e308, 1e-160, 3.0])
)
PAIRS = st.integers(1, 6).flatmap(
    lambda size: st.tuples(
        st.lists(ANY, min_size=size, max_size=size), st.lists(ANY, min_size=size, max_size=size)
    )
)


def root(square: Fraction) -> float:
    """The square root of any rational number to about 30 digits."""
    scale = 10 ** (700 + 60)
    return float(Fraction(math.isqrt(int(square * scale * scale)), scale))


def exact_cosine(a: list[float], b: list[float]) -> float:
    x, y = ([Fraction(value) for value in row] for row in (a, b))
    product = sum(p * q for p, q in zip(x, y, strict=True))
    squares = sum(p * p for p in x) * sum(q * q for q in y)
    if squares == 0:
        return 0.0
    return root(product * product / squares) * (-1 if product < 0 else 1)


@given(pair=PAIRS)
@example(pair=([1e-24] * 3, [1.0] * 3))
@example(pair=([1e308, 1e308], [1e308, -1e308]))
@example(pair=([5e-324, 0.0], [5e-324, 5e-324]))
@example(pair=([1e-3, 1e6, 2.0], [1e6, 1e-3, -1.0]))
def test_cosines_are_exact_for_all_finite_numbers(pair: tuple[list[float], list[float]]) -> None:
    row, query = pair
    found = cosine(np.array([row]), np.array(query))[0]
    assert found == pytest.approx(exact_cosine(row, query), abs=1e-9) and -1 <= found <= 1


@given(row=st.lists(ANY, min_size=1, max_size=40))
def test_an_embedding_has_the_cosine_one_with_itself(row: list[float]) -> None:
    assume(any(row))
    values = np.array(row)
    assert cosine(values[None], values)[0] == 1.0 and cosine(-values[None], values)[0] == -1.0


@given(pair=PAIRS)
def test_dot_products_are_exact_and_never_infinite(pair: tuple[list[float], list[float]]) -> None:
    row, query = pair
    products = [Fraction(p) * Fraction(q) for p, q in zip(row, query, strict=True)]
    largest = Fraction(np.finfo(np.float64).max)
    expected = float(min(largest, max(-largest, sum(products))))
    found = dot(np.array([row]), np.array(query))[0]
    slack = float(min(largest, sum(map(abs, products)) / 10**14))
    assert math.isfinite(found) and found == pytest.approx(expected, rel=1e-12, abs=slack + 1e-300)


@given(pair=PAIRS)
@example(pair=([1e308], [-1e308]))
@example(pair=([1e-200, 0.0], [0.0, 0.0]))
def test_distances_are_exact_and_never_infinite(pair: tuple[list[float], list[float]]) -> None:
    row, query = pair
    square = sum((Fraction(p) - Fraction(q)) ** 2 for p, q in zip(row, query, strict=True))
    largest = Fraction(np.finfo(np.float64).max)
    expected = float(largest) if square >= largest * largest else root(square)
    found = euclidean(np.array([row]), np.array(query))[0]
    assert (
        found <= 0
        and math.isfinite(found)
        and -found == pytest.approx(expected, rel=1e-12, abs=1e-300)
    )


@pytest.mark.parametrize("metric", METRICS)
@given(data=st.data())
def test_equal_rows_have_equal_scores_at_any_position(metric: str, data: st.DataObject) -> None:
    dimension, count = data.draw(st.sampled_from([1, 3, 8, 33, 384])), data.draw(st.integers(2, 40))
    random = np.random.default_rng(data.draw(st.integers(0, 1000)))
    row, query = random.normal(size=dimension), random.normal(size=dimension)
    rows = random.normal(size=(count, dimension))
    places = data.draw(st.sets(st.integers(0, count - 1), min_size=2, max_size=5))
    rows[list(places)] = row
    assert (
        len(
            {METRICS[metric](rows, query)[place] for place in places}
            | {METRICS[metric](row[None], query)[0]}
        )
        == 1
    )


@given(scores=st.lists(st.integers(-3, 3), max_size=60), limit=st.integers(0, 70))
def test_best_returns_the_first_of_a_stable_sort(scores: list[int], limit: int) -> None:
    ids = np.arange(100, 100 + len(scores))
    places = best(ids, np.array(scores, np.float64), limit)
    expected = sorted(range(len(scores)), key=lambda place: -scores[place])[:limit]
    assert places.tolist() == expected
