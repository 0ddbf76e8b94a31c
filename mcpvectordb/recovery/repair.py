"""Repairs salvaged rows, so that they refer to each other and indexes can be built on them.

What is changed or removed is reported. The repair clears the source hash of a text that may be
incomplete, so that ingesting the source again replaces it.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from mcpvectordb import dates
from mcpvectordb.errors import InvalidInput
from mcpvectordb.index import arrays
from mcpvectordb.index.arrays import METRICS
from mcpvectordb.index.chunks import ChunkIndex, covers_tile
from mcpvectordb.index.metadata_index import checked_names
from mcpvectordb.maintenance import INITIAL_SETTINGS, INVALID_SETTING, JSON_COLUMNS
from mcpvectordb.remotes.state import EXCHANGED
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.lazy import np


class Tile(NamedTuple):
    """A tile of a text and the place of its chunk, as the table of chunks has them."""

    id: int
    position: int
    text: str
    tile_start: int
    start: int
    end: int


def repair(sql: Sql, indexes: Sequence[ChunkIndex]) -> tuple[list[str], list[str]]:
    """Repair all tables in the open transaction; `indexes` belong to documents and memories.

    Returns the sources of texts that may be incomplete or changed, and a phrase for each thing that
    was removed.
    """
    documents, memories = indexes
    # Foreign keys hold again when rows that refer to missing rows are deleted.
    sql.execute("PRAGMA defer_foreign_keys = ON")
    lost = [*_repair_values(sql), *_remove_bad_embeddings(sql)]
    # What was being written or removed never counted as a document, or no longer.
    for table, key in (("document_chunks", "owner"), ("documents", "key")):
        sql.execute(
            f"DELETE FROM {table} WHERE {key} IN (SELECT document FROM unpublished_documents)"
        )
    sql.execute("DELETE FROM unpublished_documents")
    _add_missing_owners(sql)
    gaps = [set(_close_gaps(sql, index)) for index in indexes]
    lost += [*_delete_orphans(sql), *_delete_empty(sql)]
    _repair_settings(sql)
    changed = [set(_accept_texts(sql, index)) for index in indexes]
    incomplete = [
        *_incomplete_documents(sql, documents, gaps[0] | changed[0]),
        *_changed_memories(sql, memories),
    ]
    return incomplete, lost


def _repair_values(sql: Sql) -> Iterator[str]:
    """Replace invalid JSON by an empty value, and unknown metrics by the default one."""
    for column in JSON_COLUMNS:
        table, name = column.table, column.name
        sql.execute(f"UPDATE {table} SET {name} = ? WHERE {column.invalid}", (column.empty,))
        if sql.changes():
            yield f"the {name} of {sql.changes()} rows of the table {table}"
    metrics = ", ".join(f"'{each}'" for each in METRICS)
    sql.execute(f"UPDATE stores SET metric = 'cosine' WHERE metric NOT IN ({metrics})")


def _remove_bad_embeddings(sql: Sql) -> Iterator[str]:
    """Delete embeddings that cannot be ranked, and vectors together with theirs.

    Chunks get new embeddings later.
    """
    sql.execute(f"DELETE FROM models WHERE dimension NOT BETWEEN 1 AND {arrays.MAX_DIMENSION}")
    for table in ("document_embeddings", "context_embeddings"):
        bad = _unusable(
            sql,
            f"SELECT e.rowid, e.embedding, m.dimension FROM {table} e JOIN models m ON m.key = "
            f"e.model",
        )
        sql.executemany(f"DELETE FROM {table} WHERE rowid = ?", bad)
    bad = _unusable(
        sql,
        "SELECT v.key, e.embedding, v.dimension FROM vectors v LEFT JOIN vector_embeddings e ON "
        "e.vector = v.key",
        of_user=True,
    )
    yield from (
        f"the vector {id!r}"
        for key in bad
        for (id,) in sql.execute("SELECT id FROM vectors WHERE key = ?", key)
    )
    sql.executemany("DELETE FROM vectors WHERE key = ?", bad)


def _unusable(sql: Sql, select: str, *, of_user: bool = False) -> list[tuple[int]]:
    """The ids whose embedding is missing, has the wrong size, or holds NaN or infinity."""
    return [
        (id,)
        for id, embedding, dimension in sql.execute(select)
        if embedding is None
        or not arrays.fits(embedding, dimension, of_user=of_user)
        or not np.isfinite(arrays.unpacked([embedding], dimension)).all()
    ]


def _add_missing_owners(sql: Sql) -> None:
    """Insert a row for each missing owner of chunks or vectors, named after its number."""
    missing = "SELECT DISTINCT owner FROM {0}_chunks WHERE owner NOT IN (SELECT {1} FROM {0}s)"
    for (key,) in sql.execute(missing.format("document", "key")).fetchall():
        sql.execute(
            "INSERT INTO documents (key, id, library, source, title, hash, file_type, size, "
            "modified, etag, created_at, metadata) VALUES (?1, ?2, 'salvaged', 'salvaged/' || "
            "?1, 'salvaged ' || ?1, '', 'unknown', 0, '', '', ?3, '{}')",
            (key, str(uuid.uuid4()), dates.now()),
        )
    for (id,) in sql.execute(missing.format("context", "id")).fetchall():
        sql.execute(
            "INSERT INTO contexts (id, thread, source, hash, created_at, updated_at, uid) "
            "VALUES (?1, 'salvaged', 'user', x'', ?2, ?2, ?1 || ' ' || ?2)",
            (id, dates.now()),
        )
    sql.execute(
        "INSERT INTO stores (key, name, metric) SELECT DISTINCT store, 'salvaged ' || store, "
        "'cosine' FROM vectors WHERE store NOT IN (SELECT key FROM stores)"
    )


def _close_gaps(sql: Sql, index: ChunkIndex) -> Iterator[int]:
    """Make the tiles of each text follow each other again; the owners whose tiles did not."""
    for (owner,) in list(sql.execute(f"SELECT DISTINCT owner FROM {index.chunks}")):
        rows: list[Any] = sql.execute(
            f'SELECT id, position, tile, tile_start, start, "end" FROM {index.chunks} '
            "WHERE owner = ? ORDER BY position",
            (owner,),
        ).fetchall()
        tiles = [Tile(*row) for row in rows]
        closed = list(_without_gaps(tiles))
        if closed != tiles:
            # Positions are unique, so the old ones are moved out of the range first.
            sql.execute(
                f"UPDATE {index.chunks} SET position = id + (1 << 40) WHERE owner = ?", (owner,)
            )
            sql.executemany(
                f'UPDATE {index.chunks} SET position = ?2, tile_start = ?3, start = ?4, "end" = ?5 '
                "WHERE id = ?1",
                (
                    (each.id, each.position, each.tile_start, each.start, each.end)
                    for each in closed
                ),
            )
            yield int(owner)


def _without_gaps(tiles: Sequence[Tile]) -> Iterator[Tile]:
    """The tiles with positions and offsets as if nothing had been between them.

    A chunk may begin in the tile before its own (overlap), but only where that tile is still there.
    One whose offsets are impossible gets its whole tile.
    """
    offset, position_before, length_before = 0, -2, 0
    for place, tile in enumerate(tiles):
        overlap = length_before if tile.position == position_before + 1 else 0
        length = len(tile.text)
        first, last = max(tile.start - tile.tile_start, -overlap), tile.end - tile.tile_start
        if not (first < last <= length and covers_tile(tile.text, first, last)):
            first, last = 0, length
        yield tile._replace(
            position=place, tile_start=offset, start=offset + first, end=offset + last
        )
        offset, position_before, length_before = offset + length, tile.position, length


def _delete_orphans(sql: Sql) -> Iterator[str]:
    """Delete rows that refer to missing rows, until there are none."""
    references = sql.execute(
        'SELECT t.name, f."from", f."table", f."to" FROM sqlite_schema t, '
        "pragma_foreign_key_list(t.name) f WHERE t.type = 'table'"
    ).fetchall()
    found = True
    while found:
        found = False
        for table, column, parent, key in references:
            sql.execute(f"DELETE FROM {table} WHERE {column} NOT IN (SELECT {key} FROM {parent})")
            if sql.changes():
                found = True
                yield f"{sql.changes()} rows of the table {table}, which referred to missing rows"


def _delete_empty(sql: Sql) -> Iterator[str]:
    """Delete documents and memories that have no chunk left."""
    kinds = (("document", "document", "key", "source"), ("memory", "context", "id", "id"))
    for kind, table, key, name in kinds:
        for (lost,) in sql.execute(
            f"DELETE FROM {table}s WHERE {key} NOT IN (SELECT owner FROM {table}_chunks) "
            f"RETURNING {name}"
        ).fetchall():
            yield f"the whole text of {kind} {lost}"


def _repair_settings(sql: Sql) -> None:
    """Delete invalid settings, which are then written anew; the model is the one with most rows."""
    sql.execute(f"DELETE FROM settings WHERE {INVALID_SETTING}")
    # Remotes give back what is missing when it is not the file with which they exchanged last.
    sql.execute("DELETE FROM settings WHERE name GLOB ? || '*'", (EXCHANGED,))
    sql.execute(
        "INSERT OR IGNORE INTO settings (name, value) SELECT 'model', CAST(key AS TEXT) FROM "
        "models ORDER BY (SELECT count(*) FROM document_embeddings WHERE model = key) DESC LIMIT 1"
    )
    names = sql.execute("SELECT value FROM settings WHERE name = 'indexed_metadata'").get or "[]"
    try:
        checked_names(json.loads(names))
    except (InvalidInput, TypeError):
        sql.execute("DELETE FROM settings WHERE name = 'indexed_metadata'")
    sql.execute(
        f"DELETE FROM settings WHERE name IN {INITIAL_SETTINGS} AND name <> 'model' "
        f"AND (SELECT count(*) FROM settings WHERE name IN {INITIAL_SETTINGS}) < 3"
    )


def _accept_texts(sql: Sql, index: ChunkIndex) -> Iterator[int]:
    """Store the hash of each changed chunk as it is now; the owners of these chunks."""
    for id, hash in list(index.altered(sql)):
        sql.execute(f"UPDATE {index.chunks} SET hash = ? WHERE id = ?", (hash, id))
        yield int(sql.execute(f"SELECT owner FROM {index.chunks} WHERE id = ?", (id,)).get)


def _incomplete_documents(sql: Sql, index: ChunkIndex, damaged: set[int]) -> Iterator[str]:
    """The sources of documents that may be incomplete; they count as changed at the next ingest."""
    unproven = {
        owner
        for owner, text in index.texts(sql)
        if not _is_complete(sql, index, owner, text, damaged)
    }
    for key in sorted(damaged | unproven):
        for (source,) in sql.execute(
            "UPDATE documents SET hash = '', etag = '', modified = '', mtime_ns = -1 "
            "WHERE key = ? RETURNING source",
            (key,),
        ):
            yield source


def _is_complete(sql: Sql, index: ChunkIndex, owner: int, text: str, damaged: set[int]) -> bool:
    """Whether it is certain that a document without gaps has not lost its end either.

    That is so if its text has the hash of its source. The text of a PDF has not; then its chunks
    must be followed directly by a chunk of another document that is undamaged, because ids are
    given in order and a missing end would have left a gap between the two.
    """
    raw = text.encode()
    hash, size = sql.execute("SELECT hash, size FROM documents WHERE key = ?", (owner,)).get
    if hash == hashlib.sha256(raw).hexdigest():
        return True
    after = sql.execute(
        f"SELECT owner FROM {index.chunks} WHERE id = (SELECT max(id) + 1 FROM {index.chunks} "
        "WHERE owner = ?)",
        (owner,),
    ).fetchone()
    return len(raw) != size and after is not None and after[0] not in damaged


def _changed_memories(sql: Sql, index: ChunkIndex) -> Iterator[str]:
    """The memories whose text has changed; their hash is set to that of the text as it is now."""
    for owner, text in list(index.texts(sql)):
        hash = hashlib.sha256(text.encode()).digest()
        if sql.execute("SELECT hash FROM contexts WHERE id = ?", (owner,)).get != hash:
            sql.execute("UPDATE contexts SET hash = ? WHERE id = ?", (hash, owner))
            yield f"memory {owner}"
