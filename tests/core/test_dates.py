from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import InvalidInput, dates

offsets = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(
    lambda minutes: timezone(timedelta(minutes=minutes))
)
moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=offsets)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("2025-11-29", "2025-11-29T00:00:00.000000+00:00"),
        ("2025-11-29T10:00", "2025-11-29T10:00:00.000000+00:00"),
        ("2025-11-29T10:00:00", "2025-11-29T10:00:00.000000+00:00"),
        ("2025-11-29 10:00:00", "2025-11-29T10:00:00.000000+00:00"),
        ("2025-11-29T10:00:00Z", "2025-11-29T10:00:00.000000+00:00"),
        ("2025-11-29T10:00:00.5Z", "2025-11-29T10:00:00.500000+00:00"),
        ("2025-11-29T10:00:00.123456789Z", "2025-11-29T10:00:00.123456+00:00"),
        ("2025-11-29T10:00:00+02:00", "2025-11-29T08:00:00.000000+00:00"),
        ("2025-11-29T00:30:00+02:00", "2025-11-28T22:30:00.000000+00:00"),
        ("2025-12-31T23:00:00-05:30", "2026-01-01T04:30:00.000000+00:00"),
    ],
)
def test_every_supported_form_is_parsed(text: str, stored: str) -> None:
    assert dates.parse(text, "start") == stored


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "2025", "2025-11", "2025-1-2", "2025-13-01", "2025-02-30", "0000-01-01"),
        *("2025/11/29", "29-11-2025", "20251129", "2025-W48-6", " 2025-11-29", "2025-11-29\n"),
        *("2025-11-29T", "2025-11-29T10", "2025-11-29T25:00:00", "2025-11-29T24:00:00"),
        *("2025-11-29T10:60:00", "2025-11-29T10:00:60", "2025-11-29T10:00:00z", "2025-11-29Z"),
        *("2025-11-29t10:00:00", "2025-11-29T10:00:00+0200", "2025-11-29T10:00:00+02"),
        *("2025-11-29T10:00:00 Z", "2025-11-29T10:00:00+24:00", "２０２５-11-29"),
        *("0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"),
    ],
)
def test_other_text_is_refused_with_the_name_of_the_argument(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^start must be a date such as"):
        dates.parse(text, "start")


@pytest.mark.parametrize("value", [5, 2025.5, True, b"2025-11-29", date(2025, 11, 29)])
def test_a_value_that_is_not_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="end must be a date"):
        dates.parse(value, "end", end=True)


@given(moment=moments)
def test_a_stored_time_is_the_same_time(moment: datetime) -> None:
    stored = dates.parse(moment.isoformat(), "start")
    assert datetime.fromisoformat(stored) == moment
    assert dates.parse(stored, "start") == stored == dates.stored(moment)


@given(one=moments, other=moments)
def test_stored_texts_sort_as_their_times(one: datetime, other: datetime) -> None:
    assert (dates.stored(one) < dates.stored(other)) == (one < other)


@given(day=st.dates())
def test_a_day_as_an_end_is_its_last_microsecond(day: date) -> None:
    first, last = dates.period(day.isoformat(), day.isoformat())
    assert (first, last) == (f"{day}T00:00:00.000000+00:00", f"{day}T23:59:59.999999+00:00")


def test_a_time_as_an_end_is_that_time() -> None:
    assert dates.period(None, "2025-11-29T10:00:00") == (None, "2025-11-29T10:00:00.000000+00:00")
    assert dates.period(None, None) == (None, None)


def test_ends_are_compared_in_utc() -> None:
    assert (
        dates.period("2025-11-29T23:00:00-05:00", "2025-11-30T04:30:00Z")[0]
        == "2025-11-30T04:00:00.000000+00:00"
    )
    with pytest.raises(InvalidInput, match=r"start .* lies after end"):
        dates.period("2025-11-29T01:00:00-05:00", "2025-11-29T05:00:00Z")


def test_now_is_a_stored_time() -> None:
    dates.check_stored(dates.now())
    with pytest.raises(InvalidInput, match="not as it is stored"):
        dates.check_stored("2025-11-29")


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("12h", timedelta(hours=12)),
        ("7d", timedelta(days=7)),
        (" 7 D ", timedelta(days=7)),
        ("1.5d", timedelta(hours=36)),
        ("2w", timedelta(days=14)),
        ("6m", timedelta(days=180)),
        ("1y", timedelta(days=365)),
    ],
)
def test_durations_are_a_number_and_a_unit(text: str, length: timedelta) -> None:
    assert dates.duration(text, "newer") == length


