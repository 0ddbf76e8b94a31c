"""FTS5 expressions, read back into what they are made of. Pure.

Queries come as the expressions that `text.query` and `text.boolean` make for FTS5: phrases such as
"green tea" or "gre" *, joined by OR, AND and NOT (in ascending order of binding) and parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

_PIECE = re.compile(r'"(?P<phrase>(?:[^"]|"")*)"(?P<prefix> \*)?|(?P<sign>AND|OR|NOT|[()])')


class Phrase(NamedTuple):
    """Terms that follow each other; with `prefix` the last one is the beginning of a term."""

    terms: tuple[str, ...]
    prefix: bool = False

    @property
    def is_term(self) -> bool:
        """Whether it is one whole term."""
        return len(self.terms) == 1 and not self.prefix


@dataclass(frozen=True, slots=True)
class Node:
    """A phrase, by its number, or an operation on other nodes."""

    operator: Literal["phrase", "OR", "AND", "NOT"]
    number: int = 0
    parts: tuple[Node, ...] = ()

    def leaves(self, above: tuple[Node, ...] = ()) -> Iterator[tuple[int, tuple[Node, ...]]]:
        """The numbers of phrases in their order, each with the operations that it is part of."""
        if self.operator == "phrase":
            yield self.number, above
        for part in self.parts:
            yield from part.leaves((*above, self))


class Expression(NamedTuple):
    """An expression and its phrases; one that occurs twice is listed twice, as FTS5 scores it."""

    root: Node
    phrases: tuple[Phrase, ...]

    @property
    def is_any_term(self) -> bool:
        """Whether it is nothing but whole terms, any of which may match."""
        return (
            self.root.operator in ("phrase", "OR")
            and all(each.operator == "phrase" for each in self.root.parts)
            and all(phrase.is_term for phrase in self.phrases)
        )


def parse(text: str, terms: Callable[[str], list[str]]) -> Expression:
    """Read an FTS5 expression; `terms` returns those of a text as they are indexed."""
    return _ExpressionParser(text, terms).whole()


class _ExpressionParser:
    def __init__(self, text: str, terms: Callable[[str], list[str]]) -> None:
        self._pieces = list(_PIECE.finditer(text))
        self._terms, self._place = terms, 0
        self._phrases: list[Phrase] = []

    def whole(self) -> Expression:
        root = self._joined(0)
        return Expression(root, tuple(self._phrases))

    def _joined(self, level: int) -> Node:
        if level == len(_OPERATORS):
            return self._part()
        operator = _OPERATORS[level]
        parts = [self._joined(level + 1)]
        while self._took(operator):
            parts.append(self._joined(level + 1))
        return parts[0] if len(parts) == 1 else Node(operator, parts=tuple(parts))

    def _part(self) -> Node:
        if self._took("("):
            inner = self._joined(0)
            self._took(")")
            return inner
        piece = self._pieces[self._place]
        self._place += 1
        found = self._terms((piece["phrase"] or "").replace('""', '"'))
        self._phrases.append(Phrase(tuple(found), bool(piece["prefix"])))
        return Node("phrase", len(self._phrases) - 1)

    def _took(self, sign: str) -> bool:
        there = self._place < len(self._pieces) and self._pieces[self._place]["sign"] == sign
        self._place += there
        return there


_OPERATORS: tuple[Literal["OR", "AND", "NOT"], ...] = ("OR", "AND", "NOT")
