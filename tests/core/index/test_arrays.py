from __future__ import annotations

import array
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as strategies

from mcpvectordb import Damaged, InvalidInput
from mcpvectordb.index import arrays
from mcpvectordb.index.arrays import (
    EXACT,
    METRICS,
    ROCCHIO_WEIGHT,
    CodedQuery,
    CodedRows,
    Codes,
    centre,
    cosine,
    dot,
    encode,
    euclidean,
    highest,
    products,
    widened,
)
from mcpvectordb.index.tuning import Tuning

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ([], "has no numbers; an embedding has 1 to 16,384"),
        ([0.0] * 16_385, "has 16,385 numbers"),
        ([1.0, float("nan")], r"embedding\[1\] is nan"),
        ([float("-inf"), 1.0], r"embedding\[0\] is -inf"),
        ([1.0, 2.0, True], r"embedding\[2\] must be a number, not a bool"),
        ([1.0, "2"], r"embedding\[1\] must be a number, not a str"),
        ([1.0, None], r"embedding\[1\] must be a number, not null"),
        ([[1.0, 2.0]], r"embedding\[0\] must be a number, not a list"),
        ([1, 10**400], r"embedding\[1\] is too large"),
        ([1j], r"embedding\[0\] must be a number, not a complex"),
        ("0.1, 0.2", "must be a list of numbers, not a str"),
        (b"0123", "must be a list of numbers, not a bytes"),
        (None, "must be a list of numbers, not null"),
        ({"0": 1.0}, "must be a list of numbers, not a dict"),
        ({1.0, 2.0}, "must be a list of numbers, not a set"),
        (3.0, "must be a list of numbers, not a float"),
        (np.float64(3.0), r"must have one axis, but its shape is \(\)"),
        (np.ones((2, 2)), r"must have one axis, but its shape is \(2, 2\)"),
        (np.array([True, False]), r"embedding\[0\] must be a number, not a bool"),
        (np.array([1.0, np.nan], np.float32), r"embedding\[1\] is nan"),
        (np.array(["1"]), r"embedding\[0\] must be a number, not a str"),
        (np.array([1 + 2j]), r"embedding\[0\] must be a number, not a complex"),
        (np.array([], np.float32), "has no numbers"),
    ],
)
def test_an_invalid_embedding_is_refused_and_its_place_named(given_: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        arrays.one(given_)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ([[1.0], [2.0, True]], r"embeddings\[1\]\[1\] must be a number, not a bool"),
        ([[1.0], []], r"embeddings\[1\] has no numbers"),
        ([[1.0], "ab"], r"embeddings\[1\] must be a list of numbers, not a str"),
        ([1.0, 2.0], r"embeddings\[0\] must be a list of numbers, not a float"),
        (np.array([1.0, 2.0]), r"embeddings\[0\] must have one axis"),
        (np.ones((2, 2, 2)), r"embeddings\[0\] must have one axis"),
        (np.array([[1.0, 2.0], [3.0, np.inf]]), r"embeddings\[1\]\[1\] is inf"),
        (np.ones((3, 0)), "has no numbers"),
        ("ab", "must be a list of embeddings or a matrix, not a str"),
        (None, "must be a list of embeddings or a matrix, not null"),
        ({"a": [1.0]}, "must be a list of embeddings or a matrix, not a dict"),
        (np.float32(1), "must be a list of embeddings or a matrix"),
    ],
)
def test_invalid_embeddings_are_refused_and_row_and_place_named(given_: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        arrays.many(given_)


@pytest.mark.parametrize(
    "given_",
    [
        [1, 2.5, -3],
        (1, 2.5, -3),
        np.array([1, 2.5, -3]),
        np.array([1, 2.5, -3], np.float32),
        np.array([1, 2.5, -3], np.float16),
        np.array([1, 2.5, -3], ">f8"),
        np.array([9, 1, 9, 2.5, 9, -3])[1::2],
        [np.float32(1), np.int8(1) * 2.5, -3],
        array.array("d", [1, 2.5, -3]),
        np.array([1, 2.5, -3], object),
    ],
)
def test_an_embedding_is_accepted_as_a_list_or_as_any_array(given_: Any) -> None:
    group = arrays.one(given_)
    assert (
        group.rows.tolist() == [[1, 2.5, -3]]
        and group.dimension == 3
        and list(group.positions) == [0]
    )
    assert [each.rows.tolist() for each in arrays.many([given_, given_])] == [[[1, 2.5, -3]] * 2]
    assert arrays.many([]) == arrays.many(np.empty((0, 7))) == []


def test_a_matrix_of_float32_is_not_copied() -> None:
    matrix = np.ones((5, 4), np.float32)
    [group] = arrays.many(matrix)
    assert np.shares_memory(group.rows, matrix)
    assert all(np.shares_memory(row, matrix) for row in arrays.packed(group.rows))


def test_mixed_dimensions_are_grouped_and_keep_their_positions() -> None:
    groups = arrays.many([[1, 2], [3], [4, 5], np.array([6], np.float32)])
    assert [(list(group.positions), group.rows.tolist()) for group in groups] == [
        ([0, 2], [[1, 2], [4, 5]]),
        ([1, 3], [[3], [6]]),
    ]


@given(
    rows=strategies.arrays(
        np.float64, st.tuples(st.integers(1, 5), st.integers(1, 4)), elements=NUMBERS
    )
)
def test_every_number_comes_back_exactly(rows: np.ndarray) -> None:
    blobs = [row.tobytes() for row in arrays.packed(arrays.many(rows)[0].rows)]
    assert np.array_equal(arrays.unpacked(blobs, rows.shape[1]), rows)
    assert all(arrays.fits(blob, rows.shape[1]) for blob in blobs)


@given(
    row=strategies.arrays(
        np.float32, 3, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)
    )
)
def test_numbers_that_float32_holds_are_stored_in_four_bytes(row: np.ndarray) -> None:
    for given_ in (row, row.tolist(), row.astype(np.float64)):
        assert len(arrays.packed(arrays.one(given_).rows)[0].tobytes()) == 12


