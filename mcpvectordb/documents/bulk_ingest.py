"""Many files on their way into one library: parsing, writing and embedding go on at the same time.

The caller's thread reads, parses (foreign formats in the parser's process) and writes, a few
documents in one short transaction. A second thread has the model work on what is written. The queue
between the two is the one in the file, so memory does not grow with the folder, a kill loses
nothing that was told to be done, and several processes can share the work. What the second thread
leaves, also because it failed, is for `Encoder.embed` to finish or to tell.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

from mcpvectordb.documents.write import DocumentWriter, PreparedDocument
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.encoder import Encoder
from mcpvectordb.ingest.worker import Worker
from mcpvectordb.records import Embedded, Progress, Source
from mcpvectordb.storage.file import File

# A transaction has no more than this; it then keeps others from writing for some tens of
# milliseconds.
DOCUMENTS, CHUNKS, SECONDS = 32, 64, 0.5


class BulkIngest:
    """`bring` files; leave the `with` block when all were brought.

    `counts` says what became of those that are written, by status, and "moved". With `embed`, the
    model is at work until the block ends, and `embedded` tells how much it has done.
    """

    def __init__(
        self,
        file: File,
        storing: DocumentWriter,
        encoder: Encoder,
        index: ChunkIndex,
        worker: Worker,
        *,
        library: str,
        metadata: Mapping[str, Any] | None = None,
        embed: bool = True,
    ) -> None:
        self._file, self._storing, self._encoder, self._index, self._worker = (
            file,
            storing,
            encoder,
            index,
            worker,
        )
        self._library, self._metadata = library, metadata
        self._beside = _Beside(encoder, index) if embed else None
        self._waiting: list[PreparedDocument] = []
        self._first = self._began = time.monotonic()
        self._chunks = 0
        self.counts: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """How many files were brought and are not written yet."""
        return len(self._waiting)

    @property
    def embedded(self) -> Embedded:
        """What the model has done so far."""
        return self._beside.done if self._beside else Embedded()

    def bring(self, source: Source, hash: str, moved: int | None = None) -> None:
        """Parse a file and write it, now or with the next ones; `moved` is the document whose
        identity it takes over.
        """
        ready = self._storing.ready(
            source,
            self._worker.parse(source),
            hash=hash,
            library=self._library,
            given=self._metadata,
            moved=moved,
        )
        if not self._waiting:
            self._first = time.monotonic()
        self._waiting.append(ready)
        if (
            len(self._waiting) >= DOCUMENTS
            or sum(len(each.spans) for each in self._waiting) >= CHUNKS
            or time.monotonic() - self._first > SECONDS
        ):
            self.write()

    def write(self) -> None:
        """Write what waits for that."""
        if not self._waiting:
            return
        with self._file.writing() as sql:
            done = [self._storing.write(each) for each in self._waiting]
            self._chunks += self._encoder.count_pending(sql, self._index, [key for _, key in done])
        for ready, (status, _) in zip(self._waiting, done, strict=True):
            self.counts["moved" if ready.moved is not None and status != "skipped" else status] += 1
        self._waiting.clear()
        if self._beside:
            self._beside.more()

    def progress(self, step: str, done: int, total: int) -> Progress:
        """How far it is when so many files of all are written."""
        embedded = self.embedded
        return Progress(
            step=step,
            done=done,
            total=total,
            chunks=embedded.chunks,
            chunks_known=max(self._chunks, embedded.chunks),  # some may have waited from before
            tokens=embedded.tokens,
            tokens_per_second=embedded.tokens_per_second,
            seconds_left=self._left(done, total, embedded),
        )

    def _left(self, done: int, total: int, embedded: Embedded) -> float | None:
        """The seconds that are left, if the other files are like those that are written."""
        if not done or (self._beside and not embedded.chunks):
            return None
        if not self._beside:
            return (total - done) * (time.monotonic() - self._began) / done
        expected = self._chunks * total / done
        return max(0.0, expected - embedded.chunks) * embedded.seconds / embedded.chunks

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._beside:
            self._beside.stop()


class _Beside:
    """A thread that embeds what is written, from the first `more` until `stop`, which waits for the
    batch being worked on.
    """

    def __init__(self, encoder: Encoder, index: ChunkIndex) -> None:
        self._encoder, self._index = encoder, index
        self._thread: threading.Thread | None = None
        self._news, self._stopped = threading.Event(), False
        self.done = Embedded()

    def more(self) -> None:
        """Say that there is more to embed."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mcpvectordb-embed")
            self._thread.start()
        self._news.set()

    def stop(self) -> None:
        self._stopped = True
        self._news.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(
            Exception
        ):  # it happens again, and is told, when the rest is embedded
            while self._news.wait() and not self._stopped:
                self._news.clear()
                while not self._stopped and (some := self._encoder.embed_some(self._index)).chunks:
                    self.done += some
