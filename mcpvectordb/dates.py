"""Parse ISO 8601 dates and times into the text in which times are stored: UTC, microseconds.

2025-11-29    2025-11-29T10:00    2025-11-29 10:00:00    2025-11-29T10:00:00.123Z
2025-11-29T10:00:00+02:00

A time without an offset is UTC. A date as the end of a period means its last microsecond. Stored
texts sort in the order of their times.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from mcpvectordb.errors import InvalidInput

_ISO_8601 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?P<time>[T "
    r"](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,9})?)?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?)?"
)
_DAY = timedelta(days=1) - timedelta(microseconds=1)
_DURATION = re.compile(r"(?P<number>[0-9]{1,6}(?:\.[0-9]{1,3})?) ?(?P<unit>[hdwmy])")
_UNITS = {  # a month and a year as ages go, not as calendars do
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "m": timedelta(days=30),
    "y": timedelta(days=365),
}


def now() -> str:
    """Return the current time as stored text."""
    return stored(datetime.now(UTC))


def stored(moment: datetime) -> str:
    """Return a time as the text that is stored and compared."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def parse(text: object, name: str, *, end: bool = False) -> str:
    """Return a date or time as stored text; with `end`, a date means its last microsecond.

    `name` is the argument's name in error messages.
    """
    match = _ISO_8601.fullmatch(text) if isinstance(text, str) else None
    try:
        if match is None:
            raise ValueError
        moment = datetime.fromisoformat(match[0])
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return stored(moment + _DAY if end and not match["time"] else moment)
    except (ValueError, OverflowError):
        # Also raised for dates that do not exist or are outside of the years 1 to 9999 in UTC.
        shown = (
            repr(text) if isinstance(text, str) and len(text) <= 80 else f"a {type(text).__name__}"
        )
        raise InvalidInput(
            f"{name} must be a date such as 2025-11-29, 2025-11-29T10:00:00Z or "
            f"2025-11-29T10:00:00+02:00, not {shown}"
        ) from None


def period(start: object, end: object) -> tuple[str | None, str | None]:
    """Return a period's first and last time, None where open; InvalidInput if it ends too early."""
    first = None if start is None else parse(start, "start")
    last = None if end is None else parse(end, "end", end=True)
    if first is not None and last is not None and first > last:
        raise InvalidInput(f"start ({start}) lies after end ({end})")
    return first, last


def duration(text: object, name: str) -> timedelta:
    """Return a duration such as 12h, 7d, 2w, 6m (months) or 1y; InvalidInput if it is none, or 0.

    `name` is the argument's name in error messages.
    """
    match = _DURATION.fullmatch(text.strip().lower()) if isinstance(text, str) else None
    if match and (length := float(match["number"]) * _UNITS[match["unit"]]):
        return length
    raise InvalidInput(f"{name} must be a duration such as 12h, 7d, 2w, 6m or 1y, not {text!r:.80}")
