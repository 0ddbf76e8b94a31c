"""Documents as items: one form for history, undo, merge, export and import.

What people say of a document, its title and metadata, is kept apart from what its source says of
itself (the front matter of a note, the properties of a DOCX), which follows the source when it
changes. What a person said stays until a person says otherwise, and wins over the source. The
column `metadata` has both together; the column `given` has what people said.

A stored document's text never changes: another text is another row with another key. So a version
of which only the metadata was replaced names the key of the stored document as its body, and the
text is packed, once, when that document is removed.
"""

from __future__ import annotations

import contextlib
import json
from abc import ABC
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from mcpvectordb import dates, metadata
from mcpvectordb.config import Config
from mcpvectordb.documents import libraries, rows
from mcpvectordb.errors import Damaged, InvalidInput, NotFound, quoted
from mcpvectordb.history.log import History
from mcpvectordb.history.versions import LOCAL, Item, Version
from mcpvectordb.index.spans import ItemText, ReceivedItem, TextItems
from mcpvectordb.metadata import library_name, storable, whole_number
from mcpvectordb.records import Document, Place
from mcpvectordb.storage.dialect import Sql

SHELF = "documents"
LONGEST_ID = 200
_FIELDS = ("title", "hash", "file_type", "size", "created_at", "metadata", "given")
# The id by which this copy knows it, and what its source said when it was read on this machine.
_LOCAL = ("id", "modified", "etag", "mtime_ns")

# The documents at a stamp under the name that readers use, so that every condition on
# documents means these.
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


