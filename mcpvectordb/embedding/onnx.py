"""Models run by ONNX Runtime: nothing is loaded before it is needed, and never before its digest is
checked.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mcpvectordb.embedding import pooling
from mcpvectordb.embedding.catalogue import Kind, Model
from mcpvectordb.embedding.tokenizer import TokenPipeline
from mcpvectordb.embedding.weights import verify
from mcpvectordb.errors import EmbeddingFailed, InvalidInput

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")
R = TypeVar("R")

MAX_PARTS = 8  # of a text that is longer than a model can see: enough for the longest chunk


class OnnxModel:
    """A model of the catalogue with its files: tokenizer and graph, each loaded on first use, once
    for all threads.
    """

    kind: Kind

    def __init__(
        self, model: Model, files: Mapping[str, Path], *, threads: int | None = None
    ) -> None:
        if model.kind != self.kind:
            raise InvalidInput(f"{model.name} is a model of the kind {model.kind}, not {self.kind}")
        self.model = model
        self.name = model.name
        self.digest = model.digest
        self.max_tokens = model.max_tokens
        self.threads = threads or processors()
        self._files = files
        self._tokens = _Once(self._load_tokens)
        self._graph = _Once(self._load_graph)

    @property
    def tokens(self) -> TokenPipeline:
        """The model's tokenizer."""
        return self._tokens.get()

    def run(self, ids: Sequence[int], types: Sequence[int] | None = None) -> NDArray[Any]:
        """The graph's output for one text or pair, given as token ids and, for a pair, type ids."""
        return self._graph.get().run(ids, types)

    def close(self) -> None:
        """Let go of the graph and its memory; the next text would load it again."""
        self._graph.forget()

    def _load_tokens(self) -> TokenPipeline:
        verify(self._files["tokenizer"], self.model.files["tokenizer"])
        return TokenPipeline(self._files["tokenizer"])

    def _load_graph(self) -> _Graph:
        for role, path in self._files.items():
            if role != "tokenizer":
                verify(path, self.model.files[role])
        return _Graph(self.name, self._files["model"])


class OnnxEmbedder(OnnxModel):
    """An Embedder on ONNX Runtime: `OnnxEmbedder(model, weights.locate(model, folder))`.

    Each text is a run of its own and `threads` runs (as many as there are processors) go on at
    once. That is as fast as batches, wastes nothing on padding, and a vector never depends on its
    company, as it does when an int8 graph scales a whole batch together.
    """

    kind = "embedder"

    def __init__(
        self, model: Model, files: Mapping[str, Path], *, threads: int | None = None
    ) -> None:
        super().__init__(model, files, threads=threads)
        self.dimension = model.dimension
        self.vector_weight = model.vector_weight
        self.latin_only = model.latin_only

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """One unit vector per text, in their order; that of a text beyond `max_tokens` is the mean
        of its first 8 parts'.
        """
        import numpy as np

        prefix = self.model.query_prefix if query else self.model.document_prefix
        # The longest first: no thread starts on a long text when the others are done.
        distinct = sorted(set(texts), key=len, reverse=True)
        found = spread(lambda text: self._vector(prefix + text), distinct, self.threads)
        vectors = dict(zip(distinct, found, strict=True))
        return np.array([vectors[text] for text in texts], np.float32).reshape(
            len(texts), self.dimension
        )

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
        if output.ndim not in (2, 3) or output.shape[-1] < self.dimension:
            raise EmbeddingFailed(
                f"{self.name} gave an output of shape {output.shape}, "
                f"which makes no vector of {self.dimension} values"
            )
        how, norm = self.model.pooling, self.model.layer_norm
        vector: NDArray[np.float32] = pooling.vectors(
            output, pooling=how, layer_norm=norm, dimension=self.dimension
        )[0]
        return vector


class _Graph:
    """An ONNX Runtime session that threads may share: each run uses the thread it is called from
    and no other.
    """

    def __init__(self, name: str, path: Path) -> None:
        import onnxruntime

        onnxruntime.disable_telemetry_events()
        onnxruntime.set_default_logger_severity(
            4
        )  # what goes wrong is raised; stderr belongs to the program
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise EmbeddingFailed(
                f"ONNX Runtime {onnxruntime.__version__} cannot load {path}: {error}"
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


class _Once(Generic[T]):
    """A value that is made when it is first asked for, by one thread while the others wait."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._value: T | None = None

    def get(self) -> T:
        with self._lock:
            if self._value is None:
                self._value = self._make()
            return self._value

    def forget(self) -> None:
        with self._lock:
            self._value = None


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(work: Callable[[T], R], items: Sequence[T], threads: int) -> list[R]:
    """`work` on each item, on so many threads; the results in the items' order.

    Only a few items wait in the pool at any time, because Python finishes what is in a pool before
    it exits: an interrupt or the end of the program then waits for the items being worked on and no
    more.
    """
    from concurrent.futures import ThreadPoolExecutor

    if threads == 1 or len(items) < 2:
        return [work(item) for item in items]
    done: list[R] = []
    waiting: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix="embed")
    try:
        for item in items:
            if len(waiting) == 2 * threads:
                done.append(waiting.popleft().result())
            waiting.append(pool.submit(work, item))
        return done + [each.result() for each in waiting]
    finally:
        pool.shutdown(cancel_futures=True)
