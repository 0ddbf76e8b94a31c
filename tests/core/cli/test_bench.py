from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mcpvectordb import Config, Database
from mcpvectordb.cli.main import program
from mcpvectordb.search.rerank import CachedReranker
from tests.support import Letters
from tests.support_bench import fill


def invoke(folder: Path, *arguments: str) -> Result:
    env = {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")}
    return CliRunner(env=env).invoke(program, list(arguments))


@pytest.fixture
def real(path: Path) -> Path:
    with Database(path, config=Config(model="all-MiniLM-L6-v2")) as db:
        fill(db, 12)
    return path


@pytest.mark.long
def test_a_file_is_measured_with_its_own_model_and_the_report_is_printed(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CachedReranker, "missing_reason", lambda _: "it is not here")
    done = invoke(tmp_path, "bench", str(real), "--queries", "8", "--no-chunking")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == f"{real}: 12 documents, 36 passages of 200 tokens, all-MiniLM-L6-v2"
    assert (
        lines[1]
        == "Queries (seed 0): 2 titles, 2 headings, 2 rare terms, 2 sentences without their rarest "
        "words"
    )
    assert lines[3].split() == [
        "mode",
        "queries",
        "n",
        "recall@1",
        "recall@10",
        "MRR@10",
        "ms",
        "p50",
        "p95",
    ]
    rows = [line.split() for line in lines[4:19]]
    assert [row[0] for row in rows] == ["text"] * 5 + ["vector"] * 5 + ["hybrid"] * 5
    assert all(re.fullmatch(r"[01]\.\d\d", row[-5]) for row in rows)
    assert len({len(line) for line in lines[3:19]}) == 1
    rest = "\n".join(lines[20:])
    assert re.search(
        r"^vector_weight \(MRR@10, 8 queries\): 0\.2 [+-]0\.\d{3} ± .*, 0\.6 in force, ",
        rest,
        re.MULTILINE,
    )
    assert re.search(r"^Vector weight: keep 0\.6\. ", rest, re.MULTILINE)
    assert "favours keyword search over vector search" in rest


def test_bench_without_a_file_measures_the_one_of_the_program_and_prints_json(
    path: Path, tmp_path: Path
) -> None:
    with Database(path, embedder=Letters()) as db:
        fill(db, 12)
    done = invoke(
        tmp_path,
        "--db",
        str(path),
        "bench",
        "--no-chunking",
        "--seed",
        "3",
        "--queries",
        "8",
        "--json",
    )
    report = json.loads(done.stdout)
    assert (report["path"], report["seed"], report["passages"], report["library"]) == (
        str(path),
        3,
        36,
        None,
    )
    assert [each["kind"] for each in report["figures"]] == [
        "title",
        "heading",
        "terms",
        "sentence",
        "all",
    ]
    assert any("Keyword search only" in note and "letters" in note for note in report["notes"])


def test_a_missing_or_too_small_file_is_one_error(path: Path, tmp_path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        fill(db, 3)
    missing = invoke(tmp_path, "bench", str(tmp_path / "none.db"))
    assert missing.exit_code != 0 and "does not exist" in str(missing.exception)
    few = invoke(tmp_path, "bench", str(path))
    assert few.exit_code != 0 and "too few to measure searches" in str(few.exception)
