"""Which model a file is embedded with, and the embedder for it on this machine.

The first ingest writes the model and the chunk sizes into the file; from then on the file decides.
The embedder is loaded when first needed. Where it is not available, text is stored and found by
words, and results say why.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import apsw

from mcpvectordb.config import PRECISIONS, Config
from mcpvectordb.embedding.embedder import Embedder, checked
from mcpvectordb.errors import (
    Closed,
    Damaged,
    EmbeddingFailed,
    InvalidInput,
    ModelError,
    ModelMissing,
)
from mcpvectordb.index import models
from mcpvectordb.index.background import BackgroundEmbedder, embed_progress, until
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.models import ModelRow, QueryEmbedding
from mcpvectordb.index.provisional import ProvisionalEmbedder
from mcpvectordb.ingest.span import STANDARD_SIZE
from mcpvectordb.records import Backlog, Embedded, ProgressCallback
from mcpvectordb.storage import deadline
from mcpvectordb.storage.file import File
from mcpvectordb.storage.lazy import np
from mcpvectordb.text.tokens import is_non_latin

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
        self._settled: tuple[int, int] | None = None
        self._last_query: tuple[int, str, bytes] | None = None
        self.background: BackgroundEmbedder | None = None
        self.provisional = ProvisionalEmbedder(file, config, indexes)

    # What the file determines.

    def expected_model(self, sql: apsw.Connection) -> tuple[str, int]:
        """Name and dimension of the active model, or of the one that the first ingest chooses."""
        model = models.active(sql)
        if model is not None:
            return model.name, model.dimension
        name, _, dimension = self._identity()
        return name, dimension

    def ensure_model(self) -> tuple[int, int]:
        """Write model and chunk sizes into a new file; returns the file's size and overlap.

        They never change, so they are read once.
        """
        if self._settled is not None:
            return self._settled
        with self._file.reading(limited=False) as sql:
            if models.active(sql) is not None:
                sizes = self.sizes(sql)
                if sql.txn_state("main") != apsw.SQLITE_TXN_WRITE:  # it may be rolled back
                    self._settled = sizes
                return sizes
        with self._file.writing() as sql:
            if models.active(sql) is None:  # another process may have been faster
                name, digest, dimension = self._identity()
                self._activate(sql, self.register(sql, name, digest, dimension))
                self._put_sizes(sql, *self._automatic_sizes(name))
                self._put_precision(sql)
            return self.sizes(sql)

    def accepts(self, name: str, digest: str) -> bool:
        """Whether a new file may have this model: no embedder or other model was chosen for it."""
        return not (self._given or self._config.model) or self._identity()[:2] == (name, digest)

    def adopt(
        self, sql: apsw.Connection, model: ModelRow, size: int, overlap: int, precision: str
    ) -> ModelRow:
        """Give a new file the model, the chunk sizes and the precision of another one."""
        row = self.register(sql, *model[1:])
        self._activate(sql, row)
        self._put_sizes(sql, size, overlap)
        self._put_precision(sql, precision)
        return row

    def expected_precision(self, sql: apsw.Connection) -> str:
        """The type of the embeddings of the file, or the one that the first ingest chooses."""
        if models.active(sql) is not None:
            return models.precision(sql)
        return self._config.embeddings or PRECISIONS[0]

    def _put_precision(self, sql: apsw.Connection, other: str = PRECISIONS[0]) -> None:
        """Write the type of embeddings into a new file; `other` is that of a file it is made of.

        A file that says nothing has float32, as all had before there was a choice.
        """
        precision = self._config.embeddings or other
        if precision != PRECISIONS[0]:
            models.put_precision(sql, precision)

    def _put_sizes(self, sql: apsw.Connection, size: int, overlap: int) -> None:
        sql.execute(
            "INSERT INTO settings (name, value) VALUES ('chunk_size', ?), ('chunk_overlap', ?)",
            (str(size), str(overlap)),
        )

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
            index.create(sql, fixed.key)
        return fixed

    def complete(self) -> None:
        """Remove what is provisional if nothing waits any more.

        As after the deletion of the last document that did.
        """
        if self._file.read_only:
            return
        with contextlib.suppress(Damaged):  # a damaged file must open, so that it can be checked
            with self._file.reading(limited=False) as sql:
                done = self.provisional.is_done(sql)
            if done:
                with self._file.writing() as sql:
                    self.provisional.finish(sql)

    def pending(self, sql: apsw.Connection, model: ModelRow) -> int:
        """The number of chunks that wait for this model."""
        return sum(index.count_pending(sql, model.key) for index in self._indexes)

    def count_pending(self, sql: apsw.Connection, index: ChunkIndex, owners: Sequence[int]) -> int:
        """The number of chunks of these owners that wait for the active model."""
        model = models.active(sql)
        return index.count_pending(sql, model.key, owners) if model else 0

    def pending_by_owner(
        self, sql: apsw.Connection, index: ChunkIndex, owners: Sequence[int]
    ) -> dict[int, int]:
        """The numbers of chunks that wait for the active model, of those owners that have any."""
        model = models.active(sql)
        return index.pending_by_owner(sql, model.key, owners) if model else {}

    # What this machine has.

    def tokens(self) -> TokenPipeline:
        """The tokenizer that measures chunks: the model's, or the WordPiece of this package."""
        if self._tokens is None:
            from mcpvectordb.index import installed

            with self._file.reading(limited=False) as sql:
                name = self.expected_model(sql)[0]
            self._tokens = installed.tokenizer(self._config, name)
        return self._tokens

    def asked(
        self, text: str, mode: str, index: ChunkIndex, *, wait: bool = False
    ) -> tuple[Backlog, QueryEmbedding | str]:
        """What waits for its embedding, and that of a query, or the reason why there is none.

        A search by words alone ("text") needs neither.
        """
        if mode == "text":
            return Backlog(), ""
        backlog = self.backlog(index)
        return backlog, self.query_embedding(text, backlog, wait=wait or mode == "vector")

    def query_embedding(
        self, text: str, backlog: Backlog | None = None, *, wait: bool = False
    ) -> QueryEmbedding | str:
        """A query's embedding, or the reason why there is none.

        While all passages wait it is that by the provisional model, if they have such embeddings.
        With `wait` it waits for a model that is being loaded.
        """
        blind = is_non_latin(text)
        fast = None
        if backlog is not None and backlog.provisional:
            weight = BLIND_VECTOR_WEIGHT if blind else self._config.vector_weight
            fast = self.provisional.query(text, weight)
        if backlog is not None and backlog.pending and not backlog.embedded:
            return fast or backlog.note
        with self._file.reading() as sql:
            fixed = models.active(sql)
        if fixed is None:
            return "nothing has been ingested yet"
        if not wait and self.loading:
            return "the model is still loading; ask again in a moment"
        from mcpvectordb.index import installed

        try:
            with deadline.paused():
                embedder = self._embedder(fixed)
                vector = self._query_vector(embedder, fixed.key, text)
        except ModelError as error:
            return str(error)
        blind = blind and getattr(embedder, "latin_only", False)
        return QueryEmbedding(
            fixed.key,
            vector,
            BLIND_VECTOR_WEIGHT if blind else self._weight(embedder),
            installed.catalogued(fixed),
            provisional=fast,
        )

    def _query_vector(self, embedder: Embedder, model: int, text: str) -> bytes:
        """The embedding of a query; documents and memories are asked by the same one."""
        known = self._last_query
        if known is None or known[:2] != (model, text):
            known = model, text, checked(embedder, [text], query=True)[0].tobytes()
            self._last_query = known
        return known[2]

    def missing_reason(self) -> str:
        """Why the file's model is not available on this machine; "" if it is.

        The model is not loaded for that.
        """
        from mcpvectordb.index import installed

        with self._file.reading() as sql:
            fixed = models.active(sql)
        try:
            if fixed is not None and self._loaded is None:
                installed.locate(self._config, fixed)
            elif fixed is not None:
                self._embedder(fixed)
        except ModelError as error:
            return str(error)
        return ""

    def warm(self) -> None:
        """Load the model in a thread; then begin to embed in the background, if that is wanted.

        Until it is loaded, hybrid searches use words alone, and their results say so.
        """
        self._warming = threading.Thread(target=self._warm, name="mcpvectordb-warm", daemon=True)
        self._warming.start()

    def wait_for_model(self) -> None:
        """Wait until `warm` has loaded the model."""
        if self._warming is not None:
            self._warming.join()

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
        """Embed the chunks of one owner, in the background until the deadline; the error, or "".

        Chunks that still wait then, or will for a while, get a provisional embedding.
        """
        if self.background is None or deadline is None:
            try:
                return self.embed(index=index, owners=[owner], progress=progress), ""
            except ModelError as error:
                self.provisional.fill(index, [owner])
                return Embedded(), str(error)

        def count() -> int:
            with self._file.reading(limited=False) as sql:
                return self.count_pending(sql, index, [owner])

        self.provisional.fill(index, [owner], least=BATCH + 1)
        done = self.background.embed(index, owner, count, deadline, progress)
        if count():
            self.provisional.fill(index, [owner])
        return done

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
            model = model or models.active(sql)
            total = (
                sum(each.count_pending(sql, model.key, owners) for each in indexes) if model else 0
            )
        done = Embedded()
        if model is None or total == 0:
            self.complete()
            return done
        report = progress or (lambda _: None)
        for each in indexes:
            self.provisional.fill(
                each,
                owners,
                least=BATCH + 1,
                report=lambda: report(embed_progress(done, total)),
            )
        embedder = self._embedder(model)
        for each in indexes:
            most = getattr(embedder, "batch", BATCH)  # that of a server has a limit of its own
            while (some := self._embed_batch(each, model, embedder, owners, most)) is not None:
                if not some.chunks:  # other processes work on all that is left
                    time.sleep(POLL_SECONDS)
                done += some
                report(embed_progress(done, total))
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
            model = models.active(sql)
            if model is None or not index.count_pending(sql, model.key, owners):
                return None
            if alone and index.is_leased(sql, model.key):
                return Embedded()
        self.provisional.fill(index, owners, least=BATCH + 1)
        return self._embed_batch(index, model, self._embedder(model), owners, most)

    def _embed_batch(
        self,
        index: ChunkIndex,
        model: ModelRow,
        embedder: Embedder,
        owners: Sequence[int] | None,
        most: int,
    ) -> Embedded | None:
        """Lease a batch of the queue (`ChunkIndex.lease`), embed it outside of transactions, and
        store it; nothing if other processes have leased the rest, None if there is none.

        Chunks whose text is known get its embedding, beside the batch.
        """
        with self._file.writing() as sql:
            batch, copied = index.lease(sql, model.key, most, owners)
            if copied:
                self.provisional.finish(sql)
            if not batch and not copied and not index.count_pending(sql, model.key, owners):
                return None
        if not batch:
            return Embedded(chunks=copied)
        began, counted = time.monotonic(), getattr(embedder, "tokens_embedded", None)
        texts = list(dict.fromkeys(text for _, text in batch))
        try:
            vectors = dict(zip(texts, checked(embedder, texts), strict=True))
        except BaseException:
            # Also after an interrupt: then nobody has to wait until the lease ends.
            with self._file.writing() as sql:
                index.release(sql, model.key, [chunk for chunk, _ in batch])
            raise
        with self._file.writing() as sql:
            settled = index.settle(
                sql, model.key, ((chunk, vectors[text].tobytes()) for chunk, text in batch)
            )
            self.provisional.finish(sql)
        # An embedder of the user's own does not count tokens.
        tokens = (
            sum(map(self.tokens().count, texts))
            if counted is None
            else getattr(embedder, "tokens_embedded", counted) - counted
        )
        return Embedded(chunks=copied + settled, tokens=tokens, seconds=time.monotonic() - began)

    def backlog(self, index: ChunkIndex) -> Backlog:
        """How many chunks of an index wait for the active model, and what becomes of them."""
        with self._file.reading() as sql:
            model = models.active(sql)
            pending = index.count_pending(sql, model.key) if model else 0
            passages = index.count(sql) if pending else 0
            provisional = min(pending, self.provisional.count(sql, index)) if pending else 0
            # The server's searches need not look for what others do.
            leased = (
                self.background is None
                and model is not None
                and pending > 0
                and index.is_leased(sql, model.key)
            )
        return Backlog(
            passages=passages,
            pending=pending,
            provisional=provisional,
            outlook=self._outlook(leased) if pending else "",
        )

    def _outlook(self, leased: bool) -> str:
        """What becomes of chunks that wait; `leased` if somebody is embedding some."""
        failed = self.provisional.error
        return self._next_step(leased) + (f"; no provisional embeddings: {failed}" * bool(failed))

    def _next_step(self, leased: bool) -> str:
        if self.background is not None:
            failed = self.background.error
            return (
                f"embedding failed: {failed}" if failed else "embedding goes on in the background"
            )
        if leased:
            return "another process is embedding"
        if self._file.dialect.origins:
            return "they were embedded by another model, or not yet when they were published"
        return self.missing_reason() or "run `mcpvectordb embed`"

    def embed_texts(
        self, index: ChunkIndex, texts: Sequence[str], *, deadline: float | None = None
    ) -> tuple[int, dict[str, bytes]]:
        """The key of the active model, and its embeddings of texts that are about to be stored.

        Those that are not embedded at the deadline are missing. Raises ModelMissing if the model is
        not available on this machine, another ModelError if it failed.
        """
        with self._file.reading(limited=False) as sql:
            model = models.active(sql)
            if model is None:
                raise ModelMissing("the file has no model yet: settle it first")
            vectors = index.known(sql, model.key, texts)
        missing = [text for text in dict.fromkeys(texts) if text not in vectors]
        for batch in until(deadline, self._embedded_texts(model, missing)):
            vectors.update(batch)
        return model.key, vectors

    def embeddings(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """The embeddings of texts by the active model, a row for each; raises ModelError."""
        if isinstance(texts, str):
            raise InvalidInput("texts must be a list of strings, not one string")
        self.ensure_model()
        with self._file.reading(limited=False) as sql:
            model = models.active(sql)
        assert model is not None, "the file has a model now"  # noqa: S101
        embedder = self._embedder(model)
        # In batches, so that a long list does not take memory for all of its tokens at once.
        batches = range(0, max(len(texts), 1), BATCH)
        return np.concatenate(
            [checked(embedder, texts[start : start + BATCH], query=query) for start in batches]
        )

    def _embedded_texts(self, model: ModelRow, texts: Sequence[str]) -> Iterator[dict[str, bytes]]:
        """The embeddings of texts, a batch at a time."""
        for batch in (texts[start : start + BATCH] for start in range(0, len(texts), BATCH)):
            embedder = self._embedder(model)
            try:
                rows = checked(embedder, batch)
            except ModelError:
                raise
            except Exception as error:
                raise EmbeddingFailed(f"{embedder.name} failed: {error}") from error
            yield {text: row.tobytes() for text, row in zip(batch, rows, strict=True)}

    def use(self, name: str, progress: ProgressCallback | None = None) -> ModelRow:
        """Embed everything by another model and switch to it at the end.

        Until then searches use the old one.
        """
        from mcpvectordb.index import installed

        spec = installed.embedder(self._config, name)
        with self._file.writing() as sql:
            fast = models.provisional(sql)
            if fast and fast.digest == spec.digest:
                self.provisional.drop(sql)
            new = self.register(sql, spec.name, spec.digest, spec.dimension)
        while True:
            self.embed(model=new, progress=progress)
            with self._file.writing() as sql:
                if self.pending(sql, new) == 0:  # no text was added since
                    self._activate(sql, new)
                    break
        self._loaded, self._tokens = None, None
        return new

    def _activate(self, sql: apsw.Connection, model: ModelRow) -> None:
        self.provisional.drop(sql)
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
                from mcpvectordb.index import installed

                self._loaded = installed.load(self._config, fixed)
            return self._loaded

    def _weight(self, embedder: Embedder) -> float:
        wanted = self._config.vector_weight
        return (
            getattr(embedder, "vector_weight", DEFAULT_VECTOR_WEIGHT) if wanted is None else wanted
        )

    def _warm(self) -> None:
        with contextlib.suppress(ModelError, Closed):  # the first search reports what is wrong
            with self._file.reading(limited=False) as sql:
                fixed = models.active(sql)
            if fixed is not None:
                checked(self._embedder(fixed), ["warm"], query=True)
        if self.background is not None:
            self.background.ask()

    def _identity(self) -> tuple[str, str, int]:
        """Name, digest and dimension of the model that a new file gets."""
        if self._given is not None:
            return self._given.name, _digest(self._given), self._given.dimension
        from mcpvectordb.index import installed

        spec = installed.chosen(self._config)
        return spec.name, spec.digest, spec.dimension

    def _automatic_sizes(self, name: str) -> tuple[int, int]:
        if self._config.chunk_size:
            return self._config.chunk_size, self._config.chunk_overlap
        return STANDARD_SIZE, self._config.chunk_overlap

    def close(self) -> None:
        """End what goes on in the background, and release the model."""
        if self.background is not None:
            self.background.close()
        self.provisional.close()
        if self._loaded is not None and self._loaded is not self._given:
            close = getattr(self._loaded, "close", None)
            if close:
                close()


def _digest(embedder: Embedder) -> str:
    return str(getattr(embedder, "digest", ""))
