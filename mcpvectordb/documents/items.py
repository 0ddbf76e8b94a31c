"""Documents as items: one form for history, undo, merge, export and import.

A stored document's text never changes: another text is another row with another key. So a version
of which only the metadata was replaced names the key of the stored document as its body, and the
text is packed, once, when that document is removed.
"""

from __future__ import annotations

import contextlib
from abc import ABC
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apsw

from mcpvectordb import dates, metadata
from mcpvectordb.config import Config
from mcpvectordb.documents import overrides, rows
from mcpvectordb.documents.libraries import checked_name
from mcpvectordb.documents.rows import DocumentFilter
from mcpvectordb.errors import InvalidInput, NotFound, quoted
from mcpvectordb.history.log import History
from mcpvectordb.history.versions import LOCAL, Item, Version
from mcpvectordb.index.spans import ItemText, ReceivedItem, TextItems
from mcpvectordb.metadata import storable, whole_number
from mcpvectordb.records import Document

SHELF = "documents"
LONGEST_ID = 200
_FIELDS = ("title", "hash", "file_type", "size", "created_at", "metadata", "given")
# The id by which this copy knows it, and what its source said when it was read on this machine.
_LOCAL = ("id", "modified", "etag", "mtime_ns")

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


class DocumentItems(TextItems, ABC):
    """The documents that readers see."""

    shelf, noun, table = SHELF, "document", "document"
    identity = "library = :place AND source = :name AND twin = :twin"
    select = (
        f"SELECT key, library, source, twin, stamp, {', '.join((*_FIELDS, *_LOCAL))}, "
        "(SELECT count(*) FROM document_chunks WHERE owner = key) FROM published_documents"
    )

    @classmethod
    def version(cls, sql: apsw.Connection, row: Sequence[Any]) -> Version:
        """The version in a row, whose body is named by the document's key."""
        key, library, source, twin, stamp, *values, chunks = row
        fields = dict(zip(_FIELDS, values, strict=False))
        local = dict(zip(_LOCAL, values[len(_FIELDS) :], strict=True))
        fields |= {"chunks": chunks, LOCAL: local}
        return Version(Item(SHELF, library, source, twin), stamp, fields, str(key).encode())

    @classmethod
    def label(cls, sql: apsw.Connection, version: Version) -> str:
        """The path of a document in listings."""
        library, source = version.item.place, version.item.name
        root = sql.execute("SELECT root FROM libraries WHERE name = ?", (library,)).get
        return rows.path(library, source, root or "")

    @classmethod
    def owner(cls, version: Version) -> int:
        """The key of a stored document."""
        return key_of(version)

    @classmethod
    def check(cls, version: Version, content: ItemText) -> None:
        """Raise an error unless a version has what a document has."""
        fields, local = version.fields or {}, version.local
        for name in ("title", "hash", "file_type"):
            storable(fields[name], name)
        for name in ("id", "modified", "etag"):
            storable(local[name], name, blank=name != "id")
        if len(local["id"]) > LONGEST_ID:
            raise InvalidInput(f"id has more than {LONGEST_ID} characters")
        whole_number(fields["size"], "size")
        whole_number(local["mtime_ns"], "mtime_ns", -1)
        dates.check_stored(fields["created_at"])
        metadata.received(fields["metadata"])
        if fields["given"] is not None:
            overrides.decode(metadata.received(fields["given"]))
        checked_name(version.item.place)
        storable(version.item.name, "source", blank=False)
        if content.images is not None or len(content.spans) != fields["chunks"]:
            raise InvalidInput("its chunks are not those of a document")

    @classmethod
    def line(cls, sql: apsw.Connection, version: Version, model: int | None) -> dict[str, Any]:
        """A stored document as an export has it, with its embeddings by a model."""
        key, fields, local = key_of(version), version.fields or {}, version.local
        former = sql.execute("SELECT id FROM former_ids WHERE document = ? ORDER BY number", (key,))
        said = fields["given"]
        return {
            "id": local["id"],
            "library": version.item.place,
            "source": version.item.name,
            **{name: fields[name] for name in ("title", "hash", "file_type", "size")},
            **{name: local[name] for name in ("modified", "etag", "mtime_ns")},
            "created_at": fields["created_at"],
            "metadata": metadata.decode(fields["metadata"]),
            "given": None if said is None else metadata.decode(said),
            "former_ids": [id for (id,) in former],
            **cls.text_line(sql, key, cls.stored(sql, key), model),
        }

    @classmethod
    def of_line(cls, line: Mapping[str, Any], config: Config) -> ReceivedItem:
        """The document of such a line, which may say anything; raises InvalidInput or TooLarge."""
        text = storable(line.get("text"), "text")
        chunks, embeddings = cls.of_text_line(text, line, config)
        former = line.get("former_ids", [])
        if not isinstance(former, list) or any(
            len(storable(each, "former_ids", blank=False)) > LONGEST_ID for each in former
        ):
            raise InvalidInput("former_ids is not a list of ids")
        fields = {name: line.get(name) for name in _FIELDS}
        fields |= {
            "created_at": dates.parse(line.get("created_at"), "created_at"),
            "metadata": metadata.encode(line.get("metadata") or None),
            "given": None if fields["given"] is None else metadata.encode(fields["given"], "given"),
            "chunks": len(chunks),
            LOCAL: {name: line.get(name) for name in _LOCAL},
        }
        # Exports do not say which of several documents of a source is a twin: each is one.
        item = Item(SHELF, line.get("library", ""), line.get("source", ""), line.get("id", ""))
        content = ItemText(text, chunks)
        version = Version(item, 0, fields)
        cls.check(version, content)
        return ReceivedItem(version, content, embeddings, former)


