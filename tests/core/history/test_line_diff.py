"""A diff leads from the one text to the other, in little time, and no name forges a line of it."""

from __future__ import annotations

import difflib
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.history import line_diff
from mcpvectordb.history.line_diff import one_line, unified

LINES = st.lists(st.sampled_from(["", "a", "b", "c", "- d", "+ e", "@@ -1 +1 @@", "f"]))
HEAD = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)\n")


def applied(diff: list[str], before: list[str]) -> list[str]:
    """What becomes of a text, by what the hunks of a diff say."""
    after: list[str] = []
    at, lines = 0, iter(diff[2:])
    for line in lines:
        found = HEAD.fullmatch(line)
        assert found, line
        old, olds, new, news = (int(each or 1) for each in found.groups()[:4])
        old, new = (old - 1 if olds else old), (new - 1 if news else new)
        after += before[at:old]
        assert len(after) == new
        at, had, made = old, 0, 0
        while had < olds or made < news:
            mark, content = (line := next(lines))[0], line[1:-1]
            if mark in " -":
                assert before[at] == content
                at, had = at + 1, had + 1
            if mark in " +":
                after.append(content)
                made += 1
    return after + before[at:]


def changed(diff: list[str]) -> int:
    return sum(line[0] in "+-" for line in diff[2:])


@given(LINES, LINES, st.sampled_from([0, 5, 100, line_diff.WORK]))
def test_a_diff_leads_from_the_one_text_to_the_other(
    before: list[str], after: list[str], work: int
) -> None:
    diff = list(unified(before, after, "old", "new", work=work))
    assert applied(diff, before) == after
    assert bool(diff) == (before != after)


@given(st.lists(st.integers(0, 300), max_size=60), st.data())
def test_a_few_changes_are_found_where_they_are(numbers: list[int], data: st.DataObject) -> None:
    before = [str(each) for each in numbers]
    after = list(before)
    edits = data.draw(st.integers(0, 4))
    for _ in range(edits):
        place = data.draw(st.integers(0, len(after)))
        after[place : place + data.draw(st.integers(0, 1))] = ["new"]
    diff = list(unified(before, after, "old", "new"))
    assert applied(diff, before) == after and changed(diff) <= 2 * edits


@given(LINES, LINES)
def test_it_is_written_as_difflib_writes_it(before: list[str], after: list[str]) -> None:
    """Which equal lines are chosen may differ; with one choice only, the text is the same."""
    if before and after and set(before) & set(after):
        before, after = before[:1], before[:1] + after
    theirs = [
        line if line.endswith("\n") else line + "\n"
        for line in difflib.unified_diff(before, after, "old", "new", lineterm="")
    ]
    ours = list(unified(before, after, "old", "new"))
    assert changed(ours) <= changed(theirs) and ours[:2] == theirs[:2]


@pytest.mark.parametrize("kinds", [2, 50, 10**9])
def test_very_many_short_lines_take_bounded_work(kinds: int) -> None:
    """difflib took 50 s for 120,000 of them."""
    lines = random.Random(kinds)
    before, after = ([str(lines.randrange(kinds)) for _ in range(20_000)] for _ in range(2))
    diff = list(unified(before, after, "old", "new", work=10_000))
    assert applied(diff, before) == after
    numbers = [[int(each) for each in side] for side in (before, after)]
    places = range(20_000)
    assert line_diff._fewest(numbers[0], places, numbers[1], places, 10_000)[1] < 60_000


def test_what_was_not_compared_says_so() -> None:
    before, after = list("ab" * 500), list("ba" * 100 + "aabb" * 200)
    [_, _, head, *_] = unified(before, after, "old", "new", work=0)
    assert "too many lines differ" in head and HEAD.fullmatch(head)
    exact = list(unified(before, after, "old", "new"))
    assert not any("too many" in line for line in exact)


def test_two_changes_far_apart_among_equal_lines_are_two_hunks() -> None:
    before = ["x", "y"] * 30_000
    after = list(before)
    after[100], after[50_000] = "new", "newer"
    diff = list(unified(before, after, "old", "new"))
    assert changed(diff) == 4 and sum(line.startswith("@@") for line in diff) == 2


def test_no_name_forges_a_line() -> None:
    name = "a\n--- b\r+++ c\x85@@ -1 +1 @@\u2028\x1b[2J"
    assert one_line(name) == r"a\n--- b\r+++ c\x85@@ -1 +1 @@\u2028\x1b[2J"
    assert len("".join(unified(["x"], ["y"], name, name)).splitlines()) == 5
