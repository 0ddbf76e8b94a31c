"""Tools that find: search, similar, grep and verify."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from mcpvectordb import Chunk, Database, Document, Hit, InvalidInput, Memory, Results
from mcpvectordb_server.replies import cut
from mcpvectordb_server.surfaces.desk import places
from mcpvectordb_server.surfaces.desk.optional import (
    EMPTY,
    NO_TEXTS,
    NOTHING,
    Flag,
    OptionalFraction,
    OptionalNumber,
    OptionalObject,
    OptionalText,
    OptionalTexts,
)
from mcpvectordb_server.surfaces.desk.passages import (
    CHARACTERS_PER_TOKEN,
    MAX_BUDGET,
    CitedPassage,
    fitted,
    room_of,
)

MOST_HITS = 100
MOST_LINES = 200
LONGEST_LINE = 200

Kind = Annotated[Literal["all", "documents", "memories"], EMPTY]
_KINDS: dict[str, Literal["documents", "memories"] | None] = {
    "all": None,
    "documents": "documents",
    "memories": "memories",
}


def search(
    db: Database,
    *,
    query: Annotated[
        str | list[dict[str, str]],
        'Question or words; or searches to fuse, the first counting double: [{"words": "E-4021"}, '
        '{"meaning": "pump is stuck"}, {"text": "by both"}]',
    ],
    kind: Kind = "all",
    library: Annotated[OptionalText, "Only its documents"] = "",
    thread: Annotated[OptionalText, "Only its memories"] = "",
    tags: Annotated[OptionalTexts, "Only memories with one of them"] = NO_TEXTS,
    where: Annotated[
        OptionalObject,
        '{"file_type": "pdf", "metadata.year": {"gte": 2020}}; operators eq ne gt gte lt lte in '
        "not_in exists contains starts_with ends_with array_contains",
    ] = NOTHING,
    since: Annotated[OptionalText, "Date or age: 2025-11, 7d"] = "",
    until: OptionalText = "",
    limit: int = 8,
    offset: OptionalNumber = 0,
    group: Annotated[Flag, "One passage per document first"] = False,
    newer: Annotated[OptionalText, "Prefer newer, by half-life: 30d"] = "",
    min_relevance: OptionalFraction = 0,
    budget: Annotated[int, "Tokens of the reply, 4 characters each"] = 2000,
) -> str:
    """Find passages of documents and memories by words and meaning, in one ranking. Start here.

    Hits are cited as path:lines or memory:N, places for `read`, `similar`, `verify`; the percentage
    is the chance of being relevant. If nothing relevant was found, say so.
    """
    if not 1 <= limit <= MOST_HITS:
        raise InvalidInput(f"limit must be 1 to {MOST_HITS}, not {limit}")
    room = room_of(budget)
    found = db.search(
        _query(query),
        kind=_KINDS[kind],
        library=library or None,
        thread=thread or None,
        tags=tags or None,
        where=where,
        since=since or None,
        until=until or None,
        limit=limit,
        offset=offset,
        min_relevance=min_relevance,
        group=group,
        newer=newer or None,
    )
    return _hits(found, room, offset, _remarks(db, found))


def similar(
    db: Database,
    *,
    place: str,
    kind: Kind = "all",
    limit: int = 5,
    budget: int = 1000,
) -> str:
    """Find the documents and memories most similar to a stored one."""
    if not 1 <= limit <= MOST_HITS:
        raise InvalidInput(f"limit must be 1 to {MOST_HITS}, not {limit}")
    room = room_of(budget)
    given = places.locate(db, place)
    found = db.similar(**given.names, kind=_KINDS[kind], limit=limit)
    why = found.reasons.get("vector", "")
    return _hits(found, room, 0, [f"Nothing can be compared with it: {why}."] if why else [])


def grep(
    db: Database,
    *,
    pattern: Annotated[str, "Regular expression (RE2)"],
    literal: Flag = False,
    ignore_case: Flag = False,
    kind: Kind = "all",
    library: OptionalText = "",
    thread: OptionalText = "",
    limit: int = 50,
) -> str:
    """Find and count all lines that match, as path:line: text."""
    if not 1 <= limit <= MOST_LINES:
        raise InvalidInput(f"limit must be 1 to {MOST_LINES}, not {limit}")
    found = db.grep(
        pattern,
        literal=literal,
        case_sensitive=not ignore_case,
        kind=_KINDS[kind],
        library=library or None,
        thread=thread or None,
        limit=limit,
    )
    lines = [
        places.in_line(
            f"{places.of(each.item)}:{each.line}: {cut(each.text.strip(), LONGEST_LINE)}"
        )
        for each in found
    ]
    if not found.total:
        lines.append(f"No line matches in {found.searched:,} texts.")
    elif more := found.total - len(found):
        lines.append(
            f"[{found.total:,} lines match, {more:,} more than these: raise limit (up to "
            f"{MOST_LINES}), or narrow it]"
        )
    else:
        lines.append(f"[lines that match: {found.total:,}]")
    return "\n".join([*lines, *([f"{found.note}."] if found.note else [])])


def verify(
    db: Database,
    *,
    quotation: str,
    place: Annotated[OptionalText, "Where it should stand"] = "",
    page: OptionalNumber = 0,
) -> str:
    """Check a quotation before you cite it: it stands there exactly, with other spacing or hyphens,
    elsewhere, or is absent; with place, page and SHA-256 of the text read.
    """
    if place.strip():
        given = places.locate(db, place)
        stated = given.names
        if stated["document"] is not None and given.line is not None:
            stated["document"] += f":{given.line}:{given.lines or 1}"
        found = db.verify(quotation, **stated, page=page or None)
    else:
        found = db.verify(quotation)
    if found.item is None or not found.text:
        read = f"{found.searched:,} texts were read" + (f"; {found.note}" if found.note else "")
        return (
            f"absent: these words are in no stored text ({read}). Do not quote them; search for "
            "what was meant."
        )
    told = places.in_line(_place_of(found.item, found.first_line, found.last_line))
    if found.status == "elsewhere":
        told = f"not there, but at {told}"
    if found.page is not None:
        told += f", p. {found.page}"
    if not found.exact:
        told += ", with other spacing or marks"
    digests = f"SHA-256 of the text {found.text_sha256}"
    if isinstance(found.item, Document) and found.item.hash != found.text_sha256:
        digests += f", of its source {found.item.hash}"
    lines = [f"{found.status}: {told} ({digests})"]
    if not found.exact:
        lines.append(f"It stands there as: {cut(found.text, 1000)}")
    return "\n".join(lines)


def _place_of(item: Document | Memory, first: int, last: int) -> str:
    if isinstance(item, Memory):
        return places.of(item)
    return places.of(item, first, last)


def _query(query: str | list[dict[str, str]]) -> Any:
    """The query; a list that a client sent as JSON text is read as a list."""
    if isinstance(query, str) and query.lstrip().startswith("[{"):
        try:
            return json.loads(query)
        except ValueError:
            return query
    if not query or (isinstance(query, str) and not query.strip()):
        raise InvalidInput("query must not be blank: ask a question, or give words to look for")
    return query


def _remarks(db: Database, found: Results[Chunk | Memory]) -> list[str]:
    """What an agent should know about a search besides its hits."""
    remarks = [found.verdict] if found.verdict else []
    if not found.hits and not found.verdict:
        remarks.append("Nothing was found.")
    if found.note:
        remarks.append(f"{found.note}.")
    stored = found.hits or db.documents.count() or db.memories.count()
    if stored and (why := found.reasons.get("vector")):
        remarks.append(f"Not searched by meaning: {why}.")
    elif found.backlog.note:
        remarks.append(f"{found.backlog.note}.")
    if not stored:
        remarks.append("Nothing is stored yet: ingest documents or remember something first.")
    return remarks


def _hits(found: Results[Chunk | Memory], room: int, offset: int, remarks: Sequence[str]) -> str:
    shown = [_passage(hit, number) for number, hit in enumerate(found, offset + 1)]
    fit = fitted(shown, room - sum(map(len, remarks)))
    notes = list(remarks)
    if left := len(shown) - fit.kept:
        needed = min(MAX_BUDGET, fit.needed // CHARACTERS_PER_TOKEN + 1)
        notes.append(
            f"{left} more hits are left out for the budget: ask with offset={offset + fit.kept}, "
            f"or budget={needed}."
        )
    if fit.shortened:
        notes.append("[…] marks cut passages: read their place for the whole.")
    return "\n\n".join(filter(None, [fit.text, " ".join(notes)]))


def _passage(hit: Hit[Chunk | Memory], number: int) -> CitedPassage:
    item = hit.item
    told = [places.of(item)]
    if isinstance(item, Chunk):
        if item.page is not None:
            told.append(f"p. {item.page}")
        text, title = item.passage, item.document.title
        if title not in item.document.path and title not in text:
            told.append(cut(title, 60))
        if hit.more:
            told.append(f"{hit.more} more passages")
    else:
        told.append(f"{cut(item.thread, 60)}, {item.created_at[:10]}")
        if item.tags:
            told.append(f"tags {cut(', '.join(item.tags), 60)}")
        text = item.text if len(item.text) <= 1000 else hit.passage or item.text
    if hit.relevance is not None:
        told.append(f"{round(100 * hit.relevance)} %")
    citation = f"[{number}] {places.in_line(' · '.join(told))}"
    return CitedPassage(citation, text, _focus(hit))


def _focus(hit: Hit[Chunk | Memory]) -> int:
    """The offset in a passage of the line that has most words of the query."""
    if not isinstance(hit.item, Chunk) or hit.line <= hit.item.first_line:
        return 0
    before = hit.item.text.split("\n")[: hit.line - hit.item.first_line]
    header = len(hit.item.header) + 1 if hit.item.header else 0
    return header + sum(len(line) + 1 for line in before)
