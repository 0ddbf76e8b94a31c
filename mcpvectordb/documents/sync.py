"""Ingest a folder once, or synchronize a library with the folder that it follows.

The walk through the folder and the stored rows below it are both sorted by path, so they are
compared by a merge of two sorted lists, in constant memory. A first pass counts the files to read
and collects the documents whose files have vanished. Only if there is something to read, a second
pass reads it: a file that is new at one path may be one that vanished at another, so all vanished
files must be known before the first new one is stored. Every step is a transaction that leaves the
file consistent; the next sync finds what an interrupted one did not do.

A file whose size and modification time are unchanged is not opened. A file that could not be read
as a document is recorded with both, too, and is tried again when it changes, or what this program
can read (`reads`: its version, and whether OCR is installed). A
document is removed only when its file is no longer among those that the library takes in; when a
new version cannot be read, the old one stays and the failure is reported.

Parsing, writing and embedding overlap. The caller's thread reads, parses (some formats in the
parser's process) and writes several documents in one short transaction. A second thread embeds what
is written. The queue between the two is the table of pending chunks in the file: memory does not
grow with the folder, a kill loses nothing that was reported as done, and several processes can
share the work. What the second thread leaves over, also because it failed, is embedded or reported
by `Encoder.embed`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from mcpvectordb import __version__
from mcpvectordb.config import Config, how_to_allow
from mcpvectordb.documents import libraries
from mcpvectordb.documents.items import DocumentChange
from mcpvectordb.documents.libraries import FollowedLibrary, bounds
from mcpvectordb.documents.write import (
    DocumentWriter,
    GivenText,
    PreparedDocument,
    has_ended,
    this_process,
)
from mcpvectordb.errors import (
    IngestError,
    InvalidInput,
    MCPVectorDBError,
    NoText,
    ParseFailed,
    UnsupportedFormat,
)
from mcpvectordb.index.tuning import DEFAULT
from mcpvectordb.ingest import sources
from mcpvectordb.ingest.folders import Skipped, Walk
from mcpvectordb.ingest.formats import OCR
from mcpvectordb.ingest.globs import EVERYTHING
from mcpvectordb.ingest.ocr import Tesseract
from mcpvectordb.ingest.worker import Worker
from mcpvectordb.records import (
    UNREAD_PAGES,
    Embedded,
    Progress,
    ProgressCallback,
    Source,
    Synced,
)
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.file import File
from mcpvectordb.store import OpenStore

HOLDS_KEYS = "a secret"
"""Why a file with keys, tokens or settings that have them is skipped (`sources.SecretFile`)."""
NEEDS_OCR = "an image (pip install 'mcpvectordb[ocr]' reads it)"
"""Why a picture or a scan is skipped where there is no OCR."""

_PLANNED = {"index": "indexed", "replace": "replaced", "remove": "removed"}
_UNFINISHED = "ingest:"  # begins the name of the setting that says that an ingest is under way


class StoredFile(NamedTuple):
    """A path that the database knows: of a document (`key`) or of a skipped file (`reason`)."""

    path: str
    size: int
    mtime_ns: int
    key: int | None
    reason: str


Difference = tuple[StoredFile | None, tuple[str, os.stat_result] | None]
"""What is stored of a path, if anything, and the file to read there; None if it has vanished."""


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

    With `check`, which raises unless the folder is there and may be read (`ConfirmedFolders`) and
    must have been called before, it is a sync: documents of vanished files are removed. Without it
    they stay. `metadata` is set in every document.
    """

    def __init__(
        self,
        writer: DocumentWriter,
        worker: Worker,
        library: FollowedLibrary,
        metadata: Mapping[str, Any] | None = None,
        check: Callable[[FollowedLibrary], None] | None = None,
    ) -> None:
        self._writer, self._worker, self._library = writer, worker, library
        self._metadata, self._check = metadata, check
        self._store, self._unpublished = writer.store, writer.unpublished
        self._file, self._tuning = self._store.file, self._store.tuning
        self._progress: ProgressCallback | None = None
        self._embedding: _EmbeddingThread | None = None
        self._waiting: list[PreparedDocument] = []  # to be written with the next batch
        self._notes: list[Callable[[Sql], object]] = []  # small changes for the next transaction
        self._first = self._began = time.monotonic()
        self._chunks = 0
        self._counts: Counter[str] = Counter()
        self._skipped = Skipped()
        self._failures: list[tuple[str, str]] = []
        self._partial: list[tuple[str, str]] = []
        self._vanished: tuple[str, ...] = ()

    def run(self, *, embed: bool, progress: ProgressCallback | None) -> Synced:
        """Compare the folder with the stored rows and apply the differences.

        With `embed`, a thread embeds meanwhile what is written.
        """
        self._progress = progress
        self._embedding = _EmbeddingThread(self._store) if embed else None
        try:
            comparison = self._run()
        finally:
            if self._embedding:
                self._embedding.stop()
        comparison.skipped += self._skipped
        comparison.failures += self._failures
        done = comparison.synced(self._library.name, self._counts)
        return replace(
            done,
            partial=tuple(self._partial),
            embedded=self._embedded,
            vanished=self._vanished,
        )

    def _run(self) -> _FolderDiff:
        comparison = _FolderDiff(self._store, self._library, self._keep)
        to_read = new = 0
        vanished: dict[int, str] = {}
        for stored, _, _ in self._to_read(comparison, vanished):
            to_read += 1
            new += stored is None or stored.key is None
        command = _command(self._library, self._metadata, sync=self._check is not None)
        with _marked(self._file, self._library, new, command) as renew:
            if to_read:
                comparison = _FolderDiff(self._store, self._library, self._keep)
                before, vanished = vanished, {}
                for done, each in enumerate(self._to_read(comparison, vanished)):
                    self._report(done, to_read)
                    renew()
                    self._ingest(*each, before if self._check else {})
                self._write()
                self._report(to_read, to_read)
                self._note(
                    "DELETE FROM library_skipped WHERE library = ? AND version <> ?",
                    self._library.name,
                    reads(self._store.config),
                )
        if self._check:
            # The folder may have been taken away during the walk: then nothing has vanished.
            self._check(self._library)
            if vanished:
                self._counts["removed"] += self._unpublished.withdraw_all(
                    list(vanished),
                    lambda sql, some: [key for key in some if _is_stored(sql, key, vanished[key])],
                )
        else:
            self._vanished = tuple(sorted(set(vanished.values())))
            if to_read or comparison.unchanged:
                self._note_folder()
        self._write_notes()
        return comparison

    def _note_folder(self) -> None:
        """Let paths be those below this folder, unless they are below one around it already."""
        name, folder = self._library.name, self._library.root
        with self._file.reading(limited=False) as sql:
            known = libraries.root(sql, name)
        if not known or not Path(folder).is_relative_to(known):
            self._later(partial(libraries.ingested_from, name=name, folder=folder))

    def _to_read(
        self, comparison: _FolderDiff, vanished: dict[int, str]
    ) -> Iterator[tuple[StoredFile | None, str, os.stat_result]]:
        """New and changed files; of vanished ones the documents (key and path) are added."""
        for stored, found in comparison:
            if found:
                yield stored, *found
            elif stored and stored.key is not None:
                vanished[stored.key] = stored.path
            elif stored and self._check:
                self._forget_skipped(stored.path)

    def _report(self, done: int, total: int) -> None:
        """Report the progress when `done` of `total` files were read, of which some wait."""
        if not self._progress:
            return
        done = min(done, total) - len(self._waiting)
        embedded, left = self._embedded, None
        # The other files are taken to be like the written ones.
        if done and not self._embedding:
            left = (total - done) * (time.monotonic() - self._began) / done
        elif done and embedded.chunks:
            expected = self._chunks * total / done
            left = max(0.0, expected - embedded.chunks) * embedded.seconds / embedded.chunks
        self._progress(
            Progress(
                step="sync" if self._check else "ingest",
                done=done,
                total=total,
                chunks=embedded.chunks,
                # Chunks of earlier ingests may be embedded too.
                chunks_known=max(self._chunks, embedded.chunks),
                tokens=embedded.tokens,
                tokens_per_second=embedded.tokens_per_second,
                seconds_left=left,
            )
        )

    @property
    def _embedded(self) -> Embedded:
        return self._embedding.done if self._embedding else Embedded()

    def _ingest(
        self, stored: StoredFile | None, path: str, info: os.stat_result, vanished: dict[int, str]
    ) -> None:
        """Read and store a file; if that fails, record it as skipped or as a failure."""
        known = stored is not None and stored.key is not None
        try:
            self._store_file(self._read(path, info), vanished)
        except (IngestError, InvalidInput) as error:
            if isinstance(error, sources.SecretFile):
                self._skipped.add(path, HOLDS_KEYS)
                if not known:  # a document that a person has made of it stays as it is
                    self._note_skipped(path, info, HOLDS_KEYS)
            elif not known and isinstance(error, UnsupportedFormat | NoText):
                reason = "without text" if isinstance(error, NoText) else "of no readable type"
                if OCR in str(error):
                    reason = NEEDS_OCR
                self._skipped.add(path, reason)
                self._note_skipped(path, info, reason)
            elif os.path.lexists(path):
                message = f"{error}; the previous version is kept" if known else str(error)
                self._failures.append((path, message))
                if not known and isinstance(error, ParseFailed) and error.settled:
                    # Reported once, until it changes.
                    self._note_skipped(path, info, "encrypted or damaged")
        else:
            if stored is not None and not known:
                self._forget_skipped(path)

    def _read(self, path: str, info: os.stat_result) -> Source:
        """The file's bytes, read when every later change must get another modification time."""
        whole_second = info.st_mtime_ns % 1_000_000_000 == 0
        tick = self._tuning.coarse_mtime_tick_ns if whole_second else self._tuning.mtime_tick_ns
        left = info.st_mtime_ns + tick - time.time_ns()
        if 0 < left <= tick:
            time.sleep(left / 1e9)
        read = sources.read_path(
            path,
            config=self._store.config,
            roots=[Path(self._library.root)],
            guard=True,
            forbidden=own_files(self._file),
        )
        return replace(read, source=path, mtime_ns=info.st_mtime_ns)

    def _store_file(self, source: Source, vanished: dict[int, str]) -> None:
        """Store a file, unless it is stored already or has only moved."""
        [known] = self._writer.known(self._library.name, [source])
        if known is not None:
            self._note(
                "UPDATE documents SET mtime_ns = ?, modified = ? WHERE key = ?",
                source.mtime_ns,
                source.modified,
                known.key,
            )
            self._keep(known.key)
            self._counts["unchanged"] += 1
            return
        old = None
        if vanished:
            with self._file.reading(limited=False) as sql:
                copies = sql.execute(
                    "SELECT key FROM published_documents WHERE library = ? AND hash = ?",
                    (self._library.name, source.hash),
                )
                old = min((key for (key,) in copies if key in vanished), default=None)
        if old is not None:
            before = vanished.pop(old)
            if Path(before).name == source.name and self._move(old, before, source):
                self._counts["moved"] += 1
                return
        # A file with a new name is parsed again: its title and its format may depend on the name.
        self._add(source, old)

    def _add(self, source: Source, moved: int | None) -> None:
        """Parse a file and write it, now or with the next batch.

        `moved` is the key of a document whose id, creation time and metadata it takes over.
        """
        parsed = self._worker.parse(source)
        given = GivenText(source, DocumentChange(keys=self._metadata), parsed=parsed)
        prepared = self._writer.prepare(given, self._library.name, moved=moved)
        if parsed.note:
            self._partial.append((source.source, parsed.note))
        if not self._waiting:
            self._first = time.monotonic()
        self._waiting.append(prepared)
        tuning = self._tuning
        if (
            len(self._waiting) >= tuning.documents_per_write
            or sum(len(each.spans) for each in self._waiting) >= tuning.chunks_per_write
            or time.monotonic() - self._first > tuning.seconds_per_write
        ):
            self._write()

    def _write(self) -> None:
        """Write the files that were added and are not written yet."""
        if not self._waiting:
            return
        encoder, index = self._store.encoder, self._store.documents
        done = self._writer.write_all(self._waiting)
        with self._file.reading(limited=False) as sql:
            waiting = encoder.pending_by_owner(sql, index, [each.key for each in done])
        self._chunks += sum(waiting.values())
        for prepared, written in zip(self._waiting, done, strict=True):
            moved = prepared.moved is not None and written.status != "unchanged"
            self._counts["moved" if moved else written.status] += 1
        self._waiting.clear()
        if self._embedding:
            self._embedding.notify()

    def _keep(self, key: int) -> None:
        """Set the metadata of this ingest in a document whose file is unchanged, now or later."""
        if self._metadata:
            self._later(partial(self._set_metadata, key))

    def _set_metadata(self, key: int, sql: Sql) -> None:
        change = DocumentChange(keys=self._metadata)
        self._counts["updated"] += self._writer.update(sql, key, change)[0]

    def _move(self, key: int, before: str, source: Source) -> bool:
        """Give a document its new path and remove others there; False if it is not there now."""
        with self._unpublished.writing() as sql:
            if not _is_stored(sql, key, before):
                return False
            others = sql.execute(
                "SELECT key FROM published_documents WHERE library = ? AND source = ?",
                (self._library.name, source.source),
            )
            self._unpublished.withdraw(sql, [other for (other,) in others])
            with self._unpublished.changing(sql, key) as stamp:
                sql.execute(
                    "UPDATE documents SET source = ?, modified = ?, mtime_ns = ?, stamp = ?, "
                    "twin = '' WHERE key = ?",
                    (source.source, source.modified, source.mtime_ns, stamp, key),
                )
        return True

    def _note_skipped(self, path: str, info: os.stat_result, reason: str) -> None:
        self._note(
            # Another process may have removed the library, which the SELECT then does not find.
            "INSERT OR REPLACE INTO library_skipped (library, path, size, mtime_ns, reason, "
            "version) SELECT name, ?, ?, ?, ?, ? FROM libraries WHERE name = ?",
            path,
            info.st_size,
            info.st_mtime_ns,
            reason,
            reads(self._store.config),
            self._library.name,
        )

    def _forget_skipped(self, path: str) -> None:
        self._note(
            "DELETE FROM library_skipped WHERE library = ? AND path = ?", self._library.name, path
        )

    # Notes only save work for the next sync: they are written in batches, and a kill may lose some.

    def _note(self, statement: str, *bindings: object) -> None:
        self._later(lambda sql: sql.execute(statement, bindings))

    def _later(self, write: Callable[[Sql], object]) -> None:
        self._notes.append(write)
        if len(self._notes) >= self._tuning.notes_per_write:
            self._write_notes()

    def _write_notes(self) -> None:
        if self._notes:
            with self._file.writing() as sql:
                for write in self._notes:
                    write(sql)
            self._notes.clear()


