"""The rows of a PDF page, and what all pages repeat.

A row is a line with its style, its words and their places. Pages are turned so that most of their
text runs from left to right, whatever the rotation of the page or of its text. Text in other
directions, such as a stamp in the margin or a watermark, is kept apart: it takes no part in the
layout.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import pymupdf

MONOSPACED, BOLD = 8, 16
STRAIGHT = 0.2
"""Greatest sine of the angle at which text still counts as parallel to an edge of the page."""

# Fonts that TeX embeds do not say that they are monospaced.
_MONO = re.compile(
    r"mono(?!type)|nimbusmon|courier|consol|typewriter|cmtt|sftt|menlo|sourcecode", re.IGNORECASE
)


_RIGHT_TO_LEFT = re.compile(r"[\u0590-\u065f\u066a-\u06ef\u06fa-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
# Fonts whose ligature of lam and alef is mapped to both in the order of the page: no word of Arabic
# has two alefs in succession.
_TURNED_LIGATURE = re.compile(r"ا([اأإآ])ل")
HYPHENS = ("-", "\u2010", "\u00ad")


class Box(NamedTuple):
    """A rectangle in points; y grows downwards."""

    x0: float
    y0: float
    x1: float
    y1: float

    def holds(self, other: Box) -> bool:
        """Whether the centre of the other box is inside this one."""
        x, y = (other.x0 + other.x1) / 2, (other.y0 + other.y1) / 2
        return self.x0 <= x <= self.x1 and self.y0 <= y <= self.y1

    def beside(self, other: Box) -> bool:
        """Whether both are on one line: they share most of the lower one's height."""
        shared = min(self.y1, other.y1) - max(self.y0, other.y0)
        return shared > 0.6 * min(self.y1 - self.y0, other.y1 - other.y0)


class PlacedWord(NamedTuple):
    """A word and where it is."""

    box: Box
    text: str


class TextRow(NamedTuple):
    """One line of text with the style of most of its characters, or a table in Markdown.

    `block` is the number of the block of the file that it belongs to.
    """

    box: Box
    text: str
    size: float = 0.0
    bold: bool = False
    mono: bool = False
    block: int = -1
    words: tuple[PlacedWord, ...] = ()
    table: str = ""

    def part(self, words: Sequence[PlacedWord]) -> TextRow:
        """Return the row with only some of its words."""
        if len(words) == len(self.words):
            return self
        if _RIGHT_TO_LEFT.search(self.text):
            words = logical(words)
            return self._replace(
                box=around(each.box for each in words), text=_spaced(words), words=tuple(words)
            )
        text, box = " ".join(word.text for word in words), around(word.box for word in words)
        return self._replace(box=box, text=text, words=tuple(words))


Turn = Callable[[Box], Box]


class PageText(NamedTuple):
    """The rows of a page in the order of the file, and those in another direction (`aside`).

    `turn` is what was applied to all boxes, if anything; `height` is that of the turned page.
    """

    rows: list[TextRow]
    aside: list[TextRow]
    height: float
    turn: Turn | None


TextBlock = list[TextRow]
"""Rows that belong together."""


def around(boxes: Iterable[Box]) -> Box:
    """The smallest box that contains all of these."""
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return Box(min(x0), min(y0), max(x1), max(y1))


def page_text(page: Any) -> PageText:
    """Return the rows of a pymupdf page, ligatures as letters."""
    flags = pymupdf.TEXT_PRESERVE_WHITESPACE | pymupdf.TEXT_MEDIABOX_CLIP
    found = page.get_textpage(flags=flags)
    words: dict[tuple[int, int], list[PlacedWord]] = {}
    for x0, y0, x1, y1, text, block, line, _ in found.extractWORDS():
        words.setdefault((block, line), []).append(PlacedWord(Box(x0, y0, x1, y1), text))
    directed = [
        (_direction(line["dir"]), row)
        for block in found.extractDICT()["blocks"]
        for at, line in enumerate(block.get("lines", ()))
        if (row := _row(line, block["number"], words.get((block["number"], at), ())))
    ]
    width, height = page.rect.width, page.rect.height
    if page.rotation % 180:  # boxes are those of the page before its rotation
        width, height = height, width
    letters = Counter({"right": 1})
    for direction, row in directed:
        letters[direction] += len(row.text)
    most = letters.most_common(1)[0][0]
    turns: dict[str, Turn] = {  # of boxes, after which text of this direction runs to the right
        "up": lambda box: Box(height - box.y1, box.x0, height - box.y0, box.x1),
        "down": lambda box: Box(box.y0, width - box.x1, box.y1, width - box.x0),
        "left": lambda box: Box(width - box.x1, height - box.y1, width - box.x0, height - box.y0),
    }
    if turn := turns.get(most):
        for at, (direction, row) in enumerate(directed):
            turned = tuple(PlacedWord(turn(word.box), word.text) for word in row.words)
            directed[at] = direction, row._replace(box=turn(row.box), words=turned)
    rows = [row for direction, row in directed if direction == most]
    others = (row for direction, row in directed if direction != most)
    aside = [row._replace(size=0.0, bold=False, mono=False) for row in others]  # no heading or code
    return PageText(rows, aside, width if most in ("up", "down") else height, turn)


