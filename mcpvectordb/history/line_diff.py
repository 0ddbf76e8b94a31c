"""A unified diff of two lists of lines, in time that grows with their length, whatever they hold.

What both begin and end with is set aside. Lines that are in both once each divide the rest, like
the cards of a patience game (the longest run of them that is in the same order). What is left
between them is compared by Myers's algorithm ("An O(ND) Difference Algorithm", 1986), which finds
the fewest changes and is fast if they are few. Its work is bounded: lines beyond that are given as
replaced all together, which the head of their hunk says. The diff leads from the one list to the
other in any case.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from mcpvectordb.storage import deadline

WORK = 3_000_000
"""Steps beyond a first look at each line: about a second."""

MEMORY = 3  # equal lines around a change

_COARSE = " too many lines differ here to tell which became which"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def one_line(text: str) -> str:
    """A text with its line ends and control characters written as escapes: \\n, \\x1b …"""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def unified(
    before: Sequence[str],
    after: Sequence[str],
    old: str,
    new: str,
    *,
    work: int = WORK,
) -> Iterator[str]:
    """The lines of a diff between lists of lines under two names; none if the lists are equal."""
    pairs, coarse = _matches(before, after, work)
    hunks: list[list[_Replaced]] = []
    i = j = 0
    for i_end, j_end in (*pairs, (len(before), len(after))):
        if i_end > i or j_end > j:
            # Changes that have no more than the memory of both between them are shown together.
            if not hunks or i - hunks[-1][-1].old_end > 2 * MEMORY:
                hunks.append([])
            hunks[-1].append(_Replaced(i, i_end, j, j_end, (i, j) in coarse))
        i, j = i_end + 1, j_end + 1
    if hunks:
        yield f"--- {one_line(old)}\n"
        yield f"+++ {one_line(new)}\n"
    for hunk in hunks:
        yield from _shown(hunk, before, after)


class _Replaced(NamedTuple):
    """Lines of the first list that are replaced by lines of the second; either may be none."""

    old: int
    old_end: int
    new: int
    new_end: int
    coarse: bool


def _shown(hunk: Sequence[_Replaced], before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    first, last = hunk[0], hunk[-1]
    lead = min(MEMORY, first.old)
    end = min(last.old_end + MEMORY, len(before))
    olds = _span(first.old - lead, end)
    news = _span(first.new - lead, last.new_end + end - last.old_end)
    yield f"@@ -{olds} +{news} @@{_COARSE if any(each.coarse for each in hunk) else ''}\n"
    at = first.old - lead
    for each in hunk:
        yield from (f" {line}\n" for line in before[at : each.old])
        yield from (f"-{line}\n" for line in before[each.old : each.old_end])
        yield from (f"+{line}\n" for line in after[each.new : each.new_end])
        at = each.old_end
    yield from (f" {line}\n" for line in before[at:end])


def _span(start: int, end: int) -> str:
    """Lines as the head of a hunk names them; no lines by the one that they follow."""
    if end - start == 1:
        return str(start + 1)
    return f"{start + (end > start)},{end - start}"


def _matches(
    before: Sequence[str], after: Sequence[str], work: int
) -> tuple[list[tuple[int, int]], set[tuple[int, int]]]:
    """The places of equal lines in both lists, and where parts begin that were not compared."""
    numbers: dict[str, int] = {}
    a, b = ([numbers.setdefault(each, len(numbers)) for each in lines] for lines in (before, after))
    work += 2 * (len(a) + len(b))
    pairs: list[tuple[int, int]] = []
    coarse: set[tuple[int, int]] = set()
    parts = [(0, len(a), 0, len(b))]
    while parts:
        deadline.check("comparing versions")
        i, i_end, j, j_end = parts.pop()
        while i < i_end and j < j_end and a[i] == b[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        while i < i_end and j < j_end and a[i_end - 1] == b[j_end - 1]:
            i_end, j_end = i_end - 1, j_end - 1
            pairs.append((i_end, j_end))
        if i == i_end or j == j_end:
            continue
        work -= i_end - i + j_end - j
        found = _unique(a, i, i_end, b, j, j_end) if work > 0 else []
        if found:
            for k, m in found:
                parts.append((i, k, j, m))
                pairs.append((k, m))
                i, j = k + 1, m + 1
            parts.append((i, i_end, j, j_end))
            continue
        fewest, spent = _fewest(a, range(i, i_end), b, range(j, j_end), work)
        work -= spent
        if fewest is None:
            coarse.add((i, j))
        else:
            pairs += fewest
    return sorted(pairs), coarse


def _unique(
    a: Sequence[int], i: int, i_end: int, b: Sequence[int], j: int, j_end: int
) -> list[tuple[int, int]]:
    """The longest run of lines that are in both parts once each and in the same order."""
    olds, news = Counter(a[i:i_end]), Counter(b[j:j_end])
    places = {b[m]: m for m in range(j, j_end) if news[b[m]] == 1}
    once = [(k, places[a[k]]) for k in range(i, i_end) if olds[a[k]] == 1 and a[k] in places]
    # The last place of the best run of each length, and what comes before each line in its run.
    ends: list[int] = []
    tops: list[int] = []
    before: list[int] = []
    for number, (_, m) in enumerate(once):
        length = bisect.bisect_left(ends, m)
        before.append(tops[length - 1] if length else -1)
        if length == len(ends):
            ends.append(m)
            tops.append(number)
        else:
            ends[length], tops[length] = m, number
    run = []
    number = tops[-1] if tops else -1
    while number >= 0:
        run.append(once[number])
        number = before[number]
    return run[::-1]


def _fewest(
    a: Sequence[int], olds: range, b: Sequence[int], news: range, work: int
) -> tuple[list[tuple[int, int]] | None, int]:
    """The equal lines if the fewest are changed, None if that takes too long; and the work done."""
    in_a, in_b = {a[i] for i in olds}, {b[j] for j in news}
    x_places = [i for i in olds if a[i] in in_b]  # what is in one part only cannot be equal
    y_places = [j for j in news if b[j] in in_a]
    width, height = len(x_places), len(y_places)
    # How far one gets on each diagonal x - y, and by which runs of equal lines: the end of the last
    # one, its length, and those before it.
    reached: dict[int, tuple[int, Any]] = {1: (0, None)}
    spent = 0
    for changes in range(width + height + 1):
        deadline.check("comparing versions")
        spent += 2 * changes + 1
        for diagonal in range(-changes, changes + 1, 2):
            # Down is a line of the second list more, the other way one of the first less; the
            # diagonals at the ends have one neighbour only.
            down = diagonal == -changes or (
                diagonal < changes and reached[diagonal - 1][0] < reached[diagonal + 1][0]
            )
            x, runs = reached[diagonal + 1] if down else reached[diagonal - 1]
            x = start = x if down else x + 1
            y = x - diagonal
            while x < width and y < height and a[x_places[x]] == b[y_places[y]]:
                x, y = x + 1, y + 1
            if x > start:
                runs = (x, y, x - start, runs)
                spent += x - start
            reached[diagonal] = x, runs
            if x >= width and y >= height:
                pairs: list[tuple[int, int]] = []
                while runs:
                    x, y, length, runs = runs
                    pairs += zip(x_places[x - length : x], y_places[y - length : y], strict=True)
                return pairs, spent
        if spent > work:
            return None, spent
    raise AssertionError("every list can be made another one by that many changes")
