"""The figures of a leaderboard, and one run over little conversations of each layout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import leaderboard
from benchmarks.__main__ import main
from benchmarks.conversations import UNANSWERED, Conversation, Question, Turn
from benchmarks.engines import Recalled, basic_memory
from mcpvectordb import InvalidInput
from tests.benchmarks.layouts import beam, locomo, realtalk

TALK = Conversation(
    "Talks",
    "one",
    [Turn(f"t{number}", f"s{number // 2}", f"turn {number}") for number in range(8)],
    [
        Question("found first", frozenset({"t0"}), "easy"),
        Question("found second", frozenset({"t0"}), "easy"),
        Question("half of it found", frozenset({"t1", "t6"}), "hard"),
        Question("not known", frozenset(), UNANSWERED),
    ],
)


def recalled(*found: int, nothing: bool = False) -> Recalled:
    return {"found": list(found), "nothing": nothing}


def rows_of(*answers: Recalled) -> dict[str, dict[str, float | None]]:
    graded = list(leaderboard._answers([TALK], answers, [2.0, 4.0, 6.0, 8.0]))
    return {row["questions about"]: row for row in leaderboard._rows(graded)}


def test_categories_count_the_same_whatever_the_number_of_their_questions() -> None:
    rows = rows_of(recalled(0, 1), recalled(1, 0), recalled(1, 2), recalled(5))
    easy, hard, every = rows["easy"], rows["hard"], rows[leaderboard.MEAN]
    assert easy["recall@5"] == 1 and hard["recall@5"] == 0.5
    assert every["recall@5"] == 0.75
    assert easy["nDCG@10"] == pytest.approx((1 + 0.6309) / 2, abs=1e-4)
    assert every["number"] == 4 and every["CPU ms"] == 5


def test_a_session_is_found_by_any_of_its_turns() -> None:
    rows = rows_of(recalled(1), recalled(7), recalled(0, 7), recalled(5))
    assert rows["easy"]["recall@10"] == 0 and rows["easy"]["sessions@10"] == 0.5
    assert rows["hard"]["recall@10"] == 0 and rows["hard"]["sessions@10"] == 1


def test_questions_that_no_turn_answers_are_for_abstention_only() -> None:
    rows = rows_of(recalled(0), recalled(0), recalled(nothing=True), recalled(5, nothing=True))
    assert rows[UNANSWERED]["nDCG@10"] is None and rows[UNANSWERED]["said nothing"] == 1
    assert rows[leaderboard.MEAN]["recall@10"] == 0.5
    assert rows[leaderboard.MEAN]["said nothing"] is None
    graded = leaderboard._answers(
        [TALK], [recalled(0), recalled(0), recalled(), recalled(nothing=True)], [1.0] * 4
    )
    assert "1.000 of 1 questions without an answer, and of 0.000 of 3" in leaderboard._told(
        list(graded)
    )


def test_turns_of_every_layout_are_found_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(make(tmp_path)) for make in (locomo, realtalk, beam)]
    main(["memory", "--data", *files, "--model", "all-MiniLM-L6-v2", "--json"])
    printed = json.loads(capsys.readouterr().out)
    means = {
        row["data"]: row for row in printed["rows"] if row["questions about"] == leaderboard.MEAN
    }
    assert {name: row["number"] for name, row in means.items()} == {
        "LoCoMo": 5,
        "REALTALK": 3,
        "BEAM": 3,
    }
    assert all(row["recall@10"] == 1 and row["nDCG@10"] > 0.6 for row in means.values())
    assert all(row["engine"].startswith("mcpvectordb@all-MiniLM-L6-v2 ") for row in means.values())
    assert len(printed["notes"]) == 3


def test_a_rival_that_cannot_remember_is_told_who_can(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"tantivy cannot remember .* chroma, mcp-memory-service"):
        main(["memory", "--data", str(locomo(tmp_path)), "--rival", "tantivy"])


def test_a_rival_that_needs_another_python_says_so_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(basic_memory.Engine, "python", (99, 1))
    with pytest.raises(InvalidInput, match=r"basic-memory needs Python 99\.1 or later"):
        leaderboard.run([locomo(tmp_path)], ["basic-memory"], tmp_path / "cache")


def test_a_model_without_conversations_is_refused() -> None:
    with pytest.raises(SystemExit, match="--model goes with --data"):
        main(["memory", "--model", "all-MiniLM-L6-v2"])


def test_conversations_of_the_same_name_are_refused(tmp_path: Path) -> None:
    file = str(realtalk(tmp_path))
    with pytest.raises(SystemExit, match="the same name"):
        main(["memory", "--data", file, file])