@pytest.mark.parametrize(
    "text", ["", "7", "d", "-7d", "0d", "0.0h", "7 days", "1e3d", None, 7, "9" * 99 + "d"]
)
def test_what_is_no_duration_is_refused_with_the_arguments_name(text: object) -> None:
    with pytest.raises(InvalidInput, match="newer must be a duration such as 12h, 7d"):
        dates.duration(text, "newer")


NOON = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2026", "2026-01-01T00:00:00", "2027-01-01T00:00:00"),
        ("2026-11", "2026-11-01T00:00:00", "2026-12-01T00:00:00"),
        ("2026-12", "2026-12-01T00:00:00", "2027-01-01T00:00:00"),
        ("2024-02-29", "2024-02-29T00:00:00", "2024-03-01T00:00:00"),
        ("2026-11-29T10:00", "2026-11-29T10:00:00", "2026-11-29T10:01:00"),
        ("2026-11-29 10:00:59Z", "2026-11-29T10:00:59", "2026-11-29T10:01:00"),
        ("2026-11-29T10:00:00.5Z", "2026-11-29T10:00:00.5", "2026-11-29T10:00:00.6"),
        ("2026-11-29T10:00:00.000001", "2026-11-29T10:00:00.000001", "2026-11-29T10:00:00.000002"),
        ("2026-11-29T01:00:00+02:00", "2026-11-28T23:00:00", "2026-11-28T23:00:01"),
        ("today", "2026-03-01T00:00:00", "2026-03-02T00:00:00"),
        (" Yesterday ", "2026-02-28T00:00:00", "2026-03-01T00:00:00"),
        ("7d", "2026-02-22T12:30:00", "2026-02-22T12:30:00"),
        ("12h", "2026-03-01T00:30:00", "2026-03-01T00:30:00"),
        ("999999y", "0001-01-01T00:00:00", "0001-01-01T00:00:00"),
        ("9999", "9999-01-01T00:00:00", "9999-12-31T24"),
        ("9999-12", "9999-12-01T00:00:00", "9999-12-31T24"),
        ("9999-12-31", "9999-12-31T00:00:00", "9999-12-31T24"),
    ],
)
def test_a_period_is_named_by_its_digits_or_by_a_word(text: str, start: str, end: str) -> None:
    assert dates.named_period(text, "created_at", now=NOON) == (start, end)


@pytest.mark.parametrize(
    "text",
    [
        *("", "abc", "2026-13", "2026-13-45", "0000", "26", "202", "tomorrow", "0d", "-7d", "7"),
        *("2026-11-29T25:00", "2026-11-", "9" * 500, None, True, 2026, ["2026"]),
    ],
)
def test_what_names_no_period_is_refused_with_what_would(text: object) -> None:
    with pytest.raises(
        InvalidInput, match=r"^created_at must be a date or time such as 2025-11-29"
    ):
        dates.named_period(text, "created_at")


@given(moment=moments, other=moments)
def test_a_named_period_holds_the_stored_times_within_it_and_no_others(
    moment: datetime, other: datetime
) -> None:
    stored = [dates.stored(each) for each in (moment, other)]
    seconds = [each.astimezone(UTC).isoformat(timespec="seconds") for each in (moment, other)]
    for length in (4, 7, 10, 16, 19, 26):
        name = stored[0][:length] + ("Z" if length > 10 else "")
        start, end = dates.named_period(name, "created_at")
        assert start <= stored[0] < end
        assert (start <= stored[1] < end) == (stored[1][:length] == stored[0][:length])
        if length <= 19:  # files say their time in seconds
            assert (start <= seconds[1] < end) == (seconds[1][:length] == stored[0][:length])


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("2025-11-29", "2025-11-29T00:00:00.000000+00:00"),
        ("2025-11-29T23:30:00-02:00", "2025-11-30T01:30:00.000000+00:00"),
        ("2025-11", "2025-11-01T00:00:00.000000+00:00"),
        (2025, "2025-01-01T00:00:00.000000+00:00"),
        *((value, None) for value in ("2025-13", "2025-02-29", "today", "7d", "", 7, True, None)),
        *((value, None) for value in ("0001-01-01", "9999-12-31", 2025.0, ["2025"])),
    ],
)
def test_the_own_date_of_a_document_is_a_day_a_month_or_a_year(value: Any, meant: Any) -> None:
    assert dates.own(value) == meant


