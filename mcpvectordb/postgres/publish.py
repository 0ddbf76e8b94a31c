"""Publishing a file: compare it with what its origin has, and send what differs.

There is no state between two runs but what is published: each item has digests of what was sent. So
a run that was killed is continued by the next one, and one with nothing to do writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, replace

from mcpvectordb.documents import libraries as known_libraries
from mcpvectordb.errors import InvalidInput, NotFound
from mcpvectordb.index import models
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.postgres import catalogue, graphs, origins, schema, staged
from mcpvectordb.postgres.connection import Server
from mcpvectordb.postgres.differences import Differences, State, differences
from mcpvectordb.postgres.origins import Origin
from mcpvectordb.postgres.publication import (
    Batch,
    DocumentsToPublish,
    MemoriesToPublish,
    Publication,
    PublishedModel,
    PublishedShelf,
    VectorsToPublish,
)
from mcpvectordb.postgres.records import Published, PublishedItems
from mcpvectordb.records import Progress, ProgressCallback
from mcpvectordb.search.why_empty import unknown_name
from mcpvectordb.storage.file import File

CONNECTIONS = 4  # that write at the same time
# After so many passages postings are vacuumed: only then scans need to read nothing but the index.
# Embeddings are left to autovacuum, which takes a graph apart row by row for those that are gone.
VACUUMED_ROWS = 1_000
VACUUM = (
    f"VACUUM (ANALYZE, SKIP_LOCKED) {', '.join(staged.WORD_TABLES)}",
    f"ANALYZE (SKIP_LOCKED) {', '.join(table.name for table in staged.TABLES)}",
)


@dataclass(frozen=True, slots=True)
class FileToPublish:
    """The parts of an open file that publishing needs.

    `wait` are seconds for another publisher, `exact_rows` embeddings that need no graph.
    """

    file: File
    documents: ChunkIndex
    memories: ChunkIndex
    wait: float
    exact_rows: int


def publish(
    source: FileToPublish,
    url: str,
    *,
    origin: str | None = None,
    libraries: Sequence[str] | None = None,
    progress: ProgressCallback | None = None,
) -> Published:
    """Bring a file into a PostgreSQL database; see `Database.publish`."""
    began = time.monotonic()
    chosen = _checked_libraries(source.file, libraries)
    own_name = origins.name_of_file(source.file)
    if origin is None and not own_name:
        raise InvalidInput(
            f"{source.file.path} is open for reading only and cannot keep a name for itself: name "
            "an origin"
        )
    name = origins.checked_name(own_name if origin is None else origin)
    with closing(Server(url)) as server:
        schema.migrate(server)
        with origins.locked(server, name, own_name, source.wait) as locked:
            report = _PublishRun(source, server, locked, chosen, progress).publish()
        notice = schema.notice(server)
    return replace(report, notice=notice, seconds=time.monotonic() - began)


def _checked_libraries(file: File, names: Sequence[str] | None) -> tuple[str, ...] | None:
    """The libraries to publish (None: everything); raises InvalidInput and NotFound."""
    if names is None:
        return None
    if isinstance(names, str) or not names:
        raise InvalidInput("libraries must be a list of names, or None for everything")
    with file.reading(limited=False) as sql:
        known = [str(name) for (name,) in sql.execute(known_libraries.NAMES)]
    for name in names:
        if known_libraries.checked_name(name) not in known:
            raise NotFound(unknown_name("library", name, known))
    return tuple(sorted(set(names)))


class _PublishRun:
    """One publish of an origin that is locked."""

    def __init__(
        self,
        source: FileToPublish,
        server: Server,
        origin: Origin,
        libraries: tuple[str, ...] | None,
        progress: ProgressCallback | None,
    ) -> None:
        self._source, self._server, self._progress = source, server, progress
        self._file = source.file
        self._publication = Publication(origin, self._model(), libraries)
        self._shelves: dict[str, PublishedShelf] = {
            "documents": DocumentsToPublish(self._publication, source.documents),
            "contexts": MemoriesToPublish(self._publication, source.memories),
            "vectors": VectorsToPublish(self._publication),
        }

    def publish(self) -> Published:
        """Compare, write what differs, and report it."""
        found = {name: self._differences(shelf) for name, shelf in self._shelves.items()}
        changes = sum(each.count for each in found.values())
        replaced = 0
        if self._begin(changes > 0):
            replaced = self._write(found, changes)
            self._finish(found)
        return Published(
            origin=self._publication.origin.name,
            documents=_counted(found["documents"], replaced),
            memories=_counted(found["contexts"]),
            vectors=_counted(found["vectors"]),
            passages=sum(map(_passages, found.values())),
            waiting=self._waiting(),
        )

    def _model(self) -> PublishedModel | None:
        """The file's model, under its number in PostgreSQL; None if there are no embeddings."""
        with self._file.reading(limited=False) as sql:
            row = models.active(sql)
        if row is None:
            return None
        with self._server.writing() as sql:
            return PublishedModel(row, catalogue.model_key(sql, row))

    def _differences(self, shelf: PublishedShelf) -> Differences:
        with self._file.reading(limited=False) as local, self._server.reading() as remote:
            return differences(self._compared(shelf.local(local)), shelf.remote(remote))

    def _compared(self, states: Iterator[State]) -> Iterator[State]:
        """The same items, and progress after every thousand of them."""
        for number, state in enumerate(states, 1):
            if number % 1_000 == 0:
                self._report(Progress(step="compare", done=number, total=None))
            yield state

    def _begin(self, changes: bool) -> bool:
        """Claim the origin and write libraries and stores; not if nothing at all has changed."""
        origin, choice = self._publication.origin, self._publication.choice
        with self._file.reading(limited=False) as local, self._server.reading() as remote:
            before, after = (
                catalogue.remote(remote, origin),
                catalogue.local(local, self._publication),
            )
            last = origins.finished(remote, origin)
        if (before, last) == (after, choice) and not changes:
            return False
        with self._server.writing() as sql:
            origins.claim(sql, origin, choice)
            catalogue.write(sql, origin, before, after)
        return True

    def _write(self, found: Mapping[str, Differences], total: int) -> int:
        """Write all batches; how many new documents took the place of others."""
        pace, replaced = _PublishProgress(self._progress, total), 0
        with ThreadPoolExecutor(CONNECTIONS, "publish") as pool:
            running: dict[Future[None], Batch] = {}
            try:
                for shelf, batch in self._batches(found):
                    replaced += batch.replaced
                    while len(running) >= 2 * CONNECTIONS:
                        pace.count(_finished(running))
                    running[pool.submit(self._send, shelf, batch)] = batch
                while running:
                    pace.count(_finished(running))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return replaced

    def _batches(self, found: Mapping[str, Differences]) -> Iterator[tuple[PublishedShelf, Batch]]:
        for name, shelf in self._shelves.items():
            with self._server.outside() as sql:
                for batch in shelf.batches(sql, found[name]):
                    yield shelf, batch

    def _send(self, shelf: PublishedShelf, batch: Batch) -> None:
        """Write one batch, in a thread with connections of its own."""
        with self._file.reading(limited=False) as local, self._server.writing() as remote:
            self._publication.origin.verify(remote)
            staged.prepare(remote)
            shelf.write(local, remote, batch)

    def _finish(self, found: Mapping[str, Differences]) -> None:
        """Make the graphs that are due, have the tables vacuumed, and note the time."""
        graphs.make(self._server, self._source.exact_rows, self._progress)
        if sum(map(_passages, found.values())) >= VACUUMED_ROWS:
            with self._server.outside() as sql:
                for number, statement in enumerate(VACUUM):
                    self._report(Progress(step="vacuum", done=number, total=len(VACUUM)))
                    sql.execute(statement.encode())
        with self._server.writing() as sql:
            origins.finish(sql, self._publication.origin)

    def _report(self, progress: Progress) -> None:
        if self._progress:
            self._progress(progress)

    def _waiting(self) -> int:
        model = self._publication.model
        if model is None:
            return 0
        with self._file.reading(limited=False) as sql:
            indexes = (self._source.documents, self._source.memories)
            return sum(each.count_pending(sql, model.row.key) for each in indexes)


