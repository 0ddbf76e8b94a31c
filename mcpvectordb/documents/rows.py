"""SQL for conditions on documents, and documents and chunks from rows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import apsw

from mcpvectordb import filters, metadata
from mcpvectordb.documents import libraries
from mcpvectordb.documents.libraries import checked_name
from mcpvectordb.errors import Damaged, NotFound, quoted
from mcpvectordb.filters import Where
from mcpvectordb.index import Allowed, models
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.columns import ColumnSource
from mcpvectordb.metadata import storable
from mcpvectordb.records import Chunk, Condition, Coverage, Document
from mcpvectordb.search.recency import Recency
from mcpvectordb.search.why_empty import FilteredItems
from mcpvectordb.storage.dialect import SQLITE, SqlDialect, dialect_of

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
# Ties are broken by the key, so that pages of a list neither repeat nor leave out a document.
SORTS = {
    "newest": "d.created_at DESC, d.key DESC",
    "oldest": "d.created_at, d.key",
    "title": "d.title, d.key",
    "path": "d.library, d.source, d.key",
    "size": "d.size DESC, d.key DESC",
    "modified": "d.modified DESC, d.key DESC",
}
# How much before and after a chunk its `surroundings` have: of a long document only this is read.
AROUND_CHUNKS, AROUND_CHARACTERS = 100, 10_000
PENDING = (
    # CROSS keeps the order: from all that waits down, a file that waits would take quadratic time.
    "(SELECT count(*) FROM document_chunks c CROSS JOIN document_pending p "
    f"WHERE p.chunk = c.id AND c.owner = d.key AND p.model = {models.ACTIVE_KEY})"
)
# `path` in SQL, in a file.
PATH = (
    "(d.library || '/' || coalesce((SELECT "
    f"replace(substr(d.source, length(rtrim(l.root, '{os.sep}')) + 2), '{os.sep}', '/') "
    "FROM libraries l WHERE l.name = d.library AND l.root <> '' AND "
    f"substr(d.source, 1, length(rtrim(l.root, '{os.sep}')) + 1) = "
    f"rtrim(l.root, '{os.sep}') || '{os.sep}'), ltrim(d.source, '/')))"
)
PUBLISHED = "d.key NOT IN (SELECT document FROM unpublished_documents)"


@cache
def fields(dialect: SqlDialect = SQLITE, *, chunks: bool = False) -> Mapping[str, str]:
    """SQL of the fields of documents `d`, and of their chunks `c`, that a filter may name."""
    path = dialect.path or PATH
    found = {
        **{name: f"d.{name}" for name in COLUMNS},
        "modified": "nullif(d.modified, '')",
        "date": "coalesce(nullif(d.modified, ''), d.created_at)",
        "pending": PENDING,
        "path": path,
        "folder": f"rtrim(rtrim({path}, replace({path}, '/', '')), '/')",
    }
    if dialect.origins:
        found["origin"] = dialect.origins["document"]
    if not chunks:
        return found
    text = ChunkIndex.text("document")
    return {**found, "page": "c.page", "position": "c.position", "text": text}


CHUNK_FIELDS = fields(chunks=True)
KINDS: filters.Kinds = {
    **dict.fromkeys(("id", "library", "source", "title", "hash", "file_type", "text"), "text"),
    **dict.fromkeys(("path", "folder", "origin"), "text"),
    **dict.fromkeys(("size", "pending", "page", "position"), "number"),
    **dict.fromkeys(("modified", "created_at", "date"), "time"),
}
# Without source, path and time of modification, whose changes are not logged.
FILTERED = ColumnSource(
    # Also of unpublished documents, whose codes are in memory when they are published.
    rows="document_chunks c JOIN documents d ON d.key = c.owner",
    of_group="1",
    id="c.id",
    metadata="d.metadata",
    fields={
        name: CHUNK_FIELDS[name]
        for name in ("library", "title", "file_type", "size", "created_at", "page", "position")
    },
)


@cache
def items(dialect: SqlDialect) -> FilteredItems:
    """The documents that a filter chooses from."""
    origins = {"origin": "SELECT name FROM origins"} if dialect.origins else {}
    return FilteredItems(
        noun="document",
        rows="published_documents d WHERE TRUE",
        newest="d.key DESC",
        fields=fields(dialect),
        metadata=f"d.{dialect.metadata}",
        names={"library": libraries.NAMES, **origins},
        exact=("source", "title"),
    )


@cache
def _select(dialect: SqlDialect) -> str:
    return (
        f"SELECT d.key, {', '.join('d.' + name for name in COLUMNS)}, {dialect.root}, "
        "(SELECT count(*) FROM document_chunks WHERE owner = d.key) "
        "FROM published_documents d"
    )


@dataclass(frozen=True, slots=True)
class DocumentFilter:
    """A condition on documents `d` in SQL with its bindings, and the conditions it is made of."""

    condition: str
    bindings: tuple[Any, ...]
    conditions: tuple[Condition, ...] = ()

    @property
    def origins(self) -> tuple[str, ...]:
        """The names of the origins that it chooses from; () for all."""
        return filters.named(self.conditions, "origin")

    @property
    def documents(self) -> Allowed:
        """The keys of the documents that fulfil the condition."""
        return self._allowed("SELECT d.key FROM published_documents d")

    @property
    def chunks(self) -> Allowed:
        """The ids of their chunks; a condition on chunk fields chooses among these."""
        return self._allowed(
            "SELECT c.id FROM document_chunks c JOIN published_documents d ON d.key = c.owner",
            self.conditions,
        )

    def published(self, sql: apsw.Connection) -> DocumentFilter:
        """The filter for the indexes, which have chunks of unpublished documents, if there are any.

        Without conditions, so that what is in memory is filtered by the published ids as well.
        """
        if not sql.execute("SELECT EXISTS (SELECT 1 FROM unpublished_documents)").get:
            return self
        return DocumentFilter(f"({self.condition}) AND {PUBLISHED}", self.bindings)

    def _allowed(self, select: str, conditions: tuple[Condition, ...] = ()) -> Allowed:
        return (
            Allowed()
            if self.condition == filters.EVERYTHING
            else Allowed(
                f"{select} WHERE {self.condition}", self.bindings, conditions, self.origins
            )
        )


def document_filter(
    library: str | None, where: Where | None, *, chunks: bool = False, dialect: SqlDialect = SQLITE
) -> DocumentFilter:
    """Documents of a library that fulfil all conditions, or (`chunks`) such chunks of them."""
    conditions = filters.conditions(where, KINDS)
    if library is not None:
        conditions.insert(0, Condition("library", "eq", checked_name(library)))
    condition, bindings = filters.compile(
        conditions, fields(dialect, chunks=chunks), f"d.{dialect.metadata}", dialect.filters
    )
    return DocumentFilter(condition, tuple(bindings), tuple(conditions))


def row(sql: apsw.Connection, id: str) -> Sequence[Any]:
    """The row of the document with this id; raises NotFound."""
    found = sql.execute(
        f"{_select(dialect_of(sql))} WHERE d.id = ? ORDER BY d.key", (storable(id, "id"),)
    ).fetchone()
    if found is None:
        raise NotFound(f"no document has the id {quoted(id)}")
    return tuple(found)


def by_key(sql: apsw.Connection, key: int) -> Document:
    """The document with this key; raises NotFound if it was deleted meanwhile."""
    found = sql.execute(f"{_select(dialect_of(sql))} WHERE d.key = ?", (key,)).fetchone()
    if found is None:
        raise NotFound("the document was deleted meanwhile")
    return document(found)


def by_keys(sql: apsw.Connection, keys: Sequence[int]) -> dict[int, Document]:
    """The documents that have these keys, by key."""
    found = sql.execute(
        f"{_select(dialect_of(sql))} WHERE d.key IN (SELECT value FROM json_each(?))",
        (json.dumps(list(keys)),),
    )
    return {row[0]: document(row) for row in found}


def after(sql: apsw.Connection, key: int, most: int) -> list[tuple[int, Document]]:
    """The first documents after a key, each with its own key."""
    found = sql.execute(
        f"{_select(dialect_of(sql))} WHERE d.key > ? ORDER BY d.key LIMIT ?", (key, most)
    )
    return [(row[0], document(row)) for row in found]


def document(row: Sequence[Any]) -> Document:
    """The document in a row that `_select` selects."""
    _, *values, root, chunks = row
    named = dict(zip(COLUMNS, values, strict=True))
    return Document(
        **{**named, "metadata": metadata.decode(named["metadata"])},
        chunks=chunks,
        path=path(named["library"], named["source"], root or ""),
    )


def path(library: str, source: str, root: str) -> str:
    """A document's path in listings: its library, then its place in the library's folder.

    Without such a folder it is the library, then the source.
    """
    folder = os.path.join(root, "") if root else ""  # noqa: PTH118 - the slash at the end is wanted
    if folder and source.startswith(folder):
        return f"{library}/{source[len(folder) :].replace(os.sep, '/')}"
    return f"{library}/{source.lstrip('/')}"


def coverage(sql: apsw.Connection) -> Coverage:
    """How many documents are embedded by the active model, partly or not at all."""
    incomplete = (
        "WITH incomplete AS MATERIALIZED (SELECT c.owner AS key, count(*) AS pending "
        "FROM document_pending p JOIN document_chunks c ON c.id = p.chunk "
        "JOIN published_documents d ON d.key = c.owner "
        f"WHERE p.model = {models.ACTIVE_KEY} GROUP BY c.owner) "
    )
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
        partly=partly,
        waiting=waiting,
        empty=empty,
        copies=documents - contents,
        contents_waiting=contents - embedded_contents,
    )


def surroundings(sql: apsw.Connection, chunk: Chunk) -> tuple[str, int]:
    """The text around a chunk, which is all of a short document, and the number of its first line.

    Raises NotFound if the document was changed or deleted meanwhile.
    """
    found: list[Any] = sql.execute(
        "SELECT c.tile, c.start - c.tile_start, c.first_line, c.position FROM document_chunks c "
        "JOIN published_documents d ON d.key = c.owner "
        'WHERE d.id = ? AND c.position BETWEEN ? AND ? AND c."end" > ? AND c.start < ? '
        "ORDER BY c.position",
        (
            chunk.document.id,
            chunk.position - AROUND_CHUNKS,
            chunk.position + AROUND_CHUNKS,
            chunk.start - AROUND_CHARACTERS,
            chunk.end + AROUND_CHARACTERS,
        ),
    ).fetchall()
    tiles = [tile for tile, *_ in found]
    if found and found[0][-1] == 0:
        return "".join(tiles), 1
    if len(found) < 2:
        raise NotFound("the document was changed or deleted meanwhile")
    # The first tile is left out, because it may have to tell where the second one begins: a chunk
    # begins inside of its tile or, where chunks overlap, inside of the one before it.
    (before, *_), (tile, skipped, first_line, _), *_ = found
    first_line += before[skipped:].count("\n") if skipped < 0 else -tile[:skipped].count("\n")
    return "".join(tiles[1:]), first_line


def recency(sql: apsw.Connection, ids: Sequence[int], recency: Recency) -> dict[int, float]:
    """How much chunks count by the age of their documents, as far as that is known."""
    moments = sql.execute(
        "SELECT c.id, coalesce(nullif(d.modified, ''), d.created_at) FROM document_chunks c "
        "JOIN published_documents d ON d.key = c.owner "
        "WHERE c.id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(ids)),),
    )
    return {**dict.fromkeys(ids, 1.0), **{id: recency.weight(when) for id, when in moments}}


def chunks(sql: apsw.Connection, index: ChunkIndex, ids: Sequence[int]) -> dict[int, Chunk]:
    """The chunks with these ids."""
    wanted = json.dumps(list(ids))
    texts = {each.id: each.text for each in index.passages(sql, ids)}
    documents = {
        each[0]: document(each)
        for each in sql.execute(
            f"{_select(dialect_of(sql))} WHERE d.key IN (SELECT owner FROM document_chunks "
            "WHERE id IN (SELECT value FROM json_each(?)))",
            (wanted,),
        )
    }
    rows = sql.execute(
        'SELECT id, owner, position, start, "end", first_line, last_line, page, headings, '
        "header, footer "
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
            header=header,
            footer=footer,
        )
        for (
            id,
            owner,
            position,
            start,
            end,
            first_line,
            last_line,
            page,
            headings,
            header,
            footer,
        ) in rows
        if owner in documents
    }
    if missing := set(ids) - found.keys():
        raise Damaged(
            f"the index names passage {min(missing)}, which is not there: run `mcpvectordb check`, "
            f"then `rebuild`"
        )
    return found
