"""Boolean queries (AND, OR, NOT, parentheses, "phrases"), parsed and translated for FTS5.

A recursive-descent parser with one method for each rule of this grammar:

    either  = both (OR both)*
    both    = negated (AND negated)*       an AND before a NOT may be left out
    negated = NOT negated | group
    group   = (word | "phrase" | "(" either ")")+    adjacent parts must all match

A group binds more tightly than any operator, as in FTS5: `a NOT b c` matches a without b and c
together. A word that ends in * is a prefix. NOT may stand anywhere, although FTS5 only has the
binary operator "this NOT that": a part that matches everything except something is kept as that
something with a mark (`_Part.negated`), and De Morgan's laws combine such parts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mcpvectordb.text.query import (
    MAX_JOINED,
    MAX_QUERY_CHARACTERS,
    FulltextQuery,
    Interpretation,
    Term,
    is_letter,
    match_query,
)

MAX_DEPTH = 10  # of parentheses: FTS5's own parser refuses expressions that are much deeper
OPERATORS = ("AND", "OR", "NOT")

_PIECE = re.compile(r'"[^"]*"\*?|[()]|[^\s()"]+|"')


class _Malformed(ValueError):
    """Why a query is malformed, as a clause for the note of the result."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a query: the FTS5 expression of what it matches or, if `negated`, excludes.

    The expression of a part without words is empty.
    """

    expression: str = ""
    found: tuple[Term, ...] = ()
    avoided: tuple[Term, ...] = ()
    negated: bool = False


def boolean_query(text: str) -> FulltextQuery:
    """Parse a boolean query; a malformed one is read as plain words.

    The note of the result says why it was malformed.
    """
    # One character more than is allowed: a longer query is read as plain words.
    pieces = _PIECE.findall(text[: MAX_QUERY_CHARACTERS + 1].replace("\x00", " "))
    terms = [piece for piece in pieces if piece not in (*OPERATORS, "(", ")", '"')]
    if not any(_term(piece).expression for piece in terms):
        return FulltextQuery()
    try:
        if len(terms) > MAX_JOINED or len(text) > MAX_QUERY_CHARACTERS:
            raise _Malformed(
                f"it has more than {MAX_JOINED} words or {MAX_QUERY_CHARACTERS:,} characters"
            )
        if len(terms) > 1 and (
            short := next((each for each in terms if each.endswith("*") and is_letter(each)), "")
        ):
            raise _Malformed(f"{short} is the beginning of too many words")
        part = _Parser(pieces).whole()
    except _Malformed as error:
        plain = match_query(" ".join(piece.strip('"*') for piece in terms))
        return FulltextQuery(
            plain.interpretations,
            f"not a boolean query, since {error}: its words were looked for instead",
        )
    if part.negated:
        return FulltextQuery(
            note="a query that only leaves things out finds nothing: say what to look for, too"
        )
    return FulltextQuery((Interpretation(part.expression, tuple(dict.fromkeys(part.found))),))


class _Parser:
    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces, self.place = pieces, 0

    def whole(self) -> _Part:
        part = self.either(0)
        if self.next():
            raise _Malformed("a ) closes nothing")
        return part

    def next(self) -> str:
        return self.pieces[self.place] if self.place < len(self.pieces) else ""

    def took(self, piece: str) -> bool:
        self.place += (found := self.next() == piece)
        return found

    def either(self, depth: int) -> _Part:
        parts = [self.both(depth)]
        while self.took("OR"):
            parts.append(self.both(depth))
        return _combined(parts, "OR")

    def both(self, depth: int) -> _Part:
        parts = [self.negated(depth)]
        while self.took("AND") or self.next() == "NOT":
            parts.append(self.negated(depth))
        return _combined(parts, "AND")

    def negated(self, depth: int) -> _Part:
        flips = 0
        while self.took("NOT"):
            flips += 1
        part = self.group(depth)
        return _not(part) if flips % 2 else part

    def group(self, depth: int) -> _Part:
        parts = []
        while (piece := self.next()) not in ("", ")", *OPERATORS):
            self.place += 1
            parts.append(self.nested(depth + 1) if piece == "(" else _listed(piece))
        if not parts:
            raise _Malformed(f"there is nothing between {self.before()} and {piece or 'its end'}")
        return _combined(parts, "AND")

    def nested(self, depth: int) -> _Part:
        if depth > MAX_DEPTH:
            raise _Malformed(f"it is nested more than {MAX_DEPTH} deep")
        part = self.either(depth)
        if not self.took(")"):
            raise _Malformed("a ( is not closed")
        return part

    def before(self) -> str:
        return self.pieces[self.place - 1] if self.place else "its beginning"


def _term(piece: str) -> Term:
    return Term(piece.rstrip("*").strip('"'), prefix=piece.endswith("*"))


def _listed(piece: str) -> _Part:
    if piece == '"':
        raise _Malformed('a " is not closed')
    term = _term(piece)
    return _Part(term.expression, (term,)) if term.expression else _Part()


def _not(part: _Part) -> _Part:
    return (
        _Part(part.expression, part.avoided, part.found, not part.negated)
        if part.expression
        else part
    )


def _combined(parts: Sequence[_Part], operator: str) -> _Part:
    """What all of some parts match (AND), or any of them (OR)."""
    listed = [part.expression for part in parts if part.expression and not part.negated]
    left_out = [part.expression for part in parts if part.expression and part.negated]
    if listed and left_out:
        # De Morgan: "this or not that" is "not (that and not this)".
        negated = operator == "OR"
        first, second = (left_out, listed) if negated else (listed, left_out)
        expression = f"({_joined(first, 'AND')}) NOT ({_joined(second, 'OR')})"
    else:
        negated = bool(left_out)
        opposite = "OR" if operator == "AND" else "AND"
        expression = _joined(listed, operator) or _joined(left_out, opposite)
    return _Part(
        expression,
        tuple(term for part in parts for term in part.found),
        tuple(term for part in parts for term in part.avoided),
        negated,
    )


def _joined(expressions: Sequence[str], operator: str) -> str:
    return (
        f" {operator} ".join(f"({each})" for each in expressions)
        if len(expressions) > 1
        else "".join(expressions)
    )
