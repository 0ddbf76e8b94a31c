"""The chunks of a shelf, their keyword and vector index, and the queue of chunks to be embedded.

A shelf named "document" has the tables document_chunks, document_embeddings, document_pending (the
truth), document_words (FTS5) and, for each model of the file, document_meaning_<model key> (vec0).
Rows of the indexes have the chunk's id as rowid; ids are never used twice, so a stale row of an
index never refers to another chunk. All methods work inside the caller's transaction.

**Models.** One model of the file is active, another may be on its way in. Every chunk is embedded
by each of them or waits for it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from mcpvectordb.errors import Damaged
from mcpvectordb.index import arrays
from mcpvectordb.index.keyword import KeywordIndex, WordTable
from mcpvectordb.index.resident import (
    NOWHERE,
    ColumnSource,
    ResidentEntries,
    log_changes,
    log_rebuilt,
    selected,
)
from mcpvectordb.index.tuning import DEFAULT
from mcpvectordb.index.vector import EmbeddingTable, VectorIndex
from mcpvectordb.ingest.span import Span
from mcpvectordb.metadata import decode_list
from mcpvectordb.storage import fts5
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.lazy import np
from mcpvectordb.text.tokens import index_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Pending chunks that are looked up at once for an embedding to copy: bounds a write transaction.
COPIED = 512

# A SQL condition on a pending chunk; its bindings are `_lease_times`.
_LEASED = "coalesce(leased BETWEEN ? AND ?, 0)"


# The models of a file.

# The settings that name the key of a model. Earlier versions gave chunks that waited an embedding
# by a second model, which is passed over until the file is opened for writing (`drop_provisional`).
ACTIVE, PROVISIONAL = "model", "provisional"
ACTIVE_KEY = f"(SELECT CAST(value AS INTEGER) FROM settings WHERE name = '{ACTIVE}')"
"""SQL of the key of the active model."""
PRECISION = "embeddings"  # the setting that names the type of stored embeddings


class ModelRow(NamedTuple):
    """A row of the table models."""

    key: int
    name: str
    digest: str
    dimension: int


@dataclass(frozen=True, slots=True)
class QueryEmbedding:
    """A query's embedding by a model of the file, and the weight of its cosines in fusion.

    `name` is the model's name in the catalogue, "" for one that is not in it.
    """

    model: int
    embedding: bytes
    weight: float
    name: str = ""


def active_model(sql: Sql) -> ModelRow | None:
    """The model that searches use; None in a file into which nothing was ingested yet."""
    row = sql.execute(
        "SELECT key, models.name, digest, dimension FROM models "
        "JOIN settings ON settings.name = ? AND settings.value = CAST(key AS TEXT)",
        (ACTIVE,),
    ).fetchone()
    if row and [type(value) for value in row] != [int, str, str, int]:
        raise Damaged(
            "the file's model is not what was written: run `mcpvectordb check`, then "
            "`mcpvectordb salvage`"
        )
    return ModelRow(*row) if row else None


def precision(sql: Sql) -> str:
    """The type in which the file stores embeddings of texts: float32, unless it says float16."""
    value = sql.execute("SELECT value FROM settings WHERE name = ?", (PRECISION,)).get
    return "float16" if value == '"float16"' else "float32"


def every_model(sql: Sql) -> list[tuple[int, int]]:
    """Key and dimension of every model of the file; raises Damaged if one cannot be a model."""
    types = "typeof(name) || typeof(digest)"
    rows = list(
        sql.execute(
            f"SELECT key, dimension, {types} FROM models WHERE CAST(key AS TEXT) NOT IN "
            "(SELECT value FROM settings WHERE name = ?) ORDER BY key",
            (PROVISIONAL,),
        )
    )
    if strange := [
        dimension
        for _, dimension, types in rows
        if types != "texttext" or not 1 <= dimension <= arrays.MAX_DIMENSION
    ]:
        raise Damaged(
            f"the file names a model of {strange[0]} dimensions, which is none: run `mcpvectordb "
            f"salvage`"
        )
    return [(key, dimension) for key, dimension, _ in rows]


# Chunks.


class IndexedChunk(NamedTuple):
    """A chunk as it is indexed.

    `header` is that of the table or code block that it is a part of, `front` the front matter
    before it: found by words, but not embedded.
    """

    id: int
    title: str
    headings: tuple[str, ...]
    header: str
    text: str
    front: str = ""

    @property
    def embedding_text(self) -> str:
        """The text that is embedded."""
        return embedding_text(self.title, self.headings, self.header, self.text)

    @property
    def words(self) -> str:
        """What is found by words, apart from title and headings."""
        return "\n".join(part for part in (self.front, self.header, self.text) if part)

    @property
    def columns(self) -> tuple[str, str, str]:
        """Title, headings and words, as they are indexed for keyword search."""
        return self.title, "\n".join(self.headings), self.words

    @property
    def hash(self) -> bytes:
        """The hash of all of it; without front matter that of the text that is embedded."""
        return digest(self.front + self.embedding_text)


def embedding_text(title: str, headings: Sequence[str], header: str, text: str) -> str:
    """The text that is embedded for a chunk: title and headings, then header and text.

    Of a table's header this is the first line: the rule below it would only take tokens.
    """
    path = " > ".join(dict.fromkeys(part for part in (title, *headings) if part))
    above = [part for part in (path, header.partition("\n")[0]) if part]
    return "\n".join([*above, text])


def covers_tile(tile: str, start: int, end: int) -> bool:
    """Whether a chunk leaves out nothing of its tile but white space, a byte order mark or front
    matter.

    `start` and `end` are offsets in the tile.
    """
    from mcpvectordb.ingest.structure import front_matter

    before = tile[: max(start, 0)]
    _, front = front_matter(tile)
    before = before[front:] if 0 < front <= len(before) else before.removeprefix("\ufeff")
    return not (before + tile[max(end, 0) :]).strip()


def beginning(chunks: str) -> str:
    """SQL that joins the tile before that of chunk row `c`, as `p`, if the chunk begins in it."""
    return (
        f"LEFT JOIN {chunks} p "
        "ON p.owner = c.owner AND p.position = c.position - 1 AND c.start < c.tile_start"
    )


def visible(front: str) -> str:
    """What a tile has before its chunk: front matter, or nothing to be seen."""
    return front if front.removeprefix("\ufeff").strip() else ""


def digest(text: str) -> bytes:
    """The hash by which equal texts are embedded once."""
    return hashlib.sha256(text.encode()).digest()[:16]


class NewChunks(NamedTuple):
    """Spans of a text that are about to be stored; `first` is the position of the first of them."""

    owner: int
    title: str
    text: str
    spans: Sequence[Span]
    first: int = 0


_NO_TITLE = "''"


class ChunkIndex:
    """The chunks of one shelf; `title` is the SQL for the title of the owner of chunk row `c`.

    Without it, keyword search is left to the shelf: a memory is searched as a whole. `filtered` is
    the source of the columns by which the vector index filters chunks. `unpublished` is a SELECT
    of the owners that are not complete: their chunks are indexed, but do not wait for embeddings.
    """

    def __init__(
        self,
        shelf: str,
        title: str,
        *,
        memory: ResidentEntries | None = None,
        filtered: ColumnSource = NOWHERE,
        unpublished: str = "",
    ) -> None:
        tuning = memory.tuning if memory else DEFAULT
        self._unpublished = unpublished
        self.chunks, self.words, self._has_words = f"{shelf}_chunks", f"{shelf}_words", bool(title)
        self.embeddings, self.pending = f"{shelf}_embeddings", f"{shelf}_pending"
        self._tuning, self._deleter = tuning, fts5.Deleter(self.words)
        self.keyword = KeywordIndex(WordTable(self.words, self.chunks), memory)
        self.vector = VectorIndex(
            EmbeddingTable(shelf, self.embeddings, "chunk", "model"),
            memory,
            filtered,
            tuning.uncoded_chunks,
        )
        self._passages = (
            f"SELECT c.id, {title or _NO_TITLE}, c.headings, c.header, c.tile, c.tile_start, "
            'c.start, c."end", p.tile '
            f"FROM {self.chunks} c {beginning(self.chunks)}"
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

    def queue_missing(self, sql: Sql, model: int) -> None:
        """Have all chunks wait for a model that has not embedded them."""
        sql.execute(
            f"INSERT OR IGNORE INTO {self.pending} (model, chunk, leased) "
            f"SELECT ?1, id, 0 FROM {self.chunks} "
            f"WHERE id NOT IN (SELECT chunk FROM {self.embeddings} WHERE model = ?1)",
            (model,),
        )

    def drop(self, sql: Sql, model: int) -> None:
        """Delete a model's embeddings and its vec0 table."""
        sql.execute(f"DELETE FROM {self.pending} WHERE model = ?", (model,))
        sql.execute(f"DELETE FROM {self.embeddings} WHERE model = ?", (model,))
        self.vector.drop(sql, model)

    def put(self, sql: Sql, texts: Sequence[NewChunks]) -> None:
        """Add chunks of texts: found by words at once, by meaning once they are embedded."""
        # Ids are given in advance, so that each table takes one statement; AUTOINCREMENT would
        # count on from the same.
        last = sql.execute(
            f"SELECT max(coalesce((SELECT max(id) FROM {self.chunks}), 0), "
            f"coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{self.chunks}'), 0))"
        ).get
        new = list(_rows(texts, last))
        if not new:
            return
        ids = [each.id for _, each in new]
        found = sql.executemany(
            f"SELECT hash FROM {self.chunks} WHERE hash = ? LIMIT 1", ((row[-1],) for row, _ in new)
        )
        equal = {hash for (hash,) in found}
        sql.executemany(
            f"INSERT INTO {self.chunks} (id, owner, position, tile, tile_start, start, "
            '"end", first_line, last_line, page, headings, header, footer, hash) '
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (row for row, _ in new),
        )
        if self._has_words:
            self._put_words(sql, (each for _, each in new))
            log_changes(sql, self.words, ids[-1:])
        known = [each.id for row, each in new if row[-1] in equal]
        for model, _ in every_model(sql):
            sql.executemany(
                f"INSERT INTO {self.pending} (model, chunk, leased) VALUES (?, ?, 0)",
                ((model, id) for id in ids),
            )
            if known:
                self._copy_known(sql, model, known)

    def count(self, sql: Sql, owner: int | None = None) -> int:
        """The number of chunks, of one owner or of all published ones."""
        count = f"SELECT count(*) FROM {self.chunks}"
        if owner is not None:
            return int(sql.execute(f"{count} WHERE owner = ?", (owner,)).get)
        if self._unpublished:
            count = f"SELECT ({count}) - ({count} WHERE owner IN ({self._unpublished}))"
        return int(sql.execute(count).get)

    def remove(self, sql: Sql, owner: int, most: int = -1) -> int:
        """Delete an owner's last chunks (-1: all) from indexes and tables; returns their number."""
        last = f"SELECT id FROM {self.chunks} WHERE owner = ? ORDER BY position DESC LIMIT ?"
        ids = selected(sql, last, (owner, most))
        if self._has_words:
            self._deleter.delete(sql, ids)
            log_changes(sql, self.words, ids[:1])
        for model, _ in every_model(sql):
            self.vector.remove(sql, model, ids)
        sql.executemany(f"DELETE FROM {self.chunks} WHERE id = ?", ((id,) for id in ids))
        return len(ids)

    def touch(self, sql: Sql, owner: int) -> None:
        """Log a change of fields by which an owner's chunks are filtered."""
        ids = selected(sql, f"SELECT id FROM {self.chunks} WHERE owner = ?", (owner,))
        for model, _ in every_model(sql):
            log_changes(sql, self.vector.codes_table(model), ids)

    def record_everything(self, sql: Sql) -> None:
        """Have every process read again what it keeps in memory of the embedded chunks."""
        for model, _ in every_model(sql):
            log_rebuilt(sql, self.vector.codes_table(model))

    def passages(self, sql: Sql, ids: Sequence[int] | None = None) -> Iterator[IndexedChunk]:
        """The given chunks, or all, in the order of their ids."""
        chosen = "WHERE c.id IN (SELECT value FROM json_each(?)) " if ids is not None else ""
        rows = sql.execute(
            f"{self._passages} {chosen}ORDER BY c.id", (json.dumps(ids),) if ids is not None else ()
        )
        for id, title, headings, header, tile, tile_start, start, end, before in rows:
            offset = tile_start - len(before or "")
            yield IndexedChunk(
                id,
                title,
                decode_list(headings),
                header,
                ((before or "") + tile)[start - offset : end - offset],
                visible(tile[: start - tile_start]) if start > tile_start else "",
            )

    def texts(self, sql: Sql, owners: Sequence[int] | None = None) -> Iterator[tuple[int, str]]:
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

    def has_embeddings(self, sql: Sql, query: QueryEmbedding | str) -> bool:
        """Whether the model of a query has embedded anything."""
        model = None if isinstance(query, str) else query.model
        found = f"SELECT EXISTS (SELECT 1 FROM {self.embeddings} WHERE model = ?)"
        return bool(sql.execute(found, (model,)).get)

    def owner_of(self, sql: Sql, ids: Sequence[int]) -> dict[int, int]:
        """The owner of each of these chunks that exists."""
        return self._owners(sql, "id", ids)

    def chunks_of(
        self, sql: Sql, owners: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The chunks of these owners, and the owner of each."""
        found = self._owners(sql, "owner", owners.tolist())
        return np.fromiter(found, np.int64), np.fromiter(found.values(), np.int64)

    def _owners(self, sql: Sql, column: str, values: Sequence[int]) -> dict[int, int]:
        among = f"WHERE {column} IN (SELECT value FROM json_each(?))"
        return dict(
            sql.execute(f"SELECT id, owner FROM {self.chunks} {among}", (json.dumps(values),))
        )

    def known(self, sql: Sql, model: int, texts: Iterable[str]) -> dict[str, bytes]:
        """The stored embeddings by a model of those texts that have one.

        Texts are as `embedding_text` returns them.
        """
        hashes = {digest(text): text for text in texts}
        rows = sql.executemany(
            f"SELECT c.hash, e.embedding FROM {self.chunks} c "
            f"JOIN {self.embeddings} e ON e.chunk = c.id AND e.model = ? WHERE c.hash = ? LIMIT 1",
            ((model, hash) for hash in hashes),
        )
        return {hashes[hash]: embedding for hash, embedding in rows}

    # The queue of pending embeddings: lease some chunks, embed them outside of any transaction,
    # settle them.

    def count_pending(self, sql: Sql, model: int, owners: Sequence[int] | None = None) -> int:
        """The number of chunks (of these owners, or all published) that wait for an embedding."""
        count = f"SELECT count(*) FROM {self.pending} WHERE model = ?1"
        if owners is None and self._unpublished:  # two counts are faster than a look at each row
            incomplete = f"SELECT id FROM {self.chunks} WHERE owner IN ({self._unpublished})"
            count = f"SELECT ({count}) - ({count} AND chunk IN ({incomplete}))"
            return int(sql.execute(count, (model,)).get)
        narrowed, bindings = self.owned_by(owners)
        return int(sql.execute(f"{count} {narrowed}", (model, *bindings)).get)

    def is_pending(self, sql: Sql, model: int, owners: Sequence[int] | None = None) -> bool:
        """Whether any chunk (of these owners, or all published) waits for an embedding."""
        narrowed, bindings = self.owned_by(owners)
        found = f"SELECT 1 FROM {self.pending} WHERE model = ? {narrowed} LIMIT 1"
        return sql.execute(found, (model, *bindings)).fetchone() is not None

    def pending_by_owner(self, sql: Sql, model: int, owners: Sequence[int]) -> dict[int, int]:
        """How many chunks wait for an embedding, of those of these owners that have any."""
        rows = sql.execute(  # CROSS: SQLite would look at all that wait first
            f"SELECT c.owner, count(*) FROM {self.chunks} c CROSS JOIN {self.pending} p "
            "ON p.model = ? AND p.chunk = c.id "
            "WHERE c.owner IN (SELECT value FROM json_each(?)) GROUP BY c.owner",
            (model, json.dumps(owners)),
        )
        return dict(rows)

    def waiting(
        self, sql: Sql, model: int, owners: Sequence[int]
    ) -> list[tuple[int, IndexedChunk]]:
        """(owner, chunk) of the chunks of these owners that wait for an embedding."""
        narrowed, bindings = self.owned_by(owners)
        of = dict(
            sql.execute(
                f"SELECT chunk, (SELECT owner FROM {self.chunks} WHERE id = chunk) "
                f"FROM {self.pending} WHERE model = ? {narrowed}",
                (model, *bindings),
            )
        )
        return [(of[each.id], each) for each in self.passages(sql, list(of))]

    def is_leased(self, sql: Sql, model: int) -> bool:
        """Whether anybody is embedding chunks of this index by a model."""
        some = f"SELECT EXISTS (SELECT 1 FROM {self.pending} WHERE model = ? AND {_LEASED})"
        return bool(sql.execute(some, (model, *self._lease_times())).get)

    def lease(
        self, sql: Sql, model: int, limit: int, owners: Sequence[int] | None = None
    ) -> tuple[list[tuple[int, str]], int]:
        """Lease up to `limit` chunks to embed, as (id, text); also how many needed no model.

        Other processes do not get leased chunks until the lease ends, so the chunks of a process
        that died are leased again. Chunks with the text of an embedded one get its embedding at
        once.
        """
        narrowed, bindings = self.owned_by(owners)
        # What was stored last is most likely asked for next.
        newest = (
            f"SELECT chunk FROM {self.pending} WHERE model = ? "
            f"AND NOT {_LEASED} {narrowed} ORDER BY chunk DESC LIMIT {COPIED}"
        )
        ids = selected(sql, newest, (model, *self._lease_times(), *bindings))
        copied = self._copy_known(sql, model, ids)
        ids = [id for id in ids if id not in copied][:limit]
        self._lease_until(sql, time.time() + self._tuning.lease_seconds, model, ids)
        texts = [(each.id, each.embedding_text) for each in self.passages(sql, ids)]
        if len(texts) < len(ids):
            raise Damaged(
                f"{self.pending} names chunks that are not there: run `mcpvectordb rebuild`"
            )
        return texts, len(copied)

    def owned_by(self, owners: Sequence[int] | None) -> tuple[str, tuple[str, ...]]:
        """SQL that narrows pending chunks to those of these owners, or published ones; bindings."""
        of = f"(SELECT id FROM {self.chunks} WHERE owner IN"
        if owners is not None:
            return f"AND chunk IN {of} (SELECT value FROM json_each(?)))", (json.dumps(owners),)
        return (f"AND chunk NOT IN {of} ({self._unpublished}))" if self._unpublished else ""), ()

    def _lease_times(self) -> tuple[float, float]:
        """Between which times a valid lease ends: one that ends later is of a clock set back."""
        now = time.time()
        return now, now + self._tuning.lease_seconds

    def _copy_known(self, sql: Sql, model: int, ids: Sequence[int]) -> set[int]:
        """Give pending chunks the embedding of another chunk with the same text; returns their ids.

        Only the oldest and the newest of equal chunks are looked up, which keeps this linear if
        very many are equal.
        """
        equal = f"FROM {self.chunks} WHERE hash = c.hash"
        known = dict(
            sql.execute(
                f"SELECT c.id, e.embedding FROM {self.chunks} c "
                f"JOIN {self.embeddings} e "
                f"ON e.chunk IN ((SELECT min(id) {equal}), (SELECT max(id) {equal})) "
                "AND e.model = ? "
                "WHERE c.id IN (SELECT value FROM json_each(?))",
                (model, json.dumps(ids)),
            )
        )
        self.settle(sql, model, known.items())
        return set(known)

    def release(self, sql: Sql, model: int, ids: Sequence[int]) -> None:
        """End the lease of chunks that were not embedded."""
        self._lease_until(sql, 0, model, ids)

    def settle(self, sql: Sql, model: int, embeddings: Iterable[tuple[int, bytes]]) -> int:
        """Store the embeddings of chunks that still wait for one; returns their number."""
        stored: list[tuple[int, bytes]] = []
        for chunk, embedding in embeddings:
            waiting = sql.execute(
                f"DELETE FROM {self.pending} WHERE model = ? AND chunk = ? RETURNING chunk",
                (model, chunk),
            ).fetchall()
            if waiting:
                stored.append((chunk, embedding))
        self.store(sql, model, stored)
        return len(stored)

    def store(self, sql: Sql, model: int, embeddings: Sequence[tuple[int, bytes]]) -> None:
        """Store embeddings of chunks that have none, in the precision of the file."""
        if not embeddings:
            return
        dimension = int(sql.execute("SELECT dimension FROM models WHERE key = ?", (model,)).get)
        ids = [chunk for chunk, _ in embeddings]
        blobs = arrays.in_precision([blob for _, blob in embeddings], dimension, precision(sql))
        sql.executemany(
            f"INSERT INTO {self.embeddings} (chunk, model, embedding) VALUES (?, ?, ?)",
            ((chunk, model, blob) for chunk, blob in zip(ids, blobs, strict=True)),
        )
        self.vector.add_many(sql, model, ids, arrays.unpacked(blobs, dimension))

    def settle_positions(
        self, sql: Sql, model: ModelRow, owner: int, found: Mapping[int, bytes]
    ) -> int:
        """Store embeddings of an owner's chunks that wait for one, by position; their number.

        They come from elsewhere: those that cannot be ranked are left out.
        """
        rows = sql.execute(f"SELECT id, position FROM {self.chunks} WHERE owner = ?", (owner,))
        known = [(id, found[position]) for id, position in rows if position in found]
        usable = (each for each in known if arrays.is_rankable(each[1], model.dimension))
        return self.settle(sql, model.key, usable)

    # Maintenance.

    def merge_steps(self, sql: Sql) -> int:
        """How often `merge` should be called; 0 unless many rows were deleted since the last time.

        Far more often than it takes: each step begins again if others add rows in between.
        """
        rows, deleted = fts5.totals(sql, self.words)[0], fts5.count_deleted(sql, self.words)
        return 2 + rows // 512 if deleted > max(self._tuning.deleted_rows, rows // 10) else 0

    def merge(self, sql: Sql) -> bool:
        """Remove the words of deleted rows from the keyword index, in part; whether some are left.

        FTS5 does this by itself, but then at once, for seconds in a large index.
        """
        fts5.merge(sql, self.words, self._tuning.slice_pages)
        return fts5.count_deleted(sql, self.words) > 0

    def optimize(self, sql: Sql) -> None:
        """Free what deleted rows still occupy inside the indexes."""
        if self._has_words:
            fts5.optimize(sql, self.words)
        for model, dimension in every_model(sql):
            self.vector.rebuild(sql, model, dimension)

    def rebuild(self, sql: Sql) -> None:
        """Create both indexes again from the tables, and queue chunks that have no embedding."""
        if self._has_words:
            fts5.clear(sql, self.words)
            self._put_words(sql, self.passages(sql))
            log_rebuilt(sql, self.words)
        sql.execute(f"DELETE FROM {self.pending}")
        for model, dimension in every_model(sql):
            self.queue_missing(sql, model)
            self.vector.rebuild(sql, model, dimension)

    def problems(self, sql: Sql) -> Iterator[str]:
        """The problems of the chunks and their indexes, one sentence each."""
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
        yield from (
            f"{self.chunks}: the text of chunk {id} is not the one that came in"
            for id, _ in self.altered(sql)
        )
        if self._has_words:
            yield from fts5.tombstone_problems(sql, self.words)
            if not fts5.same_content(
                sql, self.words, lambda scratch: self._put_words(scratch, self.passages(sql))
            ):
                yield f"{self.words}: the words in the index are not those of the chunks"
        for model, dimension in every_model(sql):
            yield from self.vector.problems(sql, model, dimension)
            for id, count in sql.execute(
                "SELECT id, "
                f"(SELECT count(*) FROM {self.embeddings} WHERE chunk = id AND model = ?1) "
                f"+ (SELECT count(*) FROM {self.pending} WHERE chunk = id AND model = ?1) AS n "
                f"FROM {self.chunks} WHERE n <> 1",
                (model,),
            ):
                states = "both embedded and" if count else "neither embedded nor"
                yield f"{self.chunks}: chunk {id} is {states} waiting"

    def altered(self, sql: Sql) -> Iterator[tuple[int, bytes]]:
        """The chunks whose text differs from the one that was ingested, with its present hash."""
        # The hash, and whether the chunk leaves out text of its tile, which no hash covers.
        columns = 'id, hash, tile, start - tile_start, "end" - tile_start'
        stored = {
            id: (hash, covers_tile(tile, start, end))
            for id, hash, tile, start, end in sql.execute(f"SELECT {columns} FROM {self.chunks}")
        }
        for each in self.passages(sql):
            if stored[each.id] != (each.hash, True):
                yield each.id, each.hash

    def _lease_until(self, sql: Sql, time: float, model: int, ids: Sequence[int]) -> None:
        sql.executemany(
            f"UPDATE {self.pending} SET leased = ? WHERE model = ? AND chunk = ?",
            ((time, model, id) for id in ids),
        )

    def _put_words(self, sql: Sql, passages: Iterable[IndexedChunk]) -> None:
        sql.executemany(
            f"INSERT INTO {self.words} (rowid, title, headings, text) VALUES (?, ?, ?, ?)",
            ((each.id, *map(index_text, each.columns)) for each in passages),
        )


def _rows(texts: Iterable[NewChunks], last: int) -> Iterator[tuple[tuple[Any, ...], IndexedChunk]]:
    """The row of each new chunk, which ends with its hash, and the chunk; ids follow `last`."""
    id = last
    for owner, title, text, spans, first in texts:
        for position, span in enumerate(spans, first):
            id += 1
            front = visible(text[span.tile_start : span.start])
            body = text[span.start : span.end]
            chunk = IndexedChunk(id, title, span.headings, span.header, body, front)
            row = (
                id,
                owner,
                position,
                text[span.tile_start : span.tile_end],
                span.tile_start,
                span.start,
                span.end,
                span.first_line,
                span.last_line,
                span.page,
                json.dumps(span.headings, ensure_ascii=False) if span.headings else "[]",
                span.header,
                span.footer,
                chunk.hash,
            )
            yield row, chunk
