"""The ONNX graph of an encoder of the BERT family, assembled from 4-bit weights.

The table of words stays in 4 bits, of which a text needs a few rows. The matrices of the layers
become int8, because ONNX Runtime multiplies int8 twice as fast as 4-bit blocks (26 passages per CPU
second against 13, float32: 12), at nDCG@10 .946 against .947 on xquad-zh. They use 7 of the 8
bits: processors without VNNI add two products in 16 bits, which would overflow otherwise.
Activations are scaled per run, so a run is one text (see `OnnxEmbedder`).

`VERSION` is part of what identifies the vectors in a file: raise it when they change.
"""

from __future__ import annotations

import math
import struct
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpvectordb.errors import ModelDamaged
from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 1
_LARGEST = 63  # of an int8 weight


def assemble(path: Path) -> bytes:
    """The content of an ONNX file for the weights in a file E5S1.

    Its input are token ids [1, tokens], its output the vectors of the tokens [1, tokens, hidden].
    """
    weights, graph = read_e5s1(path), OnnxGraph()
    hidden = _embeddings(graph, weights)
    for layer in range(weights.layers):
        hidden = _layer(graph, weights, f"l{layer}", hidden)
    shape = ("batch", "tokens", "hidden")
    return graph.file({"input_ids": INT64}, {"last_hidden_state": hidden}, shape)


def _embeddings(graph: OnnxGraph, weights: E5S1) -> str:
    """The sum of a token's word, position and type, normalised."""
    width = weights.hidden
    words = _words(graph, *weights.blocks("emb.word", weights.vocabulary, width))
    positions = weights.floats("emb.pos", weights.positions, width)
    types = weights.floats("emb.type", weights.types, width)
    tokens = graph.apply("Shape", "input_ids", start=1, end=2)
    first = graph.apply(
        "Slice", graph.constant(positions + types[0]), graph.constant(np.zeros(1, np.int64)), tokens
    )
    return graph.apply(
        "LayerNormalization",
        graph.apply("Add", words, first),
        *_norm(graph, weights, "emb.ln"),
        axis=-1,
        epsilon=weights.epsilon,
    )


def _words(graph: OnnxGraph, nibbles: NDArray[np.uint8], scales: NDArray[np.float16]) -> str:
    """The rows of the table of words: halves of bytes, less 8, times the scales of their blocks."""

    def number(value: float) -> str:
        return graph.constant(np.array(value, np.float32))

    rows = graph.apply("Gather", graph.constant(nibbles), "input_ids")
    rows = graph.apply("Cast", rows, to=FLOAT)
    high = graph.apply("Floor", graph.apply("Mul", rows, number(1 / 16)))
    low = graph.apply("Sub", rows, graph.apply("Mul", high, number(16)))
    halves = graph.apply("Sub", graph.apply("Concat", low, high, axis=-1), number(8))
    scale = graph.apply("Gather", graph.constant(scales[:, :, None]), "input_ids")
    values = graph.apply("Mul", halves, graph.apply("Cast", scale, to=FLOAT))
    return graph.apply("Reshape", values, graph.constant(np.array([0, 0, -1], np.int64)))


def _layer(graph: OnnxGraph, weights: E5S1, layer: str, hidden: str) -> str:
    """Attention and the feed-forward network, each added to its input and normalised."""
    width, inner = weights.hidden, weights.feed_forward

    def matrix(name: str, rows: int, columns: int) -> NDArray[np.float32]:
        return weights.matrix(f"{layer}.{name}.w", rows, columns)

    def bias(name: str, size: int = width) -> NDArray[np.float32]:
        return weights.floats(f"{layer}.{name}.b", size)

    def added(values: str, name: str, skip: str, norm: str) -> str:
        return graph.apply(
            "SkipLayerNormalization",
            values,
            skip,
            *_norm(graph, weights, f"{layer}.{norm}"),
            graph.constant(bias(name)),
            epsilon=weights.epsilon,
        )

    # One product for queries, keys and values: their input is scaled and rounded once.
    joined = np.concatenate([matrix(each, width, width) for each in "qkv"])
    biases = graph.constant(np.concatenate([bias(each) for each in "qkv"]))
    projected = graph.apply("Add", _multiplied(graph, hidden, joined), biases)
    queries, keys, values = graph.split(projected, 3)
    attention = graph.apply("MultiHeadAttention", queries, keys, values, num_heads=weights.heads)
    attention = _multiplied(graph, attention, matrix("ao", width, width))
    hidden = added(attention, "ao", hidden, "aln")
    forward = _multiplied(graph, hidden, matrix("fi", inner, width))
    forward = graph.apply("BiasGelu", forward, graph.constant(bias("fi", inner)))
    return added(_multiplied(graph, forward, matrix("fo", width, inner)), "fo", hidden, "oln")


