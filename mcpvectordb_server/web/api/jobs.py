"""/api/jobs, /api/check, /api/compact: work that outlasts a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from mcpvectordb_server.grant import ProgressCallback
from mcpvectordb_server.shown import JsonReply, shows
from mcpvectordb_server.web.api.libraries import JobStarted
from mcpvectordb_server.web.jobs import JobReply
from mcpvectordb_server.web.site import Site

JobId = Annotated[str, "The id of a job"]


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

    def work(_: ProgressCallback) -> Mapping[str, Any]:
        return {"problems": site.db.check()}

    return {"job": site.jobs.add("check", site.db.path.name, work).reply()}


def compact(site: Site) -> JobStarted:
    """Give unused space back to the disk."""

    def work(_: ProgressCallback) -> Mapping[str, Any]:
        return {"freed": site.db.compact()}

    return {"job": site.jobs.add("compact", site.db.path.name, work).reply()}
