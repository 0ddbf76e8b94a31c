"""/api/history and /api/undo: what was changed, by whom and when, and taking it back."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from mcpvectordb import HistoryEntry
from mcpvectordb_server.web.api.documents import Limit
from mcpvectordb_server.web.site import Site

ChangeNumber = Annotated[int, "The number of a change", Field(ge=1, lt=2**63)]


class ItemEntry(TypedDict):
    """What a change did to a document, a memory, a vector or a library."""

    shelf: str
    name: str
    kind: Literal["added", "replaced", "updated", "deleted"]
    title: str


class ChangeEntry(TypedDict):
    """One change: its first items, and how many there are."""

    number: int
    time: str
    actor: str
    action: str
    items: list[ItemEntry]
    count: int


class HistoryReply(TypedDict):
    """Changes, the newest first."""

    changes: list[ChangeEntry]


class DiffReply(TypedDict):
    """What a change did to texts and metadata, as a unified diff."""

    number: int
    diff: str


class UndoReply(TypedDict):
    """What an undo did, by the names of items; `kept` were changed again since."""

    number: int
    restored: list[str]
    removed: list[str]
    kept: list[str]
    note: str


def list_changes(
    site: Site,
    *,
    name: Annotated[str | None, "Of this document, memory:7, vector or library"] = None,
    since: Annotated[str | None, "From this time on: 2026-11-29, today, 2d"] = None,
    limit: Limit = 50,
) -> HistoryReply:
    """List what was changed, by whom and when, the newest first."""
    return {"changes": [_entry(each) for each in site.db.history(name, since=since, limit=limit)]}


def diff(site: Site, *, number: ChangeNumber) -> DiffReply:
    """Show what a change did to texts and metadata."""
    return {"number": number, "diff": site.db.diff(number)}


def undo(
    site: Site, *, change: Annotated[ChangeNumber | None, "The latest one, if left out"] = None
) -> UndoReply:
    """Take back a change; that is a change itself, which can be taken back."""
    done = site.db.undo(change, embed=False)
    site.embed()
    return {
        "number": done.number,
        "restored": list(done.restored),
        "removed": list(done.removed),
        "kept": list(done.kept),
        "note": done.note,
    }


def _entry(entry: HistoryEntry) -> ChangeEntry:
    return {
        "number": entry.number,
        "time": entry.time,
        "actor": entry.actor,
        "action": entry.action,
        "items": [
            {"shelf": each.shelf, "name": each.name, "kind": each.kind, "title": each.title}
            for each in entry.items
        ],
        "count": entry.count,
    }