def _row(line: dict[str, Any], block: int, words: Sequence[PlacedWord]) -> TextRow | None:
    text, size, longest, letters, mono, bold = "", 0.0, 0, 0, 0, 0
    for span in line["spans"]:
        text += span["text"]
        length = len(span["text"].strip())
        letters += length
        mono += length if span["flags"] & MONOSPACED or _MONO.search(span["font"]) else 0
        bold += length if span["flags"] & BOLD else 0
        if length > longest:
            longest, size = length, span["size"]
    if not letters or not words:
        return None
    style = (round(size * 2) / 2, bold > 0.8 * letters, mono > 0.8 * letters)
    box = around(word.box for word in words)
    if _RIGHT_TO_LEFT.search(text):
        words = logical(words)
        text = _spaced(words)
    return TextRow(box, text.strip(), *style, block, tuple(words))


def logical(words: Sequence[PlacedWord]) -> list[PlacedWord]:
    """Return the words of one line in the order in which they are read.

    In Hebrew and Arabic lines they follow each other from right to left, but for runs of numbers
    and of words in other scripts; their letters are in the right order already. Presentation forms
    of letters, and ligatures, become letters.
    """
    plain = [
        word._replace(text=_TURNED_LIGATURE.sub(r"ال\1", unicodedata.normalize("NFKC", word.text)))
        for word in words
    ]
    letters = Counter(bool(_RIGHT_TO_LEFT.match(each)) for word in plain for each in word.text)
    leftwards = 2 * letters[True] > letters[False]
    ordered: list[PlacedWord] = []
    for turned, run in groupby(
        sorted(plain, key=lambda word: word.box.x0, reverse=leftwards),
        lambda word: (
            bool(_RIGHT_TO_LEFT.search(word.text)) != leftwards
            and (leftwards is False or any(map(str.isalnum, word.text)))
        ),
    ):
        some = list(run)
        ordered += reversed(some) if turned else some
    return ordered


def _spaced(words: Sequence[PlacedWord]) -> str:
    """The words of a line with spaces where there is white space between them."""
    text = words[0].text
    for last, word in pairwise(words):
        gap = max(word.box.x0 - last.box.x1, last.box.x0 - word.box.x1)
        text += f"{' ' * (gap > 0.03 * (word.box.y1 - word.box.y0))}{word.text}"
    return text


def reads_leftwards(rows: Iterable[TextRow]) -> bool:
    """Return whether most rows are in a script that is read from right to left."""
    found = [bool(_RIGHT_TO_LEFT.search(row.text)) for row in rows]
    return 2 * sum(found) > len(found)


def _direction(vector: tuple[float, float]) -> str:
    """Where a line runs to; "" if it is not parallel to an edge of the page."""
    x, y = vector
    if abs(y) <= STRAIGHT:
        return "right" if x > 0 else "left"
    if abs(x) <= STRAIGHT:
        return "down" if y > 0 else "up"
    return ""


# --- lines


def lines_of(rows: Sequence[TextRow]) -> TextBlock:
    """The rows from top to bottom, with separate pieces of one line joined into one row."""
    lines: list[list[TextRow]] = []
    for row in sorted(rows, key=lambda row: (row.box.y0 + row.box.y1, row.box.x0)):
        last = lines[-1] if lines else []
        if last and not row.table and not last[0].table and last[0].box.beside(row.box):
            last.append(row)
        else:
            lines.append([row])
    lines.sort(key=lambda line: line[0].box.y0)
    return [_line(sorted(line, key=lambda row: row.box.x0)) for line in lines]


def _line(pieces: Sequence[TextRow]) -> TextRow:
    """The pieces of a line, from left to right, as one row."""
    line = reduce(_joined, pieces)
    if len(pieces) > 1 and _RIGHT_TO_LEFT.search(line.text):
        words = logical(line.words)
        return line._replace(text=_spaced(words), words=tuple(words))
    return line


def _joined(left: TextRow, right: TextRow) -> TextRow:
    """Two pieces of a line with as many spaces between them as fit in code, a tab between cells."""
    gap = right.box.x0 - left.box.x1
    space = "\t" if gap > 2 * left.size else " "
    if left.mono and right.mono:
        space = " " * max(1, round(gap / _width(left)))
    longer = left if len(left.text) >= len(right.text) else right
    text, words = left.text + space + right.text, left.words + right.words
    return longer._replace(box=around((left.box, right.box)), text=text, words=words)


