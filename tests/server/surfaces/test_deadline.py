"""What a surface answers when a read takes too long, or when there is too much to read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Config, Database
from mcpvectordb_server.replies import Reply
from mcpvectordb_server.surface import call, expose
from mcpvectordb_server.surfaces import load
from mcpvectordb_server.surfaces.openrag import MOST_LISTED
from mcpvectordb_server.surfaces.qmd import MOST_MATCHING
from tests.support import Letters
from tests.support_deadline import counted_checks

NOTHING = 1e-9  # seconds


def ask(db: Database, surface: str, tool: str, **arguments: Any) -> Reply:
    return call(expose([load(surface)])[tool], db, arguments)


@pytest.mark.parametrize(
    ("surface", "tool", "arguments", "failed"),
    [
        ("mcpvectordb", "search", {"query": "tea"}, False),
        ("openrag", "query_documents", {"query": "tea"}, False),
        ("qmd", "search", {"query": "tea"}, True),
        ("qmd", "multi_get", {"pattern": "**"}, True),
        ("vector_store", "vector_search", {"query": [1.0, 0.0]}, False),
        ("context_server", "search_context", {"limit": 5}, True),
        ("context_server", "hybrid_search_context", {"query": "tea"}, True),
    ],
)
def test_a_read_that_takes_too_long_is_an_error_in_the_dialect_of_the_surface(
    tmp_path: Path, surface: str, tool: str, arguments: dict[str, Any], failed: bool
) -> None:
    with Database(tmp_path / "x.db", embedder=Letters()) as db:
        db.documents.ingest_text("tea", source="tea.md")
        db.memories.add("t", "user", "tea")
        db.vectors.add("v", [1.0, 0.0])
        assert "read_timeout" not in text(ask(db, surface, tool, **arguments))
    config = Config(read_timeout=NOTHING)
    with Database(tmp_path / "x.db", embedder=Letters(), config=config) as db:
        answer = ask(db, surface, tool, **arguments)
    assert answer.failed == failed
    assert "set read_timeout (MCPVECTORDB_READ_TIMEOUT) higher" in text(answer)
    assert "internal" not in text(answer).lower()


@pytest.mark.parametrize(
    ("surface", "tool", "arguments", "step", "checks"),
    [
        ("desk", "grep", {"pattern": "no such"}, "searching texts", 2),
        ("desk", "verify", {"quotation": "no such"}, "looking for the quotation", 5),
        ("qmd", "get", {"file": "tee.md"}, "comparing the names of documents", 2),
        ("qmd", "multi_get", {"pattern": "**"}, "comparing the names of documents", 2),
        (
            "context_server",
            "fts_search_context",
            {"query": "cup", "highlight": True},
            "marking the words that were found",
            2,
        ),
    ],
)
def test_a_loop_that_takes_too_long_is_told_of_in_the_dialect_of_the_surface(
    tmp_path: Path, surface: str, tool: str, arguments: dict[str, Any], step: str, checks: int
) -> None:
    with Database(tmp_path / "x.db", embedder=Letters()) as db:
        for name in ("tea", "coffee", "cocoa"):
            db.documents.ingest_text(f"{name} cup", source=f"{name}.md", embed=False)
        db.memories.add("t", "user", "a cup of tea " * 9_000)
        with counted_checks(step, checks):
            answer = text(ask(db, surface, tool, **arguments))
        assert f"stopped while {step}" in answer
        assert "internal" not in answer.lower()
        assert "stopped" not in text(ask(db, surface, tool, **arguments))


def text(reply: Reply) -> str:
    return json.dumps(asdict(reply))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """More documents than any reply can hold."""
    with Database(tmp_path_factory.mktemp("many") / "x.db", embedder=Letters()) as db:
        with db._file.writing():
            for number in range(MOST_LISTED + 5):
                db.documents.ingest_text("tea", source=f"{number:04}.md", embed=False)
        yield db


def test_openrag_lists_the_oldest_documents_and_says_how_many_there_are(many: Database) -> None:
    reply = ask(many, "openrag", "list_documents").structured
    assert reply is not None
    assert reply["total_documents"] == MOST_LISTED + 5
    assert reply["documents"][0]["filename"] == "0000.md"
    assert reply["documents"][0]["status"] == "pending"
    assert f"first {MOST_LISTED:,} of {MOST_LISTED + 5:,} documents" in reply["note"]


def test_multi_get_reads_the_first_documents_that_match_and_says_so(many: Database) -> None:
    assert MOST_MATCHING < MOST_LISTED + 5
    notice, *documents = ask(many, "qmd", "multi_get", pattern="**/*.md").content
    assert f"after the first {MOST_MATCHING}" in notice.text
    assert len(documents) == MOST_MATCHING
