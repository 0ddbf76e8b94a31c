"""Keyword search in PostgreSQL, with the methods and the scores of that of a file.

FTS5's own tokenizer makes the tokens, so they are the same ones; `tests/core/postgres` compares
them with what an FTS5 table has. Queries come as expressions for FTS5, which are read back into
their phrases and operations, and BM25 is computed in SQL, from the same numbers as FTS5's.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import apsw
from apsw import fts5query

from mcpvectordb.index.keyword import (
    TITLE_WEIGHT,
    KeywordIndex,
    KeywordMatch,
    MemoryFulltext,
    Occurrences,
    by_id,
    few,
)
from mcpvectordb.index.resident import EVERYTHING, Allowed, Ranked
from mcpvectordb.postgres.connection import Session
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.file import File
from mcpvectordb.storage.fts5 import SPELLING, STEMMING
from mcpvectordb.storage.lazy import np
from mcpvectordb.text.query import K1, MIN_IDF, B, Query, full_score
from mcpvectordb.text.tokens import index_text

if TYPE_CHECKING:
    from numpy.typing import NDArray


class WordTables(NamedTuple):
    """The tables of an index of words.

    shelf    of which the totals are
    words    the postings; `terms` how many rows have each term
    rows     the rows themselves, whose `column` has their terms as text
    titled   whether the first part of it is a title
    """

    shelf: str
    words: str
    terms: str
    rows: str
    column: str = "words"
    titled: bool = False


PASSAGES = WordTables(
    "document", "document_words", "document_terms", "document_chunks", titled=True
)
STEMS = WordTables("context", "context_words", "context_terms", "contexts")
SPELLINGS = WordTables(
    "context", "context_spellings", "context_spelling_terms", "contexts", "spellings"
)


class PostgresKeywordIndex(KeywordIndex):
    """The words of passages, or of whole memories."""

    def __init__(self, listed_rows: int, tables: WordTables = PASSAGES) -> None:
        self._tables, self._listed_rows = tables, listed_rows
        self._weight = TITLE_WEIGHT if tables.titled else 1

    def match(self, sql: Sql, query: Query, allowed: Allowed, limit: int) -> KeywordMatch:
        """The best chunks for a query; a chunk need not have all of its terms."""
        without = f" NOT ({query.excluded})" if query.excluded else ""
        expression = self._parsed(f"({query.match}){without}")
        listed = chosen(sql, allowed, self._listed_rows)
        best, total, having = self._ranked(sql, expression, listed, limit)
        frequencies = {
            name: having[self._parsed(name).phrases[0]]
            for name in dict.fromkeys((*query.phrases, *query.terms, *query.spellings))
        }

        def scores(ids: NDArray[np.int64]) -> NDArray[np.float64]:
            only = Allowed(LISTED, (ids.tolist(),), origins=allowed.origins)
            return by_id(ids, self._ranked(sql, expression, only)[0] if len(ids) else [])

        return KeywordMatch(
            best,
            scores,
            *full_score(query, total, frequencies),
            occurrences=partial(self._occurrences, sql, query, allowed),
        )

    def searched(self, sql: Sql, allowed: Allowed) -> int:
        """How many rows are searched: of a filter that leaves many, all of its origins."""
        count = few(sql, chosen(sql, allowed, self._listed_rows))
        if count is not None:
            return count
        totals = f"SELECT items FROM ({_TOTALS}) AS all_rows"
        return int(sql.execute(totals, (self._tables.shelf, searched(sql, allowed))).get)

    def matching(self, sql: Sql, expression: str, allowed: Allowed, limit: int) -> Ranked:
        """The best rows for an FTS5 expression by BM25."""
        return self._ranked(sql, self._parsed(expression), allowed, limit)[0]

    def _occurrences(
        self, sql: Sql, query: Query, allowed: Allowed, ids: NDArray[np.int64]
    ) -> Occurrences:
        """How often rows have the terms of a query; `ids` ascend."""
        origins, listed = searched(sql, allowed), chosen(sql, allowed, self._listed_rows)
        terms = (*query.phrases, *query.terms, *query.spellings)
        places = {id: place for place, id in enumerate(ids.tolist())}
        counts, frequencies = np.zeros((len(terms), len(ids))), np.zeros(len(terms))
        for line, term in enumerate(terms):
            found = _rows(self._tables, self._parsed(term).phrase, origins, self._weight)
            for item, weight in sql.execute(
                f"SELECT item, weight FROM ({found.sql}) AS f WHERE item = ANY(?)",
                (*found.bindings, ids.tolist()),
            ):
                counts[line, places[item]] = weight
            frequencies[line] = self.frequency(sql, term, within=allowed)
        items, average = sql.execute(_TOTALS, (self._tables.shelf, origins)).get
        if listed.select:
            among = f"SELECT count(*) FROM ({listed.select}) AS chosen"
            items = sql.execute(among, listed.bindings).get
        lengths = dict(
            sql.execute(
                f"SELECT id, tokens FROM {self._tables.rows} WHERE id = ANY(?)", (ids.tolist(),)
            )
        )
        return Occurrences(
            counts,
            np.array([lengths.get(id, 0) for id in ids.tolist()], np.float64),
            average,
            frequencies,
            int(items),
        )

    def preload(self, file: File, budget: int, stopped: Callable[[], bool]) -> None:
        """Nothing is kept here: the server has its own memory."""

    def has(self, sql: Sql, expression: str) -> bool:
        """Whether any row matches."""
        return self.frequency(sql, expression, 1) > 0

    def frequency(
        self, sql: Sql, expression: str, most: int = -1, within: Allowed = EVERYTHING
    ) -> int:
        """The number of chunks that match, counted up to `most` (-1: all)."""
        found = matching(self._tables, self._parsed(expression), searched(sql, within))
        listed = chosen(sql, within, self._listed_rows)
        inside = f"WHERE item IN ({listed.select})" if listed.select else ""
        limit = "" if most < 0 else f"LIMIT {most}"
        rows = f"SELECT item FROM ({found.sql}) AS matching {inside} {limit}"
        statement = f"SELECT count(*) FROM ({rows}) AS found"
        return int(sql.execute(statement, (*found.bindings, *listed.bindings)).get)

    def each(
        self, sql: Sql, expression: str, weights: Sequence[float], owners: Allowed
    ) -> Iterator[tuple[int, int, float]]:
        """(owner, chunk, BM25) of all matching chunks of the allowed owners."""
        allowed = owners
        if owners.select:
            chunks = f"SELECT id FROM document_chunks WHERE owner IN ({owners.select})"
            allowed = Allowed(chunks, owners.bindings, origins=owners.origins)
        title = int(weights[0])
        found, *_ = self._ranked(sql, self._parsed(expression), allowed, title_weight=title)
        owner = dict(
            sql.execute(
                "SELECT id, owner FROM document_chunks WHERE id = ANY(?)",
                ([chunk for chunk, _ in found],),
            )
        )
        # In the order of their ids, as FTS5 returns them.
        yield from ((owner[chunk], chunk, score) for chunk, score in sorted(found))

    def owners(self, sql: Sql, expression: str, owners: Allowed) -> Iterator[int]:
        """The distinct ones of the allowed owners that have a matching chunk; nothing is scored."""
        found = matching(self._tables, self._parsed(expression), searched(sql, owners))
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
                found = matching(self._tables, self._parsed(expression), None)
                rows = self._tables.rows
                select = allowed.select or f"SELECT id FROM {rows}"
                allowed = Allowed(
                    f"SELECT id FROM {rows} WHERE id IN ({select}) AND id {operator} ({found.sql})",
                    (*allowed.bindings, *found.bindings),
                    origins=allowed.origins,
                )
        return allowed

    def _parsed(self, expression: str) -> Expression:
        stemmed = self._tables is not SPELLINGS
        return parse(expression, (_tokenizers.stems if stemmed else _tokenizers.spellings).terms)

    def _ranked(
        self,
        sql: Sql,
        expression: Expression,
        allowed: Allowed,
        limit: int | None = None,
        title_weight: int | None = None,
    ) -> tuple[Ranked, int, dict[Phrase, int]]:
        """(id, score) of the best, the number of rows, and of how many have each phrase."""
        # Of equal ones the newer memory comes first.
        order = f"ORDER BY score DESC, item{'' if self._tables.titled else ' DESC'} "
        if limit is not None:
            order += f"LIMIT {limit:d}"
        tables, origins = self._tables, searched(sql, allowed)
        weight = self._weight if title_weight is None else title_weight
        found = Select("s")
        if allowed.conditions and limit is not None:
            # Of many, the best are tested until there are enough.
            test = allowed_one(allowed, "ranked.item")
            source = f"(SELECT * FROM s {order.partition('LIMIT')[0]}) AS ranked WHERE {test.sql}"
            found, allowed = Select(source, test.bindings), Allowed(origins=allowed.origins)
        # The postings count an occurrence in a title twice.
        if expression.is_any_term and (not tables.titled or weight == 2):
            statement = _any_term(tables, expression, origins, allowed)
        else:
            statement = _any_expression(tables, expression, origins, allowed, weight)
        rows: list[Any] = sql.execute(
            f"{statement.sql} UNION ALL (SELECT item, score, NULL FROM {found.sql} {order})",
            (*statement.bindings, *found.bindings),
        ).fetchall()
        [(total, having)] = [(score, counts) for item, score, counts in rows if item is None]
        ranked = [(item, score) for item, score, _ in rows if item is not None]
        distinct = dict.fromkeys(expression.phrases)
        frequencies = dict(zip(distinct, map(int, having), strict=True))
        return ranked, int(total), frequencies


class PostgresMemoryFulltext(MemoryFulltext):
    """The words of whole memories, by their stems and as they are spelled."""

    memory = None

    def __init__(self, listed_rows: int) -> None:
        self.stems: PostgresKeywordIndex = PostgresKeywordIndex(listed_rows, STEMS)
        self.spellings: PostgresKeywordIndex = PostgresKeywordIndex(listed_rows, SPELLINGS)

    def match(
        self, sql: Sql, expression: str, stemmed: bool, allowed: Allowed, limit: int
    ) -> Ranked:
        """The best memories for an FTS5 expression by BM25; the newer of equal ones comes first."""
        return (self.stems if stemmed else self.spellings).matching(sql, expression, allowed, limit)


# --- what a search may find, looked up once for all of its statements
#
# A search would look up what a filter allows for each retriever, and for the count of rows by which
# it is decided how to search. So the ids are looked up once in a transaction, up to so many that
# comparing all of them is the way to search. Of more, what ranks first is tested one by one.

LISTED = "SELECT unnest(?::bigint[])"  # the select of ids that are known
TESTED = 0.1  # of the most that are listed, above which what ranks first by words is tested


def searched(sql: Sql, allowed: Allowed) -> list[int]:
    """The keys of the origins that are searched: those that a filter names, or all."""
    kept = cast(Session, sql).kept
    key = ("origins", allowed.origins)
    if key not in kept:
        named = list(allowed.origins)
        rows = sql.execute(
            "SELECT key FROM origins WHERE cardinality(?::text[]) = 0 OR name = ANY(?::text[]) "
            "ORDER BY key",
            (named, named),
        )
        kept[key] = [origin for (origin,) in rows]
    found: list[int] = kept[key]
    return found


def chosen(sql: Sql, allowed: Allowed, most: int, part: float = TESTED) -> Allowed:
    """The same ids as a list, if these are no more than `most`; otherwise `allowed` itself.

    What can be tested one by one is listed up to a `part` of that, and not even looked up if the
    planner expects more.
    """
    if not allowed.select:
        return allowed
    if allowed.conditions:
        most = int(most * part)
    kept = cast(Session, sql).kept
    key = (allowed.select, repr(allowed.bindings))
    listed, asked = kept.get(key, (None, -1))
    if listed is None and asked < most:
        expected = 0.0
        if allowed.conditions:
            plan = sql.execute(f"EXPLAIN (FORMAT JSON) {allowed.select}", allowed.bindings).get
            expected = json.loads(plan)[0]["Plan"]["Plan Rows"]
        if expected <= 0.8 * most:  # near the limit, a list of too many would be in vain
            rows: list[Any] = sql.execute(
                f"SELECT * FROM ({allowed.select}) AS chosen LIMIT {most + 1}", allowed.bindings
            ).fetchall()
            if len(rows) <= most:
                listed = Allowed(LISTED, ([id for (id,) in rows],), origins=allowed.origins)
        kept[key] = listed, most
    return listed or allowed


def allowed_one(allowed: Allowed, id: str) -> Select:
    """The condition that an id is allowed, by a look-up of this one alone."""
    # As EXISTS it might become a join, which reads all that are allowed.
    test = f"(SELECT TRUE FROM ({allowed.select}) AS one (id) WHERE one.id = {id})"
    return Select(test, allowed.bindings)


# --- the words of a text as FTS5 indexes them
#
# It takes 11 µs for a passage of 1,000 characters. Reading them from the index instead (fts5vocab)
# would give them term by term and not passage by passage.

LONGEST_TERM = 255  # bytes: a B-tree has room for 2,704 together with the other columns
KEPT_CHARACTERS = 50  # of a longer one, for searches by its beginning
FTS5_LONGEST = 32_768  # bytes of a token that FTS5 keeps


class Tokenizer:
    """FTS5's tokenizer for stems, or for words as they are spelled; for one thread."""

    def __init__(self, *, stemmed: bool = True) -> None:
        self._connection = apsw.Connection(":memory:")  # which the tokenizer lives in
        self._tokenize = self._connection.fts5_tokenizer(*(STEMMING if stemmed else SPELLING))

    def terms(self, text: str) -> list[str]:
        """The terms of a text that was prepared for the index, in their order."""
        tokens: Iterable[Any] = self._tokenize(
            text.encode(),
            apsw.FTS5_TOKENIZE_DOCUMENT,
            None,
            include_offsets=False,
            include_colocated=False,
        )
        return [each if len(each) < 64 else stored_term(each) for each in tokens]

    def words(self, columns: Sequence[str]) -> tuple[str, int]:
        """The terms of texts as one text, and how many there are.

        Each term stands between two spaces, and each column but the first after a line feed.
        """
        found = [self.terms(index_text(each)) for each in columns]
        return "\n".join(f" {' '.join(each)} " for each in found), sum(map(len, found))


