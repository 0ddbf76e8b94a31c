"""The chunks of a shelf, their keyword and vector index, and the queue of chunks to be embedded.

A shelf named "document" has the tables document_chunks, document_embeddings, document_pending (the
truth), document_words (FTS5) and, for each model of the file, document_meaning_<model key> (vec0).
Rows of the indexes have the chunk's id as rowid; ids are never used twice, so a stale row of an
index never refers to another chunk. All methods work inside the caller's transaction.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apsw

from mcpvectordb.errors import Damaged
from mcpvectordb.index import changes
from mcpvectordb.index.arrays import MAX_DIMENSION
from mcpvectordb.index.columns import NOWHERE, ColumnSource
from mcpvectordb.index.keyword import KeywordIndex
from mcpvectordb.index.memory import Memory
from mcpvectordb.index.tuning import DEFAULT, Tuning
from mcpvectordb.index.vector import VectorIndex
from mcpvectordb.metadata import decode_list
from mcpvectordb.records import Span
from mcpvectordb.storage import fts5
from mcpvectordb.text.tokens import index_text

# Pending chunks that are looked up at once for an embedding to copy: bounds a write transaction.
COPIED = 512

Passage = tuple[int, str, tuple[str, ...], str]
"""(chunk id, title, headings, text)"""


def embedding_text(title: str, headings: Sequence[str], text: str) -> str:
    """The text that is embedded for a chunk: its title and headings, then its own text."""
    path = " > ".join(dict.fromkeys(part for part in (title, *headings) if part))
    return f"{path}\n{text}" if path else text


def covers_tile(tile: str, start: int, end: int) -> bool:
    """Whether a chunk leaves out nothing of its tile but white space and a byte order mark.

    `start` and `end` are offsets in the tile.
    """
    return not (tile[: max(start, 0)].removeprefix("\ufeff") + tile[max(end, 0) :]).strip()


class ChunkIndex:
    """The chunks of one shelf; `title` is the SQL for the title of the owner of chunk row `c`.

    `words=False` leaves keyword search to the shelf: a context is searched as a whole. `filtered`
    is the source of the columns by which the vector index filters chunks.
    """

    def __init__(
        self,
        shelf: str,
        title: str,
        *,
        words: bool = True,
        memory: Memory | None = None,
        filtered: ColumnSource = NOWHERE,
        tuning: Tuning = DEFAULT,
    ) -> None:
        self.chunks, self.words, self._has_words = f"{shelf}_chunks", f"{shelf}_words", words
        self._embeddings, self._pending = f"{shelf}_embeddings", f"{shelf}_pending"
        self._tuning, self._deleter = tuning, fts5.Deleter(self.words)
        self.keyword = KeywordIndex(self.words, self.chunks, memory, tuning)
        self.vector = VectorIndex(
            shelf, self._embeddings, "chunk", "model", memory, filtered, tuning
        )
        self._passages = (
            f'SELECT c.id, {title}, c.headings, c.tile, c.tile_start, c.start, c."end", p.tile '
            f"FROM {self.chunks} c LEFT JOIN {self.chunks} p "
            "ON p.owner = c.owner AND p.position = c.position - 1 AND c.start < c.tile_start"
        )

    @staticmethod
    def text(shelf: str) -> str:
        """The SQL expression for the text of chunk row `c`, for conditions on it."""
        before = (
            f"coalesce((SELECT p.tile FROM {shelf}_chunks p "
            "WHERE p.owner = c.owner AND p.position = c.position - 1 "
            "AND c.start < c.tile_start), '')"
        )
        return (
            f"substr({before} || c.tile, c.start - c.tile_start + length({before}) + 1, "
            'c."end" - c.start)'
        )

    def create(self, sql: apsw.Connection, model: int, dimension: int) -> None:
        """Create the vec0 table of a model; existing chunks are queued for embedding."""
        self.vector.create(sql, model, dimension)
        self._queue_missing(sql, model)

    def drop(self, sql: apsw.Connection, model: int) -> None:
        """Delete a model's embeddings and its vec0 table."""
        sql.execute(f"DELETE FROM {self._pending} WHERE model = ?", (model,))
        sql.execute(f"DELETE FROM {self._embeddings} WHERE model = ?", (model,))
        self.vector.drop(sql, model)

    def put(
        self, sql: apsw.Connection, owner: int, title: str, text: str, spans: Sequence[Span]
    ) -> None:
        """Add a text's chunks: found by words at once, by meaning once they are embedded."""
        used = models(sql)
        ids: list[int] = []
        for position, span in enumerate(spans):
            body = text[span.start : span.end]
            sql.execute(
                f"INSERT INTO {self.chunks} (owner, position, tile, tile_start, start, "
                '"end", first_line, last_line, page, headings, hash) '
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    owner,
                    position,
                    text[span.tile_start : span.tile_end],
                    span.tile_start,
                    span.start,
                    span.end,
                    span.first_line,
                    span.last_line,
                    span.page,
                    json.dumps(span.headings, ensure_ascii=False),
                    _digest(embedding_text(title, span.headings, body)),
                ),
            )
            ids.append(sql.last_insert_rowid())
            if self._has_words:
                self._put_words(sql, (ids[-1], title, span.headings, body))
            sql.executemany(
                f"INSERT INTO {self._pending} (model, chunk, leased) VALUES (?, ?, 0)",
                ((model, ids[-1]) for model, _ in used),
            )
        if self._has_words:
            changes.record(sql, self.words, ids[-1:])
        for model, _ in used:
            self._copy_known(sql, model, ids)

    def remove(self, sql: apsw.Connection, owner: int) -> int:
        """Delete an owner's chunks from the indexes and the tables; returns their number."""
        ids = [
            id for (id,) in sql.execute(f"SELECT id FROM {self.chunks} WHERE owner = ?", (owner,))
        ]
        if self._has_words:
            self._deleter.delete(sql, ids)
            changes.record(sql, self.words, ids[:1])
        for model, _ in models(sql):
            self.vector.remove(sql, model, ids)
        sql.execute(f"DELETE FROM {self.chunks} WHERE owner = ?", (owner,))
        return len(ids)

    def retitle(self, sql: apsw.Connection, owner: int, title: str) -> None:
        """Store an owner's chunks again under another title, which is indexed and embedded."""
        rows: list[tuple[Any, ...]] = sql.execute(
            'SELECT tile, tile_start, start, "end", first_line, last_line, page, headings '
            f"FROM {self.chunks} WHERE owner = ? ORDER BY position",
            (owner,),
        ).fetchall()
        spans = [
            Span(
                start=start,
                end=end,
                tile_start=tile_start,
                tile_end=tile_start + len(tile),
                first_line=first_line,
                last_line=last_line,
                page=page,
                headings=decode_list(headings),
            )
            for tile, tile_start, start, end, first_line, last_line, page, headings in rows
        ]
        self.remove(sql, owner)
        self.put(sql, owner, title, "".join(tile for tile, *_ in rows), spans)

    def touch(self, sql: apsw.Connection, owner: int) -> None:
        """Log a change of fields by which an owner's chunks are filtered."""
        ids = [
            id for (id,) in sql.execute(f"SELECT id FROM {self.chunks} WHERE owner = ?", (owner,))
        ]
        for model, _ in models(sql):
            changes.record(sql, self.vector.codes_table(model), ids)

    def passages(self, sql: apsw.Connection, ids: Sequence[int] | None = None) -> Iterator[Passage]:
        """(id, title, headings, text) of the given chunks, or of all."""
        chosen = "WHERE c.id IN (SELECT value FROM json_each(?)) " if ids is not None else ""
        rows = sql.execute(
            f"{self._passages} {chosen}ORDER BY c.id", (json.dumps(ids),) if ids is not None else ()
        )
        for id, title, headings, tile, tile_start, start, end, before in rows:
            offset = tile_start - len(before or "")
            yield (
                id,
                title,
                decode_list(headings),
                ((before or "") + tile)[start - offset : end - offset],
            )

    def texts(
        self, sql: apsw.Connection, owners: Sequence[int] | None = None
    ) -> Iterator[tuple[int, str]]:
        """(owner, whole text) of the given owners, or of all that have chunks."""
        chosen, bindings = (
            ("", ())
            if owners is None
            else ("WHERE owner IN (SELECT value FROM json_each(?))", (json.dumps(owners),))
        )
        rows = sql.execute(
            f"SELECT owner, tile FROM {self.chunks} {chosen} ORDER BY owner, position", bindings
        )
        for owner, tiles in itertools.groupby(rows, key=lambda row: int(row[0])):
            yield owner, "".join(tile for _, tile in tiles)

    def known(self, sql: apsw.Connection, model: int, texts: Iterable[str]) -> dict[str, bytes]:
        """The stored embeddings by a model of those texts that have one.

        Texts are as `embedding_text` returns them.
        """
        hashes = {_digest(text): text for text in texts}
        rows = (
            row
            for hash in hashes
            for row in sql.execute(
                f"SELECT c.hash, e.embedding FROM {self.chunks} c "
                f"JOIN {self._embeddings} e ON e.chunk = c.id AND e.model = ? "
                "WHERE c.hash = ? LIMIT 1",
                (model, hash),
            )
        )
        return {hashes[hash]: embedding for hash, embedding in rows}

    # The queue of pending embeddings: lease some chunks, embed them outside of any transaction,
    # settle them.

    def count_pending(
        self, sql: apsw.Connection, model: int, owners: Sequence[int] | None = None
    ) -> int:
        """The number of chunks (of these owners, or all) that wait for a model's embedding."""
        narrowed, bindings = self._owned_by(owners)
        return int(
            sql.execute(
                f"SELECT count(*) FROM {self._pending} WHERE model = ? {narrowed}",
                (model, *bindings),
            ).get
        )

    def lease(
        self, sql: apsw.Connection, model: int, limit: int, owners: Sequence[int] | None = None
    ) -> tuple[list[tuple[int, str]], int]:
        """Lease up to `limit` chunks to embed, as (id, text); also how many needed no model.

        Other processes do not get leased chunks until the lease ends, so the chunks of a process
        that died are leased again. Chunks with the text of an embedded one get its embedding at
        once.
        """
        ids = self._pending_of(sql, model, owners, COPIED)
        copied = self._copy_known(sql, model, ids)
        ids = [id for id in ids if id not in copied][:limit]
        self._lease_until(sql, time.time() + self._tuning.lease_seconds, model, ids)
        texts = [
            (id, embedding_text(title, headings, text))
            for id, title, headings, text in self.passages(sql, ids)
        ]
        if len(texts) < len(ids):
            raise Damaged(
                f"{self._pending} names chunks that are not there: run `mcpvectordb rebuild`"
            )
        return texts, len(copied)

    def _pending_of(
        self, sql: apsw.Connection, model: int, owners: Sequence[int] | None, limit: int
    ) -> list[int]:
        """Chunks that wait for their embedding and are not leased, oldest first."""
        # A lease that ends later than a new one would is invalid: the clock was set back.
        now = time.time()
        narrowed, bindings = self._owned_by(owners)
        rows = sql.execute(
            f"SELECT chunk FROM {self._pending} WHERE model = ? "
            f"AND NOT coalesce(leased BETWEEN ? AND ?, 0) {narrowed} "
            f"ORDER BY chunk LIMIT {limit}",
            (model, now, now + self._tuning.lease_seconds, *bindings),
        )
        return [id for (id,) in rows]

    def _copy_known(self, sql: apsw.Connection, model: int, ids: Sequence[int]) -> set[int]:
        """Give pending chunks the embedding of another chunk with the same text; returns their ids.

        Only the oldest and the newest of equal chunks are looked up, which keeps this linear if
        very many are equal.
        """
        equal = f"FROM {self.chunks} WHERE hash = c.hash"
        known = dict(
            sql.execute(
                f"SELECT c.id, e.embedding FROM {self.chunks} c "
                f"JOIN {self._embeddings} e "
                f"ON e.chunk IN ((SELECT min(id) {equal}), (SELECT max(id) {equal})) "
                "AND e.model = ? "
                "WHERE c.id IN (SELECT value FROM json_each(?))",
                (model, json.dumps(ids)),
            )
        )
        self.settle(sql, model, known.items())
        return set(known)

    def release(self, sql: apsw.Connection, model: int, ids: Sequence[int]) -> None:
        """End the lease of chunks that were not embedded."""
        self._lease_until(sql, 0, model, ids)

    def settle(
        self, sql: apsw.Connection, model: int, embeddings: Iterable[tuple[int, bytes]]
    ) -> int:
        """Store the embeddings of chunks that still wait for one; returns their number."""
        stored: list[tuple[int, bytes]] = []
        for chunk, embedding in embeddings:
            waiting = sql.execute(
                f"DELETE FROM {self._pending} WHERE model = ? AND chunk = ? RETURNING chunk",
                (model, chunk),
            ).fetchall()
            if waiting:
                stored.append((chunk, embedding))
        sql.executemany(
            f"INSERT INTO {self._embeddings} (chunk, model, embedding) VALUES (?, ?, ?)",
            ((chunk, model, embedding) for chunk, embedding in stored),
        )
        self.vector.add_packed(sql, model, stored)
        return len(stored)

    # Maintenance.

    def optimize(self, sql: apsw.Connection) -> None:
        """Free what deleted rows still occupy inside the indexes."""
        if self._has_words:
            fts5.optimize(sql, self.words)
        for model, dimension in models(sql):
            self.vector.rebuild(sql, model, dimension)

    def rebuild(self, sql: apsw.Connection) -> None:
        """Create both indexes again from the tables, and queue chunks that have no embedding."""
        if self._has_words:
            fts5.clear(sql, self.words)
            for passage in self.passages(sql):
                self._put_words(sql, passage)
            changes.record_everything(sql, self.words)
        sql.execute(f"DELETE FROM {self._pending}")
        for model, dimension in models(sql):
            self.vector.rebuild(sql, model, dimension)
            self._queue_missing(sql, model)

    def problems(self, sql: apsw.Connection) -> Iterator[str]:
        """The problems of the chunks and their indexes, one sentence each."""
        yield from self._broken_tiles(sql)
        yield from (
            f"{self.chunks}: the text of chunk {id} is not the one that came in"
            for id, _ in self.altered(sql)
        )
        if self._has_words:
            yield from fts5.tombstone_problems(sql, self.words)
            yield from self._wrong_words(sql)
        for model, dimension in models(sql):
            yield from self.vector.problems(sql, model, dimension)
            yield from self._lost_chunks(sql, model)

    def altered(self, sql: apsw.Connection) -> Iterator[tuple[int, bytes]]:
        """The chunks whose text differs from the one that was ingested, with its present hash."""
        hashes = dict(sql.execute(f"SELECT id, hash FROM {self.chunks}"))
        incomplete = self._incomplete(sql)
        for id, title, headings, text in self.passages(sql):
            if (hash := _digest(embedding_text(title, headings, text))) != hashes.get(
                id
            ) or id in incomplete:
                yield id, hash

    def _incomplete(self, sql: apsw.Connection) -> set[int]:
        """The chunks that leave out text of their tile, which no hash covers."""
        rows = sql.execute(
            f'SELECT id, tile, start - tile_start, "end" - tile_start FROM {self.chunks}'
        )
        return {id for id, tile, start, end in rows if not covers_tile(tile, start, end)}

    def _lease_until(
        self, sql: apsw.Connection, time: float, model: int, ids: Sequence[int]
    ) -> None:
        sql.executemany(
            f"UPDATE {self._pending} SET leased = ? WHERE model = ? AND chunk = ?",
            ((time, model, id) for id in ids),
        )

    def _owned_by(self, owners: Sequence[int] | None) -> tuple[str, tuple[str, ...]]:
        if owners is None:
            return "", ()
        return (
            f"AND chunk IN (SELECT id FROM {self.chunks} "
            "WHERE owner IN (SELECT value FROM json_each(?)))",
            (json.dumps(owners),),
        )

    def _put_words(self, sql: apsw.Connection, passage: Passage) -> None:
        id, title, headings, text = passage
        sql.execute(
            f"INSERT INTO {self.words} (rowid, title, headings, text) VALUES (?, ?, ?, ?)",
            (id, index_text(title), index_text("\n".join(headings)), index_text(text)),
        )

    def _queue_missing(self, sql: apsw.Connection, model: int) -> None:
        sql.execute(
            f"INSERT OR IGNORE INTO {self._pending} (model, chunk, leased) "
            f"SELECT ?1, id, 0 FROM {self.chunks} "
            f"WHERE id NOT IN (SELECT chunk FROM {self._embeddings} WHERE model = ?1)",
            (model,),
        )

    def _broken_tiles(self, sql: apsw.Connection) -> Iterator[str]:
        expected = (None, 0, 0)
        for owner, position, start, tile in sql.execute(
            f"SELECT owner, position, tile_start, tile FROM {self.chunks} ORDER BY owner, position"
        ):
            if owner != expected[0]:
                expected = (owner, 0, 0)
            if (owner, position, start) != expected:
                yield (
                    f"{self.chunks}: chunk {position} of {owner} does not follow the one before it"
                )
            expected = (owner, position + 1, start + len(tile))

    def _wrong_words(self, sql: apsw.Connection) -> Iterator[str]:
        def fill(scratch: apsw.Connection) -> None:
            for passage in self.passages(sql):
                self._put_words(scratch, passage)

        if not fts5.same_content(sql, self.words, fill):
            yield f"{self.words}: the words in the index are not those of the chunks"

    def _lost_chunks(self, sql: apsw.Connection, model: int) -> Iterator[str]:
        rows = sql.execute(
            f"SELECT id, (SELECT count(*) FROM {self._embeddings} WHERE chunk = id AND model = ?1) "
            f"+ (SELECT count(*) FROM {self._pending} WHERE chunk = id AND model = ?1) AS n "
            f"FROM {self.chunks} WHERE n <> 1",
            (model,),
        )
        for id, count in rows:
            yield (
                f"{self.chunks}: chunk {id} is "
                f"{'both embedded and' if count else 'neither embedded nor'} waiting"
            )


def models(sql: apsw.Connection) -> list[tuple[int, int]]:
    """Key and dimension of every model of the file; raises Damaged if one cannot be a model."""
    rows = list(
        sql.execute(
            "SELECT key, dimension, typeof(name) || typeof(digest) FROM models ORDER BY key"
        )
    )
    if strange := [
        dimension
        for _, dimension, types in rows
        if types != "texttext" or not 1 <= dimension <= MAX_DIMENSION
    ]:
        raise Damaged(
            f"the file names a model of {strange[0]} dimensions, which is none: run `mcpvectordb "
            f"salvage`"
        )
    return [(key, dimension) for key, dimension, _ in rows]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]
