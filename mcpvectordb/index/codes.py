"""Codes in memory: which of many embeddings are nearest to one, in about a millisecond, for a
process that lives on.

Three stages, each on fewer rows: the signs of the centred components, compared 64 at a time where
those of the query are large; the int8 codes of the best by signs; and, by the caller, the exact
cosines of the best by codes. Nothing here is ever written to the file.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mcpvectordb.index.arrays import Floats

SIGN_ROWS = 5_000  # up to so many usable rows all codes are compared, which misses nothing,
SIGN_SHARE = 32  # and up to one in so many rows: comparing the signs of all would take as long
BY_SIGNS = 1_000  # candidates that signs choose at least,
# and so many times the root of the rows: of real embeddings, two in a thousand of the true ten are
# lost then
PER_ROOT = 6
# of their root mean square: signs of smaller components of a query are mostly noise and not
# compared
LARGE = 0.75
SIGN_DIMENSION = (
    256  # signs of fewer components tell too little, and their codes are quickly compared
)
SAMPLE = 17  # every so many-th row tells how near the best by signs will be
FARTHEST = 2**8 - 1  # more signs than are ever compared
ROUNDING = 1e-5  # by which the cosine of a code in float32 may be off
# rows whose signs are compared at once: what is reckoned with stays in the processor's cache
BLOCK = 25_000
CODE_BLOCK = 512  # rows whose codes are


class Resident:
    """The int8 codes of one vec0 table, row by row. One thread may change them while others search.

    `alive` tells which rows count. It is never changed, only replaced, and what a search needs lies
    below its length.
    """

    def __init__(self, ids: NDArray[np.int64], codes: NDArray[np.int8]) -> None:
        import numpy as np

        self.dimension = codes.shape[1]
        self._centre = _centre(codes)
        self._ids, self._codes = ids, codes
        self._lengths = np.empty(len(ids), np.float32)
        self._signs = np.empty((-(-self.dimension // 64), len(ids)), np.uint64)
        self.alive = np.empty(0, bool)
        self._complete(len(ids))

    @staticmethod
    def bytes_for(rows: int, dimension: int) -> int:
        """How much memory so many rows take."""
        return rows * (dimension + 8 * -(-dimension // 64) + 13)

    @property
    def size(self) -> int:
        """How many bytes of memory this takes."""
        return self.bytes_for(len(self._ids), self.dimension)

    @property
    def ids(self) -> NDArray[np.int64]:
        """The id of each row; one that was replaced has another row."""
        return self._ids[: len(self.alive)]

    @property
    def fragmented(self) -> bool:
        """Whether most rows no longer count, so that it is better made anew."""
        import numpy as np

        return len(self.alive) > 1_000 and 2 * int(np.count_nonzero(self.alive)) < len(self.alive)

    def replace(
        self, removed: NDArray[np.int64], ids: NDArray[np.int64], codes: NDArray[np.int8]
    ) -> None:
        """Forget some ids, then add others."""
        import numpy as np

        first, last = len(self.alive), len(self.alive) + len(ids)
        alive = self.alive & ~np.isin(self.ids, removed)
        if last > len(self._ids):
            self._grow(
                max(last, len(self._ids) * 3 // 2)
            )  # by half, so that appending often costs little
        self._ids[first:last], self._codes[first:last] = ids, codes
        self._complete(last, alive)

    def narrowed(self, usable: NDArray[np.bool_], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The usable rows that have one of these ids."""
        import numpy as np

        return usable & np.isin(self._ids[: len(usable)], ids)

    def nearest(self, query: Floats, limit: int, usable: NDArray[np.bool_]) -> list[int]:
        """Ids of usable rows, those of the `limit` nearest embeddings among them, for the caller to
        rank exactly.

        Where usable rows are few that is certain; where they are many, signs have chosen among
        them. Embeddings that are zero have codes that say nothing: where they may be among the
        nearest, all of few rows come back.
        """
        import numpy as np

        unit = _unit(query)
        rows, certain = self._by_signs(unit, usable, limit)
        if len(rows) > limit:
            cosines = self._by_codes(unit, rows)
            most = min(limit + limit // 2 + 5, len(rows))
            rows = rows[
                self._possible(cosines, rows, limit)
                if certain
                else np.argpartition(cosines, -most)[-most:]
            ]
        found: list[int] = self._ids[rows].tolist()
        return found

    def _by_signs(
        self, unit: NDArray[np.float32], usable: NDArray[np.bool_], limit: int
    ) -> tuple[NDArray[np.int64], bool]:
        """The rows to look at more closely, and whether they are all that are usable; else they are
        the best by signs.
        """
        import numpy as np

        rows = int(np.count_nonzero(usable))
        count = max(BY_SIGNS, int(PER_ROOT * rows**0.5), 4 * limit)
        if (
            rows <= max(SIGN_ROWS, len(usable) // SIGN_SHARE, count)
            or self.dimension < SIGN_DIMENSION
        ):
            return np.flatnonzero(usable), True
        apart = self._apart(unit - self._centre, len(usable))
        if rows < len(usable):
            apart[~usable] = FARTHEST
        sample = apart[::SAMPLE][usable[::SAMPLE]]
        place = count * len(sample) // rows
        most = np.partition(sample, place)[place] if len(sample) else np.uint8(0)
        while np.count_nonzero(near := apart <= most) < count:
            most += 1
        return np.flatnonzero(near), False

    def _apart(self, centred: NDArray[np.float32], rows: int) -> NDArray[np.uint8]:
        """In how many signs each row differs from a query, where the query's components are
        large.
        """
        import numpy as np

        sizes = np.abs(centred)
        mean = float(centred @ centred / len(centred)) ** 0.5
        large = _packed(sizes > max(LARGE * mean, np.partition(sizes, -FARTHEST)[-FARTHEST]))
        signs = _packed(centred > 0)
        apart = np.zeros(rows, np.uint8)
        for start in range(0, rows, BLOCK):
            part = slice(start, min(start + BLOCK, rows))
            for plane, sign, matters in zip(self._signs[:, part], signs, large, strict=True):
                differing = plane ^ sign
                differing &= matters
                apart[part] += np.bitwise_count(differing)
        return apart

    def _by_codes(self, unit: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The cosines of rows by their codes."""
        import numpy as np

        cosines = np.empty(len(rows), np.float32)
        codes = np.empty((min(CODE_BLOCK, len(rows)), self.dimension), np.int8)
        wide = np.empty(codes.shape, np.float32)
        for start in range(0, len(rows), CODE_BLOCK):
            part = rows[start : start + CODE_BLOCK]
            np.take(
                self._codes, part, axis=0, out=codes[: len(part)], mode="clip"
            )  # "raise" would copy once more
            wide[: len(part)] = codes[: len(part)]
            # Row by row: a product of this size is slower when it is spread over threads.
            np.vecdot(wide[: len(part)], unit, out=cosines[start : start + CODE_BLOCK])
        return cosines / self._lengths[rows]

    def _possible(
        self, cosines: NDArray[np.float32], rows: NDArray[np.int64], limit: int
    ) -> NDArray[np.bool_]:
        """Which rows may be among the nearest by their embeddings, of which codes differ by no more
        than rounding.
        """
        import numpy as np

        # A component is rounded by half at most, which turns a code by no more than an angle of
        # this sine.
        sines = self.dimension**0.5 / 2 / self._lengths[rows]
        off = sines * (1 + sines * sines) + np.float32(ROUNDING)
        worst = np.partition(cosines - off, -limit)[-limit]
        return cosines + off >= worst if worst > 0 else np.ones(len(rows), bool)

    def _complete(self, last: int, alive: NDArray[np.bool_] | None = None) -> None:
        """Work out what follows from the codes of rows behind those that are alive, and make them
        count.
        """
        import numpy as np

        alive = self.alive if alive is None else alive
        for start in range(len(alive), last, BLOCK):
            part = slice(start, min(start + BLOCK, last))
            codes = self._codes[part].astype(np.float32)
            self._lengths[part] = lengths = _lengths(codes)
            self._signs[:, part] = _packed(codes > lengths[:, None] * self._centre)
        self.alive = np.concatenate([alive, np.ones(last - len(alive), bool)])

    def _grow(self, room: int) -> None:
        import numpy as np

        for name, axis in (("_ids", 0), ("_codes", 0), ("_lengths", 0), ("_signs", 1)):
            old = getattr(self, name)
            shape = list(old.shape)
            shape[axis] = room
            new = np.zeros(shape, old.dtype)
            new[(slice(None),) * axis + (slice(old.shape[axis]),)] = old
            setattr(self, name, new)


def _unit(query: Floats) -> NDArray[np.float32]:
    """The direction of an embedding, whatever its length; zeros have none."""
    import numpy as np

    wide = query.astype(np.float64)
    wide /= np.abs(wide).max() or 1.0
    return (wide / (np.linalg.norm(wide) or 1.0)).astype(np.float32)


def _centre(codes: NDArray[np.int8]) -> NDArray[np.float32]:
    """The mean direction of a sample: encoders put all texts on one side, where plain signs say
    little.
    """
    import numpy as np

    sample = codes[:: max(1, len(codes) // 20_000)].astype(np.float32)
    return (
        np.mean(sample / _lengths(sample)[:, None], axis=0)
        if len(sample)
        else np.zeros(codes.shape[1], np.float32)
    )


def _lengths(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    import numpy as np

    lengths: NDArray[np.float32] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    lengths[lengths == 0] = 1.0  # a vector of zeros is equally far from everything
    return lengths


def _packed(bits: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """64 bits of the last axis in a word, words along the first axis."""
    import numpy as np

    packed = np.packbits(bits, axis=-1, bitorder="little")
    padded = np.zeros((*bits.shape[:-1], 8 * -(-bits.shape[-1] // 64)), np.uint8)
    padded[..., : packed.shape[-1]] = packed
    return padded.view(np.uint64).T


class Sized(Protocol):
    """Whatever can be kept in memory."""

    @property
    def size(self) -> int:
        """How many bytes of memory this takes."""


class Residents:
    """What one process keeps in memory of a file, by name: at most `limit` bytes, dropped at will.

    A thing is kept from the second time that it is asked for: a process that asks once is better
    served by the file. Whoever gets, changes or keeps something holds the lock.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._asked: Counter[str] = Counter()
        self._kept: dict[str, Any] = {}
        self.lock = threading.Lock()

    def get(self, name: str) -> Any:
        """What is kept under a name, or None; those least lately asked for are the first to go."""
        if (kept := self._kept.pop(name, None)) is not None:
            self._kept[name] = kept
        return kept

    def wanted(self, name: str, size: int) -> bool:
        """Count a question for something of about this size; whether it should be kept from now
        on.
        """
        self._asked[name] += 1
        return self._asked[name] > 1 and size <= self._limit

    def keep(self, name: str, kept: Sized) -> None:
        """Keep something, and let others go that do not fit beside it; what has grown beyond all
        limits is let go itself.
        """
        self._kept.pop(name, None)
        while self._kept and self._bytes() + kept.size > self._limit:
            del self._kept[next(iter(self._kept))]
        if kept.size <= self._limit:
            self._kept[name] = kept

    def forget(self, name: str) -> None:
        """Let go what is kept under a name, if anything is."""
        self._kept.pop(name, None)

    def drop(self) -> None:
        """Forget everything; searches read the file again."""
        self._kept.clear()

    def _bytes(self) -> int:
        return sum(kept.size for kept in self._kept.values())
