"""An import from beginning to end: recognise the source, read it, store its items in batches."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import time
from pathlib import Path

from mcpvectordb import importers
from mcpvectordb.documents.shelf import Documents
from mcpvectordb.errors import IngestError, InvalidInput, ModelError
from mcpvectordb.importers.items import (
    FollowedFolder,
    Imported,
    ImportedDocument,
    ImportedMemory,
    ImportedVector,
    ImportOptions,
    Item,
    LeftOut,
    NotKept,
    OwnRecord,
    UnreadPart,
)
from mcpvectordb.importers.reading import ReadSource
from mcpvectordb.importers.report import ImportReport, add
from mcpvectordb.importers.restore import Restore
from mcpvectordb.importers.source import ImportSource
from mcpvectordb.importers.write import ImportTarget, ItemImport, Writer
from mcpvectordb.index import models
from mcpvectordb.index.encoder import Encoder
from mcpvectordb.records import Embedded, Progress, ProgressCallback

SCRATCH = ".mcpvectordb-import-"
DAY = 86_400.0
BATCH_ITEMS = 256
BATCH_CHARACTERS = 300_000  # of text and images: bounds the transaction of a batch


class ImportRun:
    """Stores the items of one import; they are collected until a batch is full."""

    def __init__(
        self,
        report: ImportReport,
        writers: dict[type, Writer],
        shelf: Documents,
        total: int,
        progress: ProgressCallback | None,
    ) -> None:
        self._report, self._writers, self._shelf = report, writers, shelf
        self._total, self._progress = total, progress
        self._waiting: list[ImportedDocument | ImportedMemory | ImportedVector | OwnRecord] = []
        self._characters = 0
        self._named: list[FollowedFolder] = []

    def take(self, item: Item) -> None:
        """Store an item now or with the next batch, or put it into the report."""
        match item:
            case LeftOut():
                self._report.skip(item.id, item.reason)
            case NotKept():
                add(self._report.not_kept, item.what, item.count)
            case UnreadPart():
                self._report.leave_unread(item.what)
            case FollowedFolder():
                self._follow(item)
            case _:
                self._collect(item)

    def flush(self) -> None:
        """Store what was collected, in the order in which it came."""
        some, self._waiting, self._characters = self._waiting, [], 0
        for kind, write in self._writers.items():
            of_kind = [item for item in some if type(item) is kind]
            if of_kind:
                write(of_kind)
        if self._progress:
            done = self._report.items
            self._progress(Progress(step="import", done=done, total=max(done, self._total) or None))

    def _collect(
        self, item: ImportedDocument | ImportedMemory | ImportedVector | OwnRecord
    ) -> None:
        self._waiting.append(item)
        self._characters += len(getattr(item, "text", ""))
        self._characters += sum(len(image.data) for image in getattr(item, "images", ()))
        if len(self._waiting) >= BATCH_ITEMS or self._characters >= BATCH_CHARACTERS:
            self.flush()

    def _follow(self, item: FollowedFolder) -> None:
        """Let a library follow a folder, if that is here."""
        known = {each.name: each.root for each in self._shelf.libraries() if each.root}
        if item.library in known:
            self._report.count("libraries", "known")
            if item.confirmed and known[item.library] == item.root:
                self._named.append(item)
            elif item.confirmed:
                self._report.notes.append(
                    f"the library {item.library} follows {known[item.library]} already: choose "
                    "another library"
                )
            return
        if not Path(item.root).is_dir():
            self._report.notes.append(
                f"the library {item.library} does not follow {item.root}, which is not a folder "
                "here; its documents are imported"
            )
            return
        if not self._report.dry_run and not self._add(item):
            return
        self._report.count("libraries", "added")
        if item.confirmed:
            self._named.append(item)
        else:
            self._report.notes.append(
                f"the library {item.library} is to follow {item.root}: if that folder may be read, "
                f"run `mcpvectordb library confirm {shlex.quote(item.library)}`, then "
                "`mcpvectordb sync`"
            )

    def sync(self) -> None:
        """Take in the files of the folders that the user named; a dry run only counts them."""
        for item in self._named:
            if self._report.dry_run:
                done = self._shelf.ingest_folder(
                    item.root, library=item.library, pattern=item.pattern, dry_run=True
                )
            else:
                [done] = self._shelf.sync(item.library, embed=False, progress=self._progress)
            self._report.count("documents", "added", done.indexed)
            self._report.count("documents", "changed", done.replaced + done.moved + done.updated)
            self._report.count("documents", "known", done.unchanged)
            self._report.skipped.update(done.skipped)
            self._report.skipped_items += done.skipped_paths
            for path, reason in done.failures:
                self._report.skip(path, reason)

    def _add(self, item: FollowedFolder) -> bool:
        """Add a library that follows a folder; whether that was possible."""
        try:
            self._shelf.add_library(
                item.library,
                item.root,
                pattern=item.pattern,
                ignore=item.ignore,
                confirm=item.confirmed,
            )
            for path, text in item.descriptions.items():
                self._shelf.describe(item.library, path, text)
        except (InvalidInput, IngestError) as error:
            self._report.notes.append(f"the library {item.library} follows no folder: {error}")
            return False
        return True


def run(
    target: ImportTarget,
    path: Path,
    kind: str | None,
    options: ImportOptions,
    *,
    embed: bool,
    dry_run: bool,
    progress: ProgressCallback | None,
) -> Imported:
    """Import a source; see `Database.import_from`."""
    with scratch_folder(None if target.store.file.memory else target.store.file.path) as scratch:
        source = ImportSource(path.expanduser().absolute(), Path(scratch))
        read = ReadSource(source, Path(scratch), kind, options, target.store.config, progress)
        inside = source.inside(importers.named(read.kind).file) or source
        report = ImportReport(read.kind, str(path), dry_run=dry_run)
        items = ItemImport(target, report, os.path.realpath(inside.path))
        writers = {**items.writers(), OwnRecord: Restore(target, report).write}
        running = ImportRun(report, writers, target.documents, read.total, progress)
        for item in read.items():
            running.take(item)
        running.flush()
        running.sync()
    embedded = (
        _embed(target.store.encoder, report, progress) if embed and not dry_run else Embedded()
    )
    return report.finished(embedded=embedded, pending=_pending(target))


def _embed(encoder: Encoder, report: ImportReport, progress: ProgressCallback | None) -> Embedded:
    """Embed what waits; a model that is not there is noted, and the texts are found by words."""
    try:
        return encoder.embed(progress=progress)
    except ModelError as error:
        report.notes.append(f"stored and found by words, but not yet by meaning: {error}")
        return Embedded()


def _pending(target: ImportTarget) -> int:
    with target.store.file.reading(limited=False) as sql:
        model = models.active(sql)
        return target.store.encoder.pending(sql, model) if model else 0


def scratch_folder(beside: Path | None) -> tempfile.TemporaryDirectory[str]:
    """A private folder for snapshots, on the disk of the database if that can be written.

    What killed imports have left there, a day ago or earlier, is removed.
    """
    folder = beside.parent if beside is not None and os.access(beside.parent, os.W_OK) else None
    for left in folder.glob(f"{SCRATCH}*") if folder else ():
        if time.time() - left.stat().st_mtime > DAY:
            shutil.rmtree(left, ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder)
