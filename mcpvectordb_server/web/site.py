"""What the routes of one server share: the file, its jobs, and the pages that listen."""

from __future__ import annotations

from mcpvectordb import Database
from mcpvectordb_server.web.events import Events, FileWatch
from mcpvectordb_server.web.jobs import Job, JobReply, Jobs
from mcpvectordb_server.web.map_cache import MapCache
from mcpvectordb_server.web.pace import Pace
from mcpvectordb_server.web.shown import plain

EMBED_SECONDS = 2.0
"""How long storing a memory or a text waits for its embedding; it is found by words at once."""


class Site:
    """One file and what is done with it; `close` ends all of that, not the file."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.events = Events()
        self.jobs = Jobs(self._told)
        self.watch = FileWatch(db, self.events)
        self.map = MapCache(db, self.watch)
        self.pace = Pace()

    def start(self) -> None:
        """Load the model, embed what waits, and watch the file, all in threads."""
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

    def _told(self, job: Job) -> None:
        self.events.publish("job", plain(JobReply, job.reply()), job.id)
