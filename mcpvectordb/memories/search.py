"""Search of memories: by the words of their whole texts and the cosine of their nearest passage."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import apsw

from mcpvectordb.errors import InvalidInput, quoted
from mcpvectordb.index import Allowed
from mcpvectordb.index.keyword import KeywordMatch
from mcpvectordb.index.models import QueryEmbedding
from mcpvectordb.memories.memory import Memory
from mcpvectordb.memories.rows import MemoryFilter, by_ids
from mcpvectordb.records import Hit, Results, Scores
from mcpvectordb.search import fusion, ranker, relevance
from mcpvectordb.search.explain import together
from mcpvectordb.search.highlight import highlight
from mcpvectordb.search.meaning import OwnerRetriever
from mcpvectordb.search.ranker import NO_WORDS, Question, Ranking, Retrievers, Row
from mcpvectordb.search.snippets import Snippets
from mcpvectordb.store import OpenStore
from mcpvectordb.text import boolean
from mcpvectordb.text.query import (
    FulltextQuery,
    Interpretation,
    Query,
    Term,
    highlight_terms,
    match_query,
    parse_query,
    phrase_query,
    prefix_query,
)

# The cross-encoder reads this many times the memories that are wanted, up to RERANK_LIMIT: it
# takes up to a tenth of a second for each.
RERANK_OVERFETCH = 4
RERANK_LIMIT = 40
# Characters of a memory that the cross-encoder reads where no chunk of it was found.
EXCERPT_CHARACTERS = 750
SNIPPET_CHARACTERS = 100_000  # of a memory among which its snippet is looked for
RECENT_DEPTH = 100  # memories that are ranked at least if newer ones are preferred
RRF_OVERFETCH = 2  # one may rank low by both retrievers and high in their sum

PARSERS: Mapping[str, Callable[[str], FulltextQuery]] = {
    "match": match_query,
    "prefix": prefix_query,
    "phrase": phrase_query,
    "boolean": boolean.boolean_query,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryQuestion(Question):
    """A question, how its words are read ("any" or the name of a parser), and what to return."""

    words: str = "any"
    stemmed: bool = True
    images: bool = False
    highlight: bool = False

    def __post_init__(self) -> None:
        # Named, because the class that `slots` makes is another one than the one of `super()`.
        Question.__post_init__(self)
        if self.words != "any" and self.words not in PARSERS:
            names = ", ".join(["any", *PARSERS])
            raise InvalidInput(f"words must be {names}, not {quoted(self.words)}")

    @property
    def depth(self) -> int:
        """How many memories to rank."""
        wanted = self.wanted
        if self.rerank:
            wanted = max(wanted, min(RERANK_OVERFETCH * wanted, RERANK_LIMIT))
        return wanted if self.recency is None else max(wanted, RECENT_DEPTH)


class MemorySearch:
    """Ranks memories for a query, and reads those of a page."""

    def __init__(self, store: OpenStore) -> None:
        self._store, self._index = store, store.memories

    def search(self, question: MemoryQuestion, which: MemoryFilter) -> Results[Memory]:
        """The best memories among those that match the filter."""
        began = time.perf_counter()
        with self._store.file.reading() as sql:
            backlog, embedding = self._store.encoder.asked(
                question.text, question.mode, self._index
            )
            allowed = which.using_indexes(self._store.metadata_index.names(sql))
            words = _Words(self._store, sql, question)
            ranking = self._ranked(sql, question, words, embedding, allowed)
            if question.rerank:
                passages = self._excerpts(sql, ranking, words)
                figures = self._store.reranker.scores(question.text, passages)
                ranker.rerank(ranking, figures, _by_reading)
            results = self._results(sql, question, ranking, words)
        spent = 1000 * (time.perf_counter() - began)
        return replace(
            results,
            counts=ranking.counts,
            note=words.note,
            explained=together(ranking.explained, spent, len(results))
            if question.explain
            else None,
            backlog=backlog,
        )

    def _ranked(
        self,
        sql: apsw.Connection,
        question: MemoryQuestion,
        words: _Words,
        embedding: QueryEmbedding | str,
        allowed: MemoryFilter,
    ) -> Ranking:
        meaning = (
            OwnerRetriever(sql, self._index, embedding)
            if isinstance(embedding, QueryEmbedding)
            else embedding
        )
        retrievers = Retrievers(
            sql,
            parse_query(question.text),
            partial(words.match, allowed.memories) if words.any else words.note or NO_WORDS,
            meaning,
            words.narrowed(allowed),
            embedding,
            newest=True,
        )
        weigh = partial(_weights, sql, question)
        if question.fusion == "convex":
            return retrievers.rank(question, question.depth, weigh)
        ranking = retrievers.run(question, RRF_OVERFETCH * question.depth, exact=True)
        ranking.rows = _by_ranks(question, ranking)
        if aged := weigh([id for id, _, _ in ranking.rows]):
            rows = [
                (id, score * aged[id], replace(scores, recency=aged[id]))
                for id, score, scores in ranking.rows
            ]
            ranking.rows = sorted(rows, key=lambda row: (-row[1], row[0]))
        return ranking

    def _excerpts(self, sql: apsw.Connection, ranking: Ranking, words: _Words) -> list[str]:
        """What the cross-encoder reads of the best memories: the nearest chunk or an excerpt."""
        ids = [id for id, _, _ in ranking.rows[:RERANK_LIMIT]]
        texts = dict(self._index.texts(sql, ids))
        passages = self._passages(sql, ranking, ids)
        return [passages.get(id) or excerpt(texts[id], words.terms, words.stemmed) for id in ids]

    def _results(
        self, sql: apsw.Connection, question: MemoryQuestion, ranking: Ranking, words: _Words
    ) -> Results[Memory]:
        page = [
            row
            for row in ranking.rows[question.offset : question.wanted]
            if row[1] >= question.min_score
        ]
        memories = by_ids(sql, self._index, [id for id, _, _ in page], images=question.images)
        page = [row for row in page if row[0] in memories]
        passages = self._passages(sql, ranking, memories)
        texts = [memories[id].text for id, _, _ in page]
        judged = ranker.judged(
            question,
            ranking,
            self._with_cosines(sql, ranking, page),
            texts,
            lambda: texts,
            lambda: self._index.has_fewer(sql, relevance.FEW_PASSAGES),
        )
        snippets, hits = Snippets(question.text), []
        for (id, score, scores), chance in zip(page, judged.known, strict=True):
            if chance is not None and chance < question.min_relevance:
                continue
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
                    highlighted=highlight(text, words.terms, stemmed=words.stemmed)
                    if question.highlight
                    else None,
                )
            )
        return Results(
            hits=tuple(hits),
            legs=tuple(ranking.found),
            reasons=ranking.reasons,
            verdict=judged.verdict,
            uncalibrated=judged.uncalibrated,
        )

    def _with_cosines(
        self, sql: apsw.Connection, ranking: Ranking, page: Sequence[Row]
    ) -> list[Row]:
        """The rows by which relevance is judged: also those that only words found have a cosine.

        Relevance is calibrated for chunks of documents; memories are cut and embedded the same way.
        """
        meaning = ranking.meaning
        if not isinstance(meaning, OwnerRetriever):
            return list(page)
        missing = [id for id, _, scores in page if scores.vector is None]
        if missing:
            meaning.look_up(missing)
        return [
            (id, score, scores)
            if scores.vector is not None
            else (
                id,
                score,
                replace(scores, vector=meaning.cosine(id), provisional=meaning.is_provisional(id)),
            )
            for id, score, scores in page
        ]

    def _passages(
        self, sql: apsw.Connection, ranking: Ranking, ids: Iterable[int]
    ) -> dict[int, str]:
        """The text of the nearest chunk of each memory that meaning has found."""
        near = dict(ranking.found.get("vector", ()))
        meaning = ranking.meaning
        if not isinstance(meaning, OwnerRetriever):
            return {}
        chunks = {meaning.passage[id]: id for id in ids if id in near}
        return {chunks[each.id]: each.text for each in self._index.passages(sql, list(chunks))}


class _Words:
    """The words of a question: parsed once, matched, and marked in what is found."""

    def __init__(self, store: OpenStore, sql: apsw.Connection, question: MemoryQuestion) -> None:
        self._sql, self._fulltext = sql, store.fulltext
        self.stemmed = question.stemmed
        self._keyword = self._fulltext.stems if self.stemmed else self._fulltext.spellings
        self._query: Query | None = None
        self._parsed = FulltextQuery()
        self.terms: Sequence[Term] = ()
        if question.words == "any":
            self._query = parse_query(question.text)
            self.terms = highlight_terms(question.text)
        else:
            self._parsed = PARSERS[question.words](question.text)
        self.any = bool(self._query.match if self._query else self._parsed.interpretations)
        self.note = self._parsed.note

    def match(self, allowed: Allowed, depth: int) -> KeywordMatch:
        """The best memories: by any of the words, or by the first reading that finds something."""
        if self._query is not None:
            return self._keyword.match(self._sql, self._query, allowed, depth)
        match = partial(self._fulltext.match, self._sql)
        for each in self._parsed.interpretations:
            self.terms = each.terms
            if best := match(each.expression, self.stemmed, allowed, depth):
                return KeywordMatch(best, partial(self._scores, each))
        return KeywordMatch([], lambda ids: dict.fromkeys(ids, 0.0))

    def _scores(self, reading: Interpretation, ids: Sequence[int]) -> dict[int, float]:
        only = Allowed("SELECT value FROM json_each(?)", (json.dumps(list(ids)),))
        found = self._fulltext.match(
            self._sql, reading.expression, self.stemmed, only, max(1, len(ids))
        )
        return {**dict.fromkeys(ids, 0.0), **dict(found)}

    def narrowed(self, which: MemoryFilter) -> Allowed:
        """The chunks of the memories that quoted phrases and exclusions allow."""
        if self._query is None or not (self._query.required or self._query.excluded):
            return which.chunks
        memories = self._keyword.narrowed(self._query, which.memories)
        return replace(
            memories, select=f"SELECT id FROM context_chunks WHERE owner IN ({memories.select})"
        )


def excerpt(text: str, terms: Sequence[Term], stemmed: bool) -> str:
    """The part of a text around the first match of the terms, up to EXCERPT_CHARACTERS long."""
    mark = highlight(text, terms, stemmed=stemmed, before="\0", after="").find("\0")
    start = max(0, min(mark - EXCERPT_CHARACTERS // 3, len(text) - EXCERPT_CHARACTERS))
    return text[start : start + EXCERPT_CHARACTERS]


def _by_reading(_: Sequence[float], figures: Sequence[float]) -> list[tuple[int, float]]:
    """The cross-encoder's scores alone decide."""
    return sorted(enumerate(figures), key=lambda pair: -pair[1])


