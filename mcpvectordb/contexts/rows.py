"""From conditions to SQL, and from rows to contexts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict

import apsw

from mcpvectordb import dates, filters, metadata
from mcpvectordb.contexts.context import Context, Image
from mcpvectordb.contexts.metadata_index import narrowed
from mcpvectordb.contexts.validation import (
    CONTENT_TYPES,
    SOURCES,
    checked_thread,
    normalised,
    one_of,
)
from mcpvectordb.filters import Where
from mcpvectordb.index import Allowed
from mcpvectordb.index.chunks import ChunkIndex

_IMAGES = "EXISTS (SELECT 1 FROM context_images WHERE context = x.id)"
_CONTENT_TYPE = f"CASE WHEN {_IMAGES} THEN 'multimodal' ELSE 'text' END"
FIELDS = {
    "id": "x.id",
    "thread": "x.thread",
    "source": "x.source",
    "content_type": _CONTENT_TYPE,
    "created_at": "x.created_at",
    "updated_at": "x.updated_at",
}
SELECT = f"SELECT {', '.join(FIELDS.values())}, x.metadata FROM contexts x"
NEWEST_FIRST = "ORDER BY x.created_at DESC, x.id DESC"


class Filters(TypedDict, total=False):
    """Which contexts to consider; `Contexts.browse` says what each means."""

    thread: str | None
    source: str | None
    tags: Sequence[str] | None
    content_type: str | None
    where: Where | None
    start: str | None
    end: str | None


class Chosen(NamedTuple):
    """A condition on contexts `x` with its bindings."""

    condition: str
    bindings: tuple[Any, ...]

    @property
    def contexts(self) -> Allowed:
        """The contexts that fulfil it."""
        return self._allowed("SELECT x.id FROM contexts x")

    @property
    def chunks(self) -> Allowed:
        """The chunks of these contexts."""
        return self._allowed("SELECT c.id FROM contexts x JOIN context_chunks c ON c.owner = x.id")

    def _allowed(self, select: str) -> Allowed:
        return (
            Allowed(f"{select} WHERE {self.condition}", self.bindings)
            if self.condition
            else Allowed()
        )


def choose(
    keys: Sequence[str],
    *,
    thread: str | None = None,
    source: str | None = None,
    tags: Sequence[str] | None = None,
    content_type: str | None = None,
    where: Where | None = None,
    start: str | None = None,
    end: str | None = None,
) -> Chosen:
    """Turn `Filters` into SQL; `keys` are the metadata keys that are indexed."""
    pieces: list[tuple[str, Sequence[Any]]] = []
    if thread is not None:
        pieces.append(("x.thread = ?", [checked_thread(thread)]))
    wanted = normalised(tags or ())
    if (
        source is not None
    ):  # there are only two: the plus sign leaves the index to what narrows more
        plus = "+" if thread is not None or wanted else ""
        pieces.append((f"{plus}x.source = ?", [one_of(source, SOURCES, "source")]))
    if wanted:
        marks = ", ".join("?" * len(wanted))
        pieces.append(
            (f"x.id IN (SELECT context FROM context_tags WHERE tag IN ({marks}))", wanted)
        )
    if content_type is not None:
        negated = "NOT " if one_of(content_type, CONTENT_TYPES, "content_type") == "text" else ""
        pieces.append((f"{negated}{_IMAGES}", []))
    first, last = dates.period(start, end)
    pieces += [
        (f"x.created_at {sign} ?", [moment])
        for sign, moment in ((">=", first), ("<=", last))
        if moment
    ]
    pieces += [narrowed(keys, where), filters.compile(where, FIELDS, "x.metadata")]
    used = [(sql, bindings) for sql, bindings in pieces if sql != "1"]
    return Chosen(
        " AND ".join(f"({sql})" for sql, _ in used),
        tuple(value for _, bindings in used for value in bindings),
    )


def hydrated(
    sql: apsw.Connection, index: ChunkIndex, rows: Sequence[Sequence[Any]], *, images: bool
) -> list[Context]:
    """Rows of SELECT as contexts, in their order, with or without their images."""
    ids = [row[0] for row in rows]
    texts = dict(index.texts(sql, ids))
    tags: dict[int, list[str]] = {}
    for id, tag in sql.execute(
        "SELECT context, tag FROM context_tags WHERE context IN (SELECT value FROM json_each(?)) "
        "ORDER BY tag",
        (json.dumps(ids),),
    ):
        tags.setdefault(id, []).append(tag)
    pictures = _images(sql, ids) if images else {}
    return [
        Context(
            id=id,
            thread=thread,
            source=source,
            text=texts[id],
            content_type=content_type,
            metadata=None if values is None else metadata.decode(values),
            tags=tuple(tags.get(id, ())),
            images=tuple(pictures.get(id, ())),
            created_at=created_at,
            updated_at=updated_at,
        )
        for id, thread, source, content_type, created_at, updated_at, values in rows
    ]


def by_ids(
    sql: apsw.Connection, index: ChunkIndex, ids: Sequence[int], *, images: bool
) -> list[Context]:
    """The contexts that have these ids, newest first."""
    rows = sql.execute(
        f"{SELECT} WHERE x.id IN (SELECT value FROM json_each(?)) {NEWEST_FIRST}",
        (json.dumps(ids),),
    )
    return hydrated(sql, index, rows.fetchall(), images=images)


def _images(sql: apsw.Connection, ids: Sequence[int]) -> dict[int, list[Image]]:
    found: dict[int, list[Image]] = {}
    for id, mime_type, values, data in sql.execute(
        "SELECT context, mime_type, metadata, data FROM context_images "
        "WHERE context IN (SELECT value FROM json_each(?)) ORDER BY context, position",
        (json.dumps(ids),),
    ):
        values = None if values is None else metadata.decode(values)
        found.setdefault(id, []).append(Image(data=data, mime_type=mime_type, metadata=values))
    return found
