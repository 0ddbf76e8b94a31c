"""What a page must know before anything else."""

from __future__ import annotations

from typing_extensions import TypedDict

from mcpvectordb import __version__
from mcpvectordb_server.web.site import Site


class SessionReply(TypedDict):
    """The file, what may be done with it, and the token that a page sends from now on."""

    token: str
    read_only: bool
    version: str
    file: str
    path: str


def session(site: Site, token: str) -> SessionReply:
    """The first thing a page asks for, with the token of the address that it was opened by.

    `token` is good until the server ends; programs may go on with their own.
    """
    return SessionReply(
        token=token,
        read_only=site.db.read_only,
        version=__version__,
        file=site.db.path.name,
        path=site.db.place,
    )
