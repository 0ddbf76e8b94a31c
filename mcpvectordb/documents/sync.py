"""Synchronize a library with the folder that it follows.

The walk through the folder and the stored rows below it are both sorted by path, so they are
compared by a merge of two sorted lists, in constant memory. A first pass counts the files to read
and collects the documents whose files have vanished. Only if there is something to read, a second
pass reads it: a file that is new at one path may be one that vanished at another, so all vanished
files must be known before the first new one is stored. Every step is a transaction that leaves the
file consistent; the next sync finds what an interrupted one did not do.

A file whose size and modification time are unchanged is not opened. A file that could not be read
as a document is recorded with both, too, and is tried again when it or this program changes. A
document is removed only when its file is no longer among those that the library takes in; when a
new version cannot be read, the old one stays and the failure is reported.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from mcpvectordb import __version__
from mcpvectordb.config import how_to_allow
from mcpvectordb.documents.bulk_ingest import BulkIngest
from mcpvectordb.documents.confirmed_folders import FollowedLibrary, bounds
from mcpvectordb.documents.unfinished import UnfinishedIngest
from mcpvectordb.errors import IngestError, InvalidInput, NoText, UnsupportedFormat
from mcpvectordb.ingest import sources
from mcpvectordb.ingest.folders import Skipped, Walk
from mcpvectordb.records import ProgressCallback, Source, Synced
from mcpvectordb.storage.file import File
from mcpvectordb.store import OpenStore

HOLDS_KEYS = "a secret"
"""Why a file with keys, tokens or settings that have them is skipped (`sources.SecretFile`)."""

_PLANNED = {"index": "indexed", "replace": "replaced", "remove": "removed"}

CheckFolder = Callable[[FollowedLibrary], None]
"""Raises unless a library's folder is there and may be read: `ConfirmedFolders.check`."""


class StoredFile(NamedTuple):
    """A path that the database knows: of a document (`key`) or of a skipped file (`reason`)."""

    path: str
    size: int
    mtime_ns: int
    key: int | None
    reason: str


Difference = tuple[StoredFile | None, tuple[str, os.stat_result] | None]
"""What is stored of a path, if anything, and the file to read there; None if it has vanished."""


def vanished(store: OpenStore, library: FollowedLibrary) -> list[int]:
    """The keys of the documents below a library's folder that a sync would remove."""
    return [
        stored.key
        for stored, found in _FolderDiff(store, library)
        if stored and stored.key and not found
    ]


def preview(store: OpenStore, library: FollowedLibrary, *, removes: bool) -> Synced:
    """What a sync of a library (`removes`) or an ingest of its folder would do, as far as sizes and
    times tell: no file is opened and nothing is written.
    """
    planned: list[tuple[str, str]] = []
    differences = _FolderDiff(store, library)
    for stored, found in differences:
        if found:
            planned.append(("replace" if stored and stored.key else "index", found[0]))
        elif removes and stored and stored.key is not None:
            planned.append(("remove", stored.path))
    counts = Counter(_PLANNED[what] for what, _ in planned)
    return replace(differences.synced(library.name, counts), planned=tuple(planned))


