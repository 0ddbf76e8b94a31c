"""Dates as people and programs write them, as the text that times are stored in: UTC, to the
microsecond.

2025-11-29    2025-11-29T10:00    2025-11-29 10:00:00    2025-11-29T10:00:00.123Z
2025-11-29T10:00:00+02:00

A time without an offset is UTC. A day as the end of a period means its last microsecond. Texts made
here sort as the times they stand for.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from mcpvectordb.errors import InvalidInput

_FORM = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?P<time>[T "
    r"](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,9})?)?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?)?"
)
_DAY = timedelta(days=1) - timedelta(microseconds=1)


def now() -> str:
    """This moment, as it is stored."""
    return stored(datetime.now(UTC))


def stored(moment: datetime) -> str:
    """A moment as the text that is stored and compared."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def parse(text: object, name: str, *, end: bool = False) -> str:
    """A date or time as it is stored; `name` is what an error calls it, `end` takes a day for its
    last microsecond.
    """
    form = _FORM.fullmatch(text) if isinstance(text, str) else None
    try:
        if form is None:
            raise ValueError
        moment = datetime.fromisoformat(form[0])
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return stored(moment + _DAY if end and not form["time"] else moment)
    except (
        ValueError,
        OverflowError,
    ):  # a day that no calendar has, or that lies outside of years 1 to 9999 in UTC
        shown = (
            repr(text) if isinstance(text, str) and len(text) <= 80 else f"a {type(text).__name__}"
        )
        raise InvalidInput(
            f"{name} must be a date such as 2025-11-29, 2025-11-29T10:00:00Z or "
            f"2025-11-29T10:00:00+02:00, not {shown}"
        ) from None


def period(start: object, end: object) -> tuple[str | None, str | None]:
    """The first and the last moment of a period, None where it is open; InvalidInput when it ends
    before it starts.
    """
    first = None if start is None else parse(start, "start")
    last = None if end is None else parse(end, "end", end=True)
    if first is not None and last is not None and first > last:
        raise InvalidInput(f"start ({start}) lies after end ({end})")
    return first, last