class _EmbeddingThread:
    """A thread that embeds pending chunks, from the first `notify` until `stop`."""

    def __init__(self, store: OpenStore) -> None:
        self._encoder, self._index = store.encoder, store.documents
        self._thread, self._stopped = ThreadPoolExecutor(1, "mcpvectordb-embed"), False
        self.done = Embedded()

    def notify(self) -> None:
        """Embed what waits, after what the thread is working on: there is more of it."""
        self._thread.submit(self._run)

    def stop(self) -> None:
        """End the thread after the batch that it is working on."""
        self._stopped = True
        self._thread.shutdown(cancel_futures=True)

    def _run(self) -> None:
        try:
            while not self._stopped and (some := self._encoder.embed_some(self._index)):
                if not some.chunks:  # others embed what is left
                    break
                self.done += some
        except Exception:  # it occurs again, and is reported, when the caller embeds what is left
            self._stopped = True


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
        self._stored = stored_files(store, library)
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
        known = self.unchanged + counts["unchanged"]
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
            return
        above = map(str, Path(stored.path).parents) if self.walk.failures else ()
        if not any(place in self.walk.failures for place in (stored.path, *above)):
            yield stored, None


def own_files(file: File) -> tuple[Path, ...]:
    """The files of the database itself, which is never ingested."""
    return () if file.memory else (file.path,)


