"""A conversation with every tool of every surface, and what a model must read of each reply.

`test_what_a_model_reads` holds it in memory, tests/external with hosts.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from mcpvectordb import Database
from mcpvectordb_server.surface import Surface, expose, exposed_names
from mcpvectordb_server.surfaces import NAMES, load

TEA, COFFEE = "Green tea wants water of 80 degrees.", "Coffee wants water of 95 degrees."
KETTLE, BOILER = "The kettle in the kitchen is broken.", "The boiler is at 60 degrees."


class Turn(NamedTuple):
    """A call of a tool, by its own name, and parts of what a model must read of the reply."""

    surface: str
    tool: str
    arguments: dict[str, Any]
    read: tuple[str, ...]


def surfaces() -> list[Surface]:
    """All surfaces; desk is the first, so that its tools keep their names."""
    return sorted(map(load, NAMES), key=lambda each: each.name != "desk")


@cache
def exposed() -> dict[tuple[str, str], str]:
    """The name by which a server with all surfaces offers each tool of a surface."""
    offered = expose(surfaces())
    return {
        (each.name, tool): name
        for each in surfaces()
        for tool, name in exposed_names(each, offered).items()
    }


def fill(db: Database, folder: Path) -> list[Turn]:
    """Store something to talk about; the conversation."""
    (folder / "cocoa.txt").write_text("Cocoa wants milk.\n")
    (folder / "juice.txt").write_text("Juice wants ice.\n")
    tea = db.documents.ingest_text(
        f"# Tea\n\n{TEA}\n", source="tea.md", library="notes", metadata={"origin": "Uji"}
    ).document
    coffee = db.documents.ingest_text(
        f"# Coffee\n\n{COFFEE}\n", source="coffee.md", library="notes"
    ).document
    water = db.documents.ingest_text(
        "Water wants nothing.", source="water.md", library="more"
    ).document
    db.memories.add("kitchen", "user", KETTLE)
    db.memories.add("cellar", "agent", BOILER)
    db.embed_pending()
    entry = {"thread_id": "kitchen", "source": "user"}
    turns = {
        "desk": [
            ("search", {"query": "water for green tea"}, "notes/tea.md:1-3", TEA),
            ("search", {"query": "tea", "libary": "notes"}, TEA, "did you mean library?"),
            ("search", {"query": "tea", "library": "nots"}, "there is no library 'nots'"),
            ("search", {"query": "tea", "limit": 0}, "limit must be 1 to 100, not 0"),
            ("read", {"place": "notes/tea.md"}, "notes/tea.md:1-3 (of 3 lines)", TEA, "Uji"),
            ("read", {"place": "memory:1"}, "memory:1 · kitchen", KETTLE),
            ("read", {"place": "nowhere.md"}, "there is no nowhere.md"),
            ("grep", {"pattern": "wants w"}, f"notes/tea.md:3: {TEA}", "lines that match: 2"),
            ("verify", {"quotation": TEA}, "exact: notes/tea.md:3 (SHA-256 of the text "),
            ("verify", {"quotation": "Tea wants ice"}, "absent: ", "Do not quote"),
            ("similar", {"place": "notes/tea.md"}, "notes/coffee.md:1-3", COFFEE),
            ("remember", {"text": "Anna buys tea."}, "remembered: memory:3 in general."),
            ("remember", {"text": "Anna buys green tea."}, "memory:4", "memory:3 (Anna buys tea.)"),
            (
                "ingest",
                {"source": "milk.md", "text": "Milk."},
                "indexed: default/milk.md",
                "passages: 1",
            ),
            ("ingest", {"source": "no/file.md"}, "no/file.md", "Tell the user"),
            ("update", {"place": "milk.md", "title": "Cold milk"}, "updated: default/milk.md"),
            ("forget", {"place": "milk.md"}, "default/milk.md was deleted: Cold milk"),
            ("forget", {"place": "memory:9"}, "there is no memory:9"),
            ("status", {}, "Documents: 3", "Library notes: 2 documents", "kitchen (1)"),
        ],
        "mcpvectordb": [
            ("search", {"query": "green tea"}, TEA, tea.id),
            ("list_documents", {}, tea.id, "tea.md"),
            ("list_libraries", {}, "notes"),
            ("get_document", {"doc_id": coffee.id}, COFFEE),
            ("ingest_file", {"path": str(folder / "cocoa.txt")}, "indexed"),
            ("ingest_url", {"url": "ftp://example.org"}, "error", "ftp"),
            ("delete_document", {"doc_id": water.id}, water.id, "deleted"),
        ],
        "vector_store": [
            ("vector_add", {"id": "a", "embedding": [1, 0], "metadata": {"of": "sencha"}}, "added"),
            ("vector_search", {"query": [1, 0]}, "sencha"),
            ("vector_count", {}, "count", "store_name"),
            ("vector_delete", {"id": "a"}, "deleted"),
        ],
        "openrag": [
            ("ingest_document", {"file_path": str(folder / "juice.txt")}, "success", "juice.txt"),
            ("query_documents", {"query": "tea", "min_similarity": 0}, TEA),
            ("list_documents", {}, "juice.txt"),
            ("get_stats", {}, "success"),
            ("delete_document", {"document_id": "none"}, "Invalid document ID format"),
        ],
        "qmd": [
            # The specified text has no more than this; structured content has the lines, too.
            ("search", {"query": "green tea"}, "notes/tea.md"),
            ("vsearch", {"query": "tea", "minScore": 0}, "notes/tea.md"),
            ("query", {"query": "green tea"}, "notes/tea.md"),
            ("get", {"file": "notes/tea.md"}, TEA),
            ("multi_get", {"pattern": "notes/*.md"}, TEA, COFFEE),
            ("multi_get", {"pattern": "notes/tea.md", "maxBytes": 5}, "SKIPPED"),
            ("status", {}, "notes", "ocuments"),
        ],
        "context_server": [
            ("store_context", {**entry, "text": "Anna drinks sencha."}, "Context stored with"),
            ("search_context", {"thread_id": "cellar"}, BOILER),
            ("get_context_by_ids", {"context_ids": [1]}, KETTLE),
            ("update_context", {"context_id": 5, "tags": ["tea"]}, "Updated tags"),
            ("list_threads", {}, "cellar", "entry_count"),
            ("get_statistics", {}, "total_threads"),
            ("semantic_search_context", {"query": "boiler"}, BOILER),
            ("fts_search_context", {"query": "boiler"}, BOILER),
            ("hybrid_search_context", {"query": "boiler"}, BOILER),
            (
                "store_context_batch",
                {"entries": [{**entry, "text": "Six."}]},
                "1 of 1 entries stored",
            ),
            ("update_context_batch", {"updates": [{"context_id": 6, "tags": ["x"]}]}, "1 of 1"),
            ("delete_context_batch", {"context_ids": [6]}, "Deleted 1 context entries"),
            ("delete_context", {"context_ids": [5]}, "Deleted 1 context entries"),
            ("delete_context", {}, "give context_ids or thread_id"),
        ],
    }
    return [
        Turn(surface, tool, arguments, tuple(read))
        for surface, some in turns.items()
        for tool, arguments, *read in some
    ]