def _weights(
    sql: apsw.Connection, question: MemoryQuestion, ids: Sequence[int]
) -> dict[int, float]:
    """By what the scores of memories are multiplied because of their age; {} for nothing."""
    if question.recency is None:
        return {}
    moments = sql.execute(
        "SELECT id, updated_at FROM contexts WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(ids),),
    )
    weight = question.recency.weight
    return {**dict.fromkeys(ids, 1.0), **{id: weight(moment) for id, moment in moments}}


def _by_ranks(question: MemoryQuestion, ranking: Ranking) -> list[Row]:
    """Reciprocal rank fusion of what both retrievers have found."""
    text, vector = (dict(ranking.found.get(name, ())) for name in ("text", "vector"))
    text_rank = {id: rank for rank, id in enumerate(text, 1)}
    vector_rank = {id: rank for rank, id in enumerate(vector, 1)}
    highest = len(ranking.found) / (question.rrf_k + 1)  # of one that is first everywhere
    rows = []
    for id, rrf in fusion.rrf([list(text), list(vector)], question.rrf_k):
        score = min(1.0, rrf / highest)
        if question.mode != "hybrid":
            score = ranker.alone(ranking, text.get(id, vector.get(id, 0.0)))
        meaning = ranking.meaning if id in vector else None
        scores = Scores(
            text=text.get(id),
            text_rank=text_rank.get(id),
            vector=meaning.cosine(id) if meaning else None,
            vector_rank=vector_rank.get(id),
            rrf=rrf,
            provisional=meaning is not None and meaning.is_provisional(id),
        )
        rows.append((id, score, scores))
    return rows