def reads(config: Config) -> str:
    """What this program can read, by its version and the languages of an installed OCR program."""
    return f"{__version__}+{config.ocr_languages}" if Tesseract.found(config) else __version__


def stored_files(store: OpenStore, library: FollowedLibrary) -> Iterator[StoredFile]:
    """The documents and skipped files below a library's folder, by path.

    They are read in pages (keyset pagination), so that no read transaction stays open.
    """
    last, end = bounds(library.root)
    rows_per_page, readable = store.tuning.rows_per_page, reads(store.config)
    seen = "mtime_ns"
    if Tesseract.found(store.config):  # what could not be read without it is read again
        seen = f"iif(instr(metadata, '\"{UNREAD_PAGES}\"'), -1, mtime_ns)"
    while True:
        with store.file.reading(limited=False) as sql:
            rows = sql.execute(
                f"SELECT source, size, {seen}, key, '' FROM published_documents "
                "WHERE library = ?1 AND source > ?2 AND source < ?3 "
                "UNION ALL SELECT path, size, mtime_ns, NULL, reason FROM library_skipped "
                "WHERE library = ?1 AND path > ?2 AND path < ?3 AND version = ?4 "
                "ORDER BY 1 LIMIT ?5",
                (library.name, last, end, readable, rows_per_page),
            )
            page = [StoredFile._make(row) for row in rows]
        yield from page
        if len(page) < rows_per_page:
            return
        last = page[-1].path


