"""Both legs of a search over one index, and how they become one ranking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import apsw

from mcpvectordb.errors import InvalidInput
from mcpvectordb.index import Allowed, Ranked
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.encoder import BLIND_VECTOR_WEIGHT, QueryEmbedding
from mcpvectordb.index.postings import Matched
from mcpvectordb.records import Mode, Scores
from mcpvectordb.search import fusion
from mcpvectordb.search.relevance import Judge
from mcpvectordb.text.bm25 import saturate
from mcpvectordb.text.query import Query, parse_query
from mcpvectordb.text.tokens import is_non_latin

FEEDBACK_CHUNKS = 3  # the best chunks say better what is meant than a short query does
MODES = ("hybrid", "text", "vector")
MAX_RESULTS = 5_000  # a page behind twice as many would take seconds of memories by meaning
NOTHING = Matched([], lambda ids: dict.fromkeys(ids, 0.0))


@dataclass(frozen=True, slots=True)
class Found:
    """(id, score, scores) of chunks, best first; which legs ran, and why others did not; who judges
    their relevance.
    """

    rows: list[tuple[int, float, Scores]]
    legs: tuple[str, ...]
    reasons: Mapping[str, str]
    judge: Judge


def checked_page(limit: int, offset: int) -> None:
    """Refuse what is no page of a list."""
    for name, value in (("limit", limit), ("offset", offset)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            raise InvalidInput(f"{name} must be a whole number of 0 or more, not {value!r}")


def checked_window(limit: int, offset: int) -> int:
    """How many results must be ranked for a page of them."""
    checked_page(limit, offset)
    if limit + offset > MAX_RESULTS:
        raise InvalidInput(
            f"limit + offset is {limit + offset:,}, but at most {MAX_RESULTS:,} results are "
            "ranked: narrow the search, or browse"
        )
    return limit + offset


def checked_mode(mode: str) -> Mode:
    """`mode` if there is such a one."""
    for known in MODES:
        if mode == known:
            # mypy does not narrow a loop variable to the literal
            return known  # type: ignore[return-value]
    raise InvalidInput(f"mode must be hybrid, text or vector, not {mode!r}")


def common_words(matched: Matched) -> dict[str, str]:
    """The reason to give where words were so common that they were not (all) looked for."""
    return {"common words": matched.note} if matched.note else {}


def find(
    sql: apsw.Connection,
    index: ChunkIndex,
    text: str,
    query_embedding: QueryEmbedding | str,
    mode: Mode,
    allowed: Allowed,
    wanted: int,
) -> Found:
    """The `wanted` best chunks for a query. `query_embedding` is its embedding, or the reason
    why there is none.
    """
    query = parse_query(text)
    depth = fusion.tier_depth(wanted)
    matched = NOTHING
    by_meaning: Ranked = []
    legs: list[str] = []
    reasons: dict[str, str] = {}
    if mode != "vector":
        if query.match:
            matched = index.keyword.match(sql, query, allowed, depth)
            legs.append("text")
            reasons |= common_words(matched)
        else:
            reasons["text"] = "the query has no words to look for"
    if mode != "text":
        if isinstance(query_embedding, QueryEmbedding):
            by_meaning = index.vector.nearest(
                sql,
                query_embedding.model,
                query_embedding.embedding,
                index.keyword.bound(query, allowed),
                depth,
            )
            legs.append("vector")
        else:
            reasons["vector"] = query_embedding
    rows = _scored(sql, index, query, query_embedding, matched, by_meaning, legs, wanted)
    return Found(rows, tuple(legs), reasons, judge(text, query, query_embedding))


def judge(text: str, query: Query, query_embedding: QueryEmbedding | str) -> Judge:
    """Who tells how relevant the answers to a query are."""
    model = query_embedding.name if isinstance(query_embedding, QueryEmbedding) else ""
    return Judge(model, exact=query.exact, foreign=is_non_latin(text))


def _scored(
    sql: apsw.Connection,
    index: ChunkIndex,
    query: Query,
    query_embedding: QueryEmbedding | str,
    matched: Matched,
    by_meaning: Ranked,
    legs: list[str],
    wanted: int,
) -> list[tuple[int, float, Scores]]:
    text, vector = dict(matched.best), dict(by_meaning)
    text_rank = {id: rank for rank, id in enumerate(text, 1)}
    vector_rank = {id: rank for rank, id in enumerate(vector, 1)}
    if legs == ["text", "vector"] and isinstance(query_embedding, QueryEmbedding):
        text |= matched.scores([id for id in vector if id not in text])
        gathered = index.vector.gathered(
            sql, query_embedding.model, len(query_embedding.embedding) // 4, list(text)
        )
        vector = gathered.cosines(query_embedding.embedding)
        weight = BLIND_VECTOR_WEIGHT if query.exact else query_embedding.weight
        weights, tiers = [1 - weight, weight], fusion.tiers([list(text_rank), list(vector_rank)])
        best = [id for id, _ in fusion.fuse([text, vector], weights, tiers)[:FEEDBACK_CHUNKS]]
        fused = fusion.fuse(
            [text, gathered.cosines(gathered.rocchio(query_embedding.embedding, best))],
            weights,
            tiers,
        )
    elif legs == ["vector"]:
        fused = [(id, min(1.0, max(0.0, cosine))) for id, cosine in by_meaning]
    else:
        fused = [(id, saturate(score)) for id, score in matched.best]
    return [
        (
            id,
            score,
            Scores(
                text=text.get(id),
                text_rank=text_rank.get(id),
                vector=vector.get(id),
                vector_rank=vector_rank.get(id),
                reach=matched.reach,
            ),
        )
        for id, score in fused[:wanted]
    ]
