"""Whole documents as the specification of qmd ranks them: by reciprocal ranks, or by all terms.

Its `query` ranks documents by words and by meaning, each by its best passage. Pseudo-relevance
feedback from the best ones gives two more rankings, unless words alone point at one document: terms
that are frequent in their passages and rare elsewhere are added to the query (weighted by tf · idf,
as in Rocchio's method), and the mean of the passages' embeddings becomes a second query embedding.
No language model is involved. The reciprocal ranks of all are summed, with a bonus for the first of
a ranking.

Its `search` finds documents that have all terms of a query, in their text, title or path. The
keyword index has chunks, so each term is searched by itself: a document is found when every term is
in some chunk of it, or in its path. A term scores the BM25 of the chunk where that is highest.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from mcpvectordb import filters
from mcpvectordb.documents.rows import DocumentFilter, path
from mcpvectordb.index import arrays
from mcpvectordb.index.chunks import ChunkIndex, QueryEmbedding
from mcpvectordb.index.encoder import BLIND_VECTOR_WEIGHT, NO_WORDS
from mcpvectordb.index.resident import Allowed, Ranked
from mcpvectordb.ranking.meaning import MeaningRetriever, best_of_owners
from mcpvectordb.ranking.ranker import Question, Ranking, Retrievers, rrf
from mcpvectordb.records import RRF_K, Scores
from mcpvectordb.storage import deadline
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.lazy import np
from mcpvectordb.text.query import (
    K1,
    AllTermsQuery,
    Query,
    Term,
    fts5_phrase,
    idf,
    parse_all_terms,
    saturate,
)
from mcpvectordb.text.tokens import CJK, bigrams, stop_words

DEPTH = 20  # documents of each ranking that are fused at least
OVERFETCH = 3  # chunks that are ranked per document: several may belong to one
# Weights of the rankings in fusion: keyword and vector ranking of the query, then of the expanded
# query. The vector rankings of a model that cannot represent the query, or its codes, count little.
WEIGHTS, BLIND_WEIGHTS = (2.0, 2.0, 1.0, 1.0), (2.0, 0.2, 1.0, 0.1)
FEEDBACK_DOCUMENTS = 3  # documents whose best passages expand the query
# A query is not expanded if the first document's saturated BM25 is at least STRONG and ahead of the
# second one's by AHEAD.
STRONG, AHEAD = 0.85, 0.15
TERMS = 10  # that are added to a query
CANDIDATES = 60  # most frequent words of the passages whose document frequency is looked up
FREQUENT = 2_000  # chunks up to which a word is counted: one in more of them is too common anyway

COLUMN_WEIGHTS = (4.0, 1.0, 1.0)  # BM25 weights of the title, the headings and the text
PATH_WEIGHT = 1.5  # of a term in a document's path, against 1 in its text
FEW = 1_000  # documents or chunks up to which these are checked one by one
# Chunks that are scored for one query, rarest terms first; further terms must occur but do not
# score, which bounds the time of queries with common words.
SCORED = 100_000
LONGEST_ENDING = 7  # letters that stemming removes at most

_WORD = re.compile(r"[^\W_]+")
_FEEDBACK_WORD = r"[^\W_]{3,}|" + CJK.pattern  # compiled on use: few processes expand queries

RankedDocuments = list[tuple[int, int, float]]
"""(document, its best chunk, score), best first."""


class ReciprocalRanks:
    """The rankings of documents for one question."""

    def __init__(
        self, retrievers: Retrievers, index: ChunkIndex, question: Question, wanted: int
    ) -> None:
        self._by, self._index, self._question = retrievers, index, question
        self._depth = max(DEPTH, wanted)
        self._found = retrievers.ranking(question)
        self._exact: dict[int, float] = {}

    def rank(self, *, expand: bool) -> Ranking:
        """The best documents by all rankings, each by its best chunk."""
        found = self._found
        text, vector = self._matching(), self._by_meaning()
        if self._question.mode == "vector":
            found.rows = [
                (chunk, min(1.0, max(0.0, cosine)), self._scores(chunk, rank))
                for rank, (_, chunk, cosine) in enumerate(vector, 1)
            ]
            return found
        weights = self._weights()
        fused = self._fused([text, vector], weights)
        first, second = (saturate(text[place][2]) if place < len(text) else 0.0 for place in (0, 1))
        if expand and not text and not vector:
            found.reasons["expansion"] = "nothing was found to expand the query from"
        elif expand and first >= STRONG and first - second >= AHEAD:
            found.reasons["expansion"] = "words alone point at one document"
        elif expand:
            more = self._expanded([chunk for chunk, _ in fused[:FEEDBACK_DOCUMENTS]])
            fused = self._fused([text, vector, *more], weights)
        found.rows = [(chunk, 1 / rank, scores) for rank, (chunk, scores) in enumerate(fused, 1)]
        return found

    def _weights(self) -> list[float]:
        embedding = self._by.embedding
        cannot_read = (
            isinstance(embedding, QueryEmbedding) and embedding.weight <= BLIND_VECTOR_WEIGHT
        )
        blind = 1.0 if self._by.query.exact or cannot_read else self._found.matched.code_share
        return [
            usual + (least - usual) * blind
            for usual, least in zip(WEIGHTS, BLIND_WEIGHTS, strict=True)
        ]

    def _matching(self) -> RankedDocuments:
        """Documents by the BM25 of their best passage."""
        words, found = self._by.words, self._found
        if self._question.mode == "vector":
            return []
        if isinstance(words, str):
            found.reasons["text"] = words
            return []

        def best(most: int) -> Ranked:
            found.matched = words(most)
            return found.matched.best

        with found.explaining(self._by.sql, self._question, "text"):
            ranked = self._documents(best)
            found.found["text"] = found.matched.best
        return ranked

    def _by_meaning(self) -> RankedDocuments:
        """Documents by the cosine of their nearest passage."""
        by, found = self._by, self._found
        if not isinstance(by.meaning, MeaningRetriever):
            found.reasons["vector"] = str(by.meaning)
        elif not self._index.has_embeddings(by.sql, by.embedding):
            found.reasons["vector"] = "there is nothing to search"
        else:
            with found.explaining(by.sql, self._question, "vector"):
                ranked = self._documents(partial(by.meaning.nearest, by.allowed))
                found.found["vector"] = [(chunk, cosine) for _, chunk, cosine in ranked]
            found.meaning = by.meaning
            self._exact = by.meaning.exact([chunk for _, chunk, _ in ranked])
            return ranked
        return []

    def _documents(self, rank: Callable[[int], Ranked]) -> RankedDocuments:
        """The documents of the best chunks, each by its best."""
        best = best_of_owners(self._by.sql, self._index, rank, self._depth, OVERFETCH * self._depth)
        return [(document, *found) for document, found in best.items()][: self._depth]

    def _expanded(self, feedback: Sequence[int]) -> list[RankedDocuments]:
        """Keyword and vector ranking for the query as some passages expand it."""
        by = self._by
        query = expanded(by.sql, self._index, by.query, feedback)
        self._found.found["expansion"] = []
        match = partial(self._index.keyword.match, by.sql, query, by.allowed)
        text = self._documents(lambda most: match(most).best) if query.match else []
        mean = mean_embedding(by.sql, by.embedding, feedback)
        if mean is None:
            return [text, []]
        near = MeaningRetriever(by.sql, self._index, mean)
        return [text, self._documents(partial(near.nearest, by.allowed))]

    def _scores(self, chunk: int, rank: int | None) -> Scores:
        """The cosine of a chunk by the model that has embedded it, and its rank."""
        return Scores(vector=self._exact.get(chunk), vector_rank=rank)

    def _fused(
        self, rankings: Sequence[RankedDocuments], weights: Sequence[float]
    ) -> list[tuple[int, Scores]]:
        """(best chunk, scores) of documents by reciprocal rank fusion.

        The first two rankings are keyword and vector ranking of the query itself; a ranking with a
        weight below 1 gives no bonus to its first documents.
        """
        owners = [[owner for owner, _, _ in each] for each in rankings]
        heard = [each for each, weight in zip(owners, weights, strict=False) if weight >= 1]
        fused = rewarded(rrf(owners, RRF_K, weights[: len(rankings)]), heard)
        text, vector = (
            {owner: (rank, chunk, score) for rank, (owner, chunk, score) in enumerate(each, 1)}
            for each in rankings[:2]
        )
        # The best chunk of a document is the one that the rankings rank highest.
        votes: dict[int, dict[int, float]] = {}
        for ranking, weight in zip(rankings, weights, strict=False):
            for place, (owner, chunk, _) in enumerate(ranking, 1):
                of_owner = votes.setdefault(owner, {})
                of_owner[chunk] = of_owner.get(chunk, 0.0) + weight / (RRF_K + place)
        rows = []
        for owner, score in fused:
            rank, chunk, _ = vector.get(owner, (None, 0, 0.0))
            scores = self._scores(chunk, rank)
            rank, _, bm25 = text.get(owner, (None, 0, None))
            reach = self._found.matched.full_score
            scores = replace(scores, text=bm25, text_rank=rank, rrf=score, reach=reach)
            rows.append((max(votes[owner], key=votes[owner].__getitem__), scores))
        return rows


def rewarded(
    fused: Sequence[tuple[int, float]], rankings: Sequence[Sequence[int]]
) -> list[tuple[int, float]]:
    """Fused scores with a bonus for the first three of any ranking, best first.

    The first gets 0.05, second and third 0.02.
    """
    bonus: dict[int, float] = {}
    for ranking in rankings:
        for id, reward in zip(ranking, (0.05, 0.02, 0.02), strict=False):
            bonus[id] = max(reward, bonus.get(id, 0.0))
    return sorted(
        ((id, score + bonus.get(id, 0.0)) for id, score in fused), key=lambda pair: -pair[1]
    )


def positioned(_: Sequence[float], reranked: Sequence[float]) -> list[tuple[int, float]]:
    """Blend ranks with a reranker's scores, given in rank order: (position, score), best first.

    The higher a rank, the larger its weight: 3/4 for the first three, 3/5 down to the tenth, 2/5
    below.
    """
    scores = []
    for position, figure in enumerate(reranked):
        trust = 0.75 if position < 3 else 0.60 if position < 10 else 0.40
        scores.append((position, trust / (position + 1) + (1 - trust) * figure))
    return sorted(scores, key=lambda pair: -pair[1])


def expanded(sql: Sql, index: ChunkIndex, query: Query, passages: Sequence[int]) -> Query:
    """The query with the words that have the highest tf · idf in some passages as more terms."""
    asked = set(re.findall(_FEEDBACK_WORD, query.match.casefold()))
    counts = Counter(
        word
        for passage in index.passages(sql, passages)
        for word in _feedback_words(passage.text)
        if word not in asked
    )
    total = 1 + int(sql.execute("SELECT count(*) FROM document_chunks").get)
    weights = {
        word: count
        * math.log(total / (1 + index.keyword.frequency(sql, fts5_phrase(word), FREQUENT)))
        for word, count in counts.most_common(CANDIDATES)
    }
    best = sorted(weights, key=lambda word: -weights[word])[:TERMS]
    new = [fts5_phrase(word) for word in best if weights[word] > 0]
    return replace(query, terms=(*query.terms, *filter(None, new)))


def _feedback_words(text: str) -> Iterator[str]:
    words: list[str] = re.findall(_FEEDBACK_WORD, text.casefold())
    stops = stop_words(words)
    for word in words:
        if CJK.match(word):
            yield from bigrams(word)[:-1]
        elif word not in stops and not word.isdigit():
            yield word


def mean_embedding(
    sql: Sql, query_embedding: QueryEmbedding | str, passages: Sequence[int]
) -> QueryEmbedding | None:
    """The mean of the passages' embeddings as that of a query; None if none is embedded."""
    if isinstance(query_embedding, str):
        return None
    rows = sql.execute(
        "SELECT embedding FROM document_embeddings "
        "WHERE model = ? AND chunk IN (SELECT value FROM json_each(?))",
        (query_embedding.model, json.dumps(list(passages))),
    )
    dimension = len(query_embedding.embedding) // 4  # that of a query is float32
    vectors = arrays.unpacked([embedding for (embedding,) in rows], dimension)
    if not len(vectors):
        return None
    mean = vectors.mean(axis=0).astype(np.float32)
    return replace(query_embedding, embedding=mean.tobytes())


