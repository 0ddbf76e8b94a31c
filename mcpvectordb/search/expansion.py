"""Pseudo-relevance feedback: expand a query by terms that its best results have in common.

Terms that are frequent in the best passages and rare elsewhere are added to the query (weighted by
tf · idf, as in Rocchio's method), and the mean of the passages' embeddings becomes a second query
embedding. No language model is involved.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import apsw

from mcpvectordb.index import arrays
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.models import QueryEmbedding
from mcpvectordb.storage import cache
from mcpvectordb.storage.cache import Cache
from mcpvectordb.text.query import Query, fts5_phrase
from mcpvectordb.text.stop_words import stop_words
from mcpvectordb.text.tokens import CJK, bigrams

TERMS = 10  # that are added to a query
CANDIDATES = 60  # most frequent words of the passages whose document frequency is looked up
FREQUENT = 2_000  # chunks up to which a word is counted: one in more of them is too common anyway

_WORD = r"[^\W_]{3,}|" + CJK.pattern  # compiled on use: few processes expand queries


@dataclass(frozen=True, slots=True)
class Expansion:
    """The query with its new terms, and the mean of the passages' embeddings if they have any."""

    query: Query
    query_embedding: QueryEmbedding | None


class QueryExpander:
    """Expands queries by passages of documents; the terms are cached."""

    def __init__(self, index: ChunkIndex, cache: Cache) -> None:
        self._index, self._cache = index, cache

    def expand(
        self,
        sql: apsw.Connection,
        query: Query,
        query_embedding: QueryEmbedding | str,
        passages: Sequence[int],
    ) -> Expansion:
        """The query, expanded by terms and embeddings of these passages."""
        texts = [each.text for each in self._index.passages(sql, passages)]
        key = cache.key("expansion", query.match, *texts)
        terms = self._cache.read([key]).get(key)
        if terms is None:
            terms = self._best_terms(sql, query, texts)
            self._cache.write({key: terms})
        mean = (
            self._means(sql, query_embedding, passages)
            if isinstance(query_embedding, QueryEmbedding)
            else None
        )
        return Expansion(_extended(query, terms), mean)

    def _best_terms(self, sql: apsw.Connection, query: Query, texts: Iterable[str]) -> list[str]:
        """The words with the highest tf · idf in the texts."""
        asked = set(re.findall(_WORD, query.match.casefold()))
        counts = Counter(word for text in texts for word in _words(text) if word not in asked)
        total = 1 + int(sql.execute("SELECT count(*) FROM document_chunks").get)
        weighed = [
            (
                count
                * math.log(
                    total / (1 + self._index.keyword.frequency(sql, fts5_phrase(word), FREQUENT))
                ),
                word,
            )
            for word, count in counts.most_common(CANDIDATES)
        ]
        return [
            word
            for weight, word in sorted(weighed, key=lambda pair: -pair[0])[:TERMS]
            if weight > 0
        ]

    def _means(
        self, sql: apsw.Connection, query_embedding: QueryEmbedding, passages: Sequence[int]
    ) -> QueryEmbedding | None:
        """The mean of the passages' embeddings, by each model that has embedded any of them."""
        own, fast = self._mean(sql, query_embedding, passages), query_embedding.provisional
        mean = self._mean(sql, fast, passages) if fast else None
        if own is None and mean is None:
            return None
        return replace(own or query_embedding, provisional=mean or fast)

    def _mean(
        self, sql: apsw.Connection, query_embedding: QueryEmbedding, passages: Sequence[int]
    ) -> QueryEmbedding | None:
        import numpy as np

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


def _words(text: str) -> Iterator[str]:
    words: list[str] = re.findall(_WORD, text.casefold())
    stops = stop_words(words)
    for word in words:
        if CJK.match(word):
            yield from bigrams(word)[:-1]
        elif word not in stops and not word.isdigit():
            yield word


def _extended(query: Query, words: Sequence[str]) -> Query:
    return replace(query, terms=(*query.terms, *filter(None, map(fts5_phrase, words))))
