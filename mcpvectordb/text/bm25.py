"""BM25 (Robertson and Zaragoza, 2009) as FTS5 computes it, for what is scored outside of FTS5."""

from __future__ import annotations

import math

# FTS5's fixed parameters: how soon repeated terms stop counting, how much a row's length counts.
K1, B = 1.2, 0.75
# FTS5's lower bound: a term that more than half of the rows have would count negatively otherwise.
MIN_IDF = 1e-6


def idf(rows: int, having: float) -> float:
    """FTS5's inverse document frequency of a term that `having` of `rows` rows contain."""
    return max(MIN_IDF, math.log((max(0, rows - having) + 0.5) / (having + 0.5)))


def saturate(bm25: float) -> float:
    """A BM25 score on a scale of 0 to 1 that does not depend on the other results."""
    return bm25 / (1 + bm25)
