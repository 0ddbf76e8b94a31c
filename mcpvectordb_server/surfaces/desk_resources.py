"""Documents and memories of the surface desk as resources: which there are, and what changes them.

A document is mcpvectordb://documents/PATH, by its path in listings, which stays the same when the
document is replaced; several of one source share it, and the newest is read. A memory is
mcpvectordb://memories/ID.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

from mcpvectordb import Database, Document, InvalidInput, Memory, NotFound, ProjectScope
from mcpvectordb_server.replies import MAX_ECHO, cut
from mcpvectordb_server.surface import ListedResource, Position, ResourceTemplate

SCHEME = "mcpvectordb://"
DOCUMENTS, MEMORIES = f"{SCHEME}documents/", f"{SCHEME}memories/"

PAGE = 100
"""Resources on a page of the listing."""

COMPLETED = 101
"""Paths and ids that are looked for to complete one: MCP allows 100, and one more says so."""

Read = Callable[[Database, str], str]


def templates(read: Read, listing: Callable[..., str]) -> tuple[ResourceTemplate, ...]:
    """The templates of desk: `read` reads a place, `listing` the first items of a kind."""
    document = ResourceTemplate(
        prefix=DOCUMENTS,
        name="document",
        title="Document",
        description="A document by its path as search cites it, also with lines: path:12-20",
        read=read,
        complete=_paths,
        watched=_watched_document,
    )
    memory = ResourceTemplate(
        prefix=MEMORIES,
        name="memory",
        title="Memory",
        description="A memory by its number",
        media_type="text/plain",
        variable="id",
        read=lambda db, id: read(db, f"memory:{id}"),
        complete=_ids,
        watched=_watched_memory,
    )
    lists = (
        ResourceTemplate(
            prefix=f"{SCHEME}{folder}/",
            name=name,
            title=name.title(),
            description=f"{what}; the tool status lists the others",
            media_type="text/plain",
            variable=f"+{name}",
            read=partial(_first, listing, name),
            complete=partial(_names, name),
        )
        for folder, name, what in (
            ("libraries", "library", "The first documents of a library"),
            ("threads", "thread", "The newest memories of a thread"),
            ("tags", "tag", "The newest memories with a tag"),
        )
    )
    return document, memory, *lists


def _first(listing: Callable[..., str], kind: str, db: Database, name: str) -> str:
    """The first documents of a library, or memories of a thread or with a tag."""
    scope = _scope(db)
    if not name.strip():
        raise NotFound(f"there is no {kind} without a name")
    if kind == "library":
        where = {"library": {"in": scope.libraries}} if scope else None
        return listing(db, scope, "documents", 0, library=name, where=where)
    which = {"tags": [name]} if kind == "tag" else {"thread": name}
    return listing(db, scope, "memories", 0, project=scope and scope.name, **which)


def page(db: Database, after: Position) -> tuple[list[ListedResource], Position]:
    """A page of documents, by library and source, then of memories, the newest first.

    It goes on behind an item, not behind a number of them: what stays is listed once, whatever is
    added or deleted between two pages. Raises InvalidInput for a position that is none.
    """
    if len(after) not in (0, 3) or (after and after[0] not in ("documents", "memories")):
        raise InvalidInput("this cursor is none of ours")
    kind, *behind = after or ("documents", "", "")
    scope, found = _scope(db), list[ListedResource]()
    if kind == "documents":
        for which in _documents_behind(scope, *behind):
            room = PAGE - len(found)
            rows = db.documents.browse(limit=room, sort="path", **which).items
            for document in rows:
                # Several documents may have one source, and so one URI.
                if behind != (here := [document.library, document.source]):
                    found.append(_document(document))
                behind = here
            if len(rows) == room:
                return found, ("documents", *behind)
        behind = ["", ""]
    for conditions in _memories_behind(*behind):
        newest = db.memories.browse(
            limit=PAGE - len(found), where=conditions, project=scope and scope.name
        )
        for memory in newest:
            found.append(_memory(memory))
            behind = [memory.created_at, str(memory.id)]
        if len(found) == PAGE:
            return found, ("memories", *behind)
    return found, ()


def _documents_behind(
    scope: ProjectScope | None, library: str, source: str
) -> Iterator[dict[str, Any]]:
    """Filters that find, one after the other, the documents behind one; an index answers each."""
    if scope is None:
        if library:
            yield {"library": library, "where": {"source": {"gt": source}}}
        yield {"where": {"library": {"gt": library}}}
        return
    for name in sorted(each for each in scope.libraries if each >= library):
        yield {"library": name, "where": {"source": {"gt": source if name == library else ""}}}


def _memories_behind(created_at: str, id: str) -> Iterator[list[tuple[str, str, Any]]]:
    if not created_at:
        yield []
        return
    yield [("created_at", "eq", created_at), ("id", "lt", id)]
    yield [("created_at", "lt", created_at)]


def _document(document: Document) -> ListedResource:
    uri = DOCUMENTS + quote(document.path.encode("utf-8", "replace"), safe="/!'()*-._~")
    title = cut(" ".join(document.title.split()), MAX_ECHO)
    return ListedResource(uri, document.path, title, document.modified or document.created_at)


def _memory(memory: Memory) -> ListedResource:
    title = cut(" ".join(memory.text.split()), 80)
    return ListedResource(f"{MEMORIES}{memory.id}", memory.place, title, memory.updated_at)


def _watched_document(db: Database, path: str) -> Callable[[], object]:
    document = db.documents.lookup(path).document
    which: dict[str, Any] = {"library": document.library, "where": {"source": document.source}}
    return lambda: db.documents.browse(limit=2, **which).items


def _watched_memory(db: Database, id: str) -> Callable[[], object]:
    if not (id.isascii() and id.isdigit() and len(id) < 19):
        raise NotFound(f"there is no memory {cut(id, MAX_ECHO)}")
    db.memories.get(int(id), images=False)
    return partial(db.memories.get, [int(id)], images=False)


def _paths(db: Database, typed: str) -> list[str]:
    """The paths that begin with a text; where none does, those that have it somewhere."""
    scope = _scope(db)
    within: dict[str, Any] = {"library": {"in": scope.libraries}} if scope else {}
    for operator in ("starts_with", "contains"):
        where = {**within, "path": {operator: typed}} if typed else within
        found = db.documents.browse(limit=COMPLETED, sort="path", where=where)
        if found.items:
            return [each.path for each in found]
    return []


def _ids(db: Database, typed: str) -> list[str]:
    """The numbers of the newest memories that begin with some digits."""
    scope = _scope(db)
    newest = db.memories.browse(limit=COMPLETED, project=scope and scope.name)
    return [str(each.id) for each in newest if str(each.id).startswith(typed)]


def _names(kind: str, db: Database, typed: str) -> list[str]:
    """The libraries, threads or tags with a text in any case, those that begin with it first."""
    scope, wanted = _scope(db), typed.casefold()
    if kind != "library":
        names = list(db.memories.values(kind, project=scope and scope.name))
    else:
        names = scope.libraries if scope else list(db.documents.values("library"))
    return sorted(
        (each for each in names if wanted in each.casefold()),
        key=lambda each: (not each.casefold().startswith(wanted), each),
    )


def _scope(db: Database) -> ProjectScope | None:
    name = db.projects.chosen("")
    return None if name is None else db.projects.scope(name)
