"""/api/map and /api/duplicates: all passages in the plane, and those that say nearly the same."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.responses import Response
from typing_extensions import TypedDict

from mcpvectordb import Chunk, InvalidInput, Memory
from mcpvectordb_server.shown import JsonReply, rows, shows
from mcpvectordb_server.web.api.documents import Offset
from mcpvectordb_server.web.hits import HitReply, item_replies
from mcpvectordb_server.web.site import Site

LONGEST_TEXT = 600  # characters of a passage that is pointed at
SHOWN = 10  # passages of a cluster in the list of clusters

MOST_NAMED = Field(max_length=60)  # groups of a request

BYTES = "application/octet-stream"


class GroupReply(TypedDict):
    """A group of points."""

    name: str
    points: int


@shows(
    revision=int,
    current=bool,
    points=int,
    memories=int,
    groups=dict[str, list[GroupReply]],
    pending=int,
    clusters=int,
    seconds=float,
)
def get_map(
    site: Site, *, newest: Annotated[bool, "Compute it anew if the file has changed"] = True
) -> JsonReply:
    """The number of points of the map and their groups; the first time takes seconds.

    Groups are those by library, folder, type and time; `memories` of the last points are memories.
    """
    made = site.map.current(newest=newest)
    projection = made.projection
    return {
        "revision": made.revision,
        "current": made.revision == site.watch.revision,
        "points": len(projection),
        "memories": projection.memories,
        "groups": {
            by: [
                {"name": name, "points": int((projection.groups[by] == number).sum())}
                for number, name in enumerate(names)
            ]
            for by, names in projection.names.items()
        },
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


@shows(names=list[list[str]])
def name_groups(
    site: Site,
    *,
    chunks: Annotated[list[list[int]], "Ids of passages, a list for each group", MOST_NAMED],
    memories: Annotated[list[list[int]], "Ids of memories, likewise", MOST_NAMED],
) -> JsonReply:
    """The words that distinguish groups of points from others of the file, none to three each.

    Some passages of each group are enough.
    """
    if len(chunks) != len(memories):
        raise InvalidInput("chunks and memories must have a list for each group, [] for none")
    texts = [
        [each.text for each in site.db.documents.chunks_by_ids(some)]
        + [each.text for each in site.db.memories.get(others, images=False)]
        for some, others in zip(chunks, memories, strict=True)
    ]
    found = site.map.current(newest=False).names(texts)
    return {"names": [list(words) for words in found]}


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
