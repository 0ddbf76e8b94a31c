"""Memories as they were at an earlier time (`as_of`), read from their versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from mcpvectordb import metadata
from mcpvectordb.history.log import History
from mcpvectordb.history.versions import Version
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.memories.items import MemoryItems, images_of
from mcpvectordb.memories.memory import Memory
from mcpvectordb.memories.rows import NEWEST_FIRST, MemoryFilter, by_ids

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


def get(
    sql: apsw.Connection,
    history: History,
    index: ChunkIndex,
    wanted: Sequence[int],
    limit: int,
    images: bool,
) -> list[Memory]:
    """The memories with these ids at a stamp, newest first."""
    marks = ", ".join("?" * len(wanted))
    chosen = MemoryFilter(f"x.own IN ({marks})", tuple(wanted))
    return browse(sql, history, index, chosen, limit, (len(wanted), 0), images)


def browse(
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
        present[id] if id > 0 else _memory(sql, history, history.former(sql, -id), images)
        for (id,) in found
    ]


def _memory(sql: apsw.Connection, history: History, past: Version, images: bool) -> Memory:
    fields = past.fields or {}
    content = MemoryItems.checked(past, history.body(sql, past, MemoryItems.body))
    return Memory(
        id=past.local["id"],
        thread=fields["thread"],
        source=fields["source"],
        text=content.text,
        content_type="multimodal" if content.images else "text",
        metadata=None if fields["metadata"] is None else metadata.decode(fields["metadata"]),
        tags=tuple(fields["tags"]),
        images=images_of(content) if images else (),
        created_at=fields["created_at"],
        updated_at=fields["updated_at"],
    )
