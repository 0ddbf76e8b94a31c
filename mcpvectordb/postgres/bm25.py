"""BM25 in SQL: the statements that find and score the rows of an expression.

Scores are FTS5's, from the same numbers: how often a phrase is in a row (more in a title), how long
the row is, how many rows have the phrase, and how many rows there are of what average length. The
statements are made of our own words and numbers; what users sent is bound.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from mcpvectordb.index import Allowed
from mcpvectordb.postgres.expression import Expression, Node, Phrase
from mcpvectordb.text.bm25 import K1, MIN_IDF, B

LAST = chr(0x10FFFF)  # follows every character: a term that begins with p is below p + LAST


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
    column: str
    titled: bool


class Select(NamedTuple):
    """A statement, or a part of one, with its bindings."""

    sql: str
    bindings: tuple[Any, ...] = ()


class SearchScope(NamedTuple):
    """The origins whose rows are counted, and the rows that may be found; None: all of them."""

    origins: Sequence[int]
    allowed: Select | None = None

    @staticmethod
    def of(origins: Sequence[int], allowed: Allowed) -> SearchScope:
        """The scope of a filter."""
        if not allowed.select:
            return SearchScope(origins)
        return SearchScope(origins, Select(allowed.select, tuple(allowed.bindings)))


def matching(tables: WordTables, expression: Expression, origins: Sequence[int] | None) -> Select:
    """The rows that an expression matches, as `item`; of all origins, if these are None."""

    def of(node: Node) -> Select:
        if node.operator == "phrase":
            found = _rows(tables, expression.phrases[node.number], origins, 1)
            return Select(f"SELECT item FROM ({found.sql}) AS found", found.bindings)
        parts = [of(part) for part in node.parts]
        joined = f" {_SETS[node.operator]} ".join(f"({part.sql})" for part in parts)
        return Select(joined, tuple(value for part in parts for value in part.bindings))

    return of(expression.root)


def scored(
    tables: WordTables,
    expression: Expression,
    scope: SearchScope,
    title_weight: int,
    limit: int | None,
    *,
    newest: bool = False,
) -> Select:
    """(item, score, frequencies) of the best rows, after a first row that has no item.

    That one has the number of all rows as its score, and of how many have each phrase. Rows of
    equal scores come in the order of their ids, or the `newest` first.
    """
    # The postings count an occurrence in a title twice.
    postings = not tables.titled or title_weight == 2
    build = _any_term if expression.is_any_term and postings else _any_expression
    order = f"ORDER BY score DESC, item{' DESC' if newest else ''} "
    if limit is not None:
        order += f"LIMIT {limit:d}"
    return build(tables, expression, scope, title_weight, order)


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
    tables: WordTables,
    expression: Expression,
    scope: SearchScope,
    _: int,
    order: str,
) -> Select:
    """Rows that have any of some terms: the postings alone have all that a score needs."""
    origins = list(scope.origins)
    within, bindings = ("", ())
    if scope.allowed is not None:
        within, bindings = f"AND w.item IN ({scope.allowed.sql}) ", scope.allowed.bindings
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
        "(SELECT array_agg(frequency ORDER BY first) FROM t) FROM n UNION ALL "
        f"(SELECT item, score, NULL FROM s {order})"
    )
    terms = [phrase.terms[0] for phrase in expression.phrases]
    return Select(
        statement,
        (tables.shelf, origins, origins, terms, origins, *bindings),
    )


def _any_expression(
    tables: WordTables,
    expression: Expression,
    scope: SearchScope,
    title_weight: int,
    order: str,
) -> Select:
    """Rows that any expression matches; how often each has each phrase stands in one column each.

    FTS5 counts a phrase in a row only if all operations that it is part of hold there.
    """
    origins = list(scope.origins)
    distinct = list(dict.fromkeys(expression.phrases))
    found = [_rows(tables, phrase, origins, title_weight) for phrase in distinct]
    within = Select("")
    if scope.allowed is not None:
        within = Select(f"WHERE item IN ({scope.allowed.sql}) ", scope.allowed.bindings)
    number = {at: distinct.index(phrase) for at, phrase in enumerate(expression.phrases)}
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
        f"h AS (SELECT item, max(tokens) AS tokens, {weights} FROM ({every}) AS e {within.sql}"
        f"GROUP BY item), s AS (SELECT item, {_score(expression, number)} AS score "
        f"FROM h, n, f WHERE {_holds(expression.root, number)}) "
        "SELECT NULL::bigint AS item, n.items AS score, "
        f"ARRAY[{', '.join(f'f.f{at}' for at in range(len(found)))}] FROM n, f UNION ALL "
        f"(SELECT item, score, NULL FROM s {order})"
    )
    bound = [value for each in found for value in each.bindings]
    return Select(statement, (tables.shelf, origins, *bound, *within.bindings))


def _score(expression: Expression, number: dict[int, int]) -> str:
    """The sum over the phrases, in their order."""
    terms = []
    for at, above in expression.root.leaves():
        weight, held = f"h.w{number[at]}", [f"h.w{number[at]} IS NOT NULL"]
        held += [_holds(node, number) for node in above if node.operator != "OR"]
        terms.append(
            f"CASE WHEN {' AND '.join(held)} THEN {_idf(f'f.f{number[at]}')} * "
            f"{_saturated(weight, 'h.tokens')} ELSE 0 END"
        )
    return " + ".join(terms)


def _holds(node: Node, number: dict[int, int]) -> str:
    if node.operator == "phrase":
        return f"h.w{number[node.number]} IS NOT NULL"
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
    if not phrase.prefix:
        return Select(
            f"SELECT item, weight, tokens FROM {tables.words} WHERE term = ?{_of(origins)}",
            (phrase.terms[0], *_bound(origins)),
        )
    return Select(
        f"SELECT item, sum(weight)::float8 AS weight, min(tokens) AS tokens FROM {tables.words} "
        f"WHERE term >= ? AND term < ?{_of(origins)} GROUP BY item",
        (phrase.terms[0], phrase.terms[0] + LAST, *_bound(origins)),
    )


def _by_text(
    tables: WordTables, phrase: Phrase, origins: Sequence[int] | None, title_weight: int
) -> Select:
    """The same, counted in the terms of the rows as text: postings have no positions."""
    pattern = _pattern(phrase)
    text = f"r.{tables.column}"
    having, bindings = _candidates(tables, phrase, origins)
    weight = f"regexp_count({text}, ?)"
    bound: list[Any] = [pattern]
    if tables.titled and title_weight > 1:
        weight += f" + {title_weight - 1} * regexp_count(split_part({text}, E'\\n', 1), ?)"
        bound.append(pattern)
    return Select(
        f"SELECT item, weight, tokens FROM (SELECT r.id AS item, {weight} AS weight, r.tokens "
        f"FROM {tables.rows} r WHERE r.id IN ({having})) AS counted WHERE weight > 0",
        (*bound, *bindings),
    )


def _candidates(
    tables: WordTables, phrase: Phrase, origins: Sequence[int] | None
) -> tuple[str, tuple[Any, ...]]:
    """The rows that have all terms of a phrase."""
    selects: list[str] = []
    bindings: list[Any] = []
    last = len(phrase.terms) - 1
    for at, term in enumerate(phrase.terms):
        begins = phrase.prefix and at == last
        if begins and last:
            continue  # the other terms say enough, and a beginning may be that of many
        test = "term >= ? AND term < ?" if begins else "term = ?"
        selects.append(f"(SELECT item FROM {tables.words} WHERE {test}{_of(origins)})")
        bindings += [term, *([term + LAST] if begins else []), *_bound(origins)]
    return " INTERSECT ".join(selects), tuple(bindings)


def _pattern(phrase: Phrase) -> str:
    """A regular expression for each beginning of a phrase; occurrences may overlap."""
    first, *others = (re.escape(term) for term in phrase.terms)
    rest = "".join(f" {term}" for term in others) + ("" if phrase.prefix else " ")
    return f" {first}(?={rest})" if rest else f" {first}"


def _of(origins: Sequence[int] | None) -> str:
    return "" if origins is None else " AND origin = ANY(?)"


def _bound(origins: Sequence[int] | None) -> tuple[list[int], ...]:
    return () if origins is None else (list(origins),)
