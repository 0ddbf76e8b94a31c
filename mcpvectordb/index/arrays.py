"""Embeddings as numbers: as users give them, as BLOBs, compared by a metric, and quantized. Pure.

**BLOBs.** Of vectors that users bring along no precision is lost: a row is stored in float32 if
that holds every number exactly, and in float64 otherwise. What models make of texts is stored in
the precision of the file, float32 or float16. The length of a BLOB says which of them it has.

**Metrics** are computed in float64, for any finite numbers; higher is nearer. A row's score depends
on the row and the query alone, not on the rows around it (which a matrix product does not
guarantee), so equal rows have equal scores, and a row equal to the query has the cosine 1.0
exactly.

**Codes** are int8 vectors, from which candidates for the nearest of many embeddings are chosen in
about a millisecond (`Codes`). Three stages, each on fewer rows:

1. **Sign bits.** Of every code the signs of its components relative to the mean direction
   (`centre`) are kept, 64 in a word. The Hamming distance to the query's signs, counted where the
   query's components are large, orders all rows roughly; the nearest few per cent go on. (Binary
   quantization; Charikar's SimHash, 2002.)
2. **Int8 codes.** The cosine by scalar quantization orders those (`CodedRows`).
3. **Rescoring.** The caller compares the exact embeddings of the best, where the last digit
   counts: the cosine of a code differs from that of its embedding by some ten-thousandths.

For few rows the first stage is left out, and the error of the second is bounded, so that no
neighbour is missed. The result depends on the codes, the centre and the query alone, not on the
order of the rows or on earlier searches: every process that reads the same file gets the same
result.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from mcpvectordb.errors import Damaged, InvalidInput
from mcpvectordb.index.resident import Ranked
from mcpvectordb.index.tuning import DEFAULT, Tuning
from mcpvectordb.storage.lazy import np

try:
    import simsimd
except ImportError:  # there is no wheel for every system
    simsimd = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Values = NDArray[np.float64]

MAX_DIMENSION = 16_384  # of an embedding: far above that of common models
BLOCK = 2**17  # numbers of a block: a megabyte of float64 fits into the processor's cache

_TYPES = {2: "<f2", 4: "<f4", 8: "<f8"}  # of stored numbers, by their size in bytes


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of one dimension among those given, and their positions there."""

    positions: Sequence[int]
    rows: Floats

    @property
    def dimension(self) -> int:
        """The number of components of a row."""
        return int(self.rows.shape[1])


def one(given: Any) -> Group:
    """A single embedding from a list, a tuple or an array of one axis.

    Raises InvalidInput, which names the place of what is wrong.
    """
    return Group([0], _row(given, "embedding").reshape(1, -1))


def many(given: Any) -> list[Group]:
    """One group for each dimension among several embeddings, given as a matrix or a list."""
    array = _array(given)
    if array is not None and array.ndim == 2 and array.dtype.kind in "fiu":
        return [Group(range(len(array)), _checked(array, "embeddings"))] if len(array) else []
    if not _is_list(given) and (array is None or array.ndim == 0):
        raise InvalidInput(
            f"embeddings must be a list of embeddings or a matrix, not {_noun(given)}"
        )
    rows = [_row(each, f"embeddings[{position}]") for position, each in enumerate(given)]
    by_dimension: dict[int, list[int]] = {}
    for position, row in enumerate(rows):
        by_dimension.setdefault(len(row), []).append(position)
    return [
        Group(each, np.stack([rows[place] for place in each])) for each in by_dimension.values()
    ]


def packed(rows: Floats) -> list[Floats]:
    """One array for each row, in the narrower type that holds it exactly; SQLite stores BLOBs."""
    if rows.dtype == np.float32:
        return list(rows)
    with np.errstate(over="ignore"):
        narrow = rows.astype(np.float32)
    exact = (narrow == rows).all(axis=1)
    return [
        small if fits else wide
        for small, wide, fits in zip(narrow, rows, exact.tolist(), strict=True)
    ]


