"""What the first results of a search tell about what else to look for: words that stand out in
them, and a direction.

Feedback instead of a model that writes: who asks about rotating keys finds a page about
certificates, and learns from it to look for certificates too.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import apsw

from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.encoder import QueryEmbedding
from mcpvectordb.storage import cache
from mcpvectordb.storage.cache import Cache
from mcpvectordb.text.query import Query, fts5_phrase
from mcpvectordb.text.tokens import CJK, STOP_WORDS, bigrams

LEARNED = 10  # words
CANDIDATES = 60  # the most frequent words of the passages, whose rarity is looked up
FREQUENT = 2_000  # chunks; of a word that more have, it matters no more how many

_WORD = re.compile(r"[^\W_]{3,}|" + CJK.pattern)


@dataclass(frozen=True, slots=True)
class Expansion:
    """The query with the words that were learned, and the mean of the passages' embeddings, where
    they have any.
    """

    query: Query
    query_embedding: QueryEmbedding | None
    answer: dict[bytes, list[str]]  # to be remembered


class QueryExpander:
    """Learns from chunks of documents; the words are remembered."""

    def __init__(self, index: ChunkIndex, cache: Cache) -> None:
        self._index, self._cache = index, cache

    def learn(
        self,
        sql: apsw.Connection,
        query: Query,
        query_embedding: QueryEmbedding | str,
        passages: Sequence[int],
    ) -> Expansion:
        """What these passages say beyond the query."""
        texts = [text for _, _, _, text in self._index.passages(sql, passages)]
        key = cache.key("expansion", query.match, *texts)
        known = _words_in(self._cache.read([key]).get(key))
        strongest = self._strongest(sql, query, texts) if known is None else known
        mean = (
            self._mean(sql, query_embedding, passages)
            if isinstance(query_embedding, QueryEmbedding)
            else None
        )
        return Expansion(
            _extended(query, strongest), mean, {key: strongest} if known is None else {}
        )

    def remember(self, learned: Expansion) -> None:
        """Keep in the file what was learned; not inside of a transaction."""
        self._cache.write(learned.answer)

    def _strongest(self, sql: apsw.Connection, query: Query, texts: Iterable[str]) -> list[str]:
        """The words that are frequent in the texts and rare elsewhere."""
        asked = set(_WORD.findall(query.match.casefold()))
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
            for weight, word in sorted(weighed, key=lambda pair: -pair[0])[:LEARNED]
            if weight > 0
        ]

    def _mean(
        self, sql: apsw.Connection, query_embedding: QueryEmbedding, passages: Sequence[int]
    ) -> QueryEmbedding | None:
        import numpy as np

        rows = sql.execute(
            "SELECT embedding FROM document_embeddings WHERE model = ? AND chunk IN "
            "(SELECT value FROM json_each(?))",
            (query_embedding.model, json.dumps(list(passages))),
        )
        vectors = [np.frombuffer(embedding, np.float32) for (embedding,) in rows]
        return (
            replace(
                query_embedding, embedding=np.mean(vectors, axis=0).astype(np.float32).tobytes()
            )
            if vectors
            else None
        )


def _words(text: str) -> Iterator[str]:
    for word in _WORD.findall(text.casefold()):
        if CJK.match(word):
            yield from bigrams(word)[:-1]
        elif word not in STOP_WORDS and not word.isdigit():
            yield word


def _extended(query: Query, learned: Sequence[str]) -> Query:
    return replace(query, terms=(*query.terms, *filter(None, map(fts5_phrase, learned))))


def _words_in(value: object) -> list[str] | None:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else None
