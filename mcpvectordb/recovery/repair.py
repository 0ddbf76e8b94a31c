"""Making salvaged rows fit together again, so that indexes can be built on them.

What is changed or removed here is told. A text that is not sure to be whole forgets the hash of its
source, so that ingesting the source again replaces it.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import apsw

from mcpvectordb import dates
from mcpvectordb.contexts.metadata_index import checked_names
from mcpvectordb.errors import InvalidInput
from mcpvectordb.index import arrays
from mcpvectordb.index.chunks import ChunkIndex, says_all
from mcpvectordb.index.metrics import METRICS
from mcpvectordb.maintenance import INITIAL_SETTINGS, INVALID_SETTING, JSON_COLUMNS

_COUNTED = (
    "documents",
    "document_chunks",
    "document_embeddings",
    "vectors",
    "contexts",
    "libraries",
)

Piece = tuple[int, int, str, int, int, int]  # id, position, tile, tile_start, start, end


@dataclass
class Mended:
    """What a file holds after mending, by table; the texts that are not sure to be whole; what is
    gone.
    """

    rows: dict[str, int] = field(default_factory=dict)
    incomplete: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


def mend(sql: apsw.Connection, indexes: Sequence[ChunkIndex]) -> Mended:
    """Mend all tables, in the caller's transaction."""
    documents, contexts = indexes
    sql.execute("PRAGMA defer_foreign_keys = ON")  # until the strays are gone
    lost = [*_mend_values(sql), *_mend_embeddings(sql)]
    _adopt(sql)
    gaps = [set(_close_gaps(sql, index)) for index in indexes]
    lost += [*_drop_strays(sql), *_drop_empty(sql)]
    _mend_settings(sql)
    changed = [set(_accept_texts(sql, index)) for index in indexes]
    incomplete = [
        *_doubtful_documents(sql, documents, gaps[0] | changed[0]),
        *_changed_contexts(sql, contexts),
    ]
    rows = {table: int(sql.execute(f"SELECT count(*) FROM {table}").get) for table in _COUNTED}
    return Mended(rows=rows, incomplete=incomplete, lost=lost)


def _mend_values(sql: apsw.Connection) -> Iterator[str]:
    for column in JSON_COLUMNS:
        table, name = column.table, column.name
        sql.execute(f"UPDATE {table} SET {name} = ? WHERE {column.invalid}", (column.empty,))
        if sql.changes():
            yield f"the {name} of {sql.changes()} rows of the table {table}"
    metrics = ", ".join(f"'{each}'" for each in METRICS)
    sql.execute(f"UPDATE stores SET metric = 'cosine' WHERE metric NOT IN ({metrics})")


