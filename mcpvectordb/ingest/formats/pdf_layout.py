"""From the positions of text on a page to blocks of text in the order in which people read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

MONOSPACED, BOLD = 8, 16
GUTTER = 8.0
"""Points of white space that separate two columns."""
COLUMN_CHARACTERS = 20
"""How long lines of a column are at least; shorter ones are cells of a table, read row by row."""
MOST_BLOCKS = 1000
"""Blocks on a page beyond which the order of the file is as good as any."""


class Box(NamedTuple):
    """A rectangle in points, y downwards."""

    x0: float
    y0: float
    x1: float
    y1: float

    def holds(self, other: Box) -> bool:
        """Whether the middle of the other lies inside."""
        x, y = (other.x0 + other.x1) / 2, (other.y0 + other.y1) / 2
        return self.x0 <= x <= self.x1 and self.y0 <= y <= self.y1

    def around(self, other: Box) -> Box:
        """The smallest box that holds both."""
        return Box(
            min(self.x0, other.x0),
            min(self.y0, other.y0),
            max(self.x1, other.x1),
            max(self.y1, other.y1),
        )


class TextRow(NamedTuple):
    """One line of text in one style: what is not most of the line does not count."""

    box: Box
    text: str
    size: float
    bold: bool
    mono: bool


@dataclass(slots=True)
class TextBlock:
    """Rows that belong together, or a table that is already written as Markdown."""

    box: Box
    rows: list[TextRow] = field(default_factory=list)
    markdown: str = ""

    @property
    def text(self) -> str:
        """The rows on one line."""
        return " ".join(row.text for row in self.rows).replace("\t", " ")


def text_blocks(page: Any) -> list[TextBlock]:
    """The blocks of a pymupdf page in the order of the file, ligatures as letters."""
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
    """Pieces of one line that the file sets apart, as a section's number and its title, become one
    row.
    """
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
    """White space between two pieces of a line: what it measures in code, a tab where it divides
    cells.
    """
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
    """Rows in a fixed-width font with the indentation that their positions tell."""
    left, width = min(row.box.x0 for row in rows), min(_width(row) for row in rows)
    return "\n".join(" " * round((row.box.x0 - left) / width) + row.text for row in rows)


def reading_order(blocks: Sequence[TextBlock]) -> list[TextBlock]:
    """Blocks from top to bottom, column by column where white space runs down between columns of
    text.
    """
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
    """Groups of blocks between which white space runs across the whole page."""
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
    """Where white space runs from top to bottom between what are columns of text on both sides."""
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
