"""Ingest many files into one library; parsing, writing and embedding overlap.

The caller's thread reads, parses (some formats in the parser's process) and writes several
documents in one short transaction. A second thread embeds what is written. The queue between the
two is the table of pending chunks in the file: memory does not grow with the folder, a kill loses
nothing that was reported as done, and several processes can share the work. What the second thread
leaves over, also because it failed, is embedded or reported by `Encoder.embed`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

from mcpvectordb.documents.overrides import DocumentChange
from mcpvectordb.documents.write import DocumentWriter, PreparedDocument, update
from mcpvectordb.index.encoder import BATCH
from mcpvectordb.ingest.worker import Worker
from mcpvectordb.records import Embedded, Progress, Source
from mcpvectordb.store import OpenStore


class BulkIngest:
    """A context manager that stores files in batches; `add` them inside of its `with` block.

    `metadata` is what it sets in every document. `counts` has the number of written files by
    status, with "moved" as one more status; `partial` has (path, note) of those of which something
    could not be read. With `embed`, a thread embeds what is written until the block ends;
    `embedded` is what it has done.
    """

    def __init__(
        self,
        writer: DocumentWriter,
        worker: Worker,
        library: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        embed: bool = True,
    ) -> None:
        self.writer, self.store, self._worker = writer, writer.store, worker
        self._library, self.metadata = library, metadata
        self._encoder, self._index = self.store.encoder, self.store.documents
        self._embedding = _EmbeddingThread(self.store) if embed else None
        self._waiting: list[PreparedDocument] = []
        self._known: list[int] = []
        self._first = self._began = time.monotonic()
        self._chunks = 0
        self.counts: Counter[str] = Counter()
        self.partial: list[tuple[str, str]] = []

    @property
    def waiting(self) -> int:
        """How many files were added and are not written yet."""
        return len(self._waiting)

    @property
    def embedded(self) -> Embedded:
        """What has been embedded so far."""
        return self._embedding.done if self._embedding else Embedded()

    def add(self, source: Source, hash: str, moved: int | None = None) -> None:
        """Parse a file and write it, now or with the next batch.

        `moved` is the key of a document whose id, creation time and metadata it takes over.
        """
        parsed = self._worker.parse(source)
        prepared = self.writer.prepare(
            source,
            parsed,
            hash=hash,
            library=self._library,
            given=self.metadata,
            moved=moved,
        )
        if parsed.note:
            self.partial.append((source.source, parsed.note))
        if not self._waiting:
            self._first = time.monotonic()
        self._waiting.append(prepared)
        tuning = self.store.tuning
        if (
            len(self._waiting) >= tuning.documents_per_write
            or sum(len(each.spans) for each in self._waiting) >= tuning.chunks_per_write
            or time.monotonic() - self._first > tuning.seconds_per_write
        ):
            self.write()

    def keep(self, key: int) -> None:
        """Set the metadata of this ingest in a document whose file is unchanged, now or later."""
        if self.metadata:
            self._known.append(key)
            if len(self._known) >= self.store.tuning.notes_per_write:
                self.update_known()

    def update_known(self) -> None:
        """Set the metadata of this ingest in the documents that were kept, in one transaction."""
        if self._known:
            change = DocumentChange(keys=self.metadata)
            versions = self.writer.versions
            with self.store.file.writing() as sql:
                self.counts["updated"] += sum(
                    update(sql, self._index, versions, key, change)[0] for key in self._known
                )
            self._known.clear()

    def write(self) -> None:
        """Write the files that were added and are not written yet."""
        if not self._waiting:
            return
        done = self.writer.write_all(self._waiting)
        with self.store.file.reading(limited=False) as sql:
            self._chunks += self._encoder.count_pending(sql, self._index, [key for _, key in done])
        for prepared, (status, _) in zip(self._waiting, done, strict=True):
            moved = prepared.moved is not None and status != "skipped"
            self.counts["moved" if moved else status] += 1
        self._waiting.clear()
        # What the model can embed within a batch or two need not be found before.
        self._encoder.provisional.fill(self._index, least=BATCH + 1 if self._embedding else 1)
        if self._embedding:
            self._embedding.notify()

    def progress(self, step: str, done: int, total: int) -> Progress:
        """The progress when `done` of `total` files are written."""
        embedded = self.embedded
        return Progress(
            step=step,
            done=done,
            total=total,
            chunks=embedded.chunks,
            # Chunks of earlier ingests may be embedded too.
            chunks_known=max(self._chunks, embedded.chunks),
            tokens=embedded.tokens,
            tokens_per_second=embedded.tokens_per_second,
            seconds_left=self._seconds_left(done, total, embedded),
        )

    def _seconds_left(self, done: int, total: int, embedded: Embedded) -> float | None:
        """An estimate of the seconds left, as if the other files were like the written ones."""
        if not done or (self._embedding and not embedded.chunks):
            return None
        if not self._embedding:
            return (total - done) * (time.monotonic() - self._began) / done
        expected = self._chunks * total / done
        return max(0.0, expected - embedded.chunks) * embedded.seconds / embedded.chunks

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._embedding:
            self._embedding.stop()


class _EmbeddingThread:
    """A thread that embeds pending chunks, from the first `notify` until `stop`."""

    def __init__(self, store: OpenStore) -> None:
        self._encoder, self._index = store.encoder, store.documents
        self._thread: threading.Thread | None = None
        self._notified, self._stopped = threading.Event(), False
        self.done = Embedded()

    def notify(self) -> None:
        """Start the thread, or wake it up, because there is more to embed."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mcpvectordb-embed")
            self._thread.start()
        self._notified.set()

    def stop(self) -> None:
        """End the thread after the batch that it is working on."""
        self._stopped = True
        self._notified.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        # The error occurs again, and is reported, when the caller embeds what is left.
        with contextlib.suppress(Exception):
            while self._notified.wait() and not self._stopped:
                self._notified.clear()
                while not self._stopped and (some := self._encoder.embed_some(self._index)):
                    if not some.chunks:  # others embed what is left
                        break
                    self.done += some
