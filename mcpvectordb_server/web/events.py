"""What pages are told without asking (server-sent events): changes of the file, jobs, the model.

A stream keeps the newest event of each subject until its client has read it, so a slow client
costs no memory and never sees an old state after a new one.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import StreamingResponse

from mcpvectordb import Database, MCPVectorDBError
from mcpvectordb_server.web.errors import HttpError

MOST_STREAMS = 32
"""Pages that can listen at once."""

PAUSE = 0.25  # seconds between two messages to a page, which then has what is newest
SILENCE = 15.0  # seconds after which a comment shows that the connection lives
WATCH_SECONDS = 0.5  # between two looks at the file


class Stream:
    """What one page has not been told yet: the newest event of each subject."""

    def __init__(self) -> None:
        self._waiting: dict[str, str] = {}
        self._arrived = asyncio.Event()

    def put(self, subject: str, message: str) -> None:
        """Keep a message in place of an earlier one on the same subject."""
        self._waiting[subject] = message
        self._arrived.set()

    async def take(self, seconds: float) -> list[str]:
        """The messages that wait, after waiting for the first one; none after so many seconds."""
        try:
            await asyncio.wait_for(self._arrived.wait(), seconds)
        except TimeoutError:
            return []
        self._arrived.clear()
        taken, self._waiting = list(self._waiting.values()), {}
        return taken


class Events:
    """The streams of all pages; `publish` may be called in any thread."""

    def __init__(self) -> None:
        self._streams: set[Stream] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.stopping: Callable[[], bool] = bool
        """Whether the server is about to end, which ends the streams."""

    def publish(self, event: str, data: Any, subject: str = "") -> None:
        """Tell all pages; `subject` is what the event replaces an earlier one of."""
        message = f"event: {event}\ndata: {json.dumps(data)}\n\n"
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._put, f"{event} {subject}", message)

    def _put(self, subject: str, message: str) -> None:
        for stream in self._streams:
            stream.put(subject, message)

    def response(self, hello: Any) -> StreamingResponse:
        """The answer to a page that wants to be told; `hello` is what it is told first."""
        if len(self._streams) >= MOST_STREAMS:
            raise HttpError(
                429, "too_many", f"{MOST_STREAMS} pages are open already: close one of them"
            )
        self._loop = asyncio.get_running_loop()
        stream = Stream()
        stream.put("hello", f"retry: 1000\nevent: hello\ndata: {json.dumps(hello)}\n\n")
        self._streams.add(stream)
        return StreamingResponse(self._messages(stream), media_type="text/event-stream")

    async def _messages(self, stream: Stream) -> AsyncIterator[str]:
        try:
            last = time.monotonic()
            while not self.stopping():
                if messages := await stream.take(PAUSE):
                    last = time.monotonic()
                    yield "".join(messages)
                    await asyncio.sleep(PAUSE)
                elif time.monotonic() - last > SILENCE:
                    last = time.monotonic()
                    yield ": still here\n\n"
        finally:
            self._streams.discard(stream)


class FileWatch:
    """A thread that notices what any process changes in the file, and when the model is loaded."""

    def __init__(self, db: Database, events: Events) -> None:
        self._db, self._events = db, events
        self._stop = threading.Event()
        self.revision = 0
        """How often the file was seen to have changed since the start."""
        self._thread = threading.Thread(target=self._run, name="mcpvectordb-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(2)

    def _run(self) -> None:
        version: int | None = None
        loading, trouble = self._db.loading, ""
        while True:
            try:
                now = self._db.data_version()
                if trouble or version not in (None, now):
                    trouble = ""
                    self.revision += 1
                    self._events.publish("changed", {"revision": self.revision})
                version = now
                if loading and not self._db.loading:
                    missing = "vector" in self._db.memories.statistics().unavailable
                    state = "missing" if missing else "ready"
                    self._events.publish("model", {"state": state})
                    loading = False
            except MCPVectorDBError as error:  # also if the file is away when the thread begins
                if str(error) != trouble:  # said once, as long as it lasts
                    trouble = str(error)
                    self._events.publish("trouble", {"code": error.code, "message": trouble})
            loading = loading or self._db.loading
            if self._stop.wait(WATCH_SECONDS):
                return
