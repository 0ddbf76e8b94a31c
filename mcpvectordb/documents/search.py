"""Searching documents: for chunks, or for whole documents, each by its best chunk.

Whole documents are ranked by words, by meaning, or by everything there is. The last is a walk in
five steps: words and meaning each rank the documents; unless words alone point at one of them, the
best passages tell what else to look for, which gives two more rankings; all are fused by their
ranks; a cross-encoder reads the best chunks of the first thirty; and what it says is blended with
their ranks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import apsw

from mcpvectordb.documents import all_terms as all_words
from mcpvectordb.documents import rows as reading
from mcpvectordb.documents.all_terms import Ranked
from mcpvectordb.documents.rows import Chosen
from mcpvectordb.index import Ranked as RankedChunks
from mcpvectordb.index.chunks import ChunkIndex, embedding_text
from mcpvectordb.index.encoder import BLIND_VECTOR_WEIGHT, QueryEmbedding
from mcpvectordb.records import Chunk, Hit, Mode, Results, Scores
from mcpvectordb.search import fusion, hybrid, relevance
from mcpvectordb.search.expansion import Expansion, QueryExpander
from mcpvectordb.search.relevance import UNCALIBRATED, Judge
from mcpvectordb.search.rerank import CachedReranker
from mcpvectordb.storage.file import File
from mcpvectordb.text.bm25 import saturate
from mcpvectordb.text.query import Query, parse_all_terms, parse_query

REREAD_CHUNKS, REREAD_DOCUMENTS = 20, 30  # results that the cross-encoder reads
DEPTH = 20  # documents of each ranking that are fused
OVERFETCH = 3  # so many times as many chunks are asked for: several may be of one document
# By words and by meaning, for the query as it was asked and for what was learned; a model that
# cannot read it has little say.
WEIGHTS, BLIND_WEIGHTS = (2.0, 2.0, 1.0, 1.0), (2.0, 0.2, 1.0, 0.1)
RRF_K = 60
FEEDBACK_DOCUMENTS = 3  # documents that are learned from
STRONG, AHEAD = (
    0.85,
    0.15,
)  # words alone point at a document that has this score, and so much more than the next one
NO_WORDS = "the query has no words to look for"

Row = tuple[int, float, Scores]
"""(chunk, score, scores)"""
Blend = Callable[[Sequence[float], Sequence[float]], list[tuple[int, float]]]
"""From scores and the cross-encoder's figures to (place, score), best first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A query and how it is to be answered; `query_embedding` is its embedding, or the reason
    why there is none.
    """

    text: str
    mode: Mode
    query_embedding: QueryEmbedding | str
    chosen: Chosen
    limit: int
    offset: int = 0
    min_score: float = 0.0
    min_relevance: float = 0.0
    expand: bool = False
    rerank: bool = False

    @property
    def wanted(self) -> int:
        """How many results must be ranked."""
        return self.limit + self.offset


@dataclass(slots=True)
class _Found:
    """Rows, best first; which legs ran, and why others did not; who judges their relevance; what
    was learned on the way.
    """

    rows: list[Row] = field(default_factory=list)
    legs: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    judge: Judge = UNCALIBRATED
    learned: Expansion | None = None


class DocumentSearch:
    """Answers questions over the documents of one file."""

    def __init__(
        self, file: File, index: ChunkIndex, learning: QueryExpander, reranking: CachedReranker
    ) -> None:
        self._file, self._index, self._learning, self._reranking = file, index, learning, reranking

    def chunks(self, question: Question) -> Results[Chunk]:
        """The chunks that answer a question best."""
        return self._answer(question, self._chunks, REREAD_CHUNKS, fusion.blended)

    def whole(self, question: Question) -> Results[Chunk]:
        """The documents that answer a question best, each by its best chunk."""
        ways = {
            "text": self._by_all_words,
            "vector": self._by_meaning,
            "hybrid": self._by_everything,
        }
        return self._answer(
            question,
            ways[question.mode],
            REREAD_DOCUMENTS,
            lambda _, figures: fusion.positioned(figures),
        )

    def _answer(
        self,
        question: Question,
        find: Callable[[apsw.Connection, Question], _Found],
        reread: int,
        blend: Blend,
    ) -> Results[Chunk]:
        """Rank, then read again what is best; no transaction is open meanwhile, because that can
        take seconds.
        """
        with self._file.reading() as sql:
            found = find(sql, question)
            first = found.rows[:reread] if question.rerank else []
            ids = dict.fromkeys(
                id for id, _, _ in [*first, *found.rows[question.offset : question.wanted]]
            )
            chunks = reading.chunks(sql, self._index, list(ids))
        if found.learned is not None:
            self._learning.remember(found.learned)
        if question.rerank:
            self._reread(question, [chunks[id] for id, _, _ in first], found, blend)
        page = [
            row
            for row in found.rows[question.offset : question.wanted]
            if row[1] >= question.min_score
        ]
        return _judged(
            question,
            found,
            [Hit(item=chunks[id], score=score, scores=scores) for id, score, scores in page],
        )

    def _reread(self, question: Question, chunks: list[Chunk], found: _Found, blend: Blend) -> None:
        """Bring the first rows into the order that the cross-encoder and they themselves agree
        on.
        """
        passages = [
            embedding_text(chunk.document.title, chunk.headings, chunk.text) for chunk in chunks
        ]
        figures = self._reranking.scores(question.text, passages)
        if isinstance(figures, str):
            found.reasons["rerank"] = figures
            return
        found.legs.append("rerank")
        first, rest = found.rows[: len(figures)], found.rows[len(figures) :]
        read = [
            (first[place][0], score, replace(first[place][2], rerank=figures[place]))
            for place, score in blend([score for _, score, _ in first], figures)
        ]
        found.rows = read + [(id, min(score, read[-1][1]), scores) for id, score, scores in rest]

    # Ways to rank.

    def _chunks(self, sql: apsw.Connection, question: Question) -> _Found:
        wanted = max(question.wanted, REREAD_CHUNKS) if question.rerank else question.wanted
        found = hybrid.find(
            sql,
            self._index,
            question.text,
            question.query_embedding,
            question.mode,
            question.chosen.chunks,
            wanted,
        )
        return _Found(found.rows, list(found.legs), dict(found.reasons), found.judge)

    def _by_all_words(self, sql: apsw.Connection, question: Question) -> _Found:
        wanted = parse_all_terms(question.text)
        if not wanted.terms:
            return _Found(reasons={"text": NO_WORDS})
        ranked = all_words.find(sql, self._index, wanted, question.chosen, question.wanted)
        if (
            not ranked and wanted.content_terms != wanted
        ):  # who asks "how do I …" need not find "how" and "I"
            ranked = all_words.find(
                sql, self._index, wanted.content_terms, question.chosen, question.wanted
            )
        return _Found(
            [
                (chunk, saturate(score), Scores(text=score, text_rank=rank))
                for rank, (_, chunk, score) in enumerate(ranked, 1)
            ],
            ["text"],
        )

    def _by_meaning(self, sql: apsw.Connection, question: Question) -> _Found:
        found = _Found(
            judge=hybrid.judge(question.text, parse_query(question.text), question.query_embedding)
        )
        ranked = self._near(sql, question, question.wanted, found)
        found.rows = [
            (chunk, min(1.0, max(0.0, cosine)), Scores(vector=cosine, vector_rank=rank))
            for rank, (_, chunk, cosine) in enumerate(ranked, 1)
        ]
        return found

    def _by_everything(self, sql: apsw.Connection, question: Question) -> _Found:
        query, depth = parse_query(question.text), max(DEPTH, question.wanted)
        found = _Found(judge=hybrid.judge(question.text, query, question.query_embedding))
        text: Ranked = []
        reach: float | None = None
        if query.match:
            text, reach = self._matching(sql, question, query, depth, found)
            found.legs.append("text")
        else:
            found.reasons["text"] = NO_WORDS
        vector = self._near(sql, question, depth, found)
        weights = BLIND_WEIGHTS if query.exact or _blind(question.query_embedding) else WEIGHTS
        fused = _fused([text, vector], weights, reach)
        if question.expand:
            if reason := _no_need_to_learn(text, vector):
                found.reasons["expansion"] = reason
            else:
                more = self._learn(
                    sql, question, query, [chunk for chunk, _ in fused[:FEEDBACK_DOCUMENTS]], found
                )
                fused = _fused([text, vector, *more], weights, reach)
        found.rows = [(chunk, 1 / rank, scores) for rank, (chunk, scores) in enumerate(fused, 1)]
        return found

    def _near(self, sql: apsw.Connection, question: Question, depth: int, found: _Found) -> Ranked:
        """Documents by meaning, if that can be done."""
        if isinstance(question.query_embedding, str):
            found.reasons["vector"] = question.query_embedding
        elif not sql.execute(
            "SELECT EXISTS (SELECT 1 FROM document_embeddings WHERE model = ?)",
            (question.query_embedding.model,),
        ).get:
            found.reasons["vector"] = "nothing is embedded yet: run `mcpvectordb embed`"
        else:
            found.legs.append("vector")
            return self._nearest(sql, question, question.query_embedding, depth)
        return []

    def _learn(
        self,
        sql: apsw.Connection,
        question: Question,
        query: Query,
        teachers: Sequence[int],
        found: _Found,
    ) -> list[Ranked]:
        """Rankings, by words and by meaning, for what some chunks tell."""
        found.learned = self._learning.learn(sql, query, question.query_embedding, teachers)
        found.legs.append("expansion")
        depth, query_embedding = max(DEPTH, question.wanted), found.learned.query_embedding
        by_words, _ = self._matching(sql, question, found.learned.query, depth, found)
        return [
            by_words,
            self._nearest(sql, question, query_embedding, depth) if query_embedding else [],
        ]

    def _matching(
        self,
        sql: apsw.Connection,
        question: Question,
        query: Query,
        depth: int,
        found: _Found,
    ) -> tuple[Ranked, float | None]:
        """Documents by the words of a query, of which any may be missing, and what a chunk could
        reach.
        """
        reach = None

        def chunks(most: int) -> RankedChunks:
            nonlocal reach
            matched = self._index.keyword.match(sql, query, question.chosen.chunks, most)
            found.reasons.update(hybrid.common_words(matched))
            reach = matched.reach
            return matched.best

        return _documents(sql, chunks, depth), reach

    def _nearest(
        self, sql: apsw.Connection, question: Question, query_embedding: QueryEmbedding, depth: int
    ) -> Ranked:
        """Documents by the nearness of their nearest chunk."""
        allowed = self._index.keyword.bound(parse_query(question.text), question.chosen.chunks)
        nearest = self._index.vector.nearest
        return _documents(
            sql,
            lambda most: nearest(
                sql, query_embedding.model, query_embedding.embedding, allowed, most
            ),
            depth,
        )


def _documents(sql: apsw.Connection, chunks: Callable[[int], RankedChunks], wanted: int) -> Ranked:
    """Ask for more chunks until they belong to enough documents; a document is as good as its best
    chunk.
    """
    most = OVERFETCH * wanted
    while most:
        ranked = chunks(most)
        owners = dict(
            sql.execute(
                "SELECT id, owner FROM document_chunks WHERE id IN (SELECT value FROM "
                "json_each(?))",
                (json.dumps([id for id, _ in ranked]),),
            )
        )
        best: dict[int, tuple[int, float]] = {}
        for id, score in ranked:
            if id in owners:
                best.setdefault(owners[id], (id, score))
        if len(best) >= wanted or len(ranked) < most:
            return [(owner, id, score) for owner, (id, score) in best.items()][:wanted]
        most *= 4
    return []


def _blind(query_embedding: QueryEmbedding | str) -> bool:
    return (
        isinstance(query_embedding, QueryEmbedding)
        and query_embedding.weight <= BLIND_VECTOR_WEIGHT
    )


def _no_need_to_learn(text: Ranked, vector: Ranked) -> str:
    """Why nothing is learned from the first results; "" when something is."""
    if not text and not vector:
        return "nothing was found to learn from"
    first, second = (saturate(text[place][2]) if place < len(text) else 0.0 for place in (0, 1))
    return (
        "words alone point at one document" if first >= STRONG and first - second >= AHEAD else ""
    )


def _judged(question: Question, found: _Found, hits: Sequence[Hit[Chunk]]) -> Results[Chunk]:
    """Results with what is known of their relevance, without those that are known not to be
    relevant enough.
    """
    judged = [replace(hit, relevance=found.judge.relevance(hit.scores)) for hit in hits]
    relevances = [hit.relevance for hit in judged]
    if question.min_relevance and None in relevances:
        found.reasons["relevance"] = found.judge.reason
    kept = tuple(
        hit for hit in judged if hit.relevance is None or hit.relevance >= question.min_relevance
    )
    return Results(
        hits=kept,
        legs=tuple(found.legs),
        reasons=found.reasons,
        verdict=relevance.verdict(relevances, question.min_relevance),
    )


def _fused(
    rankings: Sequence[Ranked], weights: Sequence[float], reach: float | None
) -> list[tuple[int, Scores]]:
    """(best chunk, scores) of documents by the sum of their ranks; the first two rankings are by
    words and by meaning.
    """
    owners = [[owner for owner, _, _ in each] for each in rankings]
    heard = [each for each, weight in zip(owners, weights, strict=False) if weight >= 1]
    fused = fusion.rewarded(fusion.rrf(owners, RRF_K, weights[: len(rankings)]), heard)
    text, vector = (
        {owner: (rank, score) for rank, (owner, _, score) in enumerate(each, 1)}
        for each in rankings[:2]
    )
    best = _best_chunks(rankings, weights)
    rows = []
    for owner, rrf in fused:
        text_rank, bm25 = text.get(owner, (None, None))
        vector_rank, cosine = vector.get(owner, (None, None))
        rows.append(
            (
                best[owner],
                Scores(
                    text=bm25,
                    text_rank=text_rank,
                    vector=cosine,
                    vector_rank=vector_rank,
                    rrf=rrf,
                    reach=reach,
                ),
            )
        )
    return rows


def _best_chunks(rankings: Sequence[Ranked], weights: Sequence[float]) -> dict[int, int]:
    """The chunk for which the rankings speak most, of every document."""
    votes: dict[int, dict[int, float]] = {}
    for each, weight in zip(rankings, weights, strict=False):
        for rank, (owner, chunk, _) in enumerate(each, 1):
            of_owner = votes.setdefault(owner, {})
            of_owner[chunk] = of_owner.get(chunk, 0.0) + weight / (RRF_K + rank)
    return {owner: max(chunks, key=chunks.__getitem__) for owner, chunks in votes.items()}
