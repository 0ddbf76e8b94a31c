"""Conditions in SQLite's SQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from mcpvectordb.dates import Period
from mcpvectordb.filters.dialect import (
    Build,
    FilterDialect,
    Operand,
    Piece,
    canonical_json,
    casefold,
    sql,
)

# A connection needs these functions in Python.
FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {
    "casefold": (casefold, 1),
    "canonical_json": (canonical_json, 1),
}


def json_path(keys: Sequence[str]) -> str:
    """Nested keys as a path for SQLite's JSON functions."""
    # A quoted step can name any key: SQLite decodes JSON's escapes in it and never reads it as an
    # array index.
    return "$" + "".join("." + json.dumps(key, ensure_ascii=False) for key in keys)


class SqliteDialect(FilterDialect):
    """SQLite compares values of any type, so a value is its own number."""

    contains = "instr({text}, ?) > 0"
    ends_with = "substr({text}, -length(?), length(?)) = ?"

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
        """The operand with the case of its strings folded."""
        folded = sql("casefold({value})", operand)
        members = sql("(SELECT type, casefold(item) AS item FROM {members})", operand)
        text = sql("casefold({text})", operand)
        return operand._replace(value=folded, number=folded, text=text, members=members)

    def member(self) -> Operand:
        """The operand of a member of an array."""
        item = Piece("member.item")
        return _operand(Piece("member.type"), item, item, item)

    def number(self, value: float) -> float:
        """A number as it is."""
        return value

    def any_of(self, piece: str, values: Sequence[Any]) -> Build:
        """A test whether a piece is in a JSON list."""
        bound = json.dumps(values, ensure_ascii=False)
        return lambda operand, _: sql(
            f"{{{piece}}} IN (SELECT value FROM json_each(?))", operand, bound
        )

    def within(self, periods: Sequence[Period]) -> Build:
        """A test whether a time is within one of the periods of a JSON list."""
        return lambda operand, _: sql(
            "EXISTS (SELECT 1 FROM json_each(?) AS period"
            " WHERE {value} >= period.value ->> 0 AND {value} < period.value ->> 1)",
            operand,
            json.dumps(periods),
        )

    def numeric_order(self, sign: str) -> Build:
        """The order of numbers, and of strings that are written as numbers."""
        # A CAST to NUMERIC makes SQLite compare a text that is written as a number by its number,
        # and leaves any other text a text, which is then unequal to its own CAST.
        return lambda operand, value: sql(
            f"{{value}} {sign} CAST(? AS NUMERIC) AND {{kind}} IN ('integer', 'real', 'text')"
            " AND CAST({value} AS NUMERIC) = {value}",
            operand,
            value,
        )

    def has_key(self, expression: str, keys: Sequence[str]) -> Piece:
        """A test whether a JSON object has nested keys."""
        return Piece(f"json_type({expression}, ?) IS NOT NULL", (json_path(keys),))

    def keys(self, expression: str, keys: Sequence[str]) -> Piece:
        """The keys of an object, which an array does not have."""
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


SQLITE = SqliteDialect()