class Overrides(NamedTuple):
    """What people said of one document.

    `title` is "" if they gave none; `metadata` has [value] for each key, [] for one taken out.
    """

    title: str = ""
    metadata: Mapping[str, Sequence[Any]] = {}

    @classmethod
    def decode(cls, value: Mapping[str, Any]) -> Overrides:
        """What people said, from the JSON of the column `given`; raises Damaged."""
        match value:
            case {"title": str(title), "metadata": dict(said)} if all(
                isinstance(each, list) and len(each) < 2 for each in said.values()
            ):
                return Overrides(title, said)
        raise Damaged("what is stored as given is not what was written: run `mcpvectordb check`")

    @classmethod
    def stored(cls, sql: Sql, key: int, own: Mapping[str, Any] | None = None) -> Overrides:
        """What people said of the document with this key.

        Where that is not known, all of its metadata that the source does not say itself (`own`)
        counts.
        """
        given, together = sql.execute(
            "SELECT given, metadata FROM published_documents WHERE key = ?", (key,)
        ).fetchone() or (None, "{}")
        if given is None:
            values = metadata.decode(together)
            return cls(metadata=of_keys(values.keys() - (own or {}).keys(), values))
        return cls.decode(metadata.decode(given))

    def over(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The metadata of a document of which the source says `own`."""
        together = {**own, **{key: said[0] for key, said in self.metadata.items() if said}}
        return {key: together[key] for key in together if self.metadata.get(key) != []}

    def then(self, later: Overrides) -> Overrides:
        """What was said first, with what was said later in its place."""
        return Overrides(later.title or self.title, {**self.metadata, **later.metadata})

    def encode(self) -> str:
        """The text of the column `given`."""
        return encoded(self._asdict())


def of_keys(keys: Iterable[str], values: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What is said of these keys by `values`, in the form of `Overrides.metadata`."""
    return {key: [values[key]] if key in values else [] for key in keys}


def encoded(value: Mapping[str, Any]) -> str:
    """JSON text of values that were checked before, each by itself."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=dict)


class DocumentChange(NamedTuple):
    """A change of what people say of a document; None leaves a field as it is.

    `metadata` replaces all, `patch` is merged into it (RFC 7396), `keys` are set.
    """

    metadata: Mapping[str, Any] | None = None
    patch: Mapping[str, Any] | None = None
    keys: Mapping[str, Any] | None = None
    title: str | None = None
    library: str | None = None


class DocumentItems(TextItems, ABC):
    """The documents that readers see."""

    shelf, noun, table = SHELF, "document", "document"
    identity = "library = :place AND source = :name AND twin = :twin"
    select = (
        f"SELECT key, library, source, twin, stamp, {', '.join((*_FIELDS, *_LOCAL))}, "
        "(SELECT count(*) FROM document_chunks WHERE owner = key) FROM published_documents"
    )

    @classmethod
    def version(cls, sql: Sql, row: Sequence[Any]) -> Version:
        """The version in a row, whose body is named by the document's key."""
        key, library, source, twin, stamp, *values, chunks = row
        fields = dict(zip(_FIELDS, values, strict=False))
        local = dict(zip(_LOCAL, values[len(_FIELDS) :], strict=True))
        fields |= {"chunks": chunks, LOCAL: local}
        return Version(Item(SHELF, library, source, twin), stamp, fields, str(key).encode())

    @classmethod
    def label(cls, sql: Sql, version: Version) -> str:
        """The path of a document in listings."""
        library, source = version.item.place, version.item.name
        return rows.path(library, source, libraries.root(sql, library))

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
            Overrides.decode(metadata.received(fields["given"]))
        library_name(version.item.place)
        storable(version.item.name, "source", blank=False)
        if content.images is not None or len(content.spans) != fields["chunks"]:
            raise InvalidInput("its chunks are not those of a document")

    @classmethod
    def line(cls, sql: Sql, version: Version, model: int | None) -> dict[str, Any]:
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


def past_version(sql: Sql, history: History, id: str, limit: int) -> Version:
    """What the document with this id (that it has or had) was at a stamp; raises NotFound."""
    # After a move to another library it is another item.
    items: list[Any] = sql.execute(
        "SELECT library, source, twin FROM published_documents WHERE id = ?1 "
        "UNION SELECT place, name, twin FROM history_versions "
        "WHERE shelf = 'documents' AND fields ->> '$.local.id' = ?1",
        (storable(id, "id"),),
    ).fetchall()
    if not items:
        raise NotFound(f"no document has, or had, the id {quoted(id)}")
    found = (Item(SHELF, *row) for row in items)
    states = (history.at(sql, item, DocumentItems.find(sql, item), limit) for item in found)
    there = [each for each in states if each is not None]
    if not there:
        raise NotFound(f"the document with the id {quoted(id)} was not there at that time")
    return max(there, key=lambda each: each.order)


def past(limit: int) -> str:
    """What begins a statement in which `published_documents` are those at a stamp.

    Former versions have their number, negated, as key; see `past_by_key`.
    """
    return _PAST.format(limit=limit)


def past_by_key(sql: Sql, history: History, key: int) -> Document:
    """The document with a key that a statement after `past` returned."""
    return rows.by_key(sql, key) if key > 0 else past_document(sql, history.former(sql, -key))


def past_found(sql: Sql, history: History, names: Sequence[str], limit: int) -> list[Place | None]:
    """The document that each name meant at a stamp; otherwise what the document was then that the
    name means now, or that has or had it as its id.
    """
    # A connection on which `published_documents` are those at the stamp.
    past_sql = SimpleNamespace(
        dialect=sql.dialect,
        execute=lambda statement, bindings=None: sql.execute(past(limit) + statement, bindings),
    )
    then = rows.candidates(
        cast(Sql, past_sql),
        names,
        best=True,
        document=lambda _, key: past_by_key(sql, history, key),
    )
    places: list[Place | None] = []
    for name, meant, now in zip(names, then, rows.found(sql, names), strict=True):
        places += meant or [None]
        if not meant:
            with contextlib.suppress(NotFound):
                id = now.document.id if now else name
                document = past_document(sql, past_version(sql, history, id, limit))
                places[-1] = replace(now, document=document) if now else Place(document=document)
    return places


def past_document(sql: Sql, past: Version) -> Document:
    """A version as a document."""
    if (key := key_of(past)) and DocumentItems.by_key(sql, key) == past:
        return rows.by_key(sql, key)
    fields, local, item = past.fields or {}, past.local, past.item
    same = ("title", "hash", "file_type", "size", "created_at", "chunks")
    return Document(
        id=local["id"],
        library=item.place,
        source=item.name,
        modified=local["modified"],
        metadata=metadata.decode(fields["metadata"]),
        path=DocumentItems.label(sql, past),
        **{name: fields[name] for name in same},
    )
