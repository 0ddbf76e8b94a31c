"""Searches through the surface desk, as an agent makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcpvectordb import Chunk, Database, Document, Hit, Results, Scores
from mcpvectordb_server.surface import PublishedTool, call
from mcpvectordb_server.surfaces.desk import SURFACE
from mcpvectordb_server.surfaces.desk.passages import MAX_BUDGET
from mcpvectordb_server.surfaces.desk.search import MOST_HITS


def found(db: Database, query: str, *, limit: int, **filters: Any) -> tuple[list[Any], str]:
    """The hits of the tool search as programs get them, page by page, and its note."""
    [tool] = [each for each in SURFACE.tools if each.name == "search"]
    published = PublishedTool(name=tool.name, surface=SURFACE, tool=tool)
    hits: list[Any] = []
    note = ""
    while len(hits) < limit:
        page = {"limit": min(MOST_HITS, limit - len(hits)), "offset": len(hits)}
        reply = call(published, db, {"query": query, "budget": MAX_BUDGET, **page, **filters})
        if reply.failed or reply.structured is None:
            raise RuntimeError(reply.content[0].text)
        note = note or reply.structured.get("note", "")
        if not reply.structured["hits"]:
            break
        hits += reply.structured["hits"]
    return hits, note


def documents(db: Database) -> Callable[..., Results[Chunk]]:
    """A search for passages of documents like that of the library, through the surface."""
    known: dict[str, Document] = {}

    def ask(query: str, *, limit: int) -> Results[Chunk]:
        hits, note = found(db, query, limit=limit, kind="documents")
        for each in hits:
            if each["id"] not in known:
                known[each["id"]] = db.documents.get(each["id"])
        return Results(
            hits=tuple(
                Hit(item=_passage(known[each["id"]]), score=0.0, scores=Scores()) for each in hits
            ),
            legs=(),
            verdict=note if note.startswith("Nothing relevant") else "",
        )

    return ask


def _passage(document: Document) -> Chunk:
    """A passage of which only the document counts here."""
    return Chunk(
        id=0,
        document=document,
        position=0,
        text="",
        start=0,
        end=0,
        first_line=1,
        last_line=1,
        page=None,
        headings=(),
    )
