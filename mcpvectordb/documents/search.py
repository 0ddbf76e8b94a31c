"""Document search: passages, or whole documents, each by its best passage."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

from mcpvectordb.documents import rows
from mcpvectordb.documents.rows import DocumentFilter
from mcpvectordb.documents.whole_documents import ReciprocalRanks, by_all_terms, positioned
from mcpvectordb.errors import InvalidInput, quoted
from mcpvectordb.index.chunks import ChunkIndex, QueryEmbedding, embedding_text
from mcpvectordb.index.encoder import NO_WORDS
from mcpvectordb.index.resident import Allowed
from mcpvectordb.ranking import ranker, relevance, variety
from mcpvectordb.ranking.meaning import MeaningRetriever
from mcpvectordb.ranking.ranker import Question, Ranking, Retrievers
from mcpvectordb.ranking.snippets import Snippets
from mcpvectordb.ranking.variety import EVERYTHING, Variety
from mcpvectordb.records import Chunk, Hit, Results
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.store import OpenStore
from mcpvectordb.text.query import parse_query

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

    def search(self, question: DocumentQuestion, which: DocumentFilter) -> Results[Chunk]:
        """The passages or documents that answer a query best, all read in one snapshot."""
        began, wanted = time.perf_counter(), question.limit + question.offset
        least = question.read_again
        judged = max(least, relevance.JUDGED)
        with self._store.file.reading() as sql:
            backlog, embedding = self._store.encoder.asked(
                sql, question.text, question.mode, self._index, wait=question.unit == "document"
            )
            which = which.published(sql)
            allowed = which.chunks
            retrievers = self._retrievers(sql, question, allowed, embedding)
            ranking, chosen = self._ranked(retrievers, question, which, max(judged, wanted))
            first = ranking.rows[:judged]
            shown = [id for id, _, _ in (*first, *ranking.rows[question.offset : wanted])]
            folded = [each for id in shown for each in chosen.folded.get(id, ())]
            chunks = rows.chunks(sql, list(dict.fromkeys([*shown, *folded])))
            if least:
                passages = [_passage(chunks[id]) for id, _, _ in first[:least]]
                figures = self._store.reranker.scores(question.text, passages)
                ranking.rerank(figures, positioned if question.fusion == "rrf" else ranker.blended)
            searched = None if allowed.select else ranking.matched.rows
            if searched is None:
                searched = self._index.keyword.searched(sql, allowed)
            kept = ranking.judged(
                question,
                [
                    (scores, chunks[id].text, _searched(chunks[id]))
                    for id, _, scores in ranking.rows[: relevance.JUDGED]
                ],
                searched,
            )
        covered = {
            id: tuple(chunks[each] for each in chosen.folded[id])
            for id in shown
            if id in chosen.folded
        }
        snippets = cache(lambda: Snippets(ranking.query))  # few look at one

        def shown_lines(chunk: Chunk) -> tuple[int, str]:
            return snippets().of(chunk.text, chunk.first_line)

        hits: list[Hit[Chunk]] = [
            Hit.shown_by(
                partial(shown_lines, chunks[id]),
                item=chunks[id],
                score=score,
                scores=scores,
                relevance=each,
                folded=covered.get(id, ()),
                more=chosen.more.get(id, 0),
            )
            for (id, score, scores), each in kept
        ]
        return ranking.results(question, hits, began, backlog=backlog)

    def _retrievers(
        self,
        sql: Sql,
        question: DocumentQuestion,
        allowed: Allowed,
        embedding: QueryEmbedding | str,
    ) -> Retrievers:
        keyword = self._index.keyword
        query = parse_query(question.text).completed(partial(keyword.has, sql))
        narrows = query.strict or query.exclusions
        return Retrievers(
            sql,
            query,
            partial(keyword.match, sql, query, allowed) if query.match else NO_WORDS,
            MeaningRetriever(sql, self._index, embedding)
            if isinstance(embedding, QueryEmbedding)
            else embedding,
            allowed
            if not narrows
            or question.mode == "text"
            or (query.common and question.mode == "vector")
            else keyword.narrowed(query, allowed),
            embedding,
        )

    def _ranked(
        self, by: Retrievers, question: DocumentQuestion, which: DocumentFilter, wanted: int
    ) -> tuple[Ranking, Variety]:
        """The `wanted` best rows; grouped and folded, if that is requested, from many more.

        A longer ranking begins with the shorter one, so it is made longer only if too few rows
        remain of it.
        """
        once = question.unit == "document" and question.fusion == "convex"
        if not question.group and not question.fold and not once:
            return self._rank(by, question, which, wanted), EVERYTHING
        for depth in sorted({max(least, wanted) for least in CANDIDATES}):
            ranking = self._rank(by, question, which, depth)
            by_id = {row[0]: row for row in ranking.rows}
            ids = list(by_id)
            owner = self._index.owner_of(by.sql, ids)
            if once:
                best: dict[int, int] = {}
                for id in ids:
                    best.setdefault(owner[id], id)
                ids = list(best.values())
            chosen = variety.choose(
                ids,
                wanted,
                owner=owner.get if question.group and not once else None,
                text=_Texts(by.sql, self._index, ids).get if question.fold else None,
            )
            if chosen.complete or len(ranking.rows) < depth:
                break
        ranking.rows = [by_id[id] for id in chosen.chosen]
        return ranking, chosen

    def _rank(
        self, by: Retrievers, question: DocumentQuestion, which: DocumentFilter, wanted: int
    ) -> Ranking:
        weigh = partial(rows.recency, by.sql)
        if question.fusion == "convex":
            return by.rank(question, wanted, weigh)
        if question.mode == "text":
            depth = wanted if question.recency is None else max(CANDIDATES[0], wanted)
            ranking = by_all_terms(by, self._index, question, which, depth)
        else:
            ranking = ReciprocalRanks(by, self._index, question, wanted).rank(
                expand=question.expand
            )
        ranking.age(question, weigh)
        return ranking


class _Texts:
    """The texts of chunks, read in the order in which they are asked for, some at a time."""

    def __init__(self, sql: Sql, index: ChunkIndex, ids: Sequence[int]) -> None:
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


def _searched(chunk: Chunk) -> str:
    """All words by which a chunk is found."""
    return "\n".join((chunk.document.title, *chunk.headings, chunk.header, chunk.text))


def _passage(chunk: Chunk) -> str:
    """What the cross-encoder reads of a chunk: its title and headings, then its text."""
    return embedding_text(chunk.document.title, chunk.headings, chunk.header, chunk.text)
