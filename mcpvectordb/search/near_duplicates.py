"""Passages that a better one covers, so that a list need not show them. Pure.

A passage is covered by another one if every word of it stands there, and so do at least nine in ten
of its shingles (Broder, 1997: runs of consecutive words), including all with a number or a negation
in them. So what is covered says nothing that the other one does not say: another name, price or
"not" keeps a passage from being covered. Words are compared without case and punctuation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mcpvectordb.text.tokens import CJK

SHINGLE = 3  # words
COVERED = 0.9  # the share of shingles

_WORD = re.compile(rf"{CJK.pattern[:-1]}|[^\W_]+")
_NEGATIONS = frozenset("no not nor never none neither without cannot t except unless".split())

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shingles:
    """The words of a passage and its runs of SHINGLE words.

    A shorter passage is one run, which only an equal one has.
    """

    words: frozenset[str]
    runs: tuple[Words, ...]

    @staticmethod
    def of(text: str) -> Shingles:
        """The shingles of a text; one without words is compared as it is."""
        words = _WORD.findall(text.casefold()) or [text.strip()]
        runs = dict.fromkeys(
            tuple(words[start : start + SHINGLE])
            for start in range(max(1, len(words) - SHINGLE + 1))
        )
        return Shingles(frozenset(words), tuple(runs))


class Cover:
    """Passages, best first, to which others are compared.

    At most a tenth of a passage's shingles is missing from one that covers it. So that one has one
    of the first tenth of them and the next, and only passages that have are compared.
    """

    def __init__(self) -> None:
        self._passages: list[tuple[Shingles, frozenset[Words]]] = []
        self._having: dict[Words, list[int]] = {}

    def add(self, passage: Shingles) -> None:
        """Add a passage after the others."""
        for run in passage.runs:
            self._having.setdefault(run, []).append(len(self._passages))
        self._passages.append((passage, frozenset(passage.runs)))

    def covering(self, passage: Shingles) -> int | None:
        """The number of the first passage, counted from 0, that covers this one."""
        missing = int((1 - COVERED) * len(passage.runs))
        near = {each for run in passage.runs[: missing + 1] for each in self._having.get(run, ())}
        for number in sorted(near):
            other, runs = self._passages[number]
            if passage.words <= other.words and _few_missing(passage.runs, runs, missing):
                return number
        return None


def _few_missing(runs: Sequence[Words], known: frozenset[Words], most: int) -> bool:
    missing = [run for run in runs if run not in known]
    return len(missing) <= most and not any(_matters(word) for run in missing for word in run)


def _matters(word: str) -> bool:
    return word in _NEGATIONS or any(character.isdigit() for character in word)
