from __future__ import annotations

from mcpvectordb_server.web.site import Pace


def test_the_pace_is_that_of_the_last_minute_and_begins_anew_with_more_work() -> None:
    now = 0.0
    pace = Pace(lambda: now)
    assert pace.per_second(100) is None
    now = 10.0
    assert pace.per_second(80) == 2.0
    now = 100.0
    assert pace.per_second(80) is None  # nothing has become less for a minute
    now = 101.0
    assert pace.per_second(500) is None
    now = 102.0
    assert pace.per_second(490) == 10.0
