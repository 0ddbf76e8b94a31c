"""Which model a file is embedded with, the embedder for it on this machine, and embedding by it.

The first ingest writes the model and the chunk sizes into the file; from then on the file decides.
The embedder is loaded when first needed. Where it is not available, text is stored and found by
words, and results say why.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from mcpvectordb.config import PRECISIONS, Config
from mcpvectordb.errors import (
    Damaged,
    DatabaseError,
    EmbeddingFailed,
    InvalidInput,
    ModelDamaged,
    ModelError,
    ModelMissing,
)
from mcpvectordb.index.background import (
    CLOSE_SECONDS,
    BackgroundEmbedder,
    embed_progress,
    read_ahead,
    run_until,
)
from mcpvectordb.index.chunks import (
    ACTIVE,
    PRECISION,
    PROVISIONAL,
    ChunkIndex,
    ModelRow,
    QueryEmbedding,
    active_model,
    precision,
)
from mcpvectordb.index.resident import selected
from mcpvectordb.ingest.span import STANDARD_SIZE
from mcpvectordb.records import Backlog, Embedded, ProgressCallback, counted_passages
from mcpvectordb.storage import deadline
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.file import File
from mcpvectordb.storage.lazy import np
from mcpvectordb.text.query import without_star
from mcpvectordb.text.tokens import is_non_latin

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from mcpvectordb.embedding.catalogue import Model
    from mcpvectordb.embedding.embedder import Embedder
    from mcpvectordb.embedding.tokenizer import TokenPipeline

BATCH = 32  # texts that are embedded at once: an interrupt waits for one batch at most
POLL_SECONDS = 0.1  # between looks for pending chunks that other processes have leased
# Texts that are embedded at once in the background: a document that is stored meanwhile waits for
# one of these batches.
BACKGROUND_BATCH = 8
DEFAULT_VECTOR_WEIGHT = 0.5  # of cosines against BM25, for models that do not give their own
# For queries that a model cannot represent: codes (E-4021 is embedded like E-4022), and letters
# that are not in its vocabulary.
BLIND_VECTOR_WEIGHT = 0.1
NO_WORDS = "the query has no words to look for"
NOTHING_WAITS = Backlog()


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
        self._reading: threading.Thread | None = None
        self._stopped = threading.Event()
        self._tokens: TokenPipeline | None = None
        self._settled: tuple[int, int] | None = None
        self._last_query: tuple[int, str, bytes] | None = None
        self.background: BackgroundEmbedder | None = None

    # What the file determines.

    def expected_model(self, sql: Sql) -> tuple[str, int]:
        """Name and dimension of the active model, or of the one that the first ingest chooses."""
        model = active_model(sql) or self._identity()
        return model.name, model.dimension

    def ensure_model(self) -> tuple[int, int]:
        """Write model and chunk sizes into a new file; returns the file's size and overlap.

        They never change, so they are read once.
        """
        if self._settled is not None:
            return self._settled
        with self._file.reading(limited=False) as sql:
            if active_model(sql) is not None:
                sizes = self.sizes(sql)
                if not sql.may_roll_back:
                    self._settled = sizes
                return sizes
        with self._file.writing() as sql:
            if active_model(sql) is None:  # another process may have been faster
                self.adopt(sql, self._identity(), *self._new_sizes(), PRECISIONS[0])
            return self.sizes(sql)

    def accepts(self, name: str, digest: str) -> bool:
        """Whether a new file may have this model: no embedder or other model was chosen for it."""
        return not (self._given or self._config.model) or self._identity()[1:3] == (name, digest)

    def adopt(self, sql: Sql, model: ModelRow, size: int, overlap: int, precision: str) -> ModelRow:
        """Give a new file a model, chunk sizes, and a precision unless the configuration has one.

        A file that says nothing has float32, as all had before there was a choice.
        """
        row = self.register(sql, *model[1:])
        self._activate(sql, row)
        sql.execute(
            "INSERT INTO settings (name, value) VALUES ('chunk_size', ?), ('chunk_overlap', ?)",
            (str(size), str(overlap)),
        )
        precision = self._config.embeddings or precision
        if precision != PRECISIONS[0]:
            _set(sql, PRECISION, f'"{precision}"')
        return row

    def expected_precision(self, sql: Sql) -> str:
        """The type of the embeddings of the file, or the one that the first ingest chooses."""
        if active_model(sql) is not None:
            return precision(sql)
        return self._config.embeddings or PRECISIONS[0]

    def sizes(self, sql: Sql) -> tuple[int, int]:
        """Chunk size and overlap in tokens, as the file has them, or as it would get them."""
        kept = dict(
            sql.execute(
                "SELECT name, value FROM settings WHERE name IN ('chunk_size', 'chunk_overlap')"
            )
        )
        if not kept:
            return self._new_sizes()
        try:
            return int(kept["chunk_size"]), int(kept["chunk_overlap"])
        except (KeyError, ValueError):
            raise Damaged(
                f"the file's chunk sizes are not what was written ({kept}): run `mcpvectordb check`"
            ) from None

    def register(self, sql: Sql, name: str, digest: str, dimension: int) -> ModelRow:
        """Add a model to the file and return its row; one that is known is returned as it is.

        From now on every chunk is embedded by it or waits for it.
        """
        row = sql.execute(
            "SELECT key, name, digest, dimension FROM models "
            "WHERE name = ? AND digest = ? AND dimension = ?",
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
            index.queue_missing(sql, fixed.key)
        return fixed

    def drop_provisional(self) -> None:
        """Remove the embeddings by a second model that earlier versions gave to what waits."""
        if self._file.read_only:
            return
        named = "SELECT CAST(value AS INTEGER) FROM settings WHERE name = ?"
        with self._file.reading(limited=False) as sql:
            if sql.execute(named, (PROVISIONAL,)).get is None:
                return
        with contextlib.suppress(Damaged), self._file.writing() as sql:  # so that it can be checked
            key, active = sql.execute(named, (PROVISIONAL,)).get, active_model(sql)
            sql.execute("DELETE FROM settings WHERE name = ?", (PROVISIONAL,))
            if key is not None and (active is None or key != active.key):
                self._drop_model(sql, key)

    def pending(self, sql: Sql, model: ModelRow) -> int:
        """The number of chunks that wait for this model."""
        return sum(index.count_pending(sql, model.key) for index in self._indexes)

    def pending_by_owner(
        self, sql: Sql, index: ChunkIndex, owners: Sequence[int]
    ) -> dict[int, int]:
        """The numbers of chunks that wait for the active model, of those owners that have any."""
        model = active_model(sql)
        return index.pending_by_owner(sql, model.key, owners) if model else {}

    # What this machine has.

    def tokens(self) -> TokenPipeline:
        """The tokenizer that measures chunks: the model's, or the WordPiece of this package.

        The counts of the latter differ slightly from the model's, which is harmless: embedding says
        what is wrong, and what is found by words is stored all the same.
        """
        if self._tokens is None:
            from mcpvectordb.embedding import weights
            from mcpvectordb.embedding.tokenizer import SHIPPED, tokenizer_of

            with self._file.reading(limited=False) as sql:
                name, _ = self.expected_model(sql)
            folder = self._config.models_folder()
            try:
                files = weights.locate(weights.find(name, folder), folder)
                self._tokens = tokenizer_of(files.get("tokenizer", SHIPPED))  # an endpoint has none
            except (ModelMissing, ModelDamaged):
                self._tokens = tokenizer_of()
        return self._tokens

    def asked(
        self, sql: Sql, text: str, mode: str, index: ChunkIndex, *, wait: bool = False
    ) -> tuple[Backlog, QueryEmbedding | str]:
        """What waits for its embedding, and that of a query, or the reason why there is none.

        A search by words alone ("text") needs neither, and an empty query has no meaning. With
        `wait`, and for a search by meaning alone, it waits for a model that is being loaded.
        """
        if mode == "text":
            return NOTHING_WAITS, ""
        if not text.strip():
            return NOTHING_WAITS, NO_WORDS
        model = active_model(sql)
        if model is None:
            return NOTHING_WAITS, "nothing has been ingested yet"
        backlog = self._backlog(sql, index, model)
        if backlog.pending and not backlog.embedded:
            return backlog, backlog.note
        asked = without_star(text)
        return backlog, self._query_embedding(model, asked, wait=wait or mode == "vector")

    def _query_embedding(self, fixed: ModelRow, text: str, *, wait: bool) -> QueryEmbedding | str:
        if not wait and self.loading:
            return "the model is still loading; ask again in a moment"
        from mcpvectordb.embedding.catalogue import CATALOGUE

        known = self._last_query  # documents and memories are asked by the same embedding
        try:
            with deadline.paused():
                embedder = self._embedder(fixed)
                if known is None or known[:2] != (fixed.key, text):
                    known = fixed.key, text, _checked(embedder, [text], query=True)[0].tobytes()
                    self._last_query = known
        except ModelError as error:
            return str(error)
        weight = self._config.vector_weight
        if getattr(embedder, "latin_only", False) and is_non_latin(text):
            weight = BLIND_VECTOR_WEIGHT
        elif weight is None:
            weight = getattr(embedder, "vector_weight", DEFAULT_VECTOR_WEIGHT)
        listed = CATALOGUE.get(fixed.name)
        name = fixed.name if listed and listed.digest == fixed.digest else ""
        return QueryEmbedding(fixed.key, known[2], weight, name)

    def missing_reason(self) -> str:
        """Why the file's model is not available on this machine; "" if it is.

        The model is not loaded for that.
        """
        with self._file.reading() as sql:
            fixed = active_model(sql)
        try:
            if fixed is not None and self._loaded is None:
                self._located(fixed)
            elif fixed is not None:
                self._embedder(fixed)
        except ModelError as error:
            return str(error)
        return ""

    def warm(self, *, wait: bool = False, then: Callable[[], None] | None = None) -> None:
        """Load the model in a thread; then begin to embed in the background, if that is wanted.

        Until it is loaded, hybrid searches use words alone, and their results say so. Another
        thread reads ahead what the first questions would have to read, and `then` does more of
        that. `wait` waits for both.
        """
        self._warming = threading.Thread(target=self._warm, name="mcpvectordb-warm", daemon=True)
        self._warming.start()
        if self._reading is None:
            budget, stopped = self._config.resident_bytes, self._stopped.is_set
            self._reading = threading.Thread(
                target=read_ahead,
                args=(self._file, self._indexes[0], budget, stopped, then),
                name="mcpvectordb-read-ahead",
                daemon=True,
            )
            self._reading.start()
        if wait:
            self._warming.join()
            self._reading.join()

    @property
    def loading(self) -> bool:
        """Whether `warm` has not loaded the model yet."""
        return self._warming is not None and self._warming.is_alive()

    def embed_in_background(self, wait: float) -> None:
        """Leave embedding to a thread from its first request on; nothing happens in a file that is
        open for reading only.

        Whoever stores something waits for its embeddings for `wait` seconds at most.
        """
        if self.background is None and not self._file.read_only:
            embed = partial(self.embed_some, most=BACKGROUND_BATCH)
            self.background = BackgroundEmbedder(embed, self._indexes, wait=wait)

    def deadline(self) -> float | None:
        """Until when something that is stored from now on waits for its embeddings; None: always.

        It is a time of the monotonic clock.
        """
        return None if self.background is None else time.monotonic() + self.background.wait

    def embed_owner(
        self,
        index: ChunkIndex,
        owner: int,
        deadline: float | None,
        progress: ProgressCallback | None = None,
    ) -> tuple[Embedded, str]:
        """Embed the chunks of one owner, in the background until the deadline; the error, or ""."""
        if self.background is None or deadline is None:
            try:
                return self.embed(index=index, owners=[owner], progress=progress), ""
            except ModelError as error:
                return Embedded(), str(error)

        def count() -> int:
            with self._file.reading(limited=False) as sql:
                return self.pending_by_owner(sql, index, [owner]).get(owner, 0)

        return self.background.embed(index, owner, count, deadline, progress)

    def prefer(self, index: ChunkIndex, chunks: Sequence[int]) -> None:
        """Embed the owners of these chunks before others in the background, if there is one."""
        if chunks and self.background is not None:
            with self._file.reading() as sql:
                self.background.prefer(index, list(set(index.owner_of(sql, chunks).values())))

    def embed(
        self,
        *,
        index: ChunkIndex | None = None,
        owners: Sequence[int] | None = None,
        model: ModelRow | None = None,
        progress: ProgressCallback | None = None,
    ) -> Embedded:
        """Embed pending chunks (of one index's owners, or all) by the active or the given model.

        Raises ModelError if the embedder is not available. Other processes may share the work; it
        returns when no such chunk is pending.
        """
        indexes = [index] if index else self._indexes
        with self._file.reading(limited=False) as sql:
            model = model or active_model(sql)
            total = (
                sum(each.count_pending(sql, model.key, owners) for each in indexes) if model else 0
            )
        done = Embedded()
        if model is None or total == 0:
            return done
        embedder = self._embedder(model)
        most = getattr(embedder, "batch", BATCH)  # that of a server has a limit of its own
        for each in indexes:
            more = True
            while more:
                some, more = self._embed_batch(each, model, embedder, owners, most)
                if more and not some.chunks:  # other processes work on all that is left
                    time.sleep(POLL_SECONDS)
                done += some
                if progress and (more or some.chunks):
                    progress(embed_progress(done, total))
        return done

    def embed_some(
        self,
        index: ChunkIndex,
        owners: Sequence[int] | None = None,
        *,
        most: int = BATCH,
        alone: bool = False,
    ) -> Embedded | None:
        """Embed a batch of an index's pending chunks; None if none are pending.

        Nothing is embedded if other processes have leased all of them or, with `alone`, any.
        """
        with self._file.reading(limited=False) as sql:
            model = active_model(sql)
            if model is None or not index.is_pending(sql, model.key, owners):
                return None
            if alone and index.is_leased(sql, model.key):
                return Embedded()
        some, more = self._embed_batch(index, model, self._embedder(model), owners, most)
        return some if more or some.chunks else None

    def _embed_batch(
        self,
        index: ChunkIndex,
        model: ModelRow,
        embedder: Embedder,
        owners: Sequence[int] | None,
        most: int,
    ) -> tuple[Embedded, bool]:
        """Lease a batch of the queue (`ChunkIndex.lease`), embed it outside of transactions, and
        store it; nothing if other processes have leased the rest. Whether any are pending then.

        Chunks whose text is known get its embedding, beside the batch.
        """
        with self._file.writing() as sql:
            batch, copied = index.lease(sql, model.key, most, owners)
            if not batch:
                return Embedded(chunks=copied), index.is_pending(sql, model.key, owners)
        began, counted = time.monotonic(), getattr(embedder, "tokens_embedded", None)
        texts = list(dict.fromkeys(text for _, text in batch))
        try:
            vectors = dict(zip(texts, _checked(embedder, texts), strict=True))
        except BaseException:
            # Also after an interrupt: then nobody has to wait until the lease ends.
            with self._file.writing() as sql:
                index.release(sql, model.key, [chunk for chunk, _ in batch])
            raise
        with self._file.writing() as sql:
            settled = index.settle(
                sql, model.key, ((chunk, vectors[text].tobytes()) for chunk, text in batch)
            )
            more = index.is_pending(sql, model.key, owners)
        # An embedder of the user's own does not count tokens.
        tokens = (
            sum(map(self.tokens().count, texts))
            if counted is None
            else getattr(embedder, "tokens_embedded", counted) - counted
        )
        seconds = time.monotonic() - began
        return Embedded(chunks=copied + settled, tokens=tokens, seconds=seconds), more

    def backlog(self, index: ChunkIndex) -> Backlog:
        """How many chunks of an index wait for the active model, and what becomes of them."""
        with self._file.reading() as sql:
            model = active_model(sql)
            return self._backlog(sql, index, model) if model else NOTHING_WAITS

    def _backlog(self, sql: Sql, index: ChunkIndex, model: ModelRow) -> Backlog:
        pending = index.count_pending(sql, model.key)
        if not pending:
            return NOTHING_WAITS
        passages = index.count(sql)
        # The server's searches need not look for what others do.
        leased = self.background is None and index.is_leased(sql, model.key)
        if self.background is not None:
            error = self.background.error
            next = f"embedding failed: {error}" if error else "embedding goes on in the background"
        elif self._file.dialect.origins:
            next = "they were embedded by another model, or not yet when they were published"
        elif self._file.read_only:
            next = "the file is open for reading only, so nothing can be embedded here"
        elif leased:
            next = "another process is embedding"
        else:
            next = self.missing_reason() or "run `mcpvectordb embed`"
        return Backlog(passages=passages, pending=pending, outlook=next)

    def embed_texts(
        self, index: ChunkIndex, texts: Sequence[str], *, deadline: float | None = None
    ) -> tuple[int, dict[str, bytes]]:
        """The key of the active model, and its embeddings of texts that are about to be stored.

        Those that are not embedded at the deadline are missing. Raises ModelMissing if the model is
        not available on this machine, another ModelError if it failed.
        """
        with self._file.reading(limited=False) as sql:
            model = active_model(sql)
            if model is None:
                raise ModelMissing("the file has no model yet: settle it first")
            vectors = index.known(sql, model.key, texts)
        missing = [text for text in dict.fromkeys(texts) if text not in vectors]

        def embed() -> None:
            for start in range(0, len(missing), BATCH):
                if deadline is not None and time.monotonic() >= deadline:
                    return
                batch, embedder = missing[start : start + BATCH], self._embedder(model)
                try:
                    rows = _checked(embedder, batch)
                except ModelError:
                    raise
                except Exception as error:
                    raise EmbeddingFailed(f"{embedder.name} failed: {error}") from error
                vectors.update((text, row.tobytes()) for text, row in zip(batch, rows, strict=True))

        if deadline is None:
            embed()
        else:
            run_until(deadline, embed)
        return model.key, dict(vectors)  # a batch that comes too late is not in it

    def embeddings(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """The embeddings of texts by the active model, a row for each; raises ModelError."""
        if isinstance(texts, str):
            raise InvalidInput("texts must be a list of strings, not one string")
        self.ensure_model()
        with self._file.reading(limited=False) as sql:
            model = active_model(sql)
        assert model is not None, "the file has a model now"  # noqa: S101
        embedder = self._embedder(model)
        # In batches, so that a long list does not take memory for all of its tokens at once.
        batches = range(0, max(len(texts), 1), BATCH)
        return np.concatenate(
            [_checked(embedder, texts[start : start + BATCH], query=query) for start in batches]
        )

    def use(self, name: str, progress: ProgressCallback | None = None) -> ModelRow:
        """Embed everything by another model and switch to it at the end.

        Until then searches use the old one.
        """
        from mcpvectordb.embedding import weights

        spec = weights.embedder(name, self._config.models_folder())
        weights.locate(spec, self._config.models_folder())
        with self._file.writing() as sql:
            new = self.register(sql, spec.name, spec.digest, spec.dimension)
        while True:
            self.embed(model=new, progress=progress)
            with self._file.writing() as sql:
                if self.pending(sql, new) == 0:  # no text was added since
                    self._activate(sql, new)
                    break
        self._loaded, self._tokens = None, None
        return new

    def _activate(self, sql: Sql, model: ModelRow) -> None:
        _set(sql, ACTIVE, str(model.key))
        for old in selected(sql, "SELECT key FROM models WHERE key <> ?", (model.key,)):
            self._drop_model(sql, old)

    def _drop_model(self, sql: Sql, key: int) -> None:
        for index in self._indexes:
            index.drop(sql, key)
        sql.execute("DELETE FROM models WHERE key = ?", (key,))

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

    def _load(self, fixed: ModelRow) -> Embedder:
        spec, files = self._located(fixed)
        if spec.endpoint:
            from mcpvectordb.embedding.endpoint import EndpointEmbedder

            return EndpointEmbedder(spec, fixed.digest, proxy=self._config.proxy)
        if spec.static:
            from mcpvectordb.embedding.embedder import StaticEmbedder

            return StaticEmbedder(spec, files)
        from mcpvectordb.embedding.embedder import OnnxEmbedder

        return OnnxEmbedder(spec, files, cache=self._config.cache_folder())

    def _located(self, fixed: ModelRow) -> tuple[Model, dict[str, Path]]:
        """The model of a file and its files; raises ModelError if they are not on this machine."""
        from mcpvectordb.embedding import weights

        folder = self._config.models_folder()
        spec = weights.find_build(fixed.name, fixed.digest, folder)
        return spec, weights.locate(spec, folder)

    def _warm(self) -> None:
        # The first search reports what is wrong; a file may also be closed meanwhile.
        with contextlib.suppress(ModelError, DatabaseError):
            with self._file.reading(limited=False) as sql:
                fixed = active_model(sql)
            if fixed is not None:
                _checked(self._embedder(fixed), ["warm"], query=True)
        if self.background is not None:
            self.background.ask()

    def _identity(self) -> ModelRow:
        """The model that a new file gets: the given or named one, or the best one installed."""
        if self._given is not None:
            return ModelRow(0, self._given.name, _digest(self._given), self._given.dimension)
        from mcpvectordb.embedding import weights

        folder, name = self._config.models_folder(), self._config.model
        spec = weights.find(name, folder) if name else weights.default(folder)
        return ModelRow(0, spec.name, spec.digest, spec.dimension)

    def _new_sizes(self) -> tuple[int, int]:
        return self._config.chunk_size or STANDARD_SIZE, self._config.chunk_overlap

    def close(self) -> None:
        """End what goes on in the background, and release the model."""
        self._stopped.set()
        if self._reading is not None and self._reading is not threading.current_thread():
            self._reading.join(CLOSE_SECONDS)
        if self.background is not None:
            self.background.close()
        if self._loaded is not None and self._loaded is not self._given:
            close = getattr(self._loaded, "close", None)
            if close:
                close()


def _checked(
    embedder: Embedder, texts: Sequence[str], *, query: bool = False
) -> NDArray[np.float32]:
    """What `checked` returns; few processes embed, and its module takes time to load."""
    from mcpvectordb.embedding.embedder import checked

    return checked(embedder, texts, query=query)


def _digest(embedder: Embedder) -> str:
    return str(getattr(embedder, "digest", ""))


def waiting_note(waiting: int = 0, error: str = "") -> str:
    """How passages that were stored are found until they are embedded.

    Either so many wait, or embedding them failed by an error.
    """
    if error:
        return f"stored and found by words, but not yet by meaning: {error}"
    return (
        f"found by words now; by meaning as embedding proceeds, {counted_passages(waiting)} waiting"
    )


def _set(sql: Sql, setting: str, value: str) -> None:
    sql.execute("INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)", (setting, value))
