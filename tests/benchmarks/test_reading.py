from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import reading
from benchmarks.__main__ import main

TEXTS = st.lists(st.sampled_from("the boat lay still on blue water 港 工".split()), max_size=30)


@given(TEXTS)
def test_a_text_agrees_with_itself(some: list[str]) -> None:
    found = reading.grade(" ".join(some), "| " + "\n# ".join(some))
    assert (found.kept, found.order) == (1.0, 1.0) or not some
    assert found.f1 == (1.0 if some else 0.0)


@given(TEXTS, TEXTS)
def test_every_figure_is_a_share(some: list[str], others: list[str]) -> None:
    found = reading.grade(" ".join(some), " ".join(others))
    for figure in (found.kept, found.order, found.precision, found.recall, found.f1):
        assert 0 <= figure <= 1


def test_words_that_are_missing_added_or_moved_are_told_apart() -> None:
    expected = "one two three four five six seven eight"
    missing = reading.grade("one two three four", expected)
    assert (missing.kept, missing.precision, missing.order) == (0.5, 1.0, 1.0)
    added = reading.grade(expected + " nine ten eleven twelve", expected)
    assert (added.kept, added.recall) == (1.0, 1.0)
    assert added.precision < 0.6
    moved = reading.grade("five six seven eight one two three four", expected)
    assert (moved.kept, moved.order) == (1.0, 0.5)
    assert 0 < moved.f1 < 1


def test_a_folder_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.html").write_text("<html><body><p>One two three four five.</p></body></html>")
    (tmp_path / "a.txt").write_text("One two three four five.")
    (tmp_path / "b.html").write_text("<html><body></body></html>")
    (tmp_path / "b.txt").write_text("Nothing of this is in the page.")
    (tmp_path / "c.html").write_text("<p>no expected text</p>")
    main(["reading", "--data", str(tmp_path), "--reader", "mcpvectordb", "--json"])
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert (row["kind"], row["files"], row["lost"], row["F1"]) == ("html", 2, 1, 0.5)


def test_a_folder_without_expected_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no file with an expected text"):
        main(["reading", "--data", str(tmp_path)])
