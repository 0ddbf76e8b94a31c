"""The ONNX graph of an encoder of the BERT family, assembled from 4-bit weights.

The table of words stays in 4 bits, of which a text needs a few rows. The matrices of the layers
become int8, because ONNX Runtime multiplies int8 twice as fast as 4-bit blocks (26 passages per CPU
second against 13, float32: 12), at nDCG@10 .946 against .947 on xquad-zh. They use 7 of the 8
bits: processors without VNNI add two products in 16 bits, which would overflow otherwise.
Activations are scaled per run, so a run is one text (see `onnx`).

`VERSION` is part of what identifies the vectors in a file: raise it when they change.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mcpvectordb.embedding import e5s1
from mcpvectordb.embedding.onnx_writer import FLOAT, INT64, OnnxGraph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

VERSION = 1
_LARGEST = 63  # of an int8 weight


def assemble(path: Path) -> bytes:
    """The content of an ONNX file for the weights in a file E5S1.

    Its input are token ids [1, tokens], its output the vectors of the tokens [1, tokens, hidden].
    """
    weights, graph = e5s1.read(path), OnnxGraph()
    hidden = _embeddings(graph, weights)
    for layer in range(weights.layers):
        hidden = _layer(graph, weights, f"l{layer}", hidden)
    shape = ("batch", "tokens", "hidden")
    return graph.file({"input_ids": INT64}, {"last_hidden_state": hidden}, shape)


def _embeddings(graph: OnnxGraph, weights: e5s1.E5S1) -> str:
    """The sum of a token's word, position and type, normalised."""
    import numpy as np

    width = weights.hidden
    words = _words(graph, weights.blocks("emb.word", weights.vocabulary, width))
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


def _words(graph: OnnxGraph, table: e5s1.Blocks) -> str:
    """The rows of the table of words: halves of bytes, less 8, times the scales of their blocks."""
    import numpy as np

    def number(value: float) -> str:
        return graph.constant(np.array(value, np.float32))

    rows = graph.apply("Gather", graph.constant(table.nibbles), "input_ids")
    rows = graph.apply("Cast", rows, to=FLOAT)
    high = graph.apply("Floor", graph.apply("Mul", rows, number(1 / 16)))
    low = graph.apply("Sub", rows, graph.apply("Mul", high, number(16)))
    halves = graph.apply("Sub", graph.apply("Concat", low, high, axis=-1), number(8))
    scales = graph.apply("Gather", graph.constant(table.scales[:, :, None]), "input_ids")
    values = graph.apply("Mul", halves, graph.apply("Cast", scales, to=FLOAT))
    return graph.apply("Reshape", values, graph.constant(np.array([0, 0, -1], np.int64)))


def _layer(graph: OnnxGraph, weights: e5s1.E5S1, layer: str, hidden: str) -> str:
    """Attention and the feed-forward network, each added to its input and normalised."""
    import numpy as np

    width, inner = weights.hidden, weights.feed_forward

    def matrix(name: str, rows: int, columns: int) -> NDArray[np.float32]:
        return weights.blocks(f"{layer}.{name}.w", rows, columns).values()

    def bias(name: str, size: int = width) -> NDArray[np.float32]:
        return weights.floats(f"{layer}.{name}.b", size)

    def added(values: str, name: str, skip: str, norm: str) -> str:
        return graph.contrib(
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
    attention = graph.contrib("MultiHeadAttention", queries, keys, values, num_heads=weights.heads)
    attention = _multiplied(graph, attention, matrix("ao", width, width))
    hidden = added(attention, "ao", hidden, "aln")
    forward = _multiplied(graph, hidden, matrix("fi", inner, width))
    forward = graph.contrib("BiasGelu", forward, graph.constant(bias("fi", inner)))
    return added(_multiplied(graph, forward, matrix("fo", width, inner)), "fo", hidden, "oln")


def _multiplied(graph: OnnxGraph, values: str, matrix: NDArray[np.float32]) -> str:
    """Values times a matrix [outputs, inputs], which is kept in int8 with a scale per output."""
    import numpy as np

    scales = np.abs(matrix).max(axis=1) / np.float32(_LARGEST)
    scales[scales == 0] = 1
    rounded = np.rint(matrix / scales[:, None]).astype(np.int8)
    return graph.contrib(
        "DynamicQuantizeMatMul",
        values,
        graph.constant(np.ascontiguousarray(rounded.T)),
        graph.constant(scales),
    )


def _norm(graph: OnnxGraph, weights: e5s1.E5S1, name: str) -> tuple[str, str]:
    gain, bias = (weights.floats(f"{name}.{part}", weights.hidden) for part in "wb")
    return graph.constant(gain), graph.constant(bias)