def stored_term(token: str) -> str:
    """A token as it is stored: a very long one as its beginning and a hash."""
    raw = token.encode()[:FTS5_LONGEST]
    if len(raw) <= LONGEST_TERM:
        return token
    return f"{token[:KEPT_CHARACTERS]}~{hashlib.sha256(raw).hexdigest()[:32]}"


class _Tokenizers(threading.local):
    """The tokenizers of a thread."""

    def __init__(self) -> None:
        self.stems, self.spellings = Tokenizer(), Tokenizer(stemmed=False)


_tokenizers = _Tokenizers()


# --- FTS5 expressions, read back by apsw into what they are made of


class Phrase(NamedTuple):
    """Terms that follow each other; with `prefix` the last one is the beginning of a term."""

    terms: tuple[str, ...]
    prefix: bool = False


class Expression(NamedTuple):
    """A phrase, or an operation on other expressions."""

    operator: Literal["phrase", "OR", "AND", "NOT"]
    phrase: Phrase = Phrase(())
    parts: tuple[Expression, ...] = ()

    def leaves(
        self, above: tuple[Expression, ...] = ()
    ) -> Iterator[tuple[Phrase, tuple[Expression, ...]]]:
        """The phrases in their order, each with the operations that it is part of."""
        if self.operator == "phrase":
            yield self.phrase, above
        for part in self.parts:
            yield from part.leaves((*above, self))

    @property
    def phrases(self) -> list[Phrase]:
        """Its phrases; one that occurs twice is listed twice, as FTS5 scores it."""
        return [phrase for phrase, _ in self.leaves()]

    @property
    def is_any_term(self) -> bool:
        """Whether it is nothing but whole terms, any of which may match."""
        return (
            self.operator in ("phrase", "OR")
            and all(each.operator == "phrase" for each in self.parts)
            and all(len(phrase.terms) == 1 and not phrase.prefix for phrase in self.phrases)
        )


