"""What the view of a chat shows of a reply, in the terms of the page's modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcpvectordb import Chunk, Database, Document, Memory, Quotation, Results
from mcpvectordb_server.shown import plain
from mcpvectordb_server.web.hits import HitReply, hit_replies, say_file_states

JsonView = dict[str, Any]


def of_results(
    db: Database, found: Results[Chunk | Memory], asked: Any, remarks: Sequence[str]
) -> JsonView:
    """Hits with their passages, and what is to be said of the search."""
    parts = [asked] if isinstance(asked, str) else asked
    query = " ".join(each if isinstance(each, str) else " ".join(each.values()) for each in parts)
    hits = hit_replies(db, found.hits, query)
    say_file_states(db, found.hits, hits)
    shown = plain(list[HitReply], hits)
    return {"kind": "results", "query": query, "hits": shown, "note": " ".join(remarks)}


def of_lines(
    db: Database,
    document: Document,
    lines: Sequence[str],
    first: int,
    last: int,
    cited: tuple[int, int] | None,
) -> JsonView:
    """Some lines of a document, of which those that are `cited` are marked by their offsets."""
    marks = None
    if cited is not None:
        before = lines[first - 1 : cited[0] - 1]
        passage = lines[max(first, cited[0]) - 1 : min(last, cited[1])]
        start = sum(map(len, before)) + len(before)
        marks = {"start": start, "end": start + len("\n".join(passage))}
    return {
        "kind": "document",
        "id": document.id,
        "title": document.title or document.path,
        "path": document.path,
        "file_type": document.file_type,
        "date": document.date,
        "syntax": db.documents.syntax(document.id),
        "text": "\n".join(lines[first - 1 : last]),
        "first_line": first,
        "last_line": last,
        "lines": len(lines),
        "cited": marks,
    }


def of_memory(memory: Memory) -> JsonView:
    """A memory."""
    names = ("id", "thread", "source", "text", "created_at", "validity")
    return {"kind": "memory", "tags": [*memory.tags], **{n: getattr(memory, n) for n in names}}


def of_verdict(found: Quotation, quotation: str, told: str) -> JsonView:
    """A quotation with the verdict on it, and where it stands."""
    place: JsonView | None = None
    if found.text and isinstance(item := found.item, Memory):
        place = {"memory": item.place}
    elif found.text and item is not None:
        place = {"id": item.id, "first_line": found.first_line, "last_line": found.last_line}
    return {
        "kind": "verdict",
        "status": found.status,
        "quotation": quotation,
        "told": told,
        "found": "" if found.exact else found.text,
        "place": place,
    }
