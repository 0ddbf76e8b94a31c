"""Why a text was found: the few lines that show it, and marks around the words of the query.

A snippet has the lines with most words of the query, under their numbers, found by plain search for
their beginnings. Marks are exact: text and query are compared by the tokens that FTS5 itself makes
of them. Both take time linear in the text: a search makes a snippet of every hit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import cast

import apsw

from mcpvectordb.storage import deadline
from mcpvectordb.text.query import Query, Term, parse_query
from mcpvectordb.text.tokens import CAMEL, CJK, bigrams, camel_parts

LONGEST = 300  # characters of a snippet without its line numbers, so that many fit into a reply
BEFORE, AFTER = 1, 2  # lines that are shown around the one that has most words of the query
# Characters before the first such word if its line is too long to be shown from its beginning.
LEAD = 60

_RULE = re.compile(r"\|(?: *:?-+:? *\|)+\s*")  # below the header of a table
_SUFFIX = re.compile(r"(?<=[a-z]{4})(?:ing|ed|es|s|e|y|ies)$")
# Characters that are tokenized at a time: a token takes many times the memory of its text.
WINDOW = 100_000

TOKENIZER = "unicode61 remove_diacritics 2"
_GAP = re.compile(r"[\s、。，．！？]")

Occurrence = tuple[int, int]
"""(place in a line, number of the term)"""

Token = tuple[str, int, int]
"""(token, start, end)"""


class Snippets:
    """Makes the snippets of texts for one query."""

    def __init__(self, query: Query) -> None:
        self._query = query

    @cached_property
    def _terms(self) -> list[str]:
        return _beginnings(self._query)

    @cached_property
    def _codes(self) -> int:
        """One bit for each term that is a number or code: it counts as three words."""
        return sum(
            1 << number for number, term in enumerate(self._terms) if any(map(str.isdigit, term))
        )

    def of(self, text: str, first_line: int = 1) -> tuple[int, str]:
        """The number of the line that has most words of the query, and it with its neighbours.

        Each of these is shown as `number: line`. `first_line` is the number of the text's first
        line. If no line has any of the words, the text is shown from its beginning.
        """
        lines = text.removesuffix("\n").split("\n")
        best, within = self._best_line(text, lines)
        if not within:
            shown = next((place for place, line in enumerate(lines) if line.rstrip()), 0)
            first = first_line + shown
            return first, numbered(_capped(lines[shown : shown + 1 + AFTER]), first)
        place, line = _densest(within), lines[best].rstrip()
        if place > LONGEST - LEAD:
            line = "..." + line[max(0, place - LEAD) :]
            place = LEAD
        start = max(0, best - BEFORE)
        before = lines[start:best]
        if sum(len(each.rstrip()) + 1 for each in before) + place > LONGEST - LEAD:
            start, before = best, []
        shown_lines = [*before, line, *lines[best + 1 : best + 1 + AFTER]]
        return first_line + best, numbered(_capped(shown_lines), first_line + start)

    def _best_line(self, text: str, lines: Sequence[str]) -> tuple[int, list[Occurrence]]:
        """The first of the lines with most different words, and the occurrences in it.

        A table's header comes last of them: its words are those of every row.
        """
        folded = text.lower()
        if len(folded) != len(text):  # a few letters change their length, and so all places
            folded = text
        found: list[Occurrence] = []
        for number, term in enumerate(self._terms):
            place = folded.find(term)
            while place >= 0:
                found.append((place, number))
                place = folded.find(term, place + len(term))
        if not found:
            return 0, []
        found.sort()
        having: dict[int, int] = {}  # by line, one bit for each term
        line = before = 0
        for place, number in found:
            line += folded.count("\n", before, place)
            before = place
            having[line] = having.get(line, 0) | 1 << number
        best = max(
            having,
            key=lambda line: (
                having[line].bit_count() + 2 * (having[line] & self._codes).bit_count(),
                not any(map(_RULE.fullmatch, lines[line + 1 : line + 2])),
            ),
        )
        start = sum(len(each) + 1 for each in lines[:best])
        end = start + len(lines[best])
        return best, [(place - start, number) for place, number in found if start <= place < end]


def word_shares(query: Query, texts: Sequence[str]) -> list[float]:
    """How much of a query's words each text has, 0 to 1; each further one counts less.

    A text need not have most words of a long question to answer it.
    """
    terms, shares = _beginnings(query), []
    for text in texts:
        folded = text.lower()
        having = sum([term in folded for term in terms])
        shares.append(having * (len(terms) + 2) / (len(terms) * (having + 2)) if having else 0.0)
    return shares


def _beginnings(query: Query) -> list[str]:
    """The content words of a query without their endings."""
    return [_SUFFIX.sub("", term) for term in query.content_words]


def snippet(text: str, query: str, first_line: int = 1) -> str:
    """The lines of one text that have most words of a query (`Snippets.of`)."""
    return Snippets(parse_query(query)).of(text, first_line)[1]


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


def highlight(
    text: str,
    terms: Sequence[Term],
    *,
    stemmed: bool,
    before: str = "<mark>",
    after: str = "</mark>",
) -> str:
    """The whole text with `before` and `after` around every occurrence of a term."""
    pieces, place = [], 0
    for start, end in occurrences(text, terms, stemmed=stemmed):
        pieces += [text[place:start], before, text[start:end], after]
        place = end
    return "".join([*pieces, text[place:]])


def occurrences(text: str, terms: Sequence[Term], *, stemmed: bool) -> list[tuple[int, int]]:
    """(start, end) of every occurrence of a term; overlapping ones are one."""
    tokens = _Tokens(stemmed)
    phrases = _Phrases(
        (asked, term.expression.endswith("*")) for term in terms if (asked := tokens.asked(term))
    )
    return merged(chain.from_iterable(_marks(stream, phrases) for stream in tokens.streams(text)))


class _Phrases:
    """The phrases to find, by their last token, which is a prefix for some of them."""

    def __init__(self, phrases: Iterable[tuple[list[str], bool]]) -> None:
        self._whole: dict[str, list[list[str]]] = {}
        self._begun: dict[str, list[list[str]]] = {}
        self.longest = 1
        for tokens, prefix in phrases:
            (self._begun if prefix else self._whole).setdefault(tokens[-1], []).append(tokens[:-1])
            self.longest = max(self.longest, len(tokens))
        self._beginnings = tuple(self._begun)

    def ending(self, tokens: Sequence[str], place: int) -> Iterator[int]:
        """The places where occurrences begin that end with the token at `place`."""
        for before in self._before(tokens[place]):
            first = place - len(before)
            if first >= 0 and tokens[first:place] == before:
                yield first

    def _before(self, last: str) -> Iterator[list[str]]:
        yield from self._whole.get(last, ())
        if last.startswith(self._beginnings):
            yield from (
                before
                for start, each in self._begun.items()
                if last.startswith(start)
                for before in each
            )


def _marks(stream: Iterable[Sequence[Token]], phrases: _Phrases) -> Iterator[tuple[int, int]]:
    """(start, end) of the occurrences of phrases in a stream of windows.

    An occurrence may lie across the border of two windows.
    """
    kept: list[Token] = []
    for window in stream:
        deadline.check("marking the words that were found")
        tokens = [*kept, *window]
        texts = [token for token, _, _ in tokens]
        for place in range(len(kept), len(tokens)):
            for first in phrases.ending(texts, place):
                yield tokens[first][1], tokens[place][2]
        kept = tokens[max(0, len(tokens) + 1 - phrases.longest) :]


def merged(marks: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Marks in their order; overlapping ones are one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(set(marks)):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


class _Tokens:
    """FTS5's tokens of a text after `index_text`, with their offsets in the original text."""

    def __init__(self, stemmed: bool) -> None:
        self._connection = apsw.Connection(":memory:")
        name, *arguments = (f"porter {TOKENIZER}" if stemmed else TOKENIZER).split()
        self._tokenizer = self._connection.fts5_tokenizer(name, arguments)

    def asked(self, term: Term) -> list[str]:
        """The tokens of a term."""
        return [token for token, _, _ in self._plain(term.expression, 0)]

    def streams(self, text: str) -> Iterator[Iterable[Sequence[Token]]]:
        """The text's own tokens, and those of the parts of each identifier in it."""
        yield (list(self._window(text[start:end], start)) for start, end in _windows(text))
        for identifier in CAMEL.finditer(text):
            yield [
                [token for start, part in _parts(identifier) for token in self._plain(part, start)]
            ]

    def _window(self, text: str, offset: int) -> Iterator[Token]:
        place = 0
        for run in CJK.finditer(text):
            yield from self._plain(text[place : run.start()], offset + place)
            yield from self._pairs(run[0], offset + run.start())
            place = run.end()
        yield from self._plain(text[place:], offset + place)

    def _pairs(self, run: str, offset: int) -> Iterator[Token]:
        for token, start, end in self._plain(" ".join(bigrams(run)), 0):
            # A bigram and the space after it take three characters.
            first = offset + start // 3 + start % 3
            yield token, first, first + end - start

    def _plain(self, text: str, offset: int) -> Iterator[Token]:
        """FTS5's tokens, with its byte offsets converted to characters."""
        raw = text.encode()
        byte = place = 0
        found = self._tokenizer(raw, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_colocated=False)
        for start, end, token in cast("list[tuple[int, int, str]]", found):
            first = place + len(raw[byte:start].decode())
            place, byte = first + len(raw[start:end].decode()), end
            yield token, offset + first, offset + place


def _parts(identifier: re.Match[str]) -> Iterator[tuple[int, str]]:
    place = identifier.start()
    for part in camel_parts(identifier[0]):
        place = identifier.string.index(part, place)
        yield place, part
        place += len(part)


def _windows(text: str) -> Iterator[tuple[int, int]]:
    """Consecutive parts that cover the text; no token crosses the border of two."""
    start = 0
    while start < len(text):
        gap = _GAP.search(text, start + WINDOW)
        end = gap.end() if gap else len(text)
        yield start, end
        start = end
