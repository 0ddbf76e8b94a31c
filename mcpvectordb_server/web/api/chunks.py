"""/api/chunks: passages as the index has them, between their neighbours."""

from __future__ import annotations

from typing import Annotated, cast

from pydantic import Field
from typing_extensions import TypedDict

from mcpvectordb import Chunk, NotFound
from mcpvectordb_server.web.api.documents import (
    DocumentEntry,
    DocumentId,
    Few,
    Limit,
    Offset,
    document_reply,
    found_document,
)
from mcpvectordb_server.web.hits import SimilarReply, similar_reply
from mcpvectordb_server.web.site import Site

ChunkId = Annotated[int, "The id of a passage", Field(ge=0, lt=2**63)]


class ChunkReply(TypedDict):
    """A passage as the index has it: offsets in the document's text, and what it is read with."""

    id: int
    position: int
    start: int
    end: int
    first_line: int
    last_line: int
    page: int | None
    headings: list[str]
    header: str
    footer: str
    text: str
    citation: str
    embedded: bool


class ChunkList(TypedDict):
    """A page of the passages of a document."""

    chunks: list[ChunkReply]
    total: int


class NeighboursReply(TypedDict):
    """A passage between its neighbours, which are null at the ends of the document."""

    document: DocumentEntry
    chunk: ChunkReply
    before: ChunkReply | None
    after: ChunkReply | None


def list_chunks(site: Site, *, id: DocumentId, limit: Limit = 50, offset: Offset = 0) -> ChunkList:
    """The passages of a document as the index has them."""
    document, _ = found_document(site, id)
    waiting = site.db.documents.waiting(document.id)
    found = site.db.documents.chunks(document.id, limit=limit, offset=offset)
    return ChunkList(chunks=[chunk_reply(each, waiting) for each in found], total=document.chunks)


def get_chunk(site: Site, *, chunk: ChunkId) -> NeighboursReply:
    """A passage with the ones before and after it."""
    there = site.db.documents.chunks_by_ids([chunk])
    if not there:
        raise NotFound(f"no passage has the id {chunk}")
    found = there[0]
    around = {each.position: each for each in site.db.documents.neighbours(found)}
    waiting = site.db.documents.waiting(found.document.id)
    before, after = around.get(found.position - 1), around.get(found.position + 1)
    return NeighboursReply(
        document=document_reply(found.document),
        chunk=chunk_reply(found, waiting),
        before=None if before is None else chunk_reply(before, waiting),
        after=None if after is None else chunk_reply(after, waiting),
    )


def similar_to_chunk(site: Site, *, chunk: ChunkId, limit: Few = 8) -> SimilarReply:
    """The passages nearest to one, near-duplicates among them."""
    return similar_reply(site.db, site.db.similar(chunk=chunk, limit=limit))


def chunk_reply(chunk: Chunk, waiting: frozenset[int]) -> ChunkReply:
    """A passage for the API; `waiting` are the ids of those without an embedding."""
    values = chunk.to_dict()
    del values["document"]
    return cast("ChunkReply", {**values, "embedded": chunk.id not in waiting})
