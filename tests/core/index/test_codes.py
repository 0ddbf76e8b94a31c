from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.index import codes as resident
from mcpvectordb.index.codes import Resident, Residents
from mcpvectordb.index.vector import code


def clustered(count: int, dimension: int = 256, seed: int = 0) -> np.ndarray:
    centres = (
        np.random.default_rng(99).normal(size=(50, dimension)) + 2
    )  # all on one side, as real embeddings are
    random = np.random.default_rng(seed)
    return (
        centres[random.integers(0, 50, count)] + 0.6 * random.normal(size=(count, dimension))
    ).astype(np.float32)


def coded(vectors: np.ndarray) -> np.ndarray:
    return np.array([np.frombuffer(code(row.tobytes()), np.int8) for row in vectors])


def exact(vectors: np.ndarray, query: np.ndarray, count: int) -> set[int]:
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1)
    return {int(row) + 1 for row in np.argsort(-cosines)[:count]}


@pytest.mark.parametrize("sign_rows", [1_000_000, 0])
def test_the_true_nearest_are_among_the_candidates(
    monkeypatch: pytest.MonkeyPatch, sign_rows: int
) -> None:
    monkeypatch.setattr(resident, "SIGN_ROWS", sign_rows)
    monkeypatch.setattr(resident, "BY_SIGNS", 400)
    vectors = clustered(4_000)
    kept = Resident(np.arange(1, 4_001), coded(vectors))
    found = [
        len(exact(vectors, query, 10) & set(kept.nearest(query, 10, kept.alive)))
        for query in clustered(20, seed=1)
    ]
    assert sum(found) / 200 >= 0.99


@pytest.mark.parametrize("dimension", [3, 40, 300])
def test_where_signs_do_not_choose_none_of_the_nearest_is_missing_and_few_others_come_along(
    dimension: int,
) -> None:
    vectors = clustered(2_000, dimension)
    vectors[::7] = vectors[5]  # many that are the same
    kept = Resident(np.arange(1, 2_001), coded(vectors))
    for query in clustered(20, dimension, seed=1):
        found = kept.nearest(query, 10, kept.alive)
        assert exact(vectors, query, 10) <= set(found)
        assert dimension < 40 or len(found) < 500


def test_only_as_many_come_along_as_signs_can_be_trusted_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resident, "SIGN_ROWS", 0)
    vectors = np.repeat(clustered(1), 3_000, axis=0)
    kept = Resident(np.arange(3_000), coded(vectors))
    assert len(kept.nearest(vectors[0], 10, kept.alive)) == 20


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_the_size_of_a_query_does_not_matter(size: float) -> None:
    vectors = clustered(100)
    kept = Resident(np.arange(100), coded(vectors))
    assert 7 in kept.nearest(vectors[7].astype(np.float64) * size, 1, kept.alive)


@pytest.mark.parametrize("sign_rows", [1_000_000, 0])
def test_only_allowed_ids_come_back(monkeypatch: pytest.MonkeyPatch, sign_rows: int) -> None:
    monkeypatch.setattr(resident, "SIGN_ROWS", sign_rows)
    vectors = clustered(3_000)
    kept = Resident(np.arange(1, 3_001), coded(vectors))
    allowed = np.arange(7, 3_001, 7)
    query = clustered(1, seed=2)[0]
    found = kept.nearest(query, 10, kept.narrowed(kept.alive, allowed))
    best = sorted(
        allowed, key=lambda id: -float(vectors[id - 1] @ query / np.linalg.norm(vectors[id - 1]))
    )[:10]
    assert set(found) <= set(allowed.tolist()) and set(best) <= set(found)


def test_rows_that_are_allowed_may_lie_between_those_that_are_sampled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resident, "SIGN_ROWS", 0)
    monkeypatch.setattr(resident, "BY_SIGNS", 50)
    vectors = clustered(4_000)
    kept = Resident(np.arange(4_000), coded(vectors))
    allowed = np.arange(1, 4_000, resident.SAMPLE)
    assert set(kept.nearest(vectors[1], 10, kept.narrowed(kept.alive, allowed))) <= set(
        allowed.tolist()
    )


