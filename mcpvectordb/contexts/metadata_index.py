"""Metadata keys of contexts that are indexed, so that filters on them need not look into every
context.

The values of these keys stand in `contexts.folded` with their case folded, and each key has an
index over them. A condition on one is narrowed to the values that could fulfil it; what then really
does is for `filters` to say. Which keys they are is written in the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import apsw

from mcpvectordb import filters, metadata
from mcpvectordb.errors import InvalidInput
from mcpvectordb.filters import Where
from mcpvectordb.records import Condition
from mcpvectordb.storage.schema import key_index

MAX_KEYS = 30
MAX_CHARACTERS = (
    200  # of a value that go into the index; longer ones are told apart by looking at them
)

_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


def checked_names(names: Collection[str]) -> tuple[str, ...]:
    """Keys that can be indexed, in their order; a dot in one descends into an object."""
    kept = tuple(dict.fromkeys(names))
    for name in kept:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > 64:
            raise InvalidInput(
                f"{name!r} cannot be indexed: a key has up to 64 letters, digits, _ and -, "
                "and a dot descends into an object"
            )
    if len(kept) > MAX_KEYS or len({name.lower() for name in kept}) < len(kept):
        raise InvalidInput(
            f"at most {MAX_KEYS} keys can be indexed, and none that differ only in their case"
        )
    return kept


def folded(names: Sequence[str], values: Mapping[str, Any] | None) -> str | None:
    """What `contexts.folded` holds for metadata."""
    found = {
        name: _folded(value)
        for name in names
        if isinstance(value := _at(values, name), str | int | float)
    }
    return json.dumps(found, ensure_ascii=False) if found else None


def narrowed(names: Collection[str], where: Where | None) -> tuple[str, list[Any]]:
    """A SQL condition on contexts `x` that the indexes serve and that every match of `where`
    fulfils.
    """
    pieces, bindings = [], []
    for condition in filters.conditions(where):
        possible = _possible(condition)
        if possible and (name := _name(condition.field)) in names:
            pieces.append(
                f"json_extract(x.folded, '$.\"{name}\"') IN ({', '.join('?' * len(possible))})"
            )
            bindings += possible
    return " AND ".join(pieces) or "1", bindings


class MetadataIndex:
    """The indexed keys of one file; all methods work inside the caller's transaction."""

    def __init__(self, names: str) -> None:
        self._initial = checked_names([name.strip() for name in names.split(",") if name.strip()])

    def names(self, sql: apsw.Connection) -> tuple[str, ...]:
        """The keys that are indexed."""
        row = sql.execute("SELECT value FROM settings WHERE name = 'indexed_metadata'").fetchone()
        return tuple(json.loads(row[0])) if row else ()

    def settle(self, sql: apsw.Connection) -> tuple[str, ...]:
        """Make the first indexes of a new file; the keys in force."""
        if not sql.execute("SELECT 1 FROM settings WHERE name = 'indexed_metadata'").fetchone():
            self.use(sql, self._initial)
        return self.names(sql)

    def use(self, sql: apsw.Connection, names: Collection[str]) -> None:
        """Index these keys and no others."""
        kept = checked_names(names)
        sql.execute(
            "INSERT OR REPLACE INTO settings (name, value) VALUES ('indexed_metadata', ?)",
            (json.dumps(kept),),
        )
        self.rebuild(sql)

    def optimize(self, sql: apsw.Connection) -> None:
        """These indexes hold nothing that is not needed."""

    def rebuild(self, sql: apsw.Connection) -> None:
        """Fold the values of all contexts again, and have an index for each key that the settings
        name, and for no other.
        """
        sql.executemany("UPDATE contexts SET folded = ? WHERE id = ?", list(self._wrong(sql)))
        named, made = set(checked_names(self.names(sql))), _made(sql)
        for name in made - named:
            sql.execute(f'DROP INDEX "context_key_{name}"')
        for name in named - made:
            sql.execute(key_index(name))

    def problems(self, sql: apsw.Connection) -> Iterator[str]:
        """What is wrong with the indexed values, in words."""
        for _, id in self._wrong(sql):
            yield f"contexts: the indexed values of {id} are not those of its metadata"
        if _made(sql) != set(self.names(sql)):
            yield "contexts: other metadata keys have an index than the settings say"

    def _wrong(self, sql: apsw.Connection) -> Iterator[tuple[str | None, int]]:
        names = self.names(sql)
        for id, kept, values in sql.execute("SELECT id, folded, metadata FROM contexts"):
            right = folded(names, None if values is None else metadata.decode(values))
            if kept != right:
                yield right, id


def _made(sql: apsw.Connection) -> set[str]:
    return {
        name
        for (name,) in sql.execute(
            "SELECT substr(name, 13) FROM sqlite_schema WHERE name GLOB 'context_key_*'"
        )
    }


def _at(values: Mapping[str, Any] | None, name: str) -> Any:
    found: Any = values
    for step in name.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _folded(value: str | int | float) -> str | int | float:
    return value.casefold()[:MAX_CHARACTERS] if isinstance(value, str) else value


def _name(field: str | tuple[str, ...]) -> str | None:
    """The name that a key at this path would be indexed under; a key with a dot in it has none."""
    first, *steps = field.split(".") if isinstance(field, str) else field
    return (
        ".".join(steps) if first == "metadata" and not any("." in step for step in steps) else None
    )


def _possible(condition: Condition) -> list[str | int | float]:
    """All folded values that can fulfil a condition; none when the index is of no use for it."""
    value = condition.value
    if condition.operator == "in":
        return list(dict.fromkeys(chain.from_iterable(map(_alike, value))))
    return (
        [_folded(value)]
        if condition.operator == "eq" and isinstance(value, str | int | float)
        else []
    )


def _alike(member: str | int | float) -> Iterator[str | int | float]:
    """Values that `in` takes for a member: it compares texts, and numbers."""
    text = member if isinstance(member, str) else filters.canonical_json(json.dumps(member))
    yield _folded(text)
    if not isinstance(member, str):
        yield member
    try:
        written = json.loads(text.casefold(), parse_int=float)
    except (ValueError, RecursionError):
        return
    if isinstance(written, float | bool):
        yield written
