"""Small encoder models for tests: an ONNX graph encoded by hand, and a matching tokenizer.json.

A graph is a protobuf message, of which only integers and length-prefixed bytes are needed here. The
graph looks each token up in a table, so it has the interface of a real encoder and is small: its
input are token ids [1, tokens], its output are vectors [1, tokens, width].
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FLOAT, INT32, INT64 = 1, 6, 7
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


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """A protobuf message of numbered fields, integers or length-prefixed bytes."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(_varint(number << 3) + _varint(value))
        else:
            raw = value.encode() if isinstance(value, str) else value
            parts.append(_varint(number << 3 | 2) + _varint(len(raw)) + raw)
    return b"".join(parts)


def _value(name: str, kind: int, shape: Sequence[str]) -> bytes:
    dimensions = [(1, _message((2, each))) for each in shape]
    return _message((1, name), (2, _message((1, _message((1, kind), (2, _message(*dimensions)))))))


def _node(kind: str, inputs: Sequence[str], output: str, *attributes: bytes) -> bytes:
    return _message(
        *((1, each) for each in inputs), (2, output), (4, kind), *((5, each) for each in attributes)
    )


def _whole(name: str, number: int) -> bytes:
    return _message((1, name), (3, number), (20, 2))


def _axes(*axes: int) -> bytes:
    return _message((1, "axes"), *((8, axis) for axis in axes), (20, 7))


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
    tensor = _message(
        *((1, size) for size in rows.shape), (2, FLOAT), (8, "rows"), (9, rows.tobytes())
    )
    nodes = [_node("Gather", ["rows", "input_ids"], "last_hidden_state")]
    outputs = [_value("last_hidden_state", FLOAT, ("batch", "tokens", "width"))]
    if pooled:
        nodes.append(
            _node(
                "ReduceSum",
                ["last_hidden_state"],
                "sentence_embedding",
                _axes(1),
                _whole("keepdims", 0),
            )
        )
        outputs.append(_value("sentence_embedding", FLOAT, ("batch", "width")))
    body = _message(
        *((1, node) for node in nodes),
        (2, "tiny"),
        (5, tensor),
        *((11, _value(name, kind, ("batch", "tokens"))) for name in inputs),
        *((12, each) for each in outputs),
    )
    return _message((1, 8), (7, body), (8, _message((1, ""), (2, 12))))


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
