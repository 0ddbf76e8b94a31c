from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import walks
from benchmarks.__main__ import main
from mcpvectordb import Config, Database

pytestmark = pytest.mark.long


def test_every_walk_is_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "notes.md"
    file.write_text(
        "".join(f"# Part {n}\n\nWhat a search of part {n} costs.\n\n" for n in range(9))
    )
    main(["walks", "--file", str(file), "--json"])
    rows = {row["walk"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert list(rows) == list(walks.WALKS)
    assert all(row["modules"] > 5 and row["transactions"] for row in rows.values())
    assert rows["ingest of a Markdown file"]["texts tokenized"]
    assert rows["ingest of a Markdown file"]["formats detected"]
    assert rows["hybrid search"]["embeddings read"]
    assert rows["contexts search with a filter"]["filters compiled"]
    assert rows["MCP search"]["replies encoded"] and not rows["hybrid search"]["replies encoded"]


def test_only_what_happens_while_a_walk_is_traced_is_counted() -> None:
    tracer, walk = walks.Tracer(), walks.Walk("counting")
    with Database(":memory:", config=Config()) as db:
        with tracer.traced(walk):
            db.documents.count()
        seen = dict(walk.modules)
        db.documents.count()
    assert dict(walk.modules) == seen and "mcpvectordb.documents.stored" in seen
    assert not any(name.startswith("tests") for name in seen)
