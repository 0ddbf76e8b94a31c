from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import resident
from mcpvectordb.meaning import code
from mcpvectordb.resident import Resident


def clustered(count: int, dimension: int = 256, seed: int = 0) -> np.ndarray:
    centres = np.random.default_rng(99).normal(size=(50, dimension)) + 2  # all on one side, as real embeddings are
    random = np.random.default_rng(seed)
    return (centres[random.integers(0, 50, count)] + 0.6 * random.normal(size=(count, dimension))).astype(np.float32)


def coded(vectors: np.ndarray) -> np.ndarray:
    return np.array([np.frombuffer(code(row.tobytes()), np.int8) for row in vectors])


def exact(vectors: np.ndarray, query: np.ndarray, count: int) -> set[int]:
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1)
    return {int(row) + 1 for row in np.argsort(-cosines)[:count]}


@pytest.mark.parametrize("sign_rows", [1_000_000, 0])
def test_the_true_nearest_are_among_the_candidates(monkeypatch: pytest.MonkeyPatch, sign_rows: int) -> None:
    monkeypatch.setattr(resident, "SIGN_ROWS", sign_rows)
    monkeypatch.setattr(resident, "BY_SIGNS", 400)
    vectors = clustered(4_000)
    kept = Resident(np.arange(1, 4_001), coded(vectors))
    found = [len(exact(vectors, query, 10) & set(kept.nearest(query.tobytes(), 40))) for query in clustered(20, seed=1)]
    assert sum(found) / 200 >= 0.99


@pytest.mark.parametrize("sign_rows", [1_000_000, 0])
def test_only_allowed_ids_come_back(monkeypatch: pytest.MonkeyPatch, sign_rows: int) -> None:
    monkeypatch.setattr(resident, "SIGN_ROWS", sign_rows)
    vectors = clustered(3_000)
    kept = Resident(np.arange(1, 3_001), coded(vectors))
    allowed = np.arange(7, 3_001, 7)
    query = clustered(1, seed=2)[0]
    found = kept.nearest(query.tobytes(), 30, allowed)
    best = sorted(allowed, key=lambda id: -float(vectors[id - 1] @ query / np.linalg.norm(vectors[id - 1])))[:10]
    assert set(found) <= set(allowed.tolist()) and set(best) <= set(found)


def test_asking_for_more_than_there_is_gives_all() -> None:
    kept = Resident(np.array([3, 5]), coded(clustered(2)))
    assert sorted(kept.nearest(clustered(1)[0].tobytes(), 10)) == [3, 5]


@given(steps=st.lists(st.tuples(st.sets(st.integers(1, 40), max_size=8), st.sets(st.integers(1, 40), max_size=8)), max_size=8))
def test_what_was_replaced_is_what_is_found(steps: list[tuple[set[int], set[int]]]) -> None:
    vectors = clustered(41, dimension=10)
    codes = coded(vectors)
    kept, model = Resident(np.empty(0, np.int64), np.empty((0, 10), np.int8)), set()
    for removed, added in steps:
        kept.replace(np.array(sorted(removed | added), np.int64), np.array(sorted(added), np.int64), codes[sorted(added)])
        model = (model - removed) | added
        assert sorted(kept.nearest(vectors[0].tobytes(), 100)) == sorted(model)


def test_zeros_disturb_nothing() -> None:
    vectors = np.vstack([np.zeros((1, 256), np.float32), clustered(5)])
    kept = Resident(np.arange(1, 7), coded(vectors))
    assert set(kept.nearest(vectors[3].tobytes(), 1)) == {4}
    assert len(kept.nearest(np.zeros(256, np.float32).tobytes(), 6)) == 6


def test_memory_is_known_beforehand() -> None:
    kept = Resident(np.arange(1_000), coded(clustered(1_000)))
    used = sum(getattr(kept, name).nbytes for name in ("_ids", "_alive", "_codes", "_lengths", "_signs"))
    assert used == Resident.bytes_for(1_000, 256)