def _multiplied(graph: OnnxGraph, values: str, matrix: NDArray[np.float32]) -> str:
    """Values times a matrix [outputs, inputs], which is kept in int8 with a scale per output."""
    scales = np.abs(matrix).max(axis=1) / np.float32(_LARGEST)
    scales[scales == 0] = 1
    rounded = np.rint(matrix / scales[:, None]).astype(np.int8)
    return graph.apply(
        "DynamicQuantizeMatMul",
        values,
        graph.constant(np.ascontiguousarray(rounded.T)),
        graph.constant(scales),
    )


def _norm(graph: OnnxGraph, weights: E5S1, name: str) -> tuple[str, str]:
    gain, bias = (weights.floats(f"{name}.{part}", weights.hidden) for part in "wb")
    return graph.constant(gain), graph.constant(bias)


# --- ONNX files: a protobuf message of nodes and constants, encoded by hand
#
# Of protobuf only three kinds of fields are needed: whole numbers, float32 and length-prefixed
# bytes. The package `onnx` would bring protobuf and 60 MB for them.

FLOAT, INT32, INT64 = 1, 6, 7
_KINDS = {"float32": FLOAT, "uint8": 2, "int8": 3, "int64": INT64, "float16": 10}
_IR_VERSION, _OPSET = 9, 17
_CONTRIB = "com.microsoft"  # operators that ONNX Runtime has beside the standard
_CONTRIB_OPERATORS = frozenset(
    "SkipLayerNormalization MultiHeadAttention BiasGelu DynamicQuantizeMatMul".split()
)


class OnnxGraph:
    """A graph while it is put together; values are known by name."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []

    def constant(self, values: NDArray[Any]) -> str:
        """A value that is part of the file."""
        name = f"constant_{len(self._constants)}"
        sizes = ((1, size) for size in values.shape)
        kind = _KINDS[values.dtype.name]
        self._constants.append(_message(*sizes, (2, kind), (8, name), (9, values.tobytes())))
        return name

    def apply(self, operator: str, *inputs: str, **options: float) -> str:
        """What an operator makes of values."""
        return self._add(operator, inputs, [f"{operator}_{len(self._nodes)}"], options)[0]

    def split(self, values: str, parts: int) -> list[str]:
        """Values in so many equal parts of their last dimension."""
        names = [f"Split_{len(self._nodes)}_{number}" for number in range(parts)]
        return self._add("Split", (values,), names, {"axis": -1})

    def file(
        self, inputs: dict[str, int], outputs: dict[str, str], shape: tuple[str, ...] = ()
    ) -> bytes:
        """The content of an ONNX file.

        Inputs [batch, tokens] have types, outputs are values under another name, each of the
        dimensions that `shape` names.
        """
        for name, value in outputs.items():
            self._add("Identity", (value,), [name], {})
        graph = _message(
            *((1, each) for each in self._nodes),
            (2, "graph"),
            *((5, each) for each in self._constants),
            *((11, _value(name, kind, ("batch", "tokens"))) for name, kind in inputs.items()),
            *((12, _value(name, FLOAT, shape)) for name in outputs),
        )
        operators = _message((1, ""), (2, _OPSET)), _message((1, _CONTRIB), (2, 1))
        return _message((1, _IR_VERSION), (7, graph), *((8, each) for each in operators))

    def _add(
        self, operator: str, inputs: tuple[str, ...], outputs: list[str], options: dict[str, float]
    ) -> list[str]:
        self._nodes.append(
            _message(
                *((1, each) for each in inputs),
                *((2, each) for each in outputs),
                (4, operator),
                *(
                    (5, _message((1, name), (3, value), (20, 2)))
                    if isinstance(value, int)
                    else (5, _message((1, name), (2, value), (20, 1)))
                    for name, value in options.items()
                ),
                (7, _CONTRIB if operator in _CONTRIB_OPERATORS else ""),
            )
        )
        return outputs


def _value(name: str, kind: int, shape: tuple[str, ...]) -> bytes:
    dimensions = [(1, _message((2, each))) for each in shape]
    return _message((1, name), (2, _message((1, _message((1, kind), (2, _message(*dimensions)))))))


def _message(*fields: tuple[int, float | str | bytes]) -> bytes:
    """A protobuf message of numbered fields."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts += [_varint(number << 3), _varint(value)]
        elif isinstance(value, float):
            parts += [_varint(number << 3 | 5), struct.pack("<f", value)]
        else:
            raw = value.encode() if isinstance(value, str) else value
            parts += [_varint(number << 3 | 2), _varint(len(raw)), raw]
    return b"".join(parts)