def by_all_terms(
    by: Retrievers, index: ChunkIndex, question: Question, which: DocumentFilter, wanted: int
) -> Ranking:
    """Documents that have every word of the query, at least as the beginning of one."""
    sql, query, found = by.sql, parse_all_terms(question.text), Ranking(by.query)
    if not query.terms:
        found.reasons["text"] = NO_WORDS
        return found
    with found.explaining(sql, question, "text"):
        ranked = having_all(sql, index, query, which, wanted)
        if not ranked and query.content_terms != query:  # "how do I …" need not occur
            ranked = having_all(sql, index, query.content_terms, which, wanted)
        found.found["text"] = [(chunk, score) for _, chunk, score in ranked]
    found.rows = [
        (chunk, saturate(score), Scores(text=score, text_rank=rank))
        for rank, (_, chunk, score) in enumerate(ranked, 1)
    ]
    return found


def having_all(
    sql: Sql,
    index: ChunkIndex,
    query: AllTermsQuery,
    filter: DocumentFilter,
    limit: int,
) -> RankedDocuments:
    """The documents that have all terms and none that is excluded, by weighted BM25."""
    if not query.terms:
        return []
    search = _TermSearch(sql, index, filter, query)
    # The rarest leave the fewest documents for the next.
    rarest, *others = sorted(query.terms, key=search.frequency.__getitem__)
    found = search.having(rarest)
    for term in others:
        if not found:
            return []
        deadline.check("looking for the words of the query")
        found = {
            owner: found[owner].joined(each) for owner, each in search.having(term, found).items()
        }
    for term in query.excluded:
        deadline.check("looking for the words that are excluded")
        for owner in search.having(term, found, scored=False):
            del found[owner]
    ranked = sorted(found.items(), key=lambda item: (-item[1].score, item[0]))[:limit]
    by_path_alone = [owner for owner, each in ranked if not each.chunks]
    first = dict(
        sql.execute(
            "SELECT owner, id FROM document_chunks "
            "WHERE position = 0 AND owner IN (SELECT value FROM json_each(?))",
            (json.dumps(by_path_alone),),
        )
    )
    return [
        (owner, chunk, each.score)
        for owner, each in ranked
        if (chunk := each.best() or first.get(owner))
    ]