class FolderSync:
    """One ingest of new and changed files of a library's folder.

    With `check`, which must have been called before, it is a sync: documents of vanished files are
    removed. Without it they stay.
    """

    def __init__(
        self,
        library: FollowedLibrary,
        intake: BulkIngest,
        progress: ProgressCallback | None,
        check: CheckFolder | None = None,
    ) -> None:
        self._library, self._intake, self._progress, self._check = library, intake, progress, check
        self._store, self._unpublished = intake.store, intake.writer.unpublished
        self._file, self._tuning = self._store.file, self._store.tuning
        self._notes: list[tuple[str, tuple[object, ...]]] = []
        self._counts: Counter[str] = Counter()
        self._new = 0  # files to read that are no documents yet
        self._skipped = Skipped()
        self._failures: list[tuple[str, str]] = []

    def run(self) -> Synced:
        """Compare the folder with the stored rows and apply the differences."""
        comparison, vanished, to_read = self._first_pass()
        with UnfinishedIngest(
            self._file,
            self._library,
            self._new,
            sync=self._check is not None,
            metadata=self._intake.metadata,
        ) as mark:
            if to_read:
                comparison, vanished = self._second_pass(vanished, to_read, mark)
        if self._check:
            # The folder may have been taken away during the walk: then nothing has vanished.
            self._check(self._library)
            self._remove_vanished(vanished)
        self._write_notes()
        self._intake.update_known()
        comparison.skipped += self._skipped
        comparison.failures += self._failures
        done = comparison.synced(self._library.name, self._counts + self._intake.counts)
        return replace(done, partial=tuple(self._intake.partial))

    def _first_pass(self) -> tuple[_FolderDiff, dict[int, str], int]:
        """The documents of vanished files (key and path), and how many files must be read."""
        comparison, to_read = self._compare(), 0
        vanished: dict[int, str] = {}
        for stored, found in comparison:
            if found:
                to_read += 1
                self._new += stored is None or stored.key is None
            elif stored and self._check:
                self._vanish(stored, vanished)
        return comparison, vanished, to_read

    def _second_pass(
        self, vanished: dict[int, str], to_read: int, mark: UnfinishedIngest
    ) -> tuple[_FolderDiff, dict[int, str]]:
        """Read new and changed files; the documents of files that have vanished by now."""
        comparison, done = self._compare(), 0
        vanished_now: dict[int, str] = {}
        for stored, found in comparison:
            if found:
                self._report(done, to_read)
                mark.renew()
                self._ingest(stored, *found, vanished)
                done += 1
            elif stored and self._check:
                self._vanish(stored, vanished_now)
        self._intake.write()
        self._report(to_read, to_read)
        self._note(
            "DELETE FROM library_skipped WHERE library = ? AND version <> ?",
            self._library.name,
            __version__,
        )
        return comparison, vanished_now

    def _report(self, done: int, total: int) -> None:
        if self._progress:
            step = "sync" if self._check else "ingest"
            self._progress(
                self._intake.progress(step, min(done, total) - self._intake.waiting, total)
            )

    def _compare(self) -> _FolderDiff:
        return _FolderDiff(self._store, self._library, self._intake.keep)

    def _vanish(self, stored: StoredFile, vanished: dict[int, str]) -> None:
        if stored.key is None:
            self._forget_skipped(stored.path)
        else:
            vanished[stored.key] = stored.path

    # New and changed files

    def _ingest(
        self, stored: StoredFile | None, path: str, info: os.stat_result, vanished: dict[int, str]
    ) -> None:
        """Read and store a file; if that fails, record it as skipped or as a failure."""
        known = stored is not None and stored.key is not None
        try:
            self._keep(self._read(path, info), vanished)
        except (IngestError, InvalidInput) as error:
            if isinstance(error, sources.SecretFile):
                self._skip_secret(path, info, known)
            elif not known and isinstance(error, UnsupportedFormat | NoText):
                reason = "without text" if isinstance(error, NoText) else "of no readable type"
                self._skip(path, info, reason)
            elif os.path.lexists(path):
                message = f"{error}; the previous version is kept" if known else str(error)
                self._failures.append((path, message))
        else:
            if stored is not None and stored.key is None:
                self._forget_skipped(path)

    def _read(self, path: str, info: os.stat_result) -> Source:
        """The file's bytes, read when every later change must get another modification time."""
        self._wait_for_tick(info.st_mtime_ns)
        read = sources.read_path(
            path,
            config=self._store.config,
            roots=[Path(self._library.root)],
            guard=True,
            forbidden=own_files(self._file),
        )
        return replace(read, source=path, mtime_ns=info.st_mtime_ns)

    def _keep(self, source: Source, vanished: dict[int, str]) -> None:
        """Store a file, unless it is stored already or has only moved."""
        hash = hashlib.sha256(source.raw).hexdigest()
        key = self._intake.writer.known(source.source, self._library.name, hash)
        if key is not None:
            self._note(
                "UPDATE documents SET mtime_ns = ?, modified = ? WHERE key = ?",
                source.mtime_ns,
                source.modified,
                key,
            )
            self._intake.keep(key)
            self._counts["unchanged"] += 1
            return
        copies = self._copies(hash) if vanished else []
        old = next((key for key in copies if key in vanished), None)
        if old is not None:
            before = vanished.pop(old)
            if Path(before).name == source.name and self._move(old, before, source):
                self._counts["moved"] += 1
                return
        # A file with a new name is parsed again: its title and its format may depend on the name.
        self._intake.add(source, hash, old)

    def _copies(self, hash: str) -> list[int]:
        with self._file.reading(limited=False) as sql:
            return [
                key
                for (key,) in sql.execute(
                    "SELECT key FROM published_documents "
                    "WHERE library = ? AND hash = ? ORDER BY key",
                    (self._library.name, hash),
                )
            ]

    def _move(self, key: int, before: str, source: Source) -> bool:
        """Give a document its new path and remove others there; False if it is not there now."""
        with self._file.writing() as sql:
            if not sql.execute(
                "SELECT count(*) FROM published_documents WHERE key = ? AND source = ?",
                (key, before),
            ).get:
                return False
            others = sql.execute(
                "SELECT key FROM published_documents WHERE library = ? AND source = ?",
                (self._library.name, source.source),
            )
            self._unpublished.withdraw(sql, [other for (other,) in others])
            with self._unpublished.versions.changing(sql, key) as stamp:
                sql.execute(
                    "UPDATE documents SET source = ?, modified = ?, mtime_ns = ?, stamp = ?, "
                    "twin = '' WHERE key = ?",
                    (source.source, source.modified, source.mtime_ns, stamp, key),
                )
        self._unpublished.clean()
        return True

    def _skip_secret(self, path: str, info: os.stat_result, known: bool) -> None:
        """Leave a secret out; a document that a person has made of it stays as it is."""
        if known:
            self._skipped.add(path, HOLDS_KEYS)
        else:
            self._skip(path, info, HOLDS_KEYS)

    def _skip(self, path: str, info: os.stat_result, reason: str) -> None:
        self._skipped.add(path, reason)
        self._note(
            # Another process may have removed the library, which the SELECT then does not find.
            "INSERT OR REPLACE INTO library_skipped (library, path, size, mtime_ns, reason, "
            "version) SELECT name, ?, ?, ?, ?, ? FROM libraries WHERE name = ?",
            path,
            info.st_size,
            info.st_mtime_ns,
            reason,
            __version__,
            self._library.name,
        )

    def _forget_skipped(self, path: str) -> None:
        self._note(
            "DELETE FROM library_skipped WHERE library = ? AND path = ?", self._library.name, path
        )

    # Notes only save work for the next sync: they are written in batches, and a kill may lose some.

    def _note(self, statement: str, *bindings: object) -> None:
        self._notes.append((statement, bindings))
        if len(self._notes) >= self._tuning.notes_per_write:
            self._write_notes()

    def _write_notes(self) -> None:
        if self._notes:
            with self._file.writing() as sql:
                for statement, bindings in self._notes:
                    sql.execute(statement, bindings)
            self._notes.clear()

    def _remove_vanished(self, vanished: dict[int, str]) -> None:
        remaining = iter(vanished.items())
        while batch := list(islice(remaining, self._tuning.removals_per_write)):
            packed = self._unpublished.pack_long([key for key, _ in batch])
            with self._file.writing() as sql:
                keys = [
                    key
                    for key, path in batch
                    if sql.execute(
                        "SELECT count(*) FROM published_documents WHERE key = ? AND source = ?",
                        (key, path),
                    ).get
                ]
                self._unpublished.withdraw(sql, keys, packed)
            self._unpublished.clean()
            self._counts["removed"] += len(keys)

    def _wait_for_tick(self, mtime_ns: int) -> None:
        """Wait until a later change would get another modification time than this one."""
        whole_second = mtime_ns % 1_000_000_000 == 0
        tick = self._tuning.coarse_mtime_tick_ns if whole_second else self._tuning.mtime_tick_ns
        left = mtime_ns + tick - time.time_ns()
        if 0 < left <= tick:
            time.sleep(left / 1e9)


