"""Similarity of embeddings to a query, in float64, for any finite numbers; higher is nearer.

A row's score depends on the row and the query alone, not on the rows around it (which a matrix
product does not guarantee), so equal rows have equal scores, and a row equal to the query has the
cosine 1.0 exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

# Sums of squares between these lost no precision to underflow or overflow.
TINY, HUGE = 1e-200, 1e200


def cosine(rows: Values, query: Values) -> Values:
    """The cosine of each row, -1 to 1; 0 if the row or the query is zero."""
    query, _ = _scaled(query)
    with np.errstate(over="ignore"):
        squares = np.vecdot(rows, rows)
        if (odd := _odd(squares)).any():
            rows = rows.copy()
            rows[odd], _ = _scaled(rows[odd])
            squares = np.vecdot(rows, rows)
    lengths = np.sqrt(squares * np.vecdot(query, query))
    with np.errstate(invalid="ignore"):  # infinity, which only a damaged embedding has, becomes NaN
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


def best(ids: NDArray[np.int64], scores: Values, limit: int) -> NDArray[np.intp]:
    """The positions of the highest scores, best first; equal scores in the order of their ids."""
    places = np.arange(len(ids))
    if len(ids) > limit > 0:
        places = np.flatnonzero(scores >= np.partition(scores, -limit)[-limit])
    order: NDArray[np.intp] = places[np.lexsort((ids[places], -scores[places]))][:limit]
    return order


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
