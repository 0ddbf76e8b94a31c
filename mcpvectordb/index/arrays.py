"""Embeddings as users give them, as BLOBs in the file, and as numpy arrays to compute with.

Of vectors that users bring along no precision is lost: a row is stored in float32 if that holds
every number exactly, and in float64 otherwise. What models make of texts is stored in the precision
of the file, float32 or float16. The length of a BLOB says which of them it has.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcpvectordb.errors import Damaged, InvalidInput
from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

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


def one(given: Any, name: str = "embedding") -> Group:
    """A single embedding from a list, a tuple or an array of one axis.

    Raises InvalidInput, which names the place of what is wrong.
    """
    row = _row(given, name)
    return Group([0], row.reshape(1, -1))


def many(given: Any, name: str = "embeddings") -> list[Group]:
    """One group for each dimension among several embeddings, given as a matrix or a list."""
    array = _array(given)
    if array is not None and array.ndim == 2 and array.dtype.kind in "fiu":
        return [Group(range(len(array)), _checked(array, name))] if len(array) else []
    if not _is_list(given) and (array is None or array.ndim == 0):
        raise InvalidInput(f"{name} must be a list of embeddings or a matrix, not {_noun(given)}")
    rows = [_row(each, f"{name}[{position}]") for position, each in enumerate(given)]
    return list(_grouped(rows))


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


def blocks(rows: Floats) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """The rows as float64, block by block, each with its slice."""
    step = block_rows(rows.shape[1])
    for start in range(0, len(rows), step):
        place = slice(start, start + step)
        yield place, rows[place].astype(np.float64)


def block_rows(dimension: int) -> int:
    """The number of rows of a block."""
    return max(1, BLOCK // dimension)


def _grouped(rows: Sequence[Floats]) -> Iterator[Group]:
    by_dimension: dict[int, list[int]] = {}
    for position, row in enumerate(rows):
        by_dimension.setdefault(len(row), []).append(position)
    for positions in by_dimension.values():
        yield Group(positions, np.stack([rows[position] for position in positions]))


def _row(given: Any, name: str) -> Floats:
    array = _array(given)
    if array is None or array.dtype.kind not in "fiu":
        array = _from_list(given if array is None else array.tolist(), name)
    if array.ndim != 1:
        raise InvalidInput(f"{name} must have one axis, but its shape is {array.shape}")
    row: Floats = _checked(array.reshape(1, -1), name, single=True)[0]
    return row


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


def _checked(rows: Any, name: str, *, single: bool = False) -> Floats:
    """Rows of numbers as float32 or float64, if each has one or more and all are finite."""
    dimension = rows.shape[1]
    if not 1 <= dimension <= MAX_DIMENSION:
        have = "has no numbers" if dimension == 0 else f"has {dimension:,} numbers"
        raise InvalidInput(f"{name} {have}; an embedding has 1 to {MAX_DIMENSION:,}")
    with np.errstate(over="ignore"):
        floats: Floats = np.ascontiguousarray(
            rows, "f4" if rows.dtype in (np.float16, np.float32) else "f8"
        )
    finite = np.isfinite(floats)
    if not finite.all():
        row, position = (int(each) for each in np.argwhere(~finite)[0])
        place = f"{name}[{position}]" if single else f"{name}[{row}][{position}]"
        raise InvalidInput(
            f"{place} is {floats[row, position]}, which cannot be ranked; give finite numbers"
        )
    return floats


def _array(given: Any) -> NDArray[Any] | None:
    """`given` as an array if it has the array interface; None for lists and everything else."""
    if not hasattr(given, "__array__"):
        return None
    return np.asarray(given)


def _is_list(given: Any) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str | bytes | bytearray)


def _noun(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"
