"""Codes in memory: which of many embeddings are nearest to one, in a few milliseconds, for a process that lives on.

Three stages, each on fewer rows: the signs of the centred components, compared 64 at a time; the int8 codes of the best
by signs; and, by the caller, the exact cosines of the best by codes. Nothing here is ever written to the file.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SIGN_ROWS = 4_000  # below, comparing all codes is as fast as comparing signs first
BY_SIGNS = 2_000  # candidates that signs choose; on real embeddings none of the true ten is lost with so many
SIGN_DIMENSION = 256  # signs of fewer components tell too little, and their codes are quickly compared
FARTHEST = 2**16 - 1  # more than the components that any embedding has
BLOCK = 16_384


class Resident:
    """The int8 codes of one vec0 table; `ids` and `codes` row by row."""

    def __init__(self, ids: NDArray[np.int64], codes: NDArray[np.int8]) -> None:
        import numpy as np

        self.dimension = codes.shape[1]
        self._centre = _centre(codes)
        self._count = 0
        self._ids = np.empty(0, np.int64)
        self._alive = np.empty(0, bool)
        self._codes = np.empty((0, self.dimension), np.int8)
        self._lengths = np.empty(0, np.float32)
        self._signs = np.empty((-(-self.dimension // 64), 0), np.uint64)
        self._length = float(_lengths(_sample(codes)).mean()) if len(codes) else 1.0
        self._append(ids, codes)

    @staticmethod
    def bytes_for(rows: int, dimension: int) -> int:
        """How much memory so many rows take."""
        return rows * (dimension + 8 * -(-dimension // 64) + 13)

    @property
    def size(self) -> int:
        """How many bytes of memory this takes."""
        return self.bytes_for(len(self._ids), self.dimension)

    def replace(self, removed: NDArray[np.int64], ids: NDArray[np.int64], codes: NDArray[np.int8]) -> None:
        """Forget some ids, then add others."""
        import numpy as np

        known = self._ids[:self._count]
        self._alive[:self._count] &= ~np.isin(known, removed)
        if len(ids):
            self._append(ids, codes)

    def nearest(self, embedding: bytes, count: int, allowed: NDArray[np.int64] | None = None) -> list[int]:
        """About the `count` nearest ids by their codes, of all or of the allowed ones; the caller ranks them exactly."""
        import numpy as np

        query = np.frombuffer(embedding, np.float32)
        usable = self._alive[:self._count]
        if allowed is not None:
            usable = usable & np.isin(self._ids[:self._count], allowed)
        rows = self._by_signs(query, usable, max(BY_SIGNS, 4 * count))
        scores = self._by_codes(query, rows)
        best = np.argpartition(-scores, count)[:count] if len(scores) > count else np.arange(len(scores))
        return [int(id) for id in self._ids[rows[best]]]

    def _by_signs(self, query: NDArray[np.float32], usable: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
        """The rows to look at more closely: all that are usable when they are few, else the best by signs."""
        import numpy as np

        rows = int(np.count_nonzero(usable))
        if rows <= max(SIGN_ROWS, count) or self.dimension < SIGN_DIMENSION:
            return np.flatnonzero(usable)
        length = float(np.linalg.norm(query)) or 1.0
        signs = _signs(query[None, :] * (self._length / length), self._centre)[:, 0]
        apart = np.zeros(self._count, np.uint16)
        for plane, sign in zip(self._signs, signs, strict=True):
            apart += np.bitwise_count(plane[:self._count] ^ sign)
        if rows < self._count:
            apart[~usable] = FARTHEST
        limit = int(np.searchsorted(np.cumsum(np.bincount(apart)), count))
        return np.flatnonzero(apart <= limit)

    def _by_codes(self, query: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        import numpy as np

        scores = np.empty(len(rows), np.float32)
        for start in range(0, len(rows), BLOCK):
            part = rows[start:start + BLOCK]
            # Row by row: a product of this size is slower when it is spread over threads.
            scores[start:start + BLOCK] = np.vecdot(self._codes[part].astype(np.float32), query) / self._lengths[part]
        return scores

    def _append(self, ids: NDArray[np.int64], codes: NDArray[np.int8]) -> None:
        """Fill rows behind the last one; room grows by half, so that appending often costs little."""
        first, last = self._count, self._count + len(ids)
        if last > len(self._ids):
            self._grow(max(last, len(self._ids) * 3 // 2))
        self._ids[first:last], self._codes[first:last], self._alive[first:last] = ids, codes, True
        for start in range(first, last, BLOCK):
            part = slice(start, min(start + BLOCK, last))
            self._lengths[part] = _lengths(self._codes[part])
            self._signs[:, part] = _signs(self._codes[part], self._centre)
        self._count = last

    def _grow(self, room: int) -> None:
        import numpy as np

        for name, axis in (("_ids", 0), ("_alive", 0), ("_codes", 0), ("_lengths", 0), ("_signs", 1)):
            old = getattr(self, name)
            shape = list(old.shape)
            shape[axis] = room
            new = np.zeros(shape, old.dtype)
            new[(slice(None),) * axis + (slice(old.shape[axis]),)] = old
            setattr(self, name, new)


def _sample(codes: NDArray[np.int8]) -> NDArray[np.int8]:
    return codes[::max(1, len(codes) // 20_000)]


def _centre(codes: NDArray[np.int8]) -> NDArray[np.int8]:
    """The mean of a sample: encoders put all texts on one side, where plain signs say little."""
    import numpy as np

    sample = _sample(codes)
    return np.rint(sample.mean(axis=0)).astype(np.int8) if len(sample) else np.zeros(codes.shape[1], np.int8)


def _lengths(codes: NDArray[np.int8]) -> NDArray[np.float32]:
    import numpy as np

    wide = codes.astype(np.float32)
    lengths: NDArray[np.float32] = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    lengths[lengths == 0] = 1.0  # a vector of zeros is equally far from everything
    return lengths


def _signs(rows: NDArray[np.int8] | NDArray[np.float32], centre: NDArray[np.int8]) -> NDArray[np.uint64]:
    """One bit per component, 64 in a word, words along the first axis."""
    import numpy as np

    bits = np.packbits(rows > centre, axis=1, bitorder="little")
    padded = np.zeros((len(bits), 8 * -(-centre.shape[0] // 64)), np.uint8)
    padded[:, :bits.shape[1]] = bits
    return padded.view(np.uint64).T


@dataclass(slots=True)
class Kept:
    """Codes in memory, and the change of the file up to which they are right."""

    codes: Resident
    seq: int


class Residents:
    """What one process keeps in memory of a file's vec0 tables, by their names: at most `limit` bytes, dropped at will.

    A table is kept from the second time that it is asked for: a process that asks once is better served by the file.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._asked: Counter[str] = Counter()
        self._kept: dict[str, Kept] = {}
        self.lock = threading.Lock()

    def get(self, name: str) -> Kept | None:
        """What is kept of a table."""
        return self._kept.get(name)

    def wanted(self, name: str, rows: int, dimension: int) -> bool:
        """Count a question to a table; whether it should be kept from now on."""
        self._asked[name] += 1
        return self._asked[name] > 1 and Resident.bytes_for(rows, dimension) <= self._limit

    def keep(self, name: str, kept: Kept) -> None:
        """Keep a table, and let others go that no longer fit beside it."""
        self._kept.pop(name, None)
        while self._kept and self._bytes() + kept.codes.size > self._limit:
            del self._kept[next(iter(self._kept))]
        self._kept[name] = kept

    def drop(self) -> None:
        """Forget everything; searches read the file again."""
        self._kept.clear()

    def _bytes(self) -> int:
        return sum(kept.codes.size for kept in self._kept.values())
