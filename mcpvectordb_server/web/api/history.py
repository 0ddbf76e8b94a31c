"""/api/history and /api/undo: what was changed, by whom and when, and taking it back."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mcpvectordb import HistoryEntry, Undone
from mcpvectordb_server.shown import JsonReply, shows
from mcpvectordb_server.web.api.documents import Limit
from mcpvectordb_server.web.site import Site

ChangeNumber = Annotated[int, "The number of a change", Field(ge=1, lt=2**63)]


@shows(changes=list[HistoryEntry])
def list_changes(
    site: Site,
    *,
    name: Annotated[str | None, "Of this document, memory:7, vector or library"] = None,
    since: Annotated[str | None, "From this time on: 2026-11-29, today, 2d"] = None,
    limit: Limit = 50,
) -> JsonReply:
    """List what was changed, by whom and when, the newest first."""
    return {"changes": list(site.db.history(name, since=since, limit=limit))}


@shows(number=int, diff=str)
def diff(
    site: Site,
    *,
    number: ChangeNumber,
    name: Annotated[str | None, "Of this document, memory:7, vector or library"] = None,
) -> JsonReply:
    """Show what a change did to texts and metadata."""
    return {"number": number, "diff": site.db.diff(number, name)}


def undo(
    site: Site, *, change: Annotated[ChangeNumber | None, "The latest one, if left out"] = None
) -> Undone:
    """Take back a change; that is a change itself, which can be taken back."""
    done = site.db.undo(change, embed=False)
    site.embed()
    return done
