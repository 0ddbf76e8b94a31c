"""Small files E5S1 for tests, and what the encoder in one computes, in plain NumPy."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁sea", "side", "▁cat", "s", "<", ">", "～"]
SCORES = [0.0, 0.0, 0.0, 0.0, -2.0, -3.0, -3.5, -3.0, -4.0, -5.0, -5.0, -6.0]


def packed(values: NDArray[np.float32]) -> bytes:
    """A matrix in blocks of 32 weights of 4 bits."""
    blocks = values.reshape(-1, 32)
    scales = (np.abs(blocks).max(axis=1) / 7).astype("<f2")
    scales[scales == 0] = 1
    whole = np.clip(np.rint(blocks / scales[:, None].astype(np.float32)) + 8, 0, 15).astype("u1")
    nibbles = whole[:, :16] | whole[:, 16:] << 4
    return b"".join(
        scale.tobytes() + row.tobytes() for scale, row in zip(scales, nibbles, strict=True)
    )


@dataclass
class Tiny:
    """An encoder with random weights."""

    hidden: int = 32
    layers: int = 2
    heads: int = 4
    inner: int = 64
    vocabulary: int = len(PIECES) + 3
    positions: int = 24
    epsilon: float = 1e-12

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """All tensors by name."""
        random = np.random.default_rng(7)
        h, inner = self.hidden, self.inner
        shapes: dict[str, tuple[int, ...]] = {
            "emb.word": (self.vocabulary, h),
            "emb.pos": (self.positions, h),
            "emb.type": (2, h),
            "emb.ln.w": (h,),
            "emb.ln.b": (h,),
        }
        for layer in range(self.layers):
            for name, rows, columns in (
                *((each, h, h) for each in ("q", "k", "v", "ao")),
                ("fi", inner, h),
                ("fo", h, inner),
            ):
                shapes[f"l{layer}.{name}.w"] = (rows, columns)
                shapes[f"l{layer}.{name}.b"] = (rows,)
            for name in ("aln", "oln"):
                shapes[f"l{layer}.{name}.w"] = shapes[f"l{layer}.{name}.b"] = (h,)
        return {
            name: random.normal(size=shape).astype(np.float32)
            + np.float32(name.endswith(("ln.w", "ln.w")))
            for name, shape in shapes.items()
        }

    def content(self) -> bytes:
        """The file."""
        blob = [each.encode() for each in PIECES]
        offsets = np.cumsum([0, *map(len, blob)]).astype("<u4")
        head = b"E5S1" + struct.pack("<i", 1)
        sizes = (
            self.hidden,
            self.layers,
            self.heads,
            self.inner,
            self.vocabulary,
            self.positions,
            2,
        )
        head += struct.pack("<7ifi", *sizes, self.epsilon, 32)
        head += struct.pack("<5iQ", len(blob), 0, 2, 1, 3, sum(map(len, blob)))
        head += offsets.tobytes() + np.array(SCORES, "<f4").tobytes() + b"".join(blob)
        head += struct.pack("<iIIBI", 1, 9, 0x3000, 1, 32)  # one rule: the ideographic space
        bodies = {
            name: packed(values) if quantized(name) else values.astype("<f4").tobytes()
            for name, values in self.tensors().items()
        }
        at = len(head) + 4 + sum(23 + len(name) for name in bodies)
        entries = struct.pack("<i", len(bodies))
        for name, values in self.tensors().items():
            entries += struct.pack("<H", len(name)) + name.encode()
            entries += struct.pack("<BIQQ", quantized(name), values.size, at, len(bodies[name]))
            at += len(bodies[name])
        return head + entries + b"".join(bodies.values())


def quantized(name: str) -> bool:
    """Whether a tensor is stored in 4 bits."""
    return name == "emb.word" or (name.endswith(".w") and "ln" not in name)


def unpacked(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """A matrix after it was packed."""
    raw = np.frombuffer(packed(values), np.dtype([("d", "<f2"), ("q", "u1", 16)]))
    halves = np.concatenate([raw["q"] & 15, raw["q"] >> 4], axis=1).astype(np.float32) - 8
    return (halves * raw["d"].astype(np.float32)[:, None]).reshape(values.shape)


def computed(tiny: Tiny, ids: Sequence[int]) -> NDArray[np.float64]:
    """The output of the encoder for token ids, in float64."""
    weights: dict[str, Any] = {
        name: (unpacked(values) if quantized(name) else values).astype(np.float64)
        for name, values in tiny.tensors().items()
    }

    def normal(values: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        centred = values - values.mean(axis=1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + tiny.epsilon)
        return scaled * weights[f"{name}.w"] + weights[f"{name}.b"]

    def linear(values: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        product: NDArray[np.float64] = values @ weights[f"{name}.w"].T + weights[f"{name}.b"]
        return product

    x = weights["emb.word"][list(ids)] + weights["emb.pos"][: len(ids)] + weights["emb.type"][0]
    x = normal(x, "emb.ln")
    size = tiny.hidden // tiny.heads
    for layer in (f"l{number}" for number in range(tiny.layers)):
        q, k, v = (
            linear(x, f"{layer}.{each}").reshape(len(ids), tiny.heads, size).swapaxes(0, 1)
            for each in "qkv"
        )
        scores = q @ k.swapaxes(1, 2) / np.sqrt(size)
        shares = np.exp(scores - scores.max(axis=2, keepdims=True))
        shares /= shares.sum(axis=2, keepdims=True)
        seen = (shares @ v).swapaxes(0, 1).reshape(len(ids), tiny.hidden)
        x = normal(x + linear(seen, f"{layer}.ao"), f"{layer}.aln")
        inner = linear(x, f"{layer}.fi")
        inner = 0.5 * inner * (1 + np.vectorize(_erf)(inner / np.sqrt(2)))
        x = normal(x + linear(inner, f"{layer}.fo"), f"{layer}.oln")
    return x


def _erf(value: float) -> float:
    import math

    return math.erf(value)