class _PublishProgress:
    """Reports progress, with an estimate of what is left by what it took so far."""

    def __init__(self, progress: ProgressCallback | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        self._began = time.monotonic()

    def count(self, items: int) -> None:
        """Report so many items more."""
        self._done += items
        if self._progress:
            spent = time.monotonic() - self._began
            left = spent / self._done * (self._total - self._done) if self._done else None
            self._progress(
                Progress(step="publish", done=self._done, total=self._total, seconds_left=left)
            )


def _finished(running: dict[Future[None], Batch]) -> int:
    """Wait until a batch is written; the number of its items. Raises what went wrong."""
    done, _ = wait(running, return_when=FIRST_COMPLETED)
    count = 0
    for each in done:
        batch = running.pop(each)
        each.result()
        count += len(batch.items) + len(batch.gone)
    return count


def _passages(found: Differences) -> int:
    """How many passages are sent: those of items of which more differs than fields."""
    return sum(each.passages for each in (*found.added, *found.changed) if any(each.parts[1:]))


def _counted(found: Differences, replaced: int = 0) -> PublishedItems:
    return PublishedItems(
        added=len(found.added) - replaced,
        updated=len(found.changed) + replaced,
        deleted=max(0, len(found.gone) - replaced),
        unchanged=found.same,
    )
