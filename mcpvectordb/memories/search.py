"""Search of memories: by the words of their whole texts and the cosine of their nearest passage."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

from mcpvectordb import dates
from mcpvectordb.errors import InvalidInput, quoted
from mcpvectordb.index.chunks import QueryEmbedding
from mcpvectordb.index.encoder import NO_WORDS
from mcpvectordb.index.keyword import NO_MATCH, KeywordMatch, by_id
from mcpvectordb.index.resident import Allowed
from mcpvectordb.memories.memory import Memory
from mcpvectordb.memories.rows import MemoryFilter, by_ids
from mcpvectordb.memories.surroundings import Conversations, KnownTurns, Named, turns_of
from mcpvectordb.ranking import relevance
from mcpvectordb.ranking.meaning import OwnerRetriever
from mcpvectordb.ranking.ranker import (
    Neighbourhood,
    Question,
    Ranking,
    Recency,
    Retrievers,
    Row,
    rrf,
)
from mcpvectordb.ranking.snippets import Snippets, highlight
from mcpvectordb.records import Hit, Results, Scores
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.store import OpenStore
from mcpvectordb.text.query import (
    FulltextQuery,
    Interpretation,
    Term,
    boolean_query,
    match_query,
    parse_query,
    phrase_query,
    prefix_query,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
    "boolean": boolean_query,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryQuestion(Question):
    """A question, how its words are read ("any" or the name of a parser), and what to return.

    `today` is the day from which "two weeks ago" counts.
    """

    today: date
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
        wanted = max(self.wanted, relevance.JUDGED)
        if self.rerank:
            wanted = max(self.wanted, min(RERANK_OVERFETCH * self.wanted, RERANK_LIMIT))
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
                sql, question.text, question.mode, self._index
            )
            allowed = which.using_indexes(self._store.metadata_index.names(sql))
            words = _Words(self._store, sql, question)
            ranking = self._ranked(sql, question, words, embedding, allowed)
            if question.rerank:
                passages = self._excerpts(sql, ranking, words)
                figures = self._store.reranker.scores(question.text, passages)
                ranking.rerank(figures, _by_reading)
            hits = self._hits(sql, question, ranking, words, allowed)
        ranking.note = words.note or ranking.note
        return ranking.results(question, hits, began, counts=_counts(ranking), backlog=backlog)

    def _ranked(
        self,
        sql: Sql,
        question: MemoryQuestion,
        words: _Words,
        embedding: QueryEmbedding | str,
        allowed: MemoryFilter,
    ) -> Ranking:
        # A plan explains statements, so one is asked of the file.
        turns = turns_of(sql, None if question.explain else self._store.fulltext.memory)
        owned = turns if turns.seq is not None else None
        memories, passages = turns.chosen(sql, allowed)
        meaning = (
            OwnerRetriever(sql, self._index, embedding, owned)
            if isinstance(embedding, QueryEmbedding)
            else embedding
        )
        retrievers = Retrievers(
            sql,
            words.query,
            partial(words.match, memories) if words.any else words.note or NO_WORDS,
            meaning,
            words.narrowed(allowed, passages),
            embedding,
            newest=True,
            near=words.conversations(allowed, turns),
        )
        weigh = partial(_weights, sql)
        if question.fusion == "convex":
            return retrievers.rank(question, question.depth, weigh)
        ranking = retrievers.run(question, RRF_OVERFETCH * question.depth, exact=True)
        ranking.rows = _by_ranks(question, ranking)
        if question.recency is not None:
            ranking.rows.sort(key=lambda row: row[0])  # of equal ones the older comes first
            ranking.age(question, weigh)
        return ranking

    def _excerpts(self, sql: Sql, ranking: Ranking, words: _Words) -> list[str]:
        """What the cross-encoder reads of the best memories: the nearest chunk or an excerpt."""
        ids = [id for id, _, _ in ranking.rows[:RERANK_LIMIT]]
        texts = dict(self._index.texts(sql, ids))
        passages = self._passages(sql, ranking, ids)
        return [passages.get(id) or excerpt(texts[id], words.terms, words.stemmed) for id in ids]

    def _hits(
        self,
        sql: Sql,
        question: MemoryQuestion,
        ranking: Ranking,
        words: _Words,
        allowed: MemoryFilter,
    ) -> list[Hit[Memory]]:
        ranking.judge = replace(ranking.judge, single=True)
        first = self._with_cosines(ranking, ranking.rows[: relevance.JUDGED])
        ids = [id for id, _, _ in (*first, *ranking.page(question))]
        memories = by_ids(sql, self._index, ids, images=question.images)
        passages = self._passages(sql, ranking, memories)
        texts = {id: memory.text for id, memory in memories.items()}
        kept = ranking.judged(
            question,
            [(scores, texts[id], texts[id]) for id, _, scores in first],
            words.searched(allowed),
        )
        show = Snippets(words.query).of
        return [
            Hit.shown_by(
                partial(show, texts[id][:SNIPPET_CHARACTERS]),
                item=memories[id],
                score=score,
                scores=scores,
                relevance=each,
                passage=passages.get(id, ""),
                highlighted=highlight(texts[id], words.terms, stemmed=words.stemmed)
                if question.highlight
                else None,
            )
            for (id, score, scores), each in kept
        ]

    def _with_cosines(self, ranking: Ranking, page: Sequence[Row]) -> list[Row]:
        """The rows by which relevance is judged: also those that only words found have a cosine.

        Relevance is calibrated for chunks of documents; memories are cut and embedded the same way.
        """
        meaning = ranking.meaning
        missing = [id for id, _, scores in page if scores.vector is None]
        if not missing or not isinstance(meaning, OwnerRetriever):
            return list(page)
        meaning.look_up(missing)
        exact = meaning.exact(missing)
        return [
            (id, score, replace(scores, vector=exact[id])) if id in exact else (id, score, scores)
            for id, score, scores in page
        ]

    def _passages(self, sql: Sql, ranking: Ranking, ids: Iterable[int]) -> dict[int, str]:
        """The text of the nearest chunk of each memory that meaning has found."""
        near = dict(ranking.found.get("vector", ()))
        meaning = ranking.meaning
        if not isinstance(meaning, OwnerRetriever):
            return {}
        chunks = {meaning.passage[id]: id for id in ids if id in near}
        return {chunks[each.id]: each.text for each in self._index.passages(sql, list(chunks))}


class _Words:
    """The words of a question: parsed once, matched, and marked in what is found."""

    def __init__(self, store: OpenStore, sql: Sql, question: MemoryQuestion) -> None:
        self._sql, self._fulltext = sql, store.fulltext
        self.stemmed, self._mode = question.stemmed, question.mode
        self._keyword = self._fulltext.stems if self.stemmed else self._fulltext.spellings
        self.query = parse_query(question.text).completed(partial(self._keyword.has, sql))
        self._period = dates.spoken_period(question.text, question.today)
        parse = PARSERS.get(question.words)
        self._parsed = parse(question.text) if parse else None
        self.terms: Sequence[Term] = () if self._parsed else self.query.marked
        self.any = bool(self._parsed.interpretations if self._parsed else self.query.match)
        self.note = self._parsed.note if self._parsed else ""
        self._matched = NO_MATCH

    def match(self, allowed: Allowed, depth: int) -> KeywordMatch:
        """The best memories: by any of the words, or by the first reading that finds something."""
        if self._parsed is None:
            self._matched = self._keyword.match(self._sql, self.query, allowed, depth)
            return self._matched
        match = partial(self._fulltext.match, self._sql)
        for each in self._parsed.interpretations:
            self.terms = each.terms
            if best := match(each.expression, self.stemmed, allowed, depth):
                return KeywordMatch(best, partial(self._scores, each))
        return NO_MATCH

    def _scores(self, reading: Interpretation, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        only = Allowed("SELECT value FROM json_each(?)", (json.dumps(ids.tolist()),))
        found = self._fulltext.match(
            self._sql, reading.expression, self.stemmed, only, max(1, len(ids))
        )
        return by_id(ids, found)

    def searched(self, which: MemoryFilter) -> int:
        """How many memories are searched."""
        return self._keyword.searched(self._sql, which.memories)

    def conversations(self, which: MemoryFilter, turns: KnownTurns) -> Neighbourhood | None:
        """What surrounds memories, by the words of the question and the names and times in it.

        None for words that are to be found exactly as a parser reads them.
        """
        if self._parsed or not self.any:
            return None
        exact = self.query.required or self.query.excluded
        return Conversations(
            self._sql,
            turns,
            Named(self.query.content_words, self._period),
            None if exact else which,
            lambda ids: self._matched.occurrences(ids),
        )

    def narrowed(self, which: MemoryFilter, passages: Allowed) -> Allowed:
        """The passages of the memories that quoted phrases and exclusions allow."""
        if self._parsed or not (self.query.required or self.query.excluded):
            return passages
        if self.query.common and self._mode == "vector":
            return passages
        memories = self._keyword.narrowed(self.query, which.memories)
        return replace(
            memories, select=f"SELECT id FROM context_chunks WHERE owner IN ({memories.select})"
        )


def excerpt(text: str, terms: Sequence[Term], stemmed: bool) -> str:
    """The part of a text around the first match of the terms, up to EXCERPT_CHARACTERS long."""
    mark = highlight(text, terms, stemmed=stemmed, before="\0", after="").find("\0")
    start = max(0, min(mark - EXCERPT_CHARACTERS // 3, len(text) - EXCERPT_CHARACTERS))
    return text[start : start + EXCERPT_CHARACTERS]


def _counts(ranking: Ranking) -> dict[str, int]:
    """How many memories each retriever found, how many both found, and how many in all."""
    text, vector = (set(dict(ranking.found.get(name, ()))) for name in ("text", "vector"))
    return {
        "text": len(text),
        "vector": len(vector),
        "both": len(text & vector),
        "total": len(text | vector),
    }


def _by_reading(_: Sequence[float], figures: Sequence[float]) -> list[tuple[int, float]]:
    """The cross-encoder's scores alone decide."""
    return sorted(enumerate(figures), key=lambda pair: -pair[1])


