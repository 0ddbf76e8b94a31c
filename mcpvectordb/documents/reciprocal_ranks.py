"""Whole documents by reciprocal ranks, as the specification of qmd's `query` ranks them.

Documents are ranked by words and by meaning, each by its best passage. Pseudo-relevance feedback
from the best ones (`search.expansion`) gives two more rankings, unless words alone point at one
document. The reciprocal ranks of all are summed, with a bonus for the first of a ranking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from mcpvectordb.index import Ranked
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.encoder import BLIND_VECTOR_WEIGHT
from mcpvectordb.index.models import QueryEmbedding
from mcpvectordb.records import Scores
from mcpvectordb.search import fusion
from mcpvectordb.search.expansion import QueryExpander
from mcpvectordb.search.meaning import MeaningRetriever
from mcpvectordb.search.ranker import RRF_K, Question, Ranking, Retrievers, judge
from mcpvectordb.text.bm25 import saturate

DEPTH = 20  # documents of each ranking that are fused at least
OVERFETCH = 3  # chunks that are ranked per document: several may belong to one
# Weights of the rankings in fusion: keyword and vector ranking of the query, then of the expanded
# query. The vector rankings of a model that cannot represent the query, or its codes, count little.
WEIGHTS, BLIND_WEIGHTS = (2.0, 2.0, 1.0, 1.0), (2.0, 0.2, 1.0, 0.1)
FEEDBACK_DOCUMENTS = 3  # documents whose best passages expand the query
# A query is not expanded if the first document's saturated BM25 is at least STRONG and ahead of the
# second one's by AHEAD.
STRONG, AHEAD = 0.85, 0.15

RankedDocuments = list[tuple[int, int, float]]
"""(document, its best chunk, score), best first."""


def rank(
    retrievers: Retrievers,
    index: ChunkIndex,
    question: Question,
    wanted: int,
    expander: QueryExpander | None,
) -> Ranking:
    """The best documents, each by its best chunk; `expander` is None if nothing is expanded."""
    return _DocumentRanks(retrievers, index, question, max(DEPTH, wanted)).rank(expander)


class _DocumentRanks:
    """The rankings of documents for one question."""

    def __init__(
        self, retrievers: Retrievers, index: ChunkIndex, question: Question, depth: int
    ) -> None:
        self._by, self._index, self._question, self._depth = retrievers, index, question, depth
        self._found = Ranking(judge=judge(question.text, retrievers.query, retrievers.embedding))

    def rank(self, expander: QueryExpander | None) -> Ranking:
        """The documents by all rankings; `expander` is None if nothing is expanded."""
        found = self._found
        text, vector = self._matching(), self._by_meaning()
        if self._question.mode == "vector":
            found.rows = [
                (chunk, min(1.0, max(0.0, cosine)), self._vector_scores(chunk, rank))
                for rank, (_, chunk, cosine) in enumerate(vector, 1)
            ]
            return found
        weights = self._weights()
        fused = self._fused([text, vector], weights)
        if expander is not None:
            if reason := _no_need_to_expand(text, vector):
                found.reasons["expansion"] = reason
            else:
                feedback = [chunk for chunk, _ in fused[:FEEDBACK_DOCUMENTS]]
                more = self._expanded(expander, feedback)
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

        found.found["text"] = []
        return self._documents(best)

    def _by_meaning(self) -> RankedDocuments:
        """Documents by the cosine of their nearest passage."""
        by, found = self._by, self._found
        if not isinstance(by.meaning, MeaningRetriever):
            found.reasons["vector"] = str(by.meaning)
        elif not self._index.has_embeddings(by.sql, by.embedding):
            found.reasons["vector"] = "there is nothing to search"
        else:
            found.found["vector"], found.meaning = [], by.meaning
            return self._documents(partial(by.meaning.nearest, by.allowed))
        return []

    def _documents(self, best: Callable[[int], Ranked]) -> RankedDocuments:
        """The documents of the best chunks, each by its best: of as many chunks as it takes."""
        for most in _depths(self._depth):
            chunks = best(most)
            owner = self._index.owner_of(self._by.sql, [id for id, _ in chunks])
            found: dict[int, tuple[int, float]] = {}
            for id, score in chunks:
                if id in owner:
                    found.setdefault(owner[id], (id, score))
            if len(found) >= self._depth or len(chunks) < most:
                break
        return [(document, id, score) for document, (id, score) in found.items()][: self._depth]

    def _expanded(self, expander: QueryExpander, feedback: Sequence[int]) -> list[RankedDocuments]:
        """Keyword and vector ranking for the query as some passages expand it."""
        by = self._by
        expansion = expander.expand(by.sql, by.query, by.embedding, feedback)
        self._found.found["expansion"] = []
        match = partial(self._index.keyword.match, by.sql, expansion.query, by.allowed)
        text = self._documents(lambda most: match(most).best)
        if expansion.query_embedding is None:
            return [text, []]
        near = MeaningRetriever(by.sql, self._index, expansion.query_embedding)
        return [text, self._documents(partial(near.nearest, by.allowed))]

    def _vector_scores(self, chunk: int, rank: int) -> Scores:
        """The cosine of a chunk by the model that has embedded it, and its rank."""
        meaning = self._found.meaning
        if meaning is None:
            return Scores()
        return Scores(
            vector=meaning.cosine(chunk),
            vector_rank=rank,
            provisional=meaning.is_provisional(chunk),
        )

    def _fused(
        self, rankings: Sequence[RankedDocuments], weights: Sequence[float]
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
            scores = self._vector_scores(chunk, rank) if rank else Scores()
            rank, _, bm25 = text.get(owner, (None, 0, None))
            reach = self._found.matched.full_score
            scores = replace(scores, text=bm25, text_rank=rank, rrf=rrf, reach=reach)
            rows.append((best[owner], scores))
        return rows


def _depths(wanted: int) -> Iterator[int]:
    """How many chunks to rank until they belong to enough documents: increasing numbers."""
    depth = OVERFETCH * wanted
    while depth:
        yield depth
        depth *= 4


def _no_need_to_expand(text: RankedDocuments, vector: RankedDocuments) -> str:
    """Why the query is not expanded; "" if it is."""
    if not text and not vector:
        return "nothing was found to expand the query from"
    first, second = (saturate(text[place][2]) if place < len(text) else 0.0 for place in (0, 1))
    return (
        "words alone point at one document" if first >= STRONG and first - second >= AHEAD else ""
    )


def _best_chunks(rankings: Sequence[RankedDocuments], weights: Sequence[float]) -> dict[int, int]:
    """The chunk of every document that the rankings rank highest, by weighted reciprocal ranks."""
    votes: dict[int, dict[int, float]] = {}
    for each, weight in zip(rankings, weights, strict=False):
        for rank, (owner, chunk, _) in enumerate(each, 1):
            of_owner = votes.setdefault(owner, {})
            of_owner[chunk] = of_owner.get(chunk, 0.0) + weight / (RRF_K + rank)
    return {owner: max(chunks, key=chunks.__getitem__) for owner, chunks in votes.items()}
