"""The file E5S1: an encoder of the BERT family in 4 bits with the pieces of its tokenizer, as data.

Its carrier writes it for a program of its own, which is never run: what is needed is read from the
bytes. All numbers are little-endian:

- `E5S1` and the version; hidden size, layers, heads, feed-forward size, vocabulary, positions and
  types (int32), epsilon of layer norms (float32), weights per block (int32);
- pieces, and the ids of the begin, end, padding and unknown token (int32); bytes of all pieces
  (uint64), their offsets (uint32, one more than pieces), scores (float32), their UTF-8;
- rules of normalisation, skipped here: their number (int32) and bytes (uint32);
- tensors (int32), each with the length of its name (uint16), name, type (0: float32, 1: 4-bit),
  number of values (uint32), offset in the file and bytes (uint64).

A block of 4-bit weights is a scale (float16) and 16 bytes; byte i has weight i in its low half and
weight i + 16 in its high one, each plus 8.

There is one such file, and its SHA-256 is verified before it is embedded with. So its content is
not checked again: whatever cannot be read is a file that is damaged.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpvectordb.errors import ModelDamaged

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK = 32


@dataclass(frozen=True, slots=True)
class Blocks:
    """A matrix of 4-bit weights: `nibbles` [rows, blocks, 16] and `scales` [rows, blocks]."""

    nibbles: NDArray[np.uint8]
    scales: NDArray[np.float16]

    def values(self) -> NDArray[np.float32]:
        """The matrix as float32 [rows, columns]."""
        import numpy as np

        halves = np.concatenate([self.nibbles & 15, self.nibbles >> 4], axis=2)
        values = (halves.astype(np.float32) - 8) * self.scales[:, :, None].astype(np.float32)
        return values.reshape(len(values), -1)


@dataclass(frozen=True, slots=True)
class E5S1:
    """A file that was read: sizes, pieces with their scores, ids of special pieces.

    Tensors are decoded when they are asked for.
    """

    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    types: int
    epsilon: float
    begin: int
    end: int
    unknown: int
    pieces: list[tuple[str, float]]
    _content: bytes = field(repr=False)
    _offsets: dict[str, int] = field(repr=False)

    def floats(self, name: str, *shape: int) -> NDArray[np.float32]:
        """A tensor of float32 values."""
        import numpy as np

        values = np.frombuffer(self._content, "<f4", math.prod(shape), self._offsets[name])
        return values.reshape(shape).astype(np.float32)

    def blocks(self, name: str, rows: int, columns: int) -> Blocks:
        """A matrix of 4-bit weights."""
        import numpy as np

        layout = np.dtype([("scale", "<f2"), ("nibbles", "u1", BLOCK // 2)])
        found = np.frombuffer(self._content, layout, rows * columns // BLOCK, self._offsets[name])
        found = found.reshape(rows, columns // BLOCK)
        return Blocks(found["nibbles"].copy(), found["scale"].copy())


def read(path: Path) -> E5S1:
    """Read a file; ModelDamaged if that is impossible."""
    try:
        return _read(path.read_bytes())
    except (OSError, ValueError, struct.error) as error:
        raise ModelDamaged(
            f"{path} cannot be read as weights: {error}; install its package again"
        ) from error


def _read(content: bytes) -> E5S1:
    import numpy as np

    magic, version, *sizes, epsilon, block = struct.unpack_from("<4si7ifi", content)
    if (magic, version, block) != (b"E5S1", 1, BLOCK):
        raise ValueError("it is not a file E5S1 of version 1")
    count, begin, end, _padding, unknown, size = struct.unpack_from("<5iQ", content, 44)
    at = 72
    offsets = np.frombuffer(content, "<u4", count + 1, at).tolist()
    scores = np.frombuffer(content, "<f4", count, at := at + 4 * (count + 1)).tolist()
    texts = content[(at := at + 4 * count) :][:size]
    pieces = [texts[first:last].decode() for first, last in pairwise(offsets)]
    _, rules = struct.unpack_from("<iI", content, at := at + size)
    (tensors,) = struct.unpack_from("<i", content, at := at + 8 + rules)
    at += 4
    places = {}
    for _ in range(tensors):
        (length,) = struct.unpack_from("<H", content, at)
        name = content[at + 2 : at + 2 + length].decode()
        _kind, _values, places[name], _bytes = struct.unpack_from("<BIQQ", content, at + 2 + length)
        at += 23 + length
    known = list(zip(pieces, scores, strict=True))
    values: list[Any] = [*sizes, epsilon, begin, end, unknown, known, content, places]
    return E5S1(*values)