def key_of(version: Version) -> int:
    """The key of the stored document whose text a version has; 0 if it is none."""
    name = version.body or b""
    return int(name) if len(name) < 16 and name.isdigit() else 0


class DocumentVersions:
    """Keeps the versions of documents that are replaced, changed or removed."""

    def __init__(self, history: History, long: int) -> None:
        self.history, self._long = history, long

    def packed_long(self, sql: apsw.Connection, keys: Iterable[int]) -> dict[int, bytes]:
        """The packed bodies of those documents that are long, to be made before a transaction."""
        found = (DocumentItems.by_key(sql, key) for key in keys)
        return {
            key_of(each): DocumentItems.body(sql, each)
            for each in found
            if each is not None and (each.fields or {})["chunks"] > self._long
        }

    @contextlib.contextmanager
    def changing(self, sql: apsw.Connection, key: int) -> Iterator[int]:
        """Keep a document as it is before its row is changed in this block, to have this stamp.

        In another library, or with another source, it is another item: the old one is deleted.
        """
        found = DocumentItems.by_key(sql, key)
        if found is not None:
            self.history.keep(sql, found)
        yield self.history.stamp(sql)
        after = DocumentItems.by_key(sql, key)
        if found is not None and (after is None or after.item != found.item):
            self.bury_missing(sql, [found.item])

    def keep_whole(
        self, sql: apsw.Connection, keys: Iterable[int], packed: Mapping[int, bytes] | None = None
    ) -> list[Item]:
        """Keep documents with their texts, before they are removed; returns what they are."""
        items = []
        for key in keys:
            found = DocumentItems.by_key(sql, key)
            if found is not None:
                items.append(found.item)
                if self.history.keeps(sql):
                    body = (packed or {}).get(key)
                    if body is None and not self.history.has_body(sql, found.body):
                        body = DocumentItems.body(sql, found)
                    self.history.keep(sql, found, body)
        return items

    def bury_missing(self, sql: apsw.Connection, items: Iterable[Item]) -> None:
        """Note of those items that are not there any more that they were deleted."""
        for item in items:
            if DocumentItems.find(sql, item) is None:
                self.history.bury(sql, item)


def past_version(sql: apsw.Connection, history: History, id: str, limit: int) -> Version:
    """What the document with this id (that it has or had) was at a stamp; raises NotFound."""
    states = [
        history.at(sql, item, DocumentItems.find(sql, item), limit)
        for item in _items_of_id(sql, storable(id, "id"))
    ]
    there = [each for each in states if each is not None]
    if not there:
        raise NotFound(f"the document with the id {quoted(id)} was not there at that time")
    return max(there, key=lambda each: each.order)


def past_documents(
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
        rows.by_key(sql, key) if key > 0 else past_document(sql, history.former(sql, -key))
        for (key,) in found
    ]


def past_document(sql: apsw.Connection, past: Version) -> Document:
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


def _items_of_id(sql: apsw.Connection, id: str) -> list[Item]:
    """What had this id: after a move to another library it is another item."""
    found = sql.execute(
        "SELECT library, source, twin FROM published_documents WHERE id = ?1 "
        "UNION SELECT place, name, twin FROM history_versions "
        "WHERE shelf = 'documents' AND fields ->> '$.local.id' = ?1",
        (id,),
    )
    items = [Item(SHELF, *row) for row in found]
    if not items:
        raise NotFound(f"no document has, or had, the id {quoted(id)}")
    return items
