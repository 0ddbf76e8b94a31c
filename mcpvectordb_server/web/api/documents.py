"""/api/documents, /api/chunks, /api/folders, /api/file_types: what is stored of sources."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from mcpvectordb import (
    Chunk,
    Condition,
    Document,
    DocumentHeading,
    Ingested,
    InvalidInput,
    NotFound,
)
from mcpvectordb_server.shown import JsonReply, Shown, rows, shows
from mcpvectordb_server.web.hits import SimilarReply, similar_reply
from mcpvectordb_server.web.site import Site

Limit = Annotated[int, "Items of a page", Field(ge=1, le=500)]
Offset = Annotated[int, "Items to leave out before", Field(ge=0, le=10_000_000)]
Few = Annotated[int, "How many", Field(ge=1, le=50)]
DocumentId = Annotated[str, "The id of a document, also one that it had before it was replaced"]
Syntax = Literal["markdown", "text", "code"]
FileState = Literal["current", "changed", "gone", ""]
Sort = Literal["newest", "oldest", "title", "path", "size", "modified"]

DatedDocument = Annotated[Document, Shown(Document, date=str)]

UNDO = "It can be undone as long as the history has it (Health, Changes)."


@shows(documents=list[DatedDocument], total=int, note=str)
def list_documents(
    site: Site,
    *,
    library: Annotated[str | None, "Of this library"] = None,
    file_type: Annotated[str | None, "Of this type"] = None,
    title: Annotated[str | None, "With this in the title"] = None,
    folder: Annotated[str | None, "In this folder of the library, or below it"] = None,
    direct: Annotated[bool, "With folder: not below it"] = False,
    since: Annotated[str | None, "From this date on"] = None,
    until: Annotated[str | None, "Up to this date"] = None,
    pending: Annotated[bool, "Not embedded yet, or not completely"] = False,
    limit: Limit = 50,
    offset: Offset = 0,
    sort: Annotated[Sort, "The order"] = "newest",
) -> JsonReply:
    """List documents; `note` says why there is none if a filter is mistaken."""
    where: list[Condition] = []
    for field, sign, value in (
        ("file_type", "eq", file_type),
        ("date", "gte", since),
        ("date", "lte", until),
        ("pending", "gt", 0 if pending else None),
    ):
        if value is not None:
            where.append(Condition(field, sign, value))
    if title:
        where.append(Condition("title", "contains", title, case_sensitive=False))
    if folder is not None:
        if library is None:
            raise InvalidInput("a folder needs the library that it is in")
        path = "/".join(filter(None, [library, folder.strip("/")]))
        below = Condition("path", "starts_with", path + "/")
        where.append(Condition("folder", "eq", path) if direct else below)
    documents = site.db.documents
    found = documents.browse(library=library, where=where, limit=limit, offset=offset, sort=sort)
    return {
        "documents": list(found),
        "total": documents.count(library=library, where=where),
        "note": "" if found or offset else documents.why_empty(library=library, where=where),
    }


@shows(
    Document,
    date=str,
    former=bool,
    pending=int,
    descriptions=list[str],
    text_bytes=int,
    syntax=Syntax,
    file_state=FileState,
)
def get_document(site: Site, *, id: DocumentId) -> JsonReply:
    """A document with its metadata and what waits of it; `former` if it has another id by now."""
    document, former = found_document(site, id)
    documents = site.db.documents
    return {
        **vars(document),
        "date": document.date,
        "former": former,
        "pending": len(documents.waiting(document.id)),
        "descriptions": documents.descriptions(document.library, document.source),
        "text_bytes": documents.text_bytes(document.id),
        "syntax": documents.syntax(document.id),
        "file_state": documents.state(document),
    }


@shows(
    id=str,
    syntax=Syntax,
    first_line=int,
    last_line=int,
    lines=int,
    start=int,
    text=str,
    more=bool,
    outline=list[DocumentHeading],
    pages=list[tuple[int, int]],
)
def get_text(
    site: Site,
    *,
    id: DocumentId,
    line: Annotated[int, "The first line", Field(ge=1)] = 1,
    lines: Annotated[int, "How many", Field(ge=1, le=5_000)] = 1_000,
) -> JsonReply:
    """Some lines of a document's text, from its offset `start` on, and its outline.

    `pages` has the number and the first line of each page with text.
    """
    document, _ = found_document(site, id)
    text, pages = site.db.documents.text(document.id), site.db.documents.pages(document.id)
    rows = text.split("\n")
    chosen = rows[line - 1 : line - 1 + lines]
    return {
        "id": document.id,
        "syntax": site.db.documents.syntax(document.id),
        "first_line": line,
        "last_line": line + len(chosen) - 1,
        "lines": len(rows),
        "start": sum(len(row) + 1 for row in rows[: line - 1]),
        "text": "\n".join(chosen),
        "more": line - 1 + lines < len(rows),
        "outline": site.db.documents.outline(document.id),
        "pages": [(page, first) for page, (first, _) in pages.items()],
    }


def draw_page(
    site: Site,
    *,
    id: DocumentId,
    page: Annotated[int, "Which, counted from 1", Field(ge=1)] = 1,
    most_pixels: Annotated[int, "The greatest width or height", Field(ge=2, le=3_000)] = 1_600,
) -> Annotated[Response, "image/png"]:
    """A page of a document's PDF, or the picture that it is, as long as its file is as it was."""
    document, _ = found_document(site, id)
    png = site.db.documents.draw(document.id, page, most_pixels=most_pixels, guard=True)
    return Response(png, media_type="image/png")


