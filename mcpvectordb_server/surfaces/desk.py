"""The surface desk: our own, for agents that search, read, cite, remember and correct.

What is stored is named by places, in citations and in arguments. A document is named by its path in
listings, its file, its id or a #hash, with or without lines: notes/tea.md, notes/tea.md:12,
notes/tea.md:12-20, notes/tea.md:12:9. A memory is memory:7.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from mcpvectordb import (
    Chunk,
    Database,
    Document,
    DocumentHeading,
    Ingested,
    IngestError,
    InvalidInput,
    Library,
    MCPVectorDBError,
    Memory,
    ModelError,
    Near,
    NotFound,
    ProjectScope,
    Quotation,
    Refused,
    Results,
    Synced,
)
from mcpvectordb_server.arguments import not_blank, within
from mcpvectordb_server.grant import Client, Grant, NotAgreed, is_url
from mcpvectordb_server.ongoing import UnderWay
from mcpvectordb_server.replies import MAX_ECHO, Reply, Text, cut, failed, to_json
from mcpvectordb_server.surface import ADDS, OVERWRITES, READS, InternalError, Surface, Tool
from mcpvectordb_server.surfaces import desk_resources, prose


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


EMPTY = Field(json_schema_extra=_without_default)

OptionalText = Annotated[str, EMPTY]
OptionalNumber = Annotated[int, EMPTY]
OptionalFraction = Annotated[float, EMPTY]
Flag = Annotated[bool, EMPTY]
OptionalTexts = Annotated[list[str], EMPTY]
OptionalObject = Annotated[dict[str, Any], EMPTY]

Kind = Annotated[Literal["all", "documents", "memories"], EMPTY]

NOBODY = Client()
NO_TEXTS: list[str] = []
NOTHING: dict[str, Any] = {}


CHARACTERS_PER_TOKEN = 4
MIN_BUDGET, MAX_BUDGET = 100, 40_000
CUT = " […]"
_SHORTEST = 40  # characters of a text that is cut


def room_of(budget: int) -> int:
    """The characters of a budget in tokens; raises InvalidInput."""
    if not MIN_BUDGET <= budget <= MAX_BUDGET:
        raise InvalidInput(f"budget must be {MIN_BUDGET} to {MAX_BUDGET:,} tokens, not {budget:,}")
    return budget * CHARACTERS_PER_TOKEN


_MEMORY = re.compile(r"memory:(\d{1,18})(?::\d{1,9})?", re.IGNORECASE)  # also with a line
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_RANGE = re.compile(r"(.+):(\d{1,9})[-–](\d{1,9})", re.DOTALL)


class Located(NamedTuple):
    """What a place names: a memory, or a document and perhaps some lines of it.

    `former` says that it was named by the id of an earlier version.
    """

    item: Document | Memory
    line: int | None = None
    lines: int | None = None
    former: bool = False

    @property
    def place(self) -> str:
        """Its name, without lines."""
        return place_of(self.item)

    @property
    def names(self) -> dict[str, Any]:
        """The arguments by which the library is told of it, with its lines."""
        if isinstance(self.item, Memory):
            return {"document": None, "memory": self.item.id}
        lines = "" if self.line is None else f":{self.line}:{self.lines or 1}"
        return {"document": f"{self.item.id}{lines}", "memory": None}


def place_of(item: Chunk | Document | Memory, first: int = 0, last: int = 0) -> str:
    """The name of something stored; a passage has its lines, a document those that are given."""
    if isinstance(item, Chunk | Memory):
        return item.place
    return item.path + (f":{first}-{last}" if last > first else f":{first}" if first else "")


def in_line(text: str) -> str:
    """A text in one line: names from outside must not look like further lines of a reply."""
    return _BREAKS.sub("\ufffd", text)


def locate(db: Database, place: str) -> Located:
    """What a place names.

    Raises NotFound with similar names, InvalidInput with all documents that it may mean.
    """
    place = place.strip()
    if not place:
        raise InvalidInput("say which place: a path, an id or memory:N, as in a search reply")
    if match := _MEMORY.fullmatch(place):
        if not (memories := db.memories.get([int(match[1])], images=False)):
            raise NotFound(
                f"there is no memory:{int(match[1])}; search finds memories by their text"
            )
        return Located(memories[0])
    names = [place]  # a document whose own name ends like lines is found first
    if match := _RANGE.fullmatch(place):
        first, last = int(match[2]), int(match[3])
        names.append(f"{match[1]}:{first}:{max(1, last - first + 1)}")
    for name in names:
        [meant] = db.documents.candidates([name])
        if len(meant) > 1:
            shown = ", ".join(f"{each.document.path} ({each.document.id})" for each in meant[:10])
            more = f" and {len(meant) - 10:,} more" if len(meant) > 10 else ""
            raise InvalidInput(
                f"{cut(place, MAX_ECHO)} may mean {len(meant):,} documents; name one by its path "
                f"or id: {in_line(shown)}{more}"
            )
        found = meant[0] if meant else db.documents.lookup([name])[0]
        if found is not None:
            return Located(found.document, found.line, found.lines, found.former)
    similar = db.documents.suggest(place)
    raise NotFound(
        f"there is no {cut(place, MAX_ECHO)}"
        + (f"; similar: {', '.join(similar)}" if similar else "; search for it, or grep its words")
    )


def chosen(db: Database, project: str, *, new: bool = False) -> ProjectScope | None:
    """The project that a call is about: the one that it names, else the server's, else None."""
    name = db.projects.chosen(project, new=new)
    return None if name is None else db.projects.scope(name)


