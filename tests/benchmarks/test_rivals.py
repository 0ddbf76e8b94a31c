from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import engines, processes, rivals
from benchmarks.__main__ import main
from benchmarks.rivals import OURS, RIVALS, Plan, Runs, recall
from mcpvectordb import InvalidInput


def figures(
    wall: list[float], cpu: list[float], found: list[list[int]] | None = None
) -> dict[str, object]:
    return {"nearest": {"wall": wall, "cpu": cpu, "found": found or []}, "peak": 10 * wall[0]}


def test_a_figure_is_the_median_of_the_rounds_of_the_median_query() -> None:
    runs = Runs(
        "x",
        {},
        [
            figures([1, 2, 3], [9, 9, 9]),
            figures([7, 8, 9], [9, 9, 9]),
            figures([4, 5, 60], [5, 5, 5], [[1], [2], [3]]),
        ],
    )
    assert runs.took("nearest") == 5 and runs.took("nearest", "cpu") == 9
    assert runs.took("nearest", share=0.95) == 9
    assert runs.took("nearest", only=[0]) == 4
    assert runs.found("nearest", [0, 2]) == [[1], [3]]
    assert runs.peak() == 40


def test_filling_counts_once() -> None:
    runs = Runs(
        "x", {"add_vectors": {"wall": [5.0], "cpu": [4.0], "found": [None]}}, [figures([1], [1])]
    )
    assert runs.took("add_vectors") == 5


def test_we_are_compared_by_the_clock_and_by_cpu_time() -> None:
    ours, theirs = (
        Runs(OURS, {}, [figures([2, 4], [1, 1])]),
        Runs("x", {}, [figures([6, 4], [5, 5])]),
    )
    assert rivals.against(
        ours, theirs, {"searching": ("nearest", None), "the second": ("nearest", [1])}
    ) == ("Times as fast as x (by CPU time): searching 2.0 (5.0), the second 1.0 (5.0).")


def test_recall_is_the_share_of_what_could_be_found() -> None:
    assert recall([[1, 0], [3]], [{1, 2}, {3}]) == pytest.approx(2 / 3)
    assert recall([list(range(10))], [set(range(30))]) == 1
    assert recall([[]], [set()]) == 1


@pytest.mark.parametrize(
    ("name", "rival", "able"),
    [
        ("vectors", "tantivy", "chroma, lancedb, sqlite-vec, qdrant, hnswlib"),
        ("words", "chroma", "lancedb, tantivy, fts5"),
        ("hybrid", "fts5", "chroma"),
        ("growth", "tantivy", "qdrant"),
        ("ingest", "chroma", "of the rivals none can"),
    ],
)
def test_a_rival_that_cannot_is_an_error_that_names_those_that_can(
    name: str, rival: str, able: str
) -> None:
    with pytest.raises(SystemExit, match=rf"{rival} cannot .*{able}"):
        main([name, "--rival", rival])


def test_an_unknown_rival_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["vectors", "--rival", "oracle"])
    assert "chroma" in capsys.readouterr().err


def test_none_is_no_rival_and_a_rival_counts_once() -> None:
    assert rivals.chosen(["none"], "nearest", "") == rivals.chosen(None, "nearest", "") == []
    assert rivals.chosen(["chroma", "chroma", "hnswlib"], "nearest", "search") == [
        "chroma",
        "hnswlib",
    ]


def test_every_engine_has_all_it_is_asked_for() -> None:
    for name in engines.NAMES:
        assert engines.load(name).packages
        assert engines.can(name, "close")
        assert engines.can(name, "nearest") == engines.can(name, "add_vectors")
        assert engines.can(name, "matching") == engines.can(name, "add_texts")
        assert engines.can(name, "nearest") or engines.can(name, "matching")


def test_an_engine_that_is_installed_is_not_installed_again(tmp_path: Path) -> None:
    for name in set(RIVALS) - set(rivals.HERE):
        (tmp_path / name).mkdir()
        (tmp_path / name / "installed").touch()
        assert rivals.interpreter(tmp_path, name).is_relative_to(tmp_path / name)


def test_an_engine_finds_again_what_another_process_added(tmp_path: Path) -> None:
    rivals.write(
        tmp_path,
        texts=["a dog barks", "a cat sleeps"],
        questions=[
            {"any": ["cats"], "all": [], "none": []},
            {"any": [], "all": ["a"], "none": ["cat"]},
        ],
    )
    plan = Plan(("add_texts",), ("first", "matching", "matching"))
    runs = rivals.measured(tmp_path, tmp_path, {OURS: plan, "fts5": plan}, 2)
    for each in runs.values():
        assert each.found("matching") == each.found("matching again") == [[1], [0]] and each.found(
            "first"
        ) == [[1]]
        assert (
            len(each.asked) == 2
            and each.filled["bytes"] > 1_000
            and each.peak() > 1e6
            and each.version
        )


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(InvalidInput, match="no_such_module"):
        processes.figures("benchmarks.no_such_module")


def test_a_command_is_measured_with_all_it_did() -> None:
    idle = processes.spent_by([sys.executable, "-c", "import time; time.sleep(0.4)"])
    assert idle.wall > 400 and idle.cpu < idle.wall


def test_a_graph_may_be_named_with_the_entries_that_it_keeps_while_it_searches(
    tmp_path: Path,
) -> None:
    assert rivals.chosen(["hnswlib@400", "chroma"], "nearest", "search vectors") == [
        "hnswlib@400",
        "chroma",
    ]
    assert rivals.interpreter(tmp_path, OURS) == Path(sys.executable)
    assert engines.base("hnswlib@400") == engines.base("hnswlib") == "hnswlib"
    assert engines.load("hnswlib@400") is engines.load("hnswlib")
