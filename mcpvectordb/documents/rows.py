"""SQL for conditions on documents, and documents and chunks from rows."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from mcpvectordb import filters, metadata
from mcpvectordb.documents import libraries
from mcpvectordb.documents.libraries import checked_name
from mcpvectordb.errors import Damaged, NotFound, quoted
from mcpvectordb.filters import Where
from mcpvectordb.index import Allowed
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.columns import ColumnSource
from mcpvectordb.metadata import storable
from mcpvectordb.records import Chunk, Condition, Coverage, Document
from mcpvectordb.search.why_empty import FilteredItems

COLUMNS = (
    "id",
    "library",
    "source",
    "title",
    "hash",
    "file_type",
    "size",
    "modified",
    "created_at",
    "metadata",
)
PENDING = (
    "(SELECT count(*) FROM document_chunks c JOIN document_pending p ON p.chunk = c.id "
    "WHERE c.owner = d.key AND p.model = (SELECT value FROM settings WHERE name = 'model'))"
)
FIELDS = {
    **{name: f"d.{name}" for name in COLUMNS},
    "modified": "nullif(d.modified, '')",
    "pending": PENDING,
}
CHUNK_FIELDS = {
    **FIELDS,
    "page": "c.page",
    "position": "c.position",
    "text": ChunkIndex.text("document"),
}
KINDS: filters.Kinds = {
    **dict.fromkeys(("id", "library", "source", "title", "hash", "file_type", "text"), "text"),
    **dict.fromkeys(("size", "pending", "page", "position"), "number"),
    "modified": "time",
    "created_at": "time",
}
# Without source, path and time of modification, whose changes are not logged.
FILTERED = ColumnSource(
    rows="document_chunks c JOIN documents d ON d.key = c.owner",
    of_group="1",
    id="c.id",
    metadata="d.metadata",
    fields={
        name: CHUNK_FIELDS[name]
        for name in ("library", "title", "file_type", "size", "created_at", "page", "position")
    },
)
ITEMS = FilteredItems(
    noun="document",
    rows="documents d WHERE 1",
    newest="d.key DESC",
    fields=FIELDS,
    metadata="d.metadata",
    names={"library": libraries.NAMES},
    exact=("source", "title"),
)
SELECT = (
    f"SELECT d.key, {', '.join('d.' + name for name in COLUMNS)}, "
    "(SELECT root FROM libraries WHERE name = d.library), "
    "(SELECT count(*) FROM document_chunks WHERE owner = d.key) "
    "FROM documents d"
)


@dataclass(frozen=True, slots=True)
class DocumentFilter:
    """A condition on documents `d` in SQL with its bindings, and the conditions it is made of."""

    condition: str
    bindings: tuple[Any, ...]
    conditions: tuple[Condition, ...] = ()

    @property
    def documents(self) -> Allowed:
        """The keys of the documents that fulfil the condition."""
        return self._allowed("SELECT d.key FROM documents d")

    @property
    def chunks(self) -> Allowed:
        """The ids of their chunks; a condition on chunk fields chooses among these."""
        return self._allowed(
            "SELECT c.id FROM document_chunks c JOIN documents d ON d.key = c.owner",
            self.conditions,
        )

    def _allowed(self, select: str, conditions: tuple[Condition, ...] = ()) -> Allowed:
        return (
            Allowed()
            if self.condition == "1"
            else Allowed(f"{select} WHERE {self.condition}", self.bindings, conditions)
        )


def document_filter(
    library: str | None, where: Where | None, *, chunks: bool = False
) -> DocumentFilter:
    """Documents of a library that fulfil all conditions, or (`chunks`) such chunks of them."""
    conditions = filters.conditions(where, KINDS)
    if library is not None:
        conditions.insert(0, Condition("library", "eq", checked_name(library)))
    condition, bindings = filters.compile(
        conditions, CHUNK_FIELDS if chunks else FIELDS, "d.metadata"
    )
    return DocumentFilter(condition, tuple(bindings), tuple(conditions))


def row(sql: apsw.Connection, id: str) -> Sequence[Any]:
    """The row of the document with this id; raises NotFound."""
    found = sql.execute(f"{SELECT} WHERE d.id = ?", (storable(id, "id"),)).fetchone()
    if found is None:
        raise NotFound(f"no document has the id {quoted(id)}")
    return tuple(found)


def by_key(sql: apsw.Connection, key: int) -> Document:
    """The document with this key; raises NotFound if it was deleted meanwhile."""
    found = sql.execute(f"{SELECT} WHERE d.key = ?", (key,)).fetchone()
    if found is None:
        raise NotFound("the document was deleted meanwhile")
    return document(found)


def document(row: Sequence[Any]) -> Document:
    """The document in a row that SELECT returned."""
    _, *values, root, chunks = row
    fields = dict(zip(COLUMNS, values, strict=True))
    return Document(
        **{**fields, "metadata": metadata.decode(fields["metadata"])},
        chunks=chunks,
        path=path(fields["library"], fields["source"], root or ""),
    )


def path(library: str, source: str, root: str) -> str:
    """A document's path in listings: its library, then its place in the library's folder.

    Without such a folder it is the library, then the source.
    """
    folder = os.path.join(root, "")  # noqa: PTH118 - the slash at the end is wanted
    inside = (
        source[len(folder) :].replace(os.sep, "/")
        if root and source.startswith(folder)
        else source.lstrip("/")
    )
    return f"{library}/{inside}"


def coverage(sql: apsw.Connection) -> Coverage:
    """How many distinct contents are embedded by the active model, and how many are not.

    A content is embedded if any document that has it is embedded completely.
    """
    of_pending = (
        "FROM document_pending p JOIN document_chunks c ON c.id = p.chunk "
        "AND p.model = (SELECT value FROM settings WHERE name = 'model')"
    )
    waiting = int(
        sql.execute(
            "SELECT count(*) FROM "
            f"(SELECT DISTINCT d.hash {of_pending} JOIN documents d ON d.key = c.owner) w "
            "WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.hash = w.hash "
            f"AND NOT EXISTS (SELECT 1 {of_pending} WHERE c.owner = d.key))"
        ).get
    )
    return Coverage(
        embedded=int(sql.execute("SELECT count(DISTINCT hash) FROM documents").get) - waiting,
        waiting=waiting,
    )


def chunks(sql: apsw.Connection, index: ChunkIndex, ids: Sequence[int]) -> dict[int, Chunk]:
    """The chunks with these ids."""
    wanted = json.dumps(list(ids))
    texts = {id: text for id, _, _, text in index.passages(sql, ids)}
    documents = {
        each[0]: document(each)
        for each in sql.execute(
            f"{SELECT} WHERE d.key IN (SELECT owner FROM document_chunks "
            "WHERE id IN (SELECT value FROM json_each(?)))",
            (wanted,),
        )
    }
    rows = sql.execute(
        'SELECT id, owner, position, start, "end", first_line, last_line, page, headings '
        "FROM document_chunks WHERE id IN (SELECT value FROM json_each(?))",
        (wanted,),
    )
    found = {
        id: Chunk(
            id=id,
            document=documents[owner],
            position=position,
            text=texts[id],
            start=start,
            end=end,
            first_line=first_line,
            last_line=last_line,
            page=page,
            headings=metadata.decode_list(headings),
        )
        for id, owner, position, start, end, first_line, last_line, page, headings in rows
        if owner in documents
    }
    if missing := set(ids) - found.keys():
        raise Damaged(
            f"the index names passage {min(missing)}, which is not there: run `mcpvectordb check`, "
            f"then `rebuild`"
        )
    return found
