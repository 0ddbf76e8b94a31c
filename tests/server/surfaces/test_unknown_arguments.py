"""Replies of each surface to a call with a misspelt argument: accepted, done, and named."""

from __future__ import annotations

from typing import Any

import pytest

from mcpvectordb import Database
from mcpvectordb_server.surface import ExposedTool, call
from mcpvectordb_server.surfaces import (
    context_server,
    desk,
    mcpvectordb,
    openrag,
    qmd,
    vector_store,
)
from tests.server.clients import ask, service

ENTRY = {"thread_id": "t", "source": "user", "text": "x"}


@pytest.mark.parametrize(
    ("surface", "tool", "arguments", "remark"),
    [
        (
            mcpvectordb.SURFACE,
            "search",
            {"query": "x", "topK": 3},
            '"topK" is an unknown argument and was ignored; did you mean top_k? It was not given, '
            "so it is 5.",
        ),
        (
            vector_store.SURFACE,
            "vector_add",
            {"id": "a", "embedding": [1], "namespac": "n"},
            "did you mean namespace? It was not given, so it is null.",
        ),
        (openrag.SURFACE, "get_stats", {"verbose": True}, None),
        (context_server.SURFACE, "store_context", {**ENTRY, "tag": ["a"]}, "did you mean tags?"),
        (
            context_server.SURFACE,
            "store_context_batch",
            {"entries": [ENTRY, {**ENTRY, "meta_data": {}}]},
            'index 1: "meta_data" is an unknown argument and was ignored; did you mean metadata?',
        ),
    ],
)
def test_a_note_names_the_argument_that_was_ignored(
    db: Database, surface: Any, tool: str, arguments: dict[str, Any], remark: str | None
) -> None:
    reply = ask(service(db, surface), tool, arguments).structured_content
    assert remark in reply["note"] if remark else "note" not in reply


def test_openrag_names_it_beside_its_message(db: Database) -> None:
    db.documents.ingest_text("tea", source="a.txt")
    arguments = {"query": "zzz", "min_similarity": 1, "maxResult": 3}
    reply = ask(service(db, openrag.SURFACE), "query_documents", arguments).structured_content
    assert reply["message"] == "No results found matching the query"
    assert "did you mean max_results? It was not given, so it is 5." in reply["note"]


def test_qmd_names_it_in_a_text_block_of_its_own_and_in_its_note(db: Database) -> None:
    asked = {"query": "x", "collection": "notes", "limt": 3}
    reply = ask(service(db, qmd.SURFACE), "search", asked)
    assert len(reply.content) == 3
    assert "did you mean limit?" in reply.content[2].text
    missing = reply.content[1].text.rstrip(".")
    assert reply.structured_content["note"] == f"{missing}; {reply.content[2].text}"


def test_a_list_of_entries_has_it_beside_them(db: Database) -> None:
    db.memories.add("t", "user", "x")
    asked = {"context_ids": [1], "images": True}
    reply = ask(service(db, context_server.SURFACE), "get_context_by_ids", asked)
    assert [each["id"] for each in reply.structured_content["result"]] == [1]
    assert reply.structured_content["note"] == reply.content[1].text
    assert "did you mean include_images?" in reply.content[1].text


@pytest.mark.parametrize("surface", [qmd.SURFACE, desk.SURFACE])
def test_a_name_that_cannot_be_sent_back_does_no_harm(db: Database, surface: Any) -> None:
    [tool] = [each for each in surface.tools if each.name == "search"]
    exposed = ExposedTool(name="search", surface=surface, tool=tool)
    reply = call(exposed, db, {"query": "x", "half\ud800": 1})
    assert "half?" in reply.content[-1].text
    reply.content[-1].text.encode()