def _mend_embeddings(sql: apsw.Connection) -> Iterator[str]:
    """Take out embeddings that cannot be ranked: chunks get new ones, vectors are gone with
    theirs.
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
    )
    yield from (
        f"the vector {id!r}"
        for key in bad
        for (id,) in sql.execute("SELECT id FROM vectors WHERE key = ?", key)
    )
    sql.executemany("DELETE FROM vectors WHERE key = ?", bad)


def _unusable(sql: apsw.Connection, select: str) -> list[tuple[int]]:
    import numpy as np

    return [
        (id,)
        for id, embedding, dimension in sql.execute(select)
        if embedding is None
        or not arrays.fits(embedding, dimension)
        or not np.isfinite(arrays.unpacked([embedding], dimension)).all()
    ]


def _adopt(sql: apsw.Connection) -> None:
    """Give chunks and vectors whose owner is gone a new one, named after its number."""
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
            "INSERT INTO contexts (id, thread, source, hash, created_at, updated_at) "
            "VALUES (?1, 'salvaged', 'user', x'', ?2, ?2)",
            (id, dates.now()),
        )
    sql.execute(
        "INSERT INTO stores (key, name, metric) SELECT DISTINCT store, 'salvaged ' || store, "
        "'cosine' FROM vectors WHERE store NOT IN (SELECT key FROM stores)"
    )


def _close_gaps(sql: apsw.Connection, index: ChunkIndex) -> Iterator[int]:
    """Let the tiles of each text follow each other again; the owners whose tiles did not."""
    for (owner,) in list(sql.execute(f"SELECT DISTINCT owner FROM {index.chunks}")):
        pieces: list[Any] = sql.execute(
            f'SELECT id, position, tile, tile_start, start, "end" FROM {index.chunks} '
            "WHERE owner = ? ORDER BY position",
            (owner,),
        ).fetchall()
        closed = list(_closed(pieces))
        if closed != pieces:
            sql.execute(
                f"UPDATE {index.chunks} SET position = id + (1 << 40) WHERE owner = ?", (owner,)
            )  # out of the way
            sql.executemany(
                f'UPDATE {index.chunks} SET position = ?2, tile_start = ?4, start = ?5, "end" = ?6 '
                f"WHERE id = ?1",
                ((id, position, None, *places) for id, position, _, *places in closed),
            )
            yield int(owner)


def _closed(pieces: Sequence[Piece]) -> Iterator[Piece]:
    offset, before = 0, (-2, 0)  # position and length of the tile before
    for place, (id, position, tile, tile_start, start, end) in enumerate(pieces):
        back = before[1] if position == before[0] + 1 else 0
        first, last = max(start - tile_start, -back), end - tile_start
        if not (first < last <= len(tile) and says_all(tile, first, last)):
            first, last = 0, len(tile)
        yield id, place, tile, offset, offset + first, offset + last
        offset, before = offset + len(tile), (position, len(tile))


def _drop_strays(sql: apsw.Connection) -> Iterator[str]:
    """Remove rows that refer to rows that are gone, and those that refer to them."""
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
                yield (
                    f"{sql.changes()} rows of the table {table}, since what they belonged to is "
                    f"gone"
                )


def _drop_empty(sql: apsw.Connection) -> Iterator[str]:
    for table, key, name in (("document", "key", "source"), ("context", "id", "id")):
        for (lost,) in sql.execute(
            f"DELETE FROM {table}s WHERE {key} NOT IN (SELECT owner FROM {table}_chunks) "
            f"RETURNING {name}"
        ).fetchall():
            yield f"the whole text of {table} {lost}"


def _mend_settings(sql: apsw.Connection) -> None:
    """Keep settings that make sense; the others are settled anew."""
    sql.execute(f"DELETE FROM settings WHERE {INVALID_SETTING}")
    sql.execute(
        "INSERT OR IGNORE INTO settings (name, value) SELECT 'model', CAST(key AS TEXT) FROM "
        "models ORDER BY (SELECT count(*) FROM document_embeddings WHERE model = key) DESC LIMIT 1"
    )
    if not _are_keys(
        sql.execute("SELECT value FROM settings WHERE name = 'indexed_metadata'").get or "[]"
    ):
        sql.execute("DELETE FROM settings WHERE name = 'indexed_metadata'")
    sql.execute(
        f"DELETE FROM settings WHERE name IN {INITIAL_SETTINGS} AND name <> 'model' "
        f"AND (SELECT count(*) FROM settings WHERE name IN {INITIAL_SETTINGS}) < 3"
    )


def _are_keys(text: str) -> bool:
    try:
        checked_names(json.loads(text))
    except (InvalidInput, TypeError):
        return False
    return True


def _accept_texts(sql: apsw.Connection, index: ChunkIndex) -> Iterator[int]:
    """Take the texts for what they are now; the owners of those that are not what came in."""
    for id, hash in list(index.altered(sql)):
        sql.execute(f"UPDATE {index.chunks} SET hash = ? WHERE id = ?", (hash, id))
        yield int(sql.execute(f"SELECT owner FROM {index.chunks} WHERE id = ?", (id,)).get)


def _doubtful_documents(
    sql: apsw.Connection, index: ChunkIndex, damaged: set[int]
) -> Iterator[str]:
    """The sources of documents that are not sure to be whole; what says that they are is taken from
    them.
    """
    doubtful = {
        owner for owner, text in index.texts(sql) if not _proven(sql, index, owner, text, damaged)
    }
    for key in sorted(damaged | doubtful):
        yield from (
            source
            for (source,) in sql.execute(
                "UPDATE documents SET hash = '', etag = '', modified = '', mtime_ns = -1 WHERE key "
                "= ? RETURNING source",
                (key,),
            )
        )


def _proven(
    sql: apsw.Connection, index: ChunkIndex, owner: int, text: str, damaged: set[int]
) -> bool:
    """Whether a document has lost nothing: its text is its source, or (another text than its
    source) it has its end.

    The end cannot be missing where another's chunk, one that is in its place, came right after it.
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


def _changed_contexts(sql: apsw.Connection, index: ChunkIndex) -> Iterator[str]:
    for owner, text in list(index.texts(sql)):
        hash = hashlib.sha256(text.encode()).digest()
        if sql.execute("SELECT hash FROM contexts WHERE id = ?", (owner,)).get != hash:
            sql.execute("UPDATE contexts SET hash = ? WHERE id = ?", (hash, owner))
            yield f"context {owner}"