class _FolderDiff:
    """A walk merged with the stored rows; iterate it once for the differences, then read counts.

    `keep` is called with the key of each document whose file is unchanged.
    """

    def __init__(
        self,
        store: OpenStore,
        library: FollowedLibrary,
        keep: Callable[[int], None] = lambda key: None,
    ) -> None:
        self.walk = Walk(
            library.root,
            pattern=library.pattern,
            ignore=library.ignore,
            limit=store.config.max_source_bytes,
            databases=own_files(store.file),
        )
        self._stored = stored_files(store.file, library, store.tuning.rows_per_page)
        self._keep = keep
        self.unchanged = 0
        self.skipped = Skipped()
        self.failures: list[tuple[str, str]] = []

    def __iter__(self) -> Iterator[Difference]:
        stored = next(self._stored, None)
        for path, info in self.walk:
            while stored is not None and stored.path < path:
                yield from self._missing(stored)
                stored = next(self._stored, None)
            if stored is None or stored.path != path:
                yield None, (path, info)
                continue
            if (stored.size, stored.mtime_ns) != (info.st_size, info.st_mtime_ns):
                yield stored, (path, info)
            elif stored.key is not None:
                self._keep(stored.key)
                self.unchanged += 1
            else:
                self.skipped.add(path, stored.reason)
            # Several documents may have the same path.
            while stored is not None and stored.path == path:
                stored = next(self._stored, None)
        while stored is not None:
            yield from self._missing(stored)
            stored = next(self._stored, None)

    def synced(self, library: str, counts: Counter[str]) -> Synced:
        """The result for a library of which so many files had each outcome."""
        skipped = self.skipped + self.walk.skipped
        known = self.unchanged + counts["unchanged"] + counts["skipped"]
        return Synced(
            library=library,
            indexed=counts["indexed"],
            replaced=counts["replaced"],
            moved=counts["moved"],
            removed=counts["removed"],
            updated=counts["updated"],
            unchanged=known - counts["updated"],
            skipped=dict(sorted(skipped.counts.items())),
            skipped_paths=tuple(skipped.paths),
            failures=(*self.walk.failures.items(), *self.failures),
        )

    def _missing(self, stored: StoredFile) -> Iterator[Difference]:
        """The difference for a stored path that the walk did not return, if it has vanished.

        It has not if the walk failed there, or if the file is too large now.
        """
        if stored.path in self.walk.too_large and stored.key is not None:
            size = self.walk.too_large[stored.path]
            # It is reported as a failure instead.
            self.walk.skipped.remove(stored.path, "too large")
            message = (
                f"{stored.path} has {size} bytes now, more than the limit "
                f"{how_to_allow('max_source_bytes')}; the previous version is kept"
            )
            self.failures.append((stored.path, message))
        elif not self.walk.failures or not self._unreadable(stored.path):
            yield stored, None

    def _unreadable(self, path: str) -> bool:
        return path in self.walk.failures or any(
            str(folder) in self.walk.failures for folder in Path(path).parents
        )


def own_files(file: File) -> tuple[Path, ...]:
    """The files of the database itself, which is never ingested."""
    return () if file.memory else (file.path,)


def stored_files(file: File, library: FollowedLibrary, rows_per_page: int) -> Iterator[StoredFile]:
    """The documents and skipped files below a library's folder, by path.

    They are read in pages (keyset pagination), so that no read transaction stays open.
    """
    last, end = bounds(library.root)
    while True:
        with file.reading(limited=False) as sql:
            rows = sql.execute(
                "SELECT source, size, mtime_ns, key, '' FROM published_documents "
                "WHERE library = ?1 AND source > ?2 AND source < ?3 "
                "UNION ALL SELECT path, size, mtime_ns, NULL, reason FROM library_skipped "
                "WHERE library = ?1 AND path > ?2 AND path < ?3 AND version = ?4 "
                "ORDER BY 1 LIMIT ?5",
                (library.name, last, end, __version__, rows_per_page),
            )
            page = [StoredFile._make(row) for row in rows]
        yield from page
        if len(page) < rows_per_page:
            return
        last = page[-1].path
