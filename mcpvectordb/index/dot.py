"""Dot products of int8 vectors, which are whole numbers: the same by every kernel.

simsimd computes them by the processor's own instructions at the speed of its memory, ten times as
fast as numpy, which has to widen the numbers first. Where simsimd is not installed, numpy does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import simsimd
except ImportError:  # there is no wheel for every system
    simsimd = None  # type: ignore[assignment]

from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 512  # rows that are widened at once: they fit into the processor's cache
EXACT = 2**24 // 127**2  # products of two int8 that float32 can add without rounding


def products(query: NDArray[np.int8], rows: NDArray[np.int8]) -> NDArray[np.float64]:
    """The dot product of each row with the query, exactly."""
    if simsimd is None or not len(rows):
        return widened(query, rows)
    found: NDArray[np.float64] = np.asarray(simsimd.cdist(query[None, :], rows, metric="dot"))[0]
    return found


def widened(query: NDArray[np.int8], rows: NDArray[np.int8]) -> NDArray[np.float64]:
    """The same by numpy: some rows at a time in float32, as many components as it can add."""
    found = np.zeros(len(rows))
    for start in range(0, len(query), EXACT):
        part = slice(start, start + EXACT)
        wide = query[part].astype(np.float32)
        for first in range(0, len(rows), BLOCK):
            some = slice(first, first + BLOCK)
            found[some] += np.vecdot(rows[some, part].astype(np.float32), wide)
    return found