def viewed(told: str, client: Client, view: Callable[[Any], dict[str, Any]]) -> Reply:
    """A reply, with a view where the client shows it."""
    made = None
    if client.shows:
        from mcpvectordb_server.web import chat  # what it needs is loaded for such clients only

        made = view(chat)
    return Reply(content=(Text(text=told),), view=made)


def scope_line(scope: ProjectScope | None) -> str:
    """Where a call has looked."""
    return "All projects." if scope is None else in_line(f"Project: {scope.name}.")


def inside(scope: ProjectScope | None, name: str, default: str = "") -> str:
    """The thread or library that a call within a project means by a name."""
    if scope is None or not (name or default):
        return name
    return scope.inside("" if name == default else name)


# Share of the budget that the outline of a long document may take.
_OUTLINE_SHARE = 0.3
_OUTLINE = "Outline (line, heading):"
MOST_AROUND = 1_000
# Characters of a document's or memory's metadata.
_METADATA = 300
MOST_LIBRARIES = 50
# What became of a file since it was read.
_SINCE = {
    "changed": "changed since it was read: ingest it again",
    "gone": "is gone from this machine",
}
# Of memories whose words are not those of the user or an agent.
_FROM = {"document": "from a document", "web": "from the web"}
_REPLACED = "This id is of an earlier version, which was replaced by this one:"


def read(
    db: Database,
    *,
    place: Annotated[str, "path, path:line:count, path:first-last, id or memory:N"],
    page: Annotated[OptionalNumber, "From 1"] = 0,
    around: Annotated[OptionalNumber, "Also so many lines or memories around"] = 0,
    budget: int = 2000,
    client: Client = NOBODY,
) -> Reply:
    """Read a document, lines or a page of it, or a memory. What is too long comes in part, with an
    outline and how to go on.
    """
    room = room_of(budget)
    within("around", around, 0, MOST_AROUND)
    given = locate(db, place)
    document = given.item
    if isinstance(document, Memory):
        if page:
            raise InvalidInput(f"{given.place} is a memory, which has no pages: leave page out")
        told = _read_memory(db, document, around, room)
        return viewed(told, client, lambda chat: chat.of_memory(document))
    text = db.documents.text(document.id)
    lines = text.removesuffix("\n").split("\n")
    first, count = given.line or 1, given.lines
    if page:
        first, last = db.documents.page_lines(document.id, page)
        count = last - first + 1
    elif given.line is not None and count is None and around:
        count = 1
    if first > len(lines):
        raise InvalidInput(
            f"{document.path} has {len(lines):,} lines; line {first:,} is behind its end"
        )
    last = len(lines) if count is None else min(len(lines), first + count - 1)
    named = page or given.line is not None
    cited = (first, first if count is None else last) if named else None
    first, last = max(1, first - around), min(len(lines), last + around)
    told, end = _part(db, document, lines, first, last, room - len(_REPLACED))
    told = f"{_REPLACED}\n{told}" if given.former else told
    return viewed(told, client, lambda chat: chat.of_lines(db, document, lines, first, end, cited))


def _part(
    db: Database, document: Document, lines: list[str], first: int, last: int, room: int
) -> tuple[str, int]:
    """As many of the lines as fit, and the last one; it says what is left out, with an outline."""
    kind = "text " if document.extracted else ""
    lines_of = counted(len(lines), f"{kind}line", f"{kind}lines")
    told = f"(of {lines_of}) · {cut(document.title, room // 6)}"
    if document.modified:
        told += f" · {document.modified[:10]}"
    state = db.documents.state(document)
    if since := _since(document, state):
        told += f" · {since}"
    told, place = in_line(told), place_of(document, first, last)
    on_disk = f" · {in_line(document.source)}" if state and document.source != document.path else ""
    for more in (on_disk, _metadata(document.metadata, room)):
        if len(place) + len(told) + len(more) <= room - _SHORTEST:  # the text comes first
            told += more
    room -= len(place) + len(told) + len("\n\n") + 1
    chosen = lines[first - 1 : last]
    outline, on = "", ""
    if sum(map(len, chosen)) + len(chosen) > room:
        on = f"read {document.path}" if 4 * len(document.path) < room else "read the same path"
        room -= len(f"\n\n[lines {last}-{last} are left out; go on: {on}:{last}]")
        outline = _outline(db.documents.outline(document.id), int(room * _OUTLINE_SHARE))
        room -= len(outline) + len(f"\n\n{_OUTLINE}\n") if outline else 0
    kept: list[str] = []
    for line in chosen:
        if kept and len(line) + 1 > room:
            break
        kept.append(
            line if len(line) <= room else f"{line[: max(_SHORTEST, room - len(CUT))]}{CUT}"
        )
        room -= len(kept[-1]) + 1
    end = first + len(kept) - 1
    parts = [f"{in_line(place_of(document, first, end))} {told}", "\n".join(kept)]
    if end < last:
        go_on = in_line(f"{on}:{end + 1}")
        parts.append(f"[lines {end + 1}-{last} are left out; go on: {go_on}]")
        if outline:
            parts.append(f"{_OUTLINE}\n{outline}")
    return "\n\n".join(parts), end


