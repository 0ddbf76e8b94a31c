"""Where a quotation stands in documents and memories; see `Database.verify`.

The text in which it is said to stand is read first. Then all texts are looked through: once for the
quotation as it is, and, if none has it, once more for other spacing.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import apsw

from mcpvectordb.errors import InvalidInput, ReadTimeout
from mcpvectordb.joint.records import Quotation
from mcpvectordb.joint.search import EVERYTHING
from mcpvectordb.joint.texts import StoredText, StoredTexts
from mcpvectordb.metadata import storable
from mcpvectordb.storage import deadline
from mcpvectordb.text import quotation
from mcpvectordb.text.quotation import QuotationPlace

MAX_QUOTATION = 20_000  # characters: a longer one is no quotation any more, but a document


class StatedPlace(NamedTuple):
    """Where a quotation is said to stand: a text, and the part of it from `start` to `end`."""

    text: StoredText
    start: int
    end: int


def checked(text: str) -> str:
    """The quotation, if it is one; raises InvalidInput."""
    storable(text, "quotation", blank=False)
    if len(text) > MAX_QUOTATION:
        raise InvalidInput(
            f"quotation has {len(text):,} characters; at most {MAX_QUOTATION:,} are looked for"
        )
    if not quotation.letters(text):
        raise InvalidInput("quotation has no letters or digits to look for")
    return text


def line_offsets(text: str, first: int, count: int) -> tuple[int, int]:
    """Where some lines of a text begin and end; both are its end if it has no such lines."""
    start = 0
    for _ in range(max(1, first) - 1):
        if (start := text.find("\n", start) + 1) == 0:
            return len(text), len(text)
    end = start
    for _ in range(max(1, count)):
        if (end := text.find("\n", end) + 1) == 0:
            return start, len(text)
    return start, end


class QuotationSearch:
    """Looks for one quotation in the texts of a file."""

    def __init__(self, sql: apsw.Connection, texts: StoredTexts, text: str) -> None:
        self._sql, self._texts, self._text = sql, texts, text
        self._searched = 0

    def verify(self, stated: StatedPlace | None) -> Quotation:
        """Where the quotation stands, if anywhere."""
        found, note = None, ""
        try:
            if stated is not None:
                self._searched = 1
                place, there = _place_in(stated, self._text)
                if place is not None:
                    return self._found(stated.text, place, there)
            found = self._anywhere()
        except ReadTimeout as error:
            note = f"not all texts were read: {error}"
        if found is not None:
            return self._found(*found, stated is None)
        if stated is None:
            return Quotation(status="absent", searched=self._searched, note=note)
        return Quotation(
            status="absent",
            item=self._texts.item(self._sql, stated.text),
            text_sha256=_sha256(stated.text),
            searched=self._searched,
            note=note,
        )

    def _anywhere(self) -> tuple[StoredText, QuotationPlace] | None:
        """The first text that has the quotation as it is, or else with other spacing."""
        letters = quotation.letters(self._text)
        for exact in (True, False):
            self._searched = 0
            for each in self._texts.all(self._sql, EVERYTHING):
                _check()
                self._searched += 1
                if exact and self._text not in each.text:
                    continue
                if not exact and letters not in quotation.letters(each.text, _check):
                    continue
                if (place := quotation.find(each.text, self._text, _check)) is not None:
                    return each, place
        return None

    def _found(self, text: StoredText, place: QuotationPlace, there: bool) -> Quotation:
        first_line = text.text.count("\n", 0, place.start) + 1
        return Quotation(
            status="elsewhere" if not there else "exact" if place.exact else "spacing",
            exact=place.exact,
            item=self._texts.item(self._sql, text),
            start=place.start,
            end=place.end,
            first_line=first_line,
            last_line=first_line + text.text.count("\n", place.start, place.end),
            page=self._texts.page(self._sql, text, place.start),
            text=text.text[place.start : place.end],
            text_sha256=_sha256(text),
            searched=self._searched,
        )


def _place_in(stated: StatedPlace, text: str) -> tuple[QuotationPlace | None, bool]:
    """A place of the quotation in the text that was named, and whether it is in the part that was.

    The first one in that part, or else the first one.
    """
    first = None
    for place in quotation.places(stated.text.text, text, _check):
        if place.start < stated.end and place.end > stated.start:
            return place, True
        first = first or place
    return first, False


def _check() -> None:
    deadline.check("looking for the quotation")


def _sha256(text: StoredText) -> str:
    return hashlib.sha256(text.text.encode()).hexdigest()