def parse(text: str, terms: Callable[[str], list[str]]) -> Expression:
    """Read an FTS5 expression; `terms` returns those of a text as they are indexed."""

    def made_of(node: Any) -> Expression:
        match node:
            case fts5query.PHRASE():
                return Expression("phrase", Phrase(tuple(terms(str(node.phrase))), node.prefix))
            case fts5query.NOT():
                return Expression("NOT", parts=(made_of(node.match), made_of(node.no_match)))
        operator: Literal["OR", "AND"] = "OR" if isinstance(node, fts5query.OR) else "AND"
        parts = map(made_of, node.queries)
        # Of several in a row, each stands beside those before it.
        flat = (each.parts if each.operator == operator else (each,) for each in parts)
        return Expression(operator, parts=tuple(itertools.chain.from_iterable(flat)))

    return made_of(fts5query.parse_query_string(text))


# --- BM25 in SQL: the statements that find and score the rows of an expression
#
# Scores are FTS5's: how often a phrase is in a row (more in a title), how long the row is, how many
# rows have the phrase, and how many rows there are of what average length. The statements are made
# of our own words and numbers; what users sent is bound.

LAST = chr(0x10FFFF)  # follows every character: a term that begins with p is below p + LAST


class Select(NamedTuple):
    """A statement, or a part of one, with its bindings."""

    sql: str
    bindings: tuple[Any, ...] = ()


