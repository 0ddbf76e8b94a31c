"""The tools read and status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from mcpvectordb import Database, Document, DocumentHeading, InvalidInput, Memory
from mcpvectordb_server.grant import Grant
from mcpvectordb_server.replies import cut, to_json
from mcpvectordb_server.surfaces.desk import places
from mcpvectordb_server.surfaces.desk.optional import OptionalNumber
from mcpvectordb_server.surfaces.desk.passages import room_of

# Share of the budget that the outline of a long document may take.
_OUTLINE_SHARE = 0.3
# Characters that are kept for the first line and for how to go on.
_REMARKS = 400
# Characters of a document's or memory's metadata.
_METADATA = 300
MOST_LIBRARIES = 50
_REPLACED = "This id is of an earlier version, which was replaced by this one:"


def read(
    db: Database,
    *,
    place: Annotated[str, "path, path:line:count, path:first-last, id or memory:N"],
    page: OptionalNumber = 0,
    around: Annotated[OptionalNumber, "Also so many lines before and after"] = 0,
    budget: int = 2000,
) -> str:
    """Read a document, lines or a page of it, or a memory. What is too long comes in part, with an
    outline (lines of headings) and how to go on.
    """
    room = room_of(budget)
    if around < 0:
        raise InvalidInput(f"around must be 0 or more, not {around}")
    given = places.locate(db, place)
    document = given.item
    if isinstance(document, Memory):
        return _memory(document, room)
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
    first, last = max(1, first - around), min(len(lines), last + around)
    part = _part(db, document, lines, first, last, room - len(_REPLACED))
    return f"{_REPLACED}\n{part}" if given.former else part


def _part(
    db: Database, document: Document, lines: list[str], first: int, last: int, room: int
) -> str:
    """As many of the lines as fit; what is left out is said, with an outline of it."""
    metadata = _metadata(document.metadata)
    room -= _REMARKS + len(metadata)
    chosen = lines[first - 1 : last]
    outline = ""
    if sum(map(len, chosen)) + len(chosen) > room:
        outline = _outline(db.documents.outline(document.id), int(room * _OUTLINE_SHARE))
        room -= len(outline)
    kept: list[str] = []
    for line in chosen:
        if kept and len(line) + 1 > room:
            break
        kept.append(line if len(line) <= room else f"{line[: max(40, room)]} […]")
        room -= len(kept[-1]) + 1
    end = first + len(kept) - 1
    place = places.of(document, first, end)
    head = f"{place} (of {len(lines):,} lines) · {document.title}"
    if document.modified:
        head += f" · {document.modified[:10]}"
    parts = [places.in_line(head) + metadata, "\n".join(kept)]
    if end < last:
        go_on = places.in_line(f"{document.path}:{end + 1}")
        parts.append(f"[lines {end + 1}-{last} are left out; go on: read {go_on}]")
        if outline:
            parts.append(f"Outline (line, heading):\n{outline}")
    return "\n\n".join(parts)


def _metadata(metadata: Mapping[str, Any] | None) -> str:
    """A line with the metadata, after a line end; nothing where there is none."""
    if not metadata:
        return ""
    return f"\nmetadata {places.in_line(cut(to_json(dict(metadata)), _METADATA))}"


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


def _memory(memory: Memory, room: int) -> str:
    told = [places.of(memory), memory.thread, memory.created_at[:10]]
    if memory.tags:
        told.append(f"tags {', '.join(memory.tags)}")
    text, metadata = memory.text, _metadata(memory.metadata)
    room -= _REMARKS + len(metadata)
    if len(text) > room:
        text = f"{text[: max(40, room)]} […]\n\n[ask with a larger budget for the rest]"
    return f"{places.in_line(' · '.join(told))}{metadata}\n\n{text}"


def counted(count: int, one: str, several: str) -> str:
    """The number with its noun: 1 document, 2,722 documents."""
    return f"{count:,} {one if count == 1 else several}"


def status(
    db: Database,
    *,
    grant: Grant = Grant(),  # noqa: B008 - immutable
) -> str:
    """Show libraries, threads, running jobs, what waits for embedding, model and size."""
    stats = db.stats()
    libraries = db.documents.libraries()
    lines = [
        f"Documents: {stats.documents:,} ({stats.chunks:,} passages). "
        f"Memories: {stats.memories:,}. {stats.bytes / 1e6:,.1f} MB. Model: {stats.model}."
    ]
    lines += [places.in_line(f"Job: {each}") for each in grant.jobs()]
    waiting = [each for each in (db.documents.backlog().note, db.memories.backlog().note) if each]
    lines += [f"Embedding: {each}" for each in waiting]
    lines += [places.in_line(f"Note: {each}") for each in stats.notes]
    named = [
        f"{each.name}: {counted(each.documents, 'document', 'documents')}"
        + (f" · {each.description}" if each.description else "")
        + (f" · follows {each.root}" if each.root else "")
        for each in libraries[:MOST_LIBRARIES]
    ]
    lines += [places.in_line(f"Library {each}") for each in named]
    if more := len(libraries) - len(named):
        lines.append(f"[{more} more libraries]")
    threads = db.memories.threads()[:10] if stats.memories else []
    if threads:
        lines.append(
            places.in_line(
                "Threads: "
                + ", ".join(f"{cut(each.name, 60)} ({each.memories:,})" for each in threads)
            )
        )
    return "\n".join(lines)
