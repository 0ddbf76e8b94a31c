"""Document search: passages, or whole documents, each by its best passage.

Whole documents are ranked by words, by meaning, or by both. Hybrid ranking has five steps: keyword
and vector ranking of the documents; pseudo-relevance feedback from the best passages, which gives
two more rankings (left out when words alone point at one document); reciprocal rank fusion of all
of them; a cross-encoder that scores the best passages; and a blend of its scores with the ranks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import apsw

from mcpvectordb.documents import all_terms, rows
from mcpvectordb.documents.all_terms import RankedDocuments
from mcpvectordb.documents.rows import DocumentFilter
from mcpvectordb.errors import InvalidInput, quoted
from mcpvectordb.index import Ranked
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.encoder import BLIND_VECTOR_WEIGHT
from mcpvectordb.index.indexed_chunk import embedding_text
from mcpvectordb.index.keyword import NO_MATCH
from mcpvectordb.index.models import QueryEmbedding
from mcpvectordb.records import Chunk, Hit, Mode, Results, Scores
from mcpvectordb.search import fusion, hybrid, relevance, variety
from mcpvectordb.search.expansion import QueryExpander
from mcpvectordb.search.hybrid import NO_WORDS, ScoredChunk
from mcpvectordb.search.recency import Recency
from mcpvectordb.search.relevance import UNCALIBRATED, Judge
from mcpvectordb.search.rerank import CachedReranker
from mcpvectordb.search.snippets import Snippets
from mcpvectordb.search.variety import EVERYTHING, Variety
from mcpvectordb.search.vector_leg import VectorLeg
from mcpvectordb.storage.file import File
from mcpvectordb.text.bm25 import saturate
from mcpvectordb.text.query import Query, parse_all_terms, parse_query

# Results that the cross-encoder scores at most: its time grows with their number.
RERANKED_CHUNKS, RERANKED_DOCUMENTS = 20, 30
DEPTH = 20  # documents of each ranking that are fused at least
OVERFETCH = 3  # chunks that are ranked per document: several may belong to one
# Weights of the rankings in fusion: keyword and vector ranking of the query, then of the expanded
# query. The vector rankings of a model that cannot represent the query, or its codes, count little.
WEIGHTS, BLIND_WEIGHTS = (2.0, 2.0, 1.0, 1.0), (2.0, 0.2, 1.0, 0.1)
RRF_K = 60  # the constant of reciprocal rank fusion, as in its paper
FEEDBACK_DOCUMENTS = 3  # documents whose best passages expand the query
# A query is not expanded if the first document's saturated BM25 is at least STRONG and ahead of the
# second one's by AHEAD.
STRONG, AHEAD = 0.85, 0.15

# Rows among which grouping and folding choose, and how many if too few of these remain.
CANDIDATES, MORE_CANDIDATES = 100, 1_000
TEXTS_PER_READ = 50

Blend = Callable[[Sequence[float], Sequence[float]], list[tuple[int, float]]]
"""From scores and the cross-encoder's scores to (place, score), best first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentQuery:
    """A query and how to answer it; `query_embedding` may be the reason why there is none."""

    text: str
    mode: Mode
    query_embedding: QueryEmbedding | str
    filter: DocumentFilter
    limit: int
    offset: int = 0
    min_score: float = 0.0
    min_relevance: float = 0.0
    expand: bool = False
    rerank: bool = False
    group: bool = False
    fold: bool = False
    recency: Recency | None = None

    @property
    def wanted(self) -> int:
        """The number of results to rank."""
        return self.limit + self.offset


@dataclass(slots=True)
class DocumentRanking:
    """Rows, best first; which legs ran, why others did not, and the judge of their relevance."""

    rows: list[ScoredChunk] = field(default_factory=list)
    legs: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    judge: Judge = UNCALIBRATED
    variety: Variety = EVERYTHING
    leg: VectorLeg | None = None


Find = Callable[[apsw.Connection, DocumentQuery], DocumentRanking]
"""A way to rank."""


