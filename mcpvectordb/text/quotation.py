"""Find a quotation in a text: exactly, or with other spacing, hyphens and quotation marks. Pure.

Two texts are the same but for spacing if they are equal after the same folding: white space becomes
one space, hyphens between letters (also those at the end of a line, with the line end) go, and the
forms of quotation marks, dashes and ligatures become one. Words are never changed, so a quotation
with another word, or with the case of a letter changed, is not found.

Functions that may take long call `check` every few thousand characters; what it raises ends them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple

_HYPHENS = "\u002d\u00ad\u2010\u2011"
_FOLDED = re.compile(
    rf"(?P<space>\s+)"
    rf"|(?P<hyphen>(?<=[^\W\d_])[{_HYPHENS}]\s*(?=[^\W\d_]))"
    r"|(?P<other>[^\x00-\x7f])"
)
_SAME = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2012\u2013\u2014\u2015\u2212\u2010\u2011", "-"),
        "\u2026": "...",
        "\u00ad": "",
        "\u200b": "",
        "\ufeff": "",
    }
)
SLICE = 100_000  # characters, or matches, between two checks

Check = Callable[[], object]


def _no_check() -> None:
    """For texts that are short."""


class QuotationPlace(NamedTuple):
    """Where a quotation stands in a text, and whether it stands there character by character."""

    start: int
    end: int
    exact: bool


def find(text: str, quotation: str, check: Check = _no_check) -> QuotationPlace | None:
    """The first place of a quotation in a text, exact or with other spacing; None without one."""
    return next(places(text, quotation, check), None)


def places(text: str, quotation: str, check: Check = _no_check) -> Iterator[QuotationPlace]:
    """All places of a quotation in a text: the exact ones, or else those with other spacing."""
    found = False
    for start in _starts(text, quotation, check):
        found = True
        yield QuotationPlace(start, start + len(quotation), True)
    wanted = fold(quotation)[0].strip()
    if found or not wanted or letters(quotation) not in letters(text, check):
        return
    folded, offsets = fold(text, check)
    for start in _starts(folded, wanted, check):
        yield QuotationPlace(offsets[start], offsets[start + len(wanted) - 1] + 1, False)


def _starts(text: str, part: str, check: Check) -> Iterator[int]:
    start = text.find(part)
    while start >= 0:
        check()
        yield start
        start = text.find(part, start + 1)


def fold(text: str, check: Check = _no_check) -> tuple[str, list[int]]:
    """A text with spacing, hyphens and marks made the same, and the offset of each character."""
    parts: list[str] = []
    offsets: list[int] = []
    place = 0
    for count, match in enumerate(_FOLDED.finditer(text)):
        if count % SLICE == 0:
            check()
        parts.append(text[place : match.start()])
        offsets += range(place, match.start())
        place = match.end()
        if match["space"]:
            part = " "
        elif match["hyphen"]:
            part = ""
        else:
            part = unicodedata.normalize("NFKC", match[0].translate(_SAME))
        parts.append(part)
        offsets += [match.start()] * len(part)
    parts.append(text[place:])
    offsets += range(place, len(text))
    return "".join(parts), offsets


class _Letters(dict[int, str | None]):
    """For `str.translate`: what is left of each character without spacing, hyphens and dashes."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        same = unicodedata.normalize("NFKC", character.translate(_SAME))
        self[code] = re.sub(r"[\s-]+", "", same) or None
        return self[code]


_LETTERS = _Letters()


def letters(text: str, check: Check = _no_check) -> str:
    """A text without spacing, hyphens and dashes, its marks made the same, fast.

    If a quotation stands in a text with other spacing, its letters stand in those of the text; the
    reverse need not hold.
    """
    parts = []
    for start in range(0, len(text), SLICE):
        check()
        parts.append(text[start : start + SLICE].translate(_LETTERS))
    return "".join(parts)
