"""The ONNX graph of an encoder of the BERT family, assembled from weights of another form.

The matrices of the layers and what they are multiplied with are int8, which ONNX Runtime multiplies
up to twice as fast as float32 or blocks of 4 bits. The table of words stays as it is: a text needs
a few rows of it. Activations are scaled per run, so a run is one text (see `OnnxEmbedder`).

multilingual-e5-small comes in 4 bits (E5S1): 26 passages per CPU second against 13 in 4 bits and 12
in float32, at nDCG@10 .946 against .947 on xquad-zh. Its matrices use 7 of the 8 bits: processors
without VNNI add two products in 16 bits, which would overflow otherwise.

all-MiniLM-L6-v2 comes as an ONNX graph with matrices of 8 bits that are multiplied in float32
(`MiniLM`). Its vectors must compare with those that files have from that graph. So all 8 bits are
kept (as unsigned numbers, which do not overflow), and the tokens of the feed-forward network are
scaled one by one, because the first token has values ten times those of others: cosine .999 to the
graph, .995 without.

`VERSION` is part of what identifies the vectors in a file: raise it when they change.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpvectordb.errors import ModelDamaged
from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 1
LARGEST_OF_7_BITS = 63


def assemble(path: Path) -> bytes:
    """The content of an ONNX file for the weights in a file: E5S1, or the graph of MiniLM.

    Its input are token ids [1, tokens], its output the vectors of the tokens [1, tokens, hidden].
    """
    weights: E5S1 | MiniLM = MiniLM(path) if path.suffix == ".onnx" else read_e5s1(path)
    graph = OnnxGraph()
    hidden = _embeddings(graph, weights)
    for layer in range(weights.layers):
        hidden = _layer(graph, weights, f"l{layer}", hidden)
    shape = ("batch", "tokens", "hidden")
    return graph.file({"input_ids": INT64}, {"last_hidden_state": hidden}, shape)


def _embeddings(graph: OnnxGraph, weights: E5S1 | MiniLM) -> str:
    """The sum of a token's word, position and type, normalised."""
    if isinstance(weights, E5S1):
        words = _words(graph, *weights.blocks("emb.word", weights.vocabulary, weights.hidden))
    else:
        table, scales = (graph.constant(each) for each in weights.table("word"))
        words = graph.apply("Cast", graph.apply("Gather", table, "input_ids"), to=FLOAT)
        words = graph.apply("Mul", words, graph.apply("Gather", scales, "input_ids"))
    tokens = graph.apply("Shape", "input_ids", start=1, end=2)
    first = graph.apply(
        "Slice", graph.constant(weights.places()), graph.constant(np.zeros(1, np.int64)), tokens
    )
    return _normalised(graph, weights, graph.apply("Add", words, first), "emb.ln")


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


def _layer(graph: OnnxGraph, weights: E5S1 | MiniLM, layer: str, hidden: str) -> str:
    """Attention and the feed-forward network, each added to its input and normalised."""

    def linear(values: str, *names: str, biased: bool = True) -> str:
        """Values times matrices, side by side, plus their biases."""
        # One product for queries, keys and values: their input is scaled and rounded once.
        found = [weights.rounded(f"{layer}.{name}") for name in names]
        matrix, scales = (np.concatenate(each, axis=-1) for each in zip(*found, strict=True))
        biases = [weights.bias(f"{layer}.{name}") for name in names] if biased else []
        by_token = isinstance(weights, MiniLM) and names[0] in ("fi", "fo")
        return _multiplied(graph, values, matrix, scales, biases, by_token=by_token)

    def added(values: str, norm: str) -> str:
        return _normalised(graph, weights, graph.apply("Add", values, hidden), f"{layer}.{norm}")

    queries, keys, values = graph.split(linear(hidden, "q", "k", "v"), 3)
    attention = graph.apply("MultiHeadAttention", queries, keys, values, num_heads=weights.heads)
    hidden = added(linear(attention, "ao"), "aln")
    bias = graph.constant(weights.bias(f"{layer}.fi"))
    forward = graph.apply("BiasGelu", linear(hidden, "fi", biased=False), bias)
    return added(linear(forward, "fo"), "oln")


