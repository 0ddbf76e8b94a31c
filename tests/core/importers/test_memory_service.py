"""A database of mcp-memory-service 12.2: see tests/fixtures/importers/make.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mcpvectordb import Database
from tests.core.importers.conftest import execute, state


def test_memories_become_memories_with_their_embeddings(
    db: Database, unpacked: Callable[[str], Path]
) -> None:
    folder = unpacked("mcp-memory-service-12.2.0")
    before = state(folder)
    done = db.import_from(folder)
    assert (done.kind, done.added) == ("mcp-memory-service", {"memories": 4})
    assert (done.skipped, done.embeddings) == ({"it is deleted": 1}, {"kept": 4})
    [hit] = db.memories.search("malty", mode="text")
    memory = hit.item
    assert (memory.thread, memory.source, memory.tags) == (
        "mcp-memory-service",
        "agent",
        ("assam", "tea"),
    )
    assert memory.metadata is not None
    assert (memory.metadata["memory_type"], memory.metadata["place"]) == ("note", 0)
    assert memory.created_at == "2023-11-14T22:13:20.500000+00:00"
    assert not db.check()
    assert state(folder) == before


def test_a_memory_that_changed_is_updated(db: Database, unpacked: Callable[[str], Path]) -> None:
    folder = unpacked("mcp-memory-service-12.2.0")
    db.import_from(folder)
    execute(
        folder / "sqlite_vec.db",
        "UPDATE memories SET tags = 'tea,strong' WHERE content LIKE 'Assam%'",
        triggers=False,
    )
    done = db.import_from(folder)
    assert (done.changed, done.known) == ({"memories": 1}, {"memories": 3})
    [hit] = db.memories.search("malty", mode="text")
    assert hit.item.tags == ("strong", "tea")
    assert hit.item.created_at == "2023-11-14T22:13:20.500000+00:00"
