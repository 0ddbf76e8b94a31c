"""Search of memories: BM25 over whole texts, cosine of the nearest chunk, rank fusion of both."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import apsw

from mcpvectordb.errors import InvalidInput, quoted
from mcpvectordb.index import Ranked
from mcpvectordb.index.models import QueryEmbedding
from mcpvectordb.memories.memory import Memory
from mcpvectordb.memories.rows import MemoryFilter, by_ids
from mcpvectordb.records import Backlog, Explained, Hit, Mode, Results, Scores
from mcpvectordb.search import fusion, hybrid, relevance
from mcpvectordb.search.explain import StatementLog, together
from mcpvectordb.search.highlight import highlight
from mcpvectordb.search.recency import Recency
from mcpvectordb.search.relevance import UNCALIBRATED, Judge
from mcpvectordb.search.snippets import Snippets
from mcpvectordb.search.vector_leg import VectorLeg
from mcpvectordb.store import OpenStore
from mcpvectordb.text import boolean
from mcpvectordb.text.bm25 import saturate
from mcpvectordb.text.query import (
    FulltextQuery,
    Term,
    match_query,
    parse_query,
    phrase_query,
    prefix_query,
)

MAX_RRF_K = 1_000
# Each leg returns this many times the memories that are wanted: one may rank low in both legs and
# high in their sum.
OVERFETCH = 2
# The cross-encoder reads this many times the memories that are wanted, up to RERANK_LIMIT: it
# takes up to a tenth of a second for each.
RERANK_OVERFETCH = 4
RERANK_LIMIT = 40
# Characters of a memory that the cross-encoder reads where no chunk of it was found.
EXCERPT_CHARACTERS = 750
SNIPPET_CHARACTERS = 100_000  # of a memory among which its snippet is looked for
RECENT_DEPTH = 100  # memories that are ranked at least if newer ones are preferred

PARSERS: Mapping[str, Callable[[str], FulltextQuery]] = {
    "match": match_query,
    "prefix": prefix_query,
    "phrase": phrase_query,
    "boolean": boolean.boolean_query,
}


ScoredMemory = tuple[int, float, Scores]
"""(memory, score, scores)"""


class MemoryQuery(NamedTuple):
    """A checked search: the query, how to rank, and which ranks, `offset` to `end`, to return."""

    text: str
    fulltext: FulltextQuery
    mode: Mode
    stemmed: bool
    offset: int
    end: int
    rrf_k: int
    rerank: bool
    images: bool
    highlight: bool
    explain: bool
    recency: Recency | None = None

    @property
    def depth(self) -> int:
        """How many memories to rank."""
        depth = rerank_depth(self.end) if self.rerank else self.end
        return depth if self.recency is None else max(depth, RECENT_DEPTH)


@dataclass(slots=True)
class MemoryRanking:
    """(id, score, scores) of memories, best first, and how they were found.

    `chunks` has the nearest chunk of each memory that the vector leg found.
    """

    rows: list[ScoredMemory] = field(default_factory=list)
    legs: dict[str, Ranked] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    explained: dict[str, Explained] = field(default_factory=dict)
    terms: tuple[Term, ...] = ()
    chunks: dict[int, int] = field(default_factory=dict)
    judge: Judge = UNCALIBRATED
    leg: VectorLeg | None = None

    @property
    def counts(self) -> dict[str, int]:
        """How many memories each leg found, how many both found, and how many there are in all."""
        text, vector = (set(dict(self.legs.get(leg, ()))) for leg in ("text", "vector"))
        return {
            "text": len(text),
            "vector": len(vector),
            "both": len(text & vector),
            "total": len(text | vector),
        }


def parse_words(text: str, parser: str) -> FulltextQuery:
    """Parse the words of a query by the parser of this name; InvalidInput for an unknown one."""
    if parser not in PARSERS:
        raise InvalidInput(f"words must be {', '.join(PARSERS)}, not {quoted(parser)}")
    return PARSERS[parser](text)


def checked_rrf_k(k: int) -> int:
    """`k` if reciprocal rank fusion can use it: a whole number from 1 to MAX_RRF_K."""
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_RRF_K:
        raise InvalidInput(f"rrf_k must be a whole number of 1 to {MAX_RRF_K}, not {quoted(k)}")
    return k


def is_stemmed(parser: str, language: str) -> bool:
    """Whether words are compared by their stems: in English, unless they are prefixes."""
    return parser != "prefix" and language.casefold() == "english"


class MemorySearch:
    """Ranks memories for a query, and reads those of a page."""

    def __init__(self, store: OpenStore) -> None:
        self._file, self._encoder, self._reranker = store.file, store.encoder, store.reranker
        self._index, self._words, self._keys = (
            store.memories,
            store.fulltext,
            store.metadata_index,
        )

    def search(self, query: MemoryQuery, checked: MemoryFilter) -> Results[Memory]:
        """The best memories among those that match the filter."""
        began = time.perf_counter()
        backlog = Backlog() if query.mode == "text" else self._encoder.backlog(self._index)
        query_embedding = (
            self._encoder.query_embedding(query.text, backlog, wait=query.mode == "vector")
            if query.mode != "text"
            else ""
        )
        with self._file.reading() as sql:
            allowed = checked.using_indexes(self._keys.names(sql))
            ranking = self._rank(sql, query, query_embedding, allowed)
            passages = self._excerpts(sql, ranking, query.stemmed) if query.rerank else []
        if query.rerank:
            # Outside of any transaction, because it can take seconds.
            reorder(ranking, self._reranker.scores(query.text, passages))
        with self._file.reading() as sql:
            hits = self._hits(sql, ranking, query, query_embedding)
        spent = 1000 * (time.perf_counter() - began)
        known = [hit.relevance for hit in hits]
        verdict = relevance.verdict(known)
        if verdict:  # which is rare
            snippets = Snippets(query.text)
            words = max(snippets.share(hit.item.text) for hit in hits)
            with self._file.reading() as sql:
                few = self._index.has_fewer(sql, relevance.FEW_PASSAGES)
            verdict = relevance.verdict(known, words=words, few=few)
        return Results(
            hits=hits,
            legs=tuple(ranking.legs),
            reasons=ranking.reasons,
            verdict=verdict,
            uncalibrated=ranking.judge.reason if None in known else "",
            counts=ranking.counts,
            note=query.fulltext.note,
            explained=together(ranking.explained, spent, len(hits)) if query.explain else None,
            backlog=backlog,
        )

    def _rank(
        self,
        sql: apsw.Connection,
        query: MemoryQuery,
        query_embedding: QueryEmbedding | str,
        allowed: MemoryFilter,
    ) -> MemoryRanking:
        """Run the legs and fuse them; a `query_embedding` that is text is why there is none."""
        ranking = MemoryRanking(
            judge=hybrid.judge(query.text, parse_query(query.text), query_embedding)
        )
        if query.mode != "vector":
            if query.fulltext.interpretations:
                self._run_text_leg(sql, query, allowed, ranking)
            else:
                reason = query.fulltext.note or "the query has no words to look for"
                ranking.reasons["text"] = reason
        if query.mode != "text":
            if isinstance(query_embedding, QueryEmbedding):
                self._run_vector_leg(sql, query, query_embedding, allowed, ranking)
            else:
                ranking.reasons["vector"] = query_embedding
        ranking.rows = _fused(query, ranking)
        if query.recency is not None:
            ranking.rows = _aged(sql, ranking.rows, query.recency)
        return ranking

    def _run_text_leg(
        self,
        sql: apsw.Connection,
        query: MemoryQuery,
        allowed: MemoryFilter,
        ranking: MemoryRanking,
    ) -> None:
        """Rank by BM25 for the first interpretation of the query that matches anything."""
        ranked: Ranked = []
        limit = OVERFETCH * query.depth
        with StatementLog(sql, query.explain) as log:
            for each in query.fulltext.interpretations:
                ranked = self._words.match(
                    sql, each.expression, query.stemmed, allowed.memories, limit
                )
                ranking.terms = each.terms
                if ranked:
                    break
        ranking.legs["text"] = ranked
        if query.explain:
            ranking.explained["text"] = log.explained(len(ranked))

    def _run_vector_leg(
        self,
        sql: apsw.Connection,
        query: MemoryQuery,
        query_embedding: QueryEmbedding,
        allowed: MemoryFilter,
        ranking: MemoryRanking,
    ) -> None:
        """Rank by the cosine of each memory's nearest chunk.

        One long memory can own all of the nearest chunks. So the number of chunks grows fourfold
        until they belong to enough memories, or until there are no more.
        """
        wanted = OVERFETCH * query.depth
        depth = wanted + 20
        nearest: dict[int, tuple[int, float]] = {}
        ranking.leg = VectorLeg(sql, self._index, query_embedding)
        with StatementLog(sql, query.explain) as log:
            while True:
                chunks = ranking.leg.nearest(allowed.chunks, depth)
                nearest = _nearest_of_each(sql, chunks)
                if len(nearest) >= wanted or len(chunks) < depth:
                    break
                depth *= 4
        ranking.legs["vector"] = [(id, cosine) for id, (_, cosine) in nearest.items()][:wanted]
        ranking.chunks = {id: chunk for id, (chunk, _) in nearest.items()}
        if query.explain:
            ranking.explained["vector"] = log.explained(len(ranking.legs["vector"]))

    def _excerpts(self, sql: apsw.Connection, ranking: MemoryRanking, stemmed: bool) -> list[str]:
        """What the cross-encoder reads of the best memories: the nearest chunk or an excerpt."""
        ids = [id for id, _, _ in ranking.rows[:RERANK_LIMIT]]
        texts = dict(self._index.texts(sql, ids))
        passages = self._passages(sql, ranking, ids)
        return [passages.get(id) or excerpt(texts[id], ranking.terms, stemmed) for id in ids]

    def _hits(
        self,
        sql: apsw.Connection,
        ranking: MemoryRanking,
        query: MemoryQuery,
        query_embedding: QueryEmbedding | str,
    ) -> tuple[Hit[Memory], ...]:
        page = ranking.rows[query.offset : query.end]
        memories = by_ids(sql, self._index, [id for id, _, _ in page], images=query.images)
        # another process may have deleted one since it was ranked
        page = [row for row in page if row[0] in memories]
        passages = self._passages(sql, ranking, memories)
        known = relevance.shared(
            self._relevances(sql, ranking, page, query_embedding, memories),
            [memories[id].text for id, _, _ in page],
        )
        snippets = Snippets(query.text)
        hits = []
        for (id, score, scores), chance in zip(page, known, strict=True):
            text = memories[id].text
            line, snippet = snippets.of(text[:SNIPPET_CHARACTERS])
            hits.append(
                Hit(
                    item=memories[id],
                    score=score,
                    scores=scores,
                    relevance=chance,
                    line=line,
                    snippet=snippet,
                    passage=passages.get(id, ""),
                    highlighted=highlight(text, ranking.terms, stemmed=query.stemmed)
                    if query.highlight
                    else None,
                )
            )
        return tuple(hits)

    def _relevances(
        self,
        sql: apsw.Connection,
        ranking: MemoryRanking,
        page: Sequence[ScoredMemory],
        query_embedding: QueryEmbedding | str,
        memories: Mapping[int, Memory],
    ) -> list[float | None]:
        """The relevance of each memory by the cosine of its nearest chunk.

        That is calibrated for chunks of documents; memories are cut and embedded the same way. The
        cosine of a memory that only its words have found is looked up.
        """
        looked_up: dict[int, Scores] = {}
        missing = [id for id, _, scores in page if scores.vector is None]
        if missing and "vector" in ranking.legs and isinstance(query_embedding, QueryEmbedding):
            owners = dict(
                sql.execute(
                    "SELECT id, owner FROM context_chunks "
                    "WHERE owner IN (SELECT value FROM json_each(?))",
                    (json.dumps(missing),),
                )
            )
            leg = VectorLeg(sql, self._index, query_embedding)
            found = leg.complete(list(owners))
            for chunk in sorted(found, key=found.__getitem__):  # the nearest of each comes last
                looked_up[owners[chunk]] = Scores(
                    vector=leg.cosine(chunk), provisional=leg.is_provisional(chunk)
                )
        return [
            ranking.judge.relevance(
                scores
                if id not in looked_up
                else replace(
                    scores, vector=looked_up[id].vector, provisional=looked_up[id].provisional
                ),
                memories[id].text,
            )
            for id, _, scores in page
        ]

    def _passages(
        self, sql: apsw.Connection, ranking: MemoryRanking, ids: Iterable[int]
    ) -> dict[int, str]:
        """The text of the nearest chunk of each memory that the vector leg found."""
        chunks = {ranking.chunks[id]: id for id in ids if id in ranking.chunks}
        return {chunks[each.id]: each.text for each in self._index.passages(sql, list(chunks))}


def rerank_depth(wanted: int) -> int:
    """How many memories to rank so that the cross-encoder can choose the `wanted` best."""
    return max(wanted, min(RERANK_OVERFETCH * wanted, RERANK_LIMIT))


def excerpt(text: str, terms: Sequence[Term], stemmed: bool) -> str:
    """The part of a text around the first match of the terms, up to EXCERPT_CHARACTERS long."""
    mark = highlight(text, terms, stemmed=stemmed, before="\0", after="").find("\0")
    start = max(0, min(mark - EXCERPT_CHARACTERS // 3, len(text) - EXCERPT_CHARACTERS))
    return text[start : start + EXCERPT_CHARACTERS]


def reorder(ranking: MemoryRanking, rerank_scores: Sequence[float] | str) -> None:
    """Sort the first rows by the cross-encoder's scores; a text is the reason why there are none.

    Rows that the cross-encoder did not read keep their order behind those that it did.
    """
    if isinstance(rerank_scores, str):
        ranking.reasons["rerank"] = rerank_scores
        return
    count = len(rerank_scores)
    reranked = sorted(
        (
            (id, figure * (scores.recency if scores.recency is not None else 1.0), figure, scores)
            for figure, (id, _, scores) in zip(rerank_scores, ranking.rows[:count], strict=True)
        ),
        key=lambda row: -row[1],
    )
    lowest = reranked[-1][1]
    ranking.rows = [
        *((id, score, replace(scores, rerank=figure)) for id, score, figure, scores in reranked),
        *((id, min(score, lowest), scores) for id, score, scores in ranking.rows[count:]),
    ]
    ranking.legs["rerank"] = [(id, score) for id, score, _, _ in reranked]


def _aged(
    sql: apsw.Connection, rows: Sequence[ScoredMemory], recency: Recency
) -> list[ScoredMemory]:
    """Rows with their scores multiplied by the weight of their age, best first."""
    moments = dict(
        sql.execute(
            "SELECT id, updated_at FROM contexts WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps([id for id, _, _ in rows]),),
        )
    )
    weights = {id: recency.weight(moment) for id, moment in moments.items()}
    aged = [
        (id, score * weights[id], replace(scores, recency=weights[id]))
        for id, score, scores in rows
    ]
    return sorted(aged, key=lambda row: (-row[1], row[0]))


def _nearest_of_each(sql: apsw.Connection, chunks: Ranked) -> dict[int, tuple[int, float]]:
    """(nearest chunk, its cosine) of each memory, in the order of these ranked chunks."""
    owners = dict(
        sql.execute(
            "SELECT id, owner FROM context_chunks WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps([chunk for chunk, _ in chunks]),),
        )
    )
    nearest: dict[int, tuple[int, float]] = {}
    for chunk, cosine in chunks:
        nearest.setdefault(owners[chunk], (chunk, cosine))
    return nearest


def _fused(query: MemoryQuery, ranking: MemoryRanking) -> list[ScoredMemory]:
    legs, leg = ranking.legs, ranking.leg
    text, vector = dict(legs.get("text", ())), dict(legs.get("vector", ()))
    text_rank = {id: rank for rank, id in enumerate(text, 1)}
    vector_rank = {id: rank for rank, id in enumerate(vector, 1)}
    # the sum of a memory that is first in every leg
    highest = len(legs) / (query.rrf_k + 1)
    rows = []
    for id, rrf in fusion.rrf([list(text), list(vector)], query.rrf_k):
        scores = Scores(
            text=text.get(id),
            text_rank=text_rank.get(id),
            vector=vector.get(id),
            vector_rank=vector_rank.get(id),
            rrf=rrf,
        )
        score = _score(query.mode, scores, rrf / highest)
        if leg and id in vector and leg.is_provisional(ranking.chunks[id]):
            # It was ranked by a cosine that compares with the others.
            scores = replace(scores, vector=leg.cosine(ranking.chunks[id]), provisional=True)
        rows.append((id, score, scores))
    return rows


def _score(mode: Mode, scores: Scores, fused: float) -> float:
    """The score of a memory, 0 to 1, in the given mode."""
    if mode == "text":
        return saturate(scores.text or 0.0)
    if mode == "vector":
        return min(1.0, max(0.0, scores.vector or 0.0))
    return min(1.0, fused)