def _is_stored(sql: Sql, key: int, source: str) -> bool:
    """Whether a document is still there, and of this source."""
    return bool(
        sql.execute(
            "SELECT count(*) FROM published_documents WHERE key = ? AND source = ?", (key, source)
        ).get
    )


@contextlib.contextmanager
def _marked(
    file: File, library: FollowedLibrary, new: int, command: str
) -> Iterator[Callable[[], None]]:
    """Mark an ingest as under way, in the settings, until all files of its folder were read.

    A killed process leaves the mark behind, and so does one that fails: `unfinished` says then that
    `command` goes on. `new` is how many files are to be read that are no documents yet. The block
    calls what it is given again and again, so that others do not take the ingest for cut off where
    they cannot see whether this process has ended.
    """
    name = f"{_UNFINISHED}{library.name}:{library.root}"
    value: dict[str, Any] = {
        "library": library.name,
        "folder": library.root,
        "process": this_process(),
        "command": command,
    }
    renewed = float("-inf")

    def write(leased: float) -> None:
        with file.writing() as sql:
            value.setdefault("total", new + _stored(sql, value))
            sql.execute(
                "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)",
                (name, json.dumps({**value, "leased": leased})),
            )

    def renew() -> None:
        nonlocal renewed
        if new > 1 and time.monotonic() - renewed > DEFAULT.writer_seconds / 4:
            renewed = time.monotonic()
            write(time.time() + DEFAULT.writer_seconds)

    renew()
    try:
        yield renew
    except BaseException:
        if new > 1:  # one file is read or is not
            with contextlib.suppress(MCPVectorDBError):  # else its process ends, or its time
                write(0.0)
        raise
    with file.reading(limited=False) as sql:
        begun = sql.execute("SELECT 1 FROM settings WHERE name = ?", (name,)).get
    if begun:
        with file.writing() as sql:
            sql.execute("DELETE FROM settings WHERE name = ?", (name,))