class DocumentSearch:
    """Searches the documents of one file."""

    def __init__(
        self, file: File, index: ChunkIndex, expander: QueryExpander, reranker: CachedReranker
    ) -> None:
        self._file, self._index, self._expander, self._reranker = file, index, expander, reranker

    def chunks(self, question: DocumentQuery) -> Results[Chunk]:
        """The chunks that answer a query best."""
        return self._answer(question, self._chunks, RERANKED_CHUNKS, fusion.blended)

    def whole(self, question: DocumentQuery) -> Results[Chunk]:
        """The documents that answer a query best, each by its best chunk."""
        ways = {
            "text": self._by_all_terms,
            "vector": self._by_meaning,
            "hybrid": self._by_both,
        }

        def find(sql: apsw.Connection, asked: DocumentQuery) -> DocumentRanking:
            recency = asked.recency
            if recency is None:
                return ways[asked.mode](sql, asked)
            found = ways[asked.mode](sql, replace(asked, limit=max(CANDIDATES, asked.wanted)))
            weights = rows.recency(sql, [id for id, _, _ in found.rows], recency)
            found.rows = sorted(
                (
                    (id, score * weights[id], replace(scores, recency=weights[id]))
                    for id, score, scores in found.rows
                ),
                key=lambda row: -row[1],
            )
            return found

        return self._answer(
            question, find, RERANKED_DOCUMENTS, lambda _, figures: fusion.positioned(figures)
        )

    def _answer(
        self,
        question: DocumentQuery,
        find: Find,
        reranked: int,
        blend: Blend,
    ) -> Results[Chunk]:
        """Rank, then rerank the best outside of any transaction, because that can take seconds."""
        least = reranked if question.rerank else 0
        with self._file.reading() as sql:
            question = replace(question, filter=question.filter.published(sql))
            found = self._ranked(sql, question, find, max(least, question.wanted))
            first = found.rows[:least]
            shown = [id for id, _, _ in (*first, *found.rows[question.offset : question.wanted])]
            folded = [each for id in shown for each in found.variety.folded.get(id, ())]
            chunks = rows.chunks(sql, self._index, list(dict.fromkeys([*shown, *folded])))
        if question.rerank:
            self._rerank(question, [chunks[id] for id, _, _ in first], found, blend)
        page = [
            row
            for row in found.rows[question.offset : question.wanted]
            if row[1] >= question.min_score
        ]
        return self._judged(question, found, page, chunks)

    def _judged(
        self,
        question: DocumentQuery,
        found: DocumentRanking,
        page: Sequence[ScoredChunk],
        chunks: Mapping[int, Chunk],
    ) -> Results[Chunk]:
        """Results with their relevance, without those that are known to be below the minimum."""
        snippets, texts = Snippets(question.text), [chunks[id].text for id, _, _ in page]
        known = relevance.shared(
            [
                found.judge.relevance(scores, text)
                for (_, _, scores), text in zip(page, texts, strict=True)
            ],
            texts,
        )
        uncalibrated = found.judge.reason if None in known else ""
        if question.min_relevance and uncalibrated:
            found.reasons["relevance"] = uncalibrated
        verdict = relevance.verdict(known, question.min_relevance)
        if verdict:  # which is rare
            words = max((snippets.share(_passage(chunks[id])) for id, _, _ in page), default=0.0)
            with self._file.reading() as sql:
                few = self._index.has_fewer(sql, relevance.FEW_PASSAGES)
            verdict = relevance.verdict(known, question.min_relevance, words, few=few)
        return Results(
            hits=tuple(
                _hit(row, each, chunks, snippets, found.variety)
                for row, each in zip(page, known, strict=True)
                if each is None or each >= question.min_relevance
            ),
            legs=tuple(found.legs),
            reasons=found.reasons,
            verdict=verdict,
            uncalibrated=uncalibrated,
        )

    def _ranked(
        self, sql: apsw.Connection, question: DocumentQuery, find: Find, wanted: int
    ) -> DocumentRanking:
        """The `wanted` best rows; grouped and folded, if that is requested, from many more.

        A longer ranking begins with the shorter one, so it is made longer only if too few rows
        remain of it.
        """
        if not question.group and not question.fold:
            return find(sql, question)
        for depth in sorted({max(CANDIDATES, wanted), max(MORE_CANDIDATES, wanted)}):
            found = find(sql, replace(question, limit=depth, offset=0))
            by_id = {row[0]: row for row in found.rows}
            judge, ids = found.judge, list(by_id)
            found.variety = variety.choose(
                ids,
                wanted,
                owner=_owners(sql, ids).get if question.group else None,
                text=_Texts(sql, self._index, ids).get if question.fold else None,
                weak=lambda id: judge.is_weak(by_id[id][2]),  # noqa: B023 - called in this round
            )
            if found.variety.complete or len(found.rows) < depth:
                break
        found.rows = [by_id[id] for id in found.variety.chosen]
        return found

    def _rerank(
        self, question: DocumentQuery, chunks: list[Chunk], found: DocumentRanking, blend: Blend
    ) -> None:
        """Blend the scores of the first rows with the cross-encoder's."""
        figures = self._reranker.scores(question.text, [_passage(chunk) for chunk in chunks])
        if isinstance(figures, str):
            found.reasons["rerank"] = figures
            return
        found.legs.append("rerank")
        first, rest = found.rows[: len(figures)], found.rows[len(figures) :]
        aged = [
            figure * (1.0 if row[2].recency is None else row[2].recency)
            for figure, row in zip(figures, first, strict=True)
        ]
        read = [
            (first[place][0], score, replace(first[place][2], rerank=figures[place]))
            for place, score in blend([score for _, score, _ in first], aged)
        ]
        found.rows = read + [(id, min(score, read[-1][1]), scores) for id, score, scores in rest]

    # Ways to rank.

    def _chunks(self, sql: apsw.Connection, question: DocumentQuery) -> DocumentRanking:
        wanted = max(question.wanted, RERANKED_CHUNKS) if question.rerank else question.wanted
        recency = question.recency
        found = hybrid.rank_chunks(
            sql,
            self._index,
            question.text,
            question.query_embedding,
            question.mode,
            question.filter.chunks,
            wanted,
            None if recency is None else lambda ids: rows.recency(sql, ids, recency),
        )
        return DocumentRanking(found.rows, list(found.legs), dict(found.reasons), found.judge)

    def _by_all_terms(self, sql: apsw.Connection, question: DocumentQuery) -> DocumentRanking:
        query = parse_all_terms(question.text)
        if not query.terms:
            return DocumentRanking(reasons={"text": NO_WORDS})
        ranked = all_terms.rank(sql, self._index, query, question.filter, question.wanted)
        if not ranked and query.content_terms != query:  # "how do I …" need not occur
            query = query.content_terms
            ranked = all_terms.rank(sql, self._index, query, question.filter, question.wanted)
        scored = [
            (chunk, saturate(score), Scores(text=score, text_rank=rank))
            for rank, (_, chunk, score) in enumerate(ranked, 1)
        ]
        return DocumentRanking(scored, ["text"])

    def _by_meaning(self, sql: apsw.Connection, question: DocumentQuery) -> DocumentRanking:
        query = parse_query(question.text)
        found = DocumentRanking(judge=hybrid.judge(question.text, query, question.query_embedding))
        ranked = self._near(sql, question, query, question.wanted, found)
        found.rows = [
            (chunk, min(1.0, max(0.0, cosine)), _vector_scores(found.leg, chunk, rank))
            for rank, (_, chunk, cosine) in enumerate(ranked, 1)
        ]
        return found

    def _by_both(self, sql: apsw.Connection, question: DocumentQuery) -> DocumentRanking:
        query, depth = parse_query(question.text), max(DEPTH, question.wanted)
        found = DocumentRanking(judge=hybrid.judge(question.text, query, question.query_embedding))
        text: RankedDocuments = []
        full_score: float | None = None
        code_share = 0.0
        if query.match:
            text, full_score, code_share = self._matching(sql, question, query, depth)
            found.legs.append("text")
        else:
            found.reasons["text"] = NO_WORDS
        vector = self._near(sql, question, query, depth, found)
        blind = 1.0 if query.exact or _blind(question.query_embedding) else code_share
        weights = [
            usual + (least - usual) * blind
            for usual, least in zip(WEIGHTS, BLIND_WEIGHTS, strict=True)
        ]
        fused = _fused([text, vector], weights, full_score, found.leg)
        if question.expand:
            if reason := _no_need_to_expand(text, vector):
                found.reasons["expansion"] = reason
            else:
                feedback = [chunk for chunk, _ in fused[:FEEDBACK_DOCUMENTS]]
                more = self._expand(sql, question, query, feedback, found)
                fused = _fused([text, vector, *more], weights, full_score, found.leg)
        found.rows = [(chunk, 1 / rank, scores) for rank, (chunk, scores) in enumerate(fused, 1)]
        return found

    def _near(
        self,
        sql: apsw.Connection,
        question: DocumentQuery,
        query: Query,
        depth: int,
        found: DocumentRanking,
    ) -> RankedDocuments:
        """Documents by meaning, if that is possible; otherwise the reason is added to `found`."""
        if isinstance(question.query_embedding, str):
            found.reasons["vector"] = question.query_embedding
        elif not sql.execute(
            "SELECT EXISTS (SELECT 1 FROM document_embeddings WHERE model = ?)",
            (question.query_embedding.model,),
        ).get:
            found.reasons["vector"] = "there is nothing to search"
        else:
            found.legs.append("vector")
            found.leg = VectorLeg(sql, self._index, question.query_embedding)
            return self._nearest(sql, question, query, found.leg, depth)
        return []

    def _expand(
        self,
        sql: apsw.Connection,
        question: DocumentQuery,
        query: Query,
        feedback: Sequence[int],
        found: DocumentRanking,
    ) -> list[RankedDocuments]:
        """Keyword and vector ranking for the query as some passages expand it."""
        expansion = self._expander.expand(sql, query, question.query_embedding, feedback)
        found.legs.append("expansion")
        depth = max(DEPTH, question.wanted)
        text, *_ = self._matching(sql, question, expansion.query, depth)
        if expansion.query_embedding is None:
            return [text, []]
        leg = VectorLeg(sql, self._index, expansion.query_embedding)
        return [text, self._nearest(sql, question, query, leg, depth)]

    def _matching(
        self, sql: apsw.Connection, question: DocumentQuery, query: Query, depth: int
    ) -> tuple[RankedDocuments, float | None, float]:
        """Documents by the BM25 of their best passage; the match's `full_score`, `code_share`."""
        matched = NO_MATCH
        for most in _depths(depth):
            matched = self._index.keyword.match(sql, query, question.filter.chunks, most)
            if (ranked := _documents(sql, matched.best, depth, most)) is not None:
                return ranked, matched.full_score, matched.code_share
        return [], matched.full_score, matched.code_share

    def _nearest(
        self,
        sql: apsw.Connection,
        question: DocumentQuery,
        query: Query,
        leg: VectorLeg,
        depth: int,
    ) -> RankedDocuments:
        """Documents by the cosine of their nearest passage."""
        allowed = self._index.keyword.narrowed(query, question.filter.chunks)
        for most in _depths(depth):
            near = leg.nearest(allowed, most)
            if (ranked := _documents(sql, near, depth, most)) is not None:
                return ranked
        return []


