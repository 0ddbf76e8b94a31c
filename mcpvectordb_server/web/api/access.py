"""/api/clients: which OAuth clients were let in at the public URL of a server, and out again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mcpvectordb import Access, ConnectedClient, is_database_url
from mcpvectordb_server.shown import JsonReply, rows, shows
from mcpvectordb_server.web.site import Site

ClientId = Annotated[int, "The id of a client", Field(ge=1, lt=2**63)]


@shows(clients=rows(ConnectedClient))
def list_clients(site: Site) -> JsonReply:
    """The clients that were let in and can still come, the last used first."""
    in_memory = str(site.db.path) == ":memory:"
    return {"clients": [] if in_memory else _access(site).connected()}


@shows(revoked=int)
def revoke_client(site: Site, *, id: ClientId) -> JsonReply:
    """Let a client out; running servers know it at once."""
    _access(site).revoke(id)
    return {"revoked": id}


def _access(site: Site) -> Access:
    place = site.db.place
    return Access(place if is_database_url(place) else site.db.path)
