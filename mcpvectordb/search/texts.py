"""The whole texts of documents and memories, searched for a pattern or a quotation.

Texts are read one after the other, so memory is bounded by the longest.

Lines that match a pattern (`Database.grep`): RE2 takes time linear in the text whatever the
pattern, and refuses patterns that it cannot promise this for. But a byte can cost as much as the
pattern's program is long (where its DFA has too many states, RE2 simulates the NFA), and nothing
interrupts a search that has begun. So programs are bounded, and a text is searched in pieces in
which bytes times length of the program are, with a look at the deadline between two of them. A
piece ends with a line. A line that is longer than a piece is searched in pieces that overlap by
half: a match that is not longer than half a piece lies whole in one of them; a longer one can be
missed, of which the result's `note` tells.

Quotations (`Database.verify`): the text in which one is said to stand is read first. Then all texts
are looked through: once for the quotation as it is, and, if none has it, once more for other
spacing, then for other case. Two texts are the same but for spacing if they are equal after the
same folding: white space becomes one space, hyphens between letters (also those at the end of a
line, with the line end) go, and the forms of quotation marks, dashes and ligatures become one.
Words are never changed, so a quotation with another word is not found. Last, both are compared in
small letters.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import re2

from mcpvectordb.documents import rows as document_rows
from mcpvectordb.documents.shelf import Documents
from mcpvectordb.errors import InvalidInput, NotFound, ReadTimeout, quoted
from mcpvectordb.index.resident import selected
from mcpvectordb.memories import rows as memory_rows
from mcpvectordb.memories.memory import Memory
from mcpvectordb.metadata import storable
from mcpvectordb.projects.shelf import ProjectScope
from mcpvectordb.records import Document, Place
from mcpvectordb.search.both import Filters, checked_filters
from mcpvectordb.search.records import LineMatch, LineMatches, Quotation
from mcpvectordb.storage import deadline
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.store import OpenStore

MAX_PATTERN = 1_000  # characters of a pattern: a longer one costs time and memory to compile
MAX_PROGRAM = 30_000  # instructions, of which \pL{20} has 24,000
MEMORY = 4 * 1024 * 1024  # bytes for a program and its DFA: RE2 keeps the last 128 patterns

# Work is counted in instructions of the program times bytes of the text, 1 to 4 ns each where RE2
# simulates the NFA. BASE is what a byte costs besides, in instructions, where the states of the DFA
# do not fit into memory and are made again and again. All of it takes about a third of a second.
WORK = 60_000_000
BASE = 60

MAX_QUOTATION = 20_000  # characters: a longer one is no quotation any more, but a document
SLICE = 100_000  # characters, or matches, between two looks at the deadline

_HYPHENS = "\u002d\u00ad\u2010\u2011"
_FOLDED = re.compile(
    rf"(?P<space>\s+)"
    rf"|(?P<hyphen>(?<=[^\W\d_])[{_HYPHENS}]\s*(?=[^\W\d_]))"
    r"|(?P<other>[^\x00-\x7f])"
)
_SAME = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2012\u2013\u2014\u2015\u2212\u2010\u2011", "-"),
        "\u2026": "...",
        "\u00ad": "",
        "\u200b": "",
        "\ufeff": "",
    }
)


class StoredText(NamedTuple):
    """A text, and the key of its document or the id of its memory."""

    is_document: bool
    key: int
    text: str


def stored_texts(sql: Sql, store: OpenStore, which: Filters) -> Iterator[StoredText]:
    """All texts that match the filters: documents in the order of their ingest, memories."""
    dialect = sql.dialect
    if "documents" in which:
        chosen = document_rows.document_filter(**which["documents"], dialect=dialect)
        documents = f"SELECT d.key FROM published_documents d WHERE {chosen.condition}"
        keys = selected(sql, documents, chosen.bindings)
        for key, text in store.documents.texts(sql, keys):
            yield StoredText(True, key, text)
    if "memories" in which:
        given = dict(which["memories"])
        then = memory_rows.then(sql, given.pop("as_of"))
        allowed = memory_rows.compile_filter(**given, **then, dialect=dialect)
        memories = f"SELECT x.id FROM contexts x WHERE {allowed.condition}"
        ids = selected(sql, memories, allowed.bindings)
        for id, text in store.memories.texts(sql, ids):
            yield StoredText(False, id, text)


def named_text(
    sql: Sql, store: OpenStore, documents: Documents, document: str | None, memory: int | None
) -> tuple[StoredText, Place | None]:
    """The text of a document by its name, with its place, or of a memory; raises NotFound.

    One of both must be given.
    """
    if document is not None and memory is None:
        place = documents.lookup(document)
        key = document_rows.row(sql, place.document.id)[0]
        text = "".join(text for _, text in store.documents.texts(sql, [key]))
        return StoredText(True, key, text), place
    if memory is None or document is not None:
        raise InvalidInput("say which one: either a document or a context")
    if not (found := list(store.memories.texts(sql, [memory]))):
        raise NotFound(f"no memory has the id {memory}")
    return StoredText(False, *found[0]), None


def _item(sql: Sql, store: OpenStore, found: StoredText) -> Document | Memory:
    """The document or memory that has a text."""
    if found.is_document:
        return document_rows.by_key(sql, found.key)
    [memory] = memory_rows.by_ids(sql, store.memories, [found.key], images=False).values()
    return memory


# Lines by a pattern.


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
                end = last
                if last - place > self.piece:
                    end = data.rfind(b"\n", place, place + self.piece + 1)
                    end = data.find(b"\n", place + self.piece + 1) if end < 0 else end
                    end = len(data) if end < 0 else end
            if (found := self._search(data, place, end)) is None:
                place = end + 1
                continue
            start = data.rfind(b"\n", 0, found) + 1
            number += data.count(b"\n", counted, start)
            line_end = data.find(b"\n", found, end)
            line_end = end if line_end < 0 else line_end
            counted, place = start, line_end + 1
            yield number, data[start:line_end].removesuffix(b"\r").decode(errors="replace")

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
        why = why.replace("(?m)", "", 1)  # which is ours
        raise InvalidInput(
            f"pattern {quoted(pattern)} cannot be used: {why}. It is read as RE2 does, without "
            "look-around and back-references; a literal search looks for it as it is"
        ) from None
    size = max(made.programsize, made.reverseprogramsize)
    if size > MAX_PROGRAM:
        raise InvalidInput(
            f"pattern {quoted(pattern)} is too costly: it has {size:,} instructions, and at most "
            f"{MAX_PROGRAM:,} are run; use fewer repetitions, or smaller classes of characters"
        )
    # A letter may be longer in the other case: k has one byte, the sign for Kelvin three.
    return LinePattern(made, size, 3 * len(pattern.encode()) if literal else None)


def grep(store: OpenStore, pattern: LinePattern, which: Filters, limit: int) -> LineMatches:
    """The first `limit` lines that match, and how many there are."""
    found: list[LineMatch] = []
    total = searched = 0
    notes = []
    try:
        with store.file.reading() as sql:
            for each in stored_texts(sql, store, which):
                searched += 1
                item = None
                for number, line in pattern.lines(each.text):
                    if total < limit:
                        item = item or _item(sql, store, each)
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


# Quotations.


class StatedPlace(NamedTuple):
    """Where a quotation is said to stand: a text, and the part of it from `start` to `end`."""

    text: StoredText
    start: int
    end: int


def checked_quotation(text: str) -> str:
    """The quotation, if it is one; raises InvalidInput."""
    storable(text, "quotation", blank=False)
    if len(text) > MAX_QUOTATION:
        raise InvalidInput(
            f"quotation has {len(text):,} characters; at most {MAX_QUOTATION:,} are looked for"
        )
    if not letters(text):
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


def stated_place(
    sql: Sql,
    store: OpenStore,
    documents: Documents,
    document: str | None,
    memory: int | None,
    line: int | None,
    page: int | None,
) -> StatedPlace | None:
    """Where a quotation is said to stand, as offsets of a text; None if nothing is said."""
    if document is None and memory is None:
        if line is not None or page is not None:
            raise InvalidInput("a line or a page needs the document that it is of")
        return None
    text, place = named_text(sql, store, documents, document, memory)
    first, count = line, 1
    if place is not None and place.line is not None and line is None:
        first, count = place.line, place.lines or 1
    if place is not None and page is not None:
        begin, end = documents.page_lines(place.document.id, page)
        first, count = begin, end - begin + 1
    if first is None:
        return StatedPlace(text, 0, len(text.text))
    return StatedPlace(text, *line_offsets(text.text, first, count))


def verify(
    sql: Sql,
    store: OpenStore,
    quotation: str,
    stated: StatedPlace | None,
    project: ProjectScope | None = None,
) -> Quotation:
    """Where a quotation stands, if anywhere; `stated` is where it is said to stand.

    Elsewhere it is looked for in the texts of a project, or in all.
    """
    every = checked_filters(project=project, as_of=memory_rows.ANY_TIME)
    found: tuple[StoredText, QuotationPlace, bool] | None = None
    searched, note = 0, ""
    try:
        if stated is not None:
            searched, found = 1, _in_stated(stated, quotation)
        for number, text, place in () if found else _anywhere(sql, store, quotation, every):
            searched = number
            if place is not None:
                found = text, place, stated is None
                break
    except ReadTimeout as error:
        note = f"not all texts were read: {error}"
    if found is None:
        return Quotation(
            status="absent",
            item=_item(sql, store, stated.text) if stated else None,
            text_sha256=_sha256(stated.text) if stated else "",
            searched=searched,
            note=note,
        )
    text, place, there = found
    page: int | None = None
    if text.is_document:
        page = sql.execute(
            "SELECT (SELECT page FROM document_chunks WHERE owner = ? AND tile_start <= ? "
            "ORDER BY position DESC LIMIT 1)",
            (text.key, place.start),
        ).get
    first_line = text.text.count("\n", 0, place.start) + 1
    status: Literal["exact", "spacing", "case"] = "spacing" if place.case else "case"
    return Quotation(
        status="elsewhere" if not there else "exact" if place.exact else status,
        exact=place.exact,
        case=place.case,
        item=_item(sql, store, text),
        start=place.start,
        end=place.end,
        first_line=first_line,
        last_line=first_line + text.text.count("\n", place.start, place.end),
        page=page,
        text=text.text[place.start : place.end],
        text_sha256=_sha256(text),
        searched=searched,
    )


def _anywhere(
    sql: Sql, store: OpenStore, quotation: str, which: Filters
) -> Iterator[tuple[int, StoredText, QuotationPlace | None]]:
    """Each text with its number, read once for the quotation as it is, then for one with other
    spacing, then in other case.
    """
    for exact, case in ((True, True), (False, True), (False, False)):
        for number, each in enumerate(stored_texts(sql, store, which), 1):
            _check()
            may_have = not exact or quotation in each.text
            yield number, each, find(each.text, quotation, case=case) if may_have else None


def _in_stated(
    stated: StatedPlace, quotation: str
) -> tuple[StoredText, QuotationPlace, bool] | None:
    """The text that was named, the first place of the quotation in the part that was, or else
    anywhere in it, and whether it is in that part.
    """
    first = None
    for case in (True, False):
        for place in places(stated.text.text, quotation, case=case):
            if place.start < stated.end and place.end > stated.start:
                return stated.text, place, True
            first = first or place
    return (stated.text, first, False) if first else None


def _check() -> None:
    deadline.check("looking for the quotation")


def _sha256(text: StoredText) -> str:
    return hashlib.sha256(text.text.encode()).hexdigest()


class QuotationPlace(NamedTuple):
    """Where a quotation stands in a text: whether character by character, and in the same case."""

    start: int
    end: int
    exact: bool
    case: bool = True


def find(text: str, quotation: str, *, case: bool = True) -> QuotationPlace | None:
    """The first place of a quotation in a text, exact or with other spacing; None without one."""
    return next(places(text, quotation, case=case), None)


def places(text: str, quotation: str, *, case: bool = True) -> Iterator[QuotationPlace]:
    """All places of a quotation in a text: the exact ones, or else those with other spacing.

    Without `case`, those that differ in the case of letters, too.
    """
    found = False
    for start in _starts(text, quotation) if case else ():
        found = True
        yield QuotationPlace(start, start + len(quotation), True)
    same = str if case else _small
    wanted = same(fold(quotation)[0].strip())
    if found or not wanted or same(letters(quotation)) not in same(letters(text)):
        return
    folded, offsets = fold(text)
    for start in _starts(same(folded), wanted):
        yield QuotationPlace(offsets[start], offsets[start + len(wanted) - 1] + 1, False, case)


def _small(text: str) -> str:
    """A text in small letters, as long as it was: a letter that would become two stays."""
    small = text.lower()
    if len(small) == len(text):
        return small
    return "".join(low if len(low := each.lower()) == 1 else each for each in text)


def _starts(text: str, part: str) -> Iterator[int]:
    start = text.find(part)
    while start >= 0:
        _check()
        yield start
        start = text.find(part, start + 1)


def fold(text: str) -> tuple[str, list[int]]:
    """A text with spacing, hyphens and marks made the same, and the offset of each character."""
    parts: list[str] = []
    offsets: list[int] = []
    place = 0
    for count, match in enumerate(_FOLDED.finditer(text)):
        if count % SLICE == 0:
            _check()
        parts.append(text[place : match.start()])
        offsets += range(place, match.start())
        place = match.end()
        if match["space"]:
            part = " "
        elif match["hyphen"]:
            part = ""
        else:
            part = unicodedata.normalize("NFKC", match[0].translate(_SAME))
        parts.append(part)
        offsets += [match.start()] * len(part)
    parts.append(text[place:])
    offsets += range(place, len(text))
    return "".join(parts), offsets


class _Letters(dict[int, str | None]):
    """For `str.translate`: what is left of each character without spacing, hyphens and dashes."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        same = unicodedata.normalize("NFKC", character.translate(_SAME))
        self[code] = re.sub(r"[\s-]+", "", same) or None
        return self[code]


_LETTERS = _Letters()


def letters(text: str) -> str:
    """A text without spacing, hyphens and dashes, its marks made the same, fast.

    If a quotation stands in a text with other spacing, its letters stand in those of the text; the
    reverse need not hold.
    """
    parts = []
    for start in range(0, len(text), SLICE):
        _check()
        parts.append(text[start : start + SLICE].translate(_LETTERS))
    return "".join(parts)
