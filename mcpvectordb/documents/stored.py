"""Read and delete stored documents: one by its id or name, or those that match conditions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Literal

from mcpvectordb.documents import past, rows
from mcpvectordb.documents.folder_tuning import DEFAULT_TUNING
from mcpvectordb.documents.items import DocumentVersions
from mcpvectordb.documents.libraries import checked_name
from mcpvectordb.documents.paths import NamedDocuments
from mcpvectordb.documents.unpublished import UnpublishedDocuments
from mcpvectordb.errors import InvalidInput, NotFound, quoted
from mcpvectordb.filters import Where
from mcpvectordb.index import models
from mcpvectordb.metadata import storable
from mcpvectordb.records import (
    Chunk,
    Coverage,
    Document,
    DocumentHeading,
    FolderContents,
    PassedOver,
)
from mcpvectordb.search.ranker import checked_page
from mcpvectordb.search.why_empty import why_empty
from mcpvectordb.store import OpenStore

Sort = Literal["newest", "oldest", "title", "path", "size", "modified"]
# Ties are broken by the key, so that pages of a list neither repeat nor leave out a document.
_SORTS: dict[str, str] = {
    "newest": "d.created_at DESC, d.key DESC",
    "oldest": "d.created_at, d.key",
    "title": "d.title, d.key",
    "path": "d.library, d.source, d.key",
    "size": "d.size DESC, d.key DESC",
    "modified": "d.modified DESC, d.key DESC",
}


class StoredDocuments(NamedDocuments):
    """The methods of the documents shelf that read, list and delete documents."""

    def __init__(self, store: OpenStore) -> None:
        super().__init__(store)
        self._history, self.tuning = store.history, DEFAULT_TUNING
        versions = DocumentVersions(store.history, store.tuning.slice_chunks)
        self.unpublished = UnpublishedDocuments(store.file, store.documents, versions, store.tuning)

    def get(self, id: str, *, as_of: str | int | None = None) -> Document:
        """The document with this id; raises NotFound.

        With `as_of` it is as it was at a time (2026-11-29, today, 2d …) or right after a change,
        given by its number in `Database.history`; the id may be one that it had then.
        """
        with self._file.reading() as sql:
            if as_of is not None:
                limit = self._history.limit(sql, as_of)
                return past.document(sql, past.get(sql, self._history, id, limit))
            return rows.document(rows.row(sql, id))

    def text(self, id: str, *, as_of: str | int | None = None) -> str:
        """The whole text of a document, exactly as it was ingested; raises NotFound.

        For `as_of` see `get`.
        """
        with self._file.reading() as sql:
            if as_of is not None:
                found = past.get(sql, self._history, id, self._history.limit(sql, as_of))
                return past.text(sql, self._history, found)
            key = rows.row(sql, id)[0]
            return "".join(
                tile
                for (tile,) in sql.execute(
                    "SELECT tile FROM document_chunks WHERE owner = ? ORDER BY position", (key,)
                )
            )

    def syntax(self, id: str) -> Literal["markdown", "text", "code"]:
        """In which syntax a document's text is read, by the name of its source; raises NotFound."""
        from mcpvectordb.ingest import formats

        known = formats.by_name(PurePosixPath(self.get(id).source).name)
        if known is not None and known.module == "code":
            return "code"
        return "text" if known is not None and known.module == "text" else "markdown"

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
        with self._file.reading() as sql:
            key = rows.row(sql, id)[0]
            first, last = sql.execute(
                "SELECT min(first_line), max(last_line) FROM document_chunks "
                "WHERE owner = ? AND page = ?",
                (key, page),
            ).get
            if first is not None:
                return first, last
            pages = sql.execute("SELECT max(page) FROM document_chunks WHERE owner = ?", (key,)).get
        raise NotFound(
            f"there is no text on page {page}: the last page with text is {pages}"
            if pages
            else f"there is no page {page}: this document has no pages, so read it by lines"
        )

    def chunks(self, id: str, *, limit: int = 100, offset: int = 0) -> list[Chunk]:
        """The passages of a document as the index has them, in their order; raises NotFound."""
        checked_page(limit, offset)
        with self._file.reading() as sql:
            found = sql.execute(
                "SELECT id FROM document_chunks WHERE owner = ? ORDER BY position LIMIT ? OFFSET ?",
                (rows.row(sql, id)[0], limit, offset),
            )
            ids = [chunk for (chunk,) in found]
            chunks = rows.chunks(sql, self._index, ids)
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
            found = rows.chunks(sql, self._index, [chunk for (chunk,) in there])
            return [found[chunk] for chunk in ids if chunk in found]

    def waiting(self, id: str) -> frozenset[int]:
        """The ids of a document's passages that wait for their embedding; raises NotFound."""
        with self._file.reading() as sql:
            found = sql.execute(
                "SELECT c.id FROM document_chunks c JOIN document_pending p ON p.chunk = c.id "
                f"WHERE c.owner = ? AND p.model = {models.ACTIVE_KEY}",
                (rows.row(sql, id)[0],),
            )
            return frozenset(chunk for (chunk,) in found)

    def browse(
        self,
        *,
        library: str | None = None,
        where: Where | None = None,
        limit: int = 20,
        offset: int = 0,
        sort: Sort = "newest",
        as_of: str | int | None = None,
    ) -> list[Document]:
        """The documents that match all conditions, newest first or in another order.

        For `as_of` see `get`.

        The field `pending` is the number of a document's chunks that are not embedded yet. An
        unknown library or metadata key is no error: nothing matches, and `why_empty` says why.
        `sort` is newest, oldest, title, path, size (largest first) or modified (latest first).
        """
        checked_page(limit, offset)
        if sort not in _SORTS:
            raise InvalidInput(f"sort must be {', '.join(_SORTS)}, not {quoted(sort)}")
        chosen = rows.document_filter(library, where, dialect=self._file.dialect)
        with self._file.reading() as sql:
            if as_of is not None:
                stamp = self._history.limit(sql, as_of)
                return past.browse(sql, self._history, chosen, stamp, _SORTS[sort], (limit, offset))
            # Only keys are sorted: a row of SELECT counts the chunks of its document.
            found = sql.execute(
                f"SELECT d.key FROM published_documents d WHERE {chosen.condition} "
                f"ORDER BY {_SORTS[sort]} LIMIT ? OFFSET ?",
                (*chosen.bindings, limit, offset),
            )
            keys = [key for (key,) in found]
            documents = rows.by_keys(sql, keys)
            return [documents[key] for key in keys]

    def folders(self, library: str, path: str = "") -> FolderContents:
        """A folder of a library by the paths of its documents, with the folders inside of it.

        `path` is relative to the library, "" for all of it; one without documents is empty.
        """
        inside = f"{path.strip('/')}/" if path.strip("/") else ""
        counts: Counter[str] = Counter()
        with self._file.reading() as sql:
            followed = sql.execute(
                "SELECT root FROM libraries WHERE name = ?", (checked_name(library),)
            ).fetchone()
            for (source,) in sql.execute(
                "SELECT source FROM published_documents WHERE library = ?", (library,)
            ):
                shown = rows.path(library, source, followed[0] if followed else "")
                place = shown[len(library) + 1 :]
                if place.startswith(inside):
                    folder, slash, _ = place[len(inside) :].partition("/")
                    counts[folder if slash else ""] += 1
        documents = counts.pop("", 0)
        return FolderContents(
            library=library,
            path=inside.rstrip("/"),
            documents=documents,
            folders=tuple(sorted(counts.items())),
        )

    def file_types(self) -> dict[str, int]:
        """How many documents there are of each type, the most frequent first."""
        with self._file.reading() as sql:
            return dict(
                sql.execute(
                    "SELECT file_type, count(*) FROM published_documents GROUP BY file_type "
                    "ORDER BY count(*) DESC, file_type"
                )
            )

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
            return int(
                sql.execute(
                    f"SELECT count(*) FROM published_documents d WHERE {chosen.condition}",
                    chosen.bindings,
                ).get
            )

    def coverage(self) -> Coverage:
        """How many documents are found by meaning: completely, partly or not yet."""
        with self._file.reading() as sql:
            return rows.coverage(sql)

    def why_empty(self, *, library: str | None = None, where: Where | None = None) -> str:
        """Why no document matches, as far as the conditions by themselves explain it, or "".

        It names a library or metadata key that does not exist, with similar ones, and a `source` or
        `title` that no document has exactly. `search` puts it into the `note` of empty results.
        """
        chosen = rows.document_filter(library, where, chunks=True, dialect=self._file.dialect)
        with self._file.reading() as sql:
            return why_empty(sql, rows.items(self._file.dialect), chosen.conditions)

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

    def delete(self, id: str) -> int:
        """Remove a document; the number of its chunks, 0 for an unknown id."""
        found = "SELECT key FROM published_documents WHERE id = ?"
        with self._file.reading(limited=False) as sql:
            keys = [key for (key,) in sql.execute(found, (storable(id, "id"),))]
        packed = self.unpublished.pack_long(keys)
        with self._file.writing() as sql:
            keys = [key for (key,) in sql.execute(found, (id,))]
            removed = self.unpublished.withdraw(sql, keys, packed)
        self.unpublished.clean()
        return removed

    def delete_where(self, *, where: Where | None = None, library: str | None = None) -> int:
        """Remove the documents that match all conditions; returns their number.

        At least one condition or a library is needed, and an empty `where` is an error, so that a
        filter that came out empty removes nothing. It takes short transactions: documents that stop
        matching meanwhile stay, and after a kill the same call continues.
        """
        if (where is None and library is None) or (where is not None and not where):
            raise InvalidInput(
                "delete_where needs a condition, such as where={'source': 'a.md'}, or a library "
                "alone; `remove_library` removes all of a library"
            )
        chosen = rows.document_filter(library, where, dialect=self._file.dialect)
        matching = f"SELECT d.key FROM published_documents d WHERE {chosen.condition}"
        with self._file.reading(limited=False) as sql:
            keys = [key for (key,) in sql.execute(matching, chosen.bindings)]
        removed, most = 0, self.tuning.removals_per_write
        with self._history.change("delete"):
            for start in range(0, len(keys), most):
                batch = keys[start : start + most]
                packed = self.unpublished.pack_long(batch)
                with self._file.writing() as sql:
                    still = sql.execute(
                        f"{matching} AND d.key IN (SELECT value FROM json_each(?))",
                        (*chosen.bindings, json.dumps(batch)),
                    )
                    some = [key for (key,) in still]
                    self.unpublished.withdraw(sql, some, packed)
                removed += len(some)
                self.unpublished.clean()
        return removed
