"""Codes in memory: candidates for the nearest of many embeddings, in about a millisecond.

Three stages, each on fewer rows:

1. **Sign bits.** Of every code the signs of its components relative to the mean direction
   (`centre`) are kept, 64 in a word. The Hamming distance to the query's signs, counted where the
   query's components are large, orders all rows roughly; the nearest few per cent go on. (Binary
   quantization; Charikar's SimHash, 2002.)
2. **Int8 codes.** The cosine by scalar quantization orders those.
3. **Rescoring.** The caller compares the exact embeddings of the best.

For few rows the first stage is left out, and the error of the second is bounded, so that no
neighbour is missed. The result depends on the codes, the centre and the query alone, not on the
order of the rows or on earlier searches: every process that reads the same file gets the same
result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpvectordb.index.tuning import DEFAULT, Tuning

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mcpvectordb.index.arrays import Floats

# If a filter allows at most one in so many rows, comparing their codes is cheaper than all signs.
SIGN_SHARE = 32
# Sign candidates per square root of the rows: misses two in a thousand of the true ten nearest.
PER_ROOT = 6
# Signs of a query's components below this share of their root mean square are mostly noise.
LARGE = 0.75
SIGN_DIMENSION = 256  # below this, Hamming distances are too coarse to choose candidates
MOST_SIGNS = 2**8 - 1  # signs that are compared at most: distances are kept in a byte
ROUNDING = 1e-5  # upper bound of the float32 rounding error of a code's cosine
BLOCK = 25_000  # rows whose signs are compared at once: they fit into the processor's cache
CODE_BLOCK = 512  # rows whose codes are compared at once, for the same reason


class Codes:
    """The int8 codes of one vec0 table. One thread may change them while others search.

    `alive` marks the rows that exist. It is never changed, only replaced, and a search reads only
    rows below its length. Without a `centre` there are no sign bits, and all codes are compared.
    """

    def __init__(
        self,
        ids: NDArray[np.int64],
        codes: NDArray[np.int8],
        centre: NDArray[np.float32] | None = None,
        tuning: Tuning = DEFAULT,
    ) -> None:
        import numpy as np

        self.dimension = codes.shape[1]
        self._centre, self._tuning = centre, tuning
        self._ids, self._codes = ids, codes
        self._lengths = np.empty(len(ids), np.float32)
        words = 0 if centre is None else -(-self.dimension // 64)
        self._signs = np.empty((words, len(ids)), np.uint64)
        self.alive = np.empty(0, bool)
        self._complete(len(ids))

    @staticmethod
    def bytes_for(rows: int, dimension: int) -> int:
        """The number of bytes of memory that so many rows take."""
        return rows * (dimension + 8 * -(-dimension // 64) + 13)

    @property
    def size(self) -> int:
        """The number of bytes of memory that this takes."""
        return self.bytes_for(len(self._ids), self.dimension)

    @property
    def ids(self) -> NDArray[np.int64]:
        """The id of each row; a replaced id has a later row, too, of which only one is alive."""
        return self._ids[: len(self.alive)]

    @property
    def fragmented(self) -> bool:
        """Whether most rows are deleted, so that reading all codes again is better."""
        import numpy as np

        return len(self.alive) > 1_000 and 2 * int(np.count_nonzero(self.alive)) < len(self.alive)

    def replace(
        self, removed: NDArray[np.int64], ids: NDArray[np.int64], codes: NDArray[np.int8]
    ) -> None:
        """Remove some ids, then add others."""
        import numpy as np

        first, last = len(self.alive), len(self.alive) + len(ids)
        alive = self.alive & ~np.isin(self.ids, removed)
        if last > len(self._ids):  # grow by half, so that appending often costs little
            self._grow(max(last, len(self._ids) * 3 // 2))
        self._ids[first:last], self._codes[first:last] = ids, codes
        self._complete(last, alive)

    def nearest(
        self, query: Floats, limit: int, alive: NDArray[np.bool_], allowed: NDArray[np.bool_]
    ) -> list[int]:
        """The ids of candidates for the `limit` nearest of the allowed rows, to be ranked exactly.

        `alive` is the value of this object's `alive` that `allowed`, a subset of it, was derived
        from. If few rows are allowed, no true neighbour is missing; if sign bits had to choose, one
        may be. The code of a zero embedding is arbitrary: if one may be among the nearest of few
        rows, all of these are candidates.
        """
        import numpy as np

        unit = _unit(query)
        signed = self._sign_candidates(unit, limit, alive, allowed)
        rows = np.flatnonzero(allowed) if signed is None else signed
        if len(rows) > limit:
            cosines = self._code_cosines(unit, rows)
            if signed is None:
                rows = rows[self._possible(cosines, rows, limit)]
            else:
                most = min(limit + limit // 2 + 5, len(rows))
                rows = rows[cosines >= np.partition(cosines, -most)[-most]]
        found: list[int] = self._ids[rows].tolist()
        return found

    def _sign_candidates(
        self,
        unit: NDArray[np.float32],
        limit: int,
        alive: NDArray[np.bool_],
        allowed: NDArray[np.bool_],
    ) -> NDArray[np.int64] | None:
        """The allowed rows that are nearest by sign bits; None if all are to be compared.

        Two directions that enclose an angle a differ in the sign of a random component with
        probability a / pi, so the Hamming distance of the signs estimates the angle (SimHash:
        Charikar, 2002). Its error shrinks with the number of components, hence SIGN_DIMENSION; how
        many candidates make up for it is measured (PER_ROOT). The threshold is the smallest
        distance within which enough rows lie, found from a histogram of all distances (they are
        bytes). All rows at that distance are taken, so the result does not depend on the order of
        the rows.
        """
        import numpy as np

        rows = int(np.count_nonzero(allowed))
        count = max(self._tuning.sign_candidates, int(PER_ROOT * rows**0.5), 4 * limit)
        few = max(self._tuning.sign_rows, int(np.count_nonzero(alive)) // SIGN_SHARE, count)
        if self._centre is None or rows <= few or self.dimension < SIGN_DIMENSION:
            return None
        distances = self._hamming(unit - self._centre, len(allowed))
        histogram = np.bincount(distances[allowed], minlength=MOST_SIGNS + 1)
        threshold = int(np.searchsorted(np.cumsum(histogram), count))
        return np.flatnonzero((distances <= threshold) & allowed)

    def _hamming(self, centred: NDArray[np.float32], rows: int) -> NDArray[np.uint8]:
        """In how many signs each row differs, counted where the query's components are large."""
        import numpy as np

        sizes = np.abs(centred)
        mean = float(centred @ centred / len(centred)) ** 0.5
        large = _packed(sizes > max(LARGE * mean, np.partition(sizes, -MOST_SIGNS)[-MOST_SIGNS]))
        signs = _packed(centred > 0)
        distances = np.zeros(rows, np.uint8)
        for start in range(0, rows, BLOCK):
            part = slice(start, min(start + BLOCK, rows))
            for plane, sign, matters in zip(self._signs[:, part], signs, large, strict=True):
                differing = plane ^ sign
                differing &= matters
                distances[part] += np.bitwise_count(differing)
        return distances

    def _code_cosines(
        self, unit: NDArray[np.float32], rows: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """The cosines of rows, computed from their codes."""
        import numpy as np

        cosines = np.empty(len(rows), np.float32)
        codes = np.empty((min(CODE_BLOCK, len(rows)), self.dimension), np.int8)
        wide = np.empty(codes.shape, np.float32)
        for start in range(0, len(rows), CODE_BLOCK):
            part = rows[start : start + CODE_BLOCK]
            # The default mode "raise" would copy once more.
            np.take(self._codes, part, axis=0, out=codes[: len(part)], mode="clip")
            wide[: len(part)] = codes[: len(part)]
            # Row by row: a product of this size is slower when it is spread over threads.
            np.vecdot(wide[: len(part)], unit, out=cosines[start : start + CODE_BLOCK])
        return cosines / self._lengths[rows]

    def _possible(
        self, cosines: NDArray[np.float32], rows: NDArray[np.int64], limit: int
    ) -> NDArray[np.bool_]:
        """Which rows may be among the `limit` nearest by their embeddings.

        Quantization rounds each component by at most one half, so an embedding and its code differ
        by an error vector of at most sqrt(dimension) / 2: they enclose an angle whose sine is at
        most that, divided by the code's length. The cosine to any query then differs by at most
        `off`. A row is possible if its upper bound reaches the `limit`-th best lower bound (a
        filter-and-refine search). The bound says nothing about zero embeddings: they have the
        cosine 0 with any code, so all rows stay possible unless the bound is above 0.
        """
        import numpy as np

        sines = self.dimension**0.5 / 2 / self._lengths[rows]
        off = sines * (1 + sines * sines) + np.float32(ROUNDING)
        worst = np.partition(cosines - off, -limit)[-limit]
        return cosines + off >= worst if worst > 0 else np.ones(len(rows), bool)

    def _complete(self, last: int, alive: NDArray[np.bool_] | None = None) -> None:
        """Compute lengths and signs of the rows after the existing ones, and mark them as alive."""
        import numpy as np

        alive = self.alive if alive is None else alive
        for start in range(len(alive), last, BLOCK):
            part = slice(start, min(start + BLOCK, last))
            codes = self._codes[part].astype(np.float32)
            self._lengths[part] = lengths = _lengths(codes)
            if self._centre is not None:
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
    """An embedding scaled to length 1 without overflow; zeros stay zeros."""
    import numpy as np

    wide = query.astype(np.float64)
    wide /= np.abs(wide).max() or 1.0
    return (wide / (np.linalg.norm(wide) or 1.0)).astype(np.float32)


def centre(codes: NDArray[np.int8]) -> NDArray[np.float32]:
    """The mean direction of codes.

    Encoders map all texts into a narrow cone (anisotropy), where the plain signs of all are equal;
    relative to the mean they differ.
    """
    import numpy as np

    wide = codes.astype(np.float32)
    mean: NDArray[np.float32] = np.mean(wide / _lengths(wide)[:, None], axis=0)
    return mean


def _lengths(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    import numpy as np

    lengths: NDArray[np.float32] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    lengths[lengths == 0] = 1.0  # avoids a division by zero; the dot product is 0 anyway
    return lengths


def _packed(bits: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Bits of the last axis packed into words of 64, words along the first axis."""
    import numpy as np

    packed = np.packbits(bits, axis=-1, bitorder="little")
    padded = np.zeros((*bits.shape[:-1], 8 * -(-bits.shape[-1] // 64)), np.uint8)
    padded[..., : packed.shape[-1]] = packed
    return padded.view(np.uint64).T
