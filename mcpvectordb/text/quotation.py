"""Find a quotation in a text: exactly, or with other spacing, hyphens and quotation marks. Pure.

Two texts are the same but for spacing if they are equal after the same folding: white space becomes
one space, hyphens between letters (also those at the end of a line, with the line end) go, and the
forms of quotation marks, dashes and ligatures become one. Words are never changed, so a quotation
with another word, or with the case of a letter changed, is not found.
"""

from __future__ import annotations

import re
import unicodedata
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


class QuotationPlace(NamedTuple):
    """Where a quotation stands in a text, and whether it stands there character by character."""

    start: int
    end: int
    exact: bool


def find_exact(text: str, quotation: str) -> QuotationPlace | None:
    """The first place of a quotation in a text as it is."""
    start = text.find(quotation)
    return QuotationPlace(start, start + len(quotation), True) if start >= 0 else None


def find(text: str, quotation: str) -> QuotationPlace | None:
    """The first place of a quotation in a text, exact or with other spacing; None without one."""
    if exact := find_exact(text, quotation):
        return exact
    wanted = fold(quotation)[0].strip()
    if not wanted:
        return None
    folded, offsets = fold(text)
    start = folded.find(wanted)
    if start < 0:
        return None
    return QuotationPlace(offsets[start], offsets[start + len(wanted) - 1] + 1, False)


def fold(text: str) -> tuple[str, list[int]]:
    """A text with spacing, hyphens and marks made the same, and the offset of each character."""
    parts: list[str] = []
    offsets: list[int] = []
    place = 0
    for match in _FOLDED.finditer(text):
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
