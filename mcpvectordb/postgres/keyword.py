"""Keyword search in PostgreSQL, with the methods and the scores of those of a file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apsw

from mcpvectordb.index import Allowed, Ranked
from mcpvectordb.index.fulltext import MemoryFulltext
from mcpvectordb.index.keyword import TITLE_WEIGHT, KeywordIndex, KeywordMatch
from mcpvectordb.postgres import bm25
from mcpvectordb.postgres.bm25 import SearchScope, Select, WordTables
from mcpvectordb.postgres.chosen import chosen, searched
from mcpvectordb.postgres.expression import Expression, Phrase, parse
from mcpvectordb.postgres.words import Tokenizer
from mcpvectordb.storage.file import File
from mcpvectordb.text.bm25 import full_score
from mcpvectordb.text.query import Query

PASSAGES = WordTables(
    "document", "document_words", "document_terms", "document_chunks", "words", True
)
STEMS = WordTables("context", "context_words", "context_terms", "contexts", "words", False)
SPELLINGS = WordTables(
    "context", "context_spellings", "context_spelling_terms", "contexts", "spellings", False
)


class _Tokenizers(threading.local):
    """The tokenizers of a thread."""

    def __init__(self) -> None:
        self.stems, self.spellings = Tokenizer(), Tokenizer(stemmed=False)


_tokenizers = _Tokenizers()


class PostgresKeywordIndex(KeywordIndex):
    """The words of passages, or of whole memories."""

    def __init__(self, listed_rows: int, tables: WordTables = PASSAGES) -> None:
        self._tables, self._listed_rows = tables, listed_rows
        self._weight = TITLE_WEIGHT if tables == PASSAGES else 1

    def _parsed(self, expression: str) -> Expression:
        return _parsed(expression, stemmed=self._tables != SPELLINGS)

    def match(
        self, sql: apsw.Connection, query: Query, allowed: Allowed, limit: int
    ) -> KeywordMatch:
        """The best chunks for a query; a chunk need not have all of its terms."""
        without = f" NOT ({query.excluded})" if query.excluded else ""
        expression = self._parsed(f"({query.match}){without}")
        origins = searched(sql, allowed)
        scope = SearchScope.of(origins, chosen(sql, allowed, self._listed_rows))
        best, total, having = _ranked(
            sql,
            self._tables,
            expression,
            scope,
            self._weight,
            limit,
            newest=self._tables != PASSAGES,
        )
        frequencies = {
            name: having[self._parsed(name).phrases[0]]
            for name in dict.fromkeys((*query.phrases, *query.terms, *query.spellings))
        }

        def scores(ids: Sequence[int]) -> dict[int, float]:
            only = SearchScope(origins, Select("SELECT unnest(?::bigint[])", (list(ids),)))
            found, *_ = _ranked(sql, self._tables, expression, only, self._weight) if ids else ([],)
            return {**dict.fromkeys(ids, 0.0), **dict(found)}

        return KeywordMatch(best, scores, *full_score(query, total, frequencies))

    def preload(self, file: File, budget: int, stopped: Callable[[], bool]) -> None:
        """Nothing is kept here: the server has its own memory."""

    def frequency(self, sql: apsw.Connection, expression: str, most: int = -1) -> int:
        """The number of chunks that match, counted up to `most` (-1: all)."""
        found = bm25.matching(self._tables, _parsed(expression), searched(sql, Allowed()))
        limit = "" if most < 0 else f"LIMIT {most}"
        statement = f"SELECT count(*) FROM ({found.sql} {limit}) AS found"
        return int(sql.execute(statement, found.bindings).get)

    def each(
        self, sql: apsw.Connection, expression: str, weights: Sequence[float], owners: Allowed
    ) -> Iterator[tuple[int, int, float]]:
        """(owner, chunk, BM25) of all matching chunks of the allowed owners."""
        allowed = owners
        if owners.select:
            chunks = f"SELECT id FROM document_chunks WHERE owner IN ({owners.select})"
            allowed = Allowed(chunks, owners.bindings, origins=owners.origins)
        scope = SearchScope.of(searched(sql, owners), allowed)
        title = int(weights[0])
        found, *_ = _ranked(sql, self._tables, _parsed(expression), scope, title_weight=title)
        owner = dict(
            sql.execute(
                "SELECT id, owner FROM document_chunks WHERE id = ANY(?)",
                ([chunk for chunk, _ in found],),
            )
        )
        # In the order of their ids, as FTS5 returns them.
        yield from ((owner[chunk], chunk, score) for chunk, score in sorted(found))

    def owners(self, sql: apsw.Connection, expression: str, owners: Allowed) -> Iterator[int]:
        """The distinct ones of the allowed owners that have a matching chunk; nothing is scored."""
        found = bm25.matching(self._tables, _parsed(expression), searched(sql, owners))
        within = f"AND c.owner IN ({owners.select})" if owners.select else ""
        rows = sql.execute(
            f"SELECT DISTINCT c.owner FROM document_chunks c WHERE c.id IN ({found.sql}) {within}",
            (*found.bindings, *owners.bindings),
        )
        yield from (owner for (owner,) in rows)

    def narrowed(self, query: Query, allowed: Allowed) -> Allowed:
        """`allowed` without the chunks that quoted phrases and exclusions rule out."""
        for expression, operator in ((query.required, "IN"), (query.excluded, "NOT IN")):
            if expression:
                # Of all origins: the ids say which they are of.
                found = bm25.matching(self._tables, self._parsed(expression), None)
                rows = self._tables.rows
                select = allowed.select or f"SELECT id FROM {rows}"
                allowed = Allowed(
                    f"SELECT id FROM {rows} WHERE id IN ({select}) AND id {operator} ({found.sql})",
                    (*allowed.bindings, *found.bindings),
                    origins=allowed.origins,
                )
        return allowed


class PostgresMemoryFulltext(MemoryFulltext):
    """The words of whole memories, by their stems and as they are spelled."""

    def __init__(self, listed_rows: int) -> None:
        self.stems = PostgresKeywordIndex(listed_rows, STEMS)
        self.spellings = PostgresKeywordIndex(listed_rows, SPELLINGS)

    def match(
        self, sql: apsw.Connection, expression: str, stemmed: bool, allowed: Allowed, limit: int
    ) -> Ranked:
        """The best memories for an FTS5 expression by BM25; the newer of equal ones comes first."""
        tables = STEMS if stemmed else SPELLINGS
        scope = SearchScope.of(searched(sql, allowed), allowed)
        parsed = _parsed(expression, stemmed=stemmed)
        return _ranked(sql, tables, parsed, scope, 1, limit, newest=True)[0]


def _parsed(expression: str, *, stemmed: bool = True) -> Expression:
    tokenizer = _tokenizers.stems if stemmed else _tokenizers.spellings
    return parse(expression, tokenizer.terms)


def _ranked(
    sql: apsw.Connection,
    tables: WordTables,
    expression: Expression,
    scope: SearchScope,
    title_weight: int = TITLE_WEIGHT,
    limit: int | None = None,
    *,
    newest: bool = False,
) -> tuple[Ranked, int, dict[Phrase, int]]:
    """(id, score) of the best, the number of rows, and of how many have each phrase."""
    statement = bm25.scored(tables, expression, scope, title_weight, limit, newest=newest)
    rows: list[Any] = sql.execute(statement.sql, statement.bindings).fetchall()
    [(total, having)] = [(score, counts) for item, score, counts in rows if item is None]
    ranked = [(item, score) for item, score, _ in rows if item is not None]
    distinct = dict.fromkeys(expression.phrases)
    frequencies = dict(zip(distinct, map(int, having), strict=True))
    return ranked, int(total), frequencies
