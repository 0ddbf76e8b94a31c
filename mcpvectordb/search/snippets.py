"""The few lines of a text that show why it was found, with their line numbers. Pure.

The work is linear in the text: a search makes a snippet of every hit.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from mcpvectordb.text.query import snippet_terms

LONGEST = 300  # characters of a snippet without its line numbers, so that many fit into a reply
BEFORE, AFTER = 1, 2  # lines that are shown around the one that has most words of the query
# Characters before the first such word if its line is too long to be shown from its beginning.
LEAD = 60

_SUFFIX = re.compile(r"(?<=[a-z]{4})(?:ing|ed|es|s|e|y|ies)$")

Occurrence = tuple[int, int]
"""(place in the text, number of the term)"""


class Snippet(NamedTuple):
    """Some lines of a text, each as `number: line`, and the number of the one that matches best."""

    line: int
    text: str


class Snippets:
    """Makes the snippets of texts for one query."""

    def __init__(self, query: str) -> None:
        self._terms = [_SUFFIX.sub("", term) for term in snippet_terms(query)]
        # A number or code counts as three words.
        self._weights = [3 if any(map(str.isdigit, term)) else 1 for term in self._terms]

    def of(self, text: str, first_line: int = 1) -> Snippet:
        """The line that has most words of the query, and its neighbours.

        `first_line` is the number of the text's first line. If no line has any of the words, the
        text is shown from its beginning.
        """
        lines = text.removesuffix("\n").split("\n")
        best, within = self._best_line(text, lines)
        if not within:
            shown = next((place for place, line in enumerate(lines) if line.rstrip()), 0)
            first = first_line + shown
            return Snippet(first, numbered(_capped(lines[shown : shown + 1 + AFTER]), first))
        place, line = _densest(within), lines[best].rstrip()
        if place > LONGEST - LEAD:
            line = "..." + line[max(0, place - LEAD) :]
            place = LEAD
        start = max(0, best - BEFORE)
        before = lines[start:best]
        if sum(len(each.rstrip()) + 1 for each in before) + place > LONGEST - LEAD:
            start, before = best, []
        shown_lines = [*before, line, *lines[best + 1 : best + 1 + AFTER]]
        return Snippet(first_line + best, numbered(_capped(shown_lines), first_line + start))

    def share(self, text: str) -> float:
        """The share of the query's words that a text has, 0 to 1."""
        folded = text.lower()
        return sum(term in folded for term in self._terms) / max(1, len(self._terms))

    def _best_line(self, text: str, lines: Sequence[str]) -> tuple[int, list[Occurrence]]:
        """The first of the lines with most different words, and the occurrences in it."""
        folded = text.lower()
        if len(folded) != len(text):  # a few letters change their length, and so all places
            folded = text
        starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
        found: dict[int, list[Occurrence]] = {}
        for place, term in self._occurrences(folded):
            line_number = bisect_right(starts, place) - 1
            if line_number < len(lines):
                found.setdefault(line_number, []).append((place - starts[line_number], term))
        if not found:
            return 0, []
        best = max(found, key=lambda line: (self._weight(found[line]), -line))
        return best, sorted(found[best])

    def _weight(self, found: Sequence[Occurrence]) -> int:
        """How many different words were found, by their weights."""
        if len(found) == 1:  # as in most lines
            return self._weights[found[0][1]]
        return sum(self._weights[term] for term in {term for _, term in found})

    def _occurrences(self, folded: str) -> Iterator[Occurrence]:
        for number, term in enumerate(self._terms):
            place = folded.find(term)
            while place >= 0:
                yield place, number
                place = folded.find(term, place + len(term))


def snippet(text: str, query: str, first_line: int = 1) -> str:
    """The lines of one text that have most words of a query (`Snippets.of`)."""
    return Snippets(query).of(text, first_line).text


def numbered(text: str, first: int = 1) -> str:
    """The text with a line number before every line."""
    return "\n".join(f"{number}: {line}" for number, line in enumerate(text.split("\n"), first))


def _densest(found: Sequence[Occurrence]) -> int:
    """Where to begin so that a snippet has most different terms: at one of the sorted places."""
    best, most, counts, first = found[0][0], 0, dict[int, int](), 0
    for place, term in found:
        counts[term] = counts.get(term, 0) + 1
        while place - found[first][0] > LONGEST - LEAD:
            left = found[first][1]
            counts[left] -= 1
            if not counts[left]:
                del counts[left]
            first += 1
        if len(counts) > most:
            best, most = found[first][0], len(counts)
    return best


def _capped(lines: Sequence[str]) -> str:
    text = "\n".join(line.rstrip() for line in lines)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
