from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import vectors
from benchmarks.vectors import OURS, RIVALS, Outcome, clustered, compared, main, measure, nearest, recall


def test_the_vectors_are_the_same_each_time_of_length_1_and_in_clusters() -> None:
    rows, queries = clustered(500, 32, 5)
    assert rows.shape == (500, 32) and queries.shape == (5, 32)
    assert (rows == clustered(500, 32, 5)[0]).all()
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(500), abs=1e-5)
    likeness = rows @ rows.T
    assert 50 < (likeness[0] > 0.2).sum() < 250


def test_recall_is_the_share_of_the_true_neighbours() -> None:
    rows = np.eye(4, dtype=np.float32)
    assert nearest(rows, np.array([[0.1, 0.9, 0.5, 0]], np.float32), 2) == [{1, 2}]
    assert nearest(rows, rows[:1], 10) == [{0, 1, 2, 3}]
    assert recall([[1, 0], [3]], [{1, 2}, {3}]) == pytest.approx(2 / 3)


def test_our_engine_finds_every_neighbour_and_tells_its_figures() -> None:
    (outcome,) = measure({OURS: Path(sys.executable)}, 300, 16, 5, 1)
    assert (outcome.engine, outcome.rows, outcome.dimension, outcome.recall_10) == (OURS, 300, 16, 1.0)
    assert min(outcome.added_per_second, outcome.search_ms, outcome.megabytes) > 0


def test_the_proportion_is_ours_to_theirs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Outcome(OURS, "1", 10, 2, 4000, 3000, 1.0, 2.0, 1.0, 5)
    theirs = Outcome("chroma", "2", 10, 2, 100, 100, 3.0, 3.0, 0.9, 6)
    assert compared(ours, theirs) == (
        "Times as fast as chroma (by CPU time): adding 40.0 (30.0, target 20), searching 3.0 (1.5).")
    monkeypatch.setattr(vectors, "measure", lambda *_: [ours])
    main(["--rows", "10", "--json"])
    assert json.loads(capsys.readouterr().out)[0]["added_per_second"] == 4000
    main([])
    assert "| mcpvectordb | 1 | 10 × 2 | 4,000 | 3,000 | 1.00 | 2.00 | 1.000 | 5.0 |" in capsys.readouterr().out


def test_a_rival_that_is_installed_is_not_installed_again(tmp_path: Path) -> None:
    for rival in RIVALS:
        (tmp_path / rival).mkdir()
        (tmp_path / rival / "installed").touch()
        assert vectors.interpreter(tmp_path, rival).is_relative_to(tmp_path / rival)
