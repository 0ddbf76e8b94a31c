"""The documents shelf: ingest sources, list documents, and search them."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mcpvectordb import metadata
from mcpvectordb.config import Config
from mcpvectordb.documents import libraries, notes, rows
from mcpvectordb.documents.given import DocumentChange, checked_change
from mcpvectordb.documents.libraries import checked_name
from mcpvectordb.documents.library_shelf import LibraryDocuments
from mcpvectordb.documents.search import DocumentQuestion, DocumentSearch
from mcpvectordb.documents.write import DocumentWriter, RestoredDocuments
from mcpvectordb.errors import ModelError, NotFound
from mcpvectordb.filters import Where
from mcpvectordb.ingest.globs import EVERYTHING
from mcpvectordb.metadata import storable
from mcpvectordb.records import (
    Backlog,
    Chunk,
    Document,
    Embedded,
    Ingested,
    Mode,
    Progress,
    ProgressCallback,
    Results,
    Source,
    Status,
    Synced,
)
from mcpvectordb.search import snippets
from mcpvectordb.search.ranker import Fusion
from mcpvectordb.search.recency import Recency
from mcpvectordb.store import OpenStore
from mcpvectordb.text.query import without_operators

if TYPE_CHECKING:
    from mcpvectordb.documents.bulk_ingest import BulkIngest
    from mcpvectordb.documents.texts import GivenText
    from mcpvectordb.ingest.worker import Worker

# What brings documents in is loaded by the methods that use it: most processes only search.


class Documents(LibraryDocuments):
    """`Database.documents`: ingest, list and search documents; let libraries follow folders."""

    def __init__(self, store: OpenStore) -> None:
        super().__init__(store)
        self._config, self._encoder = store.config, store.encoder
        self._search = DocumentSearch(store)
        self._writer = DocumentWriter(store, self.unpublished)
        self.versioned = RestoredDocuments(store.file, self._writer, self.unpublished)

    @cached_property
    def _worker(self) -> Worker:
        from mcpvectordb.ingest.worker import Worker

        return Worker(self._config)

    def ingest(
        self,
        source: str | os.PathLike[str] | Source,
        *,
        library: str = "default",
        metadata: Mapping[str, Any] | None = None,
        embed: bool = True,
        progress: ProgressCallback | None = None,
        guard: bool = False,
        any_text: bool = True,
        roots: Sequence[str | os.PathLike[str]] = (),
        chunk_size: int | None = None,
        chunk_overlap: int | None = None,
        duplicate: bool = False,
        replace: bool = True,
        update_metadata: bool = True,
        reader: Callable[[Source], str] | None = None,
        wait: bool = True,
    ) -> Ingested:
        """Ingest a file, an http(s) URL, or bytes that you have read: `Source`.

        A source that is in the library already is skipped if its bytes are unchanged, and replaced
        otherwise; the old document stays until the new one is stored. The keys of `metadata` are
        set in either case (unless `update_metadata` is False, in the first one); what was given
        before stays, and wins over what the source says of itself. With `embed=False` it is
        found by words at once, and by meaning after `Database.embed_pending()`; after
        `Database.embed_in_background()` no ingest waits long for the model. `guard` refuses
        files that hold secrets, `roots` refuses files outside of these folders: set both when the
        path comes from somebody else. Text with an extension that is not known is read as plain
        text; `any_text=False` refuses it.

        `chunk_size` and `chunk_overlap` apply to this document only, instead of those of the
        database. With `duplicate` it is stored beside documents of the same source; without
        `replace` Exists is raised where the source has other content. `reader`
        returns the text of what was read, instead of the parser of its format; an exception that it
        raises ends the ingest. Without `wait` a page that must wait for `Config.host_interval`
        raises RetryLater, which says for how long.
        """
        from mcpvectordb.documents import texts as given_texts
        from mcpvectordb.ingest import formats, sources

        _check(library, metadata)
        # Refuses invalid sizes before anything is read.
        Config(chunk_size=chunk_size or 0, chunk_overlap=chunk_overlap or 0)
        deadline = self._encoder.deadline()
        own = () if self._file.memory else (self._file.path,)
        known, etag, modified = (None, "", "") if duplicate else self._fetched(source, library)
        read = sources.read(
            source,
            config=self._config,
            guard=guard,
            roots=[Path(root) for root in roots],
            forbidden=own,
            etag=etag,
            modified=modified,
            progress=progress,
            wait=wait,
        )
        hash = ""
        if read is not None:
            hash = hashlib.sha256(read.raw).hexdigest()
            known = None if duplicate else self._writer.known(read.source, library, hash)
        said = DocumentChange(keys=(metadata or None) if update_metadata else None)
        if known is not None:
            return self._finish(
                self._stored(self._writer.say(known, said)), embed, progress, deadline
            )
        assert read is not None, "a server answers 'not modified' for a known page only"  # noqa: S101
        if not any_text:
            formats.check_extension(read)
        report = progress or (lambda _: None)
        report(Progress(step="parse", done=0, total=1))
        parsed = given_texts.read_by(reader, read) if reader else self._worker.parse(read)
        prepared = self._writer.prepare(
            read,
            parsed,
            hash=hash,
            library=library,
            given=metadata,
            chunk_size=chunk_size,
            chunk_overlap=chunk_overlap,
            replaces=replace,
        )
        report(Progress(step="parse", done=1, total=1, chunks_known=len(prepared.spans)))
        status, key = self._writer.write(prepared, duplicate=duplicate)
        if status == "skipped":
            status, key = self._writer.say(key, said)
        done = self._finish(self._stored((status, key)), embed, progress, deadline)
        return dataclasses.replace(done, note=notes.joined(parsed.note, done.note))

    def ingest_text(
        self,
        text: str,
        *,
        source: str,
        title: str | None = None,
        library: str = "default",
        metadata: Mapping[str, Any] | None = None,
        replace: bool = True,
        embed: bool = True,
        progress: ProgressCallback | None = None,
    ) -> Ingested:
        """Ingest a text under a source name of your own, as Markdown or code; see `ingest`.

        It takes the place of another text of that name, which the history keeps; with
        `replace=False` that raises Exists instead, and nothing is stored.
        """
        from mcpvectordb.documents import texts as given_texts

        given = given_texts.checked_text(
            text, source, title, metadata, self._config.max_source_bytes
        )
        checked_name(library)
        deadline = self._encoder.deadline()
        [stored] = self._store_texts([given], library, replaces=replace)
        return self._finish(stored, embed, progress, deadline)

    def ingest_many(
        self,
        texts: Iterable[str],
        *,
        sources: Iterable[str],
        titles: Sequence[str | None] | None = None,
        metadata: Sequence[Mapping[str, Any] | None] | None = None,
        library: str = "default",
        embed: bool = True,
        progress: ProgressCallback | None = None,
    ) -> list[Ingested]:
        """Ingest texts as `ingest_text` does, in few transactions; one result for each text.

        Every text has a source of its own and, if they are given, a title and metadata. All of them
        are checked before the first is stored. They are embedded together at the end, with what
        waited before. After a kill, the same call continues.
        """
        from mcpvectordb.documents import texts as given_texts

        given = given_texts.checked_texts(
            texts, sources, titles, metadata, self._config.max_source_bytes
        )
        checked_name(library)
        with self._history.change("ingest"):
            stored = self._store_texts(given, library, progress)
        error = ""
        if embed and given:
            error = self._embed_all(progress)[1]
        else:
            self._encoder.provisional.fill(self._index)
        return self._results(stored, embed, error)

    def ingest_folder(
        self,
        folder: str | os.PathLike[str],
        *,
        library: str = "default",
        metadata: Mapping[str, Any] | None = None,
        pattern: str = EVERYTHING,
        ignore: Sequence[str] = (),
        embed: bool = True,
        dry_run: bool = False,
        progress: ProgressCallback | None = None,
        guard: bool = False,
        roots: Sequence[str | os.PathLike[str]] = (),
    ) -> Synced:
        """Ingest the files of a folder and its subfolders once; the folder is not followed.

        Nothing is removed. A file whose size and time are unchanged is not opened again; one that
        cannot be read is reported in `failures`; secrets are skipped, as by `guard` of `ingest`.
        `pattern` and `ignore` select files as in `add_library`; `dry_run` only says what would be
        done (`planned`), judged by sizes and times. `guard` and `roots` refuse the folder itself,
        as `ingest` refuses a file. After a kill, the next call continues.
        """
        from mcpvectordb.documents.sync import ingest_folder, preview
        from mcpvectordb.ingest import sources

        _check(library, metadata)
        sources.check_folder(folder, roots=[Path(root) for root in roots], guard=guard)
        once = libraries.one_time(library, folder, pattern, ignore)
        if dry_run:
            return preview(self._file, self._config, once, self.tuning, removes=False)
        with (
            self._history.change("ingest folder"),
            self._bulk_ingest(library, embed, metadata) as intake,
        ):
            done = ingest_folder(self._file, self._config, once, intake, self.tuning, progress)
        return self._embed_rest(
            dataclasses.replace(done, embedded=intake.embedded), embed, progress
        )

    def update(
        self,
        id: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        metadata_patch: Mapping[str, Any] | None = None,
        title: str | None = None,
        library: str | None = None,
        embed: bool = True,
        progress: ProgressCallback | None = None,
    ) -> Ingested:
        """Change the given fields of a document, whose text and id stay; raises NotFound.

        `metadata` replaces the old one; `metadata_patch` is merged into it (RFC 7396: null removes
        a key). A new title is embedded with the text. A document is not moved to a library that has
        one with its source. What is given here stays when the source changes and is ingested again;
        a library that follows a folder takes a file in again that was moved to another library.
        """
        change = checked_change(metadata, metadata_patch, title, library)
        deadline = self._encoder.deadline()
        with self._file.reading() as sql:
            key = rows.row(sql, id)[0]
        return self._finish(self._stored(self._writer.say(key, change)), embed, progress, deadline)

    def dropped_by(
        self,
        name: str,
        root: str | os.PathLike[str],
        *,
        pattern: str = EVERYTHING,
        ignore: Sequence[str] = (),
    ) -> list[Document]:
        """The documents that the first sync would remove if a library followed this folder.

        They are those of the library whose files lie in the folder and are not taken in from it.
        """
        from mcpvectordb.documents.sync import vanished

        library = libraries.one_time(name, root, pattern, ignore)
        keys = vanished(self._file, self._config, library, self.tuning)
        with self._file.reading() as sql:
            return [rows.by_key(sql, key) for key in keys]

    def sync(
        self,
        name: str | None = None,
        *,
        embed: bool = True,
        dry_run: bool = False,
        progress: ProgressCallback | None = None,
    ) -> list[Synced]:
        """Update the library with this name, or all that follow a folder, from their folders.

        New and changed files are ingested, documents of vanished files are removed, moved files
        keep their id. A file that cannot be read is reported in `failures`, and its document stays.
        Secrets are skipped, as by `guard` of `ingest`: those are ingested one by one.
        A missing folder is an error, and nothing is removed. A folder that was not confirmed on
        this machine is Refused before anything of it is read; see `confirm_library`. After a kill,
        the next call continues; several calls at once are safe. `dry_run` only says what would be
        done, as in `ingest_folder`.
        """
        from mcpvectordb.documents.sync import preview, sync

        followed = libraries.followed(self._file, name)
        for library in followed:
            self._folders.check(library)
        if dry_run:
            return [
                preview(self._file, self._config, library, self.tuning, removes=True)
                for library in followed
            ]
        done = []
        for library in followed:
            with (
                self._history.change("sync"),
                self._bulk_ingest(library.name, embed) as intake,
            ):
                synced = sync(
                    self._file,
                    self._config,
                    library,
                    intake,
                    self.tuning,
                    self._folders.check,
                    self.unpublished,
                    progress,
                )
            done.append(dataclasses.replace(synced, embedded=intake.embedded))
        return [*done[:-1], self._embed_rest(done[-1], embed, progress)] if done else []

    def search(
        self,
        query: str,
        *,
        mode: Mode = "hybrid",
        unit: Literal["passage", "document"] = "passage",
        library: str | None = None,
        where: Where | None = None,
        limit: int = 5,
        offset: int = 0,
        min_score: float = 0.0,
        min_relevance: float = 0.0,
        plain: bool = False,
        expand: bool = False,
        rerank: bool = False,
        group: bool = False,
        fold: bool = False,
        newer: str | None = None,
        fusion: Fusion = "convex",
        explain: bool = False,
    ) -> Results[Chunk]:
        """The passages (chunks) or documents that answer a query best.

        Any string is a query; "quoted phrases" must occur, -excluded words must not, unless `plain`
        turns these operators off. `mode` is text (by words), vector (by meaning) or hybrid (by
        both). Conditions apply before the cut to `limit`. The results name the legs that ran, why
        others did not, and how many passages are not embedded yet (`backlog`). An unknown
        library or metadata key is no error: the results are empty, and their `note` says so.

        `relevance`, the chance that a judge would call a hit relevant, compares between queries;
        hits below `min_relevance` are left out, unknown ones (None) stay; `verdict` says when
        nothing relevant was found. A hybrid score is relative to the candidates of its query.

        `group` returns the best passage of each document before others, and counts these (`more`).
        `fold` leaves out passages that say nothing that a better one does not say, and names them
        (`folded`). `newer`, a half-life such as 12h, 30d or 1y, halves a score with every such time
        since the document was modified (or else ingested). `rerank` scores the best twenty passages
        (thirty documents) again with a cross-encoder, which takes seconds.

        With `unit="document"` each document is returned once, by its best passage. `fusion="rrf"`
        ranks documents by reciprocal ranks in hybrid mode, and `expand` then also searches for
        terms that the first results have in common, unless the words alone point at one document;
        in text mode every word must then occur, at least as the beginning of one, in its text,
        title or path. `rerank` has no effect on documents in text and vector mode. `explain` adds
        the time and the engine's query plan of each retriever.
        """
        text = storable(query, "query")
        question = DocumentQuestion(
            text=without_operators(text) if plain else text,
            mode=mode,
            limit=limit,
            offset=offset,
            fusion=fusion,
            rerank=rerank,
            recency=Recency.parse(newer, datetime.now(UTC)),
            min_score=min_score,
            min_relevance=min_relevance,
            explain=explain,
            unit=unit,
            expand=expand,
            group=group and unit == "passage",
            fold=fold,
        )
        which = rows.document_filter(
            library, where, chunks=not question.whole, dialect=self._file.dialect
        )
        found = self._search.search(question, which)
        if found.backlog.pending:
            waiting = [
                hit.item.id for hit in found if hit.scores.vector is None or hit.scores.provisional
            ]
            self._encoder.prefer(self._index, waiting)
        note = "" if found.hits else self.why_empty(library=library, where=where)
        return dataclasses.replace(found, note=note)

    def backlog(self) -> Backlog:
        """How many passages of documents there are and wait for their embedding, if any does."""
        return self._encoder.backlog(self._index)

    def snippet(self, chunk: Chunk, query: str, *, whole: bool = False) -> str:
        """The line of a chunk that has most words of a query, with its neighbours, numbered.

        With `whole`: of the document or, in a long one, up to 10,000 characters around the chunk.
        """
        if not whole:
            return snippets.snippet(chunk.text, query, chunk.first_line)
        with self._file.reading() as sql:
            text, begins = rows.surroundings(sql, chunk)
        return snippets.snippet(text, query, begins)

    def close(self) -> None:
        """End the process of the parser."""
        if "_worker" in self.__dict__:
            self._worker.close()

    def _fetched(self, source: Any, library: str) -> tuple[int | None, str, str]:
        """The key, ETag and modification time of a URL's document, to fetch it only if changed."""
        from mcpvectordb.ingest import sources

        if not sources.is_url(source):
            return None, "", ""
        with self._file.reading(limited=False) as sql:
            return sql.execute(
                "SELECT key, etag, modified FROM published_documents WHERE library = ? AND "
                "source = ? ORDER BY key DESC",
                (library, storable(source, "source")),
            ).fetchone() or (None, "", "")

    def _bulk_ingest(
        self, library: str, embed: bool, metadata: Mapping[str, Any] | None = None
    ) -> BulkIngest:
        from mcpvectordb.documents.bulk_ingest import BulkIngest

        return BulkIngest(
            self._file,
            self._writer,
            self._encoder,
            self._index,
            self._worker,
            library=library,
            metadata=metadata,
            embed=embed,
            tuning=self.tuning,
        )

    def _store_texts(
        self,
        given: Sequence[GivenText],
        library: str,
        progress: ProgressCallback | None = None,
        *,
        replaces: bool = True,
    ) -> list[_StoredDocument]:
        """Store texts in short transactions."""
        from mcpvectordb.documents import texts as given_texts

        stored: list[_StoredDocument] = []
        for places in given_texts.store(given, library, self._writer, self.tuning, replaces):
            stored += self._all_stored(places)
            if progress:
                progress(Progress(step="ingest", done=len(stored), total=len(given)))
        return stored

    def _stored(self, place: tuple[Status, int]) -> _StoredDocument:
        """The document of a status and key, read before others may replace it."""
        return self._all_stored([place])[0]

    def _all_stored(self, places: Sequence[tuple[Status, int]]) -> list[_StoredDocument]:
        with self._file.reading(limited=False) as sql:
            found = rows.by_keys(sql, [key for _, key in places])
        if len(found) < len({key for _, key in places}):
            raise NotFound("the document was deleted meanwhile")
        return [_StoredDocument(status, key, found[key]) for status, key in places]

    def _finish(
        self,
        stored: _StoredDocument,
        embed: bool,
        progress: ProgressCallback | None,
        deadline: float | None,
    ) -> Ingested:
        """Embed a stored document, also a known one: its first ingest may have been interrupted."""
        embedded, error = Embedded(), ""
        if embed:
            embedded, error = self._encoder.embed_owner(self._index, stored.key, deadline, progress)
        else:
            self._encoder.provisional.fill(self._index, [stored.key])
        [done] = self._results([stored], embed, error)
        return dataclasses.replace(done, embedded=embedded)

    def _other_languages(self) -> str:
        return notes.other_languages(self._file, self._config)

    def _results(
        self, stored: Sequence[_StoredDocument], embed: bool, error: str
    ) -> list[Ingested]:
        """The results for stored documents, with what is still pending and why."""
        done = []
        with self._file.reading(limited=False) as sql:
            waiting = self._encoder.pending_by_owner(
                sql, self._index, [each.key for each in stored]
            )
            for status, key, document in stored:
                pending = waiting.get(key, 0)
                note = ""
                if embed and pending:
                    note = notes.not_embedded(
                        status, document, pending, error, self._encoder.provisional
                    )
                done.append(Ingested(status=status, document=document, pending=pending, note=note))
        return [*done[:-1], self._advised(done[-1])] if done else []

    def _advised(self, done: Ingested) -> Ingested:
        """A result with the advice on other languages, if it is due."""
        return dataclasses.replace(done, note=notes.joined(done.note, self._other_languages()))

    def _embed_rest(self, done: Synced, embed: bool, progress: ProgressCallback | None) -> Synced:
        """Embed the pending chunks of all documents, and add that to the result of a sync."""
        done = dataclasses.replace(done, note=self._other_languages())
        if not embed:
            self._encoder.provisional.fill(self._index)
            return done
        embedded, error = self._embed_all(progress)
        note = self._encoder.provisional.note(error=error) if error else ""
        return dataclasses.replace(
            done, note=notes.joined(note, done.note), embedded=done.embedded + embedded
        )

    def _embed_all(self, progress: ProgressCallback | None) -> tuple[Embedded, str]:
        """Embed the pending chunks of all documents; the error, or ""."""
        try:
            return self._encoder.embed(index=self._index, progress=progress), ""
        except ModelError as error:
            self._encoder.provisional.fill(self._index)
            return Embedded(), str(error)


class _StoredDocument(NamedTuple):
    status: Status
    key: int
    document: Document


def _check(library: str, given: Mapping[str, Any] | None) -> None:
    """Refuse an invalid library or metadata before anything is read or fetched."""
    checked_name(library)
    metadata.encode(given)
