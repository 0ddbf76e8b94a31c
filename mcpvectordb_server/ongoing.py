"""Ingests that take longer than a host waits: they go on, and the same call again gets the reply.

A source is fetched and parsed before anything of it can be stored, and that may take a minute. Its
reply can say nothing true before, so a call that has taken too long is answered with UnderWay.
"""

from __future__ import annotations

import hashlib
import json
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from mcpvectordb import MCPVectorDBError, Progress, RetryLater
from mcpvectordb_server.grant import Cancelled, ProgressCallback
from mcpvectordb_server.replies import Reply, cut

MOST_ONGOING = 32
"""Most ingests that go on without a client that waits for them."""

KEPT_SECONDS = 600.0
"""How long a reply is kept that its client did not wait for."""


class UnderWay(MCPVectorDBError):
    """A call has not ended yet, and goes on."""

    code = "under_way"


class OngoingCall:
    """A call in a thread of its own; `work` gets a callback for its progress."""

    def __init__(self, name: str, work: Callable[[ProgressCallback], Reply]) -> None:
        self.name = name
        self.ended: float | None = None
        self._news: queue.SimpleQueue[Progress | None] = queue.SimpleQueue()
        self._heard, self._cancelled = True, False
        self._reply: Reply | RetryLater | None = None
        self._latest: Progress | None = None
        threading.Thread(
            target=self._run, args=(work,), name="mcpvectordb-ingest", daemon=True
        ).start()

    def wait(self, progress: ProgressCallback, seconds: float) -> Reply | None:
        """The reply, None if it takes longer; whatever `progress` raises ends the work, too.

        Raises RetryLater if the work has to wait for its host.
        """
        deadline = time.monotonic() + seconds
        self._heard = True
        try:
            while (
                news := self._news.get(timeout=max(0.0, deadline - time.monotonic()))
            ) is not None:
                progress(news)
        except queue.Empty:
            self._heard = False
            return None
        except BaseException:
            self._cancelled = True
            raise
        self._news.put(None)  # for whoever asks again
        if isinstance(self._reply, RetryLater):
            raise self._reply
        return self._reply

    def _run(self, work: Callable[[ProgressCallback], Reply]) -> None:
        try:
            self._reply = work(self._report)
        except Cancelled:
            pass
        except RetryLater as later:
            self._reply = later
        finally:
            self.ended = time.monotonic()
            self._news.put(None)

    @property
    def step(self) -> str:
        """How far the work is, in words."""
        if self.ended is not None:
            return "done: the same call again gets the result"
        if (latest := self._latest) is None:
            return "begun"
        total = "" if latest.total is None else f" of {latest.total:,}"
        return f"{latest.step} {latest.done:,}{total}"

    def _report(self, progress: Progress) -> None:
        if self._cancelled:
            raise Cancelled
        self._latest = progress
        if self._heard:
            self._news.put(progress)


class OngoingCalls:
    """The calls that were answered with UnderWay, by tool and arguments."""

    def __init__(self) -> None:
        self._calls: dict[str, OngoingCall] = {}
        self._lock = threading.Lock()

    def run(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        work: Callable[[ProgressCallback], Reply],
        progress: ProgressCallback,
        seconds: float,
    ) -> Reply:
        """The reply of a new call, or of the same one if it is under way; raises UnderWay."""
        key = hashlib.sha256(json.dumps([tool, arguments], sort_keys=True).encode()).hexdigest()
        # What a call is about is its first argument that is a text.
        texts = [cut(each, 100) for each in arguments.values() if isinstance(each, str)]
        named = " ".join([tool, *texts[:1]])
        oldest = time.monotonic() - KEPT_SECONDS
        with self._lock:
            self._calls = {
                each: call
                for each, call in self._calls.items()
                if call.ended is None or call.ended > oldest
            }
            ongoing = self._calls.pop(key, None)
            if ongoing is None and len(self._calls) >= MOST_ONGOING:
                raise UnderWay(
                    f"{MOST_ONGOING} other ingests are under way: try again when they have ended"
                )
        ongoing = ongoing or OngoingCall(named, work)
        if (reply := ongoing.wait(progress, seconds)) is not None:
            return reply
        with self._lock:
            self._calls[key] = ongoing
        raise UnderWay(
            f"{tool} is still reading its source after {seconds:g} seconds and goes on in the "
            "background: call it again with the same arguments to get the result"
        )

    def listed(self) -> list[str]:
        """A line for each call: its tool, what it reads, and how far it is."""
        with self._lock:
            return [f"{each.name}: {each.step}" for each in self._calls.values()]
