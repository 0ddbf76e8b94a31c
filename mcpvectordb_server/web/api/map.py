"""/api/map and /api/duplicates: all passages in the plane, and those that say nearly the same."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from starlette.responses import Response

from mcpvectordb import Chunk, Memory
from mcpvectordb_server.shown import JsonReply, rows, shows
from mcpvectordb_server.web.api.documents import Offset
from mcpvectordb_server.web.hits import HitReply, item_replies
from mcpvectordb_server.web.site import Site

LONGEST_TEXT = 600  # characters of a passage that is pointed at
SHOWN = 10  # passages of a cluster in the list of clusters

BYTES = "application/octet-stream"


@shows(
    revision=int,
    current=bool,
    points=int,
    groups=rows(name=str, kind=Literal["documents", "memories"], points=int),
    explained=list[float],
    pending=int,
    clusters=int,
    seconds=float,
)
def get_map(
    site: Site, *, newest: Annotated[bool, "Compute it anew if the file has changed"] = True
) -> JsonReply:
    """The groups and the number of points of the map; the first time takes seconds.

    `explained` are the shares of variance of both axes.
    """
    made = site.map.current(newest=newest)
    projection = made.projection
    counts = [int((projection.groups == number).sum()) for number in range(len(projection.names))]
    return {
        "revision": made.revision,
        "current": made.revision == site.watch.revision,
        "points": len(projection),
        "groups": [
            {"name": name or "memories", "kind": kind, "points": count}
            for (kind, name), count in zip(projection.names, counts, strict=True)
        ],
        "explained": list(projection.explained),
        "pending": projection.pending,
        "clusters": len(made.duplicates),
        "seconds": round(made.seconds, 2),
    }


def get_points(
    site: Site, *, revision: Annotated[int | None, "That of /api/map"] = None
) -> Annotated[Response, BYTES]:
    """The points as bytes: see .github/docs/web.md for their layout."""
    made = site.map.current(newest=False)
    if revision not in (None, made.revision):
        made = site.map.current()
    revised = {"X-Revision": str(made.revision)}
    return Response(made.points, media_type=BYTES, headers=revised)


@shows(passages=list[HitReply])
def get_passages(
    site: Site,
    *,
    chunks: Annotated[list[int] | None, "Ids of passages", Field(max_length=500)] = None,
    memories: Annotated[list[int] | None, "Ids of memories", Field(max_length=500)] = None,
) -> JsonReply:
    """The passages and memories that points of the map stand for."""
    items: list[Chunk | Memory] = [
        *site.db.documents.chunks_by_ids(chunks or []),
        *site.db.memories.get(memories or [], images=False),
    ]
    return {"passages": item_replies(site.db, items, LONGEST_TEXT)}


@shows(clusters=rows(number=int, size=int, cosine=float, passages=list[HitReply]), total=int)
def duplicates(
    site: Site,
    *,
    limit: Annotated[int, "Groups of a page", Field(ge=1, le=100)] = 20,
    offset: Offset = 0,
) -> JsonReply:
    """Groups of passages that say nearly the same, the largest first.

    `cosine` is the lowest that ties them together.
    """
    found = site.map.current().duplicates
    page = found[offset : offset + limit]
    return {
        "clusters": [
            {
                "number": number,
                "size": len(each),
                "cosine": each.cosine,
                **get_passages(
                    site,
                    chunks=list(each.chunks[:SHOWN]),
                    memories=list(each.memories[: max(0, SHOWN - len(each.chunks))]),
                ),
            }
            for number, each in enumerate(page, offset + 1)
        ],
        "total": len(found),
    }
