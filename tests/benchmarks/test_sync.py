from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import sync
from benchmarks.__main__ import main


def test_the_walk_and_the_sync_are_timed_on_the_same_files(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["sync", "--files", "120", "--rounds", "3", "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["files"] == 120 and 0 < printed["walk_cpu"] < printed["sync_cpu"]
    assert printed["ratio"] == pytest.approx(printed["sync_cpu"] / printed["walk_cpu"], abs=0.01)


def test_a_bare_walk_counts_each_file_once(tmp_path: Path) -> None:
    sync.plant(tmp_path / "root", 250)
    assert sync.bare_walk(str(tmp_path / "root")) == 250


def test_the_verdict_is_in_words() -> None:
    outcome = sync.Outcome(
        files=10_000, walk_cpu=20.0, sync_cpu=110.0, walk_wall=21.0, sync_wall=112.0, ratio=5.5
    )
    assert sync.summary(outcome).endswith("5.5 walks, ABOVE the target of 5")
