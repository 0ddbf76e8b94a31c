"""The database of mcp-context-server: its entries with times, tags and images.

Ids of entries are integers, in newer versions (3) UUIDs; everything else has the same names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mcpvectordb.importers import values
from mcpvectordb.importers.foreign_database import ForeignDatabase
from mcpvectordb.importers.items import ImportedMemory, ImportOptions, Item, LeftOut, NotKept
from mcpvectordb.importers.source import ImportSource
from mcpvectordb.importers.vec0_vectors import Vec0Vectors
from mcpvectordb.memories.memory import Image

_FIELDS = ("id", "thread_id", "source", "text_content", "metadata", "summary", "created_at",
           "updated_at")  # fmt: skip


def recognises(source: ImportSource) -> bool:
    """Whether it has the tables of mcp-context-server."""
    return source.has(
        context_entries="id thread_id source text_content", tags="context_entry_id tag"
    )


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """A memory for each entry."""
    database = source.sqlite()
    for table in database.columns:
        if "version" in table and (count := database.count(table)):
            yield NotKept(what="an earlier version of an entry", count=count)
    vectors = Vec0Vectors(database, "vec_context_embeddings")
    for id, thread, author, text, metadata, summary, created, updated in database.rows(
        "context_entries", *_FIELDS
    ):
        if not isinstance(text, str) or not text.strip():
            yield LeftOut(id=str(id), reason="it has no text")
            continue
        if author not in ("user", "agent"):
            yield LeftOut(id=str(id), reason="its source is neither user nor agent")
            continue
        embeddings, model = _embeddings(database, vectors, id, text)
        yield ImportedMemory(
            id=str(id),
            thread=str(thread),
            source=author,
            text=text,
            metadata=values.metadata(metadata) | ({"summary": summary} if summary else {}),
            tags=[
                str(tag) for (tag,) in database.lookup("tags", ("tag",), "context_entry_id", [id])
            ],
            images=_images(database, id),
            created_at=values.time(created),
            updated_at=values.time(updated),
            embeddings=embeddings,
            model=model,
        )


def _images(database: ForeignDatabase, id: int | str) -> Sequence[Image]:
    columns = ("position", "image_data", "mime_type", "image_metadata")
    if not database.has("image_attachments", "context_entry_id", *columns[1:3]):
        return ()
    rows = database.lookup("image_attachments", columns, "context_entry_id", [id])
    return [
        Image(data=data, mime_type=str(mime_type), metadata=values.metadata(metadata) or None)
        for _, data, mime_type, metadata in sorted(rows, key=lambda row: values.integer(row[0]))
        if isinstance(data, bytes) and data
    ]


def _embeddings(
    database: ForeignDatabase, vectors: Vec0Vectors, id: int | str, text: str
) -> tuple[dict[str, bytes], str]:
    """The embeddings of an entry's chunks, by their text, and the name of the model."""
    if not vectors.dimension or not database.has("embedding_metadata", "context_id", "model_name"):
        return {}, ""
    models = database.lookup("embedding_metadata", ("model_name",), "context_id", [id])
    model = str(next(models, ("",))[0])
    if not database.has("embedding_chunks", "context_id", "vec_rowid"):
        whole = vectors.get(id)
        return ({text: whole} if whole else {}), model
    found = {}
    for rowid, start, end in database.lookup(
        "embedding_chunks", ("vec_rowid", "start_index", "end_index"), "context_id", [id]
    ):
        # 0 to 0 is the whole text, from before texts were divided.
        part = text[start:end] if isinstance(start, int) and isinstance(end, int) and end else text
        if isinstance(rowid, int) and (embedding := vectors.get(rowid)):
            found[part] = embedding
    return found, model