def similar_to_document(site: Site, *, id: DocumentId, limit: Few = 8) -> SimilarReply:
    """The documents and memories nearest to a document, each by its best passage."""
    document, _ = found_document(site, id)
    return similar_reply(site.db, site.db.similar(document=document.id, limit=limit))


@shows(Ingested, only="status document note")
def update_document(
    site: Site,
    *,
    id: DocumentId,
    title: Annotated[str | None, "A new title"] = None,
    metadata: Annotated[dict[str, Any] | None, "Replaces the metadata"] = None,
    metadata_patch: Annotated[dict[str, Any] | None, "Is merged into it; null removes"] = None,
    library: Annotated[str | None, "Move it to this library"] = None,
) -> Ingested:
    """Change what people say of a document; its id may change with its title."""
    document, _ = found_document(site, id)
    return site.db.documents.update(
        document.id, title=title, metadata=metadata, metadata_patch=metadata_patch, library=library
    )


@shows(
    dry_run=bool,
    documents=rows(Document, only="id title path chunks followed", followed=bool),
    count=int,
    chunks=int,
    missing=list[str],
    consequences=list[str],
)
def delete_documents(
    site: Site,
    *,
    ids: Annotated[list[str], "Which", Field(min_length=1, max_length=1_000)],
    dry_run: Annotated[bool, "Only say what would happen"] = False,
) -> JsonReply:
    """Remove documents from the file; files and pages they came from are not touched."""
    wanted = list(dict.fromkeys(ids))
    found = site.db.documents.get(wanted)
    missing = sorted(set(wanted) - {each.id for each in found}, key=wanted.index)
    followed = {each.name for each in site.db.documents.libraries() if each.root}
    doomed = [{**vars(each), "followed": each.library in followed} for each in found]
    passages = sum(each.chunks for each in found)
    said = [
        f"{_counted(len(doomed), 'document')} and {_counted(passages, 'passage')} are removed from "
        "this file; the files and pages they came from stay as they are."
    ]
    if back := sum(each["followed"] for each in doomed):
        said.append(
            f"{back} of them {'is' if back == 1 else 'are'} in a library that follows a folder: "
            "the next sync takes in again what is still there."
        )
    if missing:
        said.append(f"{_counted(len(missing), 'document')} of these ids are gone already.")
    if doomed:
        said.append(UNDO)
    if found and not dry_run:
        # One change, so that it is undone at once.
        site.db.documents.delete(each.id for each in found)
    return {
        "dry_run": dry_run,
        "documents": doomed,
        "count": len(doomed),
        "chunks": passages,
        "missing": missing,
        "consequences": said,
    }


