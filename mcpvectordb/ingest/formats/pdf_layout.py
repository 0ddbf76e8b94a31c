"""Group the text of a page into blocks and put these into reading order.

The idea is that of the recursive XY-cut (Nagy and Seth, 1984), restricted to two levels. First the
page is cut into bands where white space runs across its whole width. Successive bands form a group
as long as the same vertical white space (the gutter) runs through all of them: paragraphs of two
columns rarely end at the same height, but their gutter continues. Each group is then read column by
column, left to right, and each column from top to bottom.

A vertical gap is a gutter only if the text on both sides has lines of some length. Short lines are
cells of a table without ruled lines, which is read row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

MONOSPACED, BOLD = 8, 16
GUTTER = 8.0
"""Least width in points of the white space between two columns."""
COLUMN_CHARACTERS = 20
"""Least typical line length of a column; shorter lines are cells, which are read row by row."""
MOST_BLOCKS = 1000
"""Number of blocks on a page above which the order of the file is kept."""


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

    def around(self, other: Box) -> Box:
        """Return the smallest box that contains both."""
        return Box(
            min(self.x0, other.x0),
            min(self.y0, other.y0),
            max(self.x1, other.x1),
            max(self.y1, other.y1),
        )


class TextRow(NamedTuple):
    """One line of text with the style of most of its characters."""

    box: Box
    text: str
    size: float
    bold: bool
    mono: bool


@dataclass(slots=True)
class TextBlock:
    """Rows that belong together, or a table that is already Markdown."""

    box: Box
    rows: list[TextRow] = field(default_factory=list)
    markdown: str = ""

    @property
    def text(self) -> str:
        """All rows on one line."""
        return " ".join(row.text for row in self.rows).replace("\t", " ")


def text_blocks(page: Any) -> list[TextBlock]:
    """Return the blocks of a pymupdf page in the order of the file, ligatures as letters."""
    import pymupdf

    flags = pymupdf.TEXT_PRESERVE_WHITESPACE | pymupdf.TEXT_MEDIABOX_CLIP
    found = []
    for block in page.get_text("dict", flags=flags)["blocks"]:
        if rows := [row for line in block.get("lines", ()) if (row := _row(line))]:
            found.append(TextBlock(Box(*block["bbox"]), _joined(rows)))
    return found


def _row(line: dict[str, Any]) -> TextRow | None:
    text, size, longest, letters, mono, bold = "", 0.0, 0, 0, 0, 0
    for span in line["spans"]:
        text += span["text"]
        length = len(span["text"].strip())
        letters += length
        mono += length if span["flags"] & MONOSPACED else 0
        bold += length if span["flags"] & BOLD else 0
        if length > longest:
            longest, size = length, span["size"]
    if not letters:
        return None
    fixed = mono > 0.8 * letters
    return TextRow(
        Box(*line["bbox"]),
        text.rstrip() if fixed else text.strip(),
        round(size * 2) / 2,
        bold > 0.8 * letters,
        fixed,
    )


def _joined(rows: list[TextRow]) -> list[TextRow]:
    """The rows, with separate pieces of one line joined, such as a section's number and title."""
    joined = rows[:1]
    for row in rows[1:]:
        last = joined[-1]
        if _same_line(last.box, row.box):
            wider = last if len(last.text) >= len(row.text) else row
            joined[-1] = wider._replace(
                box=last.box.around(row.box), text=last.text + _gap(last, row) + row.text
            )
        else:
            joined.append(row)
    return joined


def _gap(left: TextRow, right: TextRow) -> str:
    """The white space between two pieces: as many spaces as fit in code, a tab between cells."""
    gap = right.box.x0 - left.box.x1
    if left.mono and right.mono:
        return " " * max(1, round(gap / _width(left)))
    return "\t" if gap > 2 * left.size else " "


def _same_line(left: Box, right: Box) -> bool:
    shared = min(left.y1, right.y1) - max(left.y0, right.y0)
    return right.x0 >= left.x1 - 1 and shared > 0.6 * min(left.y1 - left.y0, right.y1 - right.y0)


def _width(row: TextRow) -> float:
    return max((row.box.x1 - row.box.x0) / len(row.text), 1.0)


def code_lines(rows: Sequence[TextRow]) -> str:
    """Return rows in a fixed-width font with the indentation given by their positions."""
    left, width = min(row.box.x0 for row in rows), min(_width(row) for row in rows)
    return "\n".join(" " * round((row.box.x0 - left) / width) + row.text for row in rows)


def reading_order(blocks: Sequence[TextBlock]) -> list[TextBlock]:
    """Return the blocks from top to bottom, and column by column where there are columns."""
    if len(blocks) > MOST_BLOCKS:
        return list(blocks)
    ordered: list[TextBlock] = []
    group: list[TextBlock] = []
    for band in _bands(blocks):
        if group and not _gutters([*group, *band]):
            ordered += _columns(group)
            group = []
        group += band
    return ordered + _columns(group)


def _bands(blocks: Sequence[TextBlock]) -> Iterable[list[TextBlock]]:
    """Groups of blocks that are separated by white space across the whole page."""
    band: list[TextBlock] = []
    bottom = 0.0
    for block in sorted(blocks, key=lambda block: (block.box.y0, block.box.x0)):
        if band and block.box.y0 >= bottom - 1:
            yield band
            band = []
        bottom = max(bottom, block.box.y1) if band else block.box.y1
        band.append(block)
    if band:
        yield band


def _gutters(blocks: Sequence[TextBlock]) -> list[float]:
    """The x positions of white space from top to bottom between columns of text."""
    # A sweep from left to right: `right` is the furthest right edge of the boxes so far.
    edges: list[float] = []
    right = float("inf")
    for box in sorted(block.box for block in blocks):
        if box.x0 - right >= GUTTER:
            edges.append((box.x0 + right) / 2)
        right = max(right, box.x1) if right != float("inf") else box.x1
    return edges if edges and all(map(_is_column, _split(blocks, edges))) else []


def _split(blocks: Sequence[TextBlock], edges: Sequence[float]) -> list[list[TextBlock]]:
    bounds = [float("-inf"), *edges, float("inf")]
    return [
        [block for block in blocks if left <= block.box.x0 < right]
        for left, right in pairwise(bounds)
    ]


def _is_column(blocks: Sequence[TextBlock]) -> bool:
    # The mean line length weighted by length: a few short last lines do not count for much.
    lengths = [len(row.text) for block in blocks for row in block.rows]
    return any(block.markdown for block in blocks) or (
        sum(length * length for length in lengths) >= COLUMN_CHARACTERS * sum(lengths)
    )


def _columns(blocks: list[TextBlock]) -> list[TextBlock]:
    columns = _split(blocks, _gutters(blocks))
    return [
        block
        for column in columns
        for block in sorted(column, key=lambda each: (each.box.y0, each.box.x0))
    ]
