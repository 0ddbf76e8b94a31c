"""Embedders: the protocol, which users may implement, and those that run on this machine.

Encoders and rerankers run on ONNX Runtime. A static model (model2vec) has one vector per token,
and a text's is the mean of its tokens': there is no network to run, so a passage takes half a
millisecond where an encoder takes fifty. Files are verified, then loaded on first use.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mcpvectordb.embedding.catalogue import Model, ModelKind, Pooling
from mcpvectordb.embedding.tokenizer import TokenPipeline, tokenizer_of
from mcpvectordb.embedding.weights import GraphCache, verify
from mcpvectordb.errors import EmbeddingFailed, InvalidInput, ModelDamaged
from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from concurrent.futures import Future

    from numpy.typing import NDArray

T = TypeVar("T")
R = TypeVar("R")

SMALLEST_NORM, LARGEST_NORM = 1e-6, 1e6

MAX_PARTS = 8
"""Most parts that a text above `max_tokens` is split into: enough for the longest chunk."""

KEEP_AFTER = 64
"""Texts that a process embeds before it keeps the optimized graph."""

# The default of torch.nn.functional.layer_norm, with which the models were trained.
LAYER_NORM_EPSILON = 1e-5

TENSOR = "embeddings"  # the only one in the file of a static model
MOST_HEADER_BYTES = 1_000_000


class Embedder(Protocol):
    """Turns texts into vectors; pass one to `Database(path, embedder=...)` to use your own model.

    `name` identifies the model in the file, so change it whenever the vectors change. `embed` must
    always return the same vector for the same text; `query` is true for queries and false for
    passages, for models that treat the two differently.
    """

    @property
    def name(self) -> str:
        """The name that is stored with the vectors."""

    @property
    def dimension(self) -> int:
        """The number of values of a vector."""

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Return one row per text, in their order: float32 of shape [len(texts), dimension]."""


