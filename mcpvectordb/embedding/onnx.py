"""Embedders and rerankers on ONNX Runtime, loaded on first use after their digests are verified."""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mcpvectordb.embedding import pooling
from mcpvectordb.embedding.catalogue import Model, ModelKind
from mcpvectordb.embedding.graph_cache import GraphCache
from mcpvectordb.embedding.pooling import sigmoid
from mcpvectordb.embedding.tokenizer import TokenPipeline, tokenizer_of
from mcpvectordb.embedding.weights import verify
from mcpvectordb.errors import EmbeddingFailed, InvalidInput

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")
R = TypeVar("R")

MAX_PARTS = 8
"""Most parts that a text above `max_tokens` is split into: enough for the longest chunk."""

KEEP_AFTER = 64
"""Texts that a process embeds before it keeps the optimized graph."""


class OnnxModel:
    """A model with its files; tokenizer and graph are loaded on first use, once for all threads.

    `cache` is a folder for its optimized graph (see `graph_cache`); without one none is kept.
    """

    kind: ModelKind

    def __init__(
        self,
        model: Model,
        files: Mapping[str, Path],
        *,
        threads: int | None = None,
        cache: Path | None = None,
    ) -> None:
        if model.kind != self.kind:
            raise InvalidInput(f"{model.name} is a model of the kind {model.kind}, not {self.kind}")
        self.model = model
        self.name = model.name
        self.digest = model.digest
        self.max_tokens = model.max_tokens
        self.threads = threads or processors()
        self._files = files
        self._cache = GraphCache(cache, model.digest) if cache else None
        self._loading = threading.Lock()
        self._graph: _Graph | None = None

    @cached_property
    def tokens(self) -> TokenPipeline:
        """The model's tokenizer."""
        verify(self._files["tokenizer"], self.model.files["tokenizer"])
        return tokenizer_of(self._files["tokenizer"])

    def run(self, ids: Sequence[int], types: Sequence[int] | None = None) -> NDArray[Any]:
        """Return the graph's output for token ids; a pair of texts has type ids as well."""
        with self._loading:
            graph = self._graph = self._graph or self._load_graph()
        return graph.run(ids, types)

    def close(self) -> None:
        """Release the graph and its memory; the next text loads it again."""
        with self._loading:
            self._graph = None

    def _load_graph(self) -> _Graph:
        _disable_telemetry()
        if (kept := self._kept_graph()) is not None:
            return kept
        for role, path in self._files.items():
            if role != "tokenizer":
                verify(path, self.model.files[role])
        if not self.model.assembly:
            return _Graph(self.name, self._files["model"])
        from mcpvectordb.embedding.encoder_graph import assemble

        assembled = assemble(self._files["model"])
        if self._cache:
            self._cache.keep(assembled)  # so that no other process has to assemble it
        return self._kept_graph() or _Graph(self.name, assembled)

    def _kept_graph(self) -> _Graph | None:
        """The optimized graph of the cache; None if there is none, or if it cannot be loaded."""
        with suppress(EmbeddingFailed):
            if self._cache and (optimized := self._cache.find()):
                return _Graph(self.name, optimized, optimized=True)
        return None


