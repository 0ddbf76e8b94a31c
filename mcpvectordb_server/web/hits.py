"""Passages and memories as the API shows them: text and offsets, never markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NotRequired, cast

from typing_extensions import TypedDict

from mcpvectordb import Chunk, Database, Hit, Memory, Results, Scores
from mcpvectordb_server.web.map_cache import NEAR

Range = tuple[int, int]

_NUMBERED = re.compile(r"(\d+): ?(.*)", re.DOTALL)


class SnippetLine(TypedDict):
    """A line of a snippet: its number, its text, and where the words of the query stand in it."""

    line: int
    text: str
    highlights: list[Range]


class HitReply(TypedDict):
    """A passage of a document or a memory; `kind` says which, and so which fields it has."""

    kind: Literal["document", "memory"]
    id: str | int
    place: str
    citation: str
    date: str
    line: int
    score: float
    relevance: float | None
    confidence: Literal["strong", "possible", "weak"] | None
    scores: dict[str, float | int | bool | None]
    snippet: list[SnippetLine]
    more: int
    # of a passage of a document
    chunk: NotRequired[int]
    title: NotRequired[str]
    path: NotRequired[str]
    library: NotRequired[str]
    file_type: NotRequired[str]
    first_line: NotRequired[int]
    last_line: NotRequired[int]
    page: NotRequired[int | None]
    position: NotRequired[int]
    start: NotRequired[int]
    end: NotRequired[int]
    headings: NotRequired[list[str]]
    file_state: NotRequired[Literal["changed", "gone"]]
    # of a memory
    thread: NotRequired[str]
    tags: NotRequired[list[str]]
    metadata: NotRequired[dict[str, Any] | None]
    created_at: NotRequired[str]
    updated_at: NotRequired[str]
    # of both: where a document is from, or who stored the memory
    source: NotRequired[str]
    # with the whole text
    text: NotRequired[str]
    highlights: NotRequired[list[Range]]
    # among similar ones
    cosine: NotRequired[float]
    near_duplicate: NotRequired[bool]


class SimilarReply(TypedDict):
    """What is nearest by embedding, and why there is nothing if there is none."""

    hits: list[HitReply]
    legs: list[str]
    reasons: dict[str, str]


def hit_replies(
    db: Database, hits: Sequence[Hit[Any]], query: str, *, text: bool = False
) -> list[HitReply]:
    """Hits for the API, with the words of the query marked, also in the whole `text` on request."""
    replies = [_reply(hit) for hit in hits]
    for reply, hit in zip(replies, hits, strict=True):
        if text:
            reply["text"] = hit.item.passage if isinstance(hit.item, Chunk) else hit.item.text
            reply["highlights"] = []
    _mark(db, query, replies)
    return replies


def say_file_states(db: Database, hits: Sequence[Hit[Any]], replies: Sequence[HitReply]) -> None:
    """Let replies of a search say if the file of a document changed, or is gone, since."""
    documents = {hit.item.document.id: hit.item.document for hit in hits if _is_chunk(hit)}
    states = {id: db.documents.state(document) for id, document in documents.items()}
    for reply, hit in zip(replies, hits, strict=True):
        state = states[hit.item.document.id] if _is_chunk(hit) else ""
        if state in ("changed", "gone"):
            reply["file_state"] = state


def _is_chunk(hit: Hit[Any]) -> bool:
    return isinstance(hit.item, Chunk)


def similar_reply(db: Database, found: Results[Any]) -> SimilarReply:
    """What `Database.similar` has found, with near-duplicates marked."""
    replies = hit_replies(db, found.hits, "", text=True)
    for reply, hit in zip(replies, found.hits, strict=True):
        cosine = hit.scores.vector or 0.0
        reply["cosine"] = cosine
        reply["near_duplicate"] = cosine >= NEAR
    return SimilarReply(hits=replies, legs=list(found.legs), reasons=dict(found.reasons))


def item_replies(db: Database, items: Iterable[Chunk | Memory], longest: int) -> list[HitReply]:
    """Passages and memories that no search found, with the beginning of their text."""
    found = [
        Hit(item=item, score=0.0, scores=Scores(), line=getattr(item, "first_line", 1))
        for item in items
    ]
    replies = hit_replies(db, found, "", text=True)
    for reply in replies:
        reply["text"] = reply["text"][:longest]
    return replies


def _reply(hit: Hit[Any]) -> HitReply:
    item = hit.item
    found = {
        name: getattr(hit, name) for name in ("line", "score", "relevance", "confidence", "more")
    }
    found["scores"] = {name: each for name, each in vars(hit.scores).items() if each is not None}
    # Each line of the library's snippet begins with its number.
    numbered = (_NUMBERED.fullmatch(line) for line in hit.snippet.split("\n"))
    found["snippet"] = [
        SnippetLine(line=int(line[1]), text=line[2], highlights=[]) for line in numbered if line
    ]
    if isinstance(item, Chunk):
        document = item.document
        found |= {
            "kind": "document",
            "id": document.id,
            "chunk": item.id,
            "place": document.place(hit.line or item.first_line),
            "date": document.date,
            "headings": list(item.headings),
        }
        of_document = ("title", "path", "source", "library", "file_type")
        of_chunk = ("citation", "first_line", "last_line", "page", "position", "start", "end")
        found |= {name: getattr(document, name) for name in of_document}
        found |= {name: getattr(item, name) for name in of_chunk}
    else:
        of_memory = ("id", "thread", "source", "metadata", "created_at", "updated_at")
        found |= {name: getattr(item, name) for name in of_memory} | {
            "kind": "memory",
            "place": f"memory:{item.id}",
            "citation": f"memory:{item.id}, {item.thread}, {item.created_at[:10]}",
            "date": item.created_at,
            "tags": list(item.tags),
        }
    return cast("HitReply", found)


def _mark(db: Database, query: str, replies: Sequence[HitReply]) -> None:
    """Fill in all highlights by one look at all texts together, which is cheaper than many."""
    targets: list[tuple[str, list[Range]]] = []
    for reply in replies:
        targets += [(line["text"], line["highlights"]) for line in reply["snippet"]]
        if "text" in reply:
            targets.append((reply["text"], reply["highlights"]))
    if not query.strip() or not targets:
        return
    marks = iter(db.highlights("\n".join(text for text, _ in targets), query))
    mark = next(marks, None)
    start = 0
    for text, highlights in targets:
        end = start + len(text)
        while mark is not None and mark[0] < end:
            highlights.append((mark[0] - start, min(mark[1], end) - start))
            mark = next(marks, None)
        start = end + 1
