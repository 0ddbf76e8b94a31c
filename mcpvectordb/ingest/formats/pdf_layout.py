"""The text of a PDF page: its rows, what all pages repeat, and the order in which to read them.

A row is a line with its style, its words and their places. Pages are turned so that most of their
text runs from left to right, whatever the rotation of the page or of its text. Text in other
directions, such as a stamp in the margin or a watermark, is kept apart: it takes no part in the
layout.

The idea of the layout is that of the recursive XY-cut (Nagy and Seth, 1984). The page is cut into
bands where white space runs across its whole width. Successive bands form a group as long as the
same vertical white space (the gutter) runs through all of them: paragraphs of two columns rarely
end at the same height, but their gutter continues. Each group is read column by column, left to
right, and each column is treated like a page of its own, because a column may have columns for a
part of its height.

A vertical gap is a gutter only if the text on both sides has lines of some length that fill their
column. Short lines are cells of a table without ruled lines, which is read row by row.
"""

from __future__ import annotations

import re
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
        text, box = " ".join(word.text for word in words), _around(word.box for word in words)
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


def _around(boxes: Iterable[Box]) -> Box:
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
    box = _around(word.box for word in words)
    return TextRow(box, text.strip(), *style, block, tuple(words))


def _direction(vector: tuple[float, float]) -> str:
    """Where a line runs to; "" if it is not parallel to an edge of the page."""
    x, y = vector
    if abs(y) <= STRAIGHT:
        return "right" if x > 0 else "left"
    if abs(x) <= STRAIGHT:
        return "down" if y > 0 else "up"
    return ""


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
    from its digits, or two if others have another one there: titles of short chapters. It stays
    where it first occurs, unless all of its words are elsewhere in the document: no word is lost
    but numbers of pages. The same goes for text in another direction, at any place.
    """
    keyed = [
        [(row, _key(row), slot) for row in page.rows if (slot := _slot(row, page))]
        for page in pages
    ]
    times = Counter((key, slot) for rows in keyed for key, slot in {each[1:] for each in rows})
    places = {slot for (_, slot), count in times.items() if count >= REPEATED}
    stamps = Counter(key for page in pages for key in set(map(_key, page.aside)))
    titles = {
        id(row)
        for rows in keyed
        for row, key, slot in rows
        if times[key, slot] >= (REPEATED - 1 if slot in places else REPEATED)
    } | {id(row) for page in pages for row in page.aside if stamps[_key(row)] >= REPEATED}
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


# --- the order of rows, and the blocks that they form

GUTTER, NARROW_GUTTER = 8.0, 4.5
"""Least width in points of the white space between two columns; a narrow one needs many rows."""
MANY_ROWS = 6
ALIGNED = 1.5
"""Points by which the starts of a column's lines may differ."""
COLUMN_CHARACTERS = 20
"""Least typical line length of a column; shorter lines are cells, which are read row by row."""
COLUMN_FILL = 0.5
"""Least mean share of a column's width that its lines take up."""
DEEPEST = 4


def reading_order(rows: Sequence[TextRow]) -> list[TextBlock]:
    """Return the rows from top to bottom, column by column where there are columns, as blocks."""
    return _blocks(_ordered(_without_bridges(rows), DEEPEST))


def file_order(rows: Iterable[TextRow]) -> list[TextBlock]:
    """Return the rows in the order of the file, as its blocks."""
    runs = groupby(rows, key=lambda row: row.block)
    return _blocks(_lines(list(run)) for _, run in runs)


# --- lines that run across a gutter


def _without_bridges(rows: Sequence[TextRow]) -> list[TextRow]:
    """The rows, with lines divided that were read across the narrow gutter between two columns.

    Such a line has a gap where many successive lines have one, and after it a word that starts
    where they start. Gaps between the words of justified text do not line up like that.
    """
    starts = [
        _Start(word.box.x0, at, number)
        for at, row in enumerate(rows)
        for number, word in enumerate(row.words)
        if not number
        or (
            not row.mono
            # wider than most spaces between words of this size
            and word.box.x0 - row.words[number - 1].box.x1 >= max(NARROW_GUTTER, 0.4 * row.size)
        )
    ]
    cuts: dict[int, set[int]] = {}
    for group in _aligned(starts):
        for run in _successive(rows, group):
            for start in run:
                cuts.setdefault(start.row, set()).add(start.word)
    divided = []
    for at, row in enumerate(rows):
        bounds = sorted({0, *cuts.get(at, ()), len(row.words)})
        divided += [row.part(row.words[start:end]) for start, end in pairwise(bounds)] or [row]
    return divided


