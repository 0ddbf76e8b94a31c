"""The queue of chunks that wait for a model: leased, embedded outside of transactions, stored.

The queue itself is a table of the file (`ChunkIndex.lease`): several processes share it, the newest
chunks come first, equal texts are embedded once, and the lease of a killed process ends by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from mcpvectordb.embedding.embedder import Embedder, checked
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.models import ModelRow
from mcpvectordb.index.provisional import ProvisionalEmbedder
from mcpvectordb.records import Embedded
from mcpvectordb.storage.file import File

BATCH = 32  # texts that are embedded at once: an interrupt waits for one batch at most
POLL_SECONDS = 0.1  # between looks for pending chunks that other processes have leased


class EmbeddingQueue:
    """Embeds pending chunks; `count_tokens` is for embedders that do not count theirs."""

    def __init__(
        self, file: File, provisional: ProvisionalEmbedder, count_tokens: Callable[[str], int]
    ) -> None:
        self._file, self._provisional, self._count_tokens = file, provisional, count_tokens

    def embed_all(
        self,
        index: ChunkIndex,
        model: ModelRow,
        embedder: Embedder,
        owners: Sequence[int] | None = None,
    ) -> Iterator[Embedded]:
        """Embed until no chunk (of these owners, if given) is pending; what each batch has added.

        While other processes work on all that is left, it waits for them.
        """
        most = getattr(embedder, "batch", BATCH)  # that of a server has a limit of its own
        while (some := self.embed_some(index, model, embedder, owners, most)) is not None:
            if not some.chunks:
                time.sleep(POLL_SECONDS)
            yield some

    def embed_some(
        self,
        index: ChunkIndex,
        model: ModelRow,
        embedder: Embedder,
        owners: Sequence[int] | None = None,
        most: int = BATCH,
    ) -> Embedded | None:
        """Embed one batch; nothing if other processes have leased the rest, None if there is none.

        Chunks whose text is known get its embedding, beside the batch.
        """
        with self._file.writing() as sql:
            batch, copied = index.lease(sql, model.key, most, owners)
            if copied:
                self._provisional.finish(sql)
            if not batch and not copied and not index.count_pending(sql, model.key, owners):
                return None
        done = Embedded(chunks=copied)
        return done + self._embed(index, model, embedder, batch) if batch else done

    def _embed(
        self, index: ChunkIndex, model: ModelRow, embedder: Embedder, batch: list[tuple[int, str]]
    ) -> Embedded:
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
            self._provisional.finish(sql)
        # An embedder of the user's own does not count tokens.
        tokens = (
            sum(map(self._count_tokens, texts))
            if counted is None
            else getattr(embedder, "tokens_embedded", counted) - counted
        )
        return Embedded(chunks=settled, tokens=tokens, seconds=time.monotonic() - began)