def unpacked(blobs: Sequence[bytes], dimension: int) -> NDArray[np.float64]:
    """The matrix of embeddings that were stored as BLOBs."""
    lengths = set(map(len, blobs))
    if not lengths <= {bytes * dimension for bytes in _TYPES}:
        raise Damaged(f"an embedding does not have {dimension} values: run `mcpvectordb check`")
    if len(lengths) > 1:
        return np.concatenate([unpacked([blob], dimension) for blob in blobs])
    kind = _TYPES[max(lengths, default=8 * dimension) // dimension]
    with np.errstate(invalid="ignore"):  # `check` reports damaged embeddings
        return np.frombuffer(b"".join(blobs), kind).reshape(-1, dimension).astype(np.float64)


def in_precision(blobs: Sequence[bytes], dimension: int, precision: str) -> list[bytes]:
    """The BLOBs of a model's embeddings as a file of this precision stores them.

    Only their direction counts, so those that become float16 get the length 1: then none of their
    numbers is too large for it, and few are so small that it holds them less precisely.
    """
    size = np.dtype(precision).itemsize * dimension
    others = [place for place, blob in enumerate(blobs) if len(blob) != size]
    if not others:
        return list(blobs)
    rows = unpacked([blobs[place] for place in others], dimension)
    if precision == "float16":
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        rows /= np.where(lengths > 0, lengths, 1)
    result = list(blobs)
    for place, row in zip(others, rows.astype(precision), strict=True):
        result[place] = row.tobytes()
    return result


def fits(blob: bytes, dimension: int, *, of_user: bool = False) -> bool:
    """Whether a BLOB can hold an embedding of this dimension; one `of_user` is never float16."""
    return len(blob) in [bytes * dimension for bytes in _TYPES if not (of_user and bytes == 2)]


def is_rankable(blob: bytes, dimension: int) -> bool:
    """Whether a BLOB is an embedding of a text: float32 or float16, finite, of usable length."""
    if len(blob) not in (2 * dimension, 4 * dimension):
        return False
    norm = float(np.linalg.norm(unpacked([blob], dimension)))
    return 1e-6 <= norm <= 1e6


def block_rows(dimension: int) -> int:
    """The number of rows of a block."""
    return max(1, BLOCK // dimension)


def _row(given: Any, name: str) -> Floats:
    array = _array(given)
    if array is None or array.dtype.kind not in "fiu":
        array = _from_list(given if array is None else array.tolist(), name)
    if array.ndim != 1:
        raise InvalidInput(f"{name} must have one axis, but its shape is {array.shape}")
    return _checked(array, name)


def _from_list(given: Any, name: str) -> NDArray[np.float64]:
    if not _is_list(given):
        raise InvalidInput(f"{name} must be a list of numbers, not {_noun(given)}")
    if not set(map(type, given)) <= {float, int}:
        for position, value in enumerate(given):
            if isinstance(value, bool | np.bool_) or not isinstance(
                value, int | float | np.integer | np.floating
            ):
                raise InvalidInput(f"{name}[{position}] must be a number, not {_noun(value)}")
    try:
        return np.array(given, np.float64)
    except OverflowError:
        position = next(
            position for position, value in enumerate(given) if abs(value) > sys.float_info.max
        )
        raise InvalidInput(
            f"{name}[{position}] is too large: numbers go up to {sys.float_info.max:.2g}"
        ) from None


def _checked(given: Any, name: str) -> Floats:
    """An embedding, or rows of them, as float32 or float64 if they have numbers, all finite."""
    dimension = given.shape[-1]
    if not 1 <= dimension <= MAX_DIMENSION:
        have = "has no numbers" if dimension == 0 else f"has {dimension:,} numbers"
        raise InvalidInput(f"{name} {have}; an embedding has 1 to {MAX_DIMENSION:,}")
    with np.errstate(over="ignore"):
        floats: Floats = np.ascontiguousarray(
            given, "f4" if given.dtype in (np.float16, np.float32) else "f8"
        )
    finite = np.isfinite(floats)
    if not finite.all():
        place = tuple(np.argwhere(~finite)[0].tolist())
        raise InvalidInput(
            f"{name}{''.join(f'[{each}]' for each in place)} is {floats[place]}, which cannot be "
            "ranked; give finite numbers"
        )
    return floats


def _array(given: Any) -> NDArray[Any] | None:
    """`given` as an array if it has the array interface; None for lists and everything else."""
    return np.asarray(given) if hasattr(given, "__array__") else None


def _is_list(given: Any) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str | bytes | bytearray)


def _noun(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"


# Metrics.

# Sums of squares between these lost no precision to underflow or overflow.
TINY, HUGE = 1e-200, 1e200
PLAIN = 1e100  # and of a query: its product with one of those is finite, and not 0


def cosine(rows: Values, query: Values) -> Values:
    """The cosine of each row, -1 to 1; 0 if the row or the query is zero."""
    with np.errstate(over="ignore", invalid="ignore"):  # only a damaged embedding has infinity
        squares, size = np.vecdot(rows, rows), np.vecdot(query, query)
        if (odd := _odd(squares)).any() or not 1 / PLAIN < size < PLAIN:
            query, rows = _scaled(query)[0], rows.copy()
            rows[odd], _ = _scaled(rows[odd])
            squares, size = np.vecdot(rows, rows), np.vecdot(query, query)
        lengths = np.sqrt(squares * size)
        cosines: Values = np.divide(
            np.vecdot(rows, query), lengths, out=np.zeros_like(squares), where=lengths != 0
        )
    return np.clip(cosines, -1.0, 1.0, out=cosines)


def dot(rows: Values, query: Values) -> Values:
    """The dot product of each row, clipped to the range of float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        products: Values = np.vecdot(rows, query)
        if (odd := ~np.isfinite(products)).any():
            (small, shifts), (small_query, shift) = _scaled(rows[odd]), _scaled(query)
            products[odd] = _bounded(
                np.ldexp(np.vecdot(small, small_query), shifts[..., 0] + shift[0])
            )
    return products


def euclidean(rows: Values, query: Values) -> Values:
    """The negative Euclidean distance of each row, so that the nearest has the highest score."""
    with np.errstate(over="ignore", invalid="ignore"):
        apart = rows - query
        squares = np.vecdot(apart, apart)
        distances: Values = np.sqrt(squares)
        if (odd := _odd(squares)).any():
            # The difference of two finite numbers can overflow, that of their halves cannot.
            halves, shifts = _scaled(rows[odd] / 2 - query / 2)
            distances[odd] = _bounded(
                np.ldexp(np.sqrt(np.vecdot(halves, halves)), shifts[..., 0] + 1)
            )
    return 0.0 - distances


METRICS: Mapping[str, Callable[[Values, Values], Values]] = {
    "cosine": cosine,
    "dot": dot,
    "euclidean": euclidean,
}


def highest(ids: NDArray[np.int64], scores: Values, limit: int) -> NDArray[np.intp]:
    """The positions of the highest scores, best first; equal scores in the order of their ids."""
    places = np.arange(len(ids))
    if len(ids) > limit > 0:
        places = np.flatnonzero(scores >= np.partition(scores, -limit)[-limit])
    order: NDArray[np.intp] = places[np.lexsort((ids[places], -scores[places]))][:limit]
    return order


def ranked(ids: NDArray[np.int64], scores: Values, limit: int) -> Ranked:
    """(id, score) of the highest scores, best first; equal scores in the order of their ids."""
    order = highest(ids, scores, limit)
    return list(zip(ids[order].tolist(), scores[order].tolist(), strict=True))


def _odd(squares: Values) -> NDArray[np.bool_]:
    return ~((squares > TINY) & (squares < HUGE))


def _scaled(rows: Values) -> tuple[Values, NDArray[np.intc]]:
    """Each row scaled by a power of two so that its largest number is near 1, and the exponents.

    A power of two does not round.
    """
    _, shifts = np.frexp(np.abs(rows).max(axis=-1, keepdims=True))
    return np.ldexp(rows, -shifts), shifts


def _bounded(values: Values) -> Values:
    largest = np.finfo(np.float64).max
    return np.clip(values, -largest, largest)


class Embeddings(NamedTuple):
    """Some embeddings."""

    ids: list[int]
    rows: Values

    @classmethod
    def of(cls, rows: Sequence[tuple[int, bytes]], dimension: int) -> Embeddings:
        """Those of rows with an id and a BLOB."""
        return cls([id for id, _ in rows], unpacked([blob for _, blob in rows], dimension))

    def cosines(self, query: Floats) -> dict[int, float]:
        """The exact cosine of each to a query's embedding."""
        cosines = cosine(self.rows, query.astype(np.float64))
        return dict(zip(self.ids, cosines.tolist(), strict=True))


# Codes.

ROCCHIO_WEIGHT = 0.3  # of the mean of relevant passages against the query, both of length 1
FINE = 254  # steps into which a query's rounding errors are divided
# If a filter allows at most one in so many rows, comparing their codes is cheaper than all signs.
SIGN_SHARE = 32
# The power of the number of rows that sign bits choose as candidates: of the true ten nearest they
# miss some in a thousand, from 10,000 rows to a million. What is fused with words needs fewer.
CANDIDATE_POWER, FUSED_POWER = 2 / 3, 0.6
# Signs of a query's components below this share of their root mean square are mostly noise.
LARGE = 0.75
SIGN_DIMENSION = 256  # below this, Hamming distances are too coarse to choose candidates
MOST_SIGNS = 2**8 - 2  # signs that are compared at most: distances are kept in a byte
FORBIDDEN = 2**8 - 1  # the distance of a row that a filter does not allow
ROUNDING = 1e-5  # upper bound of the rounding error of a code's cosine
WIDENED = 512  # rows that numpy widens at once: they fit into the processor's cache
SAMPLED = 61  # one in so many distances is in a sample of them
EXACT = 2**24 // 127**2  # products of two int8 that float32 can add without rounding
# Rows whose signs are made, and of which a word of signs is compared, at once: they fit into the
# processor's cache.
SIGN_BLOCK, SIGNS_AT_ONCE = 50_000, 32_768


def encode(rows: Floats) -> NDArray[np.int8]:
    """The int8 codes of embeddings: the largest component of each becomes ±127.

    A zero vector has no direction, and vec0 would rank it before all others; it gets the code of an
    arbitrary direction.
    """
    result = np.empty(rows.shape, np.int8)
    step = block_rows(rows.shape[1])
    with np.errstate(invalid="ignore"):  # `check` reports damaged embeddings; any code will do here
        for start in range(0, len(rows), step):
            place = slice(start, start + step)
            block = rows[place].astype(np.float64)
            largest = np.maximum(block.max(axis=1), -block.min(axis=1))
            block[largest == 0], largest[largest == 0] = 1, 1
            block /= largest[:, None]
            block *= 127
            result[place] = np.rint(block, out=block)
    return result


def products(queries: NDArray[np.int8], rows: NDArray[np.int8]) -> NDArray[np.float64]:
    """The dot products of each query with all rows: whole numbers, the same by every kernel.

    simsimd computes them by the processor's own instructions at the speed of its memory, ten times
    as fast as numpy, which has to widen the numbers first.
    """
    if simsimd is None or not len(rows):
        return np.stack([widened(query, rows) for query in queries])
    found: NDArray[np.float64] = np.asarray(simsimd.cdist(queries, rows, metric="dot"))
    return found


def widened(query: NDArray[np.int8], rows: NDArray[np.int8]) -> NDArray[np.float64]:
    """The same by numpy: some rows at a time in float32, as many components as it can add."""
    found = np.zeros(len(rows))
    for start in range(0, len(query), EXACT):
        part = slice(start, start + EXACT)
        wide = query[part].astype(np.float32)
        for first in range(0, len(rows), WIDENED):
            some = slice(first, first + WIDENED)
            found[some] += np.vecdot(rows[some, part].astype(np.float32), wide)
    return found


class CodedQuery(NamedTuple):
    """A query's direction as two int8 vectors: the second refines the first by 1 / FINE.

    With one alone, the query would be rounded as much as the rows are. All numbers are whole, so a
    cosine is the same on every machine.
    """

    codes: NDArray[np.int8]
    length: float
    error: float  # upper bound of a cosine's error by rounding the query

    @classmethod
    def of(cls, query: Floats) -> CodedQuery:
        """The code of a query of any length; that of zeros has the cosine 0 with everything."""
        wide = query.astype(np.float64)
        wide /= np.abs(wide).max() or 1.0  # before anything that could overflow
        wide *= 127
        codes = np.empty((2, len(wide)))
        coarse, fine = codes
        np.rint(wide, out=coarse)
        wide -= coarse
        wide *= FINE
        np.rint(wide, out=fine)
        whole = coarse * FINE + fine
        length = math.sqrt(whole @ whole) or 1.0
        error = math.sqrt(len(wide)) / length  # of every component at most one half
        return cls(codes.astype(np.int8), length, error)

    def cosines(self, codes: NDArray[np.int8], lengths: NDArray[np.float32]) -> NDArray[np.float64]:
        """The cosine of each code, given their lengths."""
        found: NDArray[np.float64]
        found, fine = products(self.codes, codes)
        found *= FINE
        found += fine
        found /= lengths
        found /= self.length
        return found


@dataclass(frozen=True)
class CodedRows:
    """The codes of some rows with distinct ids, to be compared with queries."""

    ids: NDArray[np.int64]
    codes: NDArray[np.int8]
    lengths: NDArray[np.float32]

    @classmethod
    def of(cls, ids: Sequence[int], embeddings: Floats) -> CodedRows:
        """The codes of embeddings."""
        codes = encode(embeddings)
        return cls(np.array(ids, np.int64), codes, code_lengths(codes))

    def cosines(self, query: Floats) -> NDArray[np.float64]:
        """The cosine of each row's code to a query."""
        return CodedQuery.of(query).cosines(self.codes, self.lengths)

    def best(self, query: Floats, limit: int) -> Ranked:
        """(id, cosine) of the nearest by their codes, best first; equal ones in order of ids."""
        return ranked(self.ids, self.cosines(query), limit)

    def rocchio(self, query: Floats, relevant: Sequence[int]) -> Floats:
        """A query moved towards the mean direction of relevant rows, as their codes have it.

        Pseudo-relevance feedback after Rocchio (1971): q' = q / |q| + w · mean of the unit vectors.
        """
        places = np.flatnonzero((self.ids[:, None] == np.array(relevant, np.int64)).any(axis=1))
        if not len(places):
            return query
        start = query.astype(np.float64)
        mean = (self.codes[places] / self.lengths[places, None].astype(np.float64)).mean(axis=0)
        moved: Floats = start / (math.sqrt(start @ start) or 1.0) + ROCCHIO_WEIGHT * mean
        return moved


class Codes:
    """The int8 codes of one group. One thread may change them while others search.

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
        self.dimension = codes.shape[1]
        self._centre, self._tuning = centre, tuning
        if (ids[1:] < ids[:-1]).any():
            order = np.argsort(ids)
            ids, codes = ids[order], codes[order]
        self._ids, self._codes = ids, codes
        self._ascending = len(ids)  # rows in the order of their ids; later ones are added behind
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
        return len(self.alive) > 1_000 and 2 * int(np.count_nonzero(self.alive)) < len(self.alive)

    def replace(
        self, removed: NDArray[np.int64], ids: NDArray[np.int64], codes: NDArray[np.int8]
    ) -> None:
        """Remove some ids, then add others."""
        first, last = len(self.alive), len(self.alive) + len(ids)
        alive = self.alive & ~np.isin(self.ids, removed)
        if last > len(self._ids):  # grow by half, so that appending often costs little
            for name, axis in (("_ids", 0), ("_codes", 0), ("_lengths", 0), ("_signs", 1)):
                old = getattr(self, name)
                shape = list(old.shape)
                shape[axis] = max(last, old.shape[axis] * 3 // 2)
                new = np.zeros(shape, old.dtype)
                new[(slice(None),) * axis + (slice(old.shape[axis]),)] = old
                setattr(self, name, new)
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
        signed = self._sign_candidates(query, limit, alive, allowed, CANDIDATE_POWER)
        rows = np.flatnonzero(allowed) if signed is None else signed
        if len(rows) > limit:
            coded = CodedQuery.of(query)
            cosines = self._cosines(coded, rows)
            if signed is None:
                rows = rows[self._possible(cosines, rows, limit, coded.error)]
            else:
                most = min(limit + limit // 2 + 5, len(rows))
                rows = rows[cosines >= np.partition(cosines, -most)[-most]]
        found: list[int] = self._ids[rows].tolist()
        return found

    def best(
        self, query: Floats, limit: int, alive: NDArray[np.bool_], allowed: NDArray[np.bool_]
    ) -> Ranked:
        """(id, cosine) of the `limit` nearest of the allowed rows by their codes, best first.

        See `nearest` for `alive` and `allowed`. Equal cosines come in the order of the ids.
        """
        signed = self._sign_candidates(query, limit, alive, allowed, FUSED_POWER)
        rows = np.flatnonzero(allowed) if signed is None else signed
        cosines = self._cosines(CodedQuery.of(query), rows)
        return ranked(self._ids[rows], cosines, limit)

    def rows(self, wanted: NDArray[np.int64], alive: NDArray[np.bool_]) -> CodedRows:
        """The codes of those of the wanted ids, which ascend, that exist."""
        first = self._ids[: self._ascending]
        rows = np.searchsorted(first, wanted)
        rows = rows[rows < len(first)]
        rows = rows[self._ids[rows] == wanted[: len(rows)]]
        if len(alive) > self._ascending:
            added = np.flatnonzero(np.isin(self._ids[self._ascending : len(alive)], wanted))
            rows = np.concatenate([rows, self._ascending + added])
            rows = rows[np.argsort(self._ids[rows])]
        rows = rows[alive[rows]]
        return CodedRows(self._ids[rows], self._codes[rows], self._lengths[rows])

    def _sign_candidates(
        self,
        query: Floats,
        limit: int,
        alive: NDArray[np.bool_],
        allowed: NDArray[np.bool_],
        power: float,
    ) -> NDArray[np.int64] | None:
        """The allowed rows that are nearest by sign bits; None if all are to be compared.

        Two directions that enclose an angle a differ in the sign of a random component with
        probability a / pi, so the Hamming distance of the signs estimates the angle (SimHash:
        Charikar, 2002). Its error shrinks with the number of components, hence SIGN_DIMENSION; how
        many candidates make up for it is measured (`power`, of the number of rows). All rows at the
        largest distance that is needed are taken, so the result does not depend on their order.
        """
        rows = int(np.count_nonzero(allowed))
        count = max(self._tuning.sign_candidates, int(rows**power), 4 * limit)
        few = max(self._tuning.sign_rows, int(np.count_nonzero(alive)) // SIGN_SHARE, count)
        if self._centre is None or rows <= few or self.dimension < SIGN_DIMENSION:
            return None
        wide = query.astype(np.float64)
        wide /= np.abs(wide).max() or 1.0  # before anything that could overflow
        unit = (wide / (np.linalg.norm(wide) or 1.0)).astype(np.float32)
        distances = self._hamming(unit - self._centre, len(allowed))
        if rows < len(allowed):
            distances[~allowed] = FORBIDDEN
        return _nearest(distances, count)

    def _hamming(self, centred: NDArray[np.float32], rows: int) -> NDArray[np.uint8]:
        """In how many signs each row differs, counted where the query's components are large."""
        sizes = np.abs(centred)
        mean = float(centred @ centred / len(centred)) ** 0.5
        large = _words(sizes > max(LARGE * mean, np.partition(sizes, -MOST_SIGNS)[-MOST_SIGNS]))
        signs = _words(centred > 0)
        distances = np.empty(rows, np.uint8)
        differing = np.empty(min(rows, SIGNS_AT_ONCE), np.uint64)
        ones = np.empty(len(differing), np.uint8)
        for start in range(0, rows, SIGNS_AT_ONCE):
            part = slice(start, min(start + SIGNS_AT_ONCE, rows))
            sums = distances[part]
            sums[:] = 0
            words, counts = differing[: len(sums)], ones[: len(sums)]
            for plane, sign, mask in zip(self._signs, signs, large, strict=True):
                np.bitwise_xor(plane[part], sign, out=words)
                np.bitwise_and(words, mask, out=words)
                np.bitwise_count(words, out=counts)
                np.add(sums, counts, out=sums)
        return distances

    def _cosines(self, query: CodedQuery, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """The cosines of rows by their codes; all rows need not be copied."""
        if len(rows) == len(self._ids):
            return query.cosines(self._codes, self._lengths)
        # The default mode "raise" would copy once more.
        codes = np.take(self._codes, rows, axis=0, mode="clip")
        return query.cosines(codes, self._lengths[rows])

    def _possible(
        self, cosines: NDArray[np.float64], rows: NDArray[np.int64], limit: int, error: float
    ) -> NDArray[np.bool_]:
        """Which rows may be among the `limit` nearest by their embeddings.

        Quantization rounds each component by at most one half, so an embedding and its code differ
        by an error vector of at most sqrt(dimension) / 2: they enclose an angle whose sine is at
        most that, divided by the code's length. The cosine to any query then differs by at most
        `off`. A row is possible if its upper bound reaches the `limit`-th best lower bound (a
        filter-and-refine search). The bound says nothing about zero embeddings: they have the
        cosine 0 with any code, so all rows stay possible unless the bound is above 0.
        """
        sines = self.dimension**0.5 / 2 / self._lengths[rows]
        off = sines * (1 + sines * sines) + np.float32(ROUNDING + error)
        worst = np.partition(cosines - off, -limit)[-limit]
        return cosines + off >= worst if worst > 0 else np.ones(len(rows), bool)

    def _complete(self, last: int, alive: NDArray[np.bool_] | None = None) -> None:
        """Compute lengths and signs of the rows after the existing ones, and mark them as alive."""
        alive = self.alive if alive is None else alive
        for start in range(len(alive), last, SIGN_BLOCK):
            part = slice(start, min(start + SIGN_BLOCK, last))
            self._lengths[part] = lengths = code_lengths(self._codes[part])
            if self._centre is not None:
                self._signs[:, part] = _words(self._codes[part] > lengths[:, None] * self._centre)
        self.alive = np.concatenate([alive, np.ones(last - len(alive), bool)])


class CodeView(NamedTuple):
    """The codes that a transaction sees, a mask of the rows that exist, and of those to be found.

    Cosines of codes are within some ten-thousandths of the exact ones: what is fused with other
    scores is ranked by them, without reading an embedding.
    """

    codes: Codes
    alive: NDArray[np.bool_]
    usable: NDArray[np.bool_]

    def best(self, query: Floats, limit: int) -> Ranked:
        """(id, cosine) of the nearest by their codes, best first."""
        return self.codes.best(query, limit, self.alive, self.usable)

    def rows(self, ids: NDArray[np.int64]) -> CodedRows:
        """The codes of those of the given ids that have one."""
        return self.codes.rows(ids, self.alive)


def centre(codes: NDArray[np.int8]) -> NDArray[np.float32]:
    """The mean direction of codes.

    Encoders map all texts into a narrow cone (anisotropy), where the plain signs of all are equal;
    relative to the mean they differ.
    """
    mean: NDArray[np.float32] = np.mean(codes / code_lengths(codes)[:, None], axis=0)
    return mean


def code_lengths(codes: NDArray[np.int8]) -> NDArray[np.float32]:
    """The Euclidean length of each code."""
    lengths = np.empty(len(codes), np.float32)
    for start in range(0, len(codes), WIDENED):
        wide = codes[start : start + WIDENED].astype(np.float64)
        lengths[start : start + WIDENED] = np.sqrt(np.vecdot(wide, wide))
    lengths[lengths == 0] = 1.0  # avoids a division by zero; the dot product is 0 anyway
    return lengths


def _nearest(distances: NDArray[np.uint8], count: int) -> NDArray[np.intp]:
    """The rows at the `count` smallest distances, and all others at the largest of these.

    A sample says below which distance there are about twice as many, and those are compared.
    """
    some = distances[::SAMPLED]
    rank = min(2 * count // SAMPLED, len(some) - 1)
    rows = np.flatnonzero(distances <= np.partition(some, rank)[rank])
    if len(rows) < count:
        rows = np.flatnonzero(distances < FORBIDDEN)
    near = distances[rows]
    nearest: NDArray[np.intp] = rows[near <= np.partition(near, count - 1)[count - 1]]
    return nearest


def _words(bits: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Bits of the last axis packed into words of 64, words along the first axis."""
    packed = np.packbits(bits, axis=-1, bitorder="little")
    padded = np.zeros((*bits.shape[:-1], 8 * -(-bits.shape[-1] // 64)), np.uint8)
    padded[..., : packed.shape[-1]] = packed
    return padded.view(np.uint64).T