def _multiplied(
    graph: OnnxGraph,
    values: str,
    matrix: NDArray[np.int8],
    scales: NDArray[np.float32],
    biases: Sequence[NDArray[np.float32]],
    *,
    by_token: bool,
) -> str:
    """Values times a matrix [inputs, outputs], which has a scale per output, plus biases."""
    inputs = [graph.constant(matrix), graph.constant(scales)]
    if matrix.min() < -LARGEST_OF_7_BITS or matrix.max() > LARGEST_OF_7_BITS:
        zero = np.full(len(scales), 128, np.uint8)
        inputs = [graph.constant(matrix.view(np.uint8) ^ 128), inputs[1], graph.constant(zero)]
    if not by_token:
        if biases:
            inputs += [""] * (3 - len(inputs)) + [graph.constant(np.concatenate(biases))]
        return graph.apply("DynamicQuantizeMatMul", values, *inputs)
    # The largest value of each token is 1 while they are rounded.
    last = graph.constant(np.array([-1], np.int64))
    largest = graph.apply("ReduceMax", graph.apply("Abs", values), last, keepdims=1)
    largest = graph.apply("Max", largest, graph.constant(np.array(1e-6, np.float32)))
    product = graph.apply("DynamicQuantizeMatMul", graph.apply("Div", values, largest), *inputs)
    product = graph.apply("Mul", product, largest)
    return graph.apply("Add", product, graph.constant(biases[0])) if biases else product


def _normalised(graph: OnnxGraph, weights: E5S1 | MiniLM, values: str, name: str) -> str:
    """Values [tokens, hidden] after a layer norm."""
    return graph.apply(
        "LayerNormalization",
        values,
        *(graph.constant(each) for each in weights.norm(name)),
        axis=-1,
        epsilon=weights.epsilon,
    )


# --- ONNX files: a protobuf message of nodes and constants, encoded by hand
#
# Of protobuf only three kinds of fields are needed: whole numbers, float32 and length-prefixed
# bytes. The package `onnx` would bring protobuf and 60 MB for them.