def _since(document: Document, state: str) -> str:
    """What became of a document's file since it was read, and what to do."""
    if state not in _SINCE:
        return ""
    into = state == "changed" and document.library != "default"
    return f"the file {_SINCE[state]}" + (f" into {cut(document.library, 60)}" if into else "")


def _metadata(metadata: Mapping[str, Any] | None, room: int) -> str:
    """A line with the metadata, after a line end; nothing where there is none."""
    if not metadata:
        return ""
    return f"\nmetadata {in_line(cut(to_json(dict(metadata)), min(_METADATA, room // 6)))}"


def _outline(headings: list[DocumentHeading], room: int) -> str:
    """Headings with their lines, of the deepest levels that fit into `room` characters."""
    for deepest in range(6, 0, -1):
        shown = [
            f"{each.line} {'#' * each.level} {each.title}"
            for each in headings
            if each.level <= deepest
        ]
        if sum(map(len, shown)) + len(shown) <= room:
            return "\n".join(shown)
    return "\n".join(shown)[:room].rpartition("\n")[0]


def _read_memory(db: Database, memory: Memory, around: int, room: int) -> str:
    told = [place_of(memory), cut(memory.thread, room // 6), memory.created_at[:10]]
    if memory.tags:
        told.append(f"tags {cut(', '.join(memory.tags), room // 6)}")
    if memory.provenance in _FROM:
        told.append(_FROM[memory.provenance])
    if memory.validity:
        told.append(memory.validity)
    head = in_line(" · ".join(told)) + _metadata(memory.metadata, room)
    room -= len(head) + len("\n\n")
    text = memory.text
    if len(text) > room:
        larger = "\n\n[ask with a larger budget for the rest]"
        text = f"{text[: max(_SHORTEST, room - len(larger) - len(CUT))]}{CUT}{larger}"
    parts = [f"{head}\n\n{text}"]
    room -= len(text)
    left = 0
    for each in _neighbours(db, memory, around):
        near = in_line(f"{place_of(each)} · {each.created_at[:10]} · {cut(each.text, 200)}")
        if len(near) + 60 > room:
            left += 1
            continue
        # In the order of the thread, the memory itself in its place.
        parts.insert(len(parts) if each.id > memory.id else len(parts) - 1, near)
        room -= len(near) + 2
    if left and room >= 50:
        parts.append(f"[{left:,} more around it: ask with a larger budget]")
    return "\n\n".join(parts)


def _neighbours(db: Database, memory: Memory, around: int) -> list[Memory]:
    """So many memories before and after one in its thread, in their order."""
    if not around:
        return []
    older: dict[str, Any] = {"thread": memory.thread, "where": {"id": {"lt": memory.id}}}
    newer: dict[str, Any] = {"thread": memory.thread, "where": {"id": {"gt": memory.id}}}
    skip = max(0, db.memories.count(**newer) - around)  # pages begin with the newest
    after = db.memories.browse(limit=around, offset=skip, **newer)
    return [*reversed([*after, *db.memories.browse(limit=around, **older)])]


def counted(count: int, one: str, several: str) -> str:
    """The number with its noun: 1 document, 2,722 documents."""
    return f"{count:,} {one if count == 1 else several}"


def status(
    db: Database,
    *,
    kind: Annotated[Kind, "List these instead"] = "all",
    library: OptionalText = "",
    thread: OptionalText = "",
    offset: OptionalNumber = 0,
    grant: Grant = Grant(),  # noqa: B008 - immutable
) -> str:
    """Show projects, libraries, threads, jobs, what waits for embedding, model and size; or list a
    library's documents, or a thread's or the newest memories.
    """
    scope = chosen(db, "")
    if library and (thread or kind == "memories"):
        raise InvalidInput("memories are in no library: list documents or memories, not both")
    if thread and kind == "documents":
        raise InvalidInput("documents are in no thread: give a library, or kind memories")
    if library or kind == "documents":
        which: dict[str, Any] = {"where": {"library": {"in": scope.libraries}}} if scope else {}
        name = inside(scope, library) or None
        return _listed(db, scope, "documents", offset, library=name, **which)
    if thread or kind == "memories":
        which = {"project": scope.name} if scope else {}
        name = inside(scope, thread) or None
        return _listed(db, scope, "memories", offset, thread=name, **which)
    stats = db.stats()
    libraries = _libraries(db, scope)
    lines = [
        f"Documents: {stats.documents:,} ({stats.chunks:,} passages). "
        f"Memories: {stats.memories:,}. {stats.bytes / 1e6:,.1f} MB. Model: {stats.model}.",
    ]
    lines += [scope_line(scope)] if scope else []
    lines += [in_line(f"Job: {each}") for each in grant.jobs()]
    backlogs = (db.documents.backlog(), db.memories.backlog())
    lines += [f"Embedding: {each.note}" for each in backlogs if each.note]
    lines += [in_line(f"Note: {each}") for each in stats.notes]
    kept = db.documents.followed
    named = [
        f"{each.name}: {counted(each.documents, 'document', 'documents')}"
        + (f" · {each.description}" if each.description else "")
        + (f" · follows {each.root}" if each.root else "")
        + (f", {kept[each.name]}" if each.name in kept else "")
        for each in libraries[:MOST_LIBRARIES]
    ]
    lines += [in_line(f"Library {each}") for each in named]
    if more := len(libraries) - len(named):
        lines.append(f"[{more} more libraries]")
    if projects := db.projects.browse()[:10] if scope is None else []:
        shown = ", ".join(f"{each.name} ({each.memories:,})" for each in projects)
        lines.append(in_line(f"Projects: {shown}"))
    threads = db.memories.threads() if stats.memories else []
    if threads := [each for each in threads if scope is None or _in_thread(scope, each.name)][:10]:
        shown = ", ".join(f"{cut(each.name, 60)} ({each.memories:,})" for each in threads)
        lines.append(in_line(f"Threads: {shown}"))
    return "\n".join(lines)


def _libraries(db: Database, scope: ProjectScope | None) -> list[Library]:
    every = db.documents.libraries()
    return [each for each in every if scope is None or each.name in scope.libraries]


def _in_thread(scope: ProjectScope, thread: str) -> bool:
    return thread == scope.name or thread.startswith(f"{scope.name}/")


LISTED = 50  # documents or memories on a page


def _listed(db: Database, scope: ProjectScope | None, noun: str, offset: int, **which: Any) -> str:
    """A page of documents, by path, or of memories, newest first, and how to go on."""
    shelf: Any = db.documents if noun == "documents" else db.memories
    order = {"sort": "path"} if noun == "documents" else {}
    lines = []
    for each in shelf.browse(limit=LISTED, offset=offset, **order, **which):
        if isinstance(each, Memory):
            said = f"{cut(each.thread, 60)}, {each.created_at[:10]} · {cut(each.text, 120)}"
            said += f" · {each.validity}" if each.validity else ""
        else:
            said = f"{cut(each.title, 60)} · {(each.modified or each.created_at)[:10]}"
        lines.append(in_line(f"{place_of(each)} · {said}"))
    total, last = shelf.count(**which), offset + len(lines)
    if not lines:
        why = "" if offset else shelf.why_empty(**which)
        return f"None of {total:,} {noun} from offset={offset} on." + (f" {why}." if why else "")
    more = f"; go on with offset={last}" if last < total else ""
    of = in_line(f"; project: {scope.name}") if scope else ""
    return "\n".join([*lines, f"[{noun} {offset + 1:,}-{last:,} of {total:,}{more}{of}]"])


MOST_HITS = 100
MOST_LINES = 200
LONGEST_LINE = 200


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
    project: Annotated[OptionalText, "Name, or all"] = "",
    tags: Annotated[OptionalTexts, "Only memories with one of them"] = NO_TEXTS,
    where: Annotated[
        OptionalObject,
        '{"file_type": "pdf", "metadata.year": {"gte": 2020}}; operators eq ne gt gte lt lte in '
        "not_in exists contains starts_with ends_with array_contains",
    ] = NOTHING,
    since: Annotated[OptionalText, "Date or age: 2025-11, 7d"] = "",
    until: Annotated[OptionalText, "Like since"] = "",
    limit: int = 8,
    offset: OptionalNumber = 0,
    group: Annotated[Flag, "One passage per document first"] = False,
    newer: Annotated[OptionalText, "Prefer newer, by half-life: 30d"] = "",
    as_of: Annotated[OptionalText, "Memories that held then; any: replaced ones too"] = "",
    min_relevance: Annotated[OptionalFraction, "Chance, 0 to 1"] = 0,
    budget: Annotated[int, "Tokens of the reply"] = 2000,
    client: Client = NOBODY,
) -> Reply:
    """Find passages of documents and memories by words and meaning. Start here.

    Hits are cited as path:lines or memory:N, places for `read`, `similar`, `verify`; each is a
    strong, possible or weak match. If nothing relevant was found, say so.
    """
    within("limit", limit, 1, MOST_HITS)
    room_of(budget)
    scope, asked = chosen(db, project), _query(query)
    found = db.search(
        asked,
        kind=None if kind == "all" else kind,
        library=inside(scope, library) or None,
        thread=inside(scope, thread) or None,
        project=scope and scope.name,
        tags=tags or None,
        where=where,
        since=since or None,
        until=until or None,
        limit=limit,
        offset=offset,
        min_relevance=min_relevance,
        group=group,
        newer=newer or None,
        as_of=as_of or None,
    )
    remarks = [*_remarks(db, found), scope_line(scope)]
    told = _hits(db, found, budget, remarks, offset)
    return viewed(told, client, lambda chat: chat.of_results(db, found, asked, remarks))


def similar(
    db: Database, *, place: str, kind: Kind = "all", limit: int = 5, budget: int = 1000
) -> str:
    """Find what is most similar to a stored document or memory, or to the passage at a line."""
    within("limit", limit, 1, MOST_HITS)
    room_of(budget)
    given, scope = locate(db, place), chosen(db, "")
    found = db.similar(
        **given.names,
        kind=None if kind == "all" else kind,
        project=scope and scope.name,
        limit=limit,
    )
    why = found.reasons.get("vector", "")
    remarks = [f"Nothing can be compared with it: {why}."] if why else []
    return _hits(db, found, budget, [*remarks, scope_line(scope)])


def grep(
    db: Database,
    *,
    pattern: Annotated[str, "Regular expression (RE2)"],
    literal: Annotated[Flag, "Plain text"] = False,
    ignore_case: Flag = False,
    kind: Kind = "all",
    library: OptionalText = "",
    thread: OptionalText = "",
    project: OptionalText = "",
    limit: int = 50,
) -> str:
    """Find and count all lines that match, as path:line: text."""
    within("limit", limit, 1, MOST_LINES)
    scope = chosen(db, project)
    found = db.grep(
        pattern,
        literal=literal,
        case_sensitive=not ignore_case,
        kind=None if kind == "all" else kind,
        library=inside(scope, library) or None,
        thread=inside(scope, thread) or None,
        project=scope and scope.name,
        limit=limit,
    )
    lines = [
        in_line(f"{place_of(each.item)}:{each.line}: {cut(each.text.strip(), LONGEST_LINE)}")
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
    return "\n".join([*lines, *([f"{found.note}."] if found.note else []), scope_line(scope)])


def verify(
    db: Database,
    *,
    quotation: str,
    place: Annotated[OptionalText, "Where it should stand"] = "",
    page: Annotated[OptionalNumber, "With place"] = 0,
    client: Client = NOBODY,
) -> Reply:
    """Check a quotation before you cite it: it stands there exactly, with other spacing or hyphens,
    in other case, elsewhere, or is absent.
    """
    scope = chosen(db, "")
    names: dict[str, Any] = {"project": scope and scope.name}
    if place.strip():
        names |= locate(db, place).names
    elif page:
        raise InvalidInput(f"page {page} of what? give place, too")
    found = db.verify(quotation, page=page or None, **names)
    told = _verdict(db, found, scope)
    return viewed(told, client, lambda chat: chat.of_verdict(found, quotation, told))


def _verdict(db: Database, found: Quotation, scope: ProjectScope | None) -> str:
    """Where a quotation stands, and how exactly."""
    if found.item is None or not found.text:
        read = f"{found.searched:,} texts were read" + (f"; {found.note}" if found.note else "")
        return (
            f"absent: these words are in no stored text ({read}). Do not quote them; search for "
            f"what was meant. {scope_line(scope)}"
        )
    where = in_line(place_of(found.item, found.first_line, found.last_line))
    if found.status == "elsewhere":
        where = f"not there, but at {where}"
    if found.page is not None:
        where += f", p. {found.page}"
    if isinstance(found.item, Document) and found.item.extracted:
        where += ", lines of the extracted text"
    if not found.case:
        where += ", with other capital or small letters"
    elif not found.exact:
        where += ", with other spacing or marks"
    digests = f"SHA-256 of the text {found.text_sha256}"
    if isinstance(found.item, Document) and found.item.hash != found.text_sha256:
        digests += f", of its source {found.item.hash}"
    lines = [f"{found.status}: {where} ({digests})"]
    if not found.exact:
        lines.append(f"It stands there as: {cut(found.text, 1000)}")
    if isinstance(found.item, Memory) and found.item.validity:
        lines.append(f"It is {found.item.validity}.")
    if isinstance(item := found.item, Document) and (
        since := _since(item, db.documents.state(item))
    ):
        lines.append(in_line(f"{since[0].upper()}{since[1:]}."))
    return "\n".join(lines)


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
    if found.weak_from:
        which = f"{found.weak_from} of these are" if found.weak_from > 1 else "of these is"
        remarks.append(f"Only the first {which} more than a weak match.")
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


def _hits(
    db: Database,
    found: Results[Chunk | Memory],
    budget: int,
    remarks: Sequence[str],
    asked_from: int | None = None,
) -> str:
    """The hits that fit, from the offset that was asked for; None where none can be."""
    room, offset = room_of(budget), asked_from or 0
    fit = db.context(found, budget=budget, offset=offset, reserved=sum(map(len, remarks)))
    if since := _hits_since(db, found, fit.shown, room, offset):
        reserved = sum(map(len, [*remarks, *since]))
        fit = db.context(found, budget=budget, offset=offset, reserved=reserved)
        since = _hits_since(db, found, fit.shown, room, offset)  # fewer may be shown now
    notes = [*remarks, *since]
    if left := len(found) - fit.shown:
        further = "" if asked_from is None else f"offset={offset + fit.shown}, or "
        notes.append(
            f"{counted(left, 'more hit is', 'more hits are')} left out for the budget: ask with "
            f"{further}budget={min(MAX_BUDGET, fit.needed)}."
        )
    if fit.shortened:
        notes.append("[…] marks cut passages: read their place for the whole.")
    most = max(_SHORTEST, room - len(fit.text) - len("\n\n"))
    said = " ".join(notes)
    said = said if len(said) <= most else f"{said[: most - len(CUT)]}{CUT}"
    return "\n\n".join(filter(None, [fit.text, said]))


def _hits_since(
    db: Database, found: Results[Chunk | Memory], shown: int, room: int, offset: int
) -> list[str]:
    """Which of the hits that are shown are of files that changed or vanished since."""
    chunks = {
        number: hit.item.document
        for number, hit in enumerate(found.hits[:shown], offset + 1)
        if isinstance(hit.item, Chunk)
    }
    documents = {each.id: each for each in chunks.values()}
    states = {id: db.documents.state(each) for id, each in documents.items()}
    remarks = []
    for state, told in _SINCE.items():
        cited = [f"[{number}]" for number, each in chunks.items() if states[each.id] == state]
        if cited:
            remarks.append(f"The file of {cut(', '.join(cited), room // 6)} {told}.")
    return remarks


THREAD, LIBRARY = "general", "default"
_SKIPPED = 20  # files that were skipped or have vanished which a reply names
_FAILURES = 5  # files that could not be read which a reply names


def remember(
    db: Database,
    *,
    text: str,
    thread: Annotated[str, "Its topic"] = THREAD,
    project: OptionalText = "",
    tags: OptionalTexts = NO_TEXTS,
    metadata: OptionalObject = NOTHING,
    replace: Annotated[OptionalText, "memory:N that this corrects"] = "",
    valid_from: OptionalText = "",
    valid_to: OptionalText = "",
    place: Annotated[OptionalText, "Where you read it"] = "",
    client: Client = NOBODY,
) -> str:
    """Keep a fact, decision or preference for later. Says if nearly the same or its contrary is
    remembered.
    """
    not_blank("text", text, ": say what to remember")
    provenance = _provenance(locate(db, place).item) if place.strip() else "agent"
    holds: dict[str, Any] = {"valid_from": valid_from or None, "valid_to": valid_to or None}
    if replace.strip():
        given = locate(db, replace)
        if not isinstance(old := given.item, Memory):
            raise InvalidInput(
                f"{given.place} is a document; replace takes a memory such as memory:7"
            )
        if old.replaced_by is None:  # otherwise it cannot be replaced, which is said below
            question = f"Replace this memory? {_quoted(old)} Instead: {_words(text)}"
            client.confirm(question, old, text)
        values = {**(old.metadata or {}), **metadata}
        done = db.memories.add(
            old.thread,
            "agent",
            text,
            tags=tags or old.tags,
            metadata={key: each for key, each in values.items() if each is not None} or None,
            images=db.memories.get(old.id).images or None,
            replaces=old.id,
            provenance=provenance,
            **holds,
        )
        was = f"It replaces {place_of(old)}, which was: {cut(old.text, 200)}"
        return _changed("remembered", done.memory, was, done.note, done.redacted)
    scope = chosen(db, project, new=True)
    near = db.memories.near(text, project=scope and scope.name)
    for each in near:
        if each.same and not any(holds.values()):
            since = f"It is remembered already, since {each.memory.created_at[:10]}."
            return _changed("known", each.memory, since)
    if contrary := [each.memory for each in near if each.contradiction is not None]:
        shown = " ".join(map(_quoted, contrary[:_CONTRARY]))
        more = f" And {len(contrary) - _CONTRARY:,} more." if len(contrary) > _CONTRARY else ""
        other = counted(len(contrary), "memory", "memories")
        client.confirm(
            f"Remember this? {_words(text)} It contradicts {other}, which will stay: {shown}{more}",
            *contrary,
        )
    stored = db.memories.add(
        inside(scope, thread, THREAD),
        "agent",
        text,
        tags=tags or None,
        metadata=metadata or None,
        provenance=provenance,
        **holds,
    )
    return _changed("remembered", stored.memory, _compared(near), stored.note, stored.redacted)


def _provenance(item: Document | Memory) -> Literal["agent", "document", "web"]:
    """What a text is from that was read at a place; never a person, who would say it."""
    if isinstance(item, Document):
        return "web" if is_url(item.source) else "document"
    return "agent" if item.provenance == "person" else item.provenance


def _compared(near: Sequence[Near]) -> str:
    """What else is remembered that says nearly the same as a new memory, or contradicts it."""
    told = []
    for each in near:
        if each.contradiction is not None:
            here, there = (cut(value, 60) for value in each.contradiction)
            told.append(
                f"It contradicts {place_of(each.memory)} ({cut(each.memory.text, 120)}): {there} "
                f"there, {here} here. Both are remembered: forget the wrong one, or end the old "
                "one by update with valid_to."
            )
    others = [each.memory for each in near if each.contradiction is None]
    known = "; ".join(f"{place_of(each)} ({cut(each.text, 120)})" for each in others)
    if known:
        told.append(
            f"Nearly the same is remembered: {known}. If this corrects it, forget the old one."
        )
    return " ".join(told)


def ingest(
    db: Database,
    *,
    source: Annotated[str, "File, folder or URL; with text, a name for it: notes/tea.md"],
    text: OptionalText = "",
    library: str = LIBRARY,
    title: OptionalText = "",
    metadata: OptionalObject = NOTHING,
    replace: Flag = False,
    grant: Grant = Grant(),  # noqa: B008 - immutable
) -> str:
    """Store a text, file, folder or web page for `search`. Unchanged sources stay, changed ones are
    replaced; by `text` only with `replace`. What takes long goes on as a job, shown by `status`.
    """
    source = not_blank("source", source, ": give a file, a folder, a URL, or a name")
    library = inside(chosen(db, "", new=True), library, LIBRARY)
    if text.strip():
        return _ingested(
            db.documents.ingest_text(
                text,
                source=source,
                title=title.strip() or None,
                library=library,
                metadata=metadata,
                replace=replace,
                progress=grant.progress,
            )
        )
    is_file = not is_url(source)
    if is_file:
        grant.check_files(instead="; give the text itself, or a URL")
    # os.path answers False for names that cannot be, where Path raises.
    if is_file and os.path.isdir(os.path.expanduser(source)):  # noqa: PTH111, PTH112
        done = db.documents.ingest_folder(
            source, library=library, metadata=metadata, embed=False, **grant.reading()
        )
        db.embed_in_background()
        return _synced(db, done)
    return _ingested(
        db.documents.ingest(
            source, library=library, metadata=metadata, wait=False, **grant.reading()
        )
    )


def update(
    db: Database,
    *,
    place: str,
    metadata: Annotated[OptionalObject, "Merged; null removes a key"] = NOTHING,
    tags: Annotated[list[str] | None, "Replace the old ones"] = None,
    title: OptionalText = "",
    library: Annotated[OptionalText, "Move it there"] = "",
    valid_to: OptionalText = "",
) -> str:
    """Change metadata or tags, of a document also title or library. Texts are corrected by
    `remember` and `ingest`.
    """
    if not metadata and tags is None and not title and not library and not valid_to:
        raise InvalidInput("nothing to change: give metadata, tags, title, library or valid_to")
    given = _to_change(db, place)
    if isinstance(given.item, Memory):
        if title or library:
            raise InvalidInput("a memory has no title and no library: give metadata or tags")
        done = db.memories.update(
            given.item.id,
            metadata_patch=metadata or None,
            tags=tags,
            valid_to=valid_to or None,
        )
        written = f"Written: {', '.join(done.fields)}."
        return _changed("updated", done.memory, written, "", done.redacted)
    if valid_to:
        raise InvalidInput("a document has no valid_to, only memories have one")
    patch = metadata if tags is None else {**metadata, "tags": tags}
    told = _ingested(
        db.documents.update(
            given.item.id,
            metadata_patch=patch or None,
            title=title or None,
            library=inside(chosen(db, ""), library) or None,
        )
    )
    if not tags:
        return told
    where = to_json({"metadata.tags": {"array_contains": tags[0]}})
    return f"{told}\nTags of a document are in its metadata: search with where={where}"


def forget(
    db: Database,
    *,
    place: str,
    client: Client = NOBODY,
) -> str:
    """Delete a document or memory; ask the user first, who can undo it: `mcpvectordb undo`. Its
    file stays.
    """
    given = _to_change(db, place)
    if isinstance(given.item, Memory):
        client.confirm(f"Delete this memory? {_quoted(given.item)} {_UNDO}", given.item)
        deleted = db.memories.delete([given.item.id])
        what = cut(given.item.text, 120)
    else:
        if client.asks:
            begins = _words(db.documents.text(given.item.id)[:1000])
            question = f"Delete this document? {_quoted(given.item)} It begins: {begins} {_UNDO}"
            client.confirm(f"{question} Its file stays.", given.item)
        deleted = db.documents.delete(given.item.id)
        what = given.item.title
    if not deleted:
        raise NotFound(f"{cut(given.place, MAX_ECHO)} was deleted by somebody else meanwhile")
    return in_line(f"{given.place} was deleted: {what}")


_UNDO = "You can undo it by `mcpvectordb undo`."
_CONTRARY = 3  # memories that a question shows
_WORDS = 120  # characters of a text that a question shows
# What could hide or reorder the words of a question, or end a quotation in it.
_DISGUISES = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\u00ad“”]")


def _quoted(item: Document | Memory) -> str:
    """What a question says of something stored: its name and its first words, marked as such."""
    if isinstance(item, Memory):
        return f"{place_of(item)} of {item.created_at[:10]} says {_words(item.text)}"
    passages = counted(item.chunks, "passage", "passages")
    return f"{_words(place_of(item))}, titled {_words(item.title)}, with {passages}."


def _words(text: str) -> str:
    """The first words of a stored text, in quotation marks that it cannot end."""
    shown = cut(" ".join(text.split()), _WORDS)
    return f"“{_DISGUISES.sub('�', in_line(shown))}”"


def _to_change(db: Database, place: str) -> Located:
    """What a place names, if it can be changed: a memory or a whole present document."""
    given = locate(db, place)
    if isinstance(given.item, Memory):
        return given
    if given.former:
        raise InvalidInput(
            f"{cut(place, 200)} was replaced by {given.item.id} ({given.place}): name that one, if "
            "it is meant"
        )
    if given.line is not None:
        raise InvalidInput("lines cannot be changed: name the whole document, without lines")
    return given


def _changed(status: str, memory: Memory, remark: str, note: str = "", redacted: str = "") -> str:
    thread = in_line(cut(memory.thread, 60))
    told = f"{status}: {place_of(memory)} in {thread}."
    if memory.validity:
        told += f" It is {memory.validity}: search finds it as of then."
    left_out = f"Of what was given, {redacted}." if redacted else ""
    return " ".join(filter(None, [told, remark, note, left_out]))


def _ingested(done: Ingested) -> str:
    document = done.document
    told = in_line(
        f"{done.status}: {place_of(document)} · {document.title} · passages: {document.chunks:,}"
    )
    return "\n".join(filter(None, [told, done.note]))


def _synced(db: Database, done: Synced) -> str:
    counts = {
        "indexed": done.indexed,
        "replaced": done.replaced,
        "updated": done.updated,
        "unchanged": done.unchanged,
        "skipped": sum(done.skipped.values()),
        "failed": len(done.failures),
    }
    backlog = db.documents.backlog()
    told = [f"{count:,} {name}" for name, count in counts.items() if count or name == "indexed"]
    lines = [f"ingested into {done.library}: {', '.join(told)}"]
    if done.skipped:
        skipped = (f"{count:,} {why}" for why, count in done.skipped.items())
        lines.append(f"Skipped: {', '.join(skipped)}")
        lines += [in_line(f"- {path}: {why}") for path, why in done.skipped_paths[:_SKIPPED]]
        if (more := sum(done.skipped.values()) - _SKIPPED) > 0:
            lines.append(f"[{more:,} more skipped]")
    if done.vanished:
        shown = ", ".join(done.vanished[:_SKIPPED])
        more = len(done.vanished) - _SKIPPED
        lines.append(
            in_line(f"No longer in the folder, still stored: {shown}")
            + (f" and {more:,} more" if more > 0 else "")
            + "; forget what is not wanted any more"
        )
    lines += [f"Failed: {Path(path).name}: {why}" for path, why in done.failures[:_FAILURES]]
    if (more := len(done.failures) - _FAILURES) > 0:
        lines.append(f"[{more} more failed]")
    lines += [f"{note}." for note in (backlog.note, done.note) if note]
    return "\n".join(lines)


VERSION = "1.0.0"
# Characters of the libraries and threads in the instructions.
_ABOUT = 600


def about(db: Database) -> str:
    """What the file holds, for the instructions: libraries, largest first, and threads."""
    scope = chosen(db, "")
    libraries = sorted(_libraries(db, scope), key=lambda each: (-each.documents, each.name))
    lines = [
        f"- {each.name}: {counted(each.documents, 'document', 'documents')}"
        + (f", {cut(' '.join(each.description.split()), 150)}" if each.description else "")
        for each in libraries
    ]
    project = scope and scope.name
    if memories := db.memories.count(project=project):
        # Counting all threads would take too long for a handshake.
        shown = db.memories.browse(limit=50, project=project)
        newest = dict.fromkeys(each.thread for each in shown)
        threads = ", ".join(cut(each, 40) for each in list(newest)[:8])
        told = counted(memories, "memory", "memories")
        lines.insert(0, f"- {told}, newest threads: {threads}")
    if not lines:
        return (
            f"Nothing is stored yet in project {project}." if project else "Nothing is stored yet."
        )
    kept: list[str] = []
    while len(kept) < len(lines) and sum(map(len, kept)) + len(lines[len(kept)]) < _ABOUT:
        kept.append(lines[len(kept)])
    if left := len(lines) - len(kept):
        kept.append(f"- and {left:,} more libraries")
    of = f" in project {project}" if project else ""
    return "\n".join([in_line(f"Stored now{of}:"), *map(in_line, kept)])


def failure(tool: str, error: MCPVectorDBError) -> Reply:
    """An error as this surface reports it: MCP's error flag, what is wrong, and the next step.

    A call that goes on in the background is no error.
    """
    if isinstance(error, UnderWay):
        return Reply(content=(Text(text=str(error)),))
    said = str(error).rstrip(".")
    step = next((step for kind, step in _NEXT_STEPS.items() if isinstance(error, kind)), "")
    return failed(f"{said}. {step}".rstrip())


# What to do after errors that do not say it themselves.
_NEXT_STEPS: dict[type[MCPVectorDBError], str] = {
    InternalError: "Try it once more, then go another way.",
    ModelError: "What is stored is found by words meanwhile.",
    NotAgreed: "Leave it as it is, unless the user asks for it again.",
    Refused: "Ask the user; do not try other paths to it.",
    IngestError: "Tell the user; a text that you have can be ingested by itself.",
}


SURFACE = Surface(
    name="desk",
    version=VERSION,
    instructions=prose("desk"),
    about=about,
    tools=(
        Tool(search, "Search", READS, more="lower limit or budget", view=True),
        Tool(read, "Read", READS, more="lower the budget", view=True),
        Tool(grep, "Find lines", READS, more="lower limit"),
        Tool(verify, "Verify a quotation", READS, view=True),
        Tool(similar, "Find similar", READS, more="lower limit or budget"),
        Tool(remember, "Remember", ADDS, max_text=1_000_000),
        Tool(ingest, "Ingest", ADDS._replace(open_world=True), max_text=5_000_000),
        Tool(update, "Update", OVERWRITES),
        Tool(forget, "Forget", OVERWRITES),
        Tool(status, "Status", READS),
    ),
    failure=failure,
    templates=desk_resources.templates(
        lambda db, place: str(read(db, place=place, budget=MAX_BUDGET).content[0].text), _listed
    ),
    listed=desk_resources.page,
)
