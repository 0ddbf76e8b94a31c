"""BM25 (Robertson and Zaragoza, 2009) as FTS5 computes it, for what is scored outside of FTS5."""

from __future__ import annotations

import math

K1, B = 1.2, 0.75  # FTS5's fixed parameters
MIN_IDF = 1e-6  # FTS5's, for a term that more than half of the rows have


def idf(rows: int, having: float) -> float:
    """FTS5's inverse document frequency: what a word is worth that so many of the rows have."""
    return max(MIN_IDF, math.log((max(0, rows - having) + 0.5) / (having + 0.5)))


def saturate(bm25: float) -> float:
    """BM25 on a scale of 0 to 1 that does not depend on the other results."""
    return bm25 / (1 + bm25)
