"""A hybrid logical clock: stamps that order changes, also of machines whose clocks differ or jump.

A stamp is a whole number: the milliseconds of the wall clock, and below them a counter of 20 bits.
The next stamp of a file is that of the wall clock or, if that is not later than the last stamp, the
last one plus one. So stamps grow with every change, whatever the wall clock does, and whoever has
seen a stamp makes only later ones (Kulkarni et al., "Logical Physical Clocks", 2014).

The usual tie-break, an id of each replica, is missing on purpose: files are copied by any means,
and the id would be copied along. Two versions with the same stamp are ordered by their content.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from mcpvectordb import dates

COUNTER_BITS = 20
LAST = (1 << 62) - 1
"""The greatest stamp, of the year 2109; a file that says it has a later one is damaged."""

AHEAD_SECONDS = 2 * 86_400.0
"""How far a clock may be ahead of this machine's before one of the two is called wrong.

Machines that set their clocks differ by seconds, and one that takes its local time for UTC by 14
hours at most. Whatever is accepted wins over changes that were made later, and is kept for longer,
by as much: so it is days, not years.
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def next_stamp(last: int, seconds: float) -> int:
    """The stamp after `last`, when the wall clock shows so many seconds since 1970."""
    return max(last + 1, int(seconds * 1000) << COUNTER_BITS)


def latest(seconds: float) -> int:
    """The last stamp that a clock may show while the wall clock shows so many seconds."""
    return (int((seconds + AHEAD_SECONDS) * 1000) + 1 << COUNTER_BITS) - 1


def end_of_millisecond(stamp: int) -> int:
    """The last stamp of the same millisecond: those who have seen a stamp count on in it."""
    return stamp | (1 << COUNTER_BITS) - 1


def moment(stamp: int) -> str:
    """The time of a stamp, as stored text."""
    try:
        return dates.stored(_EPOCH + timedelta(milliseconds=stamp >> COUNTER_BITS))
    except OverflowError:
        return dates.stored(datetime.max.replace(tzinfo=UTC))


def last_stamp(time: object, name: str, seconds: float) -> int:
    """The last stamp of a time or period as people write it: 2026-11-29, today, 7d (ago) …

    `seconds` is what the wall clock shows. Raises InvalidInput, in which `name` is the argument.
    """
    period = dates.named_period(time, name, now=_EPOCH + timedelta(seconds=seconds))
    if period.end > "9999-12-31T23":
        return LAST
    # The last microsecond; an age is a moment, which is its own end.
    end = datetime.fromisoformat(period.end).replace(tzinfo=UTC)
    return _stamp(end if period.start == period.end else end - timedelta(microseconds=1), 1) - 1


def first_stamp(time: object, name: str, seconds: float) -> int:
    """The first stamp of a time or period as people write it; see `last_stamp`."""
    period = dates.named_period(time, name, now=_EPOCH + timedelta(seconds=seconds))
    return _stamp(datetime.fromisoformat(period.start).replace(tzinfo=UTC), 0)


def _stamp(time: datetime, more: int) -> int:
    milliseconds = (time - _EPOCH) // timedelta(milliseconds=1) + more
    return min(max(0, milliseconds << COUNTER_BITS), LAST + 1)
