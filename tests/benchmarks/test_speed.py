"""Every benchmark of speed at its smallest, without a rival: it runs, and has figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from mcpvectordb import Config, Database

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("arguments", "figure"),
    [
        ("vectors --rows 600 --dimension 16 --queries 5 --rival none --rounds 1", "added/s"),
        ("words --passages 400 --queries 3 --rival fts5 --rounds 1", "ms"),
        ("hybrid --passages 300 --queries 4 --rounds 1", "passages"),
        ("start --rows 200 --rounds 1", "what"),
        ("memory --rows 200 --characters 100 --rounds 1", "MB"),
        ("filesize --characters 100 --rows 50 --rounds 1", "fresh MB"),
        ("writes --characters 5000 --texts 20", "chunks"),
        ("ingest --characters 100 --rounds 1", "chunks/s"),
        ("mixed --files 9", "processors wanted"),
        ("growth --sizes 200 400 --dimension 16 --queries 3 --rounds 1", "rows"),
        ("walks", "transactions"),
    ],
)
def test_a_benchmark_prints_its_figures(
    arguments: str, figure: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    more = []
    if arguments == "walks":
        (tmp_path / "notes.md").write_text("# Part\n\nWhat a search of a part costs.\n" * 9)
        more = ["--file", str(tmp_path / "notes.md")]
    main([*arguments.split(), *more, "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows and all(row[figure] for row in rows)


def test_known_items_of_a_file_are_asked_for_in_every_mode(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with Database(tmp_path / "a.db", config=Config(model="all-MiniLM-L6-v2")) as db:
        for word in ("otters", "glaciers", "printing", "harbours"):
            sentence = f"The museum of {word} keeps its oldest drawings and letters in the cellar."
            db.documents.ingest_text(f"{sentence} It is small.", source=word, title=word)
    main(["known_items", str(tmp_path / "a.db"), "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["mode"] for row in rows} == {"text", "vector", "hybrid"}
    assert all(row["recall@10"] == 1 for row in rows)
