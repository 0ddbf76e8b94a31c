from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import InvalidInput
from mcpvectordb.history import clock

SECONDS = st.floats(0, 4e9, allow_nan=False)


@given(st.lists(SECONDS, min_size=2, max_size=50))
def test_stamps_grow_whatever_the_wall_clock_does(seconds: list[float]) -> None:
    stamps = [0]
    for each in seconds:
        stamps.append(clock.next_stamp(stamps[-1], each))
    assert stamps == sorted(set(stamps))


@given(st.lists(SECONDS, min_size=2, max_size=20))
def test_a_clock_that_has_seen_a_stamp_makes_later_ones_only(seconds: list[float]) -> None:
    """Two clocks that exchange their stamps, one of them always an hour behind."""
    ours = theirs = 0
    for each in seconds:
        ours = clock.next_stamp(max(ours, theirs), each)
        theirs = clock.next_stamp(max(ours, theirs), max(0.0, each - 3600))
        assert theirs > ours


@given(SECONDS)
def test_a_stamp_says_its_time_to_the_millisecond(seconds: float) -> None:
    stamp = clock.next_stamp(0, max(seconds, 1.0))
    shown = clock.moment(stamp)
    assert clock.first_stamp(shown, "since", 0) <= stamp <= clock.last_stamp(shown, "as_of", 0)
    assert clock.moment(clock.last_stamp(shown, "as_of", 0)) == shown


def test_a_day_ends_with_its_last_stamp_and_an_age_is_a_moment() -> None:
    noon = 1_800_014_400.0  # 2027-01-15T12:00:00Z
    assert clock.moment(clock.first_stamp("2027-01-15", "x", noon)).startswith(
        "2027-01-15T00:00:00"
    )
    assert clock.moment(clock.last_stamp("2027-01-15", "x", noon)).startswith("2027-01-15T23:59:59")
    assert clock.moment(clock.last_stamp("1d", "x", noon)).startswith("2027-01-14T12:00:00")
    assert clock.moment(clock.LAST) > "2100"


@pytest.mark.parametrize("time", ["soon", "", 7, None, "2026-13-01"])
def test_what_is_no_time_is_refused_by_name(time: object) -> None:
    with pytest.raises(InvalidInput, match="as_of must be a date"):
        clock.last_stamp(time, "as_of", 0)