TODAY = date(2026, 11, 18)  # a Wednesday


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("on 7 May 2023", "2023-05-07", "2023-05-07"),
        ("the 1st of September, 2023?", "2023-09-01", "2023-09-01"),
        ("on December 1,2023 at noon", "2023-12-01", "2023-12-01"),
        ("since 2023-05-08", "2023-05-08", "2023-05-08"),
        ("in mid-August 2023", "2023-08-01", "2023-08-31"),
        ("December 2023", "2023-12-01", "2023-12-31"),
        ("what happened in 2022?", "2022-01-01", "2022-12-31"),
        ("what was said today", "2026-11-18", "2026-11-18"),
        ("Yesterday we", "2026-11-17", "2026-11-17"),
        ("two weeks ago", "2026-11-01", "2026-11-07"),
        ("10 days ago", "2026-11-08", "2026-11-08"),
        ("a year ago", "2025-05-20", "2026-05-19"),
        ("last week", "2026-11-09", "2026-11-15"),
        ("this week", "2026-11-16", "2026-11-22"),
        ("last month", "2026-10-01", "2026-10-31"),
        ("this month", "2026-11-01", "2026-11-30"),
        ("last year", "2025-01-01", "2025-12-31"),
    ],
)
def test_a_sentence_names_a_time_in_words(text: str, first: str, last: str) -> None:
    found = dates.spoken_period(text, TODAY)
    assert found and (str(found.first), str(found.last), found.yearly) == (first, last, False)


@pytest.mark.parametrize(
    ("text", "month", "day"),
    [("in May", 5, None), ("last May", 5, None), ("on 29 February", 2, 29)],
)
def test_a_time_without_a_year_is_that_of_any_year(text: str, month: int, day: int | None) -> None:
    found = dates.spoken_period(text, TODAY)
    assert found and found.yearly and found.first.month == month
    assert found.first.day == (day or 1)


@pytest.mark.parametrize(
    "text", ["may I march on?", "an hour ago", "on 31 February", "room 2525", "999 years ago", ""]
)
def test_a_sentence_may_name_no_time(text: str) -> None:
    if text != "999 years ago":
        assert dates.spoken_period(text, TODAY) is None
    assert dates.spoken_period(text, date(3, 1, 1)) is None


@given(text=st.text(max_size=60), today=st.dates())
def test_any_sentence_is_read_on_any_day(text: str, today: date) -> None:
    found = dates.spoken_period(text, today)
    assert found is None or found.first <= found.last


@given(
    first=st.dates(date(2, 1, 1), date(9998, 1, 1)),
    length=st.integers(0, 200),
    day=st.dates(),
    yearly=st.booleans(),
)
def test_closeness_is_highest_within_a_period_and_0_before_it(
    first: date, length: int, day: date, yearly: bool
) -> None:
    period = dates.SpokenPeriod(first, first + timedelta(days=length), yearly)
    assert 0 <= period.closeness(day) <= 1
    assert period.closeness(first) == 1
    if not yearly:
        assert (period.closeness(day) == 1) == (first <= day <= period.last)
        assert day >= first or period.closeness(day) == 0


def test_closeness_falls_in_the_weeks_after_a_period() -> None:
    may = dates.spoken_period("in May", TODAY)
    assert may
    assert may.closeness(date(2023, 5, 31)) == may.closeness(date(1999, 5, 1)) == 1
    assert may.closeness(date(2023, 6, 7)) == 0.5
    assert may.closeness(date(2023, 6, 14)) == 0.25
    assert may.closeness(date(2023, 7, 31)) == may.closeness(date(2023, 4, 30)) == 0
    december = dates.spoken_period("in December", TODAY)
    assert december and december.closeness(date(2024, 1, 7)) == 0.5


def test_the_day_of_a_text_is_the_first_that_it_names_with_a_year() -> None:
    assert dates.spoken_day("1:56 pm on 8 May, 2023, Ann: on 9 May") == date(2023, 5, 8)
    assert dates.spoken_day("on 9 May") is dates.spoken_day("in 2023") is None


NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2025", "2025-01-01T00:00:00.000000", "2025-12-31T23:59:59.999999"),
        ("2025-11", "2025-11-01T00:00:00.000000", "2025-11-30T23:59:59.999999"),
        ("today", "2026-11-29T00:00:00.000000", "2026-11-29T23:59:59.999999"),
        ("1d", "2026-11-28T12:00:00.000000", "2026-11-28T12:00:00.000000"),
        (
            "2025-11-29T10:00:00.123456Z",
            "2025-11-29T10:00:00.123456",
            "2025-11-29T10:00:00.123456",
        ),
        ("9999", "9999-01-01T00:00:00.000000", "9999-12-31T23:59:59.999999"),
    ],
)
def test_a_period_has_a_first_and_a_last_moment(text: str, first: str, last: str) -> None:
    assert dates.moment(text, "as_of", now=NOW) == f"{first}+00:00"
    assert dates.moment(text, "as_of", end=True, now=NOW) == f"{last}+00:00"


def test_before_a_moment_is_another_one_unless_it_is_the_first() -> None:
    assert dates.before("2025-01-01T00:00:00.000000+00:00") == "2024-12-31T23:59:59.999999+00:00"
    first = "0001-01-01T00:00:00.000000+00:00"
    assert dates.before(first) == first
