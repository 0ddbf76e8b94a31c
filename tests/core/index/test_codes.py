from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hypothesis_arrays

from mcpvectordb.index.codes import (
    EXACT,
    ROCCHIO_WEIGHT,
    CodedQuery,
    CodedRows,
    Codes,
    centre,
    encode,
    products,
    widened,
)
from mcpvectordb.index.tuning import Tuning


def clustered(count: int, dimension: int = 256, seed: int = 0) -> np.ndarray:
    # All on one side of the origin, as real embeddings are.
    centres = np.random.default_rng(99).normal(size=(50, dimension)) + 2
    random = np.random.default_rng(seed)
    return (
        centres[random.integers(0, 50, count)] + 0.6 * random.normal(size=(count, dimension))
    ).astype(np.float32)


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


def exact(vectors: np.ndarray, query: np.ndarray, count: int) -> set[int]:
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1)
    return {int(row) + 1 for row in np.argsort(-cosines)[:count]}


@pytest.mark.parametrize("sign_rows", [1_000_000, 0])
def test_the_true_nearest_are_among_the_candidates(sign_rows: int) -> None:
    vectors = clustered(4_000)
    kept = coded(vectors, tuning=Tuning(sign_rows=sign_rows, sign_candidates=400))
    found = [
        len(exact(vectors, query, 10) & set(nearest(kept, query, 10)))
        for query in clustered(20, seed=1)
    ]
    assert sum(found) / 200 >= 0.99


@pytest.mark.parametrize("dimension", [3, 40, 300])
def test_without_sign_bits_no_neighbour_is_missing_and_few_other_candidates_are_returned(
    dimension: int,
) -> None:
    vectors = clustered(2_000, dimension)
    vectors[::7] = vectors[5]  # many that are the same
    kept = coded(vectors)
    for query in clustered(20, dimension, seed=1):
        found = nearest(kept, query, 10)
        assert exact(vectors, query, 10) <= set(found)
        assert dimension < 40 or len(found) < 500


def test_without_a_centre_all_codes_are_compared_and_no_neighbour_is_missing() -> None:
    vectors = clustered(4_000)
    kept = coded(vectors, tuning=Tuning(sign_rows=0, sign_candidates=20), signs=False)
    for query in clustered(20, seed=1):
        assert exact(vectors, query, 10) <= set(nearest(kept, query, 10))


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
    best = sorted(
        allowed, key=lambda id: -float(vectors[id - 1] @ query / np.linalg.norm(vectors[id - 1]))
    )[:10]
    assert set(found) <= set(allowed.tolist()) and set(best) <= set(found)


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


def test_a_limit_above_the_number_of_rows_returns_all() -> None:
    assert sorted(nearest(coded(clustered(2), first=3), clustered(1)[0], 10)) == [3, 4]


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


def cosines(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    wide = vectors.astype(np.float64)
    return wide @ query / np.linalg.norm(wide, axis=1) / np.linalg.norm(query.astype(np.float64))


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
    query=hypothesis_arrays.arrays(np.float32, 24, elements=st.floats(-1e6, 1e6, width=32)),
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
    assert products(query, codes).tolist() == widened(query, codes).tolist() == exact


@pytest.mark.parametrize("dimension", [EXACT, EXACT + 1, 16_384])
def test_the_largest_products_are_exact(dimension: int) -> None:
    query = np.full(dimension, 127, np.int8)
    for codes in (query[None, :], -query[None, :]):
        exact = 127 * 127 * dimension * (1 if codes[0, 0] > 0 else -1)
        assert products(query, codes).tolist() == widened(query, codes).tolist() == [exact]
