"""/api/status, /api/space, /api/jobs, /api/history: how the file is, what is and was done to it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mcpvectordb import Coverage, HistoryEntry, Stats, Undone
from mcpvectordb_server.shown import JsonReply, Shown, rows, shows
from mcpvectordb_server.web.api.documents import Limit
from mcpvectordb_server.web.api.libraries import JobStarted
from mcpvectordb_server.web.api.search import BacklogReply
from mcpvectordb_server.web.jobs import JobReply
from mcpvectordb_server.web.site import Site

JobId = Annotated[str, "The id of a job"]
ChangeNumber = Annotated[int, "The number of a change", Field(ge=1, lt=2**63)]
BEGINNING = 200  # characters of a memory that say which one it is
Changed = Annotated[str | None, "Of this document, memory:7, vector or library"]
_COUNTS = "documents libraries passages pending memories threads tags vectors stores".split()


@shows(
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
)
def status(site: Site) -> JsonReply:
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
        **vars(stats),
        "file": stats,
        "passages": stats.chunks,
        "threads": memories.threads,
        "tags": memories.tags,
        "model": {
            **vars(stats),
            "name": stats.model,
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


@shows(bytes=int, parts=rows(name=str, bytes=int))
def space(site: Site) -> JsonReply:
    """What takes space in the file, the largest first; every page of it is read for that."""
    parts = site.db.space()
    return {
        "bytes": sum(parts.values()),
        "parts": [{"name": name, "bytes": size} for name, size in parts.items() if size],
    }


@shows(jobs=list[JobReply])
def list_jobs(site: Site) -> JsonReply:
    """What this server does and has done since its start, the newest first."""
    return {"jobs": [job.reply() for job in site.jobs.newest_first()]}


def get_job(site: Site, *, id: JobId) -> JobReply:
    """A job: how far it is, and its result."""
    return site.jobs.get(id).reply()


def cancel_job(site: Site, *, id: JobId) -> JobReply:
    """Stop a job between two of its steps; what it has stored stays."""
    return site.jobs.cancel(id).reply()


def check(site: Site) -> JobStarted:
    """Verify the whole file."""
    job = site.jobs.add("check", site.db.path.name, lambda _: {"problems": site.db.check()})
    return {"job": job.reply()}


def compact(site: Site) -> JobStarted:
    """Give unused space back to the disk."""
    job = site.jobs.add("compact", site.db.path.name, lambda _: {"freed": site.db.compact()})
    return {"job": job.reply()}


@shows(changes=list[HistoryEntry], texts=dict[str, str])
def list_changes(
    site: Site,
    *,
    name: Changed = None,
    since: Annotated[str | None, "From this time on: 2026-11-29, today, 2d"] = None,
    limit: Limit = 50,
) -> JsonReply:
    """List what was changed, by whom and when, the newest first, and how its memories begin."""
    changes = list(site.db.history(name, since=since, limit=limit))
    firsts = [each.items[0] for each in changes if each.items and each.items[0].shelf == "memories"]
    ids = {int(each.name.removeprefix("memory:")) for each in firsts}
    memories = site.db.memories.get(ids, images=False) if ids else []
    return {
        "changes": changes,
        "texts": {f"memory:{each.id}": each.text[:BEGINNING] for each in memories},
    }


@shows(number=int, diff=str)
def diff(site: Site, *, number: ChangeNumber, name: Changed = None) -> JsonReply:
    """Show what a change did to texts and metadata."""
    return {"number": number, "diff": site.db.diff(number, name)}


def undo(
    site: Site, *, change: Annotated[ChangeNumber | None, "The latest one, if left out"] = None
) -> Undone:
    """Take back a change; that is a change itself, which can be taken back."""
    done = site.db.undo(change, embed=False)
    site.embed()
    return done