class _Start(NamedTuple):
    """A word after a gap, or the first one of a row: its position and its numbers."""

    x: float
    row: int
    word: int


def _aligned(starts: Sequence[_Start]) -> list[list[_Start]]:
    """Groups of starts at nearly the same x position, if they have some gap before them."""
    groups: list[list[_Start]] = []
    for start in sorted(starts):
        if not groups or start.x - groups[-1][0].x > ALIGNED:
            groups.append([])
        groups[-1].append(start)
    return [group for group in groups if any(each.word for each in group)]


def _successive(rows: Sequence[TextRow], starts: list[_Start]) -> Iterable[list[_Start]]:
    """The parts of a group of starts that no other row crosses, if they have many rows."""
    if len(starts) < MANY_ROWS:
        return
    x = starts[0].x - NARROW_GUTTER / 2
    here = {start.row: start for start in starts}
    across = [
        (row.box.y0, at) for at, row in enumerate(rows) if at in here or row.box.x0 < x < row.box.x1
    ]
    for is_here, group in groupby((at for _, at in sorted(across)), here.__contains__):
        run = [here[at] for at in group] if is_here else []
        if len(run) >= MANY_ROWS:
            yield run


# --- columns


def _ordered(rows: Sequence[TextRow], deepest: int) -> Iterable[TextBlock]:
    """The columns of a page or column in reading order, as lines from top to bottom."""
    group: TextBlock = []
    ink: list[tuple[float, float]] = []
    for band in _bands(rows):
        own = _merged((row.box.x0, row.box.x1) for row in band)
        both = _merged([*ink, *own])
        if group and len(both) < max(len(ink) > 1, len(own) > 1) + 1:
            yield from _cut(group, ink, deepest)
            group, both = [], own
        group += band
        ink = both
    if group:
        yield from _cut(group, ink, deepest)


def _bands(rows: Sequence[TextRow]) -> list[TextBlock]:
    """Groups of rows that are separated by white space across the whole width."""
    bands: list[TextBlock] = []
    bottom = 0.0
    for row in sorted(rows, key=lambda row: (row.box.y0, row.box.x0)):
        if not bands or row.box.y0 >= bottom - 1:
            bands.append([])
            bottom = row.box.y1
        bands[-1].append(row)
        bottom = max(bottom, row.box.y1)
    return bands


