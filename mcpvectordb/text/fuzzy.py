"""How much two names differ, and which of many is nearly meant. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

FURTHEST = 5  # edits between a name and a suggestion
SUGGESTIONS = 5

_EXTENSION = re.compile(r"\.[^./]*$")


def distance(one: str, other: str, most: int = FURTHEST) -> int | None:
    """Levenshtein's distance: how many characters must be put in, taken out or replaced; None when
    it is above `most`.
    """
    if (
        abs(len(one) - len(other)) > most
        or len(set(one) - set(other)) > most
        or len(set(other) - set(one)) > most
    ):
        return None  # which is true of most paths, and quickly seen
    one, other = _differing(one, other)
    before = list(range(len(other) + 1))
    for row, character in enumerate(one, 1):
        low, high = (
            max(1, row - most),
            min(len(other), row + most),
        )  # further away from the diagonal it costs too much
        now = [row] + [most + 1] * len(other)
        for column in range(low, high + 1):
            now[column] = min(
                before[column] + 1,
                now[column - 1] + 1,
                before[column - 1] + (character != other[column - 1]),
            )
        if min(now[low - 1 : high + 1]) > most:
            return None
        before = now
    return before[-1] if before[-1] <= most else None


def _differing(one: str, other: str) -> tuple[str, str]:
    """Both without the beginning and the end that they share."""
    shortest = min(len(one), len(other))
    start = next((place for place in range(shortest) if one[place] != other[place]), shortest)
    end = next(
        (place for place in range(shortest - start) if one[-1 - place] != other[-1 - place]),
        shortest - start,
    )
    return one[start : len(one) - end], other[start : len(other) - end]


def nearest(name: str, paths: Iterable[str]) -> list[str]:
    """The paths most like a name: as a whole, without their first folder, or by their last part;
    best first.

    The longer the last part of the name (without its extension), the more may differ: half as many
    characters, in last parts alone a third.
    """
    asked = name.casefold().strip("/")
    stem = _stem(asked)
    most, most_of_stem = (
        min(FURTHEST, max(1, len(stem) // 2)),
        min(FURTHEST, max(1, len(stem) // 3)),
    )
    found = []
    for path in paths if stem else ():
        folded = (
            path.casefold()
            if "." in asked.rpartition("/")[2]
            else _EXTENSION.sub("", path.casefold())
        )
        distances = [
            distance(asked, folded, most),
            distance(asked, folded.partition("/")[2], most),
            distance(stem, _stem(path.casefold()), most_of_stem),
        ]
        known = [each for each in distances if each is not None]
        if known:
            found.append(
                (min(known), sum(FURTHEST if each is None else each for each in distances), path)
            )
    return [path for _, _, path in sorted(found)[:SUGGESTIONS]]


def _stem(path: str) -> str:
    return _EXTENSION.sub("", path.rpartition("/")[2])
