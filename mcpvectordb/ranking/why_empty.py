"""Why a filter leaves nothing: a name or key that does not exist, or a text compared exactly.

Asked only after a search or a listing came back empty; metadata keys are looked for in a bounded
number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mcpvectordb import filters
from mcpvectordb.errors import quoted
from mcpvectordb.records import Condition
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.text import fuzzy

MOST_ROWS = 10_000  # in which metadata keys are looked for, newest first
MOST_NAMES = 10_000  # with which an unknown one is compared
NO_MATCH = "nothing that is stored matches the filters"
SHOWN = 5  # names that are listed if none is similar


class FilteredItems(NamedTuple):
    """The items that a filter chooses from.

    noun      what one of them is called
    rows      the SQL of all of them: a table and a WHERE
    newest    the SQL to order them by
    fields    SQL for each column, as for `filters.compile`
    metadata  SQL for their metadata
    names     for each column that holds a name, the SQL that selects all known names
    exact     columns of which people often know a part only
    """

    noun: str
    rows: str
    newest: str
    fields: Mapping[str, str]
    metadata: str
    names: Mapping[str, str]
    exact: Sequence[str] = ()


def unknown_name(noun: str, name: str, known: Iterable[str]) -> str:
    """A clause that says that a name does not exist, with the names that are most similar."""
    names = sorted(set(known))
    if near := fuzzy.nearest(name, names[:MOST_NAMES]):
        hint = f"did you mean {' or '.join(map(quoted, near))}?"
    elif names:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        hint = f"known: {', '.join(map(quoted, names[:SHOWN]))}{more}"
    else:
        hint = "there is none yet"
    return f"there is no {noun} {quoted(name)}; {hint}"


def why_empty(sql: Sql, items: FilteredItems, conditions: Iterable[Condition]) -> str:
    """The reasons why conditions that must all hold select nothing; "" if none is found."""
    found = (_reason(sql, items, each) for each in conditions)
    return "; ".join(dict.fromkeys(filter(None, found)))


def _reason(sql: Sql, items: FilteredItems, condition: Condition) -> str:
    name, *keys = filters.path(condition.field)
    if keys:
        return "" if condition.operator == "not_exists" else _missing_key(sql, items, keys)
    if condition.operator != "eq" or not isinstance(condition.value, str):
        return ""
    if name in items.names:
        known = [each for (each,) in sql.execute(items.names[name])]
        return "" if condition.value in known else unknown_name(name, condition.value, known)
    if name in items.exact:
        test, bindings = filters.compile(
            [condition], items.fields, items.metadata, sql.dialect.filters
        )
        any_has = f"SELECT EXISTS (SELECT 1 FROM {items.rows} AND {test})"
        if not sql.execute(any_has, bindings).get:
            return (
                f"no {items.noun} has the {name} {quoted(condition.value)}, which is compared "
                f"exactly: `contains` (in the shell {name}*=TEXT) finds a part of it"
            )
    return ""


def _missing_key(sql: Sql, items: FilteredItems, keys: Sequence[str]) -> str:
    """Says that no item has a key, the first of a path that is missing, with similar ones."""
    newest = (
        f"(SELECT {items.metadata} AS metadata FROM {items.rows} ORDER BY {items.newest} "
        f"LIMIT {MOST_ROWS}) AS newest"
    )
    dialect = sql.dialect.filters
    for depth, key in enumerate(keys):
        has, bindings = dialect.has_key("metadata", keys[: depth + 1])
        if not sql.execute(f"SELECT EXISTS (SELECT 1 FROM {newest} WHERE {has})", bindings).get:
            known, bindings = dialect.keys("metadata", keys[:depth])
            beside = sql.execute(
                f"SELECT DISTINCT key FROM {newest}, {known} LIMIT {MOST_NAMES}", bindings
            )
            some = f"(SELECT 1 FROM {items.rows} LIMIT {MOST_ROWS + 1}) AS newest"
            count = int(sql.execute(f"SELECT count(*) FROM {some}").get)
            where = f" in the newest {MOST_ROWS:,} {items.noun}s" if count > MOST_ROWS else ""
            return unknown_name("metadata key", key, [each for (each,) in beside]) + where
    return ""
