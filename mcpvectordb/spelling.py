"""How much two names differ, and which of many is nearly meant. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

FURTHEST = 5  # edits between a name and a suggestion
SUGGESTIONS = 5

_EXTENSION = re.compile(r"\.[^./]*$")


def distance(one: str, other: str, most: int = FURTHEST) -> int | None:
    """Levenshtein's distance: how many characters must be put in, taken out or replaced; None when it is above `most`."""
    if abs(len(one) - len(other)) > most:
        return None
    before = list(range(len(other) + 1))
    for row, character in enumerate(one, 1):
        low, high = max(1, row - most), min(len(other), row + most)  # further away from the diagonal it costs too much
        now = [row] + [most + 1] * len(other)
        for column in range(low, high + 1):
            now[column] = min(before[column] + 1, now[column - 1] + 1, before[column - 1] + (character != other[column - 1]))
        if min(now[low - 1:high + 1]) > most:
            return None
        before = now
    return before[-1] if before[-1] <= most else None


def nearest(name: str, paths: Iterable[str]) -> list[str]:
    """The paths most like a name: as a whole, without their first folder, or by their last part; best first.

    The longer the last part of the name, the more may differ: half as many characters as it has, in last parts a third.
    A name without an extension is compared with paths without theirs.
    """
    asked = name.casefold().strip("/")
    base = asked.rpartition("/")[2]
    most, most_of_base = min(FURTHEST, len(base) // 2), min(FURTHEST, len(base) // 3)
    found = []
    for path in paths:
        folded = path.casefold() if "." in base else _EXTENSION.sub("", path.casefold())
        inside, last = folded.partition("/")[2], folded.rpartition("/")[2]
        distances = [distance(asked, folded, most), distance(asked, inside, most), distance(base, last, most_of_base)]
        known = [each for each in distances if each is not None]
        if known:
            found.append((min(known), sum(FURTHEST if each is None else each for each in distances), path))
    return [path for _, _, path in sorted(found)[:SUGGESTIONS]]
