"""/api/search and /api/compare: passages of documents and memories in one ranking."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict, Unpack

from mcpvectordb import Backlog, InvalidInput
from mcpvectordb_server.shown import JsonReply, Shown, shows
from mcpvectordb_server.web.hits import HitReply, hit_replies, say_file_states
from mcpvectordb_server.web.site import Site

Mode = Literal["hybrid", "text", "vector"]
Shelf = Literal["documents", "memories"]
Question = Annotated[
    str,
    "Any text; words in quotes must occur, -words must not, conf* at its end finds longer words",
    Field(max_length=10_000),
]
Limit = Annotated[int, "Hits of a page", Field(ge=1, le=100)]

BacklogReply = Annotated[Backlog, Shown(Backlog, only="passages pending note", note=str)]

# The key under which the library takes a question in each mode.
_QUESTIONS: dict[Mode, str] = {"hybrid": "text", "text": "words", "vector": "meaning"}


class SearchedPart(TypedDict):
    """Which passages and memories are searched, and how they are shown."""

    kind: Annotated[Shelf | None, "Only these; both without it"]
    library: Annotated[str | None, "Documents of this library only"]
    thread: Annotated[str | None, "Memories of this thread only"]
    project: Annotated[str | None, "What belongs to this project only"]
    tags: Annotated[list[str] | None, "Memories with any of these tags only"]
    file_type: Annotated[str | None, "Documents of this type only, such as pdf"]
    since: Annotated[
        str | None,
        "From this date on: 2025-11-29, 2025-11, 7d, today, yesterday. The date of a document is "
        "its own (metadata `date`), else that of its file, else that of its ingest",
    ]
    until: Annotated[str | None, "Up to this date"]
    where: Annotated[dict[str, Any] | None, "More conditions, as in the library's `where`"]
    group: Annotated[bool, "The best passage of each document before others"]
    text: Annotated[bool, "Return whole passages, with highlights"]


class SearchResults(TypedDict):
    """Hits, best first, and how they were found.

    legs          what ran: text, vector
    reasons       why a leg did not run, by leg
    verdict       a sentence if nothing relevant was found, otherwise ""
    uncalibrated  why hits have no relevance; "" if all have one
    note          what else there is to say of the question, or ""
    more          whether there may be another page
    """

    hits: list[HitReply]
    legs: list[str]
    reasons: dict[str, str]
    verdict: str
    uncalibrated: str
    note: str
    backlog: BacklogReply
    milliseconds: float
    more: bool


def search(
    site: Site,
    *,
    query: Question,
    mode: Annotated[Mode, "By words (text), by meaning (vector), or by both"] = "hybrid",
    limit: Limit = 20,
    offset: Annotated[int, "Hits to leave out before", Field(ge=0, le=1_000)] = 0,
    min_relevance: Annotated[float, "Leave out what is less relevant", Field(ge=0, le=1)] = 0.0,
    newer: Annotated[str | None, "Prefer what is newer: a half-life such as 30d"] = None,
    **part: Unpack[SearchedPart],
) -> SearchResults:
    """Search documents and memories by words and by meaning."""
    began = time.perf_counter()
    where, file_type = part["where"], part["file_type"]
    if file_type is not None:
        if where and "file_type" in where:
            raise InvalidInput("file_type is given twice: as a parameter and in where")
        where = {**(where or {}), "file_type": file_type}
    found = site.db.search(
        [{_QUESTIONS[mode]: query}],
        kind=part["kind"],
        library=part["library"],
        thread=part["thread"],
        project=part["project"],
        tags=part["tags"] or None,
        where=where,
        since=part["since"],
        until=part["until"],
        limit=limit,
        offset=offset,
        min_relevance=min_relevance,
        group=part["group"],
        newer=newer,
    )
    marked = "" if mode == "vector" else query
    hits = hit_replies(site.db, found.hits, marked, text=part["text"])
    say_file_states(site.db, found.hits, hits)
    return SearchResults(
        hits=hits,
        legs=list(found.legs),
        reasons=dict(found.reasons),
        verdict=found.verdict,
        uncalibrated=found.uncalibrated,
        note=found.note,
        backlog=found.backlog,
        milliseconds=round(1000 * (time.perf_counter() - began), 1),
        more=len(hits) == limit,
    )


@shows(text=SearchResults, vector=SearchResults, hybrid=SearchResults)
def compare(
    site: Site, *, query: Question, limit: Limit = 10, **part: Unpack[SearchedPart]
) -> JsonReply:
    """Ask the same by words, by meaning, and by both, to see what each contributes."""
    return {mode: search(site, query=query, mode=mode, limit=limit, **part) for mode in _QUESTIONS}
