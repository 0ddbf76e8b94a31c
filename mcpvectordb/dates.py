"""Parse ISO 8601 dates and times into the text in which times are stored: UTC, microseconds.

2025-11-29    2025-11-29T10:00    2025-11-29 10:00:00    2025-11-29T10:00:00.123Z
2025-11-29T10:00:00+02:00

A time without an offset is UTC. A date as the end of a period means its last microsecond. Stored
texts sort in the order of their times.

Filters also take 2025, 2025-11, today, yesterday and ages such as 7d; see `named_period`. Questions
name times in words ("on 7 May 2023", "last May", "two weeks ago"): see `spoken_period`.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from mcpvectordb.errors import InvalidInput

_ISO_8601 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?P<time>[T "
    r"](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,9})?)?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?)?"
)
_MONTH = re.compile(r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{2}))?")
_DAYS_AGO = {"today": 0, "yesterday": 1}
_AFTER_ALL_TIMES = "9999-12-31T24"
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


def own(value: object) -> str | None:
    """Return the date that a document gives itself (metadata `date`) as stored text, else None.

    A year, also as a number, and a month mean their first day. PostgreSQL reads the same
    (`postgres/connection.py`), hence no years in which a time might be none in UTC.
    """
    text = str(value) if isinstance(value, str | int) else ""
    text = f"{text}-01-01"[:10] if _MONTH.fullmatch(text) else text
    try:
        return None if text[:4] in ("0001", "9999") else parse(text, "date")
    except InvalidInput:
        return None


def check_stored(text: object) -> None:
    """Raise InvalidInput unless a text is a time as it is stored: it may be of another file."""
    if parse(text, "a time") != text:
        raise InvalidInput(f"a time is not as it is stored: {text}")


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


class Period(NamedTuple):
    """Two texts between which the stored times of a period sort: `start` included, `end` not."""

    start: str
    end: str


def named_period(text: object, name: str, *, now: datetime | None = None) -> Period:
    """Return the period that a text names: 2025, 2025-11, 2025-11-29, 2025-11-29T10:00, today.

    A time is as long as its last digit is exact: a minute, a second, a millisecond. Days, months
    and years are those of UTC. An age such as 7d is the moment that long before `now`, a period
    without length. InvalidInput for any other text; `name` is the argument's name in its message.
    """
    now = now or datetime.now(UTC)
    asked = text.strip() if isinstance(text, str) else ""
    try:
        if asked.lower() in _DAYS_AGO:
            midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
            first = midnight - timedelta(days=_DAYS_AGO[asked.lower()])
            length = timedelta(days=1)
        elif match := _MONTH.fullmatch(asked):
            import calendar

            year, month = int(match["year"]), int(match["month"] or 1)
            first = datetime(year, month, 1, tzinfo=UTC)
            of_year = 365 + calendar.isleap(year)
            length = timedelta(calendar.monthrange(year, month)[1] if match["month"] else of_year)
        elif _DURATION.fullmatch(asked.lower()):
            first = now - min(duration(asked, name), now - datetime.min.replace(tzinfo=UTC))
            length = timedelta()
        else:
            first = datetime.fromisoformat(parse(asked, name))
            length = _precision(asked)
    except (ValueError, OverflowError):  # InvalidInput is a ValueError
        raise InvalidInput(
            f"{name} must be a date or time such as 2025-11-29, 2025-11, 2025 or "
            "2025-11-29T10:00:00Z, today, yesterday, or an age such as 7d, "
            f"not {repr(text) if len(repr(text)) <= 80 else f'a long {type(text).__name__}'}"
        ) from None
    try:
        return Period(_sortable(first), _sortable(first + length))
    except OverflowError:
        return Period(_sortable(first), _AFTER_ALL_TIMES)


def moment(text: object, name: str, *, end: bool = False, now: datetime | None = None) -> str:
    """Return the first moment of the period that a text names, or its `end`, as stored text.

    The end is its last microsecond; for the texts see `named_period`.
    """
    period = named_period(text, name, now=now)
    if not end or period.start == period.end:
        return stored(datetime.fromisoformat(period.start).replace(tzinfo=UTC))
    if period.end == _AFTER_ALL_TIMES:
        return stored(datetime.max.replace(tzinfo=UTC))
    return before(stored(datetime.fromisoformat(period.end).replace(tzinfo=UTC)))


def before(time: str) -> str:
    """Return the stored time a microsecond before another one; the first of all has none."""
    try:
        return stored(datetime.fromisoformat(time) - timedelta(microseconds=1))
    except OverflowError:
        return time


def _precision(text: str) -> timedelta:
    """How long the period is that a date or time names."""
    time = re.split("[T ]", text)[1:]
    if not time:
        return timedelta(days=1)
    digits = re.split("[Z+-]", time[0])[0]
    if digits.count(":") == 1:
        return timedelta(minutes=1)
    fraction = digits.partition(".")[2][:6]
    return timedelta(microseconds=10 ** (6 - len(fraction)))


def _sortable(moment: datetime) -> str:
    """The beginning that all stored texts of a time share.

    A text with or without a fraction of a second sorts after it, one of any earlier time before.
    """
    text = moment.astimezone(UTC).replace(tzinfo=None).isoformat()
    return text.rstrip("0") if "." in text else text


# Times as people name them in a sentence.

_MONTHS = (
    "january february march april may june july august september october november december".split()
)
_ANY_MONTH = rf"(?P<month>{'|'.join(f'{name}|{name[:3]}' for name in _MONTHS)})\.?"
_ANY_YEAR = r"(?P<year>(?:19|20)[0-9]{2})\b"
_ANY_DAY = r"(?P<day>[0-3]?[0-9])(?:st|nd|rd|th)?\b"
_SPOKEN_DAYS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?P<year>[0-9]{4})-(?P<number>[0-9]{2})-(?P<day>[0-9]{2})",
        rf"\b{_ANY_DAY}(?: of)? {_ANY_MONTH}\b,?(?: ?{_ANY_YEAR})?",
        rf"\b{_ANY_MONTH} {_ANY_DAY},?(?: ?{_ANY_YEAR})?",
    )
]
_SPOKEN_PERIODS = [  # "may" alone is a verb
    *_SPOKEN_DAYS,
    re.compile(rf"\b{_ANY_MONTH},? {_ANY_YEAR}", re.IGNORECASE),
    re.compile(
        rf"\b(?:in|during|since|until|by|from|of|last|this|early|mid|late)[ -]{_ANY_MONTH}\b",
        re.IGNORECASE,
    ),
    re.compile(rf"\b{_ANY_YEAR}"),
]
_RELATIVE_DAY = re.compile(r"\b(today|yesterday)\b", re.IGNORECASE)
_RELATIVE_PERIOD = re.compile(r"\b(?P<which>last|this) (?P<unit>week|month|year)\b", re.IGNORECASE)
_NUMBERS = {"a": 1, "an": 1} | {
    word: number
    for number, word in enumerate("one two three four five six seven eight nine ten".split(), 1)
}
_AGO = re.compile(
    rf"\b(?P<number>[0-9]{{1,3}}|{'|'.join(_NUMBERS)}) (?P<unit>day|week|month|year)s? ago\b",
    re.IGNORECASE,
)
_DAYS_OF = {"day": 1, "week": 7, "month": 30, "year": 365}
_TOLD_LATER = 28  # days after a time for which people still tell of it
_TOLD_LESS = 7  # days after which they do so half as often


class SpokenPeriod(NamedTuple):
    """The days that a sentence names; with `yearly` it does not say of which year."""

    first: date
    last: date
    yearly: bool = False

    def closeness(self, day: date) -> float:
        """1 for a day of the period, less in the weeks after it, when one tells of it; 0 else."""
        years = (day.year, day.year - 1) if self.yearly else (self.first.year,)
        late = [
            max(0, (day - _in_year(self.last, self.last.year - self.first.year + year)).days)
            for year in years
            if day >= _in_year(self.first, year)
        ]
        latest = min(late, default=_TOLD_LATER + 1)
        return 0.0 if latest > _TOLD_LATER else float(0.5 ** (latest / _TOLD_LESS))


def spoken_period(text: str, today: date) -> SpokenPeriod | None:
    """Return the time that a sentence names, such as "on 7 May", "in 2023" or "two weeks ago"."""
    for pattern in _SPOKEN_PERIODS:
        for match in pattern.finditer(text):
            if found := _spoken(**match.groupdict()):
                return found
    try:
        return _relative_period(text, today)
    except (ValueError, OverflowError):  # before the year 1
        return None


def spoken_day(text: str) -> date | None:
    """Return the first day that a text names with its year, such as 2023-05-08 or 8 May, 2023."""
    for pattern in _SPOKEN_DAYS:
        for match in pattern.finditer(text):
            found = _spoken(**match.groupdict())
            if found and not found.yearly:
                return found.first
    return None


def _spoken(
    year: str | None = None,
    month: str | None = None,
    day: str | None = None,
    number: str | None = None,
) -> SpokenPeriod | None:
    """The period of parts of a date; None if there is no such day."""
    which = int(year or 2000)  # a year that has a 29 February
    place = int(number) if number else 0
    if month:
        place = next(at for at, name in enumerate(_MONTHS, 1) if name[:3] == month[:3].lower())
    try:
        first = date(which, place or 1, int(day or 1))
        if day:
            return SpokenPeriod(first, first, not year)
        return SpokenPeriod(first, _last_day(first, place), not year)
    except (ValueError, OverflowError):
        return None


def _last_day(first: date, month: int) -> date:
    """The last day of the month that begins with `first`, or without one of the year."""
    if not month or month == 12:
        return date(first.year, 12, 31)
    return date(first.year, month + 1, 1) - timedelta(days=1)


def _relative_period(text: str, today: date) -> SpokenPeriod | None:
    if match := _RELATIVE_DAY.search(text):
        day = today - timedelta(days=_DAYS_AGO[match[1].lower()])
        return SpokenPeriod(day, day)
    if match := _AGO.search(text):
        number, days = match["number"].lower(), _DAYS_OF[match["unit"].lower()]
        count = _NUMBERS.get(number) or int(number)
        day, around = today - timedelta(days=count * days), timedelta(days=days // 2)
        return SpokenPeriod(day - around, day + around)
    if match := _RELATIVE_PERIOD.search(text):
        unit, back = match["unit"].lower(), match["which"].lower() == "last"
        if unit == "week":
            monday = today - timedelta(days=today.weekday() + 7 * back)
            return SpokenPeriod(monday, monday + timedelta(days=6))
        if unit == "year":
            return _spoken(year=f"{today.year - back:04}")
        month = today.replace(day=1) - timedelta(days=int(back))
        return SpokenPeriod(month.replace(day=1), _last_day(month.replace(day=1), month.month))
    return None


def _in_year(day: date, year: int) -> date:
    """The same day in another year; 28 February where there is no 29."""
    try:
        return day.replace(year=max(1, min(9999, year)))
    except ValueError:
        return day.replace(year=max(1, min(9999, year)), day=28)
