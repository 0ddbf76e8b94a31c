"""Places: how this surface names what is stored, in citations and in arguments.

A document is named by its path in listings, its file, its id or a #hash, with or without lines:
notes/tea.md, notes/tea.md:12, notes/tea.md:12-20, notes/tea.md:12:9. A memory is memory:7.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from typing_extensions import TypedDict

from mcpvectordb import Chunk, Database, Document, InvalidInput, Memory, NotFound
from mcpvectordb_server.replies import MAX_ECHO, cut

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
        return of(self.item)

    @property
    def names(self) -> NamedItem:
        """The arguments by which the library is told of it."""
        if isinstance(self.item, Memory):
            return {"document": None, "memory": self.item.id}
        return {"document": self.item.id, "memory": None}


class NamedItem(TypedDict):
    """A document or a memory, for `Database.similar` and `Database.verify`."""

    document: str | None
    memory: int | None


def of(item: Chunk | Document | Memory, first: int = 0, last: int = 0) -> str:
    """The name of something stored; a passage has its lines, a document those that are given."""
    if isinstance(item, Chunk):
        return of(item.document, item.first_line, item.last_line)
    if isinstance(item, Memory):
        return f"memory:{item.id}"
    return item.path + (f":{first}-{last}" if last > first else f":{first}" if first else "")


def in_line(text: str) -> str:
    """A text in one line: names from outside must not look like further lines of a reply."""
    return _BREAKS.sub("\ufffd", text)


def locate(db: Database, place: str) -> Located:
    """What a place names; raises NotFound with similar names."""
    place = place.strip()
    if not place:
        raise InvalidInput("say which place: a path, an id or memory:N, as in a search reply")
    if match := _MEMORY.fullmatch(place):
        return Located(memory(db, int(match[1])))
    # A document whose own name ends like lines is found first.
    for name in (place, *(f"{m[1]}:{m[2]}:{_count(m)}" for m in [_RANGE.fullmatch(place)] if m)):
        [found] = db.documents.lookup([name])
        if found is not None:
            return Located(found.document, found.line, found.lines, found.former)
    similar = db.documents.suggest(place)
    raise NotFound(
        f"there is no {cut(place, MAX_ECHO)}"
        + (f"; similar: {', '.join(similar)}" if similar else "; search for it, or grep its words")
    )


def memory(db: Database, id: int) -> Memory:
    """The memory with this number; raises NotFound."""
    found = db.memories.get([id], images=False)
    if not found:
        raise NotFound(f"there is no memory:{id}; search finds memories by their text")
    return found[0]


def _count(match: re.Match[str]) -> int:
    return max(1, int(match[3]) - int(match[2]) + 1)
