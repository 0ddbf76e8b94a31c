from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mcpvectordb import InvalidInput
from mcpvectordb.search.recency import Recency

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def test_a_score_is_halved_with_every_half_life() -> None:
    recency = Recency.parse("30d", NOW)
    assert recency is not None and recency.half_life == timedelta(days=30)
    assert recency.weight("2026-01-31T00:00:00+00:00") == 1
    assert recency.weight("2026-01-01T00:00:00+00:00") == 0.5
    assert recency.weight("2025-12-02") == 0.25


def test_what_is_in_the_future_or_of_unknown_time_counts_as_new() -> None:
    recency = Recency(timedelta(days=1), NOW)
    assert recency.weight("2030-01-01T00:00:00+00:00") == recency.weight("some time ago") == 1


def test_ages_beyond_all_measure_count_nothing_and_fail_nothing() -> None:
    assert Recency(timedelta(microseconds=1), NOW).weight("0001-01-01") == 0


def test_no_preference_is_none_and_what_is_no_duration_is_refused() -> None:
    assert Recency.parse(None, NOW) is None
    with pytest.raises(InvalidInput, match="newer must be a duration such as 12h"):
        Recency.parse("soon", NOW)