def matching(tables: WordTables, expression: Expression, origins: Sequence[int] | None) -> Select:
    """The rows that an expression matches, as `item`; of all origins, if these are None."""
    if expression.operator == "phrase":
        found = _rows(tables, expression.phrase, origins, 1)
        return Select(f"SELECT item FROM ({found.sql}) AS found", found.bindings)
    parts = [matching(tables, part, origins) for part in expression.parts]
    joined = f" {_SETS[expression.operator]} ".join(f"({part.sql})" for part in parts)
    return Select(joined, tuple(value for part in parts for value in part.bindings))


# A sum of floating point numbers depends on their order, which PostgreSQL chooses: equal rows would
# not have equal scores. So whole numbers of this unit are added.
_UNITS = "1e15"
_SETS = {"OR": "UNION", "AND": "INTERSECT", "NOT": "EXCEPT"}
_TOTALS = (
    "SELECT coalesce(sum(items), 0)::float8 AS items, "
    "coalesce(sum(tokens)::float8 / nullif(sum(items), 0), 1) AS average "
    "FROM totals WHERE shelf = ? AND origin = ANY(?)"
)


def _idf(frequency: str) -> str:
    """FTS5's inverse document frequency; its logarithm has no argument of 0 or less."""
    return (
        f"greatest({MIN_IDF}, ln((greatest(0, n.items - {frequency}) + 0.5) / ({frequency} + 0.5)))"
    )