def check_unit(unit: str, expand: bool) -> None:
    """Raise InvalidInput for an unknown unit, and for an expansion that has no effect on it."""
    if unit not in ("passage", "document"):
        raise InvalidInput(f"unit must be passage or document, not {quoted(unit)}")
    if expand and unit == "passage":
        raise InvalidInput("expand applies to documents only; pass unit='document' with it")


class _Texts:
    """The texts of chunks, read in the order in which they are asked for, some at a time."""

    def __init__(self, sql: apsw.Connection, index: ChunkIndex, ids: Sequence[int]) -> None:
        self._sql, self._index, self._ids = sql, index, ids
        self._known: dict[int, str] = {}

    def get(self, id: int) -> str:
        """The text of a chunk."""
        if id not in self._known:
            begin = self._ids.index(id)
            some = self._ids[begin : begin + TEXTS_PER_READ]
            found = self._index.passages(self._sql, some)
            self._known |= {each.id: each.text for each in found}
        return self._known.get(id, "")


def _owners(sql: apsw.Connection, chunks: Sequence[int]) -> dict[int, int]:
    """The document of each chunk that exists."""
    return dict(
        sql.execute(
            "SELECT id, owner FROM document_chunks WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(chunks),),
        )
    )


def _depths(wanted: int) -> Iterator[int]:
    """How many chunks to rank until they belong to enough documents: increasing numbers."""
    depth = OVERFETCH * wanted
    while depth:
        yield depth
        depth *= 4


