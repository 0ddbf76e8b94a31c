"""Document search: passages, or whole documents, each by its best passage."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import apsw

from mcpvectordb.documents import all_terms, reciprocal_ranks, rows
from mcpvectordb.documents.rows import DocumentFilter
from mcpvectordb.errors import InvalidInput, quoted
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.indexed_chunk import embedding_text
from mcpvectordb.index.models import QueryEmbedding
from mcpvectordb.records import Chunk, Hit, Results, Scores
from mcpvectordb.search import fusion, ranker, relevance, variety
from mcpvectordb.search.expansion import QueryExpander
from mcpvectordb.search.explain import together
from mcpvectordb.search.meaning import MeaningRetriever
from mcpvectordb.search.ranker import NO_WORDS, Question, Ranking, Retrievers, Row
from mcpvectordb.search.snippets import Snippets
from mcpvectordb.search.variety import EVERYTHING, Variety
from mcpvectordb.store import OpenStore
from mcpvectordb.text.bm25 import saturate
from mcpvectordb.text.query import parse_all_terms, parse_query

# Results that the cross-encoder scores at most: its time grows with their number.
RERANKED_CHUNKS, RERANKED_DOCUMENTS = 20, 30
# Rows among which documents, groups and folded ones are chosen: more if too few of these remain.
CANDIDATES = (100, 1_000, ranker.MAX_RESULTS)
TEXTS_PER_READ = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentQuestion(Question):
    """A question, the unit that answers it, and how results are chosen and widened."""

    unit: str = "passage"
    expand: bool = False
    group: bool = False
    fold: bool = False

    def __post_init__(self) -> None:
        # Named, because the class that `slots` makes is another one than the one of `super()`.
        Question.__post_init__(self)
        if self.unit not in ("passage", "document"):
            raise InvalidInput(f"unit must be passage or document, not {quoted(self.unit)}")
        if self.fusion == "rrf" and self.unit == "passage":
            raise InvalidInput("fusion='rrf' ranks documents only; pass unit='document' with it")
        if self.expand and self.fusion != "rrf":
            raise InvalidInput(
                "expand applies to reciprocal ranks of documents only; pass unit='document' and "
                "fusion='rrf' with it"
            )

    @property
    def whole(self) -> bool:
        """Whether each document is returned once."""
        return self.unit == "document"

    @property
    def read_again(self) -> int:
        """How many results the cross-encoder reads."""
        if not self.rerank or (self.whole and self.mode != "hybrid"):
            return 0
        return RERANKED_DOCUMENTS if self.whole else RERANKED_CHUNKS


class DocumentSearch:
    """Searches the documents of one file."""

    def __init__(self, store: OpenStore) -> None:
        self._store, self._index = store, store.documents
        self._expander = QueryExpander(store.documents, store.cache)

    def search(self, question: DocumentQuestion, which: DocumentFilter) -> Results[Chunk]:
        """The passages or documents that answer a query best, all read in one snapshot."""
        began = time.perf_counter()
        with self._store.file.reading() as sql:
            backlog, embedding = self._store.encoder.asked(
                question.text, question.mode, self._index, wait=question.whole
            )
            which = which.published(sql)
            least = question.read_again
            ranking, chosen = self._ranked(
                sql, question, which, embedding, max(least, question.wanted)
            )
            first = ranking.rows[:least]
            shown = [id for id, _, _ in (*first, *ranking.rows[question.offset : question.wanted])]
            folded = [each for id in shown for each in chosen.folded.get(id, ())]
            chunks = rows.chunks(sql, self._index, list(dict.fromkeys([*shown, *folded])))
            if least:
                passages = [_passage(chunks[id]) for id, _, _ in first]
                figures = self._store.reranker.scores(question.text, passages)
                rrf = question.fusion == "rrf"
                ranker.rerank(ranking, figures, _by_position if rrf else fusion.blended)
            results = self._results(sql, question, ranking, chosen, chunks)
        spent = 1000 * (time.perf_counter() - began)
        return replace(
            results,
            backlog=backlog,
            explained=together(ranking.explained, spent, len(results))
            if question.explain
            else None,
        )

    def _results(
        self,
        sql: apsw.Connection,
        question: DocumentQuestion,
        ranking: Ranking,
        chosen: Variety,
        chunks: Mapping[int, Chunk],
    ) -> Results[Chunk]:
        """Results with their relevance, without those that are known to be below the minimum."""
        page = [
            row
            for row in ranking.rows[question.offset : question.wanted]
            if row[1] >= question.min_score
        ]
        judged = ranker.judged(
            question,
            ranking,
            page,
            [chunks[id].text for id, _, _ in page],
            lambda: [_passage(chunks[id]) for id, _, _ in page],
            lambda: self._index.has_fewer(sql, relevance.FEW_PASSAGES),
        )
        snippets = Snippets(question.text)
        return Results(
            hits=tuple(
                _hit(row, each, chunks, snippets, chosen)
                for row, each in zip(page, judged.known, strict=True)
                if each is None or each >= question.min_relevance
            ),
            legs=tuple(ranking.found),
            reasons=ranking.reasons,
            verdict=judged.verdict,
            uncalibrated=judged.uncalibrated,
        )

    def _ranked(
        self,
        sql: apsw.Connection,
        question: DocumentQuestion,
        which: DocumentFilter,
        embedding: QueryEmbedding | str,
        wanted: int,
    ) -> tuple[Ranking, Variety]:
        """The `wanted` best rows; grouped and folded, if that is requested, from many more.

        A longer ranking begins with the shorter one, so it is made longer only if too few rows
        remain of it.
        """
        once = question.whole and question.fusion == "convex"
        if not question.group and not question.fold and not once:
            return self._rank(sql, question, which, embedding, wanted), EVERYTHING
        for depth in sorted({max(least, wanted) for least in CANDIDATES}):
            ranking = self._rank(sql, question, which, embedding, depth)
            by_id = {row[0]: row for row in ranking.rows}
            ids, judge = list(by_id), ranking.judge
            owner = self._index.owner_of(sql, ids)
            if once:
                best: dict[int, int] = {}
                for id in ids:
                    best.setdefault(owner[id], id)
                ids = list(best.values())
            chosen = variety.choose(
                ids,
                wanted,
                owner=owner.get if question.group and not once else None,
                text=_Texts(sql, self._index, ids).get if question.fold else None,
                weak=lambda id: judge.is_weak(by_id[id][2]),  # noqa: B023 - called in this round
            )
            if chosen.complete or len(ranking.rows) < depth:
                break
        ranking.rows = [by_id[id] for id in chosen.chosen]
        return ranking, chosen

    def _rank(
        self,
        sql: apsw.Connection,
        question: DocumentQuestion,
        which: DocumentFilter,
        embedding: QueryEmbedding | str,
        wanted: int,
    ) -> Ranking:
        if question.fusion == "rrf" and question.mode == "text":
            return self._aged(sql, question, self._by_all_terms(sql, question, which, wanted))
        query = parse_query(question.text)
        keyword = self._index.keyword
        retrievers = Retrievers(
            sql,
            query,
            partial(keyword.match, sql, query, which.chunks) if query.match else NO_WORDS,
            MeaningRetriever(sql, self._index, embedding)
            if isinstance(embedding, QueryEmbedding)
            else embedding,
            keyword.narrowed(query, which.chunks) if question.mode != "text" else which.chunks,
            embedding,
        )
        if question.fusion == "convex":
            return retrievers.rank(question, wanted, partial(_weights, sql, question))
        found = reciprocal_ranks.rank(
            retrievers, self._index, question, wanted, self._expander if question.expand else None
        )
        return self._aged(sql, question, found)

    def _by_all_terms(
        self, sql: apsw.Connection, question: DocumentQuestion, which: DocumentFilter, wanted: int
    ) -> Ranking:
        """Documents that have every word of the query, at least as the beginning of one."""
        query = parse_all_terms(question.text)
        if not query.terms:
            return Ranking(reasons={"text": NO_WORDS})
        if question.recency is not None:
            wanted = max(CANDIDATES[0], wanted)
        ranked = all_terms.rank(sql, self._index, query, which, wanted)
        if not ranked and query.content_terms != query:  # "how do I …" need not occur
            ranked = all_terms.rank(sql, self._index, query.content_terms, which, wanted)
        found = Ranking(found={"text": [(chunk, score) for _, chunk, score in ranked]})
        found.rows = [
            (chunk, saturate(score), Scores(text=score, text_rank=rank))
            for rank, (_, chunk, score) in enumerate(ranked, 1)
        ]
        return found

    def _aged(self, sql: apsw.Connection, question: Question, found: Ranking) -> Ranking:
        if weights := _weights(sql, question, [id for id, _, _ in found.rows]):
            aged = [
                (id, score * weights[id], replace(scores, recency=weights[id]))
                for id, score, scores in found.rows
            ]
            found.rows = sorted(aged, key=lambda row: -row[1])
        return found


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


def _weights(sql: apsw.Connection, question: Question, ids: Sequence[int]) -> dict[int, float]:
    """By what the scores of chunks are multiplied because of their age; {} for nothing."""
    return {} if question.recency is None else rows.recency(sql, ids, question.recency)


def _by_position(_: Sequence[float], figures: Sequence[float]) -> list[tuple[int, float]]:
    """Ranks blended with the cross-encoder's scores."""
    return fusion.positioned(figures)


def _hit(
    row: Row,
    relevance: float | None,
    chunks: Mapping[int, Chunk],
    snippets: Snippets,
    chosen: Variety,
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
        folded=tuple(chunks[each] for each in chosen.folded.get(id, ())),
        more=chosen.more.get(id, 0),
    )


def _passage(chunk: Chunk) -> str:
    """What is searched of a chunk: its title and headings, then its text."""
    return embedding_text(chunk.document.title, chunk.headings, chunk.header, chunk.text)
