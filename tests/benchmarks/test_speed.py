"""Every benchmark of speed at its smallest, without a rival or with the one that needs no
installing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import growth, hybrid, ingest, start, vectors
from benchmarks.__main__ import main
from benchmarks.rivals import OURS, Runs
from mcpvectordb import Config, Database

pytestmark = pytest.mark.long


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    main([*arguments, "--rounds", "1", "--json"])
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


def test_vectors_are_all_found_among_all_and_in_their_group(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (ours,) = printed(
        capsys, "vectors", "--rows", "600", "--dimension", "16", "--queries", "5", "--rival", "none"
    )
    assert (ours["engine"], ours["vectors"], ours["recall@10"], ours["1 %: recall@10"]) == (
        OURS,
        "600 × 16",
        1,
        1,
    )
    assert min(ours["added/s"], ours["ms"], ours["CPU ms"], ours["1 %: ms"], ours["MB"]) > 0


def test_words_are_found_by_us_and_by_a_rival_on_the_same_passages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = printed(capsys, "words", "--passages", "400", "--queries", "3", "--rival", "fts5")
    assert {(row["query"], row["engine"]) for row in rows} == {
        (kind, engine)
        for kind in ("rare word", "common word", "question", "boolean")
        for engine in (OURS, "fts5")
    }
    assert all(row["ms"] > 0 for row in rows)
    # How many of three queries are answered depends on the texts that this machine has.
    for engine in (OURS, "fts5"):
        assert 0.5 < max(row["right in 10"] for row in rows if row["engine"] == engine) <= 1


def test_questions_find_the_passages_they_were_made_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (ours,) = printed(capsys, "hybrid", "--passages", "300", "--queries", "4")
    assert ours["engine"] == OURS and ours["passages"] == 300 and 0.5 < ours["right in 10"] <= 1
    assert 0 < ours["CPU ms"] <= ours["CPU p95"] and ours["again: CPU ms"] > 0


def test_a_start_is_compared_with_the_bare_one(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["what"]: row for row in printed(capsys, "start", "--rows", "200")}
    assert rows["bare Python"]["CPU ms over bare"] is None
    server = rows[start.OUR_SERVER]
    assert server["CPU ms over bare"] == pytest.approx(
        server["CPU ms"] - rows[start.BARE_SERVER]["CPU ms"]
    )
    assert any(what.startswith(OURS) and "first answer" in what for what in rows)
    searches = [rows[what] for what in start.SEARCHES]
    assert [each["target"] for each in searches] == ["150 CPU ms", "450 CPU ms"]
    assert 0 < searches[0]["CPU ms"] < searches[1]["CPU ms"]  # a model is loaded
    assert "the target of 150" in start.met(searches[0])


def test_memory_is_that_of_servers_of_searching_and_of_bringing_files_in(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = {
        row["what"]: row["MB"]
        for row in printed(capsys, "memory", "--rows", "200", "--characters", "100")
    }
    bare, idle, used, *rest = rows.values()
    assert 10 < bare < idle < used and len(rest) == 2 and min(rest) > 10


def test_a_file_is_measured_fresh_rewritten_and_compacted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    documents, rows = printed(capsys, "filesize", "--characters", "100", "--rows", "50")
    for row in (documents, rows):
        assert (
            row["content MB"] < row["fresh MB"] <= row["rewritten MB"]
            and row["compacted MB"] <= row["rewritten MB"]
        )


def test_the_same_texts_are_stored_in_every_way(capsys: pytest.CaptureFixture[str]) -> None:
    main(["writes", "--characters", "5000", "--texts", "20", "--json"])
    long, *short = json.loads(capsys.readouterr().out)["rows"]
    assert long["documents"] == 1 < long["chunks"]
    assert [(row["documents"], row["chunks"]) for row in short] == [(20, short[0]["chunks"])] * 3
    assert all(row["CPU s"] > 0 for row in (long, *short))


def test_ingest_is_compared_with_the_session_alone(capsys: pytest.CaptureFixture[str]) -> None:
    ours, *alone = printed(capsys, "ingest", "--characters", "100")
    assert [row["what"] for row in alone] == list(ingest.WAYS)
    assert all(row["tokens/CPU s"] > row["chunks/CPU s"] > 0 for row in (ours, *alone))
    assert {row["chunks"] for row in (ours, *alone)} == {ours["chunks"]} and ours["chunks"] > 0
    assert min(row["chunks/s"] for row in (ours, *alone)) > 0


def test_known_items_of_a_file_are_asked_for_in_every_mode(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with Database(tmp_path / "a.db", config=Config(model="all-MiniLM-L6-v2")) as db:
        for word in ("otters", "glaciers", "printing", "harbours"):
            sentence = f"The museum of {word} keeps its oldest drawings and letters in the cellar."
            db.documents.ingest_text(f"{sentence} It is small.", source=word, title=word)
    main(["known_items", str(tmp_path / "a.db"), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert {(row["mode"], row["queries"], row["n"]) for row in printed["rows"]} == {
        (mode, kind, count)
        for mode in ("text", "vector", "hybrid")
        for kind, count in (("sentence", 1), ("terms", 1), ("title", 4), ("all", 6))
    }
    assert all(row["recall@10"] == 1 for row in printed["rows"]) and len(printed["notes"]) == 7


def test_growth_is_told_for_each_size_and_drawn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    drawn = tmp_path / "growth.svg"
    rows = printed(
        capsys,
        "growth",
        "--sizes",
        "200",
        "400",
        "--dimension",
        "16",
        "--queries",
        "3",
        "--svg",
        str(drawn),
    )
    assert [(row["rows"], row["search: recall@10"]) for row in rows] == [(200, 1), (400, 1)]
    assert drawn.read_text().count("<polyline") == 3


def test_growth_is_linear_or_it_is_told() -> None:
    rows = [
        {"engine": OURS, "rows": size, "ms": took}
        for size, took in ((10, 1.0), (100, 9.0), (1000, 180.0))
    ]
    assert growth.summary(rows, "ms") == (
        "ms grows 9.0 times for 10 times the rows (linear or less), 20.0 times for 10 times the "
        "rows (MORE)."
    )


def test_two_engines_take_the_sum_of_what_each_takes_for_a_query() -> None:
    first, second = ({"wall": wall, "cpu": [1, 1, 1]} for wall in ([1, 2, 30], [10, 20, 1]))
    again = {"wall": [1, 1, 1], "cpu": [3, 4, 5]}
    pair = [
        Runs("a", {}, [{"nearest": first, "nearest again": again}]),
        Runs("b", {}, [{"matching": second, "matching again": again}]),
    ]
    assert hybrid.figures(pair, ["nearest", "matching"]) == {
        "ms": 22,
        "p95": 31,
        "CPU ms": 2,
        "CPU p95": 2,
        "again: CPU ms": 8,
        "again: CPU p95": 10,
    }


def test_rankings_are_fused_by_their_ranks() -> None:
    assert hybrid.fused([1, 2, 3], [3, 4]) == [3, 1, 2, 4]


def test_the_floor_is_one_pass_over_the_bytes() -> None:
    assert 0 < vectors.one_pass(1_000, tries=1) < vectors.one_pass(200_000_000, tries=1)