def checked(
    embedder: Embedder, texts: Sequence[str], *, query: bool = False
) -> NDArray[np.float32]:
    """Return the texts' vectors, float32 and C-contiguous; EmbeddingFailed for unusable ones."""
    if not texts:
        return np.empty((0, embedder.dimension), np.float32)
    found: Any = embedder.embed(texts, query=query)
    try:
        vectors = np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise EmbeddingFailed(f"{embedder.name} gave no array of numbers: {error}") from error
    if vectors.shape != (len(texts), embedder.dimension):
        raise EmbeddingFailed(
            f"{embedder.name} gave an array of shape {vectors.shape} for "
            f"{len(texts)} texts; it must be {(len(texts), embedder.dimension)}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(vectors, axis=1)
    # NaN compares false with both bounds, so it fails as well.
    usable = (norms >= SMALLEST_NORM) & (norms <= LARGEST_NORM)
    if not usable.all():
        first = int(np.argmin(usable))
        text = texts[first] if len(texts[first]) <= 60 else texts[first][:60] + "…"
        raise EmbeddingFailed(
            f"{embedder.name} gave a vector that cannot be ranked (its length is {norms[first]:g}, "
            f"not {SMALLEST_NORM:g} to {LARGEST_NORM:g}) for the text {text!r}"
        )
    return np.ascontiguousarray(vectors, dtype=np.float32)


class LocalModel:
    """A model with its files."""

    def __init__(self, model: Model, files: Mapping[str, Path]) -> None:
        self.model = model
        self.name, self.digest, self.dimension = model.name, model.digest, model.dimension
        self.max_tokens = model.max_tokens
        self.vector_weight, self.latin_only = model.vector_weight, model.latin_only
        self.tokens_embedded = 0
        """How many tokens went through the model so far; texts are not tokenized again for that."""
        self._files = files
        self._loading = threading.Lock()

    @cached_property
    def tokens(self) -> TokenPipeline:
        """The model's tokenizer."""
        self._verify("tokenizer")
        return tokenizer_of(self._files["tokenizer"])

    def _verify(self, role: str) -> None:
        verify(self._files[role], self.model.files[role])


class OnnxModel(LocalModel):
    """A model on ONNX Runtime; its graph is loaded on first use, once for all threads.

    As many runs as there are processors are executed in parallel. `cache` is a folder for its
    optimized graph (see `GraphCache`); without one none is kept.
    """

    kind: ModelKind

    def __init__(
        self, model: Model, files: Mapping[str, Path], *, cache: Path | None = None
    ) -> None:
        if model.kind != self.kind:
            raise InvalidInput(f"{model.name} is a model of the kind {model.kind}, not {self.kind}")
        super().__init__(model, files)
        self.threads = processors()
        self._cache = GraphCache(cache, model.digest, model.assembly) if cache else None
        self._graph: _Graph | None = None
        self._texts_embedded = 0
        self._counting = threading.Lock()

    def run(self, ids: Sequence[int], types: Sequence[int] | None = None) -> NDArray[Any]:
        """Return the graph's output for token ids; a pair of texts has type ids as well."""
        with self._loading:
            graph = self._graph = self._graph or self._load_graph()
        return graph.run(ids, types)

    def close(self) -> None:
        """Release the graph and its memory; the next text loads it again."""
        with self._loading:
            self._graph = None

    def _each(self, work: Callable[[str], R], texts: Sequence[str]) -> list[R]:
        """What `work` makes of each text, once for equal ones, on all threads."""
        # The longest first, so that no thread starts a long text when the others are done.
        distinct = sorted(set(texts), key=len, reverse=True)
        found = dict(zip(distinct, spread(work, distinct, self.threads), strict=True))
        return [found[text] for text in texts]

    def _load_graph(self) -> _Graph:
        # The variable is read at the import, which would otherwise leave files in the home folder
        # and look up a host of Microsoft; processes that are started later inherit it.
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"
        import onnxruntime

        onnxruntime.disable_telemetry_events()
        if (kept := self._kept_graph()) is not None:
            return kept
        for role in self._files:
            if role != "tokenizer":
                self._verify(role)
        graph = self._own_graph()
        if self._cache and self.model.assembly and not self.model.has_graph:
            self._cache.keep(graph)  # so that no other process has to assemble it, which is slow
            return self._kept_graph() or _Graph(self.name, graph)
        return _Graph(self.name, graph)

    def _own_graph(self) -> Path | bytes:
        """The model's graph, not optimized yet: a file, or the content of one."""
        if not self.model.assembly:
            return self._files["model"]
        from mcpvectordb.embedding.encoder_graph import assemble

        return assemble(self._files["model"])

    def _kept_graph(self) -> _Graph | None:
        """The optimized graph of the cache; None if there is none, or if it cannot be loaded."""
        with suppress(EmbeddingFailed):
            if self._cache and (optimized := self._cache.find()):
                return _Graph(self.name, optimized, optimized=True)
        return None


class OnnxEmbedder(OnnxModel):
    """An Embedder on ONNX Runtime: `OnnxEmbedder(model, weights.locate(model, folder))`.

    Each text is a separate run. That is as fast as batches and needs no padding, and a vector does
    not depend on the other texts, as it does in batches of an int8 graph with dynamic quantization.
    """

    kind = "embedder"

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Return one unit vector per text, in their order.

        The vector of a text above `max_tokens` is the mean of the vectors of its first 8 parts.
        """
        prefix = self.model.query_prefix if query else self.model.document_prefix
        vectors = self._each(lambda text: self._vector(prefix + text), texts)
        if not query:
            self._keep_graph(len(set(texts)))
        return np.array(vectors, np.float32).reshape(len(texts), self.dimension)

    def _keep_graph(self, texts: int) -> None:
        """Keep the optimized graph, once so many texts were embedded that it costs next to nothing.

        A search keeps none: it should neither take longer nor leave anything on the machine.
        """
        with self._counting:
            self._texts_embedded += texts
            cache = self._cache if self._texts_embedded >= KEEP_AFTER else None
            self._cache = None if cache else self._cache
        if cache:
            cache.keep(self._own_graph())

    def _vector(self, text: str) -> NDArray[np.float32]:
        model, parts = self.model, []
        for ids in self.tokens.encode_parts(text, self.max_tokens, MAX_PARTS):
            output = self.run(ids)
            with self._counting:
                self.tokens_embedded += len(ids)
            if output.ndim not in (2, 3) or output.shape[-1] < self.dimension:
                raise EmbeddingFailed(
                    f"{self.name} gave an output of shape {output.shape}, "
                    f"which makes no vector of {self.dimension} values"
                )
            parts.append(pooled(output, model.pooling, model.layer_norm, self.dimension))
        if len(parts) > 1:
            mean: NDArray[np.float64] = np.array(parts).mean(axis=0, dtype=np.float64)
            parts = [unit(mean).astype(np.float32)]
        vector: NDArray[np.float32] = parts[0][0]
        return vector


class Reranker(OnnxModel):
    """A cross-encoder on ONNX Runtime, which reads a query and a passage together.

    Each pair is a separate run, so its score does not depend on other pairs and needs no padding.
    """

    kind = "reranker"

    def logits(self, query: str, passages: Sequence[str]) -> list[float]:
        """Return the logit per passage, higher is better; long passages are truncated."""
        return self._each(lambda passage: self._logit(query, passage), passages)

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


class StaticEmbedder(LocalModel):
    """An Embedder by a table of token vectors: `StaticEmbedder(model, weights.locate(...))`.

    The table is mapped into memory: processes share it, and only the rows of tokens that occur are
    read.
    """

    def __init__(self, model: Model, files: Mapping[str, Path]) -> None:
        super().__init__(model, files)
        self._table: NDArray[np.float32] | None = None

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Return one unit vector per text, in their order; queries are embedded as passages are."""
        with self._loading:
            if self._table is None:
                self._verify("model")
                self._table = read_table(self._files["model"], self.dimension)
            table, tokens = self._table, self.tokens
        rows = np.empty((len(texts), self.dimension))
        for row, text in zip(rows, texts, strict=True):
            ids = tokens.known(text, self.max_tokens)
            # A text of nothing that the vocabulary knows still has a place: that of [UNK].
            row[:] = table[ids or [tokens.unknown]].mean(axis=0, dtype=np.float64)
            self.tokens_embedded += len(ids)
        return unit(rows).astype(np.float32)

    def close(self) -> None:
        """Release the table; the next text loads it again."""
        with self._loading:
            self._table = None


def read_table(path: Path, dimension: int) -> NDArray[np.float32]:
    """The matrix [tokens, dimension] of a safetensors file that holds nothing else, mapped.

    Such a file is read as data: eight bytes with the length of a JSON header, the header with the
    type, shape and place of each tensor, then the numbers.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(MOST_HEADER_BYTES, size - 8):
            raise ModelDamaged(f"{path} is not a safetensors file: its header has {length} bytes")
        text = file.read(length)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ModelDamaged(f"{path} has a header that is not a JSON object: {error}") from error
    bytes_of_values = size - 8 - length
    rows = bytes_of_values // (4 * dimension)
    expected = {"dtype": "F32", "shape": [rows, dimension], "data_offsets": [0, bytes_of_values]}
    if header != {TENSOR: expected} or not rows:
        raise ModelDamaged(
            f"{path} does not hold one table of float32 vectors of {dimension} values: {header}"
        )
    return np.memmap(path, np.float32, "r", offset=8 + length, shape=(rows, dimension))


def pooled(
    output: NDArray[Any], pooling: Pooling, layer_norm: bool, dimension: int
) -> NDArray[np.float32]:
    """Return unit vectors from a graph's output: [n, tokens, width], or [n, width] if pooled.

    They are computed in float64. Texts are run one at a time, so there is no padding and every
    token counts: a vector is the mean of its tokens' vectors, or the first token's. With
    `layer_norm` it is shifted and scaled to mean 0 and variance 1 before it is cut to `dimension`.
    """
    vectors: NDArray[np.float64] = output.astype(np.float64)
    if vectors.ndim == 3:
        vectors = vectors.mean(axis=1) if pooling == "mean" else vectors[:, 0]
    if layer_norm:
        vectors = vectors - vectors.mean(axis=1, keepdims=True)
        variance = (vectors**2).mean(axis=1, keepdims=True)
        vectors = vectors / (variance + LAYER_NORM_EPSILON) ** 0.5
    return unit(vectors[:, :dimension]).astype(np.float32)


def unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each row scaled to length 1; a row of zeros stays zero."""
    lengths = (rows**2).sum(axis=1, keepdims=True) ** 0.5
    scaled: NDArray[np.float64] = rows / (lengths + (lengths == 0))
    return scaled


def sigmoid(log_odds: float) -> float:
    """Return the probability, 0 to 1, for log odds."""
    odds = math.exp(-abs(log_odds))  # at most 1: no exponent is too large
    return (1 if log_odds >= 0 else odds) / (1 + odds)
