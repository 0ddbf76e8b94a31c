"""Provisional embeddings: what waits for the file's model is found by meaning at once.

A static model (`embedding.static`) embeds a passage a hundred times as fast as the file's model,
and less well. Where it is installed, chunks that wait get its embeddings as soon as they are
stored: in a table of the same kind, under a model of the file that the setting `provisional` names.
The transaction that stores a chunk's own embedding deletes the provisional one
(`ChunkIndex.settle`), and the one that settles the last chunk removes model and tables. A file can
go without at any time: chunks that wait and have none are found by words, as without the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import apsw

from mcpvectordb.config import Config
from mcpvectordb.embedding.embedder import checked
from mcpvectordb.errors import ModelError
from mcpvectordb.index import models
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.models import ModelRow, QueryEmbedding
from mcpvectordb.records import counted_passages
from mcpvectordb.storage.file import File

if TYPE_CHECKING:
    from mcpvectordb.embedding.catalogue import Model
    from mcpvectordb.embedding.static import StaticEmbedder

BATCH = 256  # chunks that are embedded (0.1 s) and stored (0.01 s) at once


class ProvisionalEmbedder:
    """Embeds chunks of a file that wait for its model, and queries for them.

    `error` says why it failed, if it did; it is not tried again then.
    """

    def __init__(self, file: File, config: Config, indexes: Sequence[ChunkIndex]) -> None:
        self._file, self._config, self._indexes = file, config, indexes
        self.error = ""

    @cached_property
    def _spec(self) -> Model:
        from mcpvectordb.embedding.catalogue import CATALOGUE, PROVISIONAL

        return CATALOGUE[PROVISIONAL]

    @cached_property
    def _embedder(self) -> StaticEmbedder | None:
        """The static model; None if it is not installed or not wanted."""
        from mcpvectordb.embedding import weights
        from mcpvectordb.embedding.static import StaticEmbedder

        folder = self._config.models_folder()
        if not self._config.provisional or not weights.installed(self._spec, folder):
            return None
        return StaticEmbedder(self._spec, weights.locate(self._spec, folder))

    def fill(
        self,
        index: ChunkIndex,
        owners: Sequence[int] | None = None,
        *,
        least: int = 1,
        report: Callable[[], None] | None = None,
    ) -> None:
        """Embed the chunks that wait, of these owners or all, the newest first.

        If fewer than `least` wait in all, nothing is done: the file's model soon comes to them.
        """
        if self._embedder is None or self.error or self._file.read_only:
            return
        while batch := self._lacking(index, owners, least):
            try:
                vectors = checked(self._embedder, [text for _, text in batch])
            except ModelError as error:
                self.error = str(error)
                return
            with self._file.writing() as sql:
                fast = self._registered(sql)
                if fast is None:
                    return
                rows = [row.tobytes() for row in vectors]
                _store(sql, index, fast, list(zip([id for id, _ in batch], rows, strict=True)))
            if report:
                report()

    def count(self, sql: apsw.Connection, index: ChunkIndex) -> int:
        """How many chunks of an index can be found by their provisional embeddings here."""
        fast = models.provisional(sql)
        if fast is None or fast.digest != self._spec.digest or self._embedder is None or self.error:
            return 0
        return index.vector.count(sql, fast.key)

    def note(self, waiting: int = 0, error: str = "") -> str:
        """How passages that were stored and wait are found until they are embedded.

        Either so many wait, or embedding them failed by an error.
        """
        helped = self._embedder is not None and not self.error
        now = "found by words and provisional embeddings" if helped else "found by words"
        later = "its own" if helped else "meaning"
        if error:
            return f"stored and {now}, but not yet by {later}: {error}"
        return f"{now} now; by {later} as embedding proceeds, {counted_passages(waiting)} waiting"

    def query(self, text: str, weight: float | None) -> QueryEmbedding | None:
        """A query's embedding for the chunks that have provisional ones; None if it failed.

        `weight` is that of its cosines in fusion; None is the model's own.
        """
        with self._file.reading() as sql:
            fast = models.provisional(sql)
        if fast is None or self._embedder is None:
            return None
        try:
            vector = checked(self._embedder, [text], query=True)[0]
        except ModelError as error:
            self.error = str(error)
            return None
        own = self._embedder.vector_weight if weight is None else weight
        return QueryEmbedding(fast.key, vector.tobytes(), own, self._spec.name, is_provisional=True)

    def is_done(self, sql: apsw.Connection) -> bool:
        """Whether the file has a provisional model although nothing waits for the active one."""
        fast, active = models.provisional(sql), models.active(sql)
        return fast is not None and not (
            active and any(_waits(sql, each, active) for each in self._indexes)
        )

    def finish(self, sql: apsw.Connection) -> None:
        """Remove what is provisional from the file once nothing waits for the active model."""
        if self.is_done(sql):
            self.drop(sql)

    def drop(self, sql: apsw.Connection) -> None:
        """Remove all that is provisional from the file."""
        fast = models.provisional(sql)
        if fast:
            for index in self._indexes:
                index.drop(sql, fast.key)
            sql.execute("DELETE FROM models WHERE key = ?", (fast.key,))
        sql.execute("DELETE FROM settings WHERE name = ?", (models.PROVISIONAL,))

    def close(self) -> None:
        """Release the model."""
        if "_embedder" in self.__dict__ and self._embedder is not None:
            self._embedder.close()

    def _lacking(
        self, index: ChunkIndex, owners: Sequence[int] | None, least: int
    ) -> list[tuple[int, str]]:
        """Some chunks that wait and have no provisional embedding, with their texts."""
        with self._file.reading(limited=False) as sql:
            active, fast = models.active(sql), models.provisional(sql)
            if active is None or active.digest == self._spec.digest:
                return []
            waiting = index.count_pending(sql, active.key)
            known = index.vector.count(sql, fast.key) if fast else 0
            # Two counts are faster than a look at each chunk that waits.
            if waiting < max(1, least) or known >= waiting:
                return []
            narrowed, bindings = index.owned_by(owners)
            found = sql.execute(
                f"SELECT chunk FROM {index.pending} p WHERE model = ? AND NOT EXISTS (SELECT 1 "
                f"FROM {index.embeddings} e WHERE e.chunk = p.chunk AND e.model = ?) {narrowed} "
                f"ORDER BY chunk DESC LIMIT {BATCH}",
                (active.key, fast.key if fast else 0, *bindings),
            )
            ids = [id for (id,) in found]
            return [(each.id, each.embedding_text) for each in index.passages(sql, ids)]

    def _registered(self, sql: apsw.Connection) -> ModelRow | None:
        """The provisional model of the file, added if it has none; None if it needs none any more.

        The same model may be on its way in as the file's own: then it is not the provisional one.
        """
        fast, active = models.provisional(sql), models.active(sql)
        spec = self._spec
        if active is None or active.digest == spec.digest:
            return None
        if fast is not None:
            return fast if fast.digest == spec.digest else None
        if sql.execute("SELECT 1 FROM models WHERE digest = ?", (spec.digest,)).fetchone():
            return None
        sql.execute(
            "INSERT INTO models (name, digest, dimension) VALUES (?, ?, ?)",
            (spec.name, spec.digest, spec.dimension),
        )
        fast = ModelRow(sql.last_insert_rowid(), spec.name, spec.digest, spec.dimension)
        sql.execute(
            "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)",
            (models.PROVISIONAL, str(fast.key)),
        )
        for index in self._indexes:
            index.create(sql, fast.key)
        return fast


def _waits(sql: apsw.Connection, index: ChunkIndex, model: ModelRow) -> bool:
    found = sql.execute(f"SELECT 1 FROM {index.pending} WHERE model = ? LIMIT 1", (model.key,))
    return found.fetchone() is not None


def _store(
    sql: apsw.Connection, index: ChunkIndex, model: ModelRow, rows: Sequence[tuple[int, bytes]]
) -> None:
    """Store the embeddings of chunks that still wait for the active model and have none yet."""
    waiting = {
        chunk
        for (chunk,) in sql.execute(
            f"SELECT chunk FROM {index.pending} p WHERE "
            "model = (SELECT value FROM settings WHERE name = 'model') "
            "AND chunk IN (SELECT value FROM json_each(?)) AND NOT EXISTS (SELECT 1 "
            f"FROM {index.embeddings} e WHERE e.chunk = p.chunk AND e.model = ?)",
            (json.dumps([id for id, _ in rows]), model.key),
        )
    }
    index.store(sql, model.key, [row for row in rows if row[0] in waiting])
