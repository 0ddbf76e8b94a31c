"""SQL indexes on metadata keys of memories, so that filters on them do not scan every memory.

`memories.folded` is a JSON object with the case-folded values of the indexed keys, and each key has
an expression index over it. A condition on such a key is narrowed to the rows whose folded value
could match; the compiled filter then decides exactly. The settings of the file name the keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from mcpvectordb import filters, metadata
from mcpvectordb.errors import InvalidInput
from mcpvectordb.filters.dialect import canonical_json
from mcpvectordb.index.resident import selected
from mcpvectordb.records import Condition
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.schema import key_index

MAX_KEYS = 30
# Characters of a value that are indexed. Longer values that agree so far are told apart by the
# compiled filter.
MAX_CHARACTERS = 200

_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


def checked_names(names: Collection[str]) -> tuple[str, ...]:
    """The names without duplicates, in their order; InvalidInput where a key cannot be indexed."""
    unique = tuple(dict.fromkeys(names))
    for name in unique:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > 64:
            raise InvalidInput(
                f"{name!r} cannot be indexed: a key has up to 64 letters, digits, _ and -, "
                "and a dot descends into an object"
            )
    if len(unique) > MAX_KEYS or len({name.lower() for name in unique}) < len(unique):
        raise InvalidInput(
            f"at most {MAX_KEYS} keys can be indexed, and none that differ only in their case"
        )
    return unique


def folded(names: Sequence[str], values: Mapping[str, Any] | None) -> str | None:
    """The value of `memories.folded` for this metadata: JSON, or None where no key is present."""
    found = {}
    for name in names:
        value: Any = values
        for step in name.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        if isinstance(value, str | int | float):
            found[name] = _folded(value)
    return json.dumps(found, ensure_ascii=False) if found else None


def index_condition(
    names: Collection[str], conditions: Iterable[Condition]
) -> tuple[str, list[Any]]:
    """A SQL condition on memories `x` that is implied by `conditions`, with its bindings.

    It compares indexed expressions only, for the keys in `names`. `conditions` must be checked.
    """
    pieces, bindings = [], []
    for condition in conditions:
        candidates = _candidates(condition)
        field = condition.field
        first, *steps = field.split(".") if isinstance(field, str) else field
        name = ".".join(steps)
        # A column has no steps, and no key with a dot in it is indexed.
        if candidates and first == "metadata" and name in names and name.count(".") < len(steps):
            marks = ", ".join("?" * len(candidates))
            pieces.append(f"json_extract(x.folded, '$.\"{name}\"') IN ({marks})")
            bindings += candidates
    return " AND ".join(pieces) or filters.EVERYTHING, bindings


class MetadataIndex:
    """The indexed metadata keys of one file; all methods run in the caller's transaction."""

    def __init__(self, names: str) -> None:
        self._initial = checked_names([name.strip() for name in names.split(",") if name.strip()])

    def names(self, sql: Sql) -> tuple[str, ...]:
        """The keys that are indexed."""
        row = sql.execute("SELECT value FROM settings WHERE name = 'indexed_metadata'").fetchone()
        return tuple(json.loads(row[0])) if row else ()

    def settle(self, sql: Sql) -> None:
        """Index the configured keys in a file whose settings do not name any yet."""
        if not sql.execute("SELECT 1 FROM settings WHERE name = 'indexed_metadata'").fetchone():
            self.use(sql, self._initial)

    def use(self, sql: Sql, names: Collection[str]) -> None:
        """Index these keys and no others."""
        checked = checked_names(names)
        sql.execute(
            "INSERT OR REPLACE INTO settings (name, value) VALUES ('indexed_metadata', ?)",
            (json.dumps(checked),),
        )
        self.rebuild(sql)

    def optimize(self, sql: Sql) -> None:
        """Do nothing: ordinary SQL indexes keep no rows that were removed."""

    def rebuild(self, sql: Sql) -> None:
        """Compute the folded values of all memories, and create or drop indexes as configured."""
        sql.executemany("UPDATE contexts SET folded = ? WHERE id = ?", list(self._wrong(sql)))
        wanted, existing = set(checked_names(self.names(sql))), _existing(sql)
        for name in existing - wanted:
            sql.execute(f'DROP INDEX "context_key_{name}"')
        for name in wanted - existing:
            sql.execute(key_index(name))

    def problems(self, sql: Sql) -> Iterator[str]:
        """One message for each memory with wrong folded values, and one for wrong indexes."""
        for _, id in self._wrong(sql):
            yield f"contexts: the indexed values of {id} are not those of its metadata"
        if _existing(sql) != set(self.names(sql)):
            yield "contexts: the metadata keys that have an index are not those of the settings"

    def _wrong(self, sql: Sql) -> Iterator[tuple[str | None, int]]:
        """(correct folded values, id) of each memory whose stored ones differ."""
        names = self.names(sql)
        for id, stored, values in sql.execute("SELECT id, folded, metadata FROM contexts"):
            correct = folded(names, None if values is None else metadata.decode(values))
            if stored != correct:
                yield correct, id


def _existing(sql: Sql) -> set[str]:
    """The keys that have an index in the schema."""
    names = "SELECT substr(name, 13) FROM sqlite_schema WHERE name GLOB 'context_key_*'"
    return set(selected(sql, names))


def _folded(value: str | int | float) -> str | int | float:
    return value.casefold()[:MAX_CHARACTERS] if isinstance(value, str) else value


def _candidates(condition: Condition) -> list[str | int | float]:
    """All folded values that could match a condition; empty where the index cannot serve it."""
    value = condition.value
    if condition.operator == "in":
        return list(dict.fromkeys(chain.from_iterable(map(_equivalents, value))))
    if condition.operator == "eq" and isinstance(value, str | int | float):
        return [_folded(value)]
    return []


def _equivalents(member: str | int | float) -> Iterator[str | int | float]:
    """The folded values that `in` matches with a member: equal texts, and equal numbers."""
    text = member if isinstance(member, str) else canonical_json(json.dumps(member))
    yield _folded(text)
    if not isinstance(member, str):
        yield member
    try:
        number = json.loads(text.casefold(), parse_int=float)
    except (ValueError, RecursionError):
        return
    if isinstance(number, float | bool):
        yield number
