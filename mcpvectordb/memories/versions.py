"""Memories as versions of the history; a body has the text, the places of its chunks and images."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import apsw

from mcpvectordb import dates, metadata
from mcpvectordb.errors import Damaged
from mcpvectordb.history.log import History
from mcpvectordb.history.versions import LOCAL, Item, Version, body_name, encoded, pack, unpack
from mcpvectordb.index import spans
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.memories.memory import Image
from mcpvectordb.memories.validation import (
    SOURCES,
    checked_id,
    checked_thread,
    normalized_tags,
    one_of,
)

SHELF = "contexts"
_FIELDS = ("thread", "source", "metadata", "created_at", "updated_at")
_SELECT = f"SELECT id, uid, stamp, hex(hash), {', '.join(_FIELDS)} FROM contexts"


def keep(history: History, sql: apsw.Connection, index: ChunkIndex, id: int) -> Item | None:
    """Keep a memory as it is, before it changes or is removed; what it is, None if not there."""
    found = _one(sql, "id = ?", id)
    if found is None:
        return None
    known = history.has_body(sql, found.body)
    history.keep(sql, found, None if known else packed_body(sql, index, id))
    return found.item


def find(sql: apsw.Connection, item: Item) -> Version | None:
    """The present version of a memory; None if there is none."""
    return _one(sql, "uid = ?", item.name)


def present(sql: apsw.Connection, stamps: Collection[int] | None = None) -> Iterator[Version]:
    """The present versions of all memories, or of those that were changed at these stamps."""
    chosen = "" if stamps is None else " WHERE stamp IN (SELECT value FROM json_each(?))"
    bindings = () if stamps is None else (json.dumps(list(stamps)),)
    for row in sql.execute(f"{_SELECT}{chosen} ORDER BY id", bindings).fetchall():
        yield _version(sql, row)


def _one(sql: apsw.Connection, condition: str, value: object) -> Version | None:
    row = sql.execute(f"{_SELECT} WHERE {condition}", (value,)).fetchone()
    return None if row is None else _version(sql, row)


def _version(sql: apsw.Connection, row: Sequence[Any]) -> Version:
    id, uid, stamp, hash, *values = row
    tags = sql.execute("SELECT tag FROM context_tags WHERE context = ? ORDER BY tag", (id,))
    images = [
        _image_digest(*row)
        for row in sql.execute(
            "SELECT mime_type, metadata, data FROM context_images WHERE context = ? "
            "ORDER BY position",
            (id,),
        )
    ]
    fields = {
        **dict(zip(_FIELDS, values, strict=True)),
        "hash": hash,
        "tags": [tag for (tag,) in tags],
        "images": images,
        LOCAL: {"id": id},
    }
    body = body_name(encoded([hash, images]).encode())
    return Version(Item(SHELF, "", uid), stamp, fields, body)


def _image_digest(mime_type: str, said: str | None, data: bytes) -> str:
    return hashlib.sha256(encoded([mime_type, said]).encode() + data).hexdigest()


def packed_body(sql: apsw.Connection, index: ChunkIndex, id: int) -> bytes:
    """The text of a memory, the places of its chunks, and its images, packed."""
    text, found = spans.stored(sql, index.chunks, id)
    images = [
        [kind, said, base64.b64encode(data).decode()]
        for kind, said, data in sql.execute(
            "SELECT mime_type, metadata, data FROM context_images WHERE context = ? "
            "ORDER BY position",
            (id,),
        )
    ]
    return pack([text, spans.places(found), images])


class MemoryBody:
    """What a packed body holds; raises Damaged if it is not what was written."""

    def __init__(self, body: bytes) -> None:
        try:
            text, places, images = unpack(body)
            self.text, self.spans = str(text), spans.checked(text, places)
            self.images = tuple(
                Image(
                    mime_type=metadata.storable(kind, "mime_type"),
                    metadata=None if said is None else metadata.received(said),
                    data=base64.b64decode(data, validate=True),
                )
                for kind, said, data in images
            )
            self.digests = [
                _image_digest(kind, said, image.data)
                for (kind, said, _), image in zip(images, self.images, strict=True)
            ]
        except (TypeError, ValueError):
            raise Damaged("a context in the history is not what was written") from None


def check(version: Version, body: MemoryBody) -> None:
    """Raise Damaged unless a version has what a memory has: it may come from another file."""
    try:
        fields: Mapping[str, Any] = version.fields or {}
        if checked_thread(fields["thread"]) != fields["thread"]:
            raise ValueError
        one_of(fields["source"], SOURCES, "source")
        for name in ("created_at", "updated_at"):
            dates.check_stored(fields[name])
        if fields["metadata"] is not None:
            metadata.received(fields["metadata"])
        if list(normalized_tags(fields["tags"])) != fields["tags"]:
            raise ValueError
        metadata.storable(version.item.name, "uid", blank=False)
        checked_id(version.local["id"])
        said = (hashlib.sha256(body.text.encode()).hexdigest().upper(), body.digests)
        if said != (fields["hash"], fields["images"]) or version.item.place or version.item.twin:
            raise ValueError
    except (KeyError, TypeError, ValueError, RecursionError):
        raise Damaged(f"the memory {version.item.name!r:.100} is not what was written") from None
