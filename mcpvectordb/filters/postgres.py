"""Conditions in PostgreSQL's SQL.

Its types are static: a value is compared as text or as a number, and metadata is of the type json,
which keeps numbers as they were written. What SQLite does by itself or by Python is done by
functions of the schema (FUNCTIONS).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from mcpvectordb.dates import Period
from mcpvectordb.filters.dialect import Build, Dialect, Operand, Piece, sql

_NUMERAL = r"^[ \t\n\v\f\r]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t\n\v\f\r]*$"


class PostgresDialect(Dialect):
    """Kinds have SQLite's names, except that every number is `real`."""

    contains = "strpos({text}, ?) > 0"
    ends_with = "right({text}, length(?)) = ?"
    structure = "CASE {kind} WHEN ? THEN {structure} = canonical_json(CAST(? AS json)) END"

    def column(self, expression: str) -> Operand:
        """The operand of a column; a text is compared as it is, so that its index can be used."""
        text = Piece(f'(({expression})::text COLLATE "C")')
        kind = Piece(
            f"CASE WHEN ({expression}) IS NULL THEN 'null' "
            f"WHEN pg_typeof({expression}) = 'text'::regtype THEN 'text' ELSE 'real' END"
        )
        bare = Operand(kind, text, text, text, Piece("NULL::jsonb"), Piece("no_members()"))
        return bare._replace(number=_number(bare))

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

    def any_of(self, piece: str, values: Sequence[Any]) -> Build:
        """A test whether a piece is in a list."""
        return lambda operand, _: sql(f"{{{piece}}} = ANY(?)", operand, list(values))

    def within(self, periods: Sequence[Period]) -> Build:
        """A test whether a time is within one of the periods of two lists."""
        return lambda operand, _: sql(
            "EXISTS (SELECT 1 FROM unnest(?::text[], ?::text[]) AS period (first, last) "
            "WHERE {value} >= first AND {value} < last)",
            operand,
            [period.start for period in periods],
            [period.end for period in periods],
        )

    def numeric_order(self, sign: str) -> Build:
        """The order of numbers, and of strings that are written as numbers."""
        return lambda operand, value: sql(
            f"CASE WHEN {{kind}} = 'real' THEN {{number}} WHEN {{kind}} = 'text' THEN "
            f"numeral({{value}}) END {sign} ?",
            operand,
            value,
        )

    def has_key(self, expression: str, keys: Sequence[str]) -> Piece:
        """A test whether a JSON object has nested keys."""
        place = _at(expression, keys)
        return Piece(f"{place.sql} IS NOT NULL", place.bindings)

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
        text=sql("(({value} #>> '{}') COLLATE \"C\")", bare),
        structure=sql("canonical_json({value})", bare),
        members=sql(
            "(SELECT item FROM json_array_elements(CASE json_typeof({value}) WHEN 'array' "
            "THEN {value} END) AS each (item))",
            bare,
        ),
    )
    bare = bare._replace(value=bare.text)
    return bare._replace(number=_number(bare))


def _number(operand: Operand) -> Piece:
    return sql("CASE {kind} WHEN 'real' THEN number({text}) END", operand)


POSTGRES = PostgresDialect()


# Functions of the schema. Names of theirs are looked up in the schema by the search path.

_NUMBER = """
CREATE OR REPLACE FUNCTION number(written text) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
-- As SQLite reads a number: a whole one of 64 bits exactly, any other one as floating point.
DECLARE
    exact numeric;
    double float8;
BEGIN
    IF written ~ '[eE][+-]?[0-9]{5}' THEN
        RETURN CASE WHEN written ~ '^[ \\t\\n\\v\\f\\r]*[+-]?[0.]*[eE]' OR written ~ '[eE]-' THEN 0
            WHEN written ~ '^[ \\t\\n\\v\\f\\r]*-' THEN '-Infinity' ELSE 'Infinity' END;
    END IF;
    exact := written::numeric;
    IF written !~ '[.eE]' AND exact BETWEEN -9223372036854775808 AND 9223372036854775807 THEN
        RETURN exact;
    END IF;
    IF abs(exact) >= 1.797693134862315808e308 THEN
        RETURN sign(exact) * 'Infinity'::numeric;
    ELSIF abs(exact) < 2.5e-324 THEN
        RETURN 0;
    END IF;
    double := exact::text::float8;
    IF double >= -9223372036854775808 AND double < 9223372036854775808
        AND double = floor(double) THEN
        RETURN double::bigint::numeric;
    END IF;
    RETURN double::text::numeric;
END $$
"""
_NUMERAL_FUNCTION = f"""
CREATE OR REPLACE FUNCTION numeral(written text) RETURNS numeric
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN written ~ '{_NUMERAL}' THEN number(written) END
$$
"""
_CANONICAL = """
CREATE OR REPLACE FUNCTION canonical_json(value json) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
-- A value in which equal numbers are written alike.
BEGIN
    RETURN CASE json_typeof(value)
        WHEN 'number' THEN to_jsonb(number(value::text))
        WHEN 'array' THEN (
            SELECT coalesce(jsonb_agg(canonical_json(item) ORDER BY place), '[]'::jsonb)
            FROM json_array_elements(value) WITH ORDINALITY AS each (item, place))
        WHEN 'object' THEN (
            SELECT coalesce(jsonb_object_agg(each.key, canonical_json(each.value)), '{}'::jsonb)
            FROM json_each(value) AS each)
        ELSE value::jsonb END;
END $$
"""
_NO_MEMBERS = """
CREATE OR REPLACE FUNCTION no_members() RETURNS TABLE (item json)
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT NULL::json WHERE FALSE $$
"""
_FOLDED_JSON = """
CREATE OR REPLACE FUNCTION folded(value json) RETURNS json
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE json_typeof(value) WHEN 'string' THEN to_json(folded(value #>> '{}')) ELSE value END
$$
"""


def _folding() -> str:
    """The function that folds case as `str.casefold` does, character by character.

    PostgreSQL has such a function since 18 only.
    """
    pairs = {
        character: character.casefold()
        for character in map(chr, range(1, sys.maxunicode + 1))
        if character.casefold() != character
    }
    single = {each: folded for each, folded in pairs.items() if len(folded) == 1}
    body = f"translate(value, '{''.join(single)}', '{''.join(single.values())}')"
    for each, folded in pairs.items():
        if each not in single:
            body = f"replace({body}, '{each}', '{folded}')"
    return f"""
CREATE OR REPLACE FUNCTION folded(value text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN octet_length(value) = length(value) THEN lower(value COLLATE "C")
        ELSE {body} END
$$
"""


def functions() -> list[str]:
    """The statements that create the functions which compiled conditions call."""
    return [_NUMBER, _NUMERAL_FUNCTION, _CANONICAL, _NO_MEMBERS, _folding(), _FOLDED_JSON]