def test_an_embedding_of_the_wrong_length_is_damage() -> None:
    with pytest.raises(Damaged, match="3 values"):
        arrays.unpacked([b"x" * 12, b"x" * 13], 3)


EMBEDDINGS = strategies.arrays(
    np.float32, st.tuples(st.integers(1, 5), st.just(4)), elements=st.floats(-1e5, 1e5, width=32)
).filter(lambda rows: bool((np.linalg.norm(rows.astype(np.float64), axis=1) >= 1e-6).all()))


@given(rows=EMBEDDINGS)
def test_float16_keeps_the_direction_of_embeddings_of_any_length(rows: np.ndarray) -> None:
    blobs = arrays.in_precision([row.tobytes() for row in rows], 4, "float16")
    assert {len(blob) for blob in blobs} == {8}
    assert all(arrays.is_rankable(blob, 4) and arrays.fits(blob, 4) for blob in blobs)
    wide = rows.astype(np.float64)
    unit = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    np.testing.assert_allclose(arrays.unpacked(blobs, 4), unit, rtol=2**-10, atol=2**-24)


@given(rows=EMBEDDINGS)
def test_what_has_the_precision_of_the_file_already_is_not_rounded_again(rows: np.ndarray) -> None:
    wide = [row.tobytes() for row in rows]
    narrow = arrays.in_precision(wide, 4, "float16")
    assert arrays.in_precision(wide, 4, "float32") == wide
    assert arrays.in_precision(narrow, 4, "float16") == narrow
    widened = arrays.in_precision(narrow, 4, "float32")
    assert np.array_equal(arrays.unpacked(widened, 4), arrays.unpacked(narrow, 4))
    mixed = arrays.in_precision([*wide, *narrow], 4, "float16")
    assert mixed == [*narrow, *narrow]


def test_embeddings_of_users_are_never_float16() -> None:
    half = np.ones(4, np.float16).tobytes()
    assert arrays.fits(half, 4) and not arrays.fits(half, 4, of_user=True)
    assert arrays.fits(np.ones(4).tobytes(), 4, of_user=True)


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
    scores = METRICS[metric](rows, query)
    assert {scores[place] for place in places} == {METRICS[metric](row[None], query)[0]}


