"""/api/memories, /api/projects, /api/threads, /api/tags, /api/timeline: what is remembered."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from mcpvectordb import ListedProject, Memory, NotFound, Stored, Thread, Updated
from mcpvectordb_server.shown import JsonReply, Shown, rows, shows
from mcpvectordb_server.web.api.documents import UNDO, Few, Limit, Offset
from mcpvectordb_server.web.hits import SimilarReply, similar_reply
from mcpvectordb_server.web.site import Site

MemoryId = Annotated[int, "The number of a memory", Field(ge=0, lt=2**63)]
Author = Literal["user", "agent"]
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Types of images that a browser is given; SVG is none of them, because it may have scripts."""

MEMORY = "id thread source text content_type tags metadata created_at updated_at"  # as it is shown
MemoryReply = Annotated[Memory, Shown(Memory, only=MEMORY)]
LONGEST_BEGINNING = 200  # characters of a memory in the list of what is to be deleted


@shows(memories=list[MemoryReply], total=int, note=str)
def list_memories(
    site: Site,
    *,
    thread: Annotated[str | None, "Of this thread"] = None,
    project: Annotated[str | None, "Of this project"] = None,
    tags: Annotated[list[str] | None, "With any of these tags"] = None,
    source: Annotated[Author | None, "Stored by"] = None,
    since: Annotated[str | None, "From this date on"] = None,
    until: Annotated[str | None, "Up to this date"] = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> JsonReply:
    """List memories, newest first."""
    bounds = (("gte", since), ("lte", until))
    where = [("created_at", sign, bound) for sign, bound in bounds if bound is not None]
    memories = site.db.memories
    which: dict[str, Any] = {"thread": thread, "tags": tags, "source": source, "where": where}
    which["project"] = project
    found = memories.browse(limit=limit, offset=offset, **which)
    return {
        "memories": list(found),
        "total": memories.count(**which),
        "note": "" if found or offset else memories.why_empty(**which),
    }


@shows(Memory, only=f"{MEMORY} images", images=rows(mime_type=str, bytes=int, url=str | None))
def get_memory(site: Site, *, id: MemoryId) -> JsonReply:
    """A memory with its images; the `url` of one is null if browsers are not given its type."""
    memory = _found(site, id, images=True)
    images = [
        {
            "mime_type": image.mime_type,
            "bytes": len(image.data),
            "url": f"/api/memories/{id}/images/{number}" if image.mime_type in PICTURES else None,
        }
        for number, image in enumerate(memory.images)
    ]
    return {**vars(memory), "images": images}


def get_image(
    site: Site, *, id: MemoryId, number: Annotated[int, "Which, from 0", Field(ge=0)]
) -> Annotated[Response, "image/*"]:
    """An image of a memory."""
    images = _found(site, id, images=True).images
    if number >= len(images) or images[number].mime_type not in PICTURES:
        raise NotFound("the memory has no such image")
    return Response(images[number].data, media_type=images[number].mime_type)


def similar_to_memory(site: Site, *, id: MemoryId, limit: Few = 8) -> SimilarReply:
    """The documents and memories nearest to a memory."""
    _found(site, id)
    return similar_reply(site.db, site.db.similar(memory=id, limit=limit))


@shows(Stored, memory=MemoryReply)
def add_memory(
    site: Site,
    *,
    thread: Annotated[str, "The thread to store it in"],
    text: Annotated[str, "What to remember"],
    source: Annotated[Author, "Who says it"] = "user",
    tags: Annotated[list[str] | None, "To find it by"] = None,
    metadata: Annotated[dict[str, Any] | None, "What else there is to say of it"] = None,
) -> Stored:
    """Store a memory; "repeated" if it was the last one of its thread already."""
    return site.db.memories.add(thread, source, text, metadata=metadata, tags=tags)


@shows(Updated, memory=MemoryReply)
def update_memory(
    site: Site,
    *,
    id: MemoryId,
    text: Annotated[str | None, "Replaces the text"] = None,
    tags: Annotated[list[str] | None, "Replace the tags"] = None,
    metadata: Annotated[dict[str, Any] | None, "Replaces the metadata"] = None,
    metadata_patch: Annotated[dict[str, Any] | None, "Is merged into it; null removes"] = None,
) -> Updated:
    """Change a memory."""
    return site.db.memories.update(
        id, text=text, tags=tags, metadata=metadata, metadata_patch=metadata_patch
    )


@shows(
    dry_run=bool,
    memories=rows(Memory, only="id thread text"),
    count=int,
    missing=list[int],
    consequences=list[str],
)
def delete_memories(
    site: Site,
    *,
    ids: Annotated[list[int], "Which", Field(min_length=1, max_length=1_000)],
    dry_run: Annotated[bool, "Only say what would happen"] = False,
) -> JsonReply:
    """Remove memories."""
    found = site.db.memories.get(ids, images=False)
    known = {each.id for each in found}
    if not dry_run and known:
        site.db.memories.delete(known)
    count = len(found)
    return {
        "dry_run": dry_run,
        "memories": [{**vars(each), "text": each.text[:LONGEST_BEGINNING]} for each in found],
        "count": count,
        "missing": sorted(set(ids) - known),
        "consequences": [
            f"{count:,} {'memory is' if count == 1 else 'memories are'} removed from this file, "
            "with tags and images; agents no longer find them.",
            UNDO,
        ],
    }


@shows(threads=list[Thread])
def threads(site: Site, *, project: Annotated[str | None, "Of this project"] = None) -> JsonReply:
    """All threads, the one with the newest memory first."""
    found = site.db.memories.threads()
    if project is not None:
        found = [each for each in found if f"{each.name}/".startswith(f"{project}/")]
    return {"threads": found}


@shows(projects=rows(ListedProject))
def projects(site: Site) -> JsonReply:
    """All projects with what belongs to them, the last used first."""
    return {"projects": site.db.projects.browse()}


@shows(tags=rows(name=str, memories=int))
def tags(site: Site) -> JsonReply:
    """All tags, the most frequent first."""
    counts = site.db.memories.values("tag")
    return {"tags": [{"name": name, "memories": n} for name, n in counts.items()]}


@shows(days=rows(date=str, memories=int))
def timeline(site: Site) -> JsonReply:
    """How many memories were stored on each day (UTC), the newest first."""
    days = sorted(site.db.memories.values("day").items(), reverse=True)
    return {"days": [{"date": day, "memories": count} for day, count in days]}


def _found(site: Site, id: int, *, images: bool = False) -> Memory:
    found = site.db.memories.get([id], images=images)
    if not found:
        raise NotFound(f"there is no memory {id}")
    return found[0]
