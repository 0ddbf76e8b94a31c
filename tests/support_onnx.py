"""Small encoder models for tests: an ONNX graph, and a matching tokenizer.json.

The graph looks each token up in a table, so it has the interface of a real encoder and is small:
its input are token ids [1, tokens], its output are vectors [1, tokens, width].
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mcpvectordb.embedding.encoder_graph import INT32, INT64, OnnxGraph

__all__ = ["INT32", "INT64", "MARKS", "WORDS", "graph", "table", "tokenizer_json", "write_model"]

MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [
    *MARKS,
    "search",
    "_",
    "query",
    "document",
    ":",
    "a",
    "short",
    "text",
    "word",
    "sea",
    "##side",
    "cat",
    "dog",
]


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
    special = [{"SpecialToken": {"id": mark, "type_id": 0}} for mark in ("[CLS]", "[SEP]")]
    sequence = [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]
    single = [special[0], sequence[0], special[1]]
    added = [
        {
            "id": WORDS.index(mark),
            "content": mark,
            "special": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for mark in MARKS
    ]
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": {
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": True,
                "strip_accents": None,
                "lowercase": True,
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": single,
                "pair": [*single, sequence[1], {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
                "special_tokens": {
                    mark: {"id": mark, "ids": [WORDS.index(mark)], "tokens": [mark]}
                    for mark in ("[CLS]", "[SEP]")
                },
            },
            "decoder": None,
            "model": {
                "type": "WordPiece",
                "unk_token": "[UNK]",
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": {word: number for number, word in enumerate(WORDS)},
            },
        }
    )


def write_model(directory: Path, content: bytes, *, name: str = "model.onnx") -> Path:
    """A folder that `mcpvectordb model add` accepts."""
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(content)
    (directory / "tokenizer.json").write_text(tokenizer_json())
    return directory
