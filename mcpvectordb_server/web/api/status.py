"""/api/status and /api/space: how the file is."""

from __future__ import annotations

from typing import Annotated, Literal

from mcpvectordb import Coverage, Stats
from mcpvectordb_server.web.api.search import BacklogReply
from mcpvectordb_server.web.shown import JsonReply, Shown
from mcpvectordb_server.web.site import Site

_COUNTS = "documents libraries passages pending memories threads tags vectors stores".split()


def status(
    site: Site,
) -> Annotated[
    JsonReply,
    Shown(
        file=Annotated[Stats, Shown(Stats, only="path bytes format")],
        **dict.fromkeys(_COUNTS, int),
        model=Annotated[
            JsonReply,
            Shown(
                name=str,
                dimension=int,
                embeddings=str,
                chunk_size=int,
                chunk_overlap=int,
                state=Literal["loading", "ready", "missing"],
                reason=str,
            ),
        ],
        unavailable=dict[str, str],
        coverage=Annotated[Coverage, Shown(Coverage, without="distinct_waiting")],
        backlog=Annotated[JsonReply, Shown(documents=BacklogReply, memories=BacklogReply)],
        embedding=Annotated[
            JsonReply, Shown(pending=int, per_minute=float | None, seconds_left=float | None)
        ],
        passed_over=int,
        notes=list[str],
        read_only=bool,
        revision=int,
        jobs=Annotated[JsonReply, Shown(running=int, queued=int, failed=int)],
    ),
]:
    """Counts, sizes, the model, what waits, and what goes on.

    The `reason` of a model says why it is missing, `embeddings` in which type the file stores what
    it makes. How fast this process embeds is null while that is not known.
    """
    db = site.db
    stats, memories = db.stats(), db.memories.statistics()
    missing = memories.unavailable.get("vector", "")
    rate = site.pace.per_second(stats.pending)
    states: list[str] = [job.state for job in site.jobs.newest_first()]
    return {
        "file": stats,
        "documents": stats.documents,
        "libraries": stats.libraries,
        "passages": stats.chunks,
        "pending": stats.pending,
        "memories": stats.memories,
        "threads": memories.threads,
        "tags": memories.tags,
        "vectors": stats.vectors,
        "stores": stats.stores,
        "model": {
            "name": stats.model,
            "dimension": stats.dimension,
            "embeddings": stats.embeddings,
            "chunk_size": stats.chunk_size,
            "chunk_overlap": stats.chunk_overlap,
            "state": "missing" if missing else "loading" if db.loading else "ready",
            "reason": missing,
        },
        "unavailable": dict(memories.unavailable),
        "coverage": db.documents.coverage(),
        "backlog": {"documents": db.documents.backlog(), "memories": db.memories.backlog()},
        "embedding": {
            "pending": stats.pending,
            "per_minute": None if rate is None else round(60 * rate, 1),
            "seconds_left": None if not rate else round(stats.pending / rate, 1),
        },
        "passed_over": len(db.documents.passed_over(limit=1_000)),
        "notes": list(stats.notes),
        "read_only": db.read_only,
        "revision": site.watch.revision,
        "jobs": {state: states.count(state) for state in ("running", "queued", "failed")},
    }


def space(
    site: Site,
) -> Annotated[
    JsonReply, Shown(bytes=int, parts=list[Annotated[JsonReply, Shown(name=str, bytes=int)]])
]:
    """What takes space in the file, the largest first; every page of it is read for that."""
    parts = site.db.space()
    return {
        "bytes": sum(parts.values()),
        "parts": [{"name": name, "bytes": size} for name, size in parts.items() if size],
    }
