"""BM25 (Robertson and Zaragoza, 2009) as FTS5 computes it, for what is scored outside of FTS5."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mcpvectordb.text.query import Query

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


def full_score(query: Query, rows: int, frequencies: Mapping[str, int]) -> tuple[float, float]:
    """The BM25 of a row of average length that has every term of a query once, and the share of it
    that is due to codes which some row has.

    `frequencies` has the number of rows that have each term.
    """
    weights = {term: idf(rows, having) for term, having in frequencies.items()}
    # `Query.match` names a phrase twice: it is required, and it is one of the terms.
    full = sum(weights[term] for term in (*query.phrases, *query.phrases, *query.terms))
    coded = sum(
        weights[term]
        for term in (*query.terms, *query.spellings)
        if frequencies[term] and (term in query.codes or term in query.spellings)
    )
    return full, min(1.0, coded / full) if full else 0.0