@given(scores=st.lists(st.integers(-3, 3), max_size=60), limit=st.integers(0, 70))
def test_the_highest_scores_are_the_first_of_a_stable_sort(scores: list[int], limit: int) -> None:
    ids = np.arange(100, 100 + len(scores))
    places = highest(ids, np.array(scores, np.float64), limit)
    expected = sorted(range(len(scores)), key=lambda place: -scores[place])[:limit]
    assert places.tolist() == expected


def clustered(count: int, dimension: int = 256, seed: int = 0) -> np.ndarray:
    # All on one side of the origin, as real embeddings are.
    centres = np.random.default_rng(99).normal(size=(50, dimension)) + 2
    random = np.random.default_rng(seed)
    return (
        centres[random.integers(0, 50, count)] + 0.6 * random.normal(size=(count, dimension))
    ).astype(np.float32)


def cosines(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    wide = vectors.astype(np.float64)
    return wide @ query / np.linalg.norm(wide, axis=1) / np.linalg.norm(query.astype(np.float64))


def coded(
    vectors: np.ndarray, first: int = 1, tuning: Tuning | None = None, *, signs: bool = True
) -> Codes:
    """The codes of vectors under the ids from `first` on."""
    codes = encode(vectors)
    ids = np.arange(first, first + len(vectors))
    return Codes(ids, codes, centre(codes) if signs else None, tuning or Tuning())


def nearest(
    kept: Codes, query: np.ndarray, limit: int, allowed: np.ndarray | None = None
) -> list[int]:
    usable = kept.alive if allowed is None else kept.alive & np.isin(kept.ids, allowed)
    return kept.nearest(query, limit, kept.alive, usable)


def nearest_ten(vectors: np.ndarray, query: np.ndarray) -> set[int]:
    return {int(row) + 1 for row in np.argsort(-cosines(vectors, query))[:10]}


@pytest.mark.parametrize("sign_rows", [1_000_000, 0])
def test_the_true_nearest_are_among_the_candidates(sign_rows: int) -> None:
    vectors = clustered(4_000)
    kept = coded(vectors, tuning=Tuning(sign_rows=sign_rows, sign_candidates=400))
    found = [
        len(nearest_ten(vectors, query) & set(nearest(kept, query, 10)))
        for query in clustered(20, seed=1)
    ]
    assert sum(found) / 200 >= 0.99


@pytest.mark.parametrize("dimension", [3, 40, 300])
def test_without_sign_bits_no_neighbour_is_missing_and_few_other_candidates_are_returned(
    dimension: int,
) -> None:
    vectors = clustered(2_000, dimension)
    vectors[::7] = vectors[5]  # many that are the same
    small, without_centre = coded(vectors), coded(vectors, tuning=Tuning(sign_rows=0), signs=False)
    for query in clustered(20, dimension, seed=1):
        found = nearest(small, query, 10)
        assert nearest_ten(vectors, query) <= set(found) == set(nearest(without_centre, query, 10))
        assert dimension < 40 or len(found) < 500


@pytest.mark.parametrize("size", [1e-310, 1e-300, 1e300])
def test_the_length_of_a_query_does_not_matter(size: float) -> None:
    vectors = clustered(100)
    kept = coded(vectors, first=0)
    assert 7 in nearest(kept, vectors[7].astype(np.float64) * size, 1)


@pytest.mark.parametrize("sign_rows", [1_000_000, 0])
def test_only_allowed_ids_are_returned(sign_rows: int) -> None:
    vectors = clustered(3_000)
    kept = coded(vectors, tuning=Tuning(sign_rows=sign_rows))
    allowed = np.arange(7, 3_001, 7)
    query = clustered(1, seed=2)[0]
    found = nearest(kept, query, 10, allowed)
    best = allowed[np.argsort(-cosines(vectors[allowed - 1], query))[:10]]
    assert set(best.tolist()) <= set(found) <= set(allowed.tolist())


def test_the_candidates_do_not_depend_on_the_order_or_the_history_of_the_rows() -> None:
    tuning = Tuning(sign_rows=0, sign_candidates=50)
    vectors = clustered(3_000)
    codes, ids = encode(vectors), np.arange(1, 3_001)
    middle = centre(codes)
    at_once = Codes(ids, codes, middle, tuning)
    shuffled = np.random.default_rng(5).permutation(3_000)
    grown = Codes(ids[:10], codes[:10], middle, tuning)
    grown.replace(np.arange(0), np.arange(9_000, 9_500), encode(clustered(500, seed=8)))
    grown.replace(np.arange(9_000, 9_500), ids[10:], codes[10:])
    others = [Codes(ids[shuffled], codes[shuffled], middle, tuning), grown]
    for query in clustered(10, seed=6):
        expected = set(nearest(at_once, query, 10))
        assert all(set(nearest(each, query, 10)) == expected for each in others)


@given(
    steps=st.lists(
        st.tuples(st.sets(st.integers(1, 40), max_size=8), st.sets(st.integers(1, 40), max_size=8)),
        max_size=8,
    )
)
def test_replaced_rows_are_found_under_their_new_codes(
    steps: list[tuple[set[int], set[int]]],
) -> None:
    vectors = clustered(41, dimension=10)
    codes = encode(vectors)
    kept, model = Codes(np.empty(0, np.int64), np.empty((0, 10), np.int8)), set()
    for removed, added in steps:
        kept.replace(
            np.array(sorted(removed | added), np.int64),
            np.array(sorted(added), np.int64),
            codes[sorted(added)],
        )
        model = (model - removed) | added
        assert (
            sorted(nearest(kept, vectors[0], 100)) == sorted(model) == sorted(kept.ids[kept.alive])
        )


def test_zero_embeddings_do_not_disturb_other_candidates() -> None:
    vectors = np.vstack([np.zeros((1, 256), np.float32), clustered(5)])
    kept = coded(vectors)
    assert set(nearest(kept, vectors[3], 1)) == {4}
    assert len(nearest(kept, np.zeros(256, np.float32), 6)) == 6


def test_a_running_search_does_not_see_rows_that_are_replaced_meanwhile() -> None:
    vectors = clustered(100)
    kept = coded(vectors, first=0)
    before = kept.alive
    kept.replace(np.arange(50), np.arange(100, 400), encode(clustered(300, seed=3)))
    assert sorted(kept.nearest(vectors[0], 100, before, before)) == list(range(100))
    assert sorted(nearest(kept, vectors[0], 400)) == list(range(50, 400))


def test_codes_of_which_most_were_replaced_are_fragmented() -> None:
    kept = coded(clustered(1_000), first=0)
    for step in range(3):
        assert kept.fragmented == (step > 1)
        kept.replace(np.arange(600), np.arange(600), encode(clustered(600, seed=step)))


def test_bytes_for_predicts_the_memory_of_codes() -> None:
    kept = coded(clustered(1_000), first=0)
    used = sum(
        getattr(kept, name).nbytes for name in ("_ids", "alive", "_codes", "_lengths", "_signs")
    )
    assert used == Codes.bytes_for(1_000, 256)


@pytest.mark.parametrize("sign_rows", [1_000_000, 0])
def test_the_best_by_codes_are_nearly_the_best_by_embeddings(sign_rows: int) -> None:
    vectors = clustered(4_000)
    kept = coded(vectors, tuning=Tuning(sign_rows=sign_rows, sign_candidates=1_000))
    for query in clustered(10, seed=1):
        exact = cosines(vectors, query)
        found = kept.best(query, 20, kept.alive, kept.alive)
        assert [id for id, _ in found] == sorted(dict(found), key=lambda id: (-dict(found)[id], id))
        assert all(abs(cosine - exact[id - 1]) < 0.002 for id, cosine in found)
        assert len(set(dict(found)) & {int(row) + 1 for row in np.argsort(-exact)[:20]}) >= 18


def test_equal_codes_have_equal_cosines_and_come_in_the_order_of_their_ids() -> None:
    vectors = clustered(300)
    vectors[[250, 40, 120]] = vectors[7]
    found = coded(vectors).best(vectors[7], 4, np.ones(300, bool), np.ones(300, bool))
    assert [id for id, _ in found] == [8, 41, 121, 251] and len(
        {cosine for _, cosine in found}
    ) == 1
    assert found[0][1] == pytest.approx(1, abs=1e-4)


def test_rows_have_the_codes_of_those_ids_that_exist() -> None:
    vectors = clustered(50)
    codes = encode(vectors)
    kept = Codes(np.array([30, 10, 20]), codes[:3])
    kept.replace(np.array([10, 20]), np.array([40, 10]), codes[3:5])
    found = kept.rows(np.array([5, 10, 20, 30, 40, 50]), kept.alive)
    assert found.ids.tolist() == [10, 30, 40]
    assert (found.codes == codes[[4, 0, 3]]).all()
    assert not len(kept.rows(np.empty(0, np.int64), kept.alive).ids)
    nothing = Codes(np.empty(0, np.int64), np.empty((0, 256), np.int8))
    assert not len(nothing.rows(np.array([1, 2]), nothing.alive).ids)


@given(
    query=strategies.arrays(np.float32, 24, elements=st.floats(-1e6, 1e6, width=32)),
    seed=st.integers(0, 100),
)
def test_a_coded_query_is_within_its_error_of_the_query(query: np.ndarray, seed: int) -> None:
    rows = CodedRows.of(range(9), np.random.default_rng(seed).normal(size=(9, 24)))
    found, coded_query = rows.cosines(query), CodedQuery.of(query)
    if not query.any():
        assert not found.any()
        return
    exact = cosines(rows.codes, query / np.abs(query).max())
    assert np.abs(found - exact).max() <= coded_query.error + 1e-6


def test_feedback_moves_a_query_towards_the_mean_direction_of_relevant_rows() -> None:
    rows = CodedRows.of([1, 2, 3], np.eye(3, 4) * 5)
    start = np.array([2, 0, 0, 0], np.float32)
    assert rows.rocchio(start, [2, 3]) == pytest.approx(
        [1, ROCCHIO_WEIGHT / 2, ROCCHIO_WEIGHT / 2, 0]
    )
    assert rows.rocchio(start, []) is start and rows.rocchio(start, [9]) is start


@given(
    rows=st.integers(0, 700), dimension=st.sampled_from([1, 3, 64, 384, 2_100]), seed=st.integers(0)
)
def test_both_kernels_give_the_exact_products(rows: int, dimension: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    query = random.integers(-127, 128, dimension).astype(np.int8)
    codes = random.integers(-127, 128, (rows, dimension)).astype(np.int8)
    exact = (codes.astype(np.int64) @ query.astype(np.int64)).tolist()
    assert products(query[None, :], codes).tolist() == [widened(query, codes).tolist()] == [exact]


@pytest.mark.parametrize("dimension", [EXACT, EXACT + 1, 16_384])
def test_the_largest_products_are_exact(dimension: int) -> None:
    query = np.full(dimension, 127, np.int8)
    for codes in (query[None, :], -query[None, :]):
        exact = 127 * 127 * dimension * (1 if codes[0, 0] > 0 else -1)
        found = products(np.stack([query, query]), codes).tolist()
        assert found == 2 * [widened(query, codes).tolist()] == 2 * [[exact]]


@given(vector=strategies.arrays(np.float32, 8, elements=st.floats(-1e6, 1e6, width=32)))
def test_a_code_keeps_the_direction_and_never_overflows(vector: np.ndarray) -> None:
    values = encode(vector.reshape(1, -1))[0]
    largest = np.abs(vector).max()
    if largest > 1e-30:
        assert np.abs(values).max() == 127
        assert np.allclose(values / 127, vector / largest, atol=0.5 / 127 + 1e-6)


def test_codes_of_many_rows_equal_those_of_each_and_none_is_zero() -> None:
    vectors = np.concatenate([clustered(700, 16), np.zeros((2, 16), np.float32)])
    together = encode(vectors)
    each = [encode(row.reshape(1, -1))[0] for row in vectors]
    assert (together == each).all() and together.any(axis=1).all()


@given(distances=st.lists(st.integers(0, 254), min_size=1, max_size=60), data=st.data())
def test_the_nearest_rows_are_all_those_within_the_smallest_distance_that_enough_lie_within(
    distances: list[int], data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, len(distances)))
    forbidden = [arrays.FORBIDDEN] * data.draw(st.integers(0, 99))
    near = [place for place, each in enumerate(distances) if each <= sorted(distances)[count - 1]]
    assert arrays._nearest(np.array(distances + forbidden, np.uint8), count).tolist() == near