def _documents(
    sql: apsw.Connection, chunks: Ranked, wanted: int, depth: int
) -> RankedDocuments | None:
    """The documents of ranked chunks, each by its best; None if more chunks must be ranked."""
    owners = _owners(sql, [id for id, _ in chunks])
    best: dict[int, tuple[int, float]] = {}
    for id, score in chunks:
        if id in owners:
            best.setdefault(owners[id], (id, score))
    if len(best) < wanted and len(chunks) == depth:
        return None
    return [(owner, id, score) for owner, (id, score) in best.items()][:wanted]


def _blind(query_embedding: QueryEmbedding | str) -> bool:
    return (
        isinstance(query_embedding, QueryEmbedding)
        and query_embedding.weight <= BLIND_VECTOR_WEIGHT
    )


def _no_need_to_expand(text: RankedDocuments, vector: RankedDocuments) -> str:
    """Why the query is not expanded; "" if it is."""
    if not text and not vector:
        return "nothing was found to expand the query from"
    first, second = (saturate(text[place][2]) if place < len(text) else 0.0 for place in (0, 1))
    return (
        "words alone point at one document" if first >= STRONG and first - second >= AHEAD else ""
    )


def _hit(
    row: ScoredChunk,
    relevance: float | None,
    chunks: Mapping[int, Chunk],
    snippets: Snippets,
    variety: Variety,
) -> Hit[Chunk]:
    id, score, scores = row
    line, snippet = snippets.of(chunks[id].text, chunks[id].first_line)
    return Hit(
        item=chunks[id],
        score=score,
        scores=scores,
        relevance=relevance,
        line=line,
        snippet=snippet,
        folded=tuple(chunks[each] for each in variety.folded.get(id, ())),
        more=variety.more.get(id, 0),
    )