FLOAT, INT32, INT64 = 1, 6, 7
_KINDS = {"float32": FLOAT, "uint8": 2, "int8": 3, "int64": INT64, "float16": 10}
_IR_VERSION, _OPSET = 9, 18
_CONTRIB = "com.microsoft"  # operators that ONNX Runtime has beside the standard
_CONTRIB_OPERATORS = frozenset("MultiHeadAttention BiasGelu DynamicQuantizeMatMul".split())


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
        return self._add("Split", (values,), names, {"axis": -1, "num_outputs": parts})

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
    """A file that was read: sizes, the texts of all pieces with their starts, scores and ids.

    Tensors are decoded when they are asked for.
    """

    def __init__(self, content: mmap.mmap) -> None:
        magic, version, *sizes, self.epsilon, block = struct.unpack_from("<4si7ifi", content)
        if (magic, version, block) != (b"E5S1", 1, BLOCK):
            raise ValueError("it is not a file E5S1 of version 1")
        self.hidden, self.layers, self.heads, self.feed_forward, *sizes = sizes
        self.vocabulary, self.positions, self.types = sizes
        count, self.begin, self.end, _padding, self.unknown, size = struct.unpack_from(
            "<5iQ", content, 44
        )
        at = 72
        # Copies, so that a tokenizer does not keep the file open.
        self.starts = np.frombuffer(content, "<u4", count + 1, at).astype(np.int64)
        at += 4 * (count + 1)
        self.scores = np.frombuffer(content, "<f4", count, at).astype(np.float64)
        self.texts = content[(at := at + 4 * count) : at + size]
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

    def places(self) -> NDArray[np.float32]:
        """The table of positions, each with the type of all tokens added."""
        positions = self.floats("emb.pos", self.positions, self.hidden)
        types = self.floats("emb.type", self.types, self.hidden)
        summed: NDArray[np.float32] = positions + types[0]
        return summed

    def norm(self, name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Gain and bias of a layer norm."""
        return self.floats(f"{name}.w", self.hidden), self.floats(f"{name}.b", self.hidden)

    def bias(self, name: str) -> NDArray[np.float32]:
        """What is added to a product."""
        return self.floats(f"{name}.b", self._shape(name)[0])

    def rounded(self, name: str) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """A matrix [inputs, outputs] in 7 bits, and its scale per output."""
        matrix = self.matrix(f"{name}.w", *self._shape(name))
        scales = np.abs(matrix).max(axis=1) / np.float32(LARGEST_OF_7_BITS)
        scales[scales == 0] = 1
        values = np.rint(matrix / scales[:, None]).astype(np.int8)
        return np.ascontiguousarray(values.T), scales

    def _shape(self, name: str) -> tuple[int, int]:
        inner, width = self.feed_forward, self.hidden
        return {"fi": (inner, width), "fo": (width, inner)}.get(name[-2:], (width, width))

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
        with path.open("rb") as file:
            return E5S1(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError, struct.error) as error:
        raise ModelDamaged(
            f"{path} cannot be read as weights: {error}; install its package again"
        ) from error


# --- the ONNX graph of all-MiniLM-L6-v2, whose matrices are int8 values and a scale per output
#
# As above, its SHA-256 is verified first. Tables, biases and norms have the names that they had
# when the model was trained; of a matrix only the place among all products is known.

_NAMES = {
    "aln": "attention.output.LayerNorm",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "k": "attention.self.key",
    "oln": "output.LayerNorm",
    "q": "attention.self.query",
    "v": "attention.self.value",
}
_PRODUCTS = ("q", "k", "v", "ao", "fi", "fo")  # of a layer, in their order
_TYPES = {FLOAT: "<f4", 3: "i1"}


class MiniLM:
    """The weights of a graph that was read."""

    heads, epsilon = 12, 1e-12

    def __init__(self, path: Path) -> None:
        self._tensors: dict[str, NDArray[Any]] = {}
        products = []
        try:
            model = dict(_fields(memoryview(path.read_bytes())))
            for number, value in _fields(model[7]):
                if number == 1:
                    named = [
                        bytes(each).decode() for part, each in _fields(value) if part in (1, 4)
                    ]
                    products += [named[1]] if named[-1] == "MatMul" else []
                elif number == 5:
                    tensor = dict(_fields(value))
                    shape = [size for number, size in _fields(value) if number == 1]
                    if tensor[2] in _TYPES:
                        values = np.frombuffer(tensor[9], _TYPES[tensor[2]]).reshape(shape)
                        self._tensors[bytes(tensor[8]).decode()] = values
        except (OSError, ValueError, LookupError) as error:
            raise ModelDamaged(
                f"{path} cannot be read as weights: {error}; install its package again"
            ) from error
        self._products = [each for each in products if f"{each}_q" in self._tensors]
        self.layers = len(self._products) // len(_PRODUCTS)

    def table(self, name: str) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """The rows of the table of words or positions, and a scale for each."""
        return self._quantized(f"inner.embeddings.{name}_embeddings.weight")

    def places(self) -> NDArray[np.float32]:
        """The table of positions, each with the type of all tokens added."""
        rows, scales = self.table("position")
        types = self._tensors["inner.embeddings.token_type_embeddings.weight"]
        summed: NDArray[np.float32] = rows * scales + types[0]
        return summed

    def norm(self, name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Gain and bias of a layer norm."""
        full = "inner.embeddings.LayerNorm" if name == "emb.ln" else self._full(name)
        return self._tensors[f"{full}.weight"], self._tensors[f"{full}.bias"]

    def bias(self, name: str) -> NDArray[np.float32]:
        """What is added to a product."""
        return self._tensors[f"{self._full(name)}.bias"]

    def rounded(self, name: str) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """A matrix [inputs, outputs] in 8 bits, and its scale per output."""
        layer, _, product = name[1:].partition(".")
        place = int(layer) * len(_PRODUCTS) + _PRODUCTS.index(product)
        values, scales = self._quantized(self._products[place])
        return values, scales[0]

    def _quantized(self, name: str) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        return self._tensors[f"{name}_q"], self._tensors[f"{name}_scale"]

    def _full(self, name: str) -> str:
        layer, _, part = name[1:].partition(".")
        return f"inner.encoder.layer.{layer}.{_NAMES[part]}"


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """The numbered fields of a protobuf message: whole numbers, and bytes of the others."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value

    while at < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
        else:
            size = varint() if kind == 2 else {1: 8, 5: 4}[kind]
            yield number, message[at : at + size]
            at += size
