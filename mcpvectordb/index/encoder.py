"""Which model a file is embedded with, and the embedder that speaks for it on this machine.

The first ingest writes the model and the chunk sizes into the file; from then on the file decides.
The embedder is loaded when first needed. Where it cannot be had, text is stored and found by words,
and the reason is told.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import apsw

from mcpvectordb.config import Config
from mcpvectordb.embedding import weights
from mcpvectordb.embedding.catalogue import CATALOGUE, Model
from mcpvectordb.embedding.embedder import Embedder, checked
from mcpvectordb.embedding.tokenizer import SHIPPED, TokenPipeline
from mcpvectordb.errors import (
    Closed,
    Damaged,
    EmbeddingFailed,
    InvalidInput,
    ModelError,
    ModelMissing,
)
from mcpvectordb.index.chunks import ChunkIndex, models
from mcpvectordb.records import Embedded, Progress, ProgressCallback
from mcpvectordb.storage.file import File
from mcpvectordb.text.tokens import is_non_latin

BATCH = 32  # an interrupt waits for one at most
DEFAULT_VECTOR_WEIGHT = 0.5  # suits any model
POLL_SECONDS = 0.1
# for what a model cannot read: E-4021 is like E-4022 to it, and so are most foreign letters
BLIND_VECTOR_WEIGHT = 0.1


@dataclass(frozen=True, slots=True)
class QueryEmbedding:
    """A query's embedding by a model of the file, and how much that model's opinion weighs.

    `name` is the model's in the catalogue, "" for one that is not in it.
    """

    model: int
    embedding: bytes
    weight: float
    name: str = ""


class ModelRow(NamedTuple):
    """A row of the table models."""

    key: int
    name: str
    digest: str
    dimension: int


class Encoder:
    """Embeds queries and pending chunks for the indexes of one file."""

    def __init__(
        self, file: File, config: Config, embedder: Embedder | None, indexes: Sequence[ChunkIndex]
    ) -> None:
        self._file, self._config, self._indexes = file, config, indexes
        self._given = embedder
        self._loaded: Embedder | None = embedder
        self._lock = threading.Lock()
        self._warming: threading.Thread | None = None
        self._tokens: TokenPipeline | None = None

    # What the file says.

    def active(self, sql: apsw.Connection) -> ModelRow | None:
        """The model that searches use; None in a file into which nothing was ingested yet."""
        row = sql.execute(
            "SELECT key, models.name, digest, dimension FROM models JOIN settings "
            "ON settings.name = 'model' AND settings.value = key"
        ).fetchone()
        if row and [type(value) for value in row] != [int, str, str, int]:
            raise Damaged(
                "the file's model is not what was written: run `mcpvectordb check`, then "
                "`mcpvectordb salvage`"
            )
        return ModelRow(*row) if row else None

    def expected_model(self, sql: apsw.Connection) -> tuple[str, int]:
        """Name and dimension of the model that searches use, or that the first ingest will
        choose.
        """
        model = self.active(sql)
        if model is not None:
            return model.name, model.dimension
        name, _, dimension = self._identity()
        return name, dimension

    def ensure_model(self) -> tuple[int, int]:
        """Write the model and chunk sizes into a new file; the chunk size and overlap in force."""
        with self._file.reading() as sql:
            if self.active(sql) is not None:
                return self.sizes(sql)
        with self._file.writing() as sql:
            if self.active(sql) is None:  # another process may have been faster
                name, digest, dimension = self._identity()
                self._activate(sql, self.register(sql, name, digest, dimension))
                size, overlap = self._automatic_sizes(name)
                sql.execute(
                    "INSERT INTO settings (name, value) VALUES ('chunk_size', ?), "
                    "('chunk_overlap', ?)",
                    (str(size), str(overlap)),
                )
            return self.sizes(sql)

    def sizes(self, sql: apsw.Connection) -> tuple[int, int]:
        """Chunk size and overlap in tokens, as the file has them, or as it would get them."""
        kept = dict(
            sql.execute(
                "SELECT name, value FROM settings WHERE name IN ('chunk_size', 'chunk_overlap')"
            )
        )
        if not kept:
            return self._automatic_sizes(self._identity()[0])
        try:
            return int(kept["chunk_size"]), int(kept["chunk_overlap"])
        except (KeyError, ValueError):
            raise Damaged(
                f"the file's chunk sizes are not what was written ({kept}): run `mcpvectordb check`"
            ) from None

    def register(self, sql: apsw.Connection, name: str, digest: str, dimension: int) -> ModelRow:
        """Enter a model into the file: from now on every chunk is embedded by it or waits for
        it.
        """
        row = sql.execute(
            "SELECT key, name, digest, dimension FROM models WHERE name = ? AND digest = ? AND "
            "dimension = ?",
            (name, digest, dimension),
        ).fetchone()
        if row:
            return ModelRow(*row)
        sql.execute(
            "INSERT INTO models (name, digest, dimension) VALUES (?, ?, ?)",
            (name, digest, dimension),
        )
        fixed = ModelRow(sql.last_insert_rowid(), name, digest, dimension)
        for index in self._indexes:
            index.create(sql, fixed.key, dimension)
        return fixed

    def complete(self) -> None:
        """Give every model of the file its room in every index: a file that is older than a shelf
        has none there.
        """
        with contextlib.suppress(Damaged):  # it must still open, or nobody could check it
            with self._file.reading() as sql:
                lacking = self._lacking(sql)
            if lacking:
                with self._file.writing() as sql:
                    for index, model, dimension in self._lacking(sql):
                        index.create(sql, model, dimension)

    def _lacking(self, sql: apsw.Connection) -> list[tuple[ChunkIndex, int, int]]:
        return [
            (index, model, dimension)
            for index in self._indexes
            for model, dimension in models(sql)
            if model not in index.vector.coded(sql)
        ]

    def pending(self, sql: apsw.Connection, model: ModelRow) -> int:
        """How many chunks wait for this model."""
        return sum(index.count_pending(sql, model.key) for index in self._indexes)

    def count_pending(self, sql: apsw.Connection, index: ChunkIndex, owners: Sequence[int]) -> int:
        """How many chunks of these owners wait for the active model."""
        model = self.active(sql)
        return index.count_pending(sql, model.key, owners) if model else 0

    # What this machine can do.

    def tokens(self) -> TokenPipeline:
        """The tokenizer that chunks are measured with: the model's, or the WordPiece we ship."""
        if self._tokens is None:
            self._tokens = TokenPipeline(self._tokenizer_path())
        return self._tokens

    def query_embedding(self, text: str, *, wait: bool = False) -> QueryEmbedding | str:
        """A query's embedding, or the reason why it cannot be had; the patient wait for a model
        that is being loaded.
        """
        with self._file.reading() as sql:
            fixed = self.active(sql)
        if fixed is None:
            return "nothing has been ingested yet"
        if not wait and self._warming is not None and self._warming.is_alive():
            return "the model is still loading; ask again in a moment"
        try:
            embedder = self._embedder(fixed)
            vector = checked(embedder, [text], query=True)[0]
        except ModelError as error:
            return str(error)
        blind = getattr(embedder, "latin_only", False) and is_non_latin(text)
        known = (
            fixed.name
            if fixed.name in CATALOGUE and CATALOGUE[fixed.name].digest == fixed.digest
            else ""
        )
        return QueryEmbedding(
            fixed.key,
            vector.tobytes(),
            BLIND_VECTOR_WEIGHT if blind else self._weight(embedder),
            known,
        )

    def missing_reason(self) -> str:
        """Why the file's model is not to be had on this machine; "" when it is. It is not loaded
        for that.
        """
        with self._file.reading() as sql:
            fixed = self.active(sql)
        try:
            if fixed is not None and self._loaded is None:
                self._located(fixed)
            elif fixed is not None:
                self._embedder(fixed)
        except ModelError as error:
            return str(error)
        return ""

    def warm(self) -> None:
        """Load the model in a thread; until it is there, hybrid searches answer by words and say
        so.
        """
        self._warming = threading.Thread(target=self._warm, name="mcpvectordb-warm", daemon=True)
        self._warming.start()

    def embed(
        self,
        *,
        index: ChunkIndex | None = None,
        owners: Sequence[int] | None = None,
        model: ModelRow | None = None,
        progress: ProgressCallback | None = None,
    ) -> Embedded:
        """Embed what waits (of one index's owners, or everything) by the active or the given model.

        Raises ModelError when the embedder is not to be had. Other processes may share the work; it
        is done when nothing of it waits any more.
        """
        indexes = [index] if index else self._indexes
        with self._file.reading() as sql:
            model = model or self.active(sql)
            total = (
                sum(each.count_pending(sql, model.key, owners) for each in indexes) if model else 0
            )
        done = Embedded()
        if model is None or total == 0:
            return done
        embedder = self._embedder(model)
        for each in indexes:
            while (leased := self._lease(each, model, owners)) is not None:
                batch, copied = leased
                done += Embedded(chunks=copied)
                if batch:
                    done += self._embed_batch(each, model, embedder, batch)
                elif not copied:
                    time.sleep(POLL_SECONDS)  # other processes work on what is left
                if progress:
                    progress(_progress(done, total))
        return done

    def embed_some(self, index: ChunkIndex) -> Embedded:
        """Embed a batch of what waits in an index; nothing when nothing does, or others are at
        it.
        """
        with self._file.reading() as sql:
            model = self.active(sql)
            if model is None or not index.count_pending(sql, model.key):
                return Embedded()
        embedder = self._embedder(model)
        batch, copied = self._lease(index, model, None) or ([], 0)
        done = Embedded(chunks=copied)
        return done + self._embed_batch(index, model, embedder, batch) if batch else done

    def embed_texts(self, index: ChunkIndex, texts: Sequence[str]) -> tuple[int, dict[str, bytes]]:
        """Embeddings of texts that are about to be stored, and the key of the active model that
        made them.

        Raises ModelMissing when the model is not to be had on this machine, another ModelError when
        it failed.
        """
        with self._file.reading() as sql:
            model = self.active(sql)
            if model is None:
                raise ModelMissing("the file has no model yet: settle it first")
            vectors = index.known(sql, model.key, texts)
        missing = [text for text in dict.fromkeys(texts) if text not in vectors]
        for batch in (missing[start : start + BATCH] for start in range(0, len(missing), BATCH)):
            embedder = self._embedder(model)
            try:
                rows = checked(embedder, batch)
            except ModelError:
                raise
            except Exception as error:
                raise EmbeddingFailed(f"{embedder.name} failed: {error}") from error
            vectors.update((text, row.tobytes()) for text, row in zip(batch, rows, strict=True))
        return model.key, vectors

    def use(self, name: str, progress: ProgressCallback | None = None) -> ModelRow:
        """Embed everything again by another model and switch to it at the end; searches go on with
        the old one.
        """
        spec = weights.find(name, self._config.models_folder())
        if spec.kind != "embedder":
            raise InvalidInput(
                f"{name} ranks pairs of texts and cannot embed; `mcpvectordb model list` shows "
                f"those that can"
            )
        weights.locate(spec, self._config.models_folder())
        with self._file.writing() as sql:
            new = self.register(sql, spec.name, spec.digest, spec.dimension)
        while True:
            self.embed(model=new, progress=progress)
            with self._file.writing() as sql:
                if self.pending(sql, new) == 0:  # nobody added text since
                    self._activate(sql, new)
                    break
        self._loaded, self._tokens = None, None
        return new

    def _activate(self, sql: apsw.Connection, model: ModelRow) -> None:
        sql.execute(
            "INSERT OR REPLACE INTO settings (name, value) VALUES ('model', ?)", (str(model.key),)
        )
        for old in [
            int(key)
            for (key,) in sql.execute("SELECT key FROM models WHERE key <> ?", (model.key,))
        ]:
            for index in self._indexes:
                index.drop(sql, old)
            sql.execute("DELETE FROM models WHERE key = ?", (old,))

    def _lease(
        self, index: ChunkIndex, model: ModelRow, owners: Sequence[int] | None
    ) -> tuple[list[tuple[int, str]], int] | None:
        """Chunks to embed now, and how many got an embedding that was known; None when none
        wait.
        """
        with self._file.writing() as sql:
            batch, copied = index.lease(sql, model.key, BATCH, owners)
            if batch or copied or index.count_pending(sql, model.key, owners):
                return batch, copied
        return None

    def _embed_batch(
        self, index: ChunkIndex, model: ModelRow, embedder: Embedder, batch: list[tuple[int, str]]
    ) -> Embedded:
        began, counted = time.monotonic(), getattr(embedder, "tokens_embedded", None)
        texts = list(dict.fromkeys(text for _, text in batch))
        try:
            vectors = dict(zip(texts, checked(embedder, texts), strict=True))
        except BaseException:
            # Also when interrupted: others, or the next try, need not wait for the lease to end.
            with self._file.writing() as sql:
                index.release(sql, model.key, [chunk for chunk, _ in batch])
            raise
        with self._file.writing() as sql:
            settled = index.settle(
                sql, model.key, ((chunk, vectors[text].tobytes()) for chunk, text in batch)
            )
        # An embedder of the user's own does not say how many tokens it has seen.
        tokens = (
            sum(map(self.tokens().count, texts))
            if counted is None
            else getattr(embedder, "tokens_embedded", counted) - counted
        )
        return Embedded(chunks=settled, tokens=tokens, seconds=time.monotonic() - began)

    def _embedder(self, fixed: ModelRow) -> Embedder:
        """The embedder for a model of the file; loaded once."""
        with self._lock:
            if self._given is not None:
                if (self._given.name, self._given.dimension) != (fixed.name, fixed.dimension):
                    raise ModelMissing(
                        f"this file is embedded with {fixed.name} ({fixed.dimension} d), not with "
                        f"the given embedder {self._given.name} ({self._given.dimension} d): open "
                        "it without one, or ingest into a new file"
                    )
                return self._given
            if self._loaded is None or (self._loaded.name, _digest(self._loaded)) != (
                fixed.name,
                fixed.digest,
            ):
                self._loaded = self._load(fixed)
            return self._loaded

    def _weight(self, embedder: Embedder) -> float:
        wanted = self._config.vector_weight
        return (
            getattr(embedder, "vector_weight", DEFAULT_VECTOR_WEIGHT) if wanted is None else wanted
        )

    def _load(self, fixed: ModelRow) -> Embedder:
        from mcpvectordb.embedding.onnx import OnnxEmbedder

        return OnnxEmbedder(*self._located(fixed))

    def _located(self, fixed: ModelRow) -> tuple[Model, dict[str, Path]]:
        spec = weights.find(fixed.name, self._config.models_folder())
        if spec.digest != fixed.digest:
            raise ModelMissing(
                f"this file was embedded with another build of {fixed.name}: "
                f"run `mcpvectordb model use {fixed.name}` to embed it again"
            )
        return spec, weights.locate(spec, self._config.models_folder())

    def _warm(self) -> None:
        with contextlib.suppress(ModelError, Closed):  # the first search says what is wrong
            with self._file.reading() as sql:
                fixed = self.active(sql)
            if fixed is not None:
                checked(self._embedder(fixed), ["warm"], query=True)

    def _identity(self) -> tuple[str, str, int]:
        """Name, digest and dimension of the model that a new file gets."""
        if self._given is not None:
            return self._given.name, _digest(self._given), self._given.dimension
        folder = self._config.models_folder()
        spec = (
            weights.find(self._config.model, folder)
            if self._config.model
            else weights.default(folder)
        )
        return spec.name, spec.digest, spec.dimension

    def _automatic_sizes(self, name: str) -> tuple[int, int]:
        if self._config.chunk_size:
            return self._config.chunk_size, self._config.chunk_overlap
        return 200, self._config.chunk_overlap

    def _tokenizer_path(self) -> Path:
        with self._file.reading() as sql:
            fixed = self.active(sql)
        try:
            spec = weights.find(
                fixed.name if fixed else self._identity()[0], self._config.models_folder()
            )
            return weights.locate(spec, self._config.models_folder())["tokenizer"]
        except ModelMissing:
            return SHIPPED  # sizes then differ a little from the model's own, which harms nothing

    def close(self) -> None:
        """Let go of the model."""
        if self._loaded is not None and self._loaded is not self._given:
            close = getattr(self._loaded, "close", None)
            if close:
                close()


def _digest(embedder: Embedder) -> str:
    return str(getattr(embedder, "digest", ""))


def _progress(done: Embedded, total: int) -> Progress:
    chunks = min(done.chunks, total)
    return Progress(
        step="embed",
        done=chunks,
        total=total,
        chunks=chunks,
        chunks_known=total,
        tokens=done.tokens,
        tokens_per_second=done.tokens_per_second,
        seconds_left=(total - chunks) * done.seconds / done.chunks if done.chunks else None,
    )
