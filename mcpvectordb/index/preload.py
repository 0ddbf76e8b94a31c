"""Reading ahead: what the first questions of a process would have to read, a thread reads before.

That is the codes of the embeddings and the postings of the commonest words, which are kept as what
any question reads is kept (`index.resident`). A question meanwhile is answered as without
it.
"""

from __future__ import annotations

import contextlib
import threading

from mcpvectordb.errors import DatabaseError
from mcpvectordb.index import models
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.storage.file import File

# Of the memory for what is kept, codes are read ahead into a half (by default a million of 384
# dimensions fit, and reading them may take longer than a question has time), words into a fourth.
CODES_SHARE, WORDS_SHARE = 2, 4
CLOSE_SECONDS = 2.0  # how long `close` waits for what is being read


class Preload:
    """Reads the codes and common words of an index in a daemon thread, once it is started."""

    def __init__(self, file: File, index: ChunkIndex, budget: int) -> None:
        self._file, self._index, self._budget = file, index, budget
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless it has begun before."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="mcpvectordb-preload", daemon=True
            )
            self._thread.start()

    def wait(self) -> None:
        """Wait until everything is read."""
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Stop after what is being read."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        with contextlib.suppress(DatabaseError):  # the first question reports what is wrong
            with self._file.reading(limited=False) as sql:
                model = models.active(sql)
                if model is not None:
                    budget = self._budget // CODES_SHARE
                    self._index.vector.preload(sql, model.key, model.dimension, budget)
            budget = self._budget // WORDS_SHARE
            self._index.keyword.preload(self._file, budget, self._stopped.is_set)
