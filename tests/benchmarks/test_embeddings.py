from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import embeddings
from benchmarks.embeddings import clustered
from benchmarks.vectors import nearest

LITTLE = Path(__file__).with_name("little")


def test_clustered_vectors_are_the_same_each_time_and_of_length_1() -> None:
    rows, queries = clustered(500, 32, 5)
    assert rows.shape == (500, 32) and queries.shape == (5, 32)
    assert (rows == clustered(500, 32, 5)[0]).all()
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(500), abs=1e-5)


def test_cosines_are_spread_as_those_of_real_embeddings() -> None:
    rows, queries = clustered(10_000, 384, 50)
    ranked = -np.sort(-(queries @ rows.T), axis=1)
    spread = [
        float(ranked.mean()),
        *(float(ranked[:, place - 1].mean()) for place in (10, 100, 1_000)),
    ]
    # The values of 10,000 passages, embedded by bge-small.
    assert spread == pytest.approx([0.573, 0.778, 0.713, 0.651], abs=0.05)
    assert (ranked[:, 9] - ranked[:, 10]).max() < 0.1  # no border behind the tenth


def test_the_nearest_are_found_among_all_and_within_groups() -> None:
    rows = np.eye(4, dtype=np.float32)
    assert nearest(rows, np.array([[0.1, 0.9, 0.5, 0]], np.float32)) == [{0, 1, 2, 3}]
    rows, queries = clustered(60, 16, 3)
    assert [{number % 3 for number in found} for found in nearest(rows, queries, 3)] == [
        {0},
        {1},
        {2},
    ]
    assert nearest(rows, rows[7:8])[0] >= {7}


def test_real_embeddings_are_made_once(tmp_path: Path) -> None:
    rows, queries = embeddings.real([LITTLE], 12, 5, tmp_path)
    assert rows.shape == (12, 384) and queries.shape == (5, 384)
    made = sorted(path.stat().st_mtime_ns for path in tmp_path.iterdir())
    assert len(made) == 2 and (embeddings.real([LITTLE], 12, 5, tmp_path)[0] == rows).all()
    assert sorted(path.stat().st_mtime_ns for path in tmp_path.iterdir()) == made
