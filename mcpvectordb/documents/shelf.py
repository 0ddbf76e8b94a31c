"""`Database.documents`: sources are ingested, and documents listed, read, searched and deleted."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, overload

from mcpvectordb import dates
from mcpvectordb.config import Config
from mcpvectordb.documents import items, libraries, rows, write
from mcpvectordb.documents.items import DocumentChange
from mcpvectordb.documents.libraries import (
    ConfirmedFolders,
    FollowedLibrary,
    LibraryVersions,
)
from mcpvectordb.documents.search import DocumentQuestion, DocumentSearch
from mcpvectordb.documents.write import DocumentWriter, GivenText, Written
from mcpvectordb.errors import InvalidInput, ModelError, NotFound, Unreadable, quoted
from mcpvectordb.filters import Where
from mcpvectordb.history.versions import Item
from mcpvectordb.index.chunks import ACTIVE_KEY
from mcpvectordb.index.encoder import waiting_note
from mcpvectordb.ingest.globs import EVERYTHING
from mcpvectordb.metadata import checked_page, encode, library_name, storable
from mcpvectordb.ranking import snippets
from mcpvectordb.ranking.ranker import Recency
from mcpvectordb.ranking.why_empty import NO_MATCH, unknown_name, why_empty
from mcpvectordb.records import (
    Backlog,
    Chunk,
    Coverage,
    Document,
    DocumentHeading,
    Embedded,
    Fusion,
    Ingested,
    Library,
    Mode,
    Page,
    PassedOver,
    Place,
    Progress,
    ProgressCallback,
    Results,
    Source,
    Synced,
    counted_passages,
)
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.store import OpenStore, every, one_or_all
from mcpvectordb.text.query import without_operators

if TYPE_CHECKING:
    from mcpvectordb.documents.follow import FolderFollower
    from mcpvectordb.ingest.worker import Worker

# What brings documents in is loaded by the methods that use it: most processes only search.

Sort = Literal["newest", "oldest", "title", "path", "size", "modified"]

MOST_PIXELS = 3_000
"""The greatest width or height of a page that is drawn."""


class Documents:
    """Documents, and the libraries that they are in, which may follow folders."""

    def __init__(self, store: OpenStore) -> None:
        self._store, self._file, self._index = store, store.file, store.documents
        self._config, self._encoder, self._history = store.config, store.encoder, store.history
        self.writer = DocumentWriter(store)
        self.unpublished = self.writer.unpublished
        self.library_versions = LibraryVersions(store.file, store.history)
        self._folders = ConfirmedFolders(store.file)
        self._search = DocumentSearch(store)
        self._follower: FolderFollower | None = None

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

        A source that is in the library already stays if its bytes are unchanged, and is replaced
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
        from mcpvectordb.ingest import formats, sources

        library_name(library), encode(metadata)
        if chunk_size or chunk_overlap:  # refuses invalid sizes before anything is read
            Config(chunk_size=chunk_size or 0, chunk_overlap=chunk_overlap or 0)
        deadline = self._encoder.deadline()
        fetched = None if duplicate else self._fetched(source, library)
        known, etag, modified = fetched or (None, "", "")
        read = sources.read(
            source,
            config=self._config,
            guard=guard,
            roots=[Path(root) for root in roots],
            forbidden=self._forbidden,
            etag=etag,
            modified=modified,
            progress=progress,
            wait=wait,
        )
        if read is not None:
            [known] = [None] if duplicate else self.writer.known(library, [read])
        given = metadata if update_metadata else None
        if known is not None:
            return self._finish(self._set_keys(known, given), embed, progress, deadline)
        assert read is not None, "a server answers 'not modified' for a known page only"  # noqa: S101
        if not any_text:
            formats.check_extension(read)
        report = progress or (lambda _: None)
        report(Progress(step="parse", done=0, total=1))
        parsed = write.read_by(reader, read) if reader else self._worker.parse(read)
        prepared = self.writer.prepare(
            GivenText(read, DocumentChange(keys=metadata), parsed=parsed),
            library,
            chunk_size=chunk_size,
            chunk_overlap=chunk_overlap,
            duplicate=duplicate,
            replaces=replace,
        )
        report(Progress(step="parse", done=1, total=1, chunks_known=len(prepared.spans)))
        [stored] = self.writer.write_all([prepared])
        if stored.status == "unchanged":
            stored = self._set_keys(stored, given)
        done = self._finish(stored, embed, progress, deadline)
        return dataclasses.replace(done, note=_joined(parsed.note, done.note))

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
        given = write.checked_text(text, source, title, metadata, self._config.max_source_bytes)
        library_name(library)
        deadline = self._encoder.deadline()
        [[stored]] = self.writer.write_texts([given], library, replaces=replace)
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
        given = write.checked_texts(texts, sources, titles, metadata, self._config.max_source_bytes)
        library_name(library)
        stored: list[Written] = []
        with self._history.change("ingest"):
            for some in self.writer.write_texts(given, library):
                stored += some
                if progress:
                    progress(Progress(step="ingest", done=len(stored), total=len(given)))
        error = ""
        if embed and given:
            error = self._embed_all(progress)[1]
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
        from mcpvectordb.documents.sync import FolderSync, preview
        from mcpvectordb.ingest import sources

        library_name(library), encode(metadata)
        sources.check_folder(folder, roots=[Path(root) for root in roots], guard=guard)
        once = libraries.one_time(library, folder, pattern, ignore)
        if dry_run:
            return preview(self._store, once, removes=False)
        folder_sync = FolderSync(self.writer, self._worker, once, metadata)
        with self._history.change("ingest folder"):
            done = folder_sync.run(embed=embed, progress=progress)
        return self._embed_rest(done, embed, progress)

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
        if metadata is not None and metadata_patch is not None:
            raise InvalidInput("give metadata or metadata_patch, not both")
        change = DocumentChange(
            metadata=metadata,
            patch=metadata_patch,
            title=None if title is None else storable(title, "title", blank=False),
            library=None if library is None else library_name(library),
        )
        if change == DocumentChange():
            raise InvalidInput("nothing to change: give metadata, metadata_patch, title or library")
        encode(metadata), encode(metadata_patch, "metadata_patch")
        deadline = self._encoder.deadline()
        with self._file.reading() as sql:
            key = rows.row(sql, id)[0]
        return self._finish(self.writer.say(key, change), embed, progress, deadline)

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
        from mcpvectordb.documents.sync import preview

        library = libraries.one_time(name, root, pattern, ignore)
        planned = preview(self._store, library, removes=True).planned
        vanished = json.dumps([path for what, path in planned if what == "remove"])
        chosen = "d.library = ? AND d.source IN (SELECT value FROM json_each(?))"
        with self._file.reading() as sql:
            found = rows.selected(sql, f"{chosen} ORDER BY d.source, d.key", name, vanished)
        return list(found.values())

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
        keep their id. A file that cannot be read is reported in `failures`, and its document stays;
        one that has none and cannot be parsed is `skipped` from then on, until it changes.
        Secrets are skipped, as by `guard` of `ingest`: those are ingested one by one.
        A missing folder is an error, and nothing is removed. A folder that was not confirmed on
        this machine is Refused before anything of it is read; see `confirm_library`. After a kill,
        the next call continues; several calls at once are safe. `dry_run` only says what would be
        done, as in `ingest_folder`.
        """
        from mcpvectordb.documents.sync import FolderSync, preview

        with self._file.reading(limited=False) as sql:
            followed = libraries.followed(sql, name)
        for library in followed:
            self._folders.check(library)
        if dry_run:
            return [preview(self._store, library, removes=True) for library in followed]
        done = []
        for library in followed:
            folder_sync = FolderSync(self.writer, self._worker, library, check=self._folders.check)
            with self._history.change("sync"):
                done.append(folder_sync.run(embed=embed, progress=progress))
        return [*done[:-1], self._embed_rest(done[-1], embed, progress)] if done else []

    def search(
        self,
        query: str,
        *,
        mode: Mode = "hybrid",
        unit: Literal["passage", "document"] = "passage",
        library: str | None = None,
        where: Where | None = None,
        limit: int = 10,
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

        Any string is a query. "Quoted phrases" must occur in a query of nothing else and add to the
        score in others; -excluded words must not occur, unless the query is a question; `plain`
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
        since the document's `date`. `rerank` scores the best twenty passages (thirty documents)
        again with a cross-encoder, which takes seconds.

        With `unit="document"` each document is returned once, by its best passage. `fusion="rrf"`
        ranks documents by reciprocal ranks in hybrid mode, and `expand` then also searches for
        terms that the first results have in common, unless the words alone point at one document;
        in text mode every word must then occur, at least as the beginning of one, in its text,
        title or path. `rerank` has no effect on documents in text and vector mode. `explain` adds
        the time and the engine's query plan of each retriever.
        """
        text = storable(query, "query")
        question = DocumentQuestion(
            text=(without_operators(text).strip() if plain else "") or text,
            mode=mode,
            limit=limit,
            offset=offset,
            fusion=fusion,
            rerank=rerank,
            recency=None if newer is None else Recency.parse(newer, datetime.now(UTC)),
            min_score=min_score,
            min_relevance=min_relevance,
            explain=explain,
            unit=unit,
            expand=expand,
            group=group and unit == "passage",
            fold=fold,
        )
        which = rows.document_filter(
            library, where, chunks=unit != "document", dialect=self._file.dialect
        )
        found = self._search.search(question, which)
        if found.backlog.pending:
            waiting = [hit.item.id for hit in found if hit.scores.vector is None]
            self._encoder.prefer(self._index, waiting)
        if found.hits:
            return found
        note = self._why_empty(which) or found.note or (NO_MATCH if which.conditions else "")
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

    # Documents by id, by conditions, and by name.

    @overload
    def get(  # type: ignore[overload-overlap]
        self, ids: str, *, as_of: str | int | None = None
    ) -> Document: ...
    @overload
    def get(self, ids: Iterable[str], *, as_of: str | int | None = None) -> list[Document]: ...
    def get(
        self, ids: str | Iterable[str], *, as_of: str | int | None = None
    ) -> Document | list[Document]:
        """The document with this id (raises NotFound), or those of several ids that there are.

        With `as_of` it is as it was at a time (2026-11-29, today, 2d …) or right after a change,
        given by its number in `Database.history`; the id may be one that it had then.
        """
        with self._file.reading() as sql:
            if as_of is None:
                return one_or_all(ids, lambda id: rows.row(sql, id)[1])
            limit = self._history.limit(sql, as_of)
            return one_or_all(
                ids,
                lambda id: items.past_document(
                    sql, items.past_version(sql, self._history, id, limit)
                ),
            )

    def __iter__(self) -> Iterator[Document]:
        """All documents, the oldest first; what is added meanwhile may be among them."""
        after = "d.key > ? ORDER BY d.key LIMIT ?"
        return every(
            self._store, lambda sql, key, most: [*rows.selected(sql, after, key, most).items()]
        )

    def text(self, id: str, *, as_of: str | int | None = None) -> str:
        """The whole text of a document, exactly as it was ingested; raises NotFound.

        For `as_of` see `get`.
        """
        with self._file.reading() as sql:
            if as_of is not None:
                limit = self._history.limit(sql, as_of)
                found = items.past_version(sql, self._history, id, limit)
                return self.writer.text(self._history.body(sql, found, self.writer.body))
            tiles = sql.execute(
                "SELECT tile FROM document_chunks WHERE owner = ? ORDER BY position",
                (rows.row(sql, id)[0],),
            )
            return "".join(tile for (tile,) in tiles)

    def syntax(self, id: str) -> Literal["markdown", "text", "code"]:
        """In which syntax a document's text is read, by the name of its source; raises NotFound."""
        from mcpvectordb.ingest import formats

        known = formats.by_name(PurePosixPath(self.get(id).source).name)
        if known is formats.CODE:
            return "code"
        return "text" if known is formats.TEXT else "markdown"

    def outline(self, id: str) -> list[DocumentHeading]:
        """The headings of a document, in their order; none for code and plain text.

        Raises NotFound.
        """
        from mcpvectordb.ingest import structure

        if self.syntax(id) != "markdown":
            return []
        text = self.text(id)
        sections, line, counted = [], 1, 0
        for heading in structure.outline(text, "markdown").headings:
            line += text.count("\n", counted, heading.start)
            counted = heading.start
            sections.append(DocumentHeading(line=line, level=heading.level, title=heading.path[-1]))
        return sections

    def page_lines(self, id: str, page: int) -> tuple[int, int]:
        """The first and last line of a page of a document; raises NotFound."""
        pages = self.pages(id)
        if page in pages:
            return pages[page]
        raise NotFound(
            f"there is no text on page {page}: the last page with text is {max(pages)}"
            if pages
            else f"there is no page {page}: this document has no pages, so read it by lines"
        )

    def pages(self, id: str) -> dict[int, tuple[int, int]]:
        """The first and last line of each page of a document that has text; raises NotFound."""
        with self._file.reading() as sql:
            found = sql.execute(
                "SELECT page, min(first_line), max(last_line) FROM document_chunks "
                "WHERE owner = ? AND page IS NOT NULL GROUP BY page ORDER BY page",
                (rows.row(sql, id)[0],),
            )
            return {page: (first, last) for page, first, last in found}

    def draw(
        self,
        id: str,
        page: int = 1,
        *,
        most_pixels: int = 1_600,
        roots: Collection[Path] = (),
        guard: bool = False,
    ) -> bytes:
        """A page of a document's PDF, or the picture that a document is, as a PNG.

        It is drawn from the file that was read, by the parser process. `most_pixels` is the
        greatest width or height; `roots` and `guard` are those of `ingest`. Raises Unreadable if
        the file is gone or was changed, or if there never was one on this machine, Refused,
        TooLarge, UnsupportedFormat or ParseFailed.
        """
        from mcpvectordb.ingest import sources

        if page < 1 or not 1 < most_pixels <= MOST_PIXELS:
            raise InvalidInput(f"pages are counted from 1, and pixels up to {MOST_PIXELS:,}")
        document = self.get(id)
        if not (state := self.state(document)):
            raise Unreadable(f"{document.path} was not read from a file that can be seen here")
        if state == "gone":
            raise Unreadable(
                f"{document.source} is gone: it was moved or deleted since it was read"
            )
        found = sources.read_path(
            document.source,
            config=self._config,
            roots=roots,
            guard=guard,
            forbidden=self._forbidden,
        )
        if found.hash != document.hash:
            raise Unreadable(f"{document.source} was changed since it was read: ingest it again")
        return self._worker.draw(found, page, most_pixels)

    def state(self, document: Document) -> Literal["current", "changed", "gone", ""]:
        """What became of a document's file since it was read; "" if it is no file of this machine.

        That is a text, a page of the web, what was published, or a file that may not be seen. Size
        and time tell, and where only the time is another one, the bytes.
        """
        from mcpvectordb.ingest import sources

        # Only what was read from a file has both: a text may be named by any path.
        is_file = document.modified and os.path.isabs(document.source)  # noqa: PTH117 - any name
        if self._file.published or not is_file:
            return ""
        return sources.state(document, self._config, self._forbidden)

    @property
    def _forbidden(self) -> tuple[Path, ...]:
        """The files that are the database."""
        return () if self._file.memory else (self._file.path,)

    def chunks(self, id: str, *, limit: int = 100, offset: int = 0) -> list[Chunk]:
        """The passages of a document as the index has them, in their order; raises NotFound."""
        checked_page(limit, offset)
        with self._file.reading() as sql:
            found = sql.execute(
                "SELECT id FROM document_chunks WHERE owner = ? ORDER BY position LIMIT ? OFFSET ?",
                (rows.row(sql, id)[0], limit, offset),
            )
            ids = [chunk for (chunk,) in found]
            chunks = rows.chunks(sql, ids)
            return [chunks[chunk] for chunk in ids]

    def chunks_by_ids(self, ids: Sequence[int]) -> list[Chunk]:
        """The passages with these ids (`Chunk.id`), in this order; unknown ones are left out."""
        with self._file.reading() as sql:
            there = sql.execute(
                "SELECT c.id FROM document_chunks c "
                "JOIN published_documents d ON d.key = c.owner "
                "WHERE c.id IN (SELECT value FROM json_each(?))",
                (json.dumps(list(ids)),),
            )
            found = rows.chunks(sql, [chunk for (chunk,) in there])
            return [found[chunk] for chunk in ids if chunk in found]

    def neighbours(self, chunk: Chunk, *, before: int = 1, after: int = 1) -> list[Chunk]:
        """A passage between those before and after it in its document, in their order.

        Raises NotFound if the document was replaced or deleted meanwhile.
        """
        checked_page(before, after)
        first = max(0, chunk.position - before)
        return self.chunks(
            chunk.document.id, limit=chunk.position - first + 1 + after, offset=first
        )

    def waiting(self, id: str) -> frozenset[int]:
        """The ids of a document's passages that wait for their embedding; raises NotFound."""
        with self._file.reading() as sql:
            found = sql.execute(
                "SELECT c.id FROM document_chunks c JOIN document_pending p ON p.chunk = c.id "
                f"WHERE c.owner = ? AND p.model = {ACTIVE_KEY}",
                (rows.row(sql, id)[0],),
            )
            return frozenset(chunk for (chunk,) in found)

    def browse(
        self,
        *,
        library: str | None = None,
        where: Where | None = None,
        limit: int = 10,
        offset: int = 0,
        sort: Sort = "newest",
        as_of: str | int | None = None,
    ) -> Page[Document]:
        """The documents that match all conditions, newest first or in another order.

        For `as_of` see `get`.

        The field `pending` is the number of a document's chunks that are not embedded yet. An
        unknown library or metadata key is no error: nothing matches, and `why_empty` says why.
        `sort` is newest, oldest, title, path, size (largest first) or modified (latest first).
        """
        checked_page(limit, offset)
        if sort not in rows.SORTS:
            raise InvalidInput(f"sort must be {', '.join(rows.SORTS)}, not {quoted(sort)}")
        chosen = rows.document_filter(library, where, dialect=self._file.dialect)
        with self._file.reading() as sql:
            then = "" if as_of is None else items.past(self._history.limit(sql, as_of))
            # Only keys are sorted: a row of SELECT counts the chunks of its document.
            selected = sql.execute(
                f"{then}SELECT d.key FROM published_documents d WHERE {chosen.condition} "
                f"ORDER BY {rows.SORTS[sort]} LIMIT ? OFFSET ?",
                (*chosen.bindings, limit, offset),
            )
            keys = [key for (key,) in selected]
            documents = rows.by_keys(sql, keys)
            return Page(
                items=tuple(
                    documents.get(key) or items.past_by_key(sql, self._history, key) for key in keys
                )
            )

    def values(
        self, field: str, *, library: str | None = None, where: Where | None = None
    ) -> dict[Any, int]:
        """How many documents have each value of a field, the most frequent first.

        The fields are those of a filter (`browse`), such as file_type, folder or library.
        """
        chosen = rows.document_filter(library, where, dialect=self._file.dialect)
        with self._file.reading() as sql:
            fields = rows.fields(self._file.dialect)
            return chosen.values(sql, "published_documents d", field, fields)

    def passed_over(
        self, library: str | None = None, *, limit: int = 100, offset: int = 0
    ) -> list[PassedOver]:
        """The files of followed folders of which the last sync could make nothing, and why.

        They are looked at again when they change. What `pattern` and `ignore` leave out is not
        among them; `sync` with `dry_run` lists it.
        """
        checked_page(limit, offset)
        with self._file.reading() as sql:
            return [
                PassedOver(library=name, path=path, reason=reason)
                for name, path, reason in sql.execute(
                    "SELECT library, path, reason FROM library_skipped "
                    "WHERE library = coalesce(?, library) ORDER BY library, path LIMIT ? OFFSET ?",
                    (library, limit, offset),
                )
            ]

    def count(self, *, library: str | None = None, where: Where | None = None) -> int:
        """The number of documents that match all conditions."""
        chosen = rows.document_filter(library, where, dialect=self._file.dialect)
        with self._file.reading() as sql:
            return chosen.count(sql, "published_documents d")

    def coverage(self) -> Coverage:
        """How many documents are found by meaning: completely, partly or not yet."""
        incomplete = (
            "WITH incomplete AS MATERIALIZED (SELECT c.owner AS key, count(*) AS pending "
            "FROM document_pending p JOIN document_chunks c ON c.id = p.chunk "
            "JOIN published_documents d ON d.key = c.owner "
            f"WHERE p.model = {ACTIVE_KEY} GROUP BY c.owner) "
        )
        with self._file.reading() as sql:
            partly, waiting = sql.execute(
                f"{incomplete} SELECT count(*) FILTER (WHERE pending < chunks), "
                "count(*) FILTER (WHERE pending = chunks) FROM (SELECT pending, "
                "(SELECT count(*) FROM document_chunks WHERE owner = incomplete.key) AS chunks "
                "FROM incomplete) AS counted"
            ).get
            documents, contents, empty = sql.execute(
                "SELECT count(*), count(DISTINCT hash), count(*) FILTER (WHERE NOT EXISTS "
                "(SELECT 1 FROM document_chunks WHERE owner = d.key)) FROM published_documents d"
            ).get
            embedded_contents = sql.execute(
                f"{incomplete} SELECT count(DISTINCT hash) FROM published_documents "
                "WHERE key NOT IN (SELECT key FROM incomplete)"
            ).get
        return Coverage(
            embedded=documents - partly - waiting - empty,
            partly_embedded=partly,
            waiting=waiting,
            empty=empty,
            identical=documents - contents,
            distinct_waiting=contents - embedded_contents,
        )

    def why_empty(self, *, library: str | None = None, where: Where | None = None) -> str:
        """Why no document matches, as far as the conditions by themselves explain it, or "".

        It names a library or metadata key that does not exist, with similar ones, and a `source` or
        `title` that no document has exactly. `search` puts it into the `note` of empty results.
        """
        dialect = self._file.dialect
        return self._why_empty(rows.document_filter(library, where, chunks=True, dialect=dialect))

    def _why_empty(self, which: rows.DocumentFilter) -> str:
        with self._file.reading() as sql:
            return why_empty(sql, rows.items(self._file.dialect), which.conditions)

    def text_bytes(self, id: str) -> int:
        """The size of a document's text in bytes of UTF-8; the text itself is not read."""
        with self._file.reading() as sql:
            return int(
                sql.execute(
                    "SELECT coalesce(sum(octet_length(tile)), 0) FROM document_chunks WHERE "
                    "owner = ?",
                    (rows.row(sql, id)[0],),
                ).get
            )

    def delete(
        self,
        ids: str | Iterable[str] | None = None,
        *,
        where: Where | None = None,
        library: str | None = None,
    ) -> int:
        """Delete the documents with these ids, or those that match; the number of deleted ones.

        Given both, a document must fulfil all. Unknown ids are no error, but no condition at all
        and an empty `where` are, so that a filter that came out empty deletes nothing. It takes
        short transactions: documents that stop matching meanwhile stay, and after a kill the same
        call continues.
        """
        if (ids is None and where is None and library is None) or (where is not None and not where):
            raise InvalidInput(
                "delete needs ids, a condition, such as where={'source': 'a.md'}, or a library "
                "alone; `remove_library` removes all of a library"
            )
        chosen = rows.document_filter(library, where, dialect=self._file.dialect)
        matching = f"SELECT d.key FROM published_documents d WHERE {chosen.condition}"
        bindings = chosen.bindings
        if ids is not None:
            wanted = [storable(id, "id") for id in ([ids] if isinstance(ids, str) else ids)]
            matching += " AND d.id IN (SELECT value FROM json_each(?))"
            bindings += (json.dumps(wanted),)
        with self._file.reading(limited=False) as sql:
            keys = [key for (key,) in sql.execute(matching, bindings)]

        def still(sql: Sql, some: Sequence[int]) -> list[int]:
            among = f"{matching} AND d.key IN (SELECT value FROM json_each(?))"
            return [key for (key,) in sql.execute(among, (*bindings, json.dumps(some)))]

        with self._history.change("delete"):
            return self.unpublished.withdraw_all(keys, still)

    @overload
    def lookup(  # type: ignore[overload-overlap]
        self, names: str, *, as_of: str | int | None = None
    ) -> Place: ...
    @overload
    def lookup(
        self, names: Sequence[str], *, as_of: str | int | None = None
    ) -> list[Place | None]: ...
    def lookup(
        self, names: str | Sequence[str], *, as_of: str | int | None = None
    ) -> Place | list[Place | None]:
        """The document with this path (or end of a path), file, id or #hash; raises NotFound.

        Of several names it is a list, with None for an unknown one; many cost hardly more.

        A path is the one in listings, `library/folder/file`. A hash has 6 digits or more. A name
        may end with a line and a number of lines, notes/tea.md:120, notes/tea.md:120:20, or with
        lines as `Document.place` writes them, notes/tea.md:120-139. A document whose own name ends
        like that is found first. The id of an earlier version finds the present
        one (`Place.former`).

        With `as_of` (see `get`) it is the document that had the name then, as it was, also one that
        was deleted since.
        """
        wanted = [names] if isinstance(names, str) else names
        with self._file.reading() as sql:
            if as_of is None:
                found = rows.found(sql, wanted)
            else:
                limit = self._history.limit(sql, as_of)
                found = items.past_found(sql, self._history, wanted, limit)
        if not isinstance(names, str):
            return found
        if found[0] is None:
            then = "" if as_of is None else " at that time"
            raise NotFound(f"there is no document {quoted(names)}{then}")
        return found[0]

    def candidates(self, names: Sequence[str]) -> list[list[Place]]:
        """For each name all documents that it may mean; the first is the one that `lookup` finds.

        An id, or a path with its library, means one. Whatever else a document can be named by, a
        source, a hash or the end of a path, may be that of several: ask which is meant before one
        of them is changed or deleted.
        """
        with self._file.reading() as sql:
            return rows.candidates(sql, names)

    def suggest(self, name: str) -> list[str]:
        """The paths of up to five documents that are spelt like an unknown name, best first."""
        with self._file.reading() as sql:
            return rows.nearest(sql, name)

    def matching(self, pattern: str, *, limit: int | None = None) -> list[Document]:
        """The documents whose path, with or without its library, matches a pattern; by path.

        For patterns see `add_library`. `limit` is how many are returned; None returns all.
        """
        with self._file.reading() as sql:
            keys = rows.matching(sql, pattern)[:limit]
            documents = rows.by_keys(sql, keys)
        return [documents[key] for key in keys]

    # Libraries.

    def libraries(self) -> list[Library]:
        """The libraries that have documents or follow a folder, sorted by name."""
        with self._file.reading() as sql:
            found = sql.execute(
                "SELECT n.name, "
                "(SELECT count(*) FROM published_documents d WHERE d.library = n.name), "
                "(SELECT count(*) FROM published_documents d JOIN document_chunks c "
                "ON c.owner = d.key WHERE d.library = n.name), max(l.root), max(l.pattern), "
                "max(l.ignore), max(l.description), max(l.created_at) "
                f"FROM ({libraries.NAMES}) n LEFT JOIN libraries l ON l.name = n.name "
                "GROUP BY n.name ORDER BY n.name"
            ).fetchall()
        every = []
        for name, documents, chunks, root, pattern, rules, description, created_at in found:
            ignore = tuple(json.loads(rules or "[]"))
            library = FollowedLibrary(name, root or "", pattern or "", ignore)
            every.append(
                Library(
                    **library._asdict(),
                    documents=documents,
                    chunks=chunks,
                    description=description or "",
                    created_at=created_at or "",
                    confirmed=root is not None and self._folders.has(library),
                )
            )
        return every

    def add_library(
        self,
        name: str,
        root: str | os.PathLike[str],
        *,
        pattern: str = EVERYTHING,
        ignore: Sequence[str] = (),
        description: str = "",
        confirm: bool = True,
    ) -> None:
        """Let a library follow a folder; `sync` ingests its files.

        `pattern` selects files relative to the folder: `*` matches within one folder, `**/` any
        folders, `{md,txt}` one of both. `ignore` has patterns as in a .gitignore; .gitignore and
        .mcpvectordbignore files in the folder apply too. To change these options, add the library
        again with the same folder. `confirm=False` leaves the consent to read it to a person; see
        `confirm_library`.
        """
        library = libraries.one_time(name, root, pattern, ignore)
        storable(description, "description")
        with self._file.writing() as sql:
            known = sql.execute("SELECT root FROM libraries WHERE name = ?", (name,)).get
            if known is not None and known != library.root:
                raise InvalidInput(
                    f"the library {quoted(name)} already follows {known}; remove it first, "
                    "or choose another name"
                )
            with self.library_versions.changing(sql, name):
                sql.execute(
                    "INSERT INTO libraries "
                    "(name, root, inode, pattern, ignore, description, created_at) "
                    "VALUES (?, ?, '', ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET pattern = "
                    "excluded.pattern, ignore = excluded.ignore, "
                    "description = excluded.description",
                    (
                        name,
                        library.root,
                        pattern,
                        json.dumps(library.ignore),
                        description,
                        dates.now(),
                    ),
                )
            if confirm:
                self._folders.confirm(library)

    def confirm_library(self, name: str) -> None:
        """Let a library that was not added on this machine, or not to this file, read its folder.

        Ask a person first: whoever wrote the file chose the folder (`Library.root`). What is
        confirmed is kept in the user's data folder. A change of the file's place, of the folder or
        of the patterns must be confirmed again.
        """
        with self._file.reading(limited=False) as sql:
            [library] = libraries.followed(sql, library_name(name))
        self._folders.confirm(library)

    def remove_library(self, name: str, *, keep_documents: bool = False) -> int:
        """Remove a library with its documents, or stop following its folder with `keep_documents`.

        Returns the number of removed documents. The folder is not touched.
        """
        removed = 0
        with self._history.change("remove library"):
            with self._file.writing() as sql:
                known = [each for (each,) in sql.execute(libraries.NAMES)]
                if library_name(name) not in known:
                    raise NotFound(unknown_name("library", name, known))
                self.library_versions.remove(Item(LibraryVersions.shelf, "", name))
                if not keep_documents:
                    sql.execute("DELETE FROM settings WHERE name = 'folders:' || ?", (name,))
            self._folders.forget(name)
            while not keep_documents and (some := self.delete(library=name)):
                removed += some
        return removed

    def rename_libraries(self, project: str, to: str) -> int:
        """Rename the libraries NAME and NAME/… of a project; the number of their documents.

        One that follows a folder goes on doing so. Raises InvalidInput, and changes nothing, if a
        library of the new name has a document with the same source, or follows another folder.
        """
        moved = 0
        with self._file.writing() as sql:
            names = [each for (each,) in sql.execute(libraries.NAMES)]
            followed = {each.name: each for each in libraries.followed(sql)}
            for name in names:
                if name != project and not name.startswith(f"{project}/"):
                    continue
                new = library_name(to + name[len(project) :])
                if name in followed and new in followed:
                    raise InvalidInput(
                        f"the libraries {quoted(name)} and {quoted(new)} both follow a folder; "
                        "remove one of them first"
                    )
                keys = sql.execute("SELECT key FROM published_documents WHERE library = ?", (name,))
                for (key,) in keys.fetchall():
                    self.writer.update(sql, key, DocumentChange(library=new))
                    moved += 1
                sql.execute(
                    "UPDATE OR IGNORE settings SET name = 'folders:' || ? "
                    "WHERE name = 'folders:' || ?",
                    (new, name),
                )
                item = Item(LibraryVersions.shelf, "", name)
                if (version := self.library_versions.find(sql, item)) is not None:
                    self.library_versions.restore(version._replace(item=item._replace(name=new)))
                    self.library_versions.remove(item)
        for name, library in followed.items():
            if (name == project or name.startswith(f"{project}/")) and self._folders.has(library):
                self._folders.confirm(library._replace(name=to + name[len(project) :]))
        return moved

    def describe(self, name: str, path: str, text: str) -> None:
        """Describe a path of a library that follows a folder, or with "" the whole library.

        A blank text removes the description.
        """
        with self._file.writing() as sql:
            [library] = libraries.followed(sql, name)
            parts = libraries.parts(library.root, storable(path, "path"))
            if ".." in parts:
                raise InvalidInput(
                    f"{quoted(path)} is outside of the library; name a path inside of it"
                )
            storable(text, "text")
            part = "/".join(parts)
            with self.library_versions.changing(sql, name):
                if not part:
                    sql.execute("UPDATE libraries SET description = ? WHERE name = ?", (text, name))
                elif text.strip():
                    sql.execute(
                        "INSERT OR REPLACE INTO library_notes (library, path, text) "
                        "VALUES (?, ?, ?)",
                        (name, part, text),
                    )
                else:
                    sql.execute(
                        "DELETE FROM library_notes WHERE library = ? AND path = ?", (name, part)
                    )

    def descriptions(self, library: str, path: str) -> list[str]:
        """The descriptions of a library down to a document's source, general to specific."""
        with self._file.reading() as sql:
            found = sql.execute(
                "SELECT root, description FROM libraries WHERE name = ?",
                (storable(library, "library"),),
            ).fetchone()
            notes = dict(
                sql.execute("SELECT path, text FROM library_notes WHERE library = ?", (library,))
            )
        if not found:
            return []
        parts = libraries.parts(found[0], storable(path, "path"))
        of_parts = (notes.get("/".join(parts[:length]), "") for length in range(1, len(parts) + 1))
        return [text for text in (found[1], *of_parts) if text.strip()]

    def follow(self, *, delay: float = 0.0) -> None:
        """Keep libraries in step with the folders that they follow, in a thread, until closed.

        The first sync comes after `delay` seconds, others when something changes in a folder that
        is confirmed. What is new is found by words at once, and embedded in the background if
        `Database.embed_in_background` was called. Of several processes of this machine one does
        it. A file that is open for reading only stays as it is.
        """
        if self._follower is None and not self._file.read_only:
            from mcpvectordb.documents.follow import FolderFollower

            self._follower = FolderFollower(
                self._file.path, self._confirmed, self._sync_followed, delay=delay
            )

    @property
    def followed(self) -> dict[str, str]:
        """What `follow` knows of each library: that it is kept in step, by whom, or an error."""
        return {} if self._follower is None else dict(self._follower.state)

    def _confirmed(self) -> dict[str, Path]:
        with self._file.reading(limited=False) as sql:
            found = libraries.followed(sql)
        return {each.name: Path(each.root) for each in found if self._folders.has(each)}

    def _sync_followed(self, name: str) -> None:
        [done] = self.sync(name, embed=False)
        if (done.indexed or done.replaced) and self._encoder.background is not None:
            self._encoder.background.ask()

    def close(self) -> None:
        """Stop following folders, and end the process of the parser."""
        if self._follower is not None:
            self._follower.close()
        if "_worker" in self.__dict__:
            self._worker.close()

    def _fetched(self, source: Any, library: str) -> tuple[Written, str, str] | None:
        """A URL's document, its ETag and modification time, to fetch it only if it changed."""
        from mcpvectordb.ingest import sources

        if not sources.is_url(source):
            return None
        with self._file.reading(limited=False) as sql:
            found = sql.execute(
                "SELECT key, etag, modified FROM published_documents WHERE library = ? AND "
                "source = ? ORDER BY key DESC",
                (library, storable(source, "source")),
            ).fetchone()
            if found is None:
                return None
            key, etag, modified = found
            return Written("unchanged", key, rows.by_key(sql, key)), etag, modified

    def _set_keys(self, known: Written, given: Mapping[str, Any] | None) -> Written:
        """Set the keys of metadata that are given in a document that was there."""
        return self.writer.say(known.key, DocumentChange(keys=given)) if given else known

    def _finish(
        self,
        stored: Written,
        embed: bool,
        progress: ProgressCallback | None,
        deadline: float | None,
    ) -> Ingested:
        """Embed a stored document, also a known one: its first ingest may have been interrupted."""
        embedded, error = Embedded(), ""
        if embed:
            embedded, error = self._encoder.embed_owner(self._index, stored.key, deadline, progress)
        [done] = self._results([stored], embed, error)
        return dataclasses.replace(done, embedded=embedded)

    def _results(self, stored: Sequence[Written], embed: bool, error: str) -> list[Ingested]:
        """The results for stored documents, with what is still pending and why."""
        if not stored:
            return []
        with self._file.reading(limited=False) as sql:
            waiting = self._encoder.pending_by_owner(
                sql, self._index, [each.key for each in stored]
            )
            languages = write.other_languages(sql)
        done = []
        for status, key, document in stored:
            pending, note = waiting.get(key, 0), ""
            if embed and pending and status == "unchanged" and not error:
                note = (
                    f"already stored; {pending:,} of {counted_passages(document.chunks)} still "
                    "wait for embedding"
                )
            elif embed and pending:
                note = waiting_note(pending, error)
            done.append(Ingested(status=status, document=document, pending=pending, note=note))
        note = _joined(done[-1].note, write.advice(self._store, languages))
        done[-1] = dataclasses.replace(done[-1], note=note)
        return done

    def _embed_rest(self, done: Synced, embed: bool, progress: ProgressCallback | None) -> Synced:
        """Embed the pending chunks of all documents, and add that to the result of a sync."""
        with self._file.reading(limited=False) as sql:
            languages = write.other_languages(sql)
        advice = write.advice(self._store, languages)
        if not embed:
            return dataclasses.replace(done, note=advice)
        embedded, error = self._embed_all(progress)
        note = waiting_note(error=error) if error else ""
        return dataclasses.replace(
            done, note=_joined(note, advice), embedded=done.embedded + embedded
        )

    def _embed_all(self, progress: ProgressCallback | None) -> tuple[Embedded, str]:
        """Embed the pending chunks of all documents; the error, or ""."""
        try:
            return self._encoder.embed(index=self._index, progress=progress), ""
        except ModelError as error:
            return Embedded(), str(error)


def _joined(*notes: str) -> str:
    """Several notes as one; those that are "" are left out."""
    return "; ".join(filter(None, notes))
