"""Work that outlasts a request: ingests, syncs, check and compact, in threads of their own."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, cast

from typing_extensions import TypedDict

from mcpvectordb import InvalidInput, MCPVectorDBError, NotFound, Progress
from mcpvectordb_server.grant import Cancelled, ProgressCallback
from mcpvectordb_server.shown import Shown
from mcpvectordb_server.web.errors import ErrorReply, HttpError, error_reply

WORKERS = 3
"""Threads that work: a long sync leaves room for a file that is dropped meanwhile."""

MOST_KEPT = 200
"""Jobs that are listed, the newest; older ones that have ended are forgotten."""

MOST_QUEUED = 1_000
"""Jobs that wait for a thread."""

JobKind = Literal["upload", "url", "folder", "sync", "check", "compact", "map"]
JobState = Literal["queued", "running", "done", "failed", "cancelled"]
Work = Callable[[ProgressCallback], Mapping[str, Any]]
ProgressReply = Annotated[Progress, Shown(Progress, without="tokens tokens_per_second")]


class JobReply(TypedDict):
    """A job; `result` depends on its kind and is null until it is done.

    `seconds_left` of its progress is an estimate, null while there is none.
    """

    id: str
    kind: JobKind
    title: str
    state: JobState
    progress: ProgressReply | None
    queued_at: str
    ended_at: str | None
    result: dict[str, Any] | None
    error: ErrorReply | None


class Job:
    """One piece of work and how far it is; `changed` is called whenever that changes."""

    def __init__(
        self, id: str, kind: JobKind, title: str, work: Work, changed: Callable[[Job], None]
    ) -> None:
        self.id, self.kind, self.title = id, kind, title
        self.state: JobState = "queued"
        self.result: dict[str, Any] | None = None
        self._work, self._changed = work, changed
        self.progress: Progress | None = None
        self.error: ErrorReply | None = None
        self.queued_at = _now()
        self.ended_at: str | None = None
        self._cancelled = threading.Event()

    @property
    def ended(self) -> bool:
        """Whether nothing of it will change any more."""
        return self.state in ("done", "failed", "cancelled")

    def reply(self) -> JobReply:
        """The job as the API shows it."""
        fields = {name: getattr(self, name) for name in JobReply.__annotations__}
        return cast("JobReply", fields)

    def cancel(self) -> None:
        """Let it end at its next step, or never begin."""
        self._cancelled.set()
        if self.state == "queued":
            self._end("cancelled")

    def run(self) -> None:
        """Do the work; whatever it raises becomes the job's error."""
        if self.ended:
            return
        self.state = "running"
        self._changed(self)
        try:
            self.result = dict(self._work(self._report))
            self._end("done")
        except Cancelled:
            self._end("cancelled")
        except Exception as error:
            if not isinstance(error, MCPVectorDBError):
                logging.getLogger(__name__).exception("%s of %s failed", self.kind, self.title)
            self.error = error_reply(error)
            self._end("failed")

    def _report(self, progress: Progress) -> None:
        if self._cancelled.is_set():
            raise Cancelled
        self.progress = progress
        self._changed(self)

    def _end(self, state: JobState) -> None:
        self.state, self.ended_at = state, _now()
        self._work = lambda _: {}  # what it holds, such as an uploaded file, is needed no longer
        self._changed(self)


class Jobs:
    """The jobs of this server, in the order in which they were given."""

    def __init__(self, changed: Callable[[Job], None], *, workers: int = WORKERS) -> None:
        self._changed, self._workers = changed, workers
        self._jobs: dict[str, Job] = {}
        self._numbers = itertools.count(1)
        # With the context of whoever gave it: the history says by whom a change was made.
        self._queue: queue.SimpleQueue[tuple[Context, Job] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def add(self, kind: JobKind, title: str, work: Work) -> Job:
        """Queue a job; one of the same kind and title that has not ended is returned instead."""
        with self._lock:
            waiting = [job for job in self._jobs.values() if not job.ended]
            for job in waiting:
                if kind != "upload" and (job.kind, job.title) == (kind, title):
                    return job
            if len(waiting) >= MOST_QUEUED:
                raise HttpError(
                    429,
                    "too_many",
                    f"{MOST_QUEUED:,} jobs are waiting: try again when some have ended",
                )
            job = Job(f"j{next(self._numbers)}", kind, title, work, self._changed)
            self._jobs[job.id] = job
            ended = [id for id, each in self._jobs.items() if each.ended]
            for id in ended[: max(0, len(self._jobs) - MOST_KEPT)]:
                del self._jobs[id]
            while len(self._threads) < self._workers:
                name = f"mcpvectordb-job-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
                self._threads[-1].start()
        self._changed(job)
        self._queue.put((copy_context(), job))
        return job

    def get(self, id: str) -> Job:
        """The job with this id; raises NotFound."""
        try:
            return self._jobs[id]
        except KeyError:
            raise NotFound("there is no such job; those of an earlier start are gone") from None

    def cancel(self, id: str) -> Job:
        """Cancel a job that can be stopped between its steps."""
        job = self.get(id)
        if job.kind in ("check", "compact", "map") and job.state == "running":
            raise InvalidInput(f"{job.kind} cannot be stopped half-way; it ends by itself")
        if not job.ended:
            job.cancel()
        return job

    def unfinished(self, kind: JobKind) -> int:
        """How many jobs of a kind have not ended."""
        return sum(job.kind == kind and not job.ended for job in self.newest_first())

    def newest_first(self) -> list[Job]:
        """All jobs that are kept."""
        with self._lock:
            return list(self._jobs.values())[::-1]

    def close(self) -> None:
        """Cancel what has not ended; a step that is being done is not waited for."""
        for job in self.newest_first():
            if not job.ended:
                job.cancel()
        for _ in self._threads:
            self._queue.put(None)

    def _run(self) -> None:
        while (given := self._queue.get()) is not None:
            context, job = given
            context.run(job.run)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
