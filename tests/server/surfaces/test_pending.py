"""What each surface says while passages wait for their embedding."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Database
from mcpvectordb_server.surfaces import context_server, mcpvectordb, openrag, qmd
from tests.server.clients import ask, service
from tests.support import Gated, embed_in_the_background

SURFACES = (mcpvectordb.SURFACE, openrag.SURFACE, qmd.SURFACE, context_server.SURFACE)
NONE = "no passage is embedded yet (waiting: 2); embedding goes on in the background"
PARTLY = "2 of all 4 passages are searched by meaning so far; embedding goes on in the background"


@pytest.fixture
def embedder() -> Gated:
    return Gated()


@pytest.fixture
def db(path: Path, embedder: Gated, without_reranker: None) -> Iterator[Database]:
    """A server's database: it embeds in the background, and no call waits for that."""
    with Database(path, embedder=embedder) as database:
        database.embed_in_background(wait=0)
        yield database
        embedder.gate.set()


def texts(db: Database, surface: Any, tool: str, arguments: dict[str, Any]) -> str:
    """All that a reply says, in which quotation marks are not escaped."""
    reply = ask(service(db, surface), tool, arguments)
    return "\n".join([*(block.text for block in reply.content), f"{reply.structured_content}"])


READS: dict[str, dict[str, dict[str, Any]]] = {
    "mcpvectordb": {"search": {"query": "apple"}, "list_documents": {}, "list_libraries": {}},
    "openrag": {"query_documents": {"query": "apple"}, "list_documents": {}, "get_stats": {}},
    "qmd": {"query": {"query": "apple"}, "vsearch": {"query": "apple"}, "status": {}},
    "context_server": {
        "hybrid_search_context": {"query": "apple"},
        "semantic_search_context": {"query": "apple"},
        "search_context": {},
        "get_statistics": {},
    },
}
CALLS = [
    pytest.param(surface, tool, arguments, id=tool)
    for surface in SURFACES
    for tool, arguments in READS[surface.name].items()
]


@pytest.mark.parametrize(("surface", "tool", "arguments"), CALLS)
def test_a_reply_says_how_much_is_not_searched_by_meaning(
    db: Database, embedder: Gated, surface: Any, tool: str, arguments: dict[str, Any]
) -> None:
    for text in ("apple", "pear"):
        db.documents.ingest_text(text, source=text)
        db.memories.add("t", "user", text)
    nothing = texts(db, surface, tool, arguments)
    # qmd's specification has a sentence of its own for vsearch.
    assert NONE in nothing or "Vector index not found" in nothing
    embedder.gate.set()
    assert embed_in_the_background(db) == ""
    assert "embedding goes on" not in texts(db, surface, tool, arguments)
    embedder.gate.clear()
    for text in ("plum", "fig"):
        db.documents.ingest_text(text, source=text)
        db.memories.add("t", "user", text)
    assert PARTLY in texts(db, surface, tool, arguments)


def test_an_ingest_replies_while_its_passages_wait(
    db: Database, embedder: Gated, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("apple")
    made = service(db, mcpvectordb.SURFACE, openrag.SURFACE)
    path = {"path": str(tmp_path / "a.txt")}
    first, again = (ask(made, "ingest_file", path).structured_content for _ in range(2))
    assert (first["status"], first["chunk_count"]) == ("indexed", 1)
    assert first["note"] == (
        "found by words now; by meaning as embedding proceeds, 1 passage waiting"
    )
    assert (again["status"], again["chunk_count"]) == ("skipped", 0)
    assert again["note"] == "already stored; 1 of 1 passage still wait for embedding"
    document = ask(made, "ingest_document", {"file_path": path["path"]}).structured_content
    assert document["status"] == "success" and "1 passage waiting" in document["note"]
    assert document["message"] == "Document ingested successfully"


def test_an_entry_is_stored_while_its_passages_wait(db: Database) -> None:
    made = service(db, context_server.SURFACE)
    entry = {"thread_id": "t", "source": "user", "text": "apple"}
    stored = ask(made, "store_context", entry).structured_content
    assert stored["success"] and stored["message"] == "Context stored with 0 images"
    assert stored["note"] == (
        "found by words now; by meaning as embedding proceeds, 1 passage waiting"
    )
    batch = ask(made, "store_context_batch", {"entries": [{**entry, "text": "pear"}]})
    assert batch.structured_content["message"] == "1 of 1 entries stored"
    assert "1 passage waiting" in batch.structured_content["note"]


@pytest.mark.parametrize(
    ("surface", "tool", "argument"),
    [
        (mcpvectordb.SURFACE, "ingest_file", "path"),
        (openrag.SURFACE, "ingest_document", "file_path"),
    ],
)
def test_an_ingest_that_is_still_reading_says_so_and_its_document_is_stored_once(
    db: Database,
    tmp_path: Path,
    surface: Any,
    tool: str,
    argument: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "a.txt").write_text("apple")
    gate, ingest = threading.Event(), db.documents.ingest

    def slow(*given: Any, **named: Any) -> Any:
        assert gate.wait(60)
        return ingest(*given, **named)

    monkeypatch.setattr(db.documents, "ingest", slow)
    hasty, patient = (service(db, surface, reply_seconds=seconds) for seconds in (0, 60))
    patient._ongoing = hasty._ongoing
    arguments = {argument: str(tmp_path / "a.txt")}
    first = ask(hasty, tool, arguments).structured_content
    assert first["status"] == "error"
    assert "goes on in the background: call it again" in f"{first}"
    gate.set()
    assert ask(patient, tool, arguments).structured_content["status"] in ("indexed", "success")
    assert db.documents.count() == 1
