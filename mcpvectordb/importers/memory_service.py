"""The database of mcp-memory-service: its memories as memories, all of them in one thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mcpvectordb.importers import values
from mcpvectordb.importers.items import ImportedMemory, ImportOptions, Item, LeftOut, NotKept
from mcpvectordb.importers.source import ImportSource
from mcpvectordb.importers.vec0_vectors import Vec0Vectors

THREAD = "mcp-memory-service"
_FIELDS = ("id", "content_hash", "content", "tags", "memory_type", "metadata", "created_at",
           "updated_at", "deleted_at", "store", "superseded_by")  # fmt: skip


def recognises(source: ImportSource) -> bool:
    """Whether it has the table of memories."""
    return source.has(memories="content_hash content tags memory_type created_at")


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """A memory for each memory that is not deleted."""
    database = source.sqlite()
    if relations := database.count("memory_graph"):
        yield NotKept(what="a relation between two memories", count=relations)
    vectors = Vec0Vectors(database, "memory_embeddings")
    for (
        rowid, hash, content, tags, kind, metadata, created, updated, deleted, store, superseded,
    ) in database.rows("memories", *_FIELDS):  # fmt: skip
        if deleted is not None:
            yield LeftOut(id=str(hash), reason="it is deleted")
            continue
        if not isinstance(content, str) or not content.strip():
            yield LeftOut(id=str(hash), reason="it has no text")
            continue
        embedding = vectors.get(rowid) if isinstance(rowid, int) else None
        named = None if store == "default" else store
        said = {"memory_type": kind, "superseded_by": superseded, "store": named}
        yield ImportedMemory(
            id=str(hash),
            thread=THREAD,
            source="agent",
            text=content,
            metadata=values.metadata(metadata)
            | values.storable({key: value for key, value in said.items() if value}),
            tags=_tags(tags),
            created_at=values.time(created),
            updated_at=values.time(updated),
            embeddings={content: embedding} if embedding else {},
            model=options.model,
        )


def _tags(value: object) -> Sequence[str]:
    """Tags are stored as one text with commas, in old versions as a list in JSON."""
    if not isinstance(value, str):
        return ()
    listed = values.json_value(value) if value.startswith("[") else None
    return [str(tag) for tag in listed] if isinstance(listed, list) else value.split(",")
