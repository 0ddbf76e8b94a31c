"""What the operators of a `where` are in SQL, as far as SQLite and PostgreSQL agree on it.

A dialect adds what they do not agree on: the SQL of a field, of folded case, and of a few tests.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from mcpvectordb.dates import Period
from mcpvectordb.records import Condition


class Piece(NamedTuple):
    """SQL with its bindings."""

    sql: str
    bindings: tuple[Any, ...] = ()


class Operand(NamedTuple):
    """The SQL for what a field holds.

    kind       a name of SQLite's json_type(), or NULL for a missing key
    value      the value; in PostgreSQL as text
    number     the value as a number
    text       the value as text, as JSON writes it
    structure  an array or object, in a form in which equal ones are the same
    members    the rows of an array, each a value `item`
    """

    kind: Piece
    value: Piece
    number: Piece
    text: Piece
    structure: Piece
    members: Piece


Build = Callable[[Operand, Any], Piece]


def sql(template: str, operand: Operand, *values: Any) -> Piece:
    """A template filled with the operand's pieces for {names} and the values for each ?.

    A value is a piece of SQL or is bound; bindings come in the order of the template.
    """
    bindings: list[Any] = []
    rest = iter(values)

    def put(match: re.Match[str]) -> str:
        part = getattr(operand, match[1]) if match[1] else next(rest)
        piece = part if isinstance(part, Piece) else Piece("?", (part,))
        bindings.extend(piece.bindings)
        return piece.sql

    return Piece(re.sub(r"\{(\w+)\}|\?", put, template), tuple(bindings))


def is_number(value: Any) -> bool:
    """Whether a value is a number to JSON, where true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


