"""Bringing a library in line with its folder.

The folder is walked in the order of paths, and so are the rows of the file that belong to it, so
the two are compared like two sorted lists, however long they are. A first look counts what is to be
read and learns what has vanished; only if there is something to read, a second look does it,
because a file that is new here may be one that vanished there. Every step is a transaction that
leaves the file sound, and whatever is interrupted is found again by the next sync.

A file whose size and modification time are as they were is not opened. One that could not be read
as a document is remembered by them too, until it or this program changes. A document leaves only
when its file is no longer among those that the library takes in; a new version that cannot be read
leaves the old one in place, and is told.
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

import apsw

from mcpvectordb import __version__
from mcpvectordb.config import Config
from mcpvectordb.documents.bulk_ingest import BulkIngest
from mcpvectordb.documents.libraries import FollowedLibrary
from mcpvectordb.errors import IngestError, InvalidInput, NoText, Unreadable, UnsupportedFormat
from mcpvectordb.ingest import sources
from mcpvectordb.ingest.folders import Walk
from mcpvectordb.records import ProgressCallback, Source, Synced
from mcpvectordb.storage.file import File

PAGE = 1000  # rows that are read at once
BATCH = 50  # documents that leave in one transaction
NOTES = 500  # small notes that are written in one transaction
TICK = 20_000_000  # nanoseconds; within one, file systems may not tell two changes apart
COARSE_TICK = 2_000_000_000  # on file systems that keep whole seconds

Remove = Callable[[apsw.Connection, int], int]


class _Row(NamedTuple):
    """A path that the file knows: a document (key), or one that was skipped (reason)."""

    path: str
    size: int
    mtime_ns: int
    key: int | None
    reason: str


Difference = tuple[_Row | None, tuple[str, os.stat_result] | None]
"""What is known of a path, if anything, and the file that must be read there; None when it has
vanished.
"""


def sync(
    file: File,
    config: Config,
    library: FollowedLibrary,
    intake: BulkIngest,
    remove: Remove,
    progress: ProgressCallback | None = None,
) -> Synced:
    """Take in what is new or changed in a library's folder, and let go what has vanished from it;
    see `check_root`.
    """
    return _Sync(file, config, library, intake, remove, progress).run()


def ingest_folder(
    file: File,
    config: Config,
    library: FollowedLibrary,
    intake: BulkIngest,
    progress: ProgressCallback | None = None,
) -> Synced:
    """Take in what is new or changed in a folder; what has vanished from it stays."""
    return _Sync(file, config, library, intake, None, progress).run()


def check_root(file: File, library: FollowedLibrary) -> None:
    """Refuse a folder that is not there: nothing in it was deleted, its disk is not mounted, or it
    was moved.
    """
    try:
        inode = str(os.stat(library.root).st_ino)  # noqa: PTH116 - a path as it is kept in the file
        if inode == library.inode:
            return
        with os.scandir(library.root) as entries:
            empty = next(entries, None) is None
    except OSError as error:
        raise Unreadable(
            f"the folder {library.root} of the library {library.name!r} cannot be read: "
            f"{error.strerror}; nothing was removed. Mount its disk, or remove the library"
        ) from None
    if empty:
        raise Unreadable(
            f"the folder {library.root} of the library {library.name!r} is empty and not the one "
            "it was, as if its disk was not mounted; nothing was removed. Mount it, or remove the "
            "library"
        )
    with file.writing() as sql:
        sql.execute("UPDATE libraries SET inode = ? WHERE name = ?", (inode, library.name))


class _Sync:
    """One run over one library."""

    def __init__(
        self,
        file: File,
        config: Config,
        library: FollowedLibrary,
        intake: BulkIngest,
        remove: Remove | None,
        progress: ProgressCallback | None,
    ) -> None:
        self._file, self._config, self._library = file, config, library
        self._intake, self._remove = intake, remove
        self._progress, self._step = progress, "sync" if remove else "ingest"
        self._own = () if file.memory else (file.path,)
        self._notes: list[tuple[str, tuple[object, ...]]] = []
        self._counts: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._failures: list[tuple[str, str]] = []

    def run(self) -> Synced:
        look, vanished, waiting = self._first_look()
        if waiting:
            look, vanished = self._second_look(vanished, waiting)
        if self._remove:
            check_root(
                self._file, self._library
            )  # nothing may leave because the folder was taken away meanwhile
            self._let_go(vanished, self._remove)
        self._write_notes()
        return self._told(look)

    def _told(self, look: _Look) -> Synced:
        counts, skipped = (
            self._counts + self._intake.counts,
            look.skipped + look.walk.skipped + self._skipped,
        )
        return Synced(
            library=self._library.name,
            indexed=counts["indexed"],
            replaced=counts["replaced"],
            moved=counts["moved"],
            removed=counts["removed"],
            unchanged=counts["unchanged"] + counts["skipped"] + look.unchanged,
            skipped=dict(sorted(skipped.items())),
            failures=(*look.walk.failures.items(), *look.failures, *self._failures),
        )

    def _first_look(self) -> tuple[_Look, dict[int, str], int]:
        """Documents that have vanished (key and path), and how many files are to be read."""
        look, waiting = self._look(), 0
        vanished: dict[int, str] = {}
        for row, found in look:
            if found:
                waiting += 1
            elif row and self._remove:
                self._miss(row, vanished)
        return look, vanished, waiting

    def _second_look(self, vanished: dict[int, str], waiting: int) -> tuple[_Look, dict[int, str]]:
        """Read what is to be read; documents that have vanished by now."""
        look, done = self._look(), 0
        gone: dict[int, str] = {}
        for row, found in look:
            if found:
                self._tell(done, waiting)
                self._take_in(row, *found, vanished)
                done += 1
            elif row and self._remove:
                self._miss(row, gone)
        self._intake.write()
        self._tell(waiting, waiting)
        self._note(
            "DELETE FROM library_skipped WHERE library = ? AND version <> ?",
            self._library.name,
            __version__,
        )
        return look, gone

    def _tell(self, done: int, total: int) -> None:
        if self._progress:
            self._progress(
                self._intake.progress(self._step, min(done, total) - self._intake.waiting, total)
            )

    def _look(self) -> _Look:
        walk = Walk(
            self._library.root,
            pattern=self._library.pattern,
            ignore=self._library.ignore,
            limit=self._config.max_source_bytes,
            databases=self._own,
        )
        return _Look(walk, _rows(self._file, self._library))

    def _miss(self, row: _Row, vanished: dict[int, str]) -> None:
        if row.key is None:
            self._forget_skipped(row.path)
        else:
            vanished[row.key] = row.path

    # Files that are new or look changed.

    def _take_in(
        self, row: _Row | None, path: str, info: os.stat_result, vanished: dict[int, str]
    ) -> None:
        known = row is not None and row.key is not None
        try:
            self._store(self._read(path, info), vanished)
        except (IngestError, InvalidInput) as error:
            if not known and isinstance(error, UnsupportedFormat | NoText):
                self._skip(
                    path,
                    info,
                    "without text" if isinstance(error, NoText) else "of no readable type",
                )
            elif os.path.lexists(path):
                self._failures.append(
                    (path, f"{error}; the version from before is kept" if known else str(error))
                )
        else:
            if row is not None and row.key is None:
                self._forget_skipped(path)

    def _read(self, path: str, info: os.stat_result) -> Source:
        """The file's bytes; no later change hides behind the size and time that were seen before
        they were read.
        """
        _settle(info.st_mtime_ns)
        read = sources.read_path(
            path, config=self._config, roots=[Path(self._library.root)], forbidden=self._own
        )
        return replace(read, source=path, mtime_ns=info.st_mtime_ns)

    def _store(self, source: Source, vanished: dict[int, str]) -> None:
        """Store a file, unless it is known already or has only moved."""
        hash = hashlib.sha256(source.raw).hexdigest()
        if (key := self._find(source.source, hash)) is not None:
            self._note(
                "UPDATE documents SET mtime_ns = ?, modified = ? WHERE key = ?",
                source.mtime_ns,
                source.modified,
                key,
            )
            self._counts["unchanged"] += 1
            return
        old = (
            next((key for key in self._copies(hash) if key in vanished), None) if vanished else None
        )
        if old is not None and self._remove:
            before = vanished.pop(old)
            if Path(before).name == source.name and self._moved(old, before, source, self._remove):
                self._counts["moved"] += 1
                return
        # Under another name it is read again: its title, and the way it is read, may depend on the
        # name.
        self._intake.bring(source, hash, old)

    def _find(self, path: str, hash: str) -> int | None:
        with self._file.reading() as sql:
            row = sql.execute(
                "SELECT key FROM documents WHERE library = ? AND source = ? AND hash = ?",
                (self._library.name, path, hash),
            ).fetchone()
        return row[0] if row else None

    def _copies(self, hash: str) -> list[int]:
        with self._file.reading() as sql:
            return [
                key
                for (key,) in sql.execute(
                    "SELECT key FROM documents WHERE library = ? AND hash = ? ORDER BY key",
                    (self._library.name, hash),
                )
            ]

    def _moved(self, key: int, before: str, source: Source, remove: Remove) -> bool:
        """Give a document its new path, in place of what was there; False if another process was
        faster.
        """
        with self._file.writing() as sql:
            if not sql.execute(
                "SELECT count(*) FROM documents WHERE key = ? AND source = ?", (key, before)
            ).get:
                return False
            for (other,) in list(
                sql.execute(
                    "SELECT key FROM documents WHERE library = ? AND source = ?",
                    (self._library.name, source.source),
                )
            ):
                remove(sql, other)
            sql.execute(
                "UPDATE documents SET source = ?, modified = ?, mtime_ns = ? WHERE key = ?",
                (source.source, source.modified, source.mtime_ns, key),
            )
        return True

    def _skip(self, path: str, info: os.stat_result, reason: str) -> None:
        self._skipped[reason] += 1
        self._note(
            "INSERT OR REPLACE INTO library_skipped (library, path, size, mtime_ns, reason, "
            "version) "
            # it may have been removed meanwhile
            "SELECT name, ?, ?, ?, ?, ? FROM libraries WHERE name = ?",
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

    # What spares work next time is written now and then: what a kill loses is only looked at again.

    def _note(self, statement: str, *bindings: object) -> None:
        self._notes.append((statement, bindings))
        if len(self._notes) >= NOTES:
            self._write_notes()

    def _write_notes(self) -> None:
        if self._notes:
            with self._file.writing() as sql:
                for statement, bindings in self._notes:
                    sql.execute(statement, bindings)
            self._notes.clear()

    # Files that have vanished.

    def _let_go(self, vanished: dict[int, str], remove: Remove) -> None:
        leaving = iter(vanished.items())
        while batch := list(islice(leaving, BATCH)):
            with self._file.writing() as sql:
                for key, path in batch:
                    if sql.execute(
                        "SELECT count(*) FROM documents WHERE key = ? AND source = ?", (key, path)
                    ).get:
                        remove(sql, key)
                        self._counts["removed"] += 1


class _Look:
    """A walk compared with the rows that the file has; iterate it once for the differences, then
    read the counts.
    """

    def __init__(self, walk: Walk, rows: Iterator[_Row]) -> None:
        self.walk, self._rows = walk, rows
        self.unchanged = 0
        self.skipped: Counter[str] = Counter()
        self.failures: list[tuple[str, str]] = []

    def __iter__(self) -> Iterator[Difference]:
        rows = self._rows
        row = next(rows, None)
        for path, info in self.walk:
            while row is not None and row[0] < path:
                yield from self._missing(row)
                row = next(rows, None)
            if row is None or row[0] != path:
                yield None, (path, info)
                continue
            if row[1] != info.st_size or row[2] != info.st_mtime_ns:
                yield row, (path, info)
            elif row[3] is not None:
                self.unchanged += 1
            else:
                self.skipped[row[4]] += 1
            while row is not None and row[0] == path:  # a path may have several documents
                row = next(rows, None)
        while row is not None:
            yield from self._missing(row)
            row = next(rows, None)

    def _missing(self, row: _Row) -> Iterator[Difference]:
        """A row whose path the walk did not bring up: it has vanished, if the walk could look
        there.
        """
        if row.path in self.walk.too_large and row.key is not None:
            size = self.walk.too_large[row.path]
            self.walk.skipped["too large"] -= 1  # it is told as a failure
            self.failures.append(
                (
                    row.path,
                    f"{row.path} has {size} bytes now, more than the limit (max_source_bytes); "
                    "the version from before is kept",
                )
            )
        elif not self.walk.failures or not self._unknown(row.path):
            yield row, None

    def _unknown(self, path: str) -> bool:
        return path in self.walk.failures or any(
            str(folder) in self.walk.failures for folder in Path(path).parents
        )


def _rows(file: File, library: FollowedLibrary) -> Iterator[_Row]:
    """What the file knows below a library's folder, by path; page by page, so that nothing is kept
    waiting.
    """
    prefix = os.path.join(library.root, "")  # noqa: PTH118 - the slash at the end is wanted
    last, end = prefix, prefix[:-1] + chr(ord(os.sep) + 1)
    while True:
        with file.reading() as sql:
            page = list(
                map(
                    _Row._make,
                    sql.execute(
                        "SELECT source, size, mtime_ns, key, '' FROM documents WHERE library = "
                        "?1 AND source > ?2 AND source < ?3 UNION ALL SELECT path, size, "
                        "mtime_ns, NULL, reason FROM library_skipped WHERE library = ?1 AND path "
                        "> ?2 AND path < ?3 AND version = ?4 ORDER BY 1 LIMIT ?5",
                        (library.name, last, end, __version__, PAGE),
                    ),
                )
            )
        yield from page
        if len(page) < PAGE:
            return
        last = page[-1].path


def _settle(mtime_ns: int) -> None:
    """Wait until a change after now would get another modification time than this one."""
    tick = TICK if mtime_ns % 1_000_000_000 else COARSE_TICK
    left = mtime_ns + tick - time.time_ns()
    if 0 < left <= tick:
        time.sleep(left / 1e9)
