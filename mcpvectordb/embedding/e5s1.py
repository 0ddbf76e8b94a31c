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
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpvectordb.errors import ModelDamaged

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAGIC, VERSION, BLOCK = b"E5S1", 1, 32
_BLOCK_BYTES = 2 + BLOCK // 2
_FLOATS, _NIBBLES = 0, 1
# Far above any encoder of this family: sizes that are multiplied below stay small numbers.
_LARGEST = 1 << 22


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The sizes of an encoder."""

    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    types: int
    epsilon: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Pieces:
    """The pieces of a SentencePiece tokenizer by id, and the ids of its special ones."""

    texts: list[str]
    scores: list[float]
    begin: int
    end: int
    padding: int
    unknown: int


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
class _Tensor:
    """Where a tensor is."""

    kind: int
    count: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class E5S1:
    """A file that was read; its tensors are decoded when they are asked for."""

    path: Path
    shape: Shape
    pieces: Pieces
    _content: bytes = field(repr=False)
    _entries: dict[str, _Tensor] = field(repr=False)

    def floats(self, name: str, *shape: int) -> NDArray[np.float32]:
        """A tensor of float32 values."""
        import numpy as np

        entry = self._entry(name, _FLOATS, math.prod(shape), 4 * math.prod(shape))
        found = np.frombuffer(self._content, "<f4", entry.count, entry.offset).reshape(shape)
        return self._finite(name, found.astype(np.float32))

    def blocks(self, name: str, rows: int, columns: int) -> Blocks:
        """A matrix of 4-bit weights."""
        import numpy as np

        count = rows * columns
        entry = self._entry(name, _NIBBLES, count, count // BLOCK * _BLOCK_BYTES)
        layout = np.dtype([("scale", "<f2"), ("nibbles", "u1", BLOCK // 2)])
        found = np.frombuffer(self._content, layout, count // BLOCK, entry.offset)
        found = found.reshape(rows, columns // BLOCK)
        return Blocks(found["nibbles"].copy(), self._finite(name, found["scale"].copy()))

    def _entry(self, name: str, kind: int, count: int, size: int) -> _Tensor:
        found = self._entries.get(name)
        if found is None:
            raise _damaged(self.path, f"it has no tensor {name}")
        if (found.kind, found.count, found.size) != (kind, count, size):
            raise _damaged(self.path, f"the tensor {name} has another type or size than expected")
        if found.offset + found.size > len(self._content):
            raise _damaged(self.path, f"the tensor {name} lies beyond its end")
        return found

    def _finite(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        import numpy as np

        if not np.isfinite(values).all():
            raise _damaged(self.path, f"the tensor {name} has values that are no numbers")
        return values


def read(path: Path) -> E5S1:
    """Read a file; ModelDamaged says what is wrong with it."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _damaged(path, str(error)) from error
    cursor = _Cursor(path, content)
    if cursor.bytes(4) != MAGIC or cursor.number("i") != VERSION:
        raise _damaged(path, f"it does not begin with {MAGIC.decode()} and version {VERSION}")
    shape = _shape(cursor)
    pieces = _pieces(cursor, shape.vocabulary)
    cursor.number("i")
    cursor.bytes(cursor.number("I"))
    return E5S1(path, shape, pieces, content, dict(_entries(cursor)))


class _Cursor:
    """Reads numbers and bytes one after the other; what is not there is an error."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path, self._content, self._at = path, content, 0

    def bytes(self, count: int) -> bytes:
        if count > len(self._content) - self._at:
            raise _damaged(self.path, "it ends too early")
        self._at += count
        return self._content[self._at - count : self._at]

    def number(self, kind: str) -> int:
        return int(struct.unpack(f"<{kind}", self.bytes(struct.calcsize(f"<{kind}")))[0])

    def sizes(self, count: int) -> tuple[int, ...]:
        """Some int32, each at least 1."""
        found = struct.unpack(f"<{count}i", self.bytes(4 * count))
        if not all(0 < each <= _LARGEST for each in found):
            raise _damaged(self.path, f"its sizes {found} are impossible")
        return found


def _shape(cursor: _Cursor) -> Shape:
    names = ("hidden", "layers", "heads", "feed_forward", "vocabulary", "positions", "types")
    sizes = dict(zip(names, cursor.sizes(len(names)), strict=True))
    (epsilon,) = struct.unpack("<f", cursor.bytes(4))
    if not 0 < epsilon < 1:
        raise _damaged(cursor.path, f"its epsilon is {epsilon}")
    blocks = cursor.number("i")
    whole = (
        sizes["hidden"] % sizes["heads"],
        sizes["hidden"] % BLOCK,
        sizes["feed_forward"] % BLOCK,
    )
    if blocks != BLOCK or any(whole):
        raise _damaged(cursor.path, f"its sizes do not divide into heads or blocks of {BLOCK}")
    return Shape(**sizes, epsilon=epsilon)


def _pieces(cursor: _Cursor, vocabulary: int) -> Pieces:
    import numpy as np

    (count,) = cursor.sizes(1)
    special = struct.unpack("<4i", cursor.bytes(16))
    if count > vocabulary or not all(0 <= each < count for each in special):
        raise _damaged(cursor.path, "its pieces do not fit its vocabulary")
    size = cursor.number("Q")
    offsets = np.frombuffer(cursor.bytes(4 * (count + 1)), "<u4").tolist()
    scores = np.frombuffer(cursor.bytes(4 * count), "<f4")
    blob = cursor.bytes(size)
    if offsets[0] != 0 or offsets[-1] != size or offsets != sorted(offsets):
        raise _damaged(cursor.path, "the offsets of its pieces are not in order")
    try:
        texts = [blob[a:b].decode() for a, b in pairwise(offsets)]
    except UnicodeDecodeError:
        raise _damaged(cursor.path, "its pieces are not UTF-8") from None
    if not all(texts) or len(set(texts)) < count or not np.isfinite(scores).all():
        raise _damaged(cursor.path, "its pieces or their scores are not distinct or no numbers")
    names = ("begin", "end", "padding", "unknown")
    return Pieces(texts=texts, scores=scores.tolist(), **dict(zip(names, special, strict=True)))


def _entries(cursor: _Cursor) -> Iterator[tuple[str, _Tensor]]:
    (count,) = cursor.sizes(1)
    for _ in range(count):
        name = cursor.bytes(cursor.number("H")).decode(errors="replace")
        yield name, _Tensor(*struct.unpack("<BIQQ", cursor.bytes(21)))


def _damaged(path: Path, what: str) -> ModelDamaged:
    return ModelDamaged(f"{path} cannot be read as weights: {what}; install its package again")
