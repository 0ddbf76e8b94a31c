"""Read and delete stored documents: one by its id or name, or those that match conditions."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

from mcpvectordb.documents import past, rows
from mcpvectordb.documents.bulk_ingest import FolderTuning
from mcpvectordb.documents.paths import NamedDocuments
from mcpvectordb.documents.unpublished import UnpublishedDocuments
from mcpvectordb.errors import InvalidInput, NotFound
from mcpvectordb.filters import Where
from mcpvectordb.ingest import formats, structure
from mcpvectordb.metadata import storable
from mcpvectordb.records import Coverage, Document, DocumentHeading
from mcpvectordb.search.hybrid import checked_page
from mcpvectordb.search.why_empty import why_empty
from mcpvectordb.storage.file import File


class StoredDocuments(NamedDocuments):
    """The methods of the documents shelf that read, list and delete documents."""

    def __init__(self, file: File, unpublished: UnpublishedDocuments, tuning: FolderTuning) -> None:
        super().__init__(file)
        self._unpublished, self.tuning = unpublished, tuning
        self._history = unpublished.versions.history

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

    def outline(self, id: str) -> list[DocumentHeading]:
        """The headings of a document, in their order; none for code and plain text.

        Raises NotFound.
        """
        known = formats.by_name(PurePosixPath(self.get(id).source).name)
        if known is not None and known.module in ("code", "text"):
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

    def browse(
        self,
        *,
        library: str | None = None,
        where: Where | None = None,
        limit: int = 20,
        offset: int = 0,
        as_of: str | int | None = None,
    ) -> list[Document]:
        """The documents that match all conditions, newest first; for `as_of` see `get`.

        The field `pending` is the number of a document's chunks that are not embedded yet. An
        unknown library or metadata key is no error: nothing matches, and `why_empty` says why.
        """
        checked_page(limit, offset)
        chosen = rows.document_filter(library, where)
        with self._file.reading() as sql:
            if as_of is not None:
                stamp = self._history.limit(sql, as_of)
                return past.browse(sql, self._history, chosen, stamp, (limit, offset))
            return [
                rows.document(row)
                for row in sql.execute(
                    f"{rows.SELECT} WHERE {chosen.condition} "
                    "ORDER BY d.created_at DESC, d.key DESC LIMIT ? OFFSET ?",
                    (*chosen.bindings, limit, offset),
                )
            ]

    def count(self, *, library: str | None = None, where: Where | None = None) -> int:
        """The number of documents that match all conditions."""
        chosen = rows.document_filter(library, where)
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
        chosen = rows.document_filter(library, where, chunks=True)
        with self._file.reading() as sql:
            return why_empty(sql, rows.ITEMS, chosen.conditions)

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
        packed = self._unpublished.pack_long(keys)
        with self._file.writing() as sql:
            keys = [key for (key,) in sql.execute(found, (id,))]
            removed = self._unpublished.withdraw(sql, keys, packed)
        self._unpublished.clean()
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
        chosen = rows.document_filter(library, where)
        matching = f"SELECT d.key FROM published_documents d WHERE {chosen.condition}"
        with self._file.reading(limited=False) as sql:
            keys = [key for (key,) in sql.execute(matching, chosen.bindings)]
        removed, most = 0, self.tuning.removals_per_write
        with self._history.change("delete"):
            for start in range(0, len(keys), most):
                batch = keys[start : start + most]
                packed = self._unpublished.pack_long(batch)
                with self._file.writing() as sql:
                    still = sql.execute(
                        f"{matching} AND d.key IN (SELECT value FROM json_each(?))",
                        (*chosen.bindings, json.dumps(batch)),
                    )
                    some = [key for (key,) in still]
                    self._unpublished.withdraw(sql, some, packed)
                removed += len(some)
                self._unpublished.clean()
        return removed