def _saturated(weight: str, tokens: str) -> str:
    return f"({weight} * {K1 + 1} / ({weight} + {K1} * ({1 - B} + {B} * {tokens} / n.average)))"


def _any_term(
    tables: WordTables, expression: Expression, origins: list[int], allowed: Allowed
) -> Select:
    """The scores `s` (item, score) of rows that have any of some terms, and what they depend on.

    That is a row without an item: as its score the number of all rows of the origins, and of how
    many have each term. The postings alone have all that a score needs.
    """
    within = f"AND w.item IN ({allowed.select}) " if allowed.select else ""
    statement = (
        f"WITH n AS MATERIALIZED ({_TOTALS}), t AS MATERIALIZED ("
        f"SELECT q.term, q.times, q.first, q.frequency, {_idf('q.frequency')} AS idf FROM n, ("
        "SELECT u.term, count(*) AS times, min(place) AS first, "
        f"(SELECT coalesce(sum(items), 0)::float8 FROM {tables.terms} f "
        "WHERE f.term = u.term AND f.origin = ANY(?)) AS frequency "
        "FROM unnest(?::text[]) WITH ORDINALITY AS u (term, place) GROUP BY u.term) AS q), "
        f"s AS (SELECT w.item, sum((t.times * t.idf * {_saturated('w.weight', 'w.tokens')} "
        f"* {_UNITS})::bigint)::float8 / {_UNITS} AS score "
        f"FROM n, t JOIN {tables.words} w ON w.term = t.term WHERE w.origin = ANY(?) {within}"
        "GROUP BY w.item) "
        "SELECT NULL::bigint AS item, n.items AS score, "
        "(SELECT array_agg(frequency ORDER BY first) FROM t) FROM n"
    )
    terms = [phrase.terms[0] for phrase in expression.phrases]
    bound = (tables.shelf, origins, origins, terms, origins, *allowed.bindings)
    return Select(statement, bound)


def _any_expression(
    tables: WordTables,
    expression: Expression,
    origins: list[int],
    allowed: Allowed,
    title_weight: int,
) -> Select:
    """The same of rows that any expression matches.

    How often each has each phrase stands in one column each. FTS5 counts a phrase in a row only if
    all operations that it is part of hold there.
    """
    distinct = list(dict.fromkeys(expression.phrases))
    found = [_rows(tables, phrase, origins, title_weight) for phrase in distinct]
    within = f"WHERE item IN ({allowed.select}) " if allowed.select else ""
    number = {phrase: at for at, phrase in enumerate(distinct)}
    ctes = ", ".join(f"p{at} AS MATERIALIZED ({each.sql})" for at, each in enumerate(found))
    counts = ", ".join(f"(SELECT count(*)::float8 FROM p{at}) AS f{at}" for at in range(len(found)))
    every = " UNION ALL ".join(
        f"SELECT {at} AS phrase, item, weight, tokens FROM p{at}" for at in range(len(found))
    )
    weights = ", ".join(
        f"max(weight) FILTER (WHERE phrase = {at}) AS w{at}" for at in range(len(found))
    )
    statement = (
        f"WITH n AS MATERIALIZED ({_TOTALS}), {ctes}, f AS MATERIALIZED (SELECT {counts}), "
        f"h AS (SELECT item, max(tokens) AS tokens, {weights} FROM ({every}) AS e {within}"
        f"GROUP BY item), s AS (SELECT item, {_score(expression, number)} AS score "
        f"FROM h, n, f WHERE {_holds(expression, number)}) "
        "SELECT NULL::bigint AS item, n.items AS score, "
        f"ARRAY[{', '.join(f'f.f{at}' for at in range(len(found)))}] FROM n, f"
    )
    bound = [value for each in found for value in each.bindings]
    return Select(statement, (tables.shelf, origins, *bound, *allowed.bindings))


