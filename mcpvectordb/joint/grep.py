"""Lines that match a pattern, in the texts of documents and contexts; see `Database.grep`.

RE2 takes time linear in the text whatever the pattern, and refuses patterns that it cannot promise
this for. StoredTexts are read one after the other, so memory is bounded by the longest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import re2

from mcpvectordb.errors import InvalidInput, ReadTimeout, quoted
from mcpvectordb.joint.records import LineMatch, LineMatches
from mcpvectordb.joint.search import JointFilter
from mcpvectordb.joint.texts import StoredTexts
from mcpvectordb.metadata import storable
from mcpvectordb.storage import deadline
from mcpvectordb.storage.file import File

MAX_PATTERN = 1_000  # characters of a pattern: a longer one costs time and memory to compile
CHECKED = 1_000  # lines between two looks at the clock


def compiled(pattern: str, *, literal: bool, case_sensitive: bool) -> Any:
    """The pattern for `lines`; raises InvalidInput if it is no regular expression of RE2."""
    storable(pattern, "pattern", blank=False)
    if len(pattern) > MAX_PATTERN or "\n" in pattern:
        raise InvalidInput(f"pattern must be one line of at most {MAX_PATTERN} characters")
    options = re2.Options()
    options.never_nl, options.log_errors = True, False
    options.case_sensitive = case_sensitive
    expression = re2.escape(pattern) if literal else pattern
    try:
        return re2.compile(f"(?m){expression}".encode(), options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if error.args else "not a regular expression"
        raise InvalidInput(
            f"pattern {quoted(pattern)} cannot be used: {why}. It is read as RE2 does, without "
            "look-around and back-references; with literal=True it is looked for as it is"
        ) from None


def lines(pattern: Any, text: str) -> Iterator[tuple[int, str]]:
    """(number, line) of each line of a text that matches."""
    data = text.encode(errors="surrogatepass")
    number, counted, place = 1, 0, 0
    while place <= len(data) and (match := pattern.search(data, place)) is not None:
        start = data.rfind(b"\n", 0, match.start()) + 1
        end = data.find(b"\n", match.start())
        end = len(data) if end < 0 else end
        if start == len(data):  # an empty match behind the last line
            return
        number += data.count(b"\n", counted, start)
        counted, place = start, end + 1
        yield number, data[start:end].removesuffix(b"\r").decode(errors="replace")


def grep(
    file: File, texts: StoredTexts, pattern: Any, which: JointFilter, limit: int
) -> LineMatches:
    """The first `limit` lines that match, and how many there are."""
    found: list[LineMatch] = []
    total = searched = 0
    note = ""
    try:
        with file.reading() as sql:
            for each in texts.all(sql, which):
                deadline.check("reading texts")
                searched += 1
                item = None
                for number, line in lines(pattern, each.text):
                    if total < limit:
                        item = item or texts.item(sql, each)
                        found.append(LineMatch(item=item, line=number, text=line))
                    total += 1
                    if total % CHECKED == 0:
                        deadline.check("reading texts")
    except ReadTimeout as error:
        note = f"not all texts were read: {error}"
    return LineMatches(items=tuple(found), total=total, searched=searched, note=note)
