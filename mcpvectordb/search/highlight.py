"""Marks around the occurrences of a query's terms in a text, in time linear in the text.

Both are compared by the tokens that FTS5 itself makes of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import cast

import apsw

from mcpvectordb.storage import deadline
from mcpvectordb.text.query import Term
from mcpvectordb.text.tokens import CAMEL, CJK, bigrams, camel_parts

# Characters that are tokenized at a time: a token takes many times the memory of its text.
WINDOW = 100_000

TOKENIZER = "unicode61 remove_diacritics 2"

_GAP = re.compile(r"[\s、。，．！？]")

Token = tuple[str, int, int]


def highlight(
    text: str,
    terms: Sequence[Term],
    *,
    stemmed: bool,
    before: str = "<mark>",
    after: str = "</mark>",
) -> str:
    """The whole text with `before` and `after` around every occurrence of a term.

    Overlapping occurrences are marked as one.
    """
    tokens = _Tokens(stemmed)
    phrases = _Phrases(
        (asked, term.expression.endswith("*")) for term in terms if (asked := tokens.asked(term))
    )
    marks = chain.from_iterable(_marks(stream, phrases) for stream in tokens.streams(text))
    pieces, place = [], 0
    for start, end in _merged(marks):
        pieces += [text[place:start], before, text[start:end], after]
        place = end
    return "".join([*pieces, text[place:]])


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


def _merged(marks: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
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