def unfinished(sql: Sql) -> Iterator[str]:
    """A sentence for each ingest of a folder that was cut off."""
    for (value,) in sql.execute(
        "SELECT value FROM settings WHERE name GLOB ? ORDER BY name", (f"{_UNFINISHED}*",)
    ).fetchall():
        with contextlib.suppress(ValueError, TypeError, KeyError):  # only a changed file has these
            ingest = json.loads(str(value))
            goes_on = time.time() <= float(ingest["leased"]) and not has_ended(ingest["process"])
            if not goes_on:
                yield (
                    f"the ingest of {ingest['folder']} into the library {ingest['library']} was "
                    f"cut off: {_stored(sql, ingest):,} of {int(ingest['total']):,} files are "
                    f"stored; `mcpvectordb {ingest['command']}` goes on"
                )


def _stored(sql: Sql, ingest: Mapping[str, Any]) -> int:
    """How many files of the folder are documents of the library."""
    return int(
        sql.execute(
            "SELECT count(*) FROM published_documents "
            "WHERE library = ? AND source > ? AND source < ?",
            (str(ingest["library"]), *bounds(str(ingest["folder"]))),
        ).get
    )


def _command(library: FollowedLibrary, metadata: Mapping[str, Any] | None, *, sync: bool) -> str:
    """The command that syncs a library, or ingests a folder, in the same way."""
    if sync:
        return shlex.join(["sync", library.name])
    words = ["ingest", library.root, "--library", library.name]
    if library.pattern != EVERYTHING:
        words += ["--pattern", library.pattern]
    for each in library.ignore:
        words += ["--ignore", each]
    for key, value in (metadata or {}).items():
        words += ["--metadata", f"{key}={json.dumps(value, ensure_ascii=False)}"]
    return shlex.join(words)
