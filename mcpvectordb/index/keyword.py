"""Chunks by their words: an FTS5 table, and what a process that lives on keeps of it in memory.

FTS5 costs so much for every row that has a word of the query. So that a question full of common
words costs no more in a large file than in a small one, only so many rows are scored: those of the
rarest words.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import apsw

from mcpvectordb.index import Allowed
from mcpvectordb.index.postings import Matched, Postings, counts
from mcpvectordb.text.bm25 import idf
from mcpvectordb.text.query import Query

TITLE_WEIGHT = 2  # a word in the title counts as two in the text
ROWS = 250_000  # that FTS5 may score for one question; some 125 ms
COUNTED = 2_000  # rows of a term that are counted to tell how rare it is


class KeywordIndex:
    """The FTS5 table `words` of the rows of `chunks`; all methods work inside the caller's
    transaction.
    """

    def __init__(self, words: str, chunks: str, resident_bytes: int) -> None:
        self._words, self._chunks = words, chunks
        self._bm25 = f"bm25({words}, {TITLE_WEIGHT})"
        self.postings = Postings(words, TITLE_WEIGHT, resident_bytes)

    def match(self, sql: apsw.Connection, query: Query, allowed: Allowed, limit: int) -> Matched:
        """The best chunks for a query, of which any term may be missing."""
        return self.postings.match(sql, query, allowed, limit) or replace(
            self._match(sql, query, allowed, limit), reach=self._reach(sql, query)
        )

    def _match(self, sql: apsw.Connection, query: Query, allowed: Allowed, limit: int) -> Matched:
        """What FTS5 finds within the budget of rows."""
        affordable = self._affordable(sql, query)
        if affordable.match:
            left_out = ", ".join(
                term for term in dict.fromkeys(query.terms) if term not in affordable.terms
            )
            note = (
                f"so many chunks have {left_out} that only the other words were looked for"
                if left_out
                else ""
            )
            return self._found(sql, affordable, allowed, limit, note)
        terms = tuple(dict.fromkeys(query.terms))
        note = f"so many chunks have {', '.join(terms)} that only some of them were looked at"
        together = self._found(sql, replace(query, terms=(), phrases=terms), allowed, limit, note)
        return (
            together
            if together.best
            else self._found(sql, replace(query, terms=terms[:1]), allowed, limit, note)
        )

    def _affordable(self, sql: apsw.Connection, query: Query) -> Query:
        """The query with its rarest terms, as many as the budget of rows allows."""
        if query.phrases:  # few chunks have them
            return query
        having = {term: self.frequency(sql, term, ROWS + 1) for term in dict.fromkeys(query.terms)}
        if sum(having.values()) <= ROWS:
            return query
        rarest = sorted(having, key=having.__getitem__)
        kept = {
            term
            for term, spent in zip(rarest, accumulate(map(having.__getitem__, rarest)), strict=True)
            if spent <= ROWS
        }
        return replace(query, terms=tuple(term for term in query.terms if term in kept))

    def _found(
        self, sql: apsw.Connection, query: Query, allowed: Allowed, limit: int, note: str
    ) -> Matched:
        within = f"AND +rowid IN ({allowed.select}) " if allowed.select else ""
        rows = sql.execute(
            f"SELECT * FROM (SELECT rowid, -{self._bm25} AS score FROM {self._words} WHERE "
            f"{self._words} MATCH ? {within}"
            f"LIMIT {ROWS}) ORDER BY score DESC, rowid LIMIT ?",
            (_expression(query), *allowed.bindings, limit),
        )
        return Matched(list(rows), lambda ids: self._scores(sql, query, ids), note)

    def _scores(self, sql: apsw.Connection, query: Query, ids: Sequence[int]) -> dict[int, float]:
        """The BM25 of given chunks; 0 for those that share no word with the query."""
        # The plus sign keeps FTS5 from starting the whole query anew for every single row.
        rows = sql.execute(
            f"SELECT rowid, -{self._bm25} FROM {self._words} WHERE {self._words} MATCH ? "
            "AND +rowid IN (SELECT value FROM json_each(?))",
            (_expression(query), json.dumps(ids)),
        )
        return {**dict.fromkeys(ids, 0.0), **dict(rows)}

    def each(
        self, sql: apsw.Connection, expression: str, weights: Sequence[float], owners: Allowed
    ) -> Iterator[tuple[int, int, float]]:
        """(owner, chunk, BM25) of all chunks of the allowed owners that match; `weights` are of
        title, headings, text.
        """
        within = f"AND c.owner IN ({owners.select})" if owners.select else ""
        rows = sql.execute(
            f"SELECT c.owner, c.id, -bm25({self._words}, {', '.join(map(str, weights))}) FROM "
            f"{self._words} CROSS JOIN {self._chunks} c ON c.id = {self._words}.rowid WHERE "
            f"{self._words} MATCH ? {within}",
            (expression, *owners.bindings),
        )
        yield from rows

    def owners(self, sql: apsw.Connection, expression: str) -> Iterator[int]:
        """The owners of all chunks that match, each once; nothing is scored."""
        rows = sql.execute(
            f"SELECT DISTINCT c.owner FROM {self._words} CROSS JOIN {self._chunks} c "
            f"ON c.id = {self._words}.rowid WHERE {self._words} MATCH ?",
            (expression,),
        )
        yield from (owner for (owner,) in rows)

    def frequency(self, sql: apsw.Connection, expression: str, most: int) -> int:
        """How many chunks match, counted up to `most`."""
        return int(
            sql.execute(
                f"SELECT count(*) FROM (SELECT 1 FROM {self._words} WHERE {self._words} MATCH ? "
                f"LIMIT ?)",
                (expression, most),
            ).get
        )

    def _reach(self, sql: apsw.Connection, query: Query) -> float:
        """The BM25 of a chunk of average length that has every term of a query once."""
        rows, _ = counts(sql, self._words)
        last = sql.execute(f"SELECT max(id) FROM {self._words}_docsize").get
        terms = Counter(
            [*query.phrases, *query.phrases, *query.terms]
        )  # as often as `match` has them
        return sum(
            times * idf(rows, self._having(sql, term, last)) for term, times in terms.items()
        )

    def _having(self, sql: apsw.Connection, term: str, last: int) -> float:
        """How many chunks have a term; of a common one, as many as it would be if the first were
        like the others.
        """
        count, reached = sql.execute(
            f"SELECT count(*), max(rowid) FROM (SELECT rowid FROM {self._words} "
            f"WHERE {self._words} MATCH ? LIMIT {COUNTED})",
            (term,),
        ).get
        return float(count if count < COUNTED else max(count, count * last / reached))

    def bound(self, query: Query, allowed: Allowed) -> Allowed:
        """`allowed` narrowed by a query's quoted phrases and exclusions, which bind results found
        by meaning too.
        """
        for expression, operator in ((query.required, "IN"), (query.excluded, "NOT IN")):
            if expression:
                select = allowed.select or f"SELECT id FROM {self._chunks}"
                allowed = Allowed(
                    f"SELECT id FROM {self._chunks} WHERE id IN ({select}) "
                    f"AND id {operator} (SELECT rowid FROM {self._words} WHERE {self._words} MATCH "
                    f"?)",
                    (*allowed.bindings, expression),
                )
        return allowed


def _expression(query: Query) -> str:
    return f"({query.match}) NOT ({query.excluded})" if query.excluded else query.match
