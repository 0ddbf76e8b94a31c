"""Both legs of a search over one index, and how they become one ranking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import apsw

from mcpvectordb import ranking, words
from mcpvectordb.errors import InvalidInput
from mcpvectordb.index import Index
from mcpvectordb.meaning import Allowed, Ranked
from mcpvectordb.records import Mode, Scores

BLIND_VECTOR_WEIGHT = 0.1  # for what a model cannot read: E-4021 is like E-4022 to it, and so are most foreign letters
FEEDBACK_CHUNKS = 3  # the best chunks say better what is meant than a short query does
MODES = ("hybrid", "text", "vector")
MAX_RESULTS = 10_000


@dataclass(frozen=True, slots=True)
class Meant:
    """A query's embedding by a model of the file, and how much that model's opinion weighs."""

    model: int
    embedding: bytes
    weight: float


@dataclass(frozen=True, slots=True)
class Found:
    """(id, score, scores) of chunks, best first; which legs ran, and why others did not."""

    rows: list[tuple[int, float, Scores]]
    legs: tuple[str, ...]
    reasons: Mapping[str, str]


def checked_page(limit: int, offset: int) -> None:
    """Refuse what is no page of a list."""
    for name, value in (("limit", limit), ("offset", offset)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            raise InvalidInput(f"{name} must be a whole number of 0 or more, not {value!r}")


def checked_window(limit: int, offset: int) -> int:
    """How many results must be ranked for a page of them."""
    checked_page(limit, offset)
    if limit + offset > MAX_RESULTS:
        raise InvalidInput(f"limit + offset is {limit + offset:,}, but at most {MAX_RESULTS:,} results are ranked: "
                           "narrow the search, or browse")
    return limit + offset


def checked_mode(mode: str) -> Mode:
    """`mode` if there is such a one."""
    for known in MODES:
        if mode == known:
            return known  # type: ignore[return-value]  # mypy does not narrow a loop variable to the literal
    raise InvalidInput(f"mode must be hybrid, text or vector, not {mode!r}")


def find(sql: apsw.Connection, index: Index, text: str, meant: Meant | str, mode: Mode, allowed: Allowed, wanted: int) -> Found:
    """Rank chunks for a query. `meant` is its embedding, or the reason why there is none."""
    query = words.parse(text)
    depth = ranking.tier_depth(wanted)
    by_words: Ranked = []
    by_meaning: Ranked = []
    legs, reasons = [], {}
    if mode != "vector":
        if query.match:
            by_words = index.match(sql, query, allowed, depth)
            legs.append("text")
        else:
            reasons["text"] = "the query has no words to look for"
    if mode != "text":
        if isinstance(meant, Meant):
            by_meaning = index.meaning.nearest(sql, meant.model, meant.embedding, index.bound(query, allowed), depth)
            legs.append("vector")
        else:
            reasons["vector"] = meant
    rows = _scored(sql, index, query, meant, by_words, by_meaning, legs)
    return Found(rows, tuple(legs), reasons)


def _scored(sql: apsw.Connection, index: Index, query: words.Query, meant: Meant | str, by_words: Ranked, by_meaning: Ranked,
            legs: list[str]) -> list[tuple[int, float, Scores]]:
    text, vector = dict(by_words), dict(by_meaning)
    text_rank = {id: rank for rank, id in enumerate(text, 1)}
    vector_rank = {id: rank for rank, id in enumerate(vector, 1)}
    if legs == ["text", "vector"] and isinstance(meant, Meant):
        text |= index.match_scores(sql, query, [id for id in vector if id not in text])
        vector |= index.meaning.cosines(sql, meant.model, meant.embedding, [id for id in text if id not in vector])
        weight = BLIND_VECTOR_WEIGHT if query.exact else meant.weight
        weights, tiers = [1 - weight, weight], ranking.tiers([list(text_rank), list(vector_rank)])
        best = [id for id, _ in ranking.fuse([text, vector], weights, tiers)[:FEEDBACK_CHUNKS]]
        towards = index.meaning.towards(sql, meant.model, meant.embedding, best)
        fused = ranking.fuse([text, index.meaning.cosines(sql, meant.model, towards, list(vector))], weights, tiers)
    elif legs == ["vector"]:
        fused = [(id, min(1.0, max(0.0, cosine))) for id, cosine in by_meaning]
    else:
        fused = [(id, ranking.saturated(score)) for id, score in by_words]
    return [(id, score, Scores(text=text.get(id), text_rank=text_rank.get(id), vector=vector.get(id),
                               vector_rank=vector_rank.get(id))) for id, score in fused]