@shows(library=str, path=str, folders=rows(name=str, path=str, documents=int), documents=int)
def folders(
    site: Site,
    *,
    library: Annotated[str, "The library"],
    path: Annotated[str, "A folder in it"] = "",
) -> JsonReply:
    """The folders of a library with what is below them, and the number of its own documents."""
    shown = path.strip("/")
    inside = f"{shown}/" if shown else ""
    counts: Counter[str] = Counter()
    for folder, documents in site.db.documents.values("folder", library=library).items():
        place = f"{folder}/".removeprefix(f"{library}/")
        if place.startswith(inside):
            counts[place[len(inside) :].partition("/")[0]] += documents
    own = counts.pop("", 0)
    return {
        "library": library,
        "path": shown,
        "folders": [
            {"name": name, "path": f"{inside}{name}", "documents": count}
            for name, count in sorted(counts.items())
        ],
        "documents": own,
    }


@shows(file_types=rows(name=str, documents=int))
def file_types(site: Site) -> JsonReply:
    """The types of documents, to filter by, the most frequent first."""
    counts = site.db.documents.values("file_type")
    return {"file_types": [{"name": name, "documents": n} for name, n in counts.items()]}


def found_document(site: Site, id: str) -> tuple[Document, bool]:
    """The document with an id, and whether it has another one by now; raises NotFound."""
    try:
        return site.db.documents.get(id), False
    except NotFound:
        [place] = site.db.documents.lookup([id])
        if place is None or not place.former:
            raise
        return place.document, True


# Passages

ChunkId = Annotated[int, "The id of a passage", Field(ge=0, lt=2**63)]
ChunkReply = Annotated[
    JsonReply,
    Shown(
        Chunk,
        only="id position start end first_line last_line page headings header footer text citation "
        "embedded",
        citation=str,
        embedded=bool,
    ),
]


@shows(chunks=list[ChunkReply], total=int)
def list_chunks(site: Site, *, id: DocumentId, limit: Limit = 50, offset: Offset = 0) -> JsonReply:
    """The passages of a document as the index has them."""
    document, _ = found_document(site, id)
    waiting = site.db.documents.waiting(document.id)
    found = site.db.documents.chunks(document.id, limit=limit, offset=offset)
    return {"chunks": [chunk_reply(each, waiting) for each in found], "total": document.chunks}


@shows(document=Document, chunk=ChunkReply, before=ChunkReply | None, after=ChunkReply | None)
def get_chunk(site: Site, *, chunk: ChunkId) -> JsonReply:
    """A passage with the ones before and after it, which are null at the document's ends."""
    there = site.db.documents.chunks_by_ids([chunk])
    if not there:
        raise NotFound(f"no passage has the id {chunk}")
    found = there[0]
    waiting = site.db.documents.waiting(found.document.id)
    around = {
        each.position: chunk_reply(each, waiting) for each in site.db.documents.neighbours(found)
    }
    return {
        "document": found.document,
        "chunk": around[found.position],
        "before": around.get(found.position - 1),
        "after": around.get(found.position + 1),
    }


def similar_to_chunk(site: Site, *, chunk: ChunkId, limit: Few = 8) -> SimilarReply:
    """The passages nearest to one, near-duplicates among them."""
    return similar_reply(site.db, site.db.similar(chunk=chunk, limit=limit))


def chunk_reply(chunk: Chunk, waiting: frozenset[int]) -> ChunkReply:
    """A passage for the API; `waiting` are the ids of those without an embedding."""
    return {**vars(chunk), "citation": chunk.citation, "embedded": chunk.id not in waiting}


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
