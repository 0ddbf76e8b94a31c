"""Filters on memories compiled to SQL, and rows read as memories."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any, TypedDict

from mcpvectordb import dates, filters, metadata
from mcpvectordb.filters import Where
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.metadata_index import index_condition
from mcpvectordb.index.resident import Allowed
from mcpvectordb.index.spans import StoredImage
from mcpvectordb.memories.memory import (
    CONTENT_TYPES,
    PROVENANCE_OF_SOURCE,
    SOURCES,
    ContentType,
    Image,
    Memory,
    MemorySource,
    checked_thread,
    normalized_tags,
    one_of,
)
from mcpvectordb.ranking.why_empty import FilteredItems
from mcpvectordb.records import Condition
from mcpvectordb.storage.dialect import SQLITE, Sql, SqlDialect
from mcpvectordb.store import ItemFilter

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
ANY_TIME = "any"
"""The `as_of` of a search that finds memories whenever they hold, also those that were replaced."""
# What does not hold at a moment, by the indexes on both ends, and what nobody knew by then.
_NOT_THEN = (
    "SELECT id FROM contexts WHERE valid_to < ? UNION ALL "
    "SELECT id FROM contexts WHERE valid_from > ?"
)
_NOT_KNOWN = "SELECT id FROM contexts WHERE created_at > ? AND valid_from IS NULL"


_LOOKED_AT = 64  # memories by which it is guessed how many belong to a project


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
    project: str | None
    source: MemorySource | None
    tags: Sequence[str] | None
    content_type: ContentType | None
    where: Where | None
    start: str | None
    end: str | None


class Then(TypedDict, total=False):
    """The moment of which `compile_filter` is asked what holds; `known` if it was stored by then.

    One that says from when on it holds need not have been stored.
    """

    holds_at: str
    known: bool


def inside(project: str) -> tuple[str, str]:
    """The bounds, the second not included, of the threads and libraries that begin with NAME/."""
    return f"{project}/", f"{project}0"  # the character after the slash


def then(sql: Sql, as_of: str | None = None, now: datetime | None = None) -> Then:
    """Which memories are found: those that hold now, or `as_of` then; "any" finds all.

    Nothing is narrowed where nothing has ended or has yet to begin.
    """
    if as_of == ANY_TIME:
        return {}
    if as_of is not None:
        return {"holds_at": dates.moment(as_of, "as_of", end=True, now=now), "known": True}
    moment = dates.now() if now is None else dates.stored(now)
    limited = sql.execute(f"SELECT EXISTS ({_NOT_THEN})", (moment, moment)).get
    return {"holds_at": moment} if limited else {}


def is_wide(sql: Sql, project: str | None) -> bool:
    """Whether most memories seem to belong to a project, by some that are looked at.

    Then those that do not are quicker to read than those that do.
    """
    last = sql.execute("SELECT max(id) FROM contexts").get if project is not None else None
    if last is None:
        return False
    some = json.dumps(sorted({last - last * each // _LOOKED_AT for each in range(_LOOKED_AT)}))
    found = sql.execute(
        "SELECT thread FROM contexts WHERE id IN (SELECT value FROM json_each(?))", (some,)
    ).fetchall()
    within = [thread for (thread,) in found if f"{thread}/".startswith(f"{project}/")]
    return 2 * len(within) > len(found)


@dataclass(frozen=True, slots=True)
class MemoryFilter(ItemFilter):
    """A condition on memories `x`; they have one of `tags`, if there are any.

    `excluded` is a SELECT of those that do not match, which are few and quicker to read than the
    others, as far as that is so; its bindings come last. `simple` says that there is nothing else
    to it but `thread`, if that is given.
    """

    tags: tuple[str, ...] = ()
    excluded: str = ""
    thread: str | None = None
    simple: bool = False

    @property
    def _without(self) -> str:
        return self.excluded if self.simple and self.thread is None else ""

    @property
    def memories(self) -> Allowed:
        """The ids of the memories that match."""
        found = self.allowed("SELECT x.id FROM contexts x WHERE")
        return replace(found, excluded=self._without)

    @property
    def without(self) -> Allowed:
        """The ids of those that are `excluded`."""
        last = self.bindings[len(self.bindings) - self.excluded.count("?") :]
        return Allowed(self.excluded, last)

    @property
    def chunks(self) -> Allowed:
        """The ids of the chunks of these memories."""
        chunks, without = "SELECT id FROM context_chunks WHERE owner IN", self._without
        found = self.allowed(
            "SELECT c.id FROM contexts x JOIN context_chunks c ON c.owner = x.id WHERE"
        )
        return replace(found, excluded=f"{chunks} ({without})" if without else "")

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


def compile_filter(
    *,
    thread: str | None = None,
    project: str | None = None,
    source: str | None = None,
    tags: Sequence[str] | None = None,
    content_type: str | None = None,
    where: Where | None = None,
    start: str | None = None,
    end: str | None = None,
    holds_at: str | None = None,
    known: bool = False,
    wide: bool = False,
    dialect: SqlDialect = SQLITE,
) -> MemoryFilter:
    """Check `FilterArguments` and compile them to SQL; raises InvalidInput or InvalidFilter.

    For `holds_at` and `known` see `Then`, for `wide` `is_wide`.
    """
    pieces: list[tuple[str, Sequence[Any]]] = []
    excluded: list[str] = []
    named = []
    if thread is not None:
        named.append(Condition("thread", "eq", checked_thread(thread)))
        pieces.append(("x.thread = ?", [named[0].value]))
    if project is not None:
        # Exact bounds in the index on threads; a range from NAME on would also have NAME-2. The
        # empty text keeps SQLite from it where most memories are in them: by time is quicker then.
        name, bounds = checked_thread(project), inside(checked_thread(project))
        within = "{0} = ? OR {0} >= ? AND {0} < ?"
        pieces.append((within.format("x.thread || ''" if wide else "x.thread"), [name, *bounds]))
        if wide:
            excluded.append(f"SELECT id FROM contexts WHERE NOT ({within.format('thread')})")
    wanted = normalized_tags(tags or ())
    if source is not None:
        # There are only two sources. The empty text keeps SQLite from using the index on source
        # where a thread or tags narrow more.
        narrow = thread is not None or project is not None or wanted
        nothing = " || ''" if narrow else ""
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
    if holds_at is not None:
        excluded.append(f"{_NOT_THEN} UNION ALL {_NOT_KNOWN}" if known else _NOT_THEN)
        pieces.append((f"x.id NOT IN ({excluded[-1]})", [holds_at] * excluded[-1].count("?")))
    conditions = filters.conditions(where, KINDS)
    if conditions:
        pieces.append(
            filters.compile(conditions, fields(dialect), f"x.{dialect.metadata}", dialect.filters)
        )
    return MemoryFilter(
        " AND ".join(f"({sql})" for sql, _ in pieces) or filters.EVERYTHING,
        tuple(value for _, bindings in pieces for value in bindings),
        (*named, *conditions),
        wanted,
        " UNION ALL ".join(excluded),
        None if thread is None else checked_thread(thread),
        simple=len(pieces) == (thread is not None) + len(excluded),
    )


def read(
    sql: Sql, index: ChunkIndex, rows: Sequence[Sequence[Any]], *, images: bool = False
) -> list[Memory]:
    """The memories in rows of SELECT, in the same order, with or without their images."""
    ids = [row[0] for row in rows]
    texts = dict(index.texts(sql, ids))
    tags: dict[int, list[str]] = defaultdict(list)
    for id, tag in sql.execute(
        "SELECT context, tag FROM context_tags WHERE context IN (SELECT value FROM json_each(?)) "
        "ORDER BY tag",
        (json.dumps(ids),),
    ):
        tags[id].append(tag)
    shown = stored_images(sql, ids) if images else {}
    holding = _validity(sql, ids)
    return [
        # A publisher may have sent a memory without its text.
        memory(row, texts.get(id, ""), tags[id], shown.get(id, ()), holding.get(id, {}))
        for id, row in zip(ids, rows, strict=True)
    ]


def _validity(sql: Sql, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """When those of these memories hold that say it, what replaced them, and their provenance."""
    same_file = " AND r.origin = x.origin" if sql.dialect.origins else ""
    found = sql.execute(
        "SELECT x.id, x.valid_from, x.valid_to, x.provenance, r.id FROM contexts x "
        f"LEFT JOIN contexts r ON r.uid = x.replaced_by{same_file} "
        "WHERE x.id IN (SELECT value FROM json_each(?)) "
        "AND coalesce(x.valid_from, x.valid_to, x.provenance) IS NOT NULL",
        (json.dumps(ids),),
    )
    names = ("valid_from", "valid_to", "provenance", "replaced_by")
    return {id: dict(zip(names, values, strict=True)) for id, *values in found}


def by_ids(sql: Sql, index: ChunkIndex, ids: Sequence[int], *, images: bool) -> dict[int, Memory]:
    """The memories that have these ids, by id, newest first; unknown ids are left out."""
    rows = sql.execute(
        f"{SELECT} WHERE x.id IN (SELECT value FROM json_each(?)) {NEWEST_FIRST}",
        (json.dumps(ids),),
    )
    found = read(sql, index, rows.fetchall(), images=images)
    return {memory.id: memory for memory in found}


def memory(
    row: Sequence[Any],
    text: str,
    tags: Sequence[str],
    images: Sequence[StoredImage],
    validity: Mapping[str, Any],
) -> Memory:
    """The memory in a row of SELECT, with what is in other tables and columns."""
    *values, said = row
    own = dict(zip(FIELDS, values, strict=True))
    return Memory(
        **own,
        valid_from=validity.get("valid_from"),
        valid_to=validity.get("valid_to"),
        replaced_by=validity.get("replaced_by"),
        provenance=validity.get("provenance") or PROVENANCE_OF_SOURCE.get(own["source"], "agent"),
        text=text,
        metadata=decoded(said),
        tags=tuple(tags),
        images=tuple(
            Image(data=data, mime_type=mime_type, metadata=decoded(said))
            for mime_type, said, data in images
        ),
    )


def decoded(text: str | None) -> dict[str, Any] | None:
    """The metadata of a memory or an image, which may have none."""
    return None if text is None else metadata.decode(text)


def stored_images(sql: Sql, ids: Sequence[int]) -> dict[int, list[StoredImage]]:
    """The images of each of these memories, in their order."""
    found: dict[int, list[StoredImage]] = defaultdict(list)
    for id, *image in sql.execute(
        "SELECT context, mime_type, metadata, data FROM context_images "
        "WHERE context IN (SELECT value FROM json_each(?)) ORDER BY context, position",
        (json.dumps(ids),),
    ):
        found[id].append(StoredImage(*image))
    return found