class FilterDialect(ABC):
    """Compiles conditions for one engine."""

    # SQL whose ? are bound to the value, once for each.
    contains: str
    ends_with: str
    starts_with = "substr({text}, 1, length(?)) = ?"
    structure = "CASE {kind} WHEN ? THEN {structure} = ? END"

    def compile(self, condition: Condition, operand: Operand) -> Piece:
        """The SQL of a condition on an operand."""
        value = condition.value
        strings = isinstance(value, str) or (
            isinstance(value, list | tuple)
            and condition.operator in ("in", "not_in")
            and any(isinstance(each, str) for each in value)
        )
        if strings and not condition.case_sensitive:
            # Without strings no function is called for each row.
            operand = self.folded(operand)
            value = casefold(value) if isinstance(value, str) else list(map(casefold, value))
        return self._builds[condition.operator](operand, value)

    @abstractmethod
    def column(self, expression: str) -> Operand:
        """The operand of a column."""

    @abstractmethod
    def metadata(self, expression: str, keys: Sequence[str]) -> Operand:
        """The operand of the value under nested keys of a JSON object."""

    @abstractmethod
    def folded(self, operand: Operand) -> Operand:
        """The same operand with the case of its strings folded.

        Numbers, true and false are written in lower case anyway.
        """

    @abstractmethod
    def member(self) -> Operand:
        """The operand of the value `member.item`."""

    @abstractmethod
    def number(self, value: float) -> Any:
        """A number as it is bound."""

    @abstractmethod
    def any_of(self, piece: str, values: Sequence[Any]) -> Build:
        """A test whether a piece of an operand is one of these values."""

    @abstractmethod
    def within(self, periods: Sequence[Period]) -> Build:
        """A test whether a time is within one of these periods."""

    @abstractmethod
    def numeric_order(self, sign: str) -> Build:
        """The order of numbers, and of strings that are written as numbers."""

    @abstractmethod
    def has_key(self, expression: str, keys: Sequence[str]) -> Piece:
        """A test whether a JSON object has a value, or null, under nested keys."""

    @abstractmethod
    def keys(self, expression: str, keys: Sequence[str]) -> Piece:
        """What stands in FROM, after the table of the JSON: the keys of the object under nested
        keys, as `key`.
        """

    @cached_property
    def _builds(self) -> Mapping[str, Build]:
        return {
            "eq": self._eq,
            "ne": _differs(self._eq),
            **{name: self._ordering(sign) for name, sign in SIGNS.items()},
            "in": self._in,
            "not_in": _differs(self._in),
            "exists": by("{kind} != 'null'"),
            "not_exists": by("coalesce({kind}, 'null') = 'null'"),
            "is_null": by("{kind} = 'null'"),
            "is_not_null": by("{kind} != 'null'"),
            "contains": _textual(self.contains),
            "starts_with": _textual(self.starts_with),
            "ends_with": _textual(self.ends_with),
            "array_contains": self._array_contains,
        }

    def _eq(self, operand: Operand, value: Any) -> Piece:
        # The value is compared before its kind: a row that differs is parsed only once, and a
        # column's index can be used.
        if isinstance(value, Period):
            return sql("{value} >= ? AND {value} < ?", operand, *value)
        if value is None:
            return sql("{kind} = 'null'", operand)
        if isinstance(value, bool):
            return sql("{kind} = ?", operand, json.dumps(value))
        if isinstance(value, int | float):
            bound = self.number(value)
            return sql("{number} = ? AND {kind} IN ('integer', 'real')", operand, bound)
        if isinstance(value, str):
            return sql("{value} = ? AND {kind} = 'text'", operand, value)
        kind = "object" if isinstance(value, dict) else "array"
        return sql(self.structure, operand, kind, canonical_json(json.dumps(value)))

    def _in(self, operand: Operand, members: Sequence[Any]) -> Piece:
        if isinstance(members[0], Period):
            return self.within(members)(operand, None)
        texts = [
            member if isinstance(member, str) else canonical_json(json.dumps(member))
            for member in members
        ]
        same_text = sql(
            "{kind} IN ('text', 'integer', 'real', 'true', 'false') AND ?",
            operand,
            self.any_of("text", texts)(operand, None),
        )
        numbers = [self.number(member) for member in members if is_number(member)]
        if not numbers:
            return same_text
        same_number = sql(
            "{kind} IN ('integer', 'real') AND ?",
            operand,
            self.any_of("number", numbers)(operand, None),
        )
        return sql("? OR ?", operand, same_text, same_number)

    def _ordering(self, sign: str) -> Build:
        of_texts = by(f"{{value}} {sign} ? AND {{kind}} = 'text'")
        of_numbers = self.numeric_order(sign)
        return lambda operand, value: (
            of_texts(operand, value)
            if isinstance(value, str)
            else of_numbers(operand, self.number(value))
        )

    def _array_contains(self, operand: Operand, value: Any) -> Piece:
        return sql(
            "{kind} = 'array' AND EXISTS (SELECT 1 FROM {members} AS member WHERE ?)",
            operand,
            self._eq(self.member(), value),
        )


SIGNS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


def by(template: str) -> Build:
    """A test by a template, each ? of which is the value."""
    return lambda operand, value: sql(template, operand, *[value] * template.count("?"))


def _textual(template: str) -> Build:
    return by("{kind} IN ('text', 'integer', 'real') AND " + template)


def _differs(same: Build) -> Build:
    return lambda operand, value: sql(
        "{kind} != 'null' AND (?) IS NOT TRUE", operand, same(operand, value)
    )


def casefold(value: Any) -> Any:
    """A text with its case folded; any other value unchanged."""
    return value.casefold() if isinstance(value, str) else value


def canonical_json(text: str) -> str:
    """JSON in a canonical form: sorted keys, whole numbers without a fraction."""
    value = json.loads(text, parse_int=_canonical_number, parse_float=_canonical_number)
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _canonical_number(text: str) -> int | float:
    number = float(text)
    if not number.is_integer() or abs(number) > 2.0**63:
        return number
    whole = int(text) if text.lstrip("-").isdigit() else int(number)
    return whole if -(2**63) <= whole < 2**63 else int(number)  # as SQLite reads it
