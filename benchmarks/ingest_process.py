"""One ingest in a process of its own: `python -m benchmarks.ingest_process ours FOLDER DATABASE
[MODEL]` or `… raw TEXTS.json [MODEL]`.

`ours` brings a folder in with a model (by default the best installed) and also tells which texts
were embedded. `raw` runs the same model's ONNX session on texts and does nothing else: each text by
itself on a processor of its own, and in batches where its graph takes several. Then it multiplies
matrices of the sizes of the model's on one processor: that is what the machine can do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import embeddings
from benchmarks.engines.clocks import peak, timed
from mcpvectordb import Database
from mcpvectordb.embedding.embedder import OnnxEmbedder, processors
from mcpvectordb.embedding.encoder_graph import FLOAT, OnnxGraph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH = 32
LONGEST = 256  # tokens that are seen at once
ALONE, IN_BATCHES = "session alone, one by one", "session alone, in batches"
PRODUCTS = {"products alone, float32": False, "products alone, int8": True}
# Of models whose layers have matrices of 12 times the square of the vector's size.
LAYERS = {"all-MiniLM-L6-v2": 6, "bge-small-en-v1.5": 12, "multilingual-e5-small": 12}

Feed = dict[str, Any]


class Listening:
    """The embedder that was installed, and the texts that it was asked for."""

    def __init__(self, embedder: OnnxEmbedder) -> None:
        self.name, self.dimension, self.digest = embedder.name, embedder.dimension, embedder.digest
        self.texts: list[str] = []
        self._embedder = embedder

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Its vectors."""
        self.texts += texts
        return self._embedder.embed(texts, query=query)


def ours(folder: Path, database: Path, model: str = "") -> dict[str, Any]:
    """Ingest a folder into a new file, embedded; the model is loaded before."""
    embedder = Listening(embeddings.installed(model))
    embedder.embed(["warm"])
    embedder.texts.clear()
    with Database(database, embedder=embedder) as db:
        db.documents.add_library("files", folder)
        figures = timed([lambda: db.documents.sync()[0].failures])
        chunks = db.stats().chunks
    return {
        "chunks": chunks,
        "wall": figures["wall"][0],
        "cpu": figures["cpu"][0],
        "peak": peak(),
        "texts": embedder.texts,
    }


def raw(texts: list[str], model: str = "") -> dict[str, Any]:
    """Run the model's session on all texts, and products of the same sizes."""
    embedder = embeddings.installed(model)
    tokens = [embedder.tokens.encode(text, LONGEST) for text in texts]
    graph, sizes = embedder._own_graph(), list(map(len, tokens))
    works = {ALONE: _all(graph, [_feed([ids]) for ids in tokens], processors(), 1)}
    if isinstance(graph, Path):  # one that is assembled takes a text at a time
        ordered = sorted(tokens, key=len)
        batches = [_feed(ordered[start : start + BATCH]) for start in range(0, len(ordered), BATCH)]
        works[IN_BATCHES] = _all(graph, batches, 1, processors())
    layers, width = LAYERS[embedder.name], embedder.dimension
    for name, whole in PRODUCTS.items():
        works[name] = _all(_products(width, layers, whole), _random(sizes, width), 1, 1)
    figures = timed(works.values())
    return {
        "chunks": len(texts),
        "tokens": sum(sizes),
        "gflop": 2e-9 * 12 * width**2 * layers * sum(sizes),
        "ways": {
            name: {"wall": wall, "cpu": cpu}
            for name, wall, cpu in zip(works, figures["wall"], figures["cpu"], strict=True)
        },
        "peak": peak(),
    }


def _all(graph: Path | bytes, feeds: list[Feed], workers: int, threads: int) -> Callable[[], None]:
    """Work that runs a session of so many threads on every feed, by so many workers."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}
    known = [{name: feed[name] for name in names} for feed in feeds]
    session.run(None, known[0])

    def work() -> None:
        with ThreadPoolExecutor(workers) as pool:
            for _ in pool.map(lambda feed: len(session.run(None, feed)), known):
                pass

    return work


def _products(width: int, layers: int, whole: bool) -> bytes:
    """A graph of the products of an encoder's layers, in int8 or float32, and nothing between."""
    import numpy as np

    graph, values, random = OnnxGraph(), "values", np.random.default_rng(1)
    for _ in range(layers):
        for inputs, outputs in ((1, 3), (1, 1), (1, 4), (4, 1)):
            shape = inputs * width, outputs * width
            if whole:
                # Signed and of 7 bits: the quickest that no processor computes wrongly.
                matrix = graph.constant(random.integers(-63, 64, shape, np.int8))
                scales = graph.constant(np.full(shape[1], 1e-3, np.float32))
                values = graph.apply("DynamicQuantizeMatMul", values, matrix, scales)
            else:
                matrix = graph.constant(random.normal(0, 0.05, shape).astype(np.float32))
                values = graph.apply("MatMul", values, matrix)
            if outputs == 3:  # queries, keys and values
                values = graph.split(values, 3)[0]
    return graph.file({"values": FLOAT}, {"out": values}, ("tokens", "width"))


def _random(sizes: Sequence[int], width: int) -> list[Feed]:
    """Values of so many tokens for each text."""
    import numpy as np

    random = np.random.default_rng(1)
    return [{"values": random.normal(size=(size, width)).astype(np.float32)} for size in sizes]


def _feed(rows: list[list[int]]) -> Feed:
    import numpy as np

    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    mask = np.zeros_like(ids)
    for row, values in enumerate(rows):
        ids[row, : len(values)], mask[row, : len(values)] = values, 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


if __name__ == "__main__":
    if sys.argv[1] == "ours":
        print(json.dumps(ours(Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])))
    else:
        print(json.dumps(raw(json.loads(Path(sys.argv[2]).read_text()), *sys.argv[3:])))
