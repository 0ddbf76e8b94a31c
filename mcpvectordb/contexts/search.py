"""Ranking contexts for a query: words over whole contexts, meaning by the best chunk, and both
fused by their ranks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import apsw

from mcpvectordb.contexts.fulltext import ContextFulltext
from mcpvectordb.contexts.rows import Chosen
from mcpvectordb.errors import InvalidInput
from mcpvectordb.index import Ranked
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.encoder import QueryEmbedding
from mcpvectordb.records import Explained, Mode, Scores
from mcpvectordb.search import fusion
from mcpvectordb.search.explain import StatementLog
from mcpvectordb.search.highlight import highlight
from mcpvectordb.search.hybrid import checked_mode
from mcpvectordb.text import boolean
from mcpvectordb.text.bm25 import saturate
from mcpvectordb.text.query import FulltextQuery, Term, match_query, phrase_query, prefix_query

LARGEST_K = 1_000
REREAD = (
    40  # contexts at most that the cross-encoder reads: each takes it up to a tenth of a second
)
RERANK_OVERFETCH = 4  # so many times what is wanted is read
PASSAGE = 750  # characters of a context that it reads where no chunk is the nearest
# so many times what is wanted is asked of each leg: an entry may be low in both and high in their
# sum
OVERFETCH = 2

READERS: Mapping[str, Callable[[str], FulltextQuery]] = {
    "match": match_query,
    "prefix": prefix_query,
    "phrase": phrase_query,
    "boolean": boolean.boolean_query,
}


class Question(NamedTuple):
    """A query and how it is to be answered."""

    asked: FulltextQuery
    mode: Mode
    stemmed: bool
    wanted: int
    k: int
    explain: bool


@dataclass(slots=True)
class Found:
    """(id, score, scores) of contexts, best first, and how they were found; `chunks` are the
    nearest ones of each.
    """

    rows: list[tuple[int, float, Scores]] = field(default_factory=list)
    legs: dict[str, Ranked] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    explained: dict[str, Explained] = field(default_factory=dict)
    terms: tuple[Term, ...] = ()
    chunks: dict[int, int] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """How many contexts each leg brought, how many both did, and how many they were in all."""
        text, vector = (set(dict(self.legs.get(leg, ()))) for leg in ("text", "vector"))
        return {
            "text": len(text),
            "vector": len(vector),
            "both": len(text & vector),
            "total": len(text | vector),
        }


def question(
    text: str, mode: str, reader: str, language: str, wanted: int, k: int, explain: bool
) -> Question:
    """Check what a search was asked for."""
    if reader not in READERS:
        raise InvalidInput(f"words must be {', '.join(READERS)}, not {reader!r}")
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= LARGEST_K:
        raise InvalidInput(f"rrf_k must be a whole number of 1 to {LARGEST_K}, not {k!r}")
    stemmed = reader != "prefix" and language.casefold() == "english"
    return Question(READERS[reader](text), checked_mode(mode), stemmed, wanted, k, explain)


def find(
    sql: apsw.Connection,
    index: ChunkIndex,
    texts: ContextFulltext,
    question: Question,
    query_embedding: QueryEmbedding | str,
    chosen: Chosen,
) -> Found:
    """Rank the chosen contexts. `query_embedding` is the query's embedding, or the reason why
    there is none.
    """
    found = Found()
    if question.mode != "vector":
        if question.asked.interpretations:
            _by_words(sql, texts, question, chosen, found)
        else:
            found.reasons["text"] = question.asked.note or "the query has no words to look for"
    if question.mode != "text":
        if isinstance(query_embedding, QueryEmbedding):
            _by_meaning(sql, index, question, query_embedding, chosen, found)
        else:
            found.reasons["vector"] = query_embedding
    found.rows = _fused(question, found.legs)
    return found


def reread(wanted: int) -> int:
    """How many contexts are ranked for a page when the cross-encoder is to choose among them."""
    return max(wanted, min(RERANK_OVERFETCH * wanted, REREAD))


def excerpt(text: str, terms: Sequence[Term], stemmed: bool) -> str:
    """What the cross-encoder reads of a context that only words have found: where the first of them
    stands.
    """
    mark = highlight(text, terms, stemmed=stemmed, before="\0", after="").find("\0")
    start = max(0, min(mark - PASSAGE // 3, len(text) - PASSAGE))
    return text[start : start + PASSAGE]


def reorder(found: Found, figures: Sequence[float] | str) -> None:
    """Bring the first rows into the order of the cross-encoder's figures; where there are none, say
    why not.
    """
    if isinstance(figures, str):
        found.reasons["rerank"] = figures
        return
    first, rest = found.rows[: len(figures)], found.rows[len(figures) :]
    read = sorted(zip(figures, first, strict=True), key=lambda each: -each[0])
    last = read[-1][0]
    found.rows = [
        *((id, figure, replace(scores, rerank=figure)) for figure, (id, _, scores) in read),
        *((id, min(score, last), scores) for id, score, scores in rest),
    ]
    found.legs["rerank"] = [(id, figure) for figure, (id, _, _) in read]


def _by_words(
    sql: apsw.Connection, texts: ContextFulltext, question: Question, chosen: Chosen, found: Found
) -> None:
    """Take the first reading of the query that finds anything."""
    ranked: Ranked = []
    with StatementLog(sql, question.explain) as watch:
        for reading in question.asked.interpretations:
            ranked = texts.match(
                sql,
                reading.expression,
                question.stemmed,
                chosen.contexts,
                OVERFETCH * question.wanted,
            )
            found.terms = reading.terms
            if ranked:
                break
    found.legs["text"] = ranked
    if question.explain:
        found.explained["text"] = watch.explained(len(ranked))


def _by_meaning(
    sql: apsw.Connection,
    index: ChunkIndex,
    question: Question,
    query_embedding: QueryEmbedding,
    chosen: Chosen,
    found: Found,
) -> None:
    """Ask for more chunks until they belong to enough contexts; a context is as near as its nearest
    chunk.
    """
    wanted = OVERFETCH * question.wanted
    depth = wanted + 20
    best: dict[int, tuple[int, float]] = {}
    with StatementLog(sql, question.explain) as watch:
        while True:
            chunks, _ = index.vector.nearest(
                sql, query_embedding.model, query_embedding.embedding, chosen.chunks, depth
            )
            owners = dict(
                sql.execute(
                    "SELECT id, owner FROM context_chunks WHERE id IN (SELECT value FROM "
                    "json_each(?))",
                    (json.dumps([chunk for chunk, _ in chunks]),),
                )
            )
            for chunk, cosine in chunks:
                best.setdefault(owners[chunk], (chunk, cosine))
            if len(best) >= wanted or len(chunks) < depth:
                break
            best, depth = {}, 4 * depth
    found.legs["vector"] = [(id, cosine) for id, (_, cosine) in best.items()][:wanted]
    found.chunks = {id: chunk for id, (chunk, _) in best.items()}
    if question.explain:
        found.explained["vector"] = watch.explained(len(found.legs["vector"]))


def _fused(question: Question, legs: Mapping[str, Ranked]) -> list[tuple[int, float, Scores]]:
    text, vector = dict(legs.get("text", ())), dict(legs.get("vector", ()))
    text_rank = {id: rank for rank, id in enumerate(text, 1)}
    vector_rank = {id: rank for rank, id in enumerate(vector, 1)}
    best = len(legs) / (question.k + 1)  # the sum of an entry that is first everywhere
    rows = []
    for id, rrf in fusion.rrf([list(text), list(vector)], question.k):
        scores = Scores(
            text=text.get(id),
            text_rank=text_rank.get(id),
            vector=vector.get(id),
            vector_rank=vector_rank.get(id),
            rrf=rrf,
        )
        rows.append((id, _score(question.mode, scores, rrf / best), scores))
    return rows


def _score(mode: Mode, scores: Scores, fused: float) -> float:
    if mode == "text":
        return saturate(scores.text or 0.0)
    if mode == "vector":
        return min(1.0, max(0.0, scores.vector or 0.0))
    return min(1.0, fused)