def _weights(sql: Sql, ids: Sequence[int], recency: Recency) -> dict[int, float]:
    """How much memories count by their age, as far as that is known."""
    moments = sql.execute(
        "SELECT id, updated_at FROM contexts WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(ids)),),
    )
    return {**dict.fromkeys(ids, 1.0), **{id: recency.weight(moment) for id, moment in moments}}


def _by_ranks(question: MemoryQuestion, ranking: Ranking) -> list[Row]:
    """Reciprocal rank fusion of what both retrievers have found."""
    text, vector = (dict(ranking.found.get(name, ())) for name in ("text", "vector"))
    text_rank = {id: rank for rank, id in enumerate(text, 1)}
    vector_rank = {id: rank for rank, id in enumerate(vector, 1)}
    exact = ranking.meaning.exact(list(vector)) if ranking.meaning else {}
    highest = len(ranking.found) / (question.rrf_k + 1)  # of one that is first everywhere
    rows = []
    for id, reciprocal in rrf([list(text), list(vector)], question.rrf_k):
        score = min(1.0, reciprocal / highest)
        if question.mode != "hybrid":
            score = ranking.alone(text.get(id, vector.get(id, 0.0)))
        scores = Scores(
            text=text.get(id),
            text_rank=text_rank.get(id),
            vector=exact.get(id),
            vector_rank=vector_rank.get(id),
            rrf=reciprocal,
        )
        rows.append((id, score, scores))
    return rows