def _varint(number: int) -> bytes:
    """Seven bits per byte, the lowest first; a negative number has the bits of its uint64."""
    number &= (1 << 64) - 1
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


# --- the file E5S1: an encoder in 4 bits with the pieces of its tokenizer, as data
#
# Its carrier writes it for a program of its own, which is never run: what is needed is read from
# the bytes. All numbers are little-endian:
#
# - `E5S1` and the version; hidden size, layers, heads, feed-forward size, vocabulary, positions and
#   types (int32), epsilon of layer norms (float32), weights per block (int32);
# - pieces, and the ids of the begin, end, padding and unknown token (int32); bytes of all pieces
#   (uint64), their offsets (uint32, one more than pieces), scores (float32), their UTF-8;
# - rules of normalisation, skipped here: their number (int32) and bytes (uint32);
# - tensors (int32), each with the length of its name (uint16), name, type (0: float32, 1: 4-bit),
#   number of values (uint32), offset in the file and bytes (uint64).
#
# A block of 4-bit weights is a scale (float16) and 16 bytes; byte i has weight i in its low half
# and weight i + 16 in its high one, each plus 8.
#
# There is one such file, and its SHA-256 is verified before it is embedded with. So its content is
# not checked again: whatever cannot be read is a file that is damaged.

BLOCK = 32


class E5S1:
    """A file that was read: sizes, pieces with their scores, ids of special pieces.

    Tensors are decoded when they are asked for.
    """

    def __init__(self, content: bytes) -> None:
        magic, version, *sizes, self.epsilon, block = struct.unpack_from("<4si7ifi", content)
        if (magic, version, block) != (b"E5S1", 1, BLOCK):
            raise ValueError("it is not a file E5S1 of version 1")
        self.hidden, self.layers, self.heads, self.feed_forward, *sizes = sizes
        self.vocabulary, self.positions, self.types = sizes
        count, self.begin, self.end, _padding, self.unknown, size = struct.unpack_from(
            "<5iQ", content, 44
        )
        at = 72
        offsets = np.frombuffer(content, "<u4", count + 1, at).tolist()
        scores = np.frombuffer(content, "<f4", count, at := at + 4 * (count + 1)).tolist()
        texts = content[(at := at + 4 * count) :][:size]
        pieces = [texts[first:last].decode() for first, last in pairwise(offsets)]
        self.pieces: list[tuple[str, float]] = list(zip(pieces, scores, strict=True))
        _, rules = struct.unpack_from("<iI", content, at := at + size)
        (tensors,) = struct.unpack_from("<i", content, at := at + 8 + rules)
        at += 4
        self._content, self._offsets = content, dict[str, int]()
        for _ in range(tensors):
            (length,) = struct.unpack_from("<H", content, at)
            name = content[at + 2 : at + 2 + length].decode()
            _kind, _values, place, _bytes = struct.unpack_from("<BIQQ", content, at + 2 + length)
            self._offsets[name] = place
            at += 23 + length

    def floats(self, name: str, *shape: int) -> NDArray[np.float32]:
        """A tensor of float32 values."""
        values = np.frombuffer(self._content, "<f4", math.prod(shape), self._offsets[name])
        return values.reshape(shape).astype(np.float32)

    def matrix(self, name: str, rows: int, columns: int) -> NDArray[np.float32]:
        """A matrix of 4-bit weights as float32 [rows, columns]."""
        nibbles, scales = self.blocks(name, rows, columns)
        halves = np.concatenate([nibbles & 15, nibbles >> 4], axis=2)
        values = (halves.astype(np.float32) - 8) * scales[:, :, None].astype(np.float32)
        return values.reshape(rows, columns)

    def blocks(
        self, name: str, rows: int, columns: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.float16]]:
        """A matrix of 4-bit weights: nibbles [rows, blocks, 16] and scales [rows, blocks]."""
        layout = np.dtype([("scale", "<f2"), ("nibbles", "u1", BLOCK // 2)])
        found = np.frombuffer(self._content, layout, rows * columns // BLOCK, self._offsets[name])
        blocks = found.reshape(rows, columns // BLOCK)
        return blocks["nibbles"].copy(), blocks["scale"].copy()


def read_e5s1(path: Path) -> E5S1:
    """Read a file; ModelDamaged if that is impossible."""
    try:
        return E5S1(path.read_bytes())
    except (OSError, ValueError, struct.error) as error:
        raise ModelDamaged(
            f"{path} cannot be read as weights: {error}; install its package again"
        ) from error
