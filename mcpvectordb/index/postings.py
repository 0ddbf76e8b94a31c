"""Postings in memory: the BM25 of every chunk for a query in about a millisecond.

FTS5 walks through all rows of every term in every query. Here each term is read from it once: which
rows have it, and how often. Rows are only ever added under higher ids, or deleted, so postings are
brought up to date by reading newer rows. The scores are FTS5's own, to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import apsw

from mcpvectordb.errors import Damaged
from mcpvectordb.index import Ranked, changes
from mcpvectordb.index.resident import ResidentEntries, snapshot
from mcpvectordb.storage import deadline, fts5
from mcpvectordb.storage.lazy import np
from mcpvectordb.text.bm25 import K1, B, full_score, idf
from mcpvectordb.text.query import Query

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = ""  # the key of an index's rows in memory; its other keys are tokens and expressions
MOST_TOKENS = 10_000  # expressions whose token is remembered
SINGLE_PRECISION = 1e-4  # relative: above the rounding error of a score in float32
STRIDE = 64  # rows per column, of which only the best counts for the block-max bound
# A term in more than this share of the rows is kept as one count per row, which is smaller and
# faster than a list of places.
DENSE = 1 / 16


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of an FTS5 table in the order of their ids; deleted ones keep their places.

    Postings refer to places, so they fit only rows of the same `version`.
    """

    ids: NDArray[np.int64]
    lengths: NDArray[np.float64]
    present: NDArray[np.bool_]
    rough_norms: NDArray[np.float32]
    count: int
    average: float  # length
    seq: int
    version: int

    @property
    def size(self) -> int:
        """How many bytes of memory this takes."""
        return 21 * len(self.ids)

    @property
    def last(self) -> int:
        """The highest id."""
        return int(self.ids[-1]) if len(self.ids) else 0

    @property
    def deleted(self) -> int:
        """The number of rows that were deleted since these were read."""
        return len(self.ids) - self.count

    def norms(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """BM25's length normalization of the rows at the given places."""
        return _norms(self.lengths[places], self.average)

    def places(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of ids; ids without a row are left out."""
        found = np.searchsorted(self.ids, ids)
        inside = found < len(self.ids)
        found, ids = found[inside], ids[inside]
        same: NDArray[np.int64] = found[self.ids[found] == ids]
        return same


@dataclass(frozen=True, slots=True)
class TermPostings:
    """How often a term is in the rows at `places` (None: in every row), of rows up to id `last`."""

    places: NDArray[np.int32] | None
    counts: NDArray[np.uint16]
    last: int
    version: int  # of the Rows that the places belong to

    @property
    def size(self) -> int:
        """How many bytes of memory this takes."""
        return self.counts.nbytes + (0 if self.places is None else self.places.nbytes)

    @property
    def having(self) -> NDArray[np.int32]:
        """The places of the rows that have the term."""
        if self.places is not None:
            return self.places
        return np.flatnonzero(self.counts).astype(np.int32)

    def frequency(self, rows: Rows) -> int:
        """The number of existing rows that have the term."""
        if rows.deleted:
            return int(np.count_nonzero(rows.present[self.having]))
        return int(np.count_nonzero(self.counts))

    def counts_at(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """How often the term is in the rows at the given places."""
        if self.places is None:
            return self.counts[places].astype(np.float64)
        if not len(self.places):
            return np.zeros(len(places))
        found = np.minimum(np.searchsorted(self.places, places), len(self.places) - 1)
        return np.where(self.places[found] == places, self.counts[found], 0.0)


class Postings:
    """The postings of one FTS5 table; an occurrence in the column `title` counts `title_weight`."""

    def __init__(self, table: str, title_weight: int, memory: ResidentEntries) -> None:
        self._table, self._title_weight, self._memory = table, title_weight, memory
        self._tokens: dict[str, str | None] = {}

    def score(self, sql: apsw.Connection, query: Query) -> Bm25Scorer:
        """The scorer of a query's terms, over the rows that this transaction sees."""
        with self._memory.loading(self._table):
            rows, memory = self._seen_rows(sql)
            terms = {}
            for each in dict.fromkeys((*query.terms, *query.spellings, *query.exclusions)):
                deadline.check("reading the rows of the query's words")
                terms[each] = self._term(sql, rows, each, memory)
        return Bm25Scorer(rows, query, terms)

    def load(self, sql: apsw.Connection, token: str) -> int:
        """Have the postings of a token in memory before a query needs them; returns their size."""
        with self._memory.loading(self._table):
            rows, memory = self._seen_rows(sql)
            known: TermPostings | None = memory.get(self._table, token)
            if known is None or known.version != rows.version:
                found = fts5.token_counts(sql, self._table, token, self._title_weight)
                known = self._keep(rows, token, None, found, memory)
            return known.size

    def _seen_rows(self, sql: apsw.Connection) -> tuple[Rows, ResidentEntries]:
        """The rows that this transaction sees, and where to keep what it reads.

        A transaction that began before the rows in memory were read sees other rows: it reads its
        own and keeps nothing.
        """
        now, rows = snapshot(sql), self._memory.get(self._table, ROWS)
        kept = rows is None or rows.seq <= now.seq
        memory = self._memory if kept else ResidentEntries(0)
        return self._current(sql, rows if kept else None, now.seq, memory), memory

    def _current(
        self, sql: apsw.Connection, rows: Rows | None, seq: int, memory: ResidentEntries
    ) -> Rows:
        """The rows as of change `seq`: those in memory, brought up to date, or all read again.

        Equal numbers mean equal data. If the log no longer reaches back to `rows.seq`, or the table
        was rebuilt, anything may have changed: all entries are dropped. Otherwise `_followed`
        appends new rows and marks deleted ones, which keeps places and `version`, so the postings
        of terms stay valid and need only rows above their own `last` (`_term`).
        """
        if rows is not None and rows.seq == seq:
            return rows
        if rows is not None and changes.since(sql, self._table, rows.seq) is None:
            memory.drop(self._table)
            rows = None
        current = _followed(sql, self._table, rows, seq) if rows is not None else None
        current = current or _read(sql, self._table, seq)
        memory.put(self._table, ROWS, current)
        return current

    def _term(
        self, sql: apsw.Connection, rows: Rows, expression: str, memory: ResidentEntries
    ) -> TermPostings:
        """The postings of a term: those in memory, and those of rows that were added since.

        Words with one stem are one token, whose postings are read once.
        """
        token = self._token(sql, expression)
        key = expression if token is None else token
        known: TermPostings | None = memory.get(self._table, key)
        if known is not None and known.version != rows.version:
            known = None
        if known is not None and known.last == rows.last:
            return known
        if known is None and token is not None:
            found = fts5.token_counts(sql, self._table, token, self._title_weight)
        else:
            after = known.last if known else 0
            found = fts5.counts(sql, self._table, expression, self._title_weight, after)
        return self._keep(rows, key, known, found, memory)

    def _token(self, sql: apsw.Connection, expression: str) -> str | None:
        """The token of an expression, None if it has several; tokenizing is slower than this."""
        if expression not in self._tokens:
            if len(self._tokens) >= MOST_TOKENS:
                self._tokens.clear()
            self._tokens[expression] = fts5.single_token(sql, expression)
        return self._tokens[expression]

    def _keep(
        self,
        rows: Rows,
        key: str,
        known: TermPostings | None,
        found: fts5.Counts,
        memory: ResidentEntries,
    ) -> TermPostings:
        """Make postings of what was found and of those known before, and keep them in memory."""
        ids, counts = found
        places = rows.places(ids).astype(np.int32)
        if len(places) < len(ids):
            raise Damaged(
                f"{self._table} has words of rows that it does not have: run `mcpvectordb rebuild`"
            )
        whole = np.clip(counts, 1, 2**16 - 1).astype(np.uint16)
        if known is not None:
            places = np.concatenate([known.having, places])
            whole = np.concatenate([known.counts[known.counts > 0], whole])
        term = _packed(places, whole, rows)
        memory.put(self._table, key, term)
        return term


def _read(sql: apsw.Connection, table: str, seq: int) -> Rows:
    """All rows of a table."""
    count, tokens = fts5.totals(sql, table)
    ids, lengths = fts5.lengths(sql, table)
    if len(ids) != count:
        raise Damaged(f"{table} contradicts itself: run `mcpvectordb rebuild`")
    return _rows(ids, lengths.astype(np.float64), np.ones(len(ids), bool), tokens, seq, seq)


def _followed(sql: apsw.Connection, table: str, rows: Rows, seq: int) -> Rows | None:
    """Rows brought up to date: newer ones are appended, deleted ones are marked as not present.

    New ids are higher than all earlier ones (AUTOINCREMENT), so appending keeps the order, and the
    log need not be read row by row. FTS5's own row count shows whether any were deleted; only then
    all ids are read and compared. Returns None if the counts still contradict each other, or if
    more than half of the places are of deleted rows: then all rows are to be read again. The idea
    is that of a log-structured index: append, mark as deleted, and compact now and then.
    """
    count, tokens = fts5.totals(sql, table)
    new, new_lengths = fts5.lengths(sql, table, rows.last)
    ids = np.concatenate([rows.ids, new])
    lengths = np.concatenate([rows.lengths, new_lengths.astype(np.float64)])
    present = np.concatenate([rows.present, np.ones(len(new), bool)])
    if np.count_nonzero(present) != count:
        present = np.isin(ids, fts5.ids(sql, table), assume_unique=True)
    if np.count_nonzero(present) != count or 2 * count < len(ids):
        return None
    return _rows(ids, lengths, present, tokens, seq, rows.version)


def _rows(
    ids: NDArray[np.int64],
    lengths: NDArray[np.float64],
    present: NDArray[np.bool_],
    tokens: int,
    seq: int,
    version: int,
) -> Rows:
    count = int(np.count_nonzero(present))
    average = tokens / count if tokens else 1.0
    norms = _norms(lengths, average).astype(np.float32)
    return Rows(ids, lengths, present, norms, count, average, seq, version)


def _norms(lengths: NDArray[np.float64], average: float) -> NDArray[np.float64]:
    return K1 * (1 - B + B * lengths / average)


def _packed(places: NDArray[np.int32], counts: NDArray[np.uint16], rows: Rows) -> TermPostings:
    """Postings in the smaller form: a list of places, or for a common term one count per row."""
    if len(places) <= DENSE * len(rows.ids):
        return TermPostings(places, counts, rows.last, rows.version)
    everywhere = np.zeros(len(rows.ids), np.uint16)
    everywhere[places] = counts
    return TermPostings(None, everywhere, rows.last, rows.version)


class Bm25Scorer:
    """Ranks rows by BM25 for the terms of a query; rows that have an excluded term score 0.

    Scores are first computed for all rows in single precision, which is twice as fast, and then
    exactly for the rows that can be among the best.
    """

    def __init__(self, rows: Rows, query: Query, postings: Mapping[str, TermPostings]) -> None:
        self._rows = rows
        named = (*query.terms, *query.spellings)
        frequencies = {term: postings[term].frequency(rows) for term in dict.fromkeys(named)}
        self._terms = [(postings[term], idf(rows.count, frequencies[term])) for term in named]
        self.full_score, self.code_share = full_score(query, rows.count, frequencies)
        self._scores = self._rough_scores()
        for term in query.exclusions:
            self._scores[postings[term].having] = 0
        if rows.deleted:
            self._scores[~rows.present] = 0

    def best(self, allowed: NDArray[np.int64] | None, limit: int) -> Ranked:
        """(id, score) of the highest scores above 0, of all rows or of the allowed ids.

        To find them without sorting, the rows are divided into columns of STRIDE rows each, and the
        best score of each column is taken. If `limit` columns have a best of at least t, then
        `limit` rows score at least t: t is a lower bound of the last score that is wanted. (The
        same idea as the block-max index of Ding and Suel, 2011.) Only rows above that bound, less
        the error of single precision, are scored exactly. Rows with equal scores come in the order
        of their ids.
        """
        scores = self._scores
        if allowed is not None:
            scores = np.zeros_like(scores)
            places = self._rows.places(allowed)
            scores[places] = self._scores[places]
        columns = scores
        if len(scores) >= STRIDE:
            columns = scores[: len(scores) // STRIDE * STRIDE].reshape(STRIDE, -1).max(axis=0)
        bound = np.partition(columns, -limit)[-limit] if 0 < limit < len(columns) else 0.0
        above = scores >= bound * (1 - SINGLE_PRECISION) if bound else scores > 0
        places = np.flatnonzero(above)
        exact = self._exact_scores(places)
        order = np.argsort(-exact, kind="stable")[:limit]
        ids = self._rows.ids[places[order]]
        return list(zip(ids.tolist(), exact[order].tolist(), strict=True))

    def of(self, ids: Sequence[int]) -> dict[int, float]:
        """The scores of the given ids; 0 for those that have no term or do not exist."""
        places = self._rows.places(np.unique(np.array(ids, np.int64)))
        places = places[self._scores[places] > 0]
        scores = self._exact_scores(places).tolist()
        return {
            **dict.fromkeys(ids, 0.0),
            **dict(zip(self._rows.ids[places].tolist(), scores, strict=True)),
        }

    def _rough_scores(self) -> NDArray[np.float32]:
        scores = np.zeros(len(self._rows.ids), np.float32)
        norms = self._rows.rough_norms
        for term, weight in self._terms:
            places = slice(len(term.counts)) if term.places is None else term.places
            counts = term.counts.astype(np.float32)
            counts /= counts + norms[places]
            counts *= weight * (K1 + 1)
            scores[places] += counts
        return scores

    def _exact_scores(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """The scores of some rows, in FTS5's order of operations, so that they equal its own."""
        norms = self._rows.norms(places)
        scores = np.zeros(len(places))
        for term, weight in self._terms:
            counts = term.counts_at(places)
            scores += weight * (counts * (K1 + 1) / (counts + norms))
        return scores