def _width(row: TextRow) -> float:
    return max((row.box.x1 - row.box.x0) / len(row.text), 1.0)


def code_lines(rows: Sequence[TextRow]) -> str:
    """Return rows in a fixed-width font with the indentation given by their positions."""
    left, width = min(row.box.x0 for row in rows), min(_width(row) for row in rows)
    return "\n".join(" " * round((row.box.x0 - left) / width) + row.text for row in rows)


def is_broken(text: str, rest: str) -> bool:
    """Return whether a text ends in a hyphenated word that the rest continues."""
    return text[-1:] in HYPHENS and text[-3:-1].isalpha() and rest[:1].islower()


def cell_text(words: Sequence[PlacedWord]) -> str:
    """Return words with spaces, but for a word that is hyphenated at the end of a line."""
    if any(_RIGHT_TO_LEFT.search(word.text) for word in words):
        lines = groupby(words, lambda word: round(word.box.y1))
        words = [word for _, line in lines for word in logical(list(line))]
    text = ""
    for last, word in pairwise([None, *words]):
        if last and word and last.box.y1 <= word.box.y1 - 2 and is_broken(text, word.text):
            text = text[:-1] + word.text
        elif word:
            text = f"{text} {word.text}" if text else word.text
    return text


# --- what a PDF repeats on its pages: running titles, page numbers, watermarks, stamps

MARGIN = 0.12
"""Share of a page's height, at top and bottom, in which running titles and page numbers are."""
REPEATED = 3
"""Pages that must have a row in common for it to be a running title."""
SLOT = 4.0
"""Height in points within which rows are at one place."""


def without_running_titles(pages: Sequence[PageText]) -> list[PageText]:
    """Return the pages without page numbers and running titles.

    A running title is a row that three or more pages have at the same height of a margin, apart
    from its digits, or two if others have another one there: titles of short chapters; or the first
    or last row of both pages, if there are two. It stays
    where it first occurs, unless all of its words are elsewhere in the document: no word is lost
    but numbers of pages. The same goes for text in another direction, at any place.
    """
    repeated = REPEATED
    keyed = [
        [(row, _key(row), slot) for row in page.rows if (slot := _slot(row, page))]
        for page in pages
    ]
    if len(pages) == 2:  # both must have it, as their first or last row
        repeated = 2
        keyed = [
            [each for each in rows if each[0] in _outermost(page)]
            for rows, page in zip(keyed, pages, strict=True)
        ]
    times = Counter((key, slot) for rows in keyed for key, slot in {each[1:] for each in rows})
    places = {slot for (_, slot), count in times.items() if count >= repeated}
    stamps = Counter(key for page in pages for key in set(map(_key, page.aside)))
    titles = {
        id(row)
        for rows in keyed
        for row, key, slot in rows
        if times[key, slot] >= (REPEATED - 1 if slot in places else repeated)
    } | {id(row) for page in pages for row in page.aside if stamps[_key(row)] >= repeated}
    seen = {
        word for page in pages for row in page.rows if id(row) not in titles for word in _words(row)
    }
    kept = []
    for page in pages:
        for row in page.rows + page.aside:
            is_number = not row.text.lower().strip("0123456789ivxlcdm-–—/|. ")
            if id(row) in titles and not is_number and not seen.issuperset(_words(row)):
                titles.remove(id(row))
                seen.update(_words(row))
        kept.append(
            page._replace(
                rows=[row for row in page.rows if id(row) not in titles],
                aside=[row for row in page.aside if id(row) not in titles],
            )
        )
    return kept


def _outermost(page: PageText) -> list[TextRow]:
    """The first and the last row of a page, by height."""
    rows = sorted(page.rows, key=lambda row: row.box.y0)
    return [*rows[:1], *rows[-1:]]


def _slot(row: TextRow, page: PageText) -> tuple[bool, int] | None:
    """Whether a row is in the upper margin, and how far from the edge; None for other places."""
    if row.table:
        return None
    if row.box.y1 < MARGIN * page.height:
        return True, round(row.box.y0 / SLOT)
    if row.box.y0 > (1 - MARGIN) * page.height:
        return False, round((page.height - row.box.y1) / SLOT)
    return None


def _key(row: TextRow) -> str:
    """The row's text and size without what changes from page to page."""
    return f"{row.size} {re.sub(r'[0-9]+', '#', row.text.lower())}"


def _words(row: TextRow) -> list[str]:
    """The words of a row, without numbers."""
    return re.findall(r"[^\W\d_]+", row.text.lower())
