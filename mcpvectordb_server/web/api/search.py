"""/api/search and /api/compare: passages of documents and memories in one ranking."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from mcpvectordb import Backlog, InvalidInput
from mcpvectordb_server.shown import JsonReply, Shown, shows
from mcpvectordb_server.web.hits import HitReply, hit_replies
from mcpvectordb_server.web.site import Site

Mode = Literal["hybrid", "text", "vector"]
Shelf = Literal["documents", "memories"]
Question = Annotated[
    str, "Any text; words in quotes must occur, -words must not", Field(max_length=10_000)
]
Limit = Annotated[int, "Hits of a page", Field(ge=1, le=100)]
Offset = Annotated[int, "Hits to leave out before", Field(ge=0, le=1_000)]
Library = Annotated[str | None, "Documents of this library only"]
ThreadName = Annotated[str | None, "Memories of this thread only"]
Tags = Annotated[list[str] | None, "Memories with any of these tags only"]
FileType = Annotated[str | None, "Documents of this type only, such as pdf"]
Since = Annotated[
    str | None,
    "From this date on: 2025-11-29, 2025-11, 7d, today, yesterday. The date of a document is its "
    "own (metadata `date`), else that of its file, else that of its ingest",
]
Until = Annotated[str | None, "Up to this date"]
Where = Annotated[dict[str, Any] | None, "More conditions, as in the library's `where`"]

BacklogReply = Annotated[Backlog, Shown(Backlog, only="passages pending note", note=str)]

# The key under which the library takes a question in each mode.
_QUESTIONS = {"hybrid": "text", "text": "words", "vector": "meaning"}


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
    kind: Annotated[Shelf | None, "Only these; both without it"] = None,
    limit: Limit = 20,
    offset: Offset = 0,
    library: Library = None,
    thread: ThreadName = None,
    tags: Tags = None,
    file_type: FileType = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    min_relevance: Annotated[float, "Leave out what is less relevant", Field(ge=0, le=1)] = 0.0,
    group: Annotated[bool, "The best passage of each document before others"] = False,
    newer: Annotated[str | None, "Prefer what is newer: a half-life such as 30d"] = None,
    text: Annotated[bool, "Return whole passages, with highlights"] = False,
) -> SearchResults:
    """Search documents and memories by words and by meaning."""
    began = time.perf_counter()
    found = site.db.search(
        [{_QUESTIONS[mode]: query}],
        kind=kind,
        library=library,
        thread=thread,
        tags=tags or None,
        where=_conditions(where, file_type),
        since=since,
        until=until,
        limit=limit,
        offset=offset,
        min_relevance=min_relevance,
        group=group,
        newer=newer,
    )
    hits = hit_replies(site.db, found.hits, "" if mode == "vector" else query, text=text)
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
    site: Site,
    *,
    query: Question,
    kind: Annotated[Shelf | None, "Only these; both without it"] = None,
    limit: Limit = 10,
    library: Library = None,
    thread: ThreadName = None,
    tags: Tags = None,
    file_type: FileType = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    group: Annotated[bool, "The best passage of each document before others"] = False,
    text: Annotated[bool, "Return whole passages, with highlights"] = False,
) -> JsonReply:
    """Ask the same by words, by meaning, and by both, to see what each contributes."""

    def by(mode: Mode) -> SearchResults:
        return search(
            site,
            query=query,
            mode=mode,
            kind=kind,
            limit=limit,
            library=library,
            thread=thread,
            tags=tags,
            file_type=file_type,
            since=since,
            until=until,
            where=where,
            group=group,
            text=text,
        )

    return {"text": by("text"), "vector": by("vector"), "hybrid": by("hybrid")}


def _conditions(where: dict[str, Any] | None, file_type: str | None) -> dict[str, Any] | None:
    if file_type is None:
        return where
    if where and "file_type" in where:
        raise InvalidInput("file_type is given twice: as a parameter and in where")
    return {**(where or {}), "file_type": file_type}
