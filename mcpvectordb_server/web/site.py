"""What the routes of one server share: the file, its jobs, and the pages that listen."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from typing_extensions import TypedDict

from mcpvectordb import Database
from mcpvectordb_server.shown import plain
from mcpvectordb_server.web.events import Events, FileWatch
from mcpvectordb_server.web.jobs import JobReply, Jobs
from mcpvectordb_server.web.map_cache import MapCache

EMBED_SECONDS = 2.0
"""How long storing a memory or a text waits for its embedding; it is found by words at once."""


WINDOW = 60.0
"""Seconds that the pace is taken from."""


class Pace:
    """Remembers the counts of the last minute; a count that has grown begins anew."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._seen: deque[tuple[float, int]] = deque()

    def per_second(self, count: int) -> float | None:
        """By how much the count falls in a second; None while that is not known."""
        with self._lock:
            now = self._clock()
            if self._seen and count > self._seen[-1][1]:
                self._seen.clear()
            self._seen.append((now, count))
            while now - self._seen[0][0] > WINDOW:
                self._seen.popleft()
            began, first = self._seen[0]
            return (first - count) / (now - began) if first > count and now > began else None


class Site:
    """One file and what is done with it; `close` ends all of that, not the file."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.events = Events()
        self.jobs = Jobs(
            lambda job: self.events.publish("job", plain(JobReply, job.reply()), job.id)
        )
        self.watch = FileWatch(db, self.events)
        self.map = MapCache(db, self.watch)
        self.pace = Pace()
        self._started = False

    def start(self) -> None:
        """Load the model, embed what waits, and watch the file, all in threads; once."""
        if self._started:
            return
        self._started = True
        self.db.embed_in_background(wait=EMBED_SECONDS, start=False)
        self.db.warm()
        self.watch.start()

    def embed(self) -> None:
        """Have what was stored embedded in the background."""
        self.db.embed_in_background(wait=EMBED_SECONDS)

    def close(self) -> None:
        """End the threads."""
        self.jobs.close()
        self.watch.close()


class ServedFile(TypedDict):
    """A file that can be asked for by its name."""

    name: str
    path: str


class SessionReply(TypedDict):
    """The file, what may be done with it, and the token that a page sends from now on.

    `files` are all that are served.
    """

    token: str
    read_only: bool
    version: str
    file: str
    path: str
    files: list[ServedFile]
