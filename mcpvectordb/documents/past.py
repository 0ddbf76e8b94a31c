"""Documents as they were at an earlier time (`as_of`), read from their versions."""

from __future__ import annotations

from typing import Any

import apsw

from mcpvectordb import metadata
from mcpvectordb.documents import rows
from mcpvectordb.documents.items import SHELF, DocumentItems, key_of
from mcpvectordb.documents.rows import DocumentFilter
from mcpvectordb.errors import NotFound, quoted
from mcpvectordb.history.log import History
from mcpvectordb.history.versions import Item, Version
from mcpvectordb.metadata import storable
from mcpvectordb.records import Document

# The documents at a stamp under the name that readers use, so that every condition on
# documents means these. Former versions have their number, negated, as key.
_PAST = """
WITH every AS (
    SELECT -number AS key, place AS library, name AS source, twin, stamp, digest,
        fields ->> '$.local.id' AS id, fields ->> '$.title' AS title,
        fields ->> '$.hash' AS hash, fields ->> '$.file_type' AS file_type,
        fields ->> '$.size' AS size, fields ->> '$.local.modified' AS modified,
        fields ->> '$.created_at' AS created_at, fields ->> '$.metadata' AS metadata, fields
    FROM history_versions WHERE shelf = 'documents' AND stamp <= {limit}
    UNION ALL
    SELECT key, library, source, twin, stamp, zeroblob(17), id, title, hash, file_type, size,
        modified, created_at, metadata, ''
    FROM main.published_documents WHERE stamp <= {limit}
), ranked AS (
    SELECT *, row_number() OVER (
        PARTITION BY library, source, twin ORDER BY stamp DESC, digest DESC) AS place
    FROM every
), published_documents AS (SELECT * FROM ranked WHERE place = 1 AND fields IS NOT NULL)
"""


def get(sql: apsw.Connection, history: History, id: str, limit: int) -> Version:
    """What the document with this id (that it has or had) was at a stamp; raises NotFound."""
    states = [
        history.at(sql, item, DocumentItems.find(sql, item), limit)
        for item in _items(sql, storable(id, "id"))
    ]
    there = [each for each in states if each is not None]
    if not there:
        raise NotFound(f"the document with the id {quoted(id)} was not there at that time")
    return max(there, key=lambda each: each.order)


def text(sql: apsw.Connection, history: History, past: Version) -> str:
    """The text that a document had."""
    return DocumentItems.text(history.body(sql, past, DocumentItems.body))


def browse(
    sql: apsw.Connection,
    history: History,
    chosen: DocumentFilter,
    limit: int,
    order: str,
    window: tuple[int, int],
) -> list[Document]:
    """The documents at a stamp that match all conditions, in an order."""
    found: list[Any] = sql.execute(
        f"{_PAST.format(limit=limit)} SELECT d.key FROM published_documents d "
        f"WHERE {chosen.condition} ORDER BY {order} LIMIT ? OFFSET ?",
        (*chosen.bindings, *window),
    ).fetchall()
    return [
        rows.by_key(sql, key) if key > 0 else document(sql, history.former(sql, -key))
        for (key,) in found
    ]


def document(sql: apsw.Connection, past: Version) -> Document:
    """A version as a document."""
    if (key := key_of(past)) and DocumentItems.by_key(sql, key) == past:
        return rows.by_key(sql, key)
    fields, local, item = past.fields or {}, past.local, past.item
    return Document(
        id=local["id"],
        library=item.place,
        source=item.name,
        title=fields["title"],
        hash=fields["hash"],
        file_type=fields["file_type"],
        size=fields["size"],
        modified=local["modified"],
        created_at=fields["created_at"],
        metadata=metadata.decode(fields["metadata"]),
        chunks=fields["chunks"],
        path=DocumentItems.label(sql, past),
    )


def _items(sql: apsw.Connection, id: str) -> list[Item]:
    """What had this id: after a move to another library it is another item."""
    rows = sql.execute(
        "SELECT library, source, twin FROM published_documents WHERE id = ?1 "
        "UNION SELECT place, name, twin FROM history_versions "
        "WHERE shelf = 'documents' AND fields ->> '$.local.id' = ?1",
        (id,),
    )
    found = [Item(SHELF, *row) for row in rows]
    if not found:
        raise NotFound(f"no document has, or had, the id {quoted(id)}")
    return found
