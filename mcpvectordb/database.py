"""The façade: one file, its shelves, and what is done to the file as a whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from mcpvectordb.config import Config
from mcpvectordb.documents import rows
from mcpvectordb.errors import Damaged, InvalidInput, ModelError, NotFound, ReadOnly
from mcpvectordb.history.log import History, acting_as
from mcpvectordb.history.records import Forgotten, HistoryEntry, Merged, Undone
from mcpvectordb.index.chunks import ChunkIndex, active_model
from mcpvectordb.index.resident import ResidentEntries
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.metadata import checked_page
from mcpvectordb.records import Exported, ProgressCallback, Stats, counted_passages
from mcpvectordb.storage.dialect import is_database_url
from mcpvectordb.storage.file import File
from mcpvectordb.store import Engine, OpenStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mcpvectordb.documents.shelf import Documents
    from mcpvectordb.embedding.embedder import Embedder
    from mcpvectordb.filters import Where
    from mcpvectordb.history.timeline import Timeline
    from mcpvectordb.history.versions import Item, VersionedShelf
    from mcpvectordb.index.keyword import MemoryFulltext
    from mcpvectordb.index.metadata_index import MetadataIndex
    from mcpvectordb.maintenance import MaintainedIndex
    from mcpvectordb.memories.memory import Memory
    from mcpvectordb.memories.shelf import Memories
    from mcpvectordb.postgres import Published
    from mcpvectordb.projects.shelf import Projects, ProjectScope
    from mcpvectordb.records import Chunk, Mode, Results
    from mcpvectordb.remotes.shelf import Remotes
    from mcpvectordb.search.both import Kind, Query
    from mcpvectordb.search.records import Context, Duplicates, LineMatches, Projection, Quotation
    from mcpvectordb.transfer.export import ExportFormat
    from mcpvectordb.transfer.items import Imported, Into
    from mcpvectordb.vectors.shelf import Vectors
    from mcpvectordb.vectors.store import VectorStore


class FileEngine:
    """What a database over a file is made of; `postgres.engine` has another one."""

    def __init__(self, path: str | os.PathLike[str], config: Config, tuning: Tuning) -> None:
        self.file = File(
            path,
            read_only=config.read_only,
            busy_timeout=config.busy_timeout,
            read_timeout=config.read_timeout,
            idle_seconds=tuning.idle_seconds,
        )
        memory = ResidentEntries(config.resident_bytes, tuning)
        self.resident = memory
        self.indexes = (
            ChunkIndex(
                "document",
                "(SELECT title FROM documents WHERE key = c.owner)",
                memory=memory,
                filtered=rows.FILTERED,
                unpublished="SELECT document FROM unpublished_documents",
            ),
            ChunkIndex("context", "", memory=memory),
        )

    def fulltext(self) -> MemoryFulltext:
        """The words of memories."""
        from mcpvectordb.index.keyword import MemoryFulltext

        return MemoryFulltext(self.indexes[1].texts, self.resident)

    def metadata_index(self, names: str) -> MetadataIndex:
        """The indexed metadata keys of memories."""
        from mcpvectordb.index.metadata_index import MetadataIndex

        return MetadataIndex(names)

    def vector_store(self, history: History) -> VectorStore:
        """The tables of vectors."""
        from mcpvectordb.vectors.store import VectorStore

        return VectorStore(self.file, history, self.resident)


class Database:
    """One SQLite file with everything in it, created if it does not exist.

    `":memory:"` is a database without a file. Any number of threads and processes may use a file at
    once. Use it as a context manager, or call `close`. `embedder` is an embedder of your own;
    without it the file's model is looked for on this machine.

    `"postgresql://user:password@host/name"` opens what files have published there (`publish`), for
    reading: the same searches and listings, with `origin` as one more field to filter by. What
    would change something, and what only a file has, raises ReadOnly.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        config: Config | None = None,
        embedder: Embedder | None = None,
        tuning: Tuning | None = None,
    ) -> None:
        self.config = config or Config()
        self._tuning = tuning or Tuning()
        self._engine = self._opened(path)
        self._store = OpenStore(self._engine, self.config, self._tuning, embedder)
        self._file, self._indexes = self._store.file, self._store.indexes
        self._history, self._encoder = self._store.history, self._store.encoder
        self._file.register_check(self.check)
        # What a damaged file still has of it stays: reading must be able to begin.
        with contextlib.suppress(Damaged):
            self._encoder.drop_provisional()

    def _opened(self, path: str | os.PathLike[str]) -> Engine:
        """The engine of a file, or of what was published."""
        if is_database_url(path):
            from mcpvectordb.postgres import require_driver

            require_driver()

            from mcpvectordb.postgres.engine import PostgresEngine

            return PostgresEngine(path, self.config.read_timeout, self._tuning)
        return FileEngine(path, self.config, self._tuning)

    # Made, and their modules loaded, on first use: most processes need one shelf.

    @cached_property
    def documents(self) -> Documents:
        """The documents shelf: files, web pages and texts."""
        from mcpvectordb.documents.shelf import Documents

        return Documents(self._store)

    @cached_property
    def vectors(self) -> Vectors:
        """The vectors shelf: embeddings of your own."""
        from mcpvectordb.vectors.shelf import Vectors

        return Vectors(self._store, self._store.vector_store)

    @cached_property
    def memories(self) -> Memories:
        """The memories shelf: what agents remember."""
        from mcpvectordb.memories.shelf import Memories

        return Memories(self._store)

    @cached_property
    def projects(self) -> Projects:
        """Which project a folder belongs to, and what of this file belongs to a project."""
        from mcpvectordb.projects.shelf import Projects

        return Projects(self._store, lambda: self.documents, self.memories)

    @cached_property
    def remotes(self) -> Remotes:
        """Places through which copies of this file on other machines exchange what changed."""
        from mcpvectordb.remotes.shelf import Remotes

        return Remotes(
            self._store,
            lambda: self._versioned,
            self._forget_items,
            lambda: self.documents.unpublished.clean(),
        )

    def _scope(self, project: str | None) -> ProjectScope | None:
        return None if project is None else self.projects.scope(project)

    @property
    def _maintained(self) -> tuple[MaintainedIndex, ...]:
        """Everything that can be checked and made again."""
        return (
            self._history,
            *self._indexes,
            self._store.vector_store,
            self._store.fulltext,
            self._store.metadata_index,
        )

    def __repr__(self) -> str:
        mode = ", read-only" if self.read_only else ""
        return f"<Database {self.place!r}{mode}{', closed' if self._file.closed else ''}>"

    @property
    def path(self) -> Path:
        """The path of the file; ":memory:" for a database in memory."""
        return self._file.path

    @property
    def place(self) -> str:
        """Where it is, for people: the path, or the URL without its password."""
        return self._file.place

    @property
    def set_aside(self) -> str:
        """Which log was set aside when the file was opened; "" if none was.

        A log that lies beside the file and was written for another one, which was there before, is
        not applied: it would replace what the file holds.
        """
        return self._file.set_aside

    @property
    def read_only(self) -> bool:
        """Whether the file is open for reading only, by request or because it is not writable."""
        return self._file.read_only

    @property
    def model(self) -> str:
        """The name of the embedding model of the file, or of the one a new file will use."""
        with self._file.reading() as sql:
            return self._encoder.expected_model(sql)[0]

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """The embeddings of texts by the file's model, as an array with a row for each text.

        With `query` they are those of questions, which some models embed in another way than
        passages. Nothing is stored. Raises ModelMissing where the model is not on this machine.
        """
        return self._encoder.embeddings(texts, query=query)

    def embed_pending(self, *, progress: ProgressCallback | None = None) -> int:
        """Embed every chunk that waits for it; returns how many were embedded.

        After an interruption it goes on where it was; several processes share the work.
        """
        return self._encoder.embed(progress=progress).chunks

    def embed_in_background(self, *, wait: float = 10.0, start: bool = True) -> None:
        """Embed what waits in a thread, now and after each ingest, until the database is closed.

        `documents.ingest`, `documents.ingest_text` and the methods that store memories then reply
        within `wait` seconds, reading a source not included: what is not embedded by then is found
        by words, and by meaning later, as their `note` says. With `start=False` the thread begins
        with the first ingest or with `warm`. Of several processes one at a time embeds what is
        left. A database that is open for reading only stays as it is.
        """
        self._encoder.embed_in_background(wait)
        if start and self._encoder.background is not None:
            self._encoder.background.ask()

    def use_model(self, name: str, *, progress: ProgressCallback | None = None) -> None:
        """Embed everything by another model; until that is done, searches use the old one."""
        self._encoder.use(name, progress)

    def warm(self, *, wait: bool = False) -> None:
        """Load in threads what searches need: the model, codes, common words, turns of memories.

        Until the model is loaded, hybrid searches use words alone, and their results say so. What
        waits is embedded then, after `embed_in_background`. With `wait` this returns when all is
        loaded.
        """
        from mcpvectordb.memories.surroundings import read_ahead

        self._encoder.warm(wait=wait, then=lambda: read_ahead(self._store))

    @property
    def loading(self) -> bool:
        """Whether `warm` is still loading the model."""
        return self._encoder.loading

    def deadline(
        self, cancelled: Callable[[], object] | None = None
    ) -> AbstractContextManager[object]:
        """Give all reads of a block one `Config.read_timeout` together; otherwise each has its own.

        Of two blocks, one inside of the other, the outer one counts. Past the deadline a read
        raises ReadTimeout. `cancelled` is called again and again during reads, many times a
        second, and ends them with what it raises, for whoever does not wait for the answer any
        more. Writes, and waiting for a model, are not limited.
        """
        return self._file.deadline(cancelled)

    def acting_as(self, name: str) -> AbstractContextManager[None]:
        """Let the changes of a block be made by `name` in the history; otherwise it is "python"."""
        return acting_as(name)

    def history(
        self, name: str | None = None, *, since: str | None = None, limit: int = 20
    ) -> list[HistoryEntry]:
        """What was changed, by whom and when, the newest first.

        `name` is a document's path (or the end of one), source or id, memory:7 or a uid for a
        memory, the id of a vector, or a library; also of something that was deleted. `since` is a
        time such as 2026-11-29, today or 2d (ago).
        """
        checked_page(limit, 0)
        items = None if name is None else self._history_items(name)
        return self._timeline.entries(items, since, limit)

    def diff(self, change: int, name: str | None = None) -> str:
        """What the change with this number did to texts and metadata, as a unified diff.

        It is about all that was changed, or what concerns `name`; see `history`.
        """
        return self._timeline.diff(change, None if name is None else self._history_items(name))

    def undo(self, change: int | None = None, *, embed: bool = True) -> Undone:
        """Take back the change with this number (see `history`), or the latest not yet undone.

        So one call after the other steps further back; `redo` steps forward again. An undo is a
        change itself, so its number can be undone. Items that were changed again since stay as
        they are (`Undone.kept`); if all were, InvalidInput is raised. Embeddings are made again, as
        far as the file has none for the same text; with `embed=False` by `embed_pending`.
        """
        return self._embedded(self._timeline.undo(change), embed)

    def redo(self, *, embed: bool = True) -> Undone:
        """Take the last undo back, whose number the result has; again: the one before it.

        Raises InvalidInput if something else was changed since, NotFound if nothing was undone.
        """
        return self._embedded(self._timeline.redo(), embed)

    def next_undo(self, *, redo: bool = False) -> HistoryEntry:
        """The change that `undo()` would take back, or with `redo` the undo that `redo()` would."""
        return self._timeline.next_undo(redo=redo)

    def _embedded(self, undone: Undone, embed: bool) -> Undone:
        if not embed:
            return undone
        try:
            self._encoder.embed()
        except ModelError as error:
            return replace(undone, note=f"found by words, but not yet by meaning: {error}")
        return undone

    def merge(
        self, path: str | os.PathLike[str], *, progress: ProgressCallback | None = None
    ) -> Merged:
        """Take everything from another file that is not here, or is newer there.

        Documents are the same by library and source, memories by an id of their own in all copies
        of a file, vectors by store, namespace and id. Of two changes of one item the later wins,
        and the other one is in the history; what was deleted later than it was changed is deleted.
        Embeddings come along if both files use the same model. The other file is not changed. It is
        one transaction: a kill leaves this file as it was, and other writers wait meanwhile.
        """
        import tempfile

        from mcpvectordb.merge import Merge, OtherFile
        from mcpvectordb.transfer.source import snapshot

        self._file.require_file("merging")
        source = Path(path).expanduser()
        if not source.is_file():
            raise InvalidInput(f"there is no file {source} to merge")
        if not self._file.memory and source.samefile(self.path):
            raise InvalidInput(f"{source} is the database itself: name another file")
        if self.read_only:
            raise ReadOnly(f"{self.place} is open for reading only, so nothing is merged into it")
        with contextlib.ExitStack() as opened:
            config = replace(self.config, read_only=True)
            try:
                other = opened.enter_context(Database(source, config=config))
            except ReadOnly:  # one of an older format is copied, and the copy migrated
                folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="mcpvectordb-"))
                copy = Path(folder) / "copy.db"
                snapshot(source, copy)
                config = replace(config, read_only=False)
                other = opened.enter_context(Database(copy, config=config))
            try:
                with other._file.reading(limited=False) as sql:
                    theirs = OtherFile(other._store, self._versioned, sql)
                    merged = Merge(self._store, self._versioned, theirs, progress).run()
            except Damaged as error:
                raise Damaged(f"{source} was not merged, and nothing changed: {error}") from None
        with self._file.reading(limited=False) as sql:
            model = active_model(sql)
            waiting = self._encoder.pending(sql, model) if model else 0
        self.documents.unpublished.clean()
        note = f"waiting for their embeddings: {counted_passages(waiting)}" if waiting else ""
        return replace(merged, path=str(source), note=note)

    def sync_with(
        self, path: str | os.PathLike[str], *, progress: ProgressCallback | None = None
    ) -> tuple[Merged, Merged]:
        """Merge another file into this one, then this one into it: both hold the same then."""
        if self._file.memory:
            raise InvalidInput("a database in memory has no file that another one could read")
        merged = self.merge(path, progress=progress)
        with Database(path, config=replace(self.config, read_only=False)) as other:
            return merged, other.merge(self.path, progress=progress)

    @property
    def _versioned(self) -> tuple[VersionedShelf, ...]:
        return (
            self.documents.writer,
            self.documents.library_versions,
            self.memories.versioned,
            self.vectors.versioned,
        )

    def forget(self, name: str) -> Forgotten:
        """Delete an item for good, with all that the history has of it; see `history` for names.

        Nothing of it stays in the file: the indexes and the file are written anew, which takes as
        long as `compact`. Raises NotFound, and InvalidInput for a name of several items. Copies of
        the file still have it, and merging one brings it back; machines with which the file
        exchanges (`remotes`) forget it at their next exchange.
        """
        items = self._history_items(name)
        if len(items) > 1:
            shown = ", ".join(sorted(f"{each.place}/{each.name}".strip("/") for each in items))
            raise InvalidInput(f"{name!r:.200} may mean {len(items)} items: {shown:.1000}")
        if items[0].shelf == "libraries":
            raise InvalidInput(
                f"{name!r:.200} is a library: name its documents one by one, or remove it "
                "(`library remove`), then turn history off and compact the file"
            )
        same = self._timeline.same(items[0])
        self.remotes.forgotten(same, done=False)
        versions = self._forget_items(same)
        self.remotes.forgotten(same, done=True)
        return Forgotten(name=name, versions=versions)

    def _forget_items(self, items: Mapping[Item, int]) -> int:
        versions = sum(self._timeline.forget(*each) for each in items.items())
        self.compact()
        self._file.check_log_is_empty()
        return versions

    def keep_history(self, on: bool) -> None:
        """Keep what is replaced and deleted from now on, or delete it and keep nothing more."""
        self._history.switch(on)

    def _history_items(self, name: str) -> list[Item]:
        """The items of the history that a name may mean; raises NotFound."""
        [places] = self.documents.candidates([name])
        with self._file.reading() as sql:
            sources = rows.named_sources(sql, name)
        return self._timeline.named(name, [each.document.id for each in places], sources)

    @cached_property
    def _timeline(self) -> Timeline:
        from mcpvectordb.history.timeline import Timeline

        self._file.require_file("the history")
        return Timeline(self._file, self._history, self._versioned)

    def copy_to(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, history: bool = True
    ) -> Path:
        """Write a complete copy into a file, also while others write to this one.

        An existing file is an error or, with `overwrite`, replaced when the copy is complete; a
        database that is open in some process is never replaced. Without `history` nothing that was
        replaced or deleted is in the copy: so give a file to others.
        """
        self._file.require_file("a copy")
        from mcpvectordb import maintenance

        return maintenance.copy(
            self._file, Path(path), self.documents.unpublished, overwrite=overwrite, history=history
        )

    def export_to(
        self,
        path: str | os.PathLike[str],
        *,
        format: ExportFormat | None = None,
        library: str | None = None,
        overwrite: bool = False,
        progress: ProgressCallback | None = None,
    ) -> Exported:
        """Write everything, or the documents of one library, in a format that others read.

        jsonl     all but the history: `import_from` makes an equal file of it
        markdown  a folder with a file for each document and memory, with front matter
        csv       passages and vectors as one table
        parquet   the same, with embeddings as lists; needs the extra `parquet`

        Without `format` the name decides: .jsonl, .csv, .parquet, or no ending for a folder of
        Markdown; with .gz after it, JSONL and CSV are packed. It is one snapshot, also while others
        write, and appears complete or not at all. An existing file is an error or, with
        `overwrite`, replaced; a folder never is.
        """
        from mcpvectordb.transfer.export import export

        self._file.require_file("an export")
        return export(
            self._file,
            Path(path),
            format=format,
            library=library,
            overwrite=overwrite,
            progress=progress,
        )

    def publish(
        self,
        url: str,
        *,
        origin: str | None = None,
        libraries: Sequence[str] | None = None,
        progress: ProgressCallback | None = None,
    ) -> Published:
        """Bring this file into a PostgreSQL database with pgvector, to be searched there by many.

        `url` is postgresql://user:password@host/name; needs the extra `postgres`. The schema
        `mcpvectordb` is made there. The first time everything is sent, later what changed,
        deletions included; a run that was killed is continued by the next one. `origin` is the name
        under which the file is published: by default one that the file keeps, its file name and
        eight digits. Afterwards the origin has the documents of these `libraries` and nothing else,
        or everything that the file has. Files may be published at the same time; of two publishers
        of one origin the second waits for `Config.busy_timeout`, then raises Busy.
        """
        from mcpvectordb.postgres import require_driver

        self._file.require_file("publishing")
        require_driver()
        from mcpvectordb.postgres.publish import publish

        return publish(self._store, url, origin=origin, libraries=libraries, progress=progress)

    def compact(self) -> int:
        """Give unused space back to the file system; returns the number of bytes."""
        self._file.require_file("compacting")
        from mcpvectordb import maintenance

        return maintenance.compact(self._file, self._maintained, self.documents.unpublished)

    def check(self) -> list[str]:
        """All problems of the file, one sentence each; an empty list if it is sound."""
        self._file.require_file("a check")
        from mcpvectordb import maintenance

        return maintenance.check(self._file, self._maintained)

    def rebuild(self, *, clock: bool = False) -> None:
        """Create the indexes again from the tables that are the truth.

        With `clock` also mend the times of the history, where this machine or another one had a
        clock that was days or years ahead: what was changed then gets the time right after the
        last change before, in the same order. This machine's clock must be right.
        """
        self._file.require_file("rebuilding indexes")
        if clock:
            self._history.set_clock_back()
        from mcpvectordb import maintenance

        maintenance.rebuild(self._file, self._maintained)

    def stats(self) -> Stats:
        """Counts, sizes and the model of the file."""
        from mcpvectordb import maintenance

        return maintenance.stats(self._file, self._encoder)

    def import_from(
        self,
        path: str | os.PathLike[str],
        kind: str | None = None,
        *,
        library: str = "",
        into: Into | Literal[""] = "",
        table: str = "",
        text: Sequence[str] = (),
        id: str = "",
        title: str = "",
        embedding: str = "",
        metadata: Sequence[str] = (),
        model: str = "",
        embed: bool = True,
        dry_run: bool = False,
        progress: ProgressCallback | None = None,
    ) -> Imported:
        """Import what another program has stored; the report says what came and what did not.

        `kind` is one of `kinds.KINDS`; without it the source is recognised by its content. The
        source is only read, and may be in use. Importing again brings what is new and what changed;
        items that were changed here stay as they are. After a kill, the same call continues.
        `dry_run` only reports. Embeddings are kept where they are those of the file's model;
        everything else is embedded at the end, or with `embed=False` by `embed_pending`.

        library    the library of all documents; otherwise the source decides
        into       "documents" or "vectors", for items that have a text and an embedding
        table, text, id, title, embedding, metadata   columns or fields of tables, JSON Lines, CSV
        model      the name of the model that made the embeddings, where the source does not say it
        """
        from mcpvectordb.transfer.items import ImportOptions
        from mcpvectordb.transfer.restore import ImportTarget
        from mcpvectordb.transfer.write import run

        self._file.require_file("an import")
        target = ImportTarget(self._store, self.documents, self.memories, self.vectors)
        options = ImportOptions(
            library=library,
            into=into,
            table=table,
            text=text,
            id=id,
            title=title,
            embedding=embedding,
            metadata=metadata,
            model=model,
        )
        return run(
            target, Path(path), kind, options, embed=embed, dry_run=dry_run, progress=progress
        )

    def space(self) -> dict[str, int]:
        """The bytes that each kind of content takes in the file, and those that are unused.

        Every page of the file is read for it, so it takes seconds in a large one.
        """
        from mcpvectordb import maintenance

        return maintenance.space(self._file)

    def data_version(self) -> int:
        """A number that is another one after any other thread or process has changed the file.

        Ask again in the same thread: the numbers of two threads do not compare.
        """
        return self._file.version()

    def last_change(self) -> int:
        """A number that is another one after any process has changed an item; embedding does not.

        Items are documents, memories, vectors and libraries.
        """
        if self._file.published:
            return self._file.version()
        with self._file.reading() as sql:
            return int(sql.execute("SELECT clock FROM history_state").get)

    def close(self) -> None:
        """Close the file; the last process to close it leaves a single file without a log."""
        if "remotes" in self.__dict__:
            self.remotes.close()
        if "documents" in self.__dict__:
            self.documents.close()
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Documents and memories asked together; their modules are loaded on first use: many processes
    # need neither.

    def search(
        self,
        query: Query,
        *,
        mode: Mode = "hybrid",
        kind: Kind | None = None,
        library: str | None = None,
        thread: str | None = None,
        project: str | None = None,
        tags: Sequence[str] | None = None,
        where: Where | None = None,
        since: str | None = None,
        until: str | None = None,
        limit: int = 10,
        offset: int = 0,
        min_relevance: float = 0.0,
        rerank: bool = False,
        group: bool = False,
        fold: bool = False,
        newer: str | None = None,
        as_of: str | None = None,
    ) -> Results[Chunk | Memory]:
        """The passages of documents and the memories that answer a query best, in one ranking.

        `query` is a text, asked by words (`mode` "text"), by meaning ("vector") or by both, or a
        list of searches by `words`, by `meaning` or by both (`text`), whose rankings are fused by
        reciprocal ranks, the first counting double: [{"words": "E-4021"}, {"meaning": "the pump
        does not start"}].

        `kind` ("documents" or "memories") asks for one kind. A `library` has documents only, a
        `thread` and `tags` memories only, and so does a `where` that names a field of one kind.
        `project` is a name (see `Database.projects`): documents and memories that belong to it.
        `since` and `until` are dates (2025-11-29, 2025-11), ages (7d), today or yesterday: for a
        memory the time at which it was stored, for a document the field `date`: its own (metadata
        `date`, as of front matter and e-mails), else that of its file, else that of its ingest.

        Both kinds are ranked together by `relevance`, each in its own order. Where that is not
        known of every hit (`Results.uncalibrated`), they alternate. `group` brings the best passage
        of each document before others, `fold` leaves out passages that say what a better one says,
        `rerank` has a cross-encoder order the best, and `newer`, a half-life such as 30d, prefers
        what is newer; see `documents.search`.

        Memories are found that hold now, or with `as_of` (2025-11-29, 2025, 7d …) those that held
        then; "any" also finds those that hold no longer, not yet, or were replaced. Documents are
        searched as they are now.
        """
        from mcpvectordb.search import both

        which = both.checked_filters(
            kind,
            library=library,
            thread=thread,
            project=self._scope(project),
            tags=tags,
            where=where,
            since=since,
            until=until,
            as_of=as_of,
        )
        return both.search(
            self._file,
            self.documents,
            lambda: self.memories,
            query,
            which,
            mode=mode,
            limit=limit,
            offset=offset,
            min_relevance=min_relevance,
            rerank=rerank,
            group=group,
            fold=fold,
            newer=newer,
        )

    def context(
        self,
        query: Query | Results[Chunk | Memory],
        *,
        budget: int = 2000,
        limit: int = 8,
        offset: int = 0,
        reserved: int = 0,
        **options: Any,
    ) -> Context:
        """What a search finds as one text for a model: each passage below the line that cites it.

        `query`, `limit`, `offset` and other `options` are those of `search`; or it is what that
        returned. The text has at most `budget` tokens (at least 100) of four characters, less
        `reserved` characters. All passages are cut to the same length before the last ones are left
        out; of the first a beginning always stays.
        """
        from mcpvectordb.records import Results
        from mcpvectordb.search.context import context

        if not isinstance(query, Results):
            query = self.search(query, limit=limit, offset=offset, **options)
        return context(query, budget, offset=offset, reserved=reserved)

    def grep(
        self,
        pattern: str,
        *,
        literal: bool = False,
        case_sensitive: bool = True,
        kind: Kind | None = None,
        library: str | None = None,
        thread: str | None = None,
        project: str | None = None,
        limit: int = 50,
        as_of: str | None = None,
    ) -> LineMatches:
        """The lines of documents and memories that match a regular expression, or have a literal.

        The expression is one of RE2, which takes time linear in the text: no look-around and no
        back-references, and no pattern of more than 30,000 of its instructions. What cannot be
        read within `Config.read_timeout` is left out, and `note` says so; it also says where a long
        line was searched in pieces, so that a match longer than half a piece may be missing. For
        `project` and `as_of` see `search`.
        """
        from mcpvectordb.ranking.ranker import checked_window
        from mcpvectordb.search import both, texts

        checked_window(limit, 0)
        expression = texts.compiled(pattern, literal=literal, case_sensitive=case_sensitive)
        scope = self._scope(project)
        which = both.checked_filters(
            kind, library=library, thread=thread, project=scope, as_of=as_of
        )
        return texts.grep(self._store, expression, which, limit)

    def verify(
        self,
        quotation: str,
        *,
        document: str | None = None,
        memory: int | None = None,
        line: int | None = None,
        page: int | None = None,
        project: str | None = None,
    ) -> Quotation:
        """Whether a quotation stands in a stored text, and where: in a project, or in all texts.

        `document` (a name as for `documents.lookup`, also with a line) or `memory` says where it
        should stand, `line` or `page` at which place of it. Spacing, hyphens and the forms of
        quotation marks may differ, words may not; see `Quotation.status`.
        """
        from mcpvectordb.search import texts

        text = texts.checked_quotation(quotation)
        with self._file.reading() as sql:
            stated = texts.stated_place(
                sql, self._store, self.documents, document, memory, line, page
            )
            return texts.verify(sql, self._store, text, stated, self._scope(project))

    def similar(
        self,
        *,
        document: str | None = None,
        memory: int | None = None,
        chunk: int | None = None,
        kind: Kind | None = None,
        project: str | None = None,
        limit: int = 10,
    ) -> Results[Chunk | Memory]:
        """The documents and memories most similar to a stored one, by their embeddings.

        `document` is a name as for `documents.lookup`. The score is the cosine between the best
        passage of each and the mean of the passages of the one that is given. With a `chunk`
        (`Chunk.id`) in place of both, or a document with lines, passages are compared with this
        one, or those at these lines, alone, and several of one document may be returned.
        """
        from mcpvectordb.ranking.ranker import checked_window
        from mcpvectordb.search import both, texts
        from mcpvectordb.search.embeddings import SimilarTexts

        checked_window(limit, 0)
        wanted = both.checked_filters(kind, project=self._scope(project))
        with self._file.reading() as sql:
            model = active_model(sql)
            if chunk is not None and document is None and memory is None:
                if model is None or not self.documents.chunks_by_ids([chunk]):
                    raise NotFound(f"no passage has the id {chunk}")
                return SimilarTexts(sql, self._store, model).to_chunks([chunk], wanted, limit)
            given, place = texts.named_text(sql, self._store, self.documents, document, memory)
            if model is None:
                raise AssertionError  # a stored text has chunks, and these a model
            similar = SimilarTexts(sql, self._store, model)
            if place is not None and place.line is not None:
                chunks = similar.at_lines(given.key, place.line, place.lines or 1)
                return similar.to_chunks(chunks, wanted, limit)
            return similar.to_item(
                "documents" if given.is_document else "memories", given.key, wanted, limit
            )

    def highlights(self, text: str, query: str) -> list[tuple[int, int]]:
        """(start, end) of the words and phrases of a query in a text, in characters.

        Words are compared as the search by words compares them, by their stems, and one that is
        only begun as it is spelled, too.
        """
        from mcpvectordb.ranking.snippets import merged, occurrences
        from mcpvectordb.text.query import Term, parse_query

        parsed = parse_query(query)
        with self._file.reading():  # the time of a read runs only inside of one
            found = occurrences(text, parsed.marked, stemmed=True)
            if not parsed.begun:
                return found
            begun = [Term(parsed.begun, prefix=True)]
            return merged([*found, *occurrences(text, begun, stemmed=False)])

    def projection(self) -> Projection:
        """All embedded passages in the plane, those that say something similar near each other.

        It reads every embedding of the file: some seconds for 100,000 passages.
        """
        from mcpvectordb.search.embeddings import projection

        with self._file.reading(limited=False) as sql:
            return projection(sql, self._store, active_model(sql))

    def duplicates(self, *, min_cosine: float = 0.95) -> list[Duplicates]:
        """Groups of passages that say nearly the same, the largest first, by their embeddings.

        Each passage of a group has such a cosine with at least one other of it. The comparison is
        approximate, so that it takes seconds in a large file: of pairs just above the threshold a
        few are missed, of equal ones none. All embeddings are in memory meanwhile.
        """
        from mcpvectordb.search.embeddings import duplicates

        if not 0.5 <= min_cosine <= 1:
            raise InvalidInput(f"min_cosine must be 0.5 to 1, not {min_cosine}")
        with self._file.reading(limited=False) as sql:
            return duplicates(sql, self._store, active_model(sql), min_cosine)
