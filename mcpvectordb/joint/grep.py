"""Lines that match a pattern, in the texts of documents and memories; see `Database.grep`.

RE2 takes time linear in the text whatever the pattern, and refuses patterns that it cannot promise
this for. But a byte can cost as much as the pattern's program is long (where its DFA has too many
states, RE2 simulates the NFA), and nothing interrupts a search that has begun. So programs are
bounded, and a text is searched in pieces in which bytes times length of the program are, with a
look at the deadline between two of them. A piece ends with a line. A line that is longer than a
piece is searched in pieces that overlap by half: a match that is not longer than half a piece lies
whole in one of them; a longer one can be missed, of which the result's `note` tells.

StoredTexts are read one after the other, so memory is bounded by the longest.
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
MAX_PROGRAM = 30_000  # instructions, of which \pL{20} has 24,000
MEMORY = 4 * 1024 * 1024  # bytes for a program and its DFA: RE2 keeps the last 128 patterns

# Work is counted in instructions of the program times bytes of the text, 1 to 4 ns each where RE2
# simulates the NFA. BASE is what a byte costs besides, in instructions, where the states of the DFA
# do not fit into memory and are made again and again. All of it takes about a third of a second.
WORK = 60_000_000
BASE = 60


class LinePattern:
    """A compiled pattern of `size` instructions; `longest` is that of its matches, if it is known.

    `piece` is how many bytes are searched at once; `unsure` counts the lines in which a match may
    have been missed.
    """

    def __init__(self, expression: Any, size: int, longest: int | None) -> None:
        self._expression, self.piece = expression, WORK // (size + BASE)
        self.unsure, self._exact = 0, longest is not None and longest <= self.piece // 2

    def lines(self, text: str) -> Iterator[tuple[int, str]]:
        """(number, line) of each line of a text that matches."""
        data = text.encode(errors="surrogatepass")
        last = len(data) - data.endswith(b"\n")
        number, counted, place, end = 1, 0, 0, -1
        while data and place <= last:
            if place > end:  # the lines of the next piece, or one that is longer
                end = last if last - place <= self.piece else self._end(data, place)
            if (found := self._search(data, place, end)) is None:
                place = end + 1
                continue
            start = data.rfind(b"\n", 0, found) + 1
            number += data.count(b"\n", counted, start)
            line_end = data.find(b"\n", found, end)
            line_end = end if line_end < 0 else line_end
            counted, place = start, line_end + 1
            yield number, data[start:line_end].removesuffix(b"\r").decode(errors="replace")

    def _end(self, data: bytes, place: int) -> int:
        """Where the last line ends that fits into a piece, or else the first one."""
        end = data.rfind(b"\n", place, place + self.piece + 1)
        if end < 0:
            end = data.find(b"\n", place + self.piece + 1)
        return len(data) if end < 0 else end

    def _search(self, data: bytes, start: int, end: int) -> int | None:
        """Where the first match begins in some lines, or one long line, of a text."""
        place = start
        while True:
            deadline.check("searching texts")
            # What stands around the piece counts for ^, $ and \b.
            match = self._expression.search(data, place, min(end, place + self.piece))
            if match is not None:
                return int(match.start())
            if place + self.piece >= end:
                break
            place += self.piece // 2
        self.unsure += end - start > self.piece and not self._exact
        return None


def compiled(pattern: str, *, literal: bool, case_sensitive: bool) -> LinePattern:
    """The pattern to find lines by; raises InvalidInput if RE2 cannot run it, or not cheaply."""
    storable(pattern, "pattern", blank=False)
    if len(pattern) > MAX_PATTERN or "\n" in pattern:
        raise InvalidInput(f"pattern must be one line of at most {MAX_PATTERN} characters")
    options = re2.Options()
    options.never_nl, options.never_capture, options.log_errors = True, True, False
    options.case_sensitive, options.max_mem = case_sensitive, MEMORY
    expression = re2.escape(pattern) if literal else pattern
    try:
        made = re2.compile(f"(?m){expression}".encode(), options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if error.args else "not a regular expression"
        raise InvalidInput(
            f"pattern {quoted(pattern)} cannot be used: {why}. It is read as RE2 does, without "
            "look-around and back-references; with literal=True it is looked for as it is"
        ) from None
    size = max(made.programsize, made.reverseprogramsize)
    if size > MAX_PROGRAM:
        raise InvalidInput(
            f"pattern {quoted(pattern)} is too costly: it has {size:,} instructions, and at most "
            f"{MAX_PROGRAM:,} are run; use fewer repetitions, or smaller classes of characters"
        )
    # A letter may be longer in the other case: k has one byte, the sign for Kelvin three.
    return LinePattern(made, size, 3 * len(pattern.encode()) if literal else None)


def grep(
    file: File, texts: StoredTexts, pattern: LinePattern, which: JointFilter, limit: int
) -> LineMatches:
    """The first `limit` lines that match, and how many there are."""
    found: list[LineMatch] = []
    total = searched = 0
    notes = []
    try:
        with file.reading() as sql:
            for each in texts.all(sql, which):
                searched += 1
                item = None
                for number, line in pattern.lines(each.text):
                    if total < limit:
                        item = item or texts.item(sql, each)
                        found.append(LineMatch(item=item, line=number, text=line))
                    total += 1
    except ReadTimeout as error:
        notes.append(f"not all texts were read: {error}")
    if pattern.unsure:
        notes.append(
            f"{pattern.unsure:,} lines of more than {pattern.piece:,} bytes were searched in "
            f"pieces, so a match of more than {pattern.piece // 2:,} bytes in them may be missing"
        )
    return LineMatches(items=tuple(found), total=total, searched=searched, note="; ".join(notes))
