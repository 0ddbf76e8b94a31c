"""Memories as items: one form for history, undo, merge, export and import."""

from __future__ import annotations

import hashlib
from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from mcpvectordb import dates, metadata
from mcpvectordb.config import Config
from mcpvectordb.errors import InvalidInput
from mcpvectordb.history.log import History
from mcpvectordb.history.versions import LOCAL, Item, Version, body_name, encoded
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.spans import ItemText, ReceivedItem, StoredImage, TextItems
from mcpvectordb.memories.memory import Entry, Image, Memory
from mcpvectordb.memories.rows import NEWEST_FIRST, MemoryFilter, by_ids
from mcpvectordb.memories.validation import (
    SOURCES,
    checked_entry,
    checked_id,
    checked_thread,
    normalized_tags,
    one_of,
)
from mcpvectordb.metadata import from_base64, storable

SHELF = "contexts"
LONGEST_UID = 100
_FIELDS = ("thread", "source", "metadata", "created_at", "updated_at")

# The memories at a stamp, with their tags and images, under the names of the tables, so that every
# condition on memories means these. Former versions have their number, negated, as id.
_PAST = """
WITH every AS (
    SELECT -number AS id, name AS uid, stamp, digest, fields ->> '$.local.id' AS own,
        fields ->> '$.thread' AS thread, fields ->> '$.source' AS source,
        fields ->> '$.metadata' AS metadata, fields ->> '$.created_at' AS created_at,
        fields ->> '$.updated_at' AS updated_at, fields
    FROM history_versions WHERE shelf = 'contexts' AND stamp <= {limit}
    UNION ALL
    SELECT id, uid, stamp, zeroblob(17), id, thread, source, metadata, created_at, updated_at, ''
    FROM main.contexts WHERE stamp <= {limit}
), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY uid ORDER BY stamp DESC, digest DESC) AS place
    FROM every
), contexts AS (SELECT * FROM ranked WHERE place = 1 AND fields IS NOT NULL),
context_tags AS (
    SELECT context, tag FROM main.context_tags
    UNION ALL SELECT -number, value FROM history_versions, json_each(fields, '$.tags')
    WHERE shelf = 'contexts' AND fields IS NOT NULL
), context_images AS (
    SELECT context FROM main.context_images
    UNION ALL SELECT -number FROM history_versions, json_each(fields, '$.images')
    WHERE shelf = 'contexts' AND fields IS NOT NULL
)
"""


class MemoryItems(TextItems, ABC):
    """The memories of a file."""

    shelf, noun, table = SHELF, "memory", "context"
    key, identity = "id", "uid = :name"
    select = f"SELECT id, uid, stamp, hex(hash), {', '.join(_FIELDS)} FROM contexts"

    @classmethod
    def version(cls, sql: apsw.Connection, row: Sequence[Any]) -> Version:
        """The version in a row, with the memory's tags and digests of its images."""
        id, uid, stamp, hash, *values = row
        tags = sql.execute("SELECT tag FROM context_tags WHERE context = ? ORDER BY tag", (id,))
        return _version(
            uid,
            stamp,
            {
                **dict(zip(_FIELDS, values, strict=True)),
                "hash": hash,
                "tags": [tag for (tag,) in tags],
                "images": [_digest(each) for each in _images(sql, id)],
                LOCAL: {"id": id},
            },
        )

    @classmethod
    def stored(cls, sql: apsw.Connection, owner: int) -> ItemText:
        """The text and the images of a stored memory."""
        return super().stored(sql, owner)._replace(images=_images(sql, owner))

    @classmethod
    def label(cls, sql: apsw.Connection, version: Version) -> str:
        """memory:7, by the id that it has or had in this file."""
        return f"memory:{version.local.get('id', '?')}"

    @classmethod
    def owner(cls, version: Version) -> int:
        """The id of a stored memory."""
        return int(version.local["id"])

    @classmethod
    def check(cls, version: Version, content: ItemText) -> None:
        """Raise an error unless a version has what a memory has."""
        fields: Mapping[str, Any] = version.fields or {}
        if checked_thread(fields["thread"]) != fields["thread"]:
            raise InvalidInput("thread is not as it is stored")
        one_of(fields["source"], SOURCES, "source")
        for name in ("created_at", "updated_at"):
            dates.check_stored(fields[name])
        if fields["metadata"] is not None:
            metadata.received(fields["metadata"])
        if list(normalized_tags(fields["tags"])) != fields["tags"]:
            raise InvalidInput("tags are not as they are stored")
        storable(version.item.name, "uid", blank=False)
        checked_id(version.local["id"])
        if content.images is None or version.item.place or version.item.twin:
            raise InvalidInput("it is no memory")
        said = text_hash(content.text).hex().upper(), [_digest(each) for each in content.images]
        if said != (fields["hash"], fields["images"]):
            raise InvalidInput("its text or an image is another one")

    @classmethod
    def line(cls, sql: apsw.Connection, version: Version, model: int | None) -> dict[str, Any]:
        """A stored memory as an export has it, with its embeddings by a model."""
        id, fields = version.local["id"], version.fields or {}
        stored = cls.stored(sql, id)
        return {
            "id": id,
            "uid": version.item.name,
            **{name: fields[name] for name in _FIELDS},
            "metadata": _decoded(fields["metadata"]),
            "tags": fields["tags"],
            "images": [
                {"data": data, "mime_type": mime_type, "metadata": _decoded(said)}
                for mime_type, said, data in stored.images or ()
            ],
            **cls.text_line(sql, id, stored, model),
        }

    @classmethod
    def of_line(cls, line: Mapping[str, Any], uid: str, config: Config) -> ReceivedItem:
        """The memory of such a line, which may say anything; raises InvalidInput or TooLarge.

        `uid` is for one of an old export, which has none.
        """
        images = line.get("images", [])
        if not isinstance(images, list) or not isinstance(line.get("tags", []), list):
            raise InvalidInput("images or tags is not a list")
        entry = checked_entry(
            Entry(
                thread=line.get("thread"),  # type: ignore[arg-type]  # it is checked here
                source=line.get("source"),  # type: ignore[arg-type]
                text=line.get("text"),  # type: ignore[arg-type]
                metadata=line.get("metadata"),
                tags=line.get("tags", []),
                images=[_image_of_line(each) for each in images],
                created_at=dates.parse(line.get("created_at"), "created_at"),
                updated_at=dates.parse(line.get("updated_at"), "updated_at"),
            ),
            config,
        )
        chunks, embeddings = cls.of_text_line(entry.text, line, config)
        content = ItemText(entry.text, chunks, stored_images(entry.images or ()))
        fields = {
            "thread": entry.thread,
            "source": entry.source,
            "metadata": None if entry.metadata is None else metadata.encode(entry.metadata),
            "created_at": entry.created_at,
            "updated_at": entry.updated_at,
            "hash": text_hash(entry.text).hex().upper(),
            "tags": list(entry.tags or ()),
            "images": [_digest(each) for each in content.images or ()],
            LOCAL: {"id": line.get("id")},
        }
        name = storable(line.get("uid", ""), "uid")[:LONGEST_UID]
        version = _version(name if name.strip() else uid, 0, fields)
        cls.check(version, content)
        return ReceivedItem(version, content, embeddings)