def _merged(extents: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The extents from left to right, those with less than a gutter between them as one."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(extents):
        if merged and start - merged[-1][1] < NARROW_GUTTER:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def _cut(group: TextBlock, ink: list[tuple[float, float]], deepest: int) -> Iterable[TextBlock]:
    columns = _columns(group, ink) if deepest else [group]
    if len(columns) == 1:
        yield _lines(group)
        return
    for column in columns:
        yield from _ordered(column, deepest - 1)


def _columns(group: TextBlock, ink: list[tuple[float, float]]) -> list[TextBlock]:
    """The columns of a group; one that is no column, such as bullets, belongs to its neighbour."""
    columns = [
        [row for row in group if start <= (row.box.x0 + row.box.x1) / 2 <= end]
        for start, end in ink
    ]
    gaps = [right[0] - left[1] for left, right in pairwise(ink)]
    while gaps:
        at = next(
            (at for at, gap in enumerate(gaps) if not _is_gutter(gap, *columns[at : at + 2])), None
        )
        poor = next((at for at, each in enumerate(columns) if not _is_column(_lines(each))), None)
        if poor is not None:
            at = min({poor - 1, poor} & set(range(len(gaps))), key=lambda each: gaps[each])
        if at is None:
            break
        columns[at : at + 2] = [columns[at] + columns[at + 1]]
        del gaps[at]
    return columns


def _is_gutter(gap: float, left: TextBlock, right: TextBlock) -> bool:
    """Whether a gap is between columns: of some width, and with separate text on both sides."""
    low = max(min(row.box.y0 for row in each) for each in (left, right))
    high = min(max(row.box.y1 for row in each) for each in (left, right))
    if low >= high:  # one above the other
        return False
    # A narrow gap, or one inside of blocks of the file, is a gutter only if it is a long one.
    return min(len(left), len(right)) >= MANY_ROWS or (
        gap >= GUTTER and not {row.block for row in left} & {row.block for row in right}
    )


def _is_column(rows: TextBlock) -> bool:
    if any(row.table for row in rows):
        return True
    if all(row.mono for row in rows):  # the columns of a listing
        return False
    # The mean line length weighted by length: a few short last lines do not count for much.
    lengths = [len(row.text) for row in rows]
    widths = [row.box.x1 - row.box.x0 for row in rows]
    width = max(row.box.x1 for row in rows) - min(row.box.x0 for row in rows)
    return sum(length * length for length in lengths) >= COLUMN_CHARACTERS * sum(lengths) and (
        sum(widths) >= COLUMN_FILL * width * len(widths)
    )


# --- lines and blocks


def _lines(rows: Sequence[TextRow]) -> TextBlock:
    """The rows from top to bottom, with separate pieces of one line joined into one row."""
    lines: list[list[TextRow]] = []
    for row in sorted(rows, key=lambda row: (row.box.y0 + row.box.y1, row.box.x0)):
        last = lines[-1] if lines else []
        if last and not row.table and not last[0].table and last[0].box.beside(row.box):
            last.append(row)
        else:
            lines.append([row])
    lines.sort(key=lambda line: line[0].box.y0)
    return [reduce(_joined, sorted(line, key=lambda row: row.box.x0)) for line in lines]


def _joined(left: TextRow, right: TextRow) -> TextRow:
    """Two pieces of a line with as many spaces between them as fit in code, a tab between cells."""
    gap = right.box.x0 - left.box.x1
    space = "\t" if gap > 2 * left.size else " "
    if left.mono and right.mono:
        space = " " * max(1, round(gap / _width(left)))
    longer = left if len(left.text) >= len(right.text) else right
    text, words = left.text + space + right.text, left.words + right.words
    return longer._replace(box=_around((left.box, right.box)), text=text, words=words)


def _width(row: TextRow) -> float:
    return max((row.box.x1 - row.box.x0) / len(row.text), 1.0)


def code_lines(rows: Sequence[TextRow]) -> str:
    """Return rows in a fixed-width font with the indentation given by their positions."""
    left, width = min(row.box.x0 for row in rows), min(_width(row) for row in rows)
    return "\n".join(" " * round((row.box.x0 - left) / width) + row.text for row in rows)


def _blocks(columns: Iterable[TextBlock]) -> list[TextBlock]:
    """Blocks of rows that belong together, also across the end of a column."""
    blocks: list[TextBlock] = []
    full = False  # whether the last row reaches the end of its column
    for column in columns:
        right = max(row.box.x1 for row in column)
        for row in column:
            if not blocks or not _belongs(blocks[-1][-1], row, full):
                blocks.append([])
            blocks[-1].append(row)
            full = right - row.box.x1 < 4 * row.size
    return blocks


def _belongs(last: TextRow, row: TextRow, full: bool) -> bool:
    """Whether a row is in one block with the row before it, or continues its sentence."""
    if last.table or row.table:
        return False
    if last.block == row.block and row.box.y0 >= last.box.y0:
        return True
    if "\t" in last.text and "\t" in row.text:  # rows of cells, one below the other
        return 0 <= row.box.y0 - last.box.y0 <= 3 * (last.box.y1 - last.box.y0)
    return (
        full
        and (last.size, last.bold, last.mono) == (row.size, row.bold, False)
        and len(last.text) >= COLUMN_CHARACTERS
        and row.text[:1].islower()
        and re.search(r"[\w,-]$", last.text) is not None
        and "\t" not in last.text + row.text
    )
