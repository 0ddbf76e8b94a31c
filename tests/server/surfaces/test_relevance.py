"""Searches without a relevant result: questions about cooking in a library of aerodynamics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mcpvectordb import Config, Database
from mcpvectordb.records import WEAK
from mcpvectordb_server.surfaces import mcpvectordb, openrag, qmd
from tests.server.clients import ask, caller, service
from tests.support_aerodynamics import ANSWERED, UNHEARD_OF, fill

NOTHING = "Nothing relevant was found: even the best match is weak."


@pytest.fixture(scope="module")
def air(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    config = Config(model="all-MiniLM-L6-v2")
    with Database(tmp_path_factory.mktemp("air") / "air.db", config=config) as db:
        fill(db)
        yield db


# mcpvectordb


def search(db: Database, **arguments: Any) -> dict[str, Any]:
    return caller(service(db, mcpvectordb.SURFACE))("search", **arguments)


def test_a_search_without_a_relevant_document_has_a_note(air: Database) -> None:
    reply = search(air, query=UNHEARD_OF[0], top_k=100)
    assert reply["note"].startswith(NOTHING) and len(reply["results"]) == air.documents.count()
    assert all(0 <= each["relevance"] < WEAK for each in reply["results"])


def test_unknown_relevance_is_null_and_filters_nothing(air: Database, db: Database) -> None:
    reply = search(air, query="Что такое флаттер?", min_relevance=0.9)
    assert [each["relevance"] for each in reply["results"]] == [None] * 5
    assert reply["note"].startswith("relevance is not known: ")
    # With an embedder that is not in the catalogue.
    db.documents.ingest_text("A kettle.", source="kettle")
    reply = search(db, query="kettle")
    assert [each["relevance"] for each in reply["results"]] == [None]
    assert reply["note"].startswith("relevance is not known: ")


# The others say it in a note.


def test_openrag_reports_missing_relevance_in_a_note(air: Database) -> None:
    tool = caller(service(air, openrag.SURFACE))
    reply = tool("query_documents", query=UNHEARD_OF[0], min_similarity=0)
    assert reply["note"].startswith(NOTHING) and "message" not in reply
    assert reply["total_results"] == len(reply["results"]) == 5
    assert "note" not in tool("query_documents", query=ANSWERED[0])


@pytest.mark.parametrize(("tool", "options"), [("vsearch", {"minScore": 0}), ("query", {})])
def test_qmd_reports_missing_relevance_in_a_note(
    air: Database, tool: str, options: dict[str, Any]
) -> None:
    made = service(air, qmd.SURFACE)
    with_verdict, plain = (
        ask(made, tool, {"query": query, "limit": 3, **options})
        for query in (UNHEARD_OF[1], ANSWERED[0])
    )
    (block,) = with_verdict.content
    assert block.text.startswith("Found 3 results") and "relevant" not in block.text
    assert with_verdict.structured_content["note"].startswith(NOTHING)
    assert "note" not in plain.structured_content