def test_asking_for_more_than_there_is_gives_all() -> None:
    kept = Resident(np.array([3, 5]), coded(clustered(2)))
    assert sorted(kept.nearest(clustered(1)[0], 10, kept.alive)) == [3, 5]


@given(
    steps=st.lists(
        st.tuples(st.sets(st.integers(1, 40), max_size=8), st.sets(st.integers(1, 40), max_size=8)),
        max_size=8,
    )
)
def test_what_was_replaced_is_what_is_found(steps: list[tuple[set[int], set[int]]]) -> None:
    vectors = clustered(41, dimension=10)
    codes = coded(vectors)
    kept, model = Resident(np.empty(0, np.int64), np.empty((0, 10), np.int8)), set()
    for removed, added in steps:
        kept.replace(
            np.array(sorted(removed | added), np.int64),
            np.array(sorted(added), np.int64),
            codes[sorted(added)],
        )
        model = (model - removed) | added
        assert (
            sorted(kept.nearest(vectors[0], 100, kept.alive))
            == sorted(model)
            == sorted(kept.ids[kept.alive])
        )


def test_zeros_disturb_nothing() -> None:
    vectors = np.vstack([np.zeros((1, 256), np.float32), clustered(5)])
    kept = Resident(np.arange(1, 7), coded(vectors))
    assert set(kept.nearest(vectors[3], 1, kept.alive)) == {4}
    assert len(kept.nearest(np.zeros(256, np.float32), 6, kept.alive)) == 6


def test_a_search_that_goes_on_does_not_see_what_is_replaced_meanwhile() -> None:
    vectors = clustered(100)
    kept = Resident(np.arange(100), coded(vectors))
    before = kept.alive
    kept.replace(np.arange(50), np.arange(100, 400), coded(clustered(300, seed=3)))
    assert sorted(kept.nearest(vectors[0], 100, before)) == list(range(100))
    assert sorted(kept.nearest(vectors[0], 400, kept.alive)) == list(range(50, 400))


def test_codes_of_which_most_were_replaced_are_worn() -> None:
    kept = Resident(np.arange(1_000), coded(clustered(1_000)))
    for step in range(3):
        assert kept.fragmented == (step > 1)
        kept.replace(np.arange(600), np.arange(600), coded(clustered(600, seed=step)))


def test_memory_is_known_beforehand() -> None:
    kept = Resident(np.arange(1_000), coded(clustered(1_000)))
    used = sum(
        getattr(kept, name).nbytes for name in ("_ids", "alive", "_codes", "_lengths", "_signs")
    )
    assert used == Resident.bytes_for(1_000, 256)


class Thing:
    def __init__(self, size: int) -> None:
        self.size = size


def test_what_does_not_fit_beside_something_new_is_dropped() -> None:
    residents = Residents(100)
    residents.keep("a", Thing(60))
    residents.keep("b", Thing(30))
    residents.keep("c", Thing(50))
    assert residents.get("a") is None and residents.get("b") and residents.get("c")
    residents.drop()
    assert residents.get("b") is None


def test_what_was_least_lately_asked_for_is_dropped_first() -> None:
    residents = Residents(100)
    residents.keep("a", Thing(40))
    residents.keep("b", Thing(40))
    residents.get("a")
    residents.keep("c", Thing(40))
    assert residents.get("a") and residents.get("b") is None and residents.get("c")


def test_what_has_grown_too_large_is_not_kept() -> None:
    residents = Residents(100)
    residents.keep("a", Thing(40))
    residents.keep("a", Thing(101))
    assert residents.get("a") is None


def test_only_what_is_asked_for_twice_and_fits_is_wanted() -> None:
    residents = Residents(100)
    assert [residents.wanted("a", 100) for _ in range(3)] == [False, True, True]
    assert [residents.wanted("b", 101) for _ in range(2)] == [False, False]