@dataclass(slots=True)
class _DocumentMatch:
    """The score of one document, and the scores of its chunks."""

    score: float = 0.0
    chunks: dict[int, float] = field(default_factory=dict)

    def joined(self, other: _DocumentMatch) -> _DocumentMatch:
        for chunk, score in other.chunks.items():
            self.chunks[chunk] = self.chunks.get(chunk, 0.0) + score
        self.score += other.score
        return self

    def best(self) -> int | None:
        return max(self.chunks, key=lambda chunk: (self.chunks[chunk], -chunk), default=None)


class _TermSearch:
    """Searches for one term after the other."""

    def __init__(
        self, sql: Sql, index: ChunkIndex, filter: DocumentFilter, query: AllTermsQuery
    ) -> None:
        self._sql, self._keyword, self._index, self._filter = sql, index.keyword, index, filter
        self._paths = _paths(sql, filter, [*query.terms, *query.excluded])
        self._documents = int(sql.execute("SELECT count(*) FROM published_documents").get)
        self.frequency = {
            term: index.keyword.frequency(sql, term.expression, SCORED) for term in query.terms
        }
        self._scored_rows = 0

    def having(
        self,
        term: Term,
        among: Mapping[int, _DocumentMatch] | None = None,
        *,
        scored: bool = True,
    ) -> dict[int, _DocumentMatch]:
        """The documents that have a term, among all chosen ones or the given ones."""
        found: dict[int, _DocumentMatch] = {}
        self._scored_rows += self.frequency.get(term, 0)
        expression, owners = term.expression, self._owners(among)
        if among is not None and (not scored or self._scored_rows > SCORED):
            having = self._keyword.owners(self._sql, expression, owners)
            found = {owner: _DocumentMatch() for owner in having if owner in among}
        else:
            rows = list(self._keyword.each(self._sql, expression, COLUMN_WEIGHTS, owners))
            for owner, chunk, score in rows or self._spelled(term, among):
                if among is None or owner in among:
                    each = found.setdefault(owner, _DocumentMatch())
                    each.chunks[chunk] = score
                    each.score = max(score, each.score)
        words = _tokens(term.text)
        if not CJK.search(words):
            words = f" {words}" if term.prefix else f" {words} "
        named = [owner for owner, path_words in self._paths.items() if words in path_words]
        bonus = idf(self._documents, len(named)) * PATH_WEIGHT * (K1 + 1) / (PATH_WEIGHT + K1)
        for owner in named:
            if among is None or owner in among:
                found.setdefault(owner, _DocumentMatch()).score += bonus
        return found

    def _spelled(
        self, term: Term, among: Mapping[int, _DocumentMatch] | None
    ) -> list[tuple[int, int, float]]:
        """Chunks with a word that begins with a term although its stem does not.

        For example, "meeting" is "meet" in the index, and the prefix "meeti" does not match that.
        """
        word = _tokens(term.text)
        if not term.prefix or not word.isascii() or not word.isalpha():
            return []
        begins = re.compile(rf"(?<![^\W_]){word}", re.IGNORECASE)
        for length in range(len(word) - 1, max(2, len(word) - LONGEST_ENDING - 1), -1):
            stem = Term(word[:length], prefix=True).expression
            each = self._keyword.each(self._sql, stem, COLUMN_WEIGHTS, self._owners(among))
            rows = list(islice(each, FEW))
            passages = self._index.passages(self._sql, [chunk for _, chunk, _ in rows])
            spelled = {
                each.id
                for each in passages
                if any(map(begins.search, (each.title, *each.headings, each.words)))
            }
            if spelled:
                return [row for row in rows if row[1] in spelled]
        return []

    def _owners(self, among: Mapping[int, _DocumentMatch] | None) -> Allowed:
        """The documents to search: once they are few, only these are scored."""
        if among is None or len(among) > FEW:
            return self._filter.documents
        return Allowed("SELECT value FROM json_each(?)", (json.dumps(list(among)),))


# Paths are not in the index: there are few, they are short, and they change when a folder is moved.


def _paths(sql: Sql, filter: DocumentFilter, terms: Iterable[Term]) -> dict[int, str]:
    """The words of paths that may have one of the terms, by document."""
    longest = [max(_tokens(term.text).split(), key=len, default="") for term in terms]
    likely = (
        " OR ".join(["lower(d.library || '/' || d.source) LIKE ?"] * len(longest))
        if all(map(str.isascii, longest))
        else filters.EVERYTHING
    )
    rows = sql.execute(
        f"SELECT d.key, d.library, d.source, {sql.dialect.root} "
        f"FROM published_documents d WHERE ({filter.condition}) AND ({likely})",
        (*filter.bindings, *(f"%{word}%" for word in longest if likely != filters.EVERYTHING)),
    )
    return {
        key: f" {_tokens(path(library, source, root or ''))} "
        for key, library, source, root in rows
    }


def _tokens(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))