def _passage(chunk: Chunk) -> str:
    """What is searched of a chunk: its title and headings, then its text."""
    return embedding_text(chunk.document.title, chunk.headings, chunk.header, chunk.text)


def _vector_scores(leg: VectorLeg | None, chunk: int, rank: int) -> Scores:
    """The cosine of a chunk by the model that has embedded it, and its rank."""
    if leg is None:
        return Scores()
    return Scores(vector=leg.cosine(chunk), vector_rank=rank, provisional=leg.is_provisional(chunk))


def _fused(
    rankings: Sequence[RankedDocuments],
    weights: Sequence[float],
    full_score: float | None,
    leg: VectorLeg | None,
) -> list[tuple[int, Scores]]:
    """(best chunk, scores) of documents by reciprocal rank fusion.

    The first two rankings are keyword and vector ranking of the query itself; a ranking with a
    weight below 1 gives no bonus to its first documents.
    """
    owners = [[owner for owner, _, _ in each] for each in rankings]
    heard = [each for each, weight in zip(owners, weights, strict=False) if weight >= 1]
    fused = fusion.rewarded(fusion.rrf(owners, RRF_K, weights[: len(rankings)]), heard)
    text, vector = (
        {owner: (rank, chunk, score) for rank, (owner, chunk, score) in enumerate(each, 1)}
        for each in rankings[:2]
    )
    best = _best_chunks(rankings, weights)
    rows = []
    for owner, rrf in fused:
        rank, chunk, _ = vector.get(owner, (None, 0, 0.0))
        scores = _vector_scores(leg, chunk, rank) if rank else Scores()
        rank, _, bm25 = text.get(owner, (None, 0, None))
        scores = replace(scores, text=bm25, text_rank=rank, rrf=rrf, reach=full_score)
        rows.append((best[owner], scores))
    return rows


def _best_chunks(rankings: Sequence[RankedDocuments], weights: Sequence[float]) -> dict[int, int]:
    """The chunk of every document that the rankings rank highest, by weighted reciprocal ranks."""
    votes: dict[int, dict[int, float]] = {}
    for each, weight in zip(rankings, weights, strict=False):
        for rank, (owner, chunk, _) in enumerate(each, 1):
            of_owner = votes.setdefault(owner, {})
            of_owner[chunk] = of_owner.get(chunk, 0.0) + weight / (RRF_K + rank)
    return {owner: max(chunks, key=chunks.__getitem__) for owner, chunks in votes.items()}
