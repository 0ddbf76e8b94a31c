"""Work that goes on while callers do not wait for it.

A thread embeds what is pending (`BackgroundEmbedder`). Its queue is the table of pending chunks in
the file, so nothing is lost when the process ends, and what another process left over is embedded
too. Another one reads ahead what the first questions of a process would have to read.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from mcpvectordb.errors import DatabaseError
from mcpvectordb.index.chunks import ChunkIndex, active_model
from mcpvectordb.records import Embedded, Progress, ProgressCallback
from mcpvectordb.storage.file import File

MOST_PREFERRED = 100
"""How many owners of chunks that were asked for or found are remembered."""

CLOSE_SECONDS = 2.0
"""How long `close` waits for the batch in progress; its chunks stay pending if it takes longer."""


class BackgroundEmbedder:
    """A daemon thread that embeds pending chunks, from the first `ask` until `close`.

    `embed` is `Encoder.embed_some`.

    What somebody waits for comes first, the last request before the others; then what was asked
    for, or found by words alone; then the newest. All but the first is left to one process at a
    time: while another one has leased chunks, this one looks again every `pause` seconds. After a
    failure it tries again with the next request, or after `retry` seconds.
    """

    def __init__(
        self,
        embed: Callable[..., Embedded | None],
        indexes: Sequence[ChunkIndex],
        *,
        wait: float,
        pause: float = 1.0,
        retry: float = 60.0,
    ) -> None:
        self.wait = wait
        """Most seconds that a caller waits for the embeddings of what it stores."""
        self.error = ""
        """Why the last batch could not be embedded; "" if it was."""
        self._embed, self._indexes = embed, indexes
        self._pause, self._retry = pause, retry
        self._wanted: list[tuple[ChunkIndex, int]] = []
        self._preferred: deque[tuple[ChunkIndex, int]] = deque(maxlen=MOST_PREFERRED)
        # Guards what follows: requests so far, the last one that failed, and batches so far.
        self._changed = threading.Condition()
        self._asked, self._failed, self._batches = 0, 0, 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def ask(self, index: ChunkIndex | None = None, owner: int = 0) -> int:
        """Have pending chunks embedded, those of an owner first; the number of this request."""
        with self._changed:
            if index is not None:
                self._wanted.append((index, owner))
            self._asked += 1
            self._changed.notify_all()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._run, name="mcpvectordb-background", daemon=True
                )
                self._thread.start()
            return self._asked

    def prefer(self, index: ChunkIndex, owners: Iterable[int]) -> None:
        """Embed the chunks of these owners, which somebody asked for, before newer ones."""
        self._preferred.extend((index, owner) for owner in owners)

    def embed(
        self,
        index: ChunkIndex,
        owner: int,
        count: Callable[[], int],
        deadline: float,
        progress: ProgressCallback | None,
    ) -> tuple[Embedded, str]:
        """Have an owner's chunks embedded and wait until the deadline; the error if it failed.

        `count` returns how many of them are pending.
        """
        request, total, began = self.ask(index, owner), count(), time.monotonic()
        done = Embedded()

        def is_done() -> bool:
            nonlocal done
            chunks = max(0, total - count())
            done = Embedded(chunks=chunks, seconds=time.monotonic() - began)
            if progress and total:
                progress(embed_progress(done, total))
            return chunks == total

        try:
            error = self.wait_until(is_done, request, deadline)
        finally:  # nobody waits for it any more
            self.prefer(index, [owner])
            with contextlib.suppress(ValueError):  # a failure has removed it
                self._wanted.remove((index, owner))
        return done, error

    def wait_until(self, done: Callable[[], bool], request: int, deadline: float) -> str:
        """Wait for a request until `done` or the deadline; the error if it failed, else ""."""
        while True:
            with self._changed:
                batches = self._batches
            if done():
                return ""
            with self._changed:
                if self._failed >= request:
                    return self.error
                while self._batches == batches:
                    left = deadline - time.monotonic()
                    if self._closed or left <= 0 or not self._changed.wait(left):
                        return ""

    def close(self) -> None:
        """End the thread after the batch that it is working on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._closed:
            asked, error = self._asked, ""
            try:
                pause = self._embed_next()
            except Exception as failure:  # whatever it is, callers are told, and it is tried again
                pause, error = self._retry, str(failure) or type(failure).__name__
                self._wanted.clear()
                self._preferred.clear()
            with self._changed:
                self._batches += 1
                self.error = error
                if error:
                    self._failed = asked
                self._changed.notify_all()
                if not self._closed and self._asked == asked:
                    self._changed.wait(pause)

    def _embed_next(self) -> float | None:
        """Embed one batch; how long to pause then, None for until the next request."""
        for wanted in reversed(self._wanted.copy()):
            done = self._embed(wanted[0], [wanted[1]])
            if done is not None and done.chunks:
                return 0.0
        pending = False
        while self._preferred:
            done = self._embed(self._preferred[-1][0], [self._preferred[-1][1]], alone=True)
            if done is not None:
                return 0.0 if done.chunks else self._pause
            self._preferred.pop()
        for index in reversed(self._indexes):  # what agents remember is short and soon asked for
            done = self._embed(index, alone=True)
            if done is not None and done.chunks:
                return 0.0
            pending = pending or done is not None
        return self._pause if pending else None


def run_until(deadline: float, work: Callable[[], None]) -> None:
    """Have a thread work, and wait for it until the deadline; what it raises in time is raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    if deadline > time.monotonic():
        thread = threading.Thread(target=run, name="mcpvectordb-until", daemon=True)
        thread.start()
        thread.join(max(0.0, deadline - time.monotonic()))
        if raised:
            raise raised[0]


def embed_progress(done: Embedded, total: int) -> Progress:
    """The progress when so much of `total` chunks is embedded."""
    chunks = min(done.chunks, total)
    return Progress(
        step="embed",
        done=chunks,
        total=total,
        chunks=chunks,
        chunks_known=total,
        tokens=done.tokens,
        tokens_per_second=done.tokens_per_second,
        seconds_left=(total - chunks) * done.seconds / done.chunks if done.chunks else None,
    )


# Of the memory for what is kept, codes are read ahead into a half (by default a million of 384
# dimensions fit, and reading them may take longer than a question has time), words into a fourth.
CODES_SHARE, WORDS_SHARE = 2, 4


def read_ahead(
    file: File,
    index: ChunkIndex,
    budget: int,
    stopped: Callable[[], bool],
    then: Callable[[], None] | None = None,
) -> None:
    """Read what the first questions of a process would have to read, of so much memory for it.

    That is the codes of the embeddings and the postings of the commonest words, which are kept as
    what any question reads is kept, and what `then` reads. A question meanwhile is answered as
    without it.
    """
    with contextlib.suppress(DatabaseError):  # the first question reports what is wrong
        with file.reading(limited=False) as sql:
            model = active_model(sql)
            if model is not None:
                index.vector.preload(sql, model.key, model.dimension, budget // CODES_SHARE)
        index.keyword.preload(file, budget // WORDS_SHARE, stopped)
        if then is not None and not stopped():
            then()
