from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.text.fuzzy import FURTHEST, SUGGESTIONS, distance, nearest

names = st.text("abc/.", max_size=9)


def reference(one: str, other: str) -> int:
    """Levenshtein's distance by its definition."""
    if not one or not other:
        return len(one) + len(other)
    return min(
        reference(one[1:], other) + 1,
        reference(one, other[1:]) + 1,
        reference(one[1:], other[1:]) + (one[0] != other[0]),
    )


@given(one=st.text("ab", max_size=5), other=st.text("ab", max_size=5), most=st.integers(0, 6))
def test_the_distance_is_levenshteins_up_to_a_bound(one: str, other: str, most: int) -> None:
    expected = reference(one, other)
    assert distance(one, other, most) == (expected if expected <= most else None)


@given(name=names, paths=st.lists(st.text("abc/.", min_size=1, max_size=9), unique=True))
def test_suggestions_do_not_depend_on_the_order_of_the_paths(name: str, paths: list[str]) -> None:
    alone = {path: nearest(name, [path]) for path in paths}
    found = nearest(name, paths)
    assert found == nearest(name, reversed(paths)) == nearest(name, sorted(paths))
    assert set(found) <= {path for path, suggested in alone.items() if suggested}
    assert len(found) == min(SUGGESTIONS, sum(map(bool, alone.values())))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("notes/meetng.md", ["notes/meeting.md", "notes/2025/meetings.md"]),
        ("ntea.md", ["notes/tea.md"]),
        ("meetng.md", ["notes/meeting.md", "notes/2025/meetings.md"]),
        ("MEETING.MD", ["notes/meeting.md", "notes/2025/meetings.md"]),
        ("nots/2025/meeting", ["notes/meeting.md", "notes/2025/meetings.md"]),
        ("teas", ["notes/tea.md"]),
        ("readme.txt", ["notes/readme.md"]),
        ("entirely-different.md", []),
        ("x.md", []),
        ("", []),
        ("/", []),
    ],
)
def test_suggestions_compare_whole_paths_and_last_parts(name: str, expected: list[str]) -> None:
    assert (
        nearest(
            name, ["notes/meeting.md", "notes/2025/meetings.md", "notes/readme.md", "notes/tea.md"]
        )
        == expected
    )


def test_the_nearest_five_are_suggested_best_first() -> None:
    paths = [f"notes/planning{'x' * number}.md" for number in range(8)]
    assert nearest("notes/planning.md", reversed(paths)) == paths[:5]
    assert FURTHEST == 5


def test_a_short_name_is_not_similar_to_an_empty_one_or_to_all_without_a_folder() -> None:
    assert nearest("x", ["default", "", "work", ".md"]) == []
    assert nearest("xy", ["y/default", ""]) == []
