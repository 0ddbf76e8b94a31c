"""Filters on memories compiled to SQL, and rows read as memories."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypedDict

import apsw

from mcpvectordb import dates, filters, metadata
from mcpvectordb.filters import Where
from mcpvectordb.index import Allowed
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.metadata_index import index_condition
from mcpvectordb.memories.memory import ContentType, Image, Memory, MemorySource
from mcpvectordb.memories.validation import (
    CONTENT_TYPES,
    SOURCES,
    checked_thread,
    normalized_tags,
    one_of,
)
from mcpvectordb.records import Condition
from mcpvectordb.search.why_empty import FilteredItems
from mcpvectordb.storage.dialect import SQLITE, SqlDialect

_HAS_IMAGES = "EXISTS (SELECT 1 FROM context_images WHERE context = x.id)"
FIELDS = {
    "id": "x.id",
    "thread": "x.thread",
    "source": "x.source",
    "content_type": f"CASE WHEN {_HAS_IMAGES} THEN 'multimodal' ELSE 'text' END",
    "created_at": "x.created_at",
    "updated_at": "x.updated_at",
}
KINDS: filters.Kinds = {
    "id": "number",
    **dict.fromkeys(("thread", "source", "content_type", "origin"), "text"),
    "created_at": "time",
    "updated_at": "time",
}
SELECT = f"SELECT {', '.join(FIELDS.values())}, x.metadata FROM contexts x"
NEWEST_FIRST = "ORDER BY x.created_at DESC, x.id DESC"


@cache
def fields(dialect: SqlDialect) -> Mapping[str, str]:
    """SQL of the fields of memories `x` that a filter may name."""
    return {**FIELDS, "origin": dialect.origins["context"]} if dialect.origins else FIELDS


@cache
def items(dialect: SqlDialect) -> FilteredItems:
    """The memories that a filter chooses from."""
    origins = {"origin": "SELECT name FROM origins"} if dialect.origins else {}
    return FilteredItems(
        noun="context",
        rows="contexts x WHERE TRUE",
        newest="x.id DESC",
        fields=fields(dialect),
        metadata=f"x.{dialect.metadata}",
        names={"thread": "SELECT DISTINCT thread FROM contexts", **origins},
    )


class FilterArguments(TypedDict, total=False):
    """The filters that `Memories.browse`, `count` and `search` take; see `Memories.browse`."""

    thread: str | None
    source: MemorySource | None
    tags: Sequence[str] | None
    content_type: ContentType | None
    where: Where | None
    start: str | None
    end: str | None


@dataclass(frozen=True, slots=True)
class MemoryFilter:
    """A SQL condition on memories `x` (EVERYTHING: all) with its bindings.

    `conditions` are the checked conditions of `where` that are compiled into it.
    """

    condition: str
    bindings: tuple[Any, ...]
    conditions: tuple[Condition, ...] = ()

    @property
    def memories(self) -> Allowed:
        """The ids of the memories that match."""
        return self._allowed("SELECT x.id FROM contexts x")

    @property
    def chunks(self) -> Allowed:
        """The ids of the chunks of these memories."""
        return self._allowed("SELECT c.id FROM contexts x JOIN context_chunks c ON c.owner = x.id")

    def using_indexes(self, keys: Collection[str]) -> MemoryFilter:
        """The same filter in a form for which SQLite can use the indexes of these metadata keys."""
        sql, bindings = index_condition(keys, self.conditions)
        if sql == filters.EVERYTHING:
            return self
        return replace(
            self,
            condition=f"({sql}) AND {self.condition}",
            bindings=(*bindings, *self.bindings),
        )

    def _allowed(self, select: str) -> Allowed:
        if self.condition == filters.EVERYTHING:
            return Allowed()
        origins = filters.named(self.conditions, "origin")
        return Allowed(f"{select} WHERE {self.condition}", self.bindings, origins=origins)


def compile_filter(
    *,
    thread: str | None = None,
    source: str | None = None,
    tags: Sequence[str] | None = None,
    content_type: str | None = None,
    where: Where | None = None,
    start: str | None = None,
    end: str | None = None,
    dialect: SqlDialect = SQLITE,
) -> MemoryFilter:
    """Check `FilterArguments` and compile them to SQL; raises InvalidInput or InvalidFilter."""
    pieces: list[tuple[str, Sequence[Any]]] = []
    if thread is not None:
        pieces.append(("x.thread = ?", [checked_thread(thread)]))
    wanted = normalized_tags(tags or ())
    if source is not None:
        # There are only two sources. The empty text keeps SQLite from using the index on source
        # where a thread or tags narrow more.
        nothing = " || ''" if thread is not None or wanted else ""
        pieces.append((f"x.source{nothing} = ?", [one_of(source, SOURCES, "source")]))
    if wanted:
        marks = ", ".join("?" * len(wanted))
        tagged = f"x.id IN (SELECT context FROM context_tags WHERE tag IN ({marks}))"
        pieces.append((tagged, wanted))
    if content_type is not None:
        negated = "NOT " if one_of(content_type, CONTENT_TYPES, "content_type") == "text" else ""
        pieces.append((f"{negated}{_HAS_IMAGES}", []))
    first, last = dates.period(start, end)
    if first is not None:
        pieces.append(("x.created_at >= ?", [first]))
    if last is not None:
        pieces.append(("x.created_at <= ?", [last]))
    conditions = filters.conditions(where, KINDS)
    if conditions:
        pieces.append(
            filters.compile(conditions, fields(dialect), f"x.{dialect.metadata}", dialect.filters)
        )
    return MemoryFilter(
        " AND ".join(f"({sql})" for sql, _ in pieces) or filters.EVERYTHING,
        tuple(value for _, bindings in pieces for value in bindings),
        tuple(conditions),
    )


def hydrated(
    sql: apsw.Connection, index: ChunkIndex, rows: Sequence[Sequence[Any]], *, images: bool
) -> list[Memory]:
    """Rows of SELECT as contexts, in the same order, with or without their images."""
    ids = [row[0] for row in rows]
    texts = dict(index.texts(sql, ids))
    tags: dict[int, list[str]] = {}
    for id, tag in sql.execute(
        "SELECT context, tag FROM context_tags WHERE context IN (SELECT value FROM json_each(?)) "
        "ORDER BY tag",
        (json.dumps(ids),),
    ):
        tags.setdefault(id, []).append(tag)
    images_of = _images(sql, ids) if images else {}
    return [
        Memory(
            id=id,
            thread=thread,
            source=source,
            text=texts.get(id, ""),  # a publisher may have sent a memory without its text
            content_type=content_type,
            metadata=None if values is None else metadata.decode(values),
            tags=tuple(tags.get(id, ())),
            images=tuple(images_of.get(id, ())),
            created_at=created_at,
            updated_at=updated_at,
        )
        for id, thread, source, content_type, created_at, updated_at, values in rows
    ]


def by_ids(
    sql: apsw.Connection, index: ChunkIndex, ids: Sequence[int], *, images: bool
) -> dict[int, Memory]:
    """The memories that have these ids, by id, newest first; unknown ids are left out."""
    rows = sql.execute(
        f"{SELECT} WHERE x.id IN (SELECT value FROM json_each(?)) {NEWEST_FIRST}",
        (json.dumps(ids),),
    )
    found = hydrated(sql, index, rows.fetchall(), images=images)
    return {memory.id: memory for memory in found}


def after(index: ChunkIndex, sql: apsw.Connection, id: int, most: int) -> list[tuple[int, Memory]]:
    """The first memories after an id, each with its own."""
    rows = sql.execute(f"{SELECT} WHERE x.id > ? ORDER BY x.id LIMIT ?", (id, most)).fetchall()
    return [(each.id, each) for each in hydrated(sql, index, rows, images=False)]


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
