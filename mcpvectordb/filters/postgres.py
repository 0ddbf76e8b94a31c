"""Conditions in PostgreSQL's SQL.

Its types are static: a value is compared as text or as a number, and metadata is of the type json,
which keeps numbers as they were written. What SQLite does by itself or by Python is done by
functions of the schema (postgres/migrations).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from mcpvectordb.dates import Period
from mcpvectordb.filters.dialect import FilterDialect, Operand, Piece, sql


class PostgresDialect(FilterDialect):
    """Kinds have SQLite's names, except that every number is `real`."""

    textual: Mapping[str, str] = {
        **FilterDialect.textual,
        "contains": "strpos({text}, ?) > 0",
        "ends_with": "right({text}, length(?)) = ?",
    }
    structure = "CASE {kind} WHEN ? THEN {structure} = canonical_json(CAST(? AS json)) END"

    def column(self, expression: str) -> Operand:
        """The operand of a column; a text is compared as it is, so that its index can be used."""
        text = Piece(f'(({expression})::text COLLATE "C")')
        kind = Piece(
            f"CASE WHEN ({expression}) IS NULL THEN 'null' "
            f"WHEN pg_typeof({expression}) = 'text'::regtype THEN 'text' ELSE 'real' END"
        )
        bare = Operand(kind, text, text, text, Piece("NULL::jsonb"), Piece("no_members()"))
        return bare._replace(number=sql("CASE {kind} WHEN 'real' THEN number({text}) END", bare))

    def metadata(self, expression: str, keys: Sequence[str]) -> Operand:
        """The operand of the value under nested keys of a JSON object."""
        return _of_json(_at(expression, keys))

    def folded(self, operand: Operand) -> Operand:
        """The operand with the case of its strings folded."""
        return operand._replace(
            value=sql("folded({value})", operand),
            text=sql("folded({text})", operand),
            members=sql("(SELECT folded(item) AS item FROM {members} AS each)", operand),
        )

    def member(self) -> Operand:
        """The operand of a member of an array."""
        return _of_json(Piece("member.item"))

    def number(self, value: float) -> Decimal:
        """A number as `number` in SQL reads it: a float by the shortest digits that mean it."""
        if isinstance(value, float) and not (value.is_integer() and -(2**63) <= value < 2**63):
            return Decimal(repr(value))
        return Decimal(int(value))

    def any_of(self, piece: Piece, values: Sequence[Any]) -> Piece:
        """A test whether a piece is in a list."""
        return Piece(f"{piece.sql} = ANY(?)", (*piece.bindings, list(values)))

    def within(self, operand: Operand, periods: Sequence[Period]) -> Piece:
        """A test whether a time is within one of the periods of two lists."""
        return sql(
            "EXISTS (SELECT 1 FROM unnest(?::text[], ?::text[]) AS period (first, last) "
            "WHERE {value} >= first AND {value} < last)",
            operand,
            [period.start for period in periods],
            [period.end for period in periods],
        )

    def numeric_order(self, operand: Operand, sign: str, value: Any) -> Piece:
        """The order of numbers, and of strings that are written as numbers."""
        return sql(
            f"CASE WHEN {{kind}} = 'real' THEN {{number}} WHEN {{kind}} = 'text' THEN "
            f"numeral({{value}}) END {sign} ?",
            operand,
            value,
        )

    def keys(self, expression: str, keys: Sequence[str]) -> Piece:
        """The keys of an object, which an array does not have."""
        place = _at(expression, keys)
        return Piece(
            f"json_object_keys(CASE json_typeof({place.sql}) WHEN 'object' THEN {place.sql} END) "
            "AS key",
            place.bindings * 2,
        )


def _at(expression: str, keys: Sequence[str]) -> Piece:
    """The JSON under nested keys; -> with a text never steps into an array."""
    return Piece(f"(({expression})::json{' -> ?' * len(keys)})", tuple(keys))


def _of_json(value: Piece) -> Operand:
    """The operand of a JSON value."""
    bare = Operand(value, value, value, value, value, value)
    bare = bare._replace(
        kind=sql(
            "(CASE json_typeof({value}) WHEN 'string' THEN 'text' WHEN 'number' THEN 'real' "
            "WHEN 'boolean' THEN {value}::text ELSE json_typeof({value}) END)",
            bare,
        ),
        number=sql("CASE json_typeof({value}) WHEN 'number' THEN number({value}::text) END", bare),
        text=sql("(({value} #>> '{}') COLLATE \"C\")", bare),
        structure=sql("canonical_json({value})", bare),
        members=sql(
            "(SELECT item FROM json_array_elements(CASE json_typeof({value}) WHEN 'array' "
            "THEN {value} END) AS each (item))",
            bare,
        ),
    )
    return bare._replace(value=bare.text)


POSTGRES = PostgresDialect()
