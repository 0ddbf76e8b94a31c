"""Edit distance between names, and suggestions for a name that does not exist. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

FURTHEST = 5  # edits between a name and a suggestion: beyond, names are not similar any more
SUGGESTIONS = 5  # that are offered for one name

_EXTENSION = re.compile(r"\.[^./]*$")


def distance(one: str, other: str, most: int = FURTHEST) -> int | None:
    """The Levenshtein distance of two texts, or None if it is above `most`.

    It is the smallest number of characters that are inserted, deleted or replaced. Only cells of
    the dynamic programming table within `most` of its diagonal are computed (Ukkonen, 1985).
    """
    if (
        abs(len(one) - len(other)) > most
        or len(set(one) - set(other)) > most
        or len(set(other) - set(one)) > most
    ):
        return None  # a cheap lower bound that rules out most paths
    one, other = _differing(one, other)
    before = list(range(len(other) + 1))
    for row, character in enumerate(one, 1):
        # Cells further away from the diagonal are above `most`.
        low, high = max(1, row - most), min(len(other), row + most)
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
    """Both texts without their common prefix and suffix."""
    shortest = min(len(one), len(other))
    start = next((place for place in range(shortest) if one[place] != other[place]), shortest)
    end = next(
        (place for place in range(shortest - start) if one[-1 - place] != other[-1 - place]),
        shortest - start,
    )
    return one[start : len(one) - end], other[start : len(other) - end]


def nearest(name: str, paths: Iterable[str]) -> list[str]:
    """Up to SUGGESTIONS paths that are most similar to a name, best first.

    A path is compared as a whole, without its first folder, and by its last part. How many edits
    are allowed depends on the length of the name's last part without its extension: half as many,
    and a third where last parts are compared.
    """
    asked = name.casefold().strip("/")
    stem = _stem(asked)
    most, most_of_stem = (
        min(FURTHEST, max(1, len(stem) // 2)),
        min(FURTHEST, max(1, len(stem) // 3)),
    )
    with_extension = "." in asked.rpartition("/")[2]
    found: list[tuple[int, int, str]] = []
    for path in paths if stem else ():
        folded = path.casefold()
        last = _stem(folded)
        if not with_extension:
            folded = _EXTENSION.sub("", folded)
        compared = (
            (asked, folded, most),
            (asked, folded.partition("/")[2], most),
            (stem, last, most_of_stem),
        )
        pairs = [each for each in compared if each[1]]  # nothing is similar to ""
        # Once there are enough, most paths are ruled out by fewer edits than are allowed.
        worst = found[-1][0] if len(found) == SUGGESTIONS else FURTHEST
        if all(distance(one, other, min(most, worst)) is None for one, other, most in pairs):
            continue
        distances = [distance(*pair) for pair in pairs]
        known = [each for each in distances if each is not None]
        total = sum(FURTHEST if each is None else each for each in distances)
        total += FURTHEST * (len(compared) - len(pairs))
        found = sorted([*found, (min(known), total, path)])[:SUGGESTIONS]
    return [path for _, _, path in found]


def _stem(path: str) -> str:
    return _EXTENSION.sub("", path.rpartition("/")[2])
