"""Small encoder models for tests: an ONNX graph, and a matching tokenizer.json.

The graph looks each token up in a table, so it has the interface of a real encoder and is small:
its input are token ids [1, tokens], its output are vectors [1, tokens, width].
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from mcpvectordb.embedding.catalogue import ModelFile
from mcpvectordb.embedding.encoder_graph import INT64, OnnxGraph
from mcpvectordb.embedding.weights import sha256

MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*MARKS, *"search _ query document : a short text word sea ##side cat dog".split()]


def table(width: int, *, seed: int = 0) -> NDArray[np.float32]:
    """The token vectors of a graph: a row for each of WORDS."""
    return np.random.default_rng(seed).normal(size=(len(WORDS), width)).astype(np.float32)


def graph(
    rows: NDArray[np.float32],
    *,
    inputs: Sequence[str] = ("input_ids", "attention_mask", "token_type_ids"),
    kind: int = INT64,
    pooled: bool = False,
) -> bytes:
    """An ONNX file that maps each token to its row.

    `pooled` adds an output `sentence_embedding`, the sum of the rows.
    """
    made = OnnxGraph()
    vectors = made.apply("Gather", made.constant(rows), "input_ids")
    outputs = {"last_hidden_state": vectors}
    if pooled:
        axes = made.constant(np.array([1]))
        outputs["sentence_embedding"] = made.apply("ReduceSum", vectors, axes, keepdims=0)
    return made.file(dict.fromkeys(inputs, kind), outputs)


def tokenizer_json() -> str:
    """A tokenizer.json of the BERT family over WORDS."""
    made = Tokenizer(
        WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token=MARKS[1])
    )
    made.normalizer, made.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    made.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(mark, WORDS.index(mark)) for mark in ("[CLS]", "[SEP]")],
    )
    made.add_special_tokens(MARKS)
    return str(made.to_str())


def model_file(path: Path) -> ModelFile:
    """A file as the catalogue describes it."""
    return ModelFile(path=path.name, sha256=sha256(path), size=path.stat().st_size)


def write_model(directory: Path, content: bytes, *, name: str = "model.onnx") -> Path:
    """A folder that `mcpvectordb model add` accepts."""
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(content)
    (directory / "tokenizer.json").write_text(tokenizer_json())
    return directory