def keep(history: History, sql: apsw.Connection, id: int) -> Item | None:
    """Keep a memory as it is, before it changes or is removed; what it is, None if not there."""
    found = MemoryItems.by_key(sql, id)
    if found is None:
        return None
    known = history.has_body(sql, found.body)
    history.keep(sql, found, None if known else MemoryItems.body(sql, found))
    return found.item


def text_hash(text: str) -> bytes:
    """The column `hash` of a memory."""
    return hashlib.sha256(text.encode()).digest()


def stored_images(images: Sequence[Image]) -> list[StoredImage]:
    """Images as they are stored."""
    return [
        StoredImage(
            each.mime_type,
            None if each.metadata is None else metadata.encode(each.metadata),
            each.data,
        )
        for each in images
    ]


def images_of(content: ItemText) -> tuple[Image, ...]:
    """The images of a memory."""
    return tuple(
        Image(data=data, mime_type=mime_type, metadata=_decoded(said))
        for mime_type, said, data in content.images or ()
    )


def past_memories(
    sql: apsw.Connection,
    history: History,
    index: ChunkIndex,
    chosen: MemoryFilter,
    limit: int,
    window: tuple[int, int],
    images: bool,
) -> list[Memory]:
    """The memories at a stamp that match all filters, newest first."""
    found: list[Any] = sql.execute(
        f"{_PAST.format(limit=limit)} SELECT x.id FROM contexts x WHERE {chosen.condition} "
        f"{NEWEST_FIRST} LIMIT ? OFFSET ?",
        (*chosen.bindings, *window),
    ).fetchall()
    present = by_ids(sql, index, [id for (id,) in found if id > 0], images=images)
    return [
        present[id] if id > 0 else _past_memory(sql, history, history.former(sql, -id), images)
        for (id,) in found
    ]


def _past_memory(sql: apsw.Connection, history: History, past: Version, images: bool) -> Memory:
    fields = past.fields or {}
    content = MemoryItems.checked(past, history.body(sql, past, MemoryItems.body))
    return Memory(
        id=past.local["id"],
        thread=fields["thread"],
        source=fields["source"],
        text=content.text,
        content_type="multimodal" if content.images else "text",
        metadata=_decoded(fields["metadata"]),
        tags=tuple(fields["tags"]),
        images=images_of(content) if images else (),
        created_at=fields["created_at"],
        updated_at=fields["updated_at"],
    )


def _version(uid: str, stamp: int, fields: Mapping[str, Any]) -> Version:
    """A version, whose body is named by the digests of what it holds."""
    body = body_name(encoded([fields["hash"], fields["images"]]).encode())
    return Version(Item(SHELF, "", uid), stamp, fields, body)


def _images(sql: apsw.Connection, id: int) -> list[StoredImage]:
    rows = sql.execute(
        "SELECT mime_type, metadata, data FROM context_images WHERE context = ? ORDER BY position",
        (id,),
    )
    return [StoredImage(*row) for row in rows]


def _digest(image: StoredImage) -> str:
    return hashlib.sha256(encoded([*image[:2]]).encode() + image.data).hexdigest()


def _image_of_line(line: object) -> Image:
    if not isinstance(line, Mapping):
        raise InvalidInput("an image is not an object")
    return Image(
        data=from_base64(line.get("data"), "an image"),
        mime_type=storable(line.get("mime_type"), "mime_type", blank=False),
        metadata=line.get("metadata"),
    )


def _decoded(text: str | None) -> dict[str, Any] | None:
    return None if text is None else metadata.decode(text)
