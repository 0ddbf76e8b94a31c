"""One ingest in a process of its own: `python -m benchmarks.ingest_process ours FOLDER DATABASE` or
`… raw TEXTS.json`.

`ours` brings a folder in with the best model installed and also tells which texts were embedded.
`raw` runs the same model's ONNX session on texts and does nothing else, in the two ways that a
session can use all processors.
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

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH = 32
LONGEST = 256  # tokens that are seen at once

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


def ours(folder: Path, database: Path) -> dict[str, Any]:
    """Ingest a folder into a new file, embedded; the model is loaded before."""
    embedder = Listening(embeddings.installed())
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


def raw(texts: list[str]) -> dict[str, Any]:
    """Run the session on all texts.

    In batches with all processors on each, and one by one with a processor for each.
    """
    tokens = [ids[:LONGEST] for ids in _tokens(texts)]
    spread = [_feed([ids]) for ids in tokens]
    ordered = sorted(tokens, key=len)
    batches = [_feed(ordered[start : start + BATCH]) for start in range(0, len(ordered), BATCH)]
    figures = timed([_all(batches, 1, processors()), _all(spread, processors(), 1)])
    return {
        "chunks": len(texts),
        "tokens": sum(map(len, tokens)),
        "wall": figures["wall"],
        "cpu": figures["cpu"],
        "peak": peak(),
    }


def _all(feeds: list[Feed], workers: int, threads: int) -> Callable[[], None]:
    """Work that runs a session of so many threads on every feed, by so many workers."""
    session = _session(threads)
    names = {each.name for each in session.get_inputs()}
    known = [{name: feed[name] for name in names} for feed in feeds]
    session.run(None, known[0])

    def work() -> None:
        with ThreadPoolExecutor(workers) as pool:
            for _ in pool.map(lambda feed: len(session.run(None, feed)), known):
                pass

    return work


def _session(threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    return onnxruntime.InferenceSession(_file("model"), options, providers=["CPUExecutionProvider"])


def _tokens(texts: list[str]) -> list[list[int]]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(_file("tokenizer")))
    tokenizer.no_padding()
    return [each.ids for each in tokenizer.encode_batch(texts)]


def _feed(rows: list[list[int]]) -> Feed:
    import numpy as np

    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    mask = np.zeros_like(ids)
    for row, values in enumerate(rows):
        ids[row, : len(values)], mask[row, : len(values)] = values, 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def _file(role: str) -> Path:
    from mcpvectordb import Config
    from mcpvectordb.embedding import weights

    folder = Config().models_folder()
    return weights.locate(weights.default(folder), folder)[role]


if __name__ == "__main__":
    if sys.argv[1] == "ours":
        print(json.dumps(ours(Path(sys.argv[2]), Path(sys.argv[3]))))
    else:
        print(json.dumps(raw(json.loads(Path(sys.argv[2]).read_text()))))
