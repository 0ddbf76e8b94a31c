"""Keyword search over chunks: BM25 by FTS5, or by postings that a process keeps in memory.

Both give the same ids, scores and order for the same query: every term counts, and every row that
has one is scored. Which of the two is used is a matter of cost only (`worth_loading`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import apsw

from mcpvectordb.index import Allowed, Ranked
from mcpvectordb.index.postings import Postings
from mcpvectordb.index.resident import ResidentEntries, snapshot
from mcpvectordb.index.tuning import DEFAULT, Tuning
from mcpvectordb.storage import fts5
from mcpvectordb.storage.file import File
from mcpvectordb.text.bm25 import full_score
from mcpvectordb.text.query import Query, fts5_phrase
from mcpvectordb.text.stop_words import ENGLISH

TITLE_WEIGHT = 2  # an occurrence in the title counts as two in the text
# Words that at least this share of the rows have are worth reading before they are asked for: the
# postings of a rarer one are read in a fraction of the time of a search.
COMMON = 1 / 500


@dataclass(frozen=True, slots=True)
class KeywordMatch:
    """The best chunks for a query as (id, BM25), and a function for the BM25 of any others.

    `full_score` is the BM25 of a chunk of average length that has every term once, and `code_share`
    the part of it, 0 to 1, that is due to codes that occur at all.
    """

    best: Ranked
    scores: Callable[[Sequence[int]], dict[int, float]]
    full_score: float | None = None
    code_share: float = 0.0


NO_MATCH = KeywordMatch([], lambda ids: dict.fromkeys(ids, 0.0))


class KeywordIndex:
    """The FTS5 table `words` of the rows of `chunks`; works inside the caller's transaction.

    `weight` is that of its first column; with `newest` the later of two equal rows comes first.
    Without `memory` no postings are kept, and FTS5 scores.
    """

    def __init__(
        self,
        words: str,
        chunks: str,
        memory: ResidentEntries | None = None,
        tuning: Tuning = DEFAULT,
        weight: int = TITLE_WEIGHT,
        newest: bool = False,
    ) -> None:
        self._words, self._chunks, self._tuning = words, chunks, tuning
        self._bm25, self._ties = f"bm25({words}, {weight})", "DESC" if newest else "ASC"
        self._kept, self._memory = memory is not None, memory or ResidentEntries(0)
        self._postings = Postings(words, TITLE_WEIGHT, self._memory)

    def match(
        self, sql: apsw.Connection, query: Query, allowed: Allowed, limit: int
    ) -> KeywordMatch:
        """The best chunks for a query; a chunk need not have all of its terms."""
        frequencies: dict[str, int] | None = None
        if query.phrases or not self._kept or not snapshot(sql).committed:
            # Postings have no positions for phrases. FTS5 writes its shadow tables, from which
            # postings are read, only when it commits.
            frequencies = self._frequencies(sql, query)
        elif not self._memory.worth_loading(self._words, 0, self._tuning.file_rows):
            frequencies = self._frequencies(sql, query)
            if sum(frequencies.values()) > self._tuning.file_rows:
                frequencies = None
        if frequencies is not None:
            return self._match_in_file(sql, query, allowed, limit, frequencies)
        scorer = self._postings.score(sql, query)
        ids = allowed.ids(sql) if allowed.select else None
        return KeywordMatch(
            scorer.best(ids, limit), scorer.of, scorer.full_score, scorer.code_share
        )

    def preload(self, file: File, budget: int, stopped: Callable[[], bool]) -> None:
        """Read postings of the commonest words into so many bytes of memory, until `stopped`.

        A question whose words are new to the process then reads those of rare words alone. Each
        word is read in a transaction of its own, between which questions are answered.
        """
        with file.reading(limited=False) as sql:
            self._memory.worth_loading(self._words, 0, 0)  # this process will ask more than once
            rows, _ = fts5.totals(sql, self._words)
            ignored = {fts5.single_token(sql, fts5_phrase(word)) for word in ENGLISH}
            tokens = fts5.common_tokens(sql, self._words, max(1, int(COMMON * rows)))
        for token in tokens:
            if stopped() or budget <= 0:
                break
            if token not in ignored:
                with file.reading(limited=False) as sql:
                    budget -= self._postings.load(sql, token)

    def _match_in_file(
        self,
        sql: apsw.Connection,
        query: Query,
        allowed: Allowed,
        limit: int,
        frequencies: dict[str, int],
    ) -> KeywordMatch:
        within = f"AND +rowid IN ({allowed.select}) " if allowed.select else ""
        matching, bindings = self._matching(query)
        rows = sql.execute(
            f"SELECT rowid, -{self._bm25} AS score FROM {self._words} "
            f"WHERE {matching} {within}ORDER BY score DESC, rowid {self._ties} LIMIT ?",
            (*bindings, *allowed.bindings, limit),
        )
        total, _ = fts5.totals(sql, self._words)
        return KeywordMatch(
            list(rows),
            lambda ids: self._scores_in_file(sql, query, ids),
            *full_score(query, total, frequencies),
        )

    def _scores_in_file(
        self, sql: apsw.Connection, query: Query, ids: Sequence[int]
    ) -> dict[int, float]:
        """The BM25 of the given chunks; 0 for those that share no word with the query."""
        # The plus sign keeps SQLite from running the whole MATCH again for every single id.
        matching, bindings = self._matching(query)
        rows = sql.execute(
            f"SELECT rowid, -{self._bm25} FROM {self._words} WHERE {matching} "
            "AND +rowid IN (SELECT value FROM json_each(?))",
            (*bindings, json.dumps(list(ids))),
        )
        return {**dict.fromkeys(ids, 0.0), **dict(rows)}

    def _matching(self, query: Query) -> tuple[str, tuple[str, ...]]:
        """The SQL of the rows that a query matches, with its bindings.

        What it excludes is no part of the FTS5 expression: below a NOT, FTS5 leaves terms of an OR
        out of the scores of some rows.
        """
        matching = f"{self._words} MATCH ?"
        if not query.excluded:
            return matching, (query.match,)
        excluded = f"SELECT rowid FROM {self._words} WHERE {matching}"
        return f"{matching} AND +rowid NOT IN ({excluded})", (query.match, query.excluded)

    def _frequencies(self, sql: apsw.Connection, query: Query) -> dict[str, int]:
        """The number of chunks that have each term and phrase of a query."""
        return {
            term: self.frequency(sql, term)
            for term in dict.fromkeys((*query.phrases, *query.terms, *query.spellings))
        }

    def frequency(self, sql: apsw.Connection, expression: str, most: int = -1) -> int:
        """The number of chunks that match, counted up to `most` (-1: all)."""
        rows = f"SELECT 1 FROM {self._words} WHERE {self._words} MATCH ? LIMIT ?"
        return int(sql.execute(f"SELECT count(*) FROM ({rows})", (expression, most)).get)

    def each(
        self, sql: apsw.Connection, expression: str, weights: Sequence[float], owners: Allowed
    ) -> Iterator[tuple[int, int, float]]:
        """(owner, chunk, BM25) of all matching chunks of the allowed owners.

        `weights` are those of title, headings and text.
        """
        within = f"AND c.owner IN ({owners.select})" if owners.select else ""
        rows = sql.execute(
            f"SELECT c.owner, c.id, -bm25({self._words}, {', '.join(map(str, weights))}) "
            f"FROM {self._words} CROSS JOIN {self._chunks} c ON c.id = {self._words}.rowid "
            f"WHERE {self._words} MATCH ? {within}",
            (expression, *owners.bindings),
        )
        yield from rows

    def owners(self, sql: apsw.Connection, expression: str, owners: Allowed) -> Iterator[int]:
        """The distinct ones of the allowed owners that have a matching chunk; nothing is scored."""
        within = f"AND c.owner IN ({owners.select})" if owners.select else ""
        rows = sql.execute(
            f"SELECT DISTINCT c.owner FROM {self._words} CROSS JOIN {self._chunks} c "
            f"ON c.id = {self._words}.rowid WHERE {self._words} MATCH ? {within}",
            (expression, *owners.bindings),
        )
        yield from (owner for (owner,) in rows)

    def narrowed(self, query: Query, allowed: Allowed) -> Allowed:
        """`allowed` without the chunks that a query's quoted phrases and exclusions rule out.

        This restricts results of the vector search, too.
        """
        for expression, operator in ((query.required, "IN"), (query.excluded, "NOT IN")):
            if expression:
                select = allowed.select or f"SELECT id FROM {self._chunks}"
                allowed = Allowed(
                    f"SELECT id FROM {self._chunks} WHERE id IN ({select}) AND id {operator} "
                    f"(SELECT rowid FROM {self._words} WHERE {self._words} MATCH ?)",
                    (*allowed.bindings, expression),
                )
        return allowed
