from __future__ import annotations

from pathlib import Path

from benchmarks import imports
from tests.support import Letters


def test_embeddings_are_made_once_and_then_kept(tmp_path: Path) -> None:
    rows = imports.measure(tmp_path, 50, 120, imports.Remembered(Letters()))
    assert [(row["items"], row["kept"]) for row in rows] == [(50, 0), (50, 50), (50, 0)]
    assert [row["embedded"] for row in rows] == [50, 0, 0]
    assert all(row["CPU s"] > 0 for row in rows)
