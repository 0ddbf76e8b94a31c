"""What the operators of a `where` are in SQL: that of SQLite, unless a subclass says it otherwise.

What engines do not agree on are the SQL of a field, of folded case, and of a few tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from mcpvectordb import dates
from mcpvectordb.dates import Period
from mcpvectordb.records import Condition

SIGNS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


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


class FilterDialect:
    """Compiles conditions for SQLite, which compares values of any type.

    A value is so its own number.
    """

    # SQL whose ? are bound to the value, once for each.
    textual: Mapping[str, str] = {
        "contains": "instr({text}, ?) > 0",
        "starts_with": "substr({text}, 1, length(?)) = ?",
        "ends_with": "substr({text}, -length(?), length(?)) = ?",
    }
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
        return self._test(condition.operator, operand, value)

    def _test(self, operator: str, operand: Operand, value: Any) -> Piece:
        match operator:
            case "eq":
                return self._equal(operand, value)
            case "in":
                return self._in(operand, value)
            case "ne" | "not_in":
                same = self._test("eq" if operator == "ne" else "in", operand, value)
                return sql("{kind} != 'null' AND (?) IS NOT TRUE", operand, same)
            case "exists" | "is_not_null":
                return sql("{kind} != 'null'", operand)
            case "not_exists":
                return sql("coalesce({kind}, 'null') = 'null'", operand)
            case "is_null":
                return sql("{kind} = 'null'", operand)
            case "array_contains":
                return sql(
                    "{kind} = 'array' AND EXISTS (SELECT 1 FROM {members} AS member WHERE ?)",
                    operand,
                    self._equal(self.member(), value),
                )
        if operator in self.textual:
            test = self.textual[operator]
            test = "{kind} IN ('text', 'integer', 'real') AND " + test
            return sql(test, operand, *[value] * test.count("?"))
        sign = SIGNS[operator]
        if isinstance(value, str):
            return sql(f"{{value}} {sign} ? AND {{kind}} = 'text'", operand, value)
        return self.numeric_order(operand, sign, self.number(value))

    def _equal(self, operand: Operand, value: Any) -> Piece:
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
            return self.within(operand, members)
        texts = [
            member if isinstance(member, str) else canonical_json(json.dumps(member))
            for member in members
        ]
        same_text = sql(
            "{kind} IN ('text', 'integer', 'real', 'true', 'false') AND ?",
            operand,
            self.any_of(operand.text, texts),
        )
        numbers = [self.number(member) for member in members if is_number(member)]
        if not numbers:
            return same_text
        same_number = sql(
            "{kind} IN ('integer', 'real') AND ?", operand, self.any_of(operand.number, numbers)
        )
        return sql("? OR ?", operand, same_text, same_number)

    # What another engine says otherwise.

    def column(self, expression: str) -> Operand:
        """The operand of a column, which has no members."""
        # typeof() has the same names as json_type() for text, integer, real and null.
        return _operand(
            Piece(f"typeof({expression})"),
            Piece(expression),
            Piece(f"CAST({expression} AS TEXT)"),
            Piece("(SELECT type, atom AS item FROM json_each('[]'))"),
        )

    def metadata(self, expression: str, keys: Sequence[str]) -> Operand:
        """The operand of the value under nested keys of a JSON object."""
        path = (json_path(keys),)
        return _operand(
            Piece(f"json_type({expression}, ?)", path),
            Piece(f"json_extract({expression}, ?)", path),
            Piece(f"(({expression}) -> ?)", path),
            Piece(f"(SELECT type, atom AS item FROM json_each({expression}, ?))", path),
        )

    def folded(self, operand: Operand) -> Operand:
        """The same operand with the case of its strings folded.

        Numbers, true and false are written in lower case anyway.
        """
        folded = sql("casefold({value})", operand)
        members = sql("(SELECT type, casefold(item) AS item FROM {members})", operand)
        text = sql("casefold({text})", operand)
        return operand._replace(value=folded, number=folded, text=text, members=members)

    def member(self) -> Operand:
        """The operand of the value `member.item`, a member of an array."""
        item = Piece("member.item")
        return _operand(Piece("member.type"), item, item, item)

    def number(self, value: float) -> Any:
        """A number as it is bound."""
        return value

    def any_of(self, piece: Piece, values: Sequence[Any]) -> Piece:
        """A test whether a piece of an operand is one of these values."""
        bound = json.dumps(values, ensure_ascii=False)
        return Piece(f"{piece.sql} IN (SELECT value FROM json_each(?))", (*piece.bindings, bound))

    def within(self, operand: Operand, periods: Sequence[Period]) -> Piece:
        """A test whether a time is within one of these periods."""
        return sql(
            "EXISTS (SELECT 1 FROM json_each(?) AS period"
            " WHERE {value} >= period.value ->> 0 AND {value} < period.value ->> 1)",
            operand,
            json.dumps(periods),
        )

    def numeric_order(self, operand: Operand, sign: str, value: Any) -> Piece:
        """The order of numbers, and of strings that are written as numbers."""
        # A CAST to NUMERIC makes SQLite compare a text that is written as a number by its number,
        # and leaves any other text a text, which is then unequal to its own CAST.
        return sql(
            f"{{value}} {sign} CAST(? AS NUMERIC) AND {{kind}} IN ('integer', 'real', 'text')"
            " AND CAST({value} AS NUMERIC) = {value}",
            operand,
            value,
        )

    def looked_up(self, condition: Condition, expression: str, keys: Sequence[str]) -> Piece | None:
        """A condition on metadata by an index of all of it, where there is one that can tell."""
        return None

    def has_key(self, expression: str, keys: Sequence[str]) -> Piece:
        """A test whether a JSON object has a value, or null, under nested keys."""
        return sql("{kind} IS NOT NULL", self.metadata(expression, keys))

    def keys(self, expression: str, keys: Sequence[str]) -> Piece:
        """What stands in FROM, after the table of the JSON: the keys of the object under nested
        keys, as `key`; an array has none.
        """
        path = json_path(keys)
        return Piece(
            f"json_each(CASE json_type({expression}, ?) WHEN 'object' THEN {expression} -> ? "
            "ELSE '{}' END)",
            (path, path),
        )


def _operand(kind: Piece, value: Piece, written: Piece, members: Piece) -> Operand:
    bare = Operand(kind, value, value, written, written, members)
    return bare._replace(
        text=sql("CASE {kind} WHEN 'text' THEN {value} ELSE {text} END", bare),
        structure=sql("canonical_json({text})", bare),
    )


def json_path(keys: Sequence[str]) -> str:
    """Nested keys as a path for SQLite's JSON functions."""
    # A quoted step can name any key: SQLite decodes JSON's escapes in it and never reads it as an
    # array index.
    return "$" + "".join("." + json.dumps(key, ensure_ascii=False) for key in keys)


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


SQLITE = FilterDialect()

# A connection to SQLite needs these functions in Python.
FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {
    "casefold": (casefold, 1),
    "canonical_json": (canonical_json, 1),
    "own_date": (lru_cache(4096)(dates.own), 1),
}
