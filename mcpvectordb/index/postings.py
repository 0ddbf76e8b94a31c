"""Words in memory: the BM25 of every row of an FTS5 table for a query, in a few milliseconds, for a
process that lives on.

FTS5 walks through all rows of every word whenever it is asked. Here it is asked once for each word:
which rows have it, and how often. The scores are FTS5's own. Rows are only ever added under new
ids, or removed, so what is kept follows the file by reading what is new. Nothing here is ever
written to the file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import apsw

from mcpvectordb.errors import Damaged
from mcpvectordb.index import Allowed, Ranked
from mcpvectordb.text.bm25 import K1, B, idf
from mcpvectordb.text.query import Query

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AVERAGES, STRUCTURE = 1, 10  # the rows of FTS5's own table that change whenever anything in it does
EVERY = slice(None)
ROUNDING = 0.01  # by which a count that follows from scores may be off, being whole
ROUGHLY = 1e-4  # of a score, by which single precision is surely less off
STRAND = 64  # rows of which only the best is looked at to tell how good the best of all are
# Of all rows: a term that more have is kept as one count for every row: faster and smaller.
COMMON = 1 / 16


@dataclass(frozen=True, slots=True)
class Matched:
    """The best rows for a query's words, as (id, BM25), best first; the BM25 of any others; and
    what was not done as asked.

    `reach` is the BM25 of an average row that has every term once.
    """

    best: Ranked
    scores: Callable[[Sequence[int]], dict[int, float]]
    note: str = ""
    reach: float | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """How often a term is in the rows at `places` (in all rows, where that is None); right up to
    the id `last`.
    """

    places: NDArray[np.int64] | None
    counts: NDArray[np.uint16]
    last: int

    @property
    def size(self) -> int:
        """How many bytes of memory this takes."""
        return self.counts.nbytes + (0 if self.places is None else self.places.nbytes)

    @property
    def having(self) -> NDArray[np.int64]:
        """The places of the rows that have the term."""
        import numpy as np

        return np.flatnonzero(self.counts) if self.places is None else self.places

    def stretched(self, rows: int) -> Term:
        """The same with a place for so many rows; those that came, but that this transaction does
        not see, have none of it.
        """
        import numpy as np

        if self.places is not None or len(self.counts) == rows:
            return self
        return Term(None, np.pad(self.counts, (0, rows - len(self.counts))), self.last)

    def present(self, rows: Rows) -> int:
        """How many rows that are still there have the term."""
        import numpy as np

        return rows.present_of(self.having) if rows.gone else int(np.count_nonzero(self.counts))

    def at(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """How often the term is in the rows at given places."""
        import numpy as np

        if self.places is None:
            return self.counts[places].astype(np.float64)
        found = np.searchsorted(self.places, places)
        found[found == len(self.places)] = 0
        return (
            np.where(self.places[found] == places, self.counts[found], 0.0)
            if len(self.places)
            else np.zeros(len(places))
        )


class Postings:
    """What a process keeps of the FTS5 table `table`, in at most `limit` bytes for the terms.

    A word in the column "title" counts as so many, a whole number, in the others.
    """

    def __init__(self, table: str, title_weight: int, limit: int) -> None:
        self._table, self._title_weight, self._limit = table, title_weight, limit
        self._lock = threading.Lock()
        self._asked = False
        self._terms: dict[str, Term] = {}
        self._state: list[bytes] = []
        self._rows: Rows | None = None

    def match(
        self, sql: apsw.Connection, query: Query, allowed: Allowed, limit: int
    ) -> Matched | None:
        """The best rows, of all or of the allowed ones; None when the file itself is to be asked.

        That is so for the first question, because a process that asks once is better served by the
        file; for quoted phrases, which few rows have; and in a transaction that writes, because
        what it wrote may be undone.
        """
        first, self._asked = not self._asked, True
        if (
            first
            or not self._limit
            or query.phrases
            or sql.txn_state("main") == apsw.SQLITE_TXN_WRITE
        ):
            return None
        with self._lock:
            rows = self._follow(sql)
            terms = {
                expression: self._term(sql, rows, expression)
                for expression in (*query.terms, *query.exclusions)
            }
        scored = Scored(
            rows, [terms[each] for each in query.terms], [terms[each] for each in query.exclusions]
        )
        return Matched(
            scored.best(allowed.ids(sql) if allowed.select else None, limit),
            scored.of,
            reach=scored.reach,
        )

    def drop(self) -> None:
        """Forget everything."""
        with self._lock:
            self._terms.clear()
            self._state, self._rows = [], None

    def _follow(self, sql: apsw.Connection) -> Rows:
        """The rows as this transaction sees them."""
        state = [
            block
            for (block,) in sql.execute(
                f"SELECT block FROM {self._table}_data WHERE id IN ({AVERAGES}, {STRUCTURE}) ORDER "
                f"BY id"
            )
        ]
        if self._rows is None or state != self._state:
            if _settings(state) != _settings(self._state):  # all rows were made anew
                self._terms.clear()
                self._rows = None
            count, tokens = counts(sql, self._table)
            rows = (self._rows or Rows.none()).followed(sql, self._table, count, tokens)
            if (
                rows is None
            ):  # this transaction began before what is known, and sees rows that are gone since
                self._terms.clear()
                rows = Rows.none().followed(sql, self._table, count, tokens)
            if rows is None:
                raise Damaged(f"{self._table} contradicts itself: run `mcpvectordb rebuild`")
            self._rows, self._state = rows, state
        return self._rows

    def _term(self, sql: apsw.Connection, rows: Rows, expression: str) -> Term:
        """A term's rows, as far as they are kept, and those that came since."""
        term = self._terms.pop(expression, None)
        if term is None or term.last < rows.last:
            term = self._read(sql, rows, expression, term)
            self._let_go(self._limit - term.size)
        self._terms[expression] = term = term.stretched(
            len(rows.ids)
        )  # as the one that was used last
        return term

    def _let_go(self, limit: int) -> None:
        """Forget the terms that were used least lately until the others take no more memory than
        this.
        """
        size = sum(each.size for each in self._terms.values())
        while self._terms and size > limit:
            size -= self._terms.pop(next(iter(self._terms))).size

    def _read(self, sql: apsw.Connection, rows: Rows, expression: str, known: Term | None) -> Term:
        """A term's rows and those that are known already."""
        import numpy as np

        token = None if known else _token(sql, expression)
        places, counts = (
            self._new(sql, rows, expression, known)
            if token is None
            else self._all(sql, rows, token)
        )
        if known and (np.abs(counts - np.rint(counts)) > ROUNDING).any():
            return self._read(
                sql, rows, expression, None
            )  # what is known is of another transaction, with other rows
        counts = np.rint(counts)
        if known:
            places, counts = (
                np.concatenate([known.having, places]),
                np.concatenate([known.counts[known.counts > 0], counts]),
            )
        whole = np.clip(counts, 1, 2**16 - 1).astype(np.uint16)
        if len(places) <= COMMON * len(rows.ids):
            return Term(places, whole, rows.last)
        everywhere = np.zeros(len(rows.ids), np.uint16)
        everywhere[places] = whole
        return Term(None, everywhere, rows.last)

    def _all(
        self, sql: apsw.Connection, rows: Rows, token: str
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Where a single token is and how often, by the list of all of its instances, which comes
        as two texts to be quick.
        """
        import numpy as np

        instances = f"temp.{self._table}_instances"
        sql.execute(
            f"CREATE VIRTUAL TABLE IF NOT EXISTS {instances} USING fts5vocab('main', "
            f"'{self._table}', 'instance')"
        )
        ids, weights = sql.execute(
            "SELECT group_concat(doc), group_concat(CASE col WHEN 'title' THEN "
            f"{self._title_weight} ELSE 1 END) FROM {instances} WHERE term = ?",
            (token,),
        ).get
        if ids is None:
            return np.empty(0, np.int64), np.empty(0)
        docs = np.fromstring(ids, np.int64, sep=",")
        first = np.flatnonzero(np.diff(docs, prepend=docs[0] - 1))
        counts = np.add.reduceat(np.fromstring(weights, np.float64, sep=","), first)
        there = np.isin(docs[first], rows.ids)
        return rows.places(docs[first][there]), counts[there]

    def _new(
        self, sql: apsw.Connection, rows: Rows, expression: str, known: Term | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Where a phrase or a beginning is (or where a term came to be since) and how often, as
        follows from FTS5's scores.
        """
        import numpy as np

        found = sql.execute(
            f"SELECT rowid, bm25({self._table}, {self._title_weight}) FROM {self._table} "
            f"WHERE {self._table} MATCH ? AND rowid > ?",
            (expression, known.last if known else 0),
        ).fetchall()
        pairs = np.fromiter(chain.from_iterable(found), np.float64, 2 * len(found)).reshape(-1, 2)
        places = rows.places(pairs[:, 0].astype(np.int64))
        if len(places) < len(found):
            raise Damaged(
                f"{self._table} has words of rows that it does not have: run `mcpvectordb rebuild`"
            )
        share = -pairs[:, 1] / idf(rows.count, (known.present(rows) if known else 0) + len(found))
        return places, share * rows.norms(places) / (K1 + 1 - share)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of an FTS5 table in the order of their ids; removed ones keep their places."""

    ids: NDArray[np.int64]
    lengths: NDArray[np.float64]
    present: NDArray[np.bool_]
    rough_norms: NDArray[np.float32]
    count: int
    last: int  # the highest id; another transaction may have seen, and left places for, higher ones
    average: float  # length

    @classmethod
    def none(cls) -> Rows:
        """Of an empty table."""
        import numpy as np

        return cls(
            np.empty(0, np.int64),
            np.empty(0),
            np.empty(0, bool),
            np.empty(0, np.float32),
            0,
            0,
            1.0,
        )

    @property
    def gone(self) -> int:
        """How many were removed."""
        return len(self.ids) - self.count

    def followed(self, sql: apsw.Connection, table: str, count: int, tokens: int) -> Rows | None:
        """These rows and newer ones, without what was removed; None when that does not make `count`
        rows.
        """
        import numpy as np

        known = int(self.ids[-1]) if len(self.ids) else 0
        last = sql.execute(f"SELECT max(id) FROM {table}_docsize").get or 0
        new = sql.execute(
            f"SELECT id, sz FROM {table}_docsize WHERE id > ? ORDER BY id", (known,)
        ).fetchall()
        ids = np.concatenate([self.ids, np.fromiter((id for id, _ in new), np.int64, len(new))])
        sizes = np.array([sum(_varints(size)) for _, size in new], np.float64)
        lengths = np.concatenate([self.lengths, sizes])
        present = np.concatenate([self.present, np.ones(len(new), bool)])
        if (
            np.count_nonzero(present) != count
            or self.last != known
            or last != (new[-1][0] if new else known)
        ):
            there = np.fromiter(
                (id for (id,) in sql.execute(f"SELECT id FROM {table}_docsize")), np.int64
            )
            present = np.isin(ids, there, assume_unique=True)
            if len(there) != count or np.count_nonzero(present) != count:
                return None
        average = tokens / count if tokens else 1.0
        return Rows(
            ids, lengths, present, _norms(lengths, average).astype(np.float32), count, last, average
        )

    def norms(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """What BM25 makes of the lengths of rows."""
        return _norms(self.lengths[places], self.average)

    def present_of(self, places: NDArray[np.int64]) -> int:
        """How many of the rows at some places are still there."""
        import numpy as np

        return int(np.count_nonzero(self.present[places]))

    def places(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where ids are; those that are nowhere are left out."""
        import numpy as np

        found = np.searchsorted(self.ids, ids)
        inside = found < len(self.ids)
        found, ids = found[inside], ids[inside]
        same: NDArray[np.int64] = found[self.ids[found] == ids]
        return same


class Scored:
    """The BM25 of rows for the terms of a query, repeated as there; none that has one of the
    `excluded`.
    """

    def __init__(self, rows: Rows, terms: Sequence[Term], excluded: Sequence[Term]) -> None:
        self._rows = rows
        worths = {id(term): idf(rows.count, term.present(rows)) for term in terms}
        self._terms = [(term, worths[id(term)]) for term in terms]
        self.reach = sum(worth for _, worth in self._terms)
        self._scores = self._roughly()
        for term in excluded:
            self._scores[term.having] = 0
        if rows.gone:
            self._scores[~rows.present] = 0

    def best(self, allowed: NDArray[np.int64] | None, limit: int) -> Ranked:
        """(id, score) of the highest scores above 0, of all rows or the allowed ones; of equals the
        older first.
        """
        import numpy as np

        scores = self._scores
        if allowed is not None:
            scores = np.zeros_like(scores)
            places = self._rows.places(allowed)
            scores[places] = self._scores[places]
        # Where so many strands have one that is as good, the last of the best is no worse.
        strands = (
            scores[: len(scores) // STRAND * STRAND].reshape(STRAND, -1).max(axis=0)
            if len(scores) >= STRAND
            else scores
        )
        least = np.partition(strands, -limit)[-limit] if 0 < limit < len(strands) else 0.0
        places = (
            np.flatnonzero(scores >= least * (1 - ROUGHLY)) if least else np.flatnonzero(scores)
        )
        exact = self._exactly(places)
        order = np.argsort(-exact, kind="stable")[:limit]
        return list(zip(self._rows.ids[places[order]].tolist(), exact[order].tolist(), strict=True))

    def of(self, ids: Sequence[int]) -> dict[int, float]:
        """The scores of ids; 0 for those that have no term, or are not there."""
        import numpy as np

        places = self._rows.places(np.array(ids, np.int64))
        places = places[self._scores[places] > 0]
        found = zip(self._rows.ids[places].tolist(), self._exactly(places).tolist(), strict=True)
        return {**dict.fromkeys(ids, 0.0), **dict(found)}

    def _roughly(self) -> NDArray[np.float32]:
        """The scores of all rows in single precision, which is twice as fast."""
        import numpy as np

        scores = np.zeros(len(self._rows.ids), np.float32)
        norms = self._rows.rough_norms
        for term, worth in self._terms:
            counts = term.counts.astype(np.float32)
            counts /= counts + (norms if term.places is None else norms[term.places])
            counts *= worth * (K1 + 1)
            scores[EVERY if term.places is None else term.places] += counts
        return scores

    def _exactly(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """The scores of some rows, reckoned step by step as FTS5 does, so that nobody can tell who
        did it.
        """
        import numpy as np

        norms = self._rows.norms(places)
        scores = np.zeros(len(places))
        for term, worth in self._terms:
            counts = term.at(places)
            scores += worth * (counts * (K1 + 1) / (counts + norms))
        return scores


def _token(sql: apsw.Connection, expression: str) -> str | None:
    """What FTS5 makes of an expression, if that is a single token."""
    if not expression.endswith('"'):
        return None
    tokenizer = sql.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])
    text = expression[1:-1].replace('""', '"').encode()
    found: list[Any] = list(tokenizer(text, apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False))
    return str(found[0][0]) if len(found) == 1 else None


def _norms(lengths: NDArray[np.float64], average: float) -> NDArray[np.float64]:
    return K1 * (1 - B + B * lengths / average)


def _settings(state: Sequence[bytes]) -> bytes:
    """How often FTS5's settings were changed, by the head of the table's structure."""
    return state[-1][:4] if state else b""


def counts(sql: apsw.Connection, table: str) -> tuple[int, int]:
    """How many rows and tokens an FTS5 table has, by its own account, which is at hand at once."""
    rows, *tokens = _varints(
        sql.execute(f"SELECT block FROM {table}_data WHERE id = {AVERAGES}").get or b""
    ) or [0]
    return rows, sum(tokens)


def _varints(data: Any) -> list[int]:
    """SQLite's numbers of seven bits a byte, the highest first."""
    values, value = [], 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            values.append(value)
            value = 0
    return values