def _score(expression: Expression, number: dict[Phrase, int]) -> str:
    """The sum over the phrases, in their order."""
    terms = []
    for phrase, above in expression.leaves():
        weight, frequency = f"h.w{number[phrase]}", f"f.f{number[phrase]}"
        held = [f"{weight} IS NOT NULL"]
        held += [_holds(node, number) for node in above if node.operator != "OR"]
        terms.append(
            f"CASE WHEN {' AND '.join(held)} THEN {_idf(frequency)} * "
            f"{_saturated(weight, 'h.tokens')} ELSE 0 END"
        )
    return " + ".join(terms)


def _holds(node: Expression, number: dict[Phrase, int]) -> str:
    if node.operator == "phrase":
        return f"h.w{number[node.phrase]} IS NOT NULL"
    parts = [_holds(part, number) for part in node.parts]
    if node.operator == "NOT":
        return f"({parts[0]} AND NOT ({' OR '.join(parts[1:])}))"
    return f"({f' {node.operator} '.join(parts)})"


def _rows(
    tables: WordTables, phrase: Phrase, origins: Sequence[int] | None, title_weight: int
) -> Select:
    """(item, weight, tokens) of the rows that have a phrase."""
    if not phrase.terms:
        return Select(f"SELECT item, weight, tokens FROM {tables.words} WHERE FALSE")
    if len(phrase.terms) > 1 or (tables.titled and title_weight > 2):
        return _by_text(tables, phrase, origins, title_weight)
    having = _having(phrase.terms[0], phrase.prefix, origins)
    if not phrase.prefix:
        select = f"SELECT item, weight, tokens FROM {tables.words} WHERE {having.sql}"
    else:
        select = (
            "SELECT item, sum(weight)::float8 AS weight, min(tokens) AS tokens "
            f"FROM {tables.words} WHERE {having.sql} GROUP BY item"
        )
    return Select(select, having.bindings)


def _by_text(
    tables: WordTables, phrase: Phrase, origins: Sequence[int] | None, title_weight: int
) -> Select:
    """The same, counted in the terms of the rows as text: postings have no positions."""
    terms = [_having(term, False, origins) for term in phrase.terms]
    if phrase.prefix:  # the other terms say enough, and a beginning may be that of many
        terms = terms[:-1] or [_having(phrase.terms[0], True, origins)]
    candidates = " INTERSECT ".join(
        f"(SELECT item FROM {tables.words} WHERE {each.sql})" for each in terms
    )
    text = f"r.{tables.column}"
    # It matches each beginning of the phrase, because occurrences may overlap.
    first, *others = (re.escape(term) for term in phrase.terms)
    rest = "".join(f" {term}" for term in others) + ("" if phrase.prefix else " ")
    pattern = f" {first}(?={rest})" if rest else f" {first}"
    weight, bound = f"regexp_count({text}, ?)", [pattern]
    if tables.titled and title_weight > 1:
        weight += f" + {title_weight - 1} * regexp_count(split_part({text}, E'\\n', 1), ?)"
        bound *= 2
    return Select(
        f"SELECT item, weight, tokens FROM (SELECT r.id AS item, {weight} AS weight, r.tokens "
        f"FROM {tables.rows} r WHERE r.id IN ({candidates})) AS counted WHERE weight > 0",
        (*bound, *(value for each in terms for value in each.bindings)),
    )


def _having(term: str, begins: bool, origins: Sequence[int] | None) -> Select:
    """The condition that a posting is of a term, or of one that begins so, and of origins."""
    test, bound = (
        ("term >= ? AND term < ?", (term, term + LAST)) if begins else ("term = ?", (term,))
    )
    if origins is None:
        return Select(test, bound)
    return Select(f"{test} AND origin = ANY(?)", (*bound, list(origins)))
