"""Conditions in PostgreSQL's SQL.

Its types are static: a value is compared as text or as a number, and metadata is of the type json,
which keeps numbers as they were written. What SQLite does by itself or by Python is done by
functions of the schema (postgres/migrations).

Most conditions on metadata are looked up in an index of it (`field_terms` there): its terms are the
path, a letter for the kind and the value, and these compare as the values do.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from mcpvectordb.dates import Period
from mcpvectordb.filters.dialect import (
    FilterDialect,
    Operand,
    Piece,
    canonical_json,
    is_number,
    sql,
)
from mcpvectordb.records import Condition


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

    def looked_up(self, condition: Condition, expression: str, keys: Sequence[str]) -> Piece | None:
        """A condition on metadata by its index; None if that does not know the exact answer."""
        if expression not in _INDEXES:
            return None

        def having(operator: str) -> Piece | None:
            found = lookup(condition._replace(operator=operator), keys)
            test = f"EXISTS (SELECT FROM {_INDEXES[expression]} AND "
            return found and Piece(f"{test}{found.sql})", found.bindings)

        opposite = {"ne": "eq", "not_in": "in", "not_exists": "exists"}.get(condition.operator)
        same, known = having(opposite or condition.operator), having("exists")
        if opposite is None or same is None or known is None:
            return same
        if opposite == "exists":
            return Piece(f"NOT {same.sql}", same.bindings)
        return Piece(f"{known.sql} AND NOT {same.sql}", known.bindings + same.bindings)

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


# --- conditions as terms of the index of metadata

_INDEXES = {
    "d.fields": "document_fields f WHERE f.item = d.key",
    "x.fields": "context_fields f WHERE f.item = x.id",
    "v.fields": "vector_fields f WHERE f.item = v.key",
}
_LONGEST = 100  # characters of a path or value that a term has, before a hash of it
_EXACT = 2**53  # whole numbers below it are told apart
_ESCAPE = "\ufdd0"  # of texts that PostgreSQL stores otherwise (postgres/connection.py)


def lookup(condition: Condition, keys: Sequence[str]) -> Piece | None:
    """The condition on a term that an item has exactly if its metadata fulfils a condition."""
    _, operator, value, case_sensitive = condition
    place = _short(json.dumps(keys, ensure_ascii=False, separators=(",", ":")))
    members = value if operator == "in" else [value] if operator != "exists" else []
    if _ESCAPE in place or any(
        (isinstance(each, str) and (not case_sensitive or _ESCAPE in each))
        or (is_number(each) and abs(each) >= _EXACT)
        or isinstance(each, list | tuple | dict)
        for each in members
    ):
        return None
    match operator:
        case "eq":
            return _one_of([place + _term(value)])
        case "array_contains":
            return _one_of([f"{place}m{_term(value)}"])
        case "is_null":
            return _one_of([place + _term(None)])
        case "exists" | "is_not_null":
            return _between(f"{place}a", f"{place}z")
        case "in":
            # A text is also that of a number, as it is written.
            if any(isinstance(each, str) and each[:1] in "-0123456789" for each in members):
                return None
            texts = [
                each if isinstance(each, str) else canonical_json(json.dumps(each))
                for each in members
            ]
            values = [each for each in members if not isinstance(each, str)]
            values += [text == "true" for text in texts if text in ("true", "false")]
            return _one_of([place + _term(each) for each in (*texts, *values)])
        case "gt" | "gte" | "lt" | "lte" if not isinstance(value, str) or len(value) < _LONGEST:
            # The same number, or text that says it, is before what follows it.
            kind, after = ("s", "\x01") if isinstance(value, str) else ("n", "t")
            bound = place + _term(value) + (after if operator in ("gt", "lte") else "")
            if operator.startswith("gt"):
                return _between(bound, place + chr(ord(kind) + 1))
            return _between(place + kind, bound)
    return None


def _term(value: Any) -> str:
    """A value as `field_terms` writes it."""
    if value is None:
        return "z"
    if isinstance(value, str):
        return f"s{_short(value)}"
    if isinstance(value, bool):
        return f"b{json.dumps(value)}"
    raw = struct.pack(">d", value + 0.0)
    return f"nm{bytes(255 - each for each in raw).hex()}" if value < 0 else f"np{raw.hex()}"


def _short(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return text[:_LONGEST] + hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _one_of(terms: list[str]) -> Piece:
    return (
        Piece("f.term = ?", tuple(terms)) if len(terms) == 1 else Piece("f.term = ANY(?)", (terms,))
    )


def _between(first: str, after: str) -> Piece:
    return Piece("f.term >= ? AND f.term < ?", (first, after))


POSTGRES = PostgresDialect()
