"""Passages within a budget: cut at the borders of sentences, dropped from the end. Pure.

A budget is counted in tokens, and a token as four characters, which is what English text has on
average.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from mcpvectordb import InvalidInput

CHARACTERS_PER_TOKEN = 4
MIN_BUDGET, MAX_BUDGET = 100, 40_000
CUT, LEAD = " […]", "[…] "
# Characters that are kept for what a reply says about itself.
REMARKS = 240
# Lengths to which long passages are cut before any is dropped.
_LENGTHS = (2_000, 1_200, 800, 500, 300)
_SHORTEST = 40
_BORDER = re.compile(r"(?<=[.!?…。！？])[\"'”’)\]]*\s+|\n+")


class CitedPassage(NamedTuple):
    """A passage with the line that cites it.

    `focus` is the offset of what answers the query best.
    """

    citation: str
    text: str
    focus: int = 0


class FittedPassages(NamedTuple):
    """The passages that fit as text, how many these are, how many of them were cut, and how many
    characters all of them need.
    """

    text: str
    kept: int
    shortened: int
    needed: int


def room_of(budget: int) -> int:
    """The characters of a budget in tokens; raises InvalidInput."""
    if not MIN_BUDGET <= budget <= MAX_BUDGET:
        raise InvalidInput(f"budget must be {MIN_BUDGET} to {MAX_BUDGET:,} tokens, not {budget:,}")
    return budget * CHARACTERS_PER_TOKEN


def excerpt(text: str, most: int, focus: int = 0) -> str:
    """The beginning of a text: at most `most` characters, up to the end of a sentence or line.

    Where the first sentence is too long, up to the end of a word. If the focus would not be in it,
    the excerpt begins with the sentence or line of the focus.
    """
    text = text.strip()
    if len(text) <= most:
        return text
    if most // 2 < focus < len(text):
        begin = max((each.end() for each in _BORDER.finditer(text, 0, focus)), default=focus)
        return LEAD + excerpt(text[begin:], most - len(LEAD))
    room = max(1, most - len(CUT))
    ends = [each.start() for each in _BORDER.finditer(text, room // 3, room + 1)]
    if not ends:
        ends = [text.rfind(" ", room // 2, room + 1)]
    return text[: ends[-1] if ends[-1] > 0 else room].rstrip() + CUT


def fitted(passages: Sequence[CitedPassage], room: int) -> FittedPassages:
    """As much of the passages as `room` characters hold.

    All are cut to the same length before the last ones are dropped; one always stays.
    """
    if not passages:
        return FittedPassages("", 0, 0, REMARKS)
    room -= REMARKS
    longest = max(len(each.text) for each in passages)
    for length in (longest, *(each for each in _LENGTHS if each < longest)):
        cut = [each._replace(text=excerpt(each.text, length, each.focus)) for each in passages]
        if sum(map(_size, cut)) <= room:
            break
    kept = total = 0
    while kept < len(cut) and total + _size(cut[kept]) <= room:
        total += _size(cut[kept])
        kept += 1
    shown = cut[:kept]
    if not shown:
        first = passages[0]
        left = room - _size(first._replace(text=""))
        shown = [first._replace(text=excerpt(first.text, max(_SHORTEST, left), first.focus))]
    shortened = sum(
        each.text != whole.text.strip() for each, whole in zip(shown, passages, strict=False)
    )
    text = "\n\n".join(f"{each.citation}\n{each.text}" for each in shown)
    return FittedPassages(text, len(shown), shortened, REMARKS + sum(map(_size, passages)))


def _size(passage: CitedPassage) -> int:
    """The characters that a passage takes: its own and those that separate it."""
    return len(passage.citation) + len(passage.text) + 3
