"""Keyword search: BM25 by FTS5, or by postings that a process keeps in memory.

Both give the same ids, scores and order for the same query: every term counts, and every row that
has one is scored. Which of the two is used is a matter of cost only (`worth_loading`).

FTS5 walks through all rows of every term in every query. Postings are read from it once for each
term: which rows have it, and how often. They give the BM25 of every row for a query in about a
millisecond. They are brought up to date by reading rows that are new or were changed. The scores
are FTS5's own, to the last bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from mcpvectordb.errors import Damaged
from mcpvectordb.index.resident import (
    EVERYTHING,
    Allowed,
    Ranked,
    ResidentEntries,
    changes_since,
    log_rebuilt,
    newest_change,
)
from mcpvectordb.storage import fts5
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.file import File
from mcpvectordb.storage.lazy import np
from mcpvectordb.text.query import K1, B, Query, fts5_phrase, full_score, idf
from mcpvectordb.text.tokens import ENGLISH, index_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

TITLE_WEIGHT = 2  # an occurrence in the title counts as two in the text
# Words that at least this share of the rows have are worth reading before they are asked for: the
# postings of a rarer one are read in a fraction of the time of a search.
COMMON = 1 / 500
READ_TOGETHER = 64  # words that a transaction reads ahead
MANY = 1_000  # rows that a filter allows, above which they are not counted


@dataclass(frozen=True, slots=True)
class Occurrences:
    """How often rows have each term of a query (`counts`: a line for a term), and their lengths.

    `frequencies` says how many of the rows that may be found have each term, `rows` how many such
    rows there are; `average` is the average length of all rows.
    """

    counts: NDArray[np.float64]
    lengths: NDArray[np.float64]
    average: float
    frequencies: NDArray[np.float64]
    rows: int


def _no_occurrences(ids: NDArray[np.int64]) -> Occurrences:
    return Occurrences(np.zeros((0, len(ids))), np.zeros(len(ids)), 1.0, np.zeros(0), 0)


@dataclass(frozen=True, slots=True)
class KeywordMatch:
    """The best rows for a query as (id, BM25), and a function for the BM25 of any, by id.

    `full_score` is the BM25 of a row of average length that has every term once, and `code_share`
    the part of it, 0 to 1, that is due to codes that occur at all. `rows` is how many there are,
    where that is known; `occurrences` says how often some, whose ids ascend, have the terms.
    """

    best: Ranked
    scores: Callable[[NDArray[np.int64]], NDArray[np.float64]]
    full_score: float | None = None
    code_share: float = 0.0
    rows: int | None = None
    occurrences: Callable[[NDArray[np.int64]], Occurrences] = _no_occurrences


def by_id(ids: NDArray[np.int64], found: Iterable[tuple[int, float]]) -> NDArray[np.float64]:
    """The score of each id; 0 for those that were not found."""
    scores = dict(found)
    return np.array([scores.get(id, 0.0) for id in ids.tolist()], np.float64)


NO_MATCH = KeywordMatch([], lambda ids: np.zeros(len(ids)))


def few(sql: Sql, allowed: Allowed) -> int | None:
    """How many rows a filter allows, if these are less than MANY; otherwise None."""
    if not allowed.select:
        return None
    first = f"SELECT 1 FROM ({allowed.select}) AS ids LIMIT {MANY}"
    count = int(sql.execute(f"SELECT count(*) FROM ({first}) AS rows", allowed.bindings).get)
    return count if count < MANY else None


class WordTable(NamedTuple):
    """An FTS5 table, and the table that has its rows.

    weight   that of an occurrence in the first column
    newest   whether the later of two equal rows comes first
    log      the index under which changes of its rows are logged, if not its own name
    stemmed  whether its words are stems, or as they are spelled
    """

    name: str
    rows: str
    weight: int = TITLE_WEIGHT
    newest: bool = False
    log: str = ""
    stemmed: bool = True


class KeywordIndex:
    """The words of rows; works inside the caller's transaction.

    Without `memory` no postings are kept, and FTS5 scores.
    """

    def __init__(self, table: WordTable, memory: ResidentEntries | None = None) -> None:
        self._words, self._chunks = table.name, table.rows
        self._bm25 = f"bm25({table.name}, {table.weight})"
        self._ties = "DESC" if table.newest else "ASC"
        self._kept, self._memory = memory is not None, memory or ResidentEntries(0)
        self._tuning = self._memory.tuning
        self._postings = Postings(table, self._memory)

    def match(self, sql: Sql, query: Query, allowed: Allowed, limit: int) -> KeywordMatch:
        """The best chunks for a query; a chunk need not have all of its terms."""
        frequencies: dict[str, int] | None = None
        if query.phrases or not self._kept or sql.may_roll_back:
            # Postings have no positions for phrases. FTS5 writes its shadow tables, from which
            # postings are read, only when it commits.
            frequencies = self._frequencies(sql, query)
        elif not self._memory.worth_loading(self._words, 0, self._tuning.file_rows):
            frequencies = self._frequencies(sql, query)
            if sum(frequencies.values()) > self._tuning.file_rows:
                frequencies = None
        if frequencies is not None:
            total, _ = fts5.totals(sql, self._words)
            return KeywordMatch(
                self.best(sql, *self._matching(query), allowed, limit),
                lambda ids: self._scores_in_file(sql, query, ids),
                *full_score(query, total, frequencies),
                total,
                partial(self._occurrences_in_file, sql, query, allowed),
            )
        scorer = self._postings.score(sql, query, allowed)
        return KeywordMatch(
            scorer.best(limit),
            scorer.of,
            scorer.full_score,
            scorer.code_share,
            scorer.rows,
            scorer.occurrences,
        )

    def searched(self, sql: Sql, allowed: Allowed) -> int:
        """How many rows are searched: of a filter that leaves many, all of the table."""
        count = few(sql, allowed)
        return fts5.totals(sql, self._words)[0] if count is None else count

    def preload(self, file: File, budget: int, stopped: Callable[[], bool]) -> None:
        """Read postings of the commonest words into so many bytes of memory, until `stopped`.

        A question whose words are new to the process then reads those of rare words alone. Some
        words share a transaction, which costs as much as reading a word; questions are answered
        between any two words.
        """
        with file.reading(limited=False) as sql:
            self._memory.worth_loading(self._words, 0, 0)  # this process will ask more than once
            rows, _ = fts5.totals(sql, self._words)
            ignored = {fts5.single_token(sql, fts5_phrase(word), True) for word in ENGLISH}
            common = fts5.common_tokens(sql, self._words, max(1, int(COMMON * rows)))
        tokens = [token for token in common if token not in ignored]
        for start in range(0, len(tokens), READ_TOGETHER):
            with file.reading(limited=False) as sql:
                for token in tokens[start : start + READ_TOGETHER]:
                    if stopped() or budget <= 0:
                        return
                    budget -= self._postings.load(sql, token)

    def best(
        self, sql: Sql, matching: str, bindings: Sequence[str], allowed: Allowed, limit: int
    ) -> Ranked:
        """(id, BM25) of the best rows that fulfil a condition on the table, best first."""
        within, among = allowed.test("+rowid")
        rows = sql.execute(
            f"SELECT rowid, -{self._bm25} AS score FROM {self._words} "
            f"WHERE {matching} AND {within} ORDER BY score DESC, rowid {self._ties} LIMIT ?",
            (*bindings, *among, limit),
        )
        return list(rows)

    def _scores_in_file(
        self, sql: Sql, query: Query, ids: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The BM25 of the given chunks; 0 for those that share no word with the query."""
        # The plus sign keeps SQLite from running the whole MATCH again for every single id.
        matching, bindings = self._matching(query)
        rows = sql.execute(
            f"SELECT rowid, -{self._bm25} FROM {self._words} WHERE {matching} "
            "AND +rowid IN (SELECT value FROM json_each(?))",
            (*bindings, json.dumps(ids.tolist())),
        )
        return by_id(ids, rows)

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

    def _occurrences_in_file(
        self, sql: Sql, query: Query, allowed: Allowed, ids: NDArray[np.int64]
    ) -> Occurrences:
        """How often rows have the terms of a query; `ids` ascend."""
        rows, tokens = fts5.totals(sql, self._words)
        terms = (*query.phrases, *query.terms, *query.spellings)
        counts, lengths = np.zeros((len(terms), len(ids))), np.zeros(len(ids))
        for line, term in enumerate(terms):
            having, number = fts5.counts_in(sql, self._words, term, 1, ids.tolist())
            counts[line, ids.searchsorted(having)] = number
        known, sizes = fts5.lengths_of(sql, self._words, ids.tolist())
        lengths[ids.searchsorted(known)] = sizes
        within = {term: self.frequency(sql, term, within=allowed) for term in dict.fromkeys(terms)}
        count = f"SELECT count(*) FROM ({allowed.select})"
        return Occurrences(
            counts,
            lengths,
            tokens / rows if tokens else 1.0,
            np.array([within[term] for term in terms], float),
            sql.execute(count, allowed.bindings).get if allowed.select else rows,
        )

    def _frequencies(self, sql: Sql, query: Query) -> dict[str, int]:
        """The number of chunks that have each term and phrase of a query."""
        return {
            term: self.frequency(sql, term)
            for term in dict.fromkeys((*query.phrases, *query.terms, *query.spellings))
        }

    def has(self, sql: Sql, expression: str) -> bool:
        """Whether any row matches."""
        return self.frequency(sql, expression, 1) > 0

    def frequency(
        self, sql: Sql, expression: str, most: int = -1, within: Allowed = EVERYTHING
    ) -> int:
        """The number of chunks that match, counted up to `most` (-1: all)."""
        inside, among = within.test("+rowid")
        rows = f"SELECT 1 FROM {self._words} WHERE {self._words} MATCH ? AND {inside} LIMIT ?"
        bindings = (expression, *among, most)
        return int(sql.execute(f"SELECT count(*) FROM ({rows})", bindings).get)

    def each(
        self, sql: Sql, expression: str, weights: Sequence[float], owners: Allowed
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

    def owners(self, sql: Sql, expression: str, owners: Allowed) -> Iterator[int]:
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


# Postings.

ROWS = ""  # the key of an index's rows in memory; its other keys are tokens and expressions
MOST_TOKENS = 10_000  # expressions whose token is remembered
STRIDE = 64  # rows per column, of which only the best counts for the block-max bound
# A term in more than this share of the rows is kept as one count per row, which is smaller and
# faster than a list of places.
DENSE = 1 / 16


def find(ids: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each wanted id among some that ascend, -1 for one that is not among them."""
    if not len(ids):
        return np.full(wanted.shape, -1)
    first, last = ids[0], len(ids) - 1
    if ids[-1] - first == last:  # without a gap: quicker than to seek
        found = wanted - first
        return np.where((found >= 0) & (found <= last), found, -1)
    found = np.minimum(ids.searchsorted(wanted), last)
    return np.where(ids[found] == wanted, found, -1)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of an FTS5 table: a place for each, which is never used again.

    Deleted ones keep their places. One that was changed, or came in under a lower id than others,
    gets the next place; `order` then sorts the ids (None: they ascend), and of equal ones the last
    counts. Postings refer to places, so they fit only rows of the same `version`.
    """

    ids: NDArray[np.int64]
    order: NDArray[np.int64] | None
    lengths: NDArray[np.float64]
    present: NDArray[np.bool_]
    count: int
    average: float  # length
    seq: int
    version: int
    size: int  # in bytes of memory

    @property
    def last(self) -> int:
        """The highest id."""
        return int(self.ids[-1 if self.order is None else self.order[-1]]) if len(self.ids) else 0

    @property
    def deleted(self) -> int:
        """The number of places whose rows were deleted or changed."""
        return len(self.ids) - self.count

    def find(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place of each id, -1 for one that never had a row."""
        if self.order is None:
            return find(self.ids, ids)
        found = self.order[self.ids.searchsorted(ids, "right", self.order) - 1]
        return np.where(self.ids[found] == ids, found, -1)

    def places(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of ids; ids without a row are left out."""
        found = self.find(ids)
        there: NDArray[np.int64] = found[found >= 0]
        return there

    def mask(self, sql: Sql, allowed: Allowed) -> NDArray[np.bool_] | None:
        """Which places a filter allows; None for all."""
        if not allowed.select:
            return None
        mask = self.present.copy() if allowed.excluded else np.zeros(len(self.ids), bool)
        mask[self.places(allowed.ids(sql))] = not allowed.excluded
        return mask


@dataclass(frozen=True, slots=True)
class TermPostings:
    """How often a term is in the rows at `places` (None: everywhere), of the first `covered`.

    `scores` are the term's parts of the BM25 of these rows, made when a query first needs them, for
    `among` so many rows of this `average` length, of which `present` have the term.
    """

    places: NDArray[np.int32] | None
    counts: NDArray[np.uint16]
    rows: int  # that have it, deleted ones included
    covered: int
    version: int  # of the Rows that the places belong to
    size: int  # in bytes of memory, scores included
    scores: NDArray[np.float64]
    average: float = 0.0
    among: int = 0
    present: int = 0

    @property
    def having(self) -> NDArray[np.int32]:
        """The places of the rows that have the term."""
        if self.places is not None:
            return self.places
        return np.flatnonzero(self.counts).astype(np.int32)

    def scored(self, rows: Rows) -> TermPostings:
        """The same with its scores of rows, in FTS5's order of operations: they equal its own."""
        present = self.frequency(rows.present if rows.deleted else None)
        if (self.average, self.among, self.present) == (rows.average, rows.count, present):
            return self
        lengths = rows.lengths if self.places is None else rows.lengths[self.places]
        norms = K1 * (1 - B + B * lengths / rows.average)
        counts = self.counts.astype(np.float64)
        scores = idf(rows.count, present) * (counts * (K1 + 1) / (counts + norms))
        return replace(self, scores=scores, average=rows.average, among=rows.count, present=present)

    def frequency(self, among: NDArray[np.bool_] | None) -> int:
        """The number of rows that have the term, of all or of those in a mask."""
        return self.rows if among is None else int(np.count_nonzero(among[self.having]))

    def at(self, places: NDArray[np.int32]) -> NDArray[np.float64]:
        """How often the rows at these places have it."""
        if self.places is None:
            return self.counts[places].astype(np.float64)
        if not len(self.places):
            return np.zeros(len(places))
        found = np.minimum(self.places.searchsorted(places), len(self.places) - 1)
        return np.where(self.places[found] == places, self.counts[found], 0.0)


class Postings:
    """The postings of one FTS5 table."""

    def __init__(self, table: WordTable, memory: ResidentEntries) -> None:
        self._table, self._title_weight, self._memory = table.name, table.weight, memory
        self._newest, self._log = table.newest, table.log or table.name
        self._stemmed = table.stemmed
        self._tokens: dict[str, str | None] = {}

    def score(self, sql: Sql, query: Query, allowed: Allowed) -> Bm25Scorer:
        """The scorer of a query's terms, over the rows that this transaction sees."""
        asked = dict.fromkeys((*query.terms, *query.spellings, *query.exclusions))
        with self._memory.loading(self._table):
            seen = newest_change(sql), self._memory.get(self._table, ROWS)
            rows, memory = self._current(sql, *seen)
            terms = self._terms(sql, rows, list(asked), memory)
        return Bm25Scorer(rows, query, terms, rows.mask(sql, allowed), self._newest)

    def load(self, sql: Sql, token: str) -> int:
        """Have the postings of a token in memory before a query needs them; returns their size."""
        with self._memory.loading(self._table):
            seen = newest_change(sql), self._memory.get(self._table, ROWS)
            rows, memory = self._current(sql, *seen)
            known: TermPostings | None = memory.get(self._table, token)
            if known is None or known.version != rows.version:
                found = fts5.token_counts(sql, self._table, token, self._title_weight)
                known = self._made(rows, None, found).scored(rows)
                memory.put(self._table, token, known)
            return known.size

    def _current(self, sql: Sql, seq: int, rows: Rows | None) -> tuple[Rows, ResidentEntries]:
        """The rows as of change `seq`, and where to keep what is read: those in memory, brought up
        to date, or all read again.

        Equal numbers mean equal data. A transaction that began before the rows in memory were read
        sees other rows: it reads its own and keeps nothing. If the log no longer reaches back to
        `rows.seq`, or the table was rebuilt, anything may have changed: all entries are dropped.
        Otherwise `_followed` appends new rows and marks deleted ones, which keeps places and
        `version`, so the postings of terms stay valid and need only rows that they do not
        cover (`_terms`).
        """
        memory = self._memory
        if rows is not None and rows.seq == seq:
            return rows, memory
        if rows is not None and rows.seq > seq:
            rows, memory = None, ResidentEntries(0)
        changed = changes_since(sql, self._log, rows.seq) if rows is not None else None
        current = None
        if rows is not None and changed is not None:
            current = _followed(sql, self._table, rows, seq, changed)
        if current is None:
            memory.drop(self._table)
            none = _rows(np.empty(0, np.int64), np.empty(0), np.empty(0, bool), 0, seq, seq)
            current = _followed(sql, self._table, none, seq, ())
        if current is None:
            raise Damaged(f"{self._table} contradicts itself: run `mcpvectordb rebuild`")
        memory.put(self._table, ROWS, current)
        return current, memory

    def _terms(
        self, sql: Sql, rows: Rows, expressions: Sequence[str], memory: ResidentEntries
    ) -> dict[str, TermPostings]:
        """The postings of terms: those in memory, and those of rows that were added since.

        Words with one stem are one token, whose postings are read once. Tokenizing an expression is
        slower than to remember its token, which is None if it has several.
        """
        if len(self._tokens) > MOST_TOKENS:
            self._tokens.clear()
        for each in expressions:
            if each not in self._tokens:
                self._tokens[each] = fts5.single_token(sql, each, self._stemmed)
        keys = {each: self._tokens[each] or each for each in expressions}
        read: dict[str, tuple[TermPostings | None, fts5.Counts]] = {}
        kept: dict[Any, TermPostings] = memory.get_all(self._table, keys.values())
        terms = {key: known for key, known in kept.items() if known.version == rows.version}
        for each, key in keys.items():
            before = terms.get(key)
            if key in read or (before is not None and before.covered == len(rows.ids)):
                continue
            if before is None and self._tokens[each] is not None:
                found = fts5.token_counts(sql, self._table, key, self._title_weight)
            else:
                found = self._uncovered(sql, rows, each, before.covered if before else 0)
            read[key] = before, found
        terms |= {key: self._made(rows, *found) for key, found in read.items()}
        for key, term in terms.items():
            if (scored := term.scored(rows)) is not term:
                terms[key] = scored
                memory.put(self._table, key, scored)
        return {each: terms[key] for each, key in keys.items()}

    def _uncovered(self, sql: Sql, rows: Rows, expression: str, covered: int) -> fts5.Counts:
        """Which of the rows that are not among the first `covered` have a term, and how often."""
        new, last = rows.ids[covered:], int(rows.ids[:covered].max(initial=0))
        phrase = self._table, expression, self._title_weight
        if (new > last).all():
            return fts5.counts(sql, *phrase, last)
        return fts5.counts_in(sql, *phrase, np.unique(new).tolist())

    def _made(self, rows: Rows, known: TermPostings | None, found: fts5.Counts) -> TermPostings:
        """The postings of what was found, after those known before."""
        ids, counts = found
        places = rows.places(ids).astype(np.int32)
        if len(places) < len(ids):
            raise Damaged(
                f"{self._table} has words of rows that it does not have: run `mcpvectordb rebuild`"
            )
        whole = np.clip(counts, 1, 2**16 - 1).astype(np.uint16)
        if rows.order is not None:
            order = places.argsort()
            places, whole = places[order], whole[order]
        if known is not None:
            places = np.concatenate([known.having, places])
            whole = np.concatenate([known.counts[known.counts > 0], whole])
        having, covered, one = len(places), len(rows.ids), 14  # bytes of a place, count and score
        none = np.empty(0)
        if having <= DENSE * covered:
            size = one * having
            return TermPostings(places, whole, having, covered, rows.version, size, none)
        everywhere = np.zeros(covered, np.uint16)
        everywhere[places] = whole
        size = (one - places.itemsize) * covered
        return TermPostings(None, everywhere, having, covered, rows.version, size, none)


def _followed(sql: Sql, table: str, rows: Rows, seq: int, changed: Sequence[int]) -> Rows | None:
    """Rows brought up to date: newer ones are appended, deleted ones are marked as not present.

    New ids are higher than all earlier ones (AUTOINCREMENT), so the log need not be read row by
    row. Of lower ids that it names, the place is given up, and those that are still there are
    appended. FTS5's own row count shows whether others were deleted; only then all ids are read and
    compared. Returns None if the counts still contradict each other, or if more than half of the
    places are of deleted rows: then all rows are to be read again. The idea is that of a
    log-structured index: append, mark as deleted, and compact now and then.
    """
    last = rows.last
    count, tokens = fts5.totals(sql, table)
    again = [id for id in changed if id <= last]
    present = rows.present.copy()
    present[rows.places(np.array(again, np.int64))] = False
    added = [fts5.lengths_of(sql, table, again)] if again else []
    added.append(fts5.lengths(sql, table, last))
    ids = np.concatenate([rows.ids, *(new for new, _ in added)])
    lengths = np.concatenate([rows.lengths, *(each.astype(np.float64) for _, each in added)])
    present = np.concatenate([present, np.ones(len(ids) - len(present), bool)])
    if np.count_nonzero(present) != count:
        present &= np.isin(ids, fts5.ids(sql, table))
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
    order = None if (ids[1:] > ids[:-1]).all() else ids.argsort(kind="stable")
    size = 25 * len(ids)
    return Rows(ids, order, lengths, present, count, average, seq, version, size)


class Bm25Scorer:
    """Ranks rows by BM25 for the terms of a query; rows that have an excluded term score 0.

    The scores of the terms are added up for all rows. `allowed` is a mask of the rows that may be
    found, if not all; with `newest` the later of two equal rows comes first.
    """

    def __init__(
        self,
        rows: Rows,
        query: Query,
        postings: Mapping[str, TermPostings],
        allowed: NDArray[np.bool_] | None,
        newest: bool,
    ) -> None:
        self._rows, self.rows, self._newest = rows, rows.count, newest
        named = (*query.terms, *query.spellings)
        present = rows.present if rows.deleted else None
        self._found = allowed & rows.present if allowed is not None else present
        frequencies = {term: postings[term].present for term in named}
        self._terms = [postings[term] for term in named]
        self.full_score, self.code_share = full_score(query, rows.count, frequencies)
        self._scores = np.zeros(len(rows.ids))
        for each in self._terms:
            if each.places is None:
                self._scores += each.scores
            else:
                self._scores[each.places] += each.scores
        for term in query.exclusions:
            self._scores[postings[term].having] = 0
        if rows.deleted:
            self._scores[~rows.present] = 0

    def best(self, limit: int) -> Ranked:
        """(id, score) of the highest scores above 0.

        To find them without sorting, the rows are divided into columns of STRIDE rows each, and the
        best score of each column is taken. If `limit` columns have a best of at least t, then
        `limit` rows score at least t: t is a lower bound of the last score that is wanted. (The
        same idea as the block-max index of Ding and Suel, 2011.) Rows with equal scores come in the
        order of their ids.
        """
        scores = self._scores if self._found is None else self._scores * self._found
        columns = scores
        if len(scores) >= STRIDE:
            columns = scores[: len(scores) // STRIDE * STRIDE].reshape(STRIDE, -1).max(axis=0)
        bound = np.partition(columns, -limit)[-limit] if 0 < limit < len(columns) else 0.0
        places = np.flatnonzero(scores >= bound if bound else scores > 0)
        found, ids = scores[places], self._rows.ids[places]
        order = np.lexsort((-ids if self._newest else ids, -found))[:limit]
        return list(zip(ids[order].tolist(), found[order].tolist(), strict=True))

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """The scores of the given ids; 0 for those that have no term or do not exist."""
        places = self._rows.find(ids)
        return np.where(places >= 0, self._scores[places], 0.0)

    def occurrences(self, ids: NDArray[np.int64]) -> Occurrences:
        """How often rows have the terms; see `KeywordMatch`."""
        places, rows = self._rows.find(ids).astype(np.int32), self._rows
        there = np.flatnonzero(places >= 0)
        counts, lengths = np.zeros((len(self._terms), len(ids))), np.zeros(len(ids))
        for line, term in enumerate(self._terms):
            counts[line, there] = term.at(places[there])
        lengths[there] = rows.lengths[places[there]]
        return Occurrences(
            counts,
            lengths,
            rows.average,
            np.array([term.frequency(self._found) for term in self._terms], float),
            rows.count if self._found is None else int(np.count_nonzero(self._found)),
        )


# Whole memories.

STEMS, SPELLINGS = "context_words", "context_spellings"
TABLES = (STEMS, SPELLINGS)
MEMORIES = "contexts"  # the index under which changes of memories are logged


class MemoryFulltext:
    """Full-text index of memories; all methods run in the caller's transaction.

    A row's id is the memory's id. `texts` reads (id, text) of all memories, from their chunks.
    `stems` and `spellings` rank by any of a query's words; `match` by an expression. `memory` keeps
    what is known of memories in memory.
    """

    memory: ResidentEntries | None

    def __init__(
        self, texts: Callable[[Sql], Iterator[tuple[int, str]]], memory: ResidentEntries
    ) -> None:
        self._texts, self.memory = texts, memory
        self._deleters = [fts5.Deleter(table) for table in TABLES]
        self.stems, self.spellings = (
            KeywordIndex(
                WordTable(table, "contexts", 1, True, MEMORIES, stemmed=table == STEMS), memory
            )
            for table in TABLES
        )

    def put(self, sql: Sql, id: int, text: str) -> None:
        """Index a memory's text."""
        for table in TABLES:
            _put(sql, table, id, text)

    def remove(self, sql: Sql, id: int) -> None:
        """Remove a memory from the index."""
        for deleter in self._deleters:
            deleter.delete(sql, [id])

    def match(
        self, sql: Sql, expression: str, stemmed: bool, allowed: Allowed, limit: int
    ) -> Ranked:
        """The best memories for an FTS5 expression by BM25; the newer of equal ones comes first."""
        index, table = (self.stems, STEMS) if stemmed else (self.spellings, SPELLINGS)
        return index.best(sql, f"{table} MATCH ?", (expression,), allowed, limit)

    def optimize(self, sql: Sql) -> None:
        """Merge the FTS5 segments, which frees the space of removed rows."""
        for table in TABLES:
            fts5.optimize(sql, table)

    def rebuild(self, sql: Sql) -> None:
        """Index all memories again from their chunks."""
        for table in TABLES:
            fts5.clear(sql, table)
            self._fill(sql, table, sql)
        log_rebuilt(sql, MEMORIES)

    def problems(self, sql: Sql) -> Iterator[str]:
        """One message for each inconsistency of the two tables."""
        for table in TABLES:
            yield from fts5.tombstone_problems(sql, table)
            if not fts5.same_content(sql, table, partial(self._fill, sql, table)):
                yield f"{table}: the words in the index are not those of the contexts"

    def _fill(self, sql: Sql, table: str, target: Sql) -> None:
        for id, text in self._texts(sql):
            _put(target, table, id, text)


def _put(sql: Sql, table: str, id: int, text: str) -> None:
    sql.execute(f"INSERT INTO {table} (rowid, text) VALUES (?, ?)", (id, index_text(text)))
