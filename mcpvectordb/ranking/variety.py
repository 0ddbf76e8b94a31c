"""Which rows of a ranking to show, so that few of them repeat each other. Pure.

A passage is covered by another one if every word of it stands there, and so do at least nine in ten
of its shingles (Broder, 1997: runs of consecutive words), including all with a number or a negation
in them. So what is covered says nothing that the other one does not say: another name, price or
"not" keeps a passage from being covered. Words are compared without case and punctuation.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mcpvectordb.text.tokens import CJK

SHINGLE = 3  # words
COVERED = 0.9  # the share of shingles

_WORD = re.compile(rf"{CJK.pattern[:-1]}|[^\W_]+")
_NEGATIONS = frozenset("no not nor never none neither without cannot t except unless".split())

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variety:
    """The rows that were chosen and, by these, the rows that each of them stands for.

    `folded` are rows whose text a chosen one covers; `more` is the number of other rows of its
    document. `complete` says that a longer ranking would not give more variety.
    """

    chosen: Sequence[int] = ()
    folded: Mapping[int, Sequence[int]] = field(default_factory=dict)
    more: Mapping[int, int] = field(default_factory=dict)
    complete: bool = True


EVERYTHING = Variety()


def choose(
    ranked: Sequence[int],
    wanted: int,
    *,
    owner: Callable[[int], int | None] | None = None,
    text: Callable[[int], str] | None = None,
) -> Variety:
    """Choose the `wanted` best rows.

    With `owner` (the document of a row) the best row of every document comes first; other rows
    follow, in their order, only if there are too few documents. With `text`, rows whose text is
    covered by a chosen one are folded into it. Rows are looked at until enough are chosen and the
    next one is not covered.
    """
    choice = _Choice(wanted, text)
    if owner is None:
        complete = not all(map(choice.take, ranked)) or choice.is_full
        return Variety(choice.chosen, choice.folded, complete=complete)
    shown: set[int | None] = set()
    waiting: list[int] = []
    for row in ranked:
        if owner(row) in shown:
            waiting.append(row)
        elif not choice.take(row):
            break
        elif choice.chosen[-1] == row:
            shown.add(owner(row))
    complete = choice.is_full
    left = list(itertools.dropwhile(choice.take, waiting))
    first = {owner(row): row for row in reversed(choice.chosen)}
    more = Counter(first[owner(row)] for row in left if owner(row) in first)
    return Variety(choice.chosen, choice.folded, more, complete)


class _Choice:
    """Rows that were chosen so far, and those that were folded into them."""

    def __init__(self, wanted: int, text: Callable[[int], str] | None) -> None:
        self._wanted, self._text, self._cover = wanted, text, Cover()
        self.chosen: list[int] = []
        self.folded: dict[int, list[int]] = {}

    @property
    def is_full(self) -> bool:
        return len(self.chosen) >= self._wanted

    def take(self, row: int) -> bool:
        """Fold or choose a row; False if it is not covered and enough are chosen already."""
        runs = None if self._text is None else shingles(self._text(row))
        better = None if runs is None else self._cover.covering(runs)
        if better is not None:
            self.folded.setdefault(self.chosen[better], []).append(row)
            return True
        if self.is_full:
            return False
        if runs is not None:
            self._cover.add(runs)
        self.chosen.append(row)
        return True


def shingles(text: str) -> tuple[Words, ...]:
    """The different runs of SHINGLE words of a text, in their order.

    A shorter text is one run, which only an equal one has; one without words is compared as it is.
    """
    words = _WORD.findall(text.casefold()) or [text.strip()]
    starts = range(max(1, len(words) - SHINGLE + 1))
    return tuple(dict.fromkeys(tuple(words[start : start + SHINGLE]) for start in starts))


class Cover:
    """The shingles of passages, best first, to which others are compared.

    At most a tenth of a passage's shingles is missing from one that covers it. So that one has one
    of the first tenth of them and the next, and only passages that have are compared.
    """

    def __init__(self) -> None:
        self._passages: list[frozenset[Words]] = []
        self._having: dict[Words, list[int]] = {}

    def add(self, passage: Sequence[Words]) -> None:
        """Add a passage after the others."""
        for run in passage:
            self._having.setdefault(run, []).append(len(self._passages))
        self._passages.append(frozenset(passage))

    def covering(self, passage: Sequence[Words]) -> int | None:
        """The number of the first passage, counted from 0, that covers this one."""
        most = int((1 - COVERED) * len(passage))
        near = {each for run in passage[: most + 1] for each in self._having.get(run, ())}
        words = set(itertools.chain.from_iterable(passage))
        for number in sorted(near):
            other = self._passages[number]
            missing = [run for run in passage if run not in other]
            if (
                len(missing) <= most
                and words.issubset(itertools.chain.from_iterable(other))
                and not any(_matters(word) for run in missing for word in run)
            ):
                return number
        return None


def _matters(word: str) -> bool:
    return word in _NEGATIONS or any(character.isdigit() for character in word)
