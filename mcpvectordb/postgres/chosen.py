"""What a search may find, looked up once for all of its statements.

A condition on metadata parses the JSON of every document, about a microsecond each. A search would
do that for each leg and for the count of rows by which it is decided how to search. So the ids are
looked up once in a transaction, up to so many that comparing all of them is the way to search.
"""

from __future__ import annotations

from typing import Any, cast

import apsw

from mcpvectordb.index import Allowed
from mcpvectordb.postgres.session import Session


def searched(sql: apsw.Connection, allowed: Allowed) -> list[int]:
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


def chosen(sql: apsw.Connection, allowed: Allowed, most: int) -> Allowed:
    """The same ids as a list, if these are no more than `most`; otherwise `allowed` itself."""
    if not allowed.select:
        return allowed
    kept = cast(Session, sql).kept
    key = (allowed.select, repr(allowed.bindings))
    if key not in kept:
        kept[key] = _listed(sql, allowed, most)
    found: Allowed = kept[key]
    return found


def is_list(allowed: Allowed) -> bool:
    """Whether the ids are listed."""
    return allowed.select == _LISTED


_LISTED = "SELECT unnest(?::bigint[])"


def _listed(sql: apsw.Connection, allowed: Allowed, most: int) -> Allowed:
    rows: list[Any] = sql.execute(
        f"SELECT * FROM ({allowed.select}) AS chosen LIMIT {most + 1}", allowed.bindings
    ).fetchall()
    if len(rows) > most:
        return allowed
    return Allowed(_LISTED, ([id for (id,) in rows],), origins=allowed.origins)
