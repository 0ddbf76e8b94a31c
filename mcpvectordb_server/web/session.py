"""What a page must know before anything else."""

from __future__ import annotations

from typing_extensions import TypedDict

from mcpvectordb import __version__
from mcpvectordb_server.web.site import Site


class SessionReply(TypedDict):
    """The file, what may be done with it, and the token that writes of a page need."""

    csrf: str | None
    read_only: bool
    version: str
    file: str
    path: str


def session(site: Site, csrf: str | None) -> SessionReply:
    """The first thing a page asks for; `csrf` is null for programs, which need none."""
    return SessionReply(
        csrf=csrf,
        read_only=site.db.read_only,
        version=__version__,
        file=site.db.path.name,
        path=site.db.place,
    )