class OnnxEmbedder(OnnxModel):
    """An Embedder on ONNX Runtime: `OnnxEmbedder(model, weights.locate(model, folder))`.

    Each text is a separate run, and `threads` runs (default: the number of processors) are
    executed in parallel. That is as fast as batches and needs no padding, and a vector does not
    depend on the other texts, as it does in batches of an int8 graph with dynamic quantization.
    """

    kind = "embedder"

    def __init__(
        self,
        model: Model,
        files: Mapping[str, Path],
        *,
        threads: int | None = None,
        cache: Path | None = None,
    ) -> None:
        super().__init__(model, files, threads=threads, cache=cache)
        self.dimension = model.dimension
        self.vector_weight = model.vector_weight
        self.latin_only = model.latin_only
        self.tokens_embedded = 0
        """How many tokens went through the model so far; texts are not tokenized again for that."""
        self._texts_embedded = 0
        self._counting = threading.Lock()

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Return one unit vector per text, in their order.

        The vector of a text above `max_tokens` is the mean of the vectors of its first 8 parts.
        """
        import numpy as np

        prefix = self.model.query_prefix if query else self.model.document_prefix
        # The longest first, so that no thread starts a long text when the others are done.
        distinct = sorted(set(texts), key=len, reverse=True)
        found = spread(lambda text: self._vector(prefix + text), distinct, self.threads)
        vectors = dict(zip(distinct, found, strict=True))
        if not query:
            self._keep_graph(len(distinct))
        return np.array([vectors[text] for text in texts], np.float32).reshape(
            len(texts), self.dimension
        )

    def _keep_graph(self, texts: int) -> None:
        """Keep the optimized graph, once so many texts were embedded that it costs next to nothing.

        A search keeps none: it should neither take longer nor leave anything on the machine.
        """
        with self._counting:
            self._texts_embedded += texts
            cache = self._cache if self._texts_embedded >= KEEP_AFTER else None
            self._cache = None if cache else self._cache
        if cache and not self.model.assembly:  # an assembled graph is kept at once
            cache.keep(self._files["model"])

    def _vector(self, text: str) -> NDArray[np.float32]:
        import numpy as np

        parts = [
            self._part(ids) for ids in self.tokens.encode_parts(text, self.max_tokens, MAX_PARTS)
        ]
        if len(parts) == 1:
            return parts[0]
        whole: NDArray[np.float32] = pooling.unit(
            np.mean(parts, axis=0, dtype=np.float64, keepdims=True)
        )[0].astype(np.float32)
        return whole

    def _part(self, ids: Sequence[int]) -> NDArray[np.float32]:
        output = self.run(ids)
        with self._counting:
            self.tokens_embedded += len(ids)
        if output.ndim not in (2, 3) or output.shape[-1] < self.dimension:
            raise EmbeddingFailed(
                f"{self.name} gave an output of shape {output.shape}, "
                f"which makes no vector of {self.dimension} values"
            )
        vector: NDArray[np.float32] = pooling.vectors(
            output,
            pooling=self.model.pooling,
            layer_norm=self.model.layer_norm,
            dimension=self.dimension,
        )[0]
        return vector


class _Graph:
    """An ONNX Runtime session that threads may share; a run uses only its caller's thread."""

    def __init__(self, name: str, graph: Path | bytes, *, optimized: bool = False) -> None:
        import onnxruntime

        # Errors are raised, so the library need not write to the program's stderr.
        onnxruntime.set_default_logger_severity(4)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        if optimized:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            self._session = onnxruntime.InferenceSession(
                graph, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            what = graph if isinstance(graph, Path) else f"the graph of {name}"
            raise EmbeddingFailed(
                f"ONNX Runtime {onnxruntime.__version__} cannot load {what}: {error}"
            ) from error
        self._name = name
        self._inputs = {
            each.name: "int32" if "int32" in each.type else "int64"
            for each in self._session.get_inputs()
        }
        outputs = [each.name for each in self._session.get_outputs()]
        self._output = "sentence_embedding" if "sentence_embedding" in outputs else outputs[0]

    def run(self, ids: Sequence[int], types: Sequence[int] | None) -> NDArray[Any]:
        import numpy as np

        values = {
            "input_ids": ids,
            "attention_mask": [1] * len(ids),
            "token_type_ids": types or [0] * len(ids),
        }
        try:
            feed = {name: np.array([values[name]], kind) for name, kind in self._inputs.items()}
            output: NDArray[Any] = self._session.run([self._output], feed)[0]
        except KeyError as error:
            raise EmbeddingFailed(
                f"the graph of {self._name} needs an input {error}, which is not known"
            ) from None
        except Exception as error:
            raise EmbeddingFailed(
                f"{self._name} failed on a text of {len(ids)} tokens: {error}"
            ) from error
        return output


def _disable_telemetry() -> None:
    """Import ONNX Runtime without its telemetry.

    The variable is read at the import, which would otherwise leave files in the home folder and
    look up a host of Microsoft; processes that are started later inherit it.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    onnxruntime.disable_telemetry_events()


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(work: Callable[[T], R], items: Sequence[T], threads: int) -> list[R]:
    """Return `work(item)` for each item in order, computed on so many threads.

    Only a few items are queued at any time, because Python finishes a pool's queue before it exits:
    so an interrupt or the end of the program waits only for the items in progress.
    """
    from concurrent.futures import ThreadPoolExecutor

    if threads == 1 or len(items) < 2:
        return [work(item) for item in items]
    done: list[R] = []
    queued: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix="embed")
    try:
        for item in items:
            if len(queued) == 2 * threads:
                done.append(queued.popleft().result())
            queued.append(pool.submit(work, item))
        return done + [each.result() for each in queued]
    finally:
        pool.shutdown(cancel_futures=True)


class Reranker(OnnxModel):
    """A cross-encoder on ONNX Runtime, which reads a query and a passage together.

    Each pair is a separate run, so its score does not depend on other pairs and needs no padding.
    """

    kind = "reranker"

    def logits(self, query: str, passages: Sequence[str]) -> list[float]:
        """Return the logit per passage, higher is better; long passages are truncated."""
        # The longest first, so that all threads end at about the same time.
        distinct = sorted(set(passages), key=len, reverse=True)
        found = spread(lambda passage: self._logit(query, passage), distinct, self.threads)
        by_passage = dict(zip(distinct, found, strict=True))
        return [by_passage[passage] for passage in passages]

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """Return how well each passage answers the query, 0 to 1."""
        return [sigmoid(logit) for logit in self.logits(query, passages)]

    def _logit(self, query: str, passage: str) -> float:
        output = self.run(*self.tokens.encode_pair(query, passage, self.max_tokens))
        logit = float(output.reshape(-1)[0])
        if output.size != 1 or not math.isfinite(logit):
            raise EmbeddingFailed(
                f"{self.name} gave {output.reshape(-1)[:4]} instead of one finite number for a pair"
            )
        return logit
