"""The order in which to read the rows of a PDF page.

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
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from mcpvectordb.ingest.formats.pdf_rows import TextBlock, TextRow, lines_of, reads_leftwards
from mcpvectordb.ingest.formats.pdf_streams import MARK, is_numeric, with_streams

GUTTER, NARROW_GUTTER = 8.0, 4.5
"""Least width in points of the white space between two columns; a narrow one needs many rows."""
MANY_ROWS = 6
ALIGNED = 1.5
"""Points by which the starts of a column's lines may differ."""
COLUMN_CHARACTERS = 20
"""Least typical line length of a column; shorter lines are cells, which are read row by row."""
COLUMN_FILL = 0.5
"""Least mean share of a column's width that its lines take up."""
WRAPPED = 0.6
"""Least share of a column's lines that had no room for the next word, if it is prose."""
SPARSE = 0.5
"""Share of a column's height that its lines take up at least."""
SAME_HEIGHT = 0.15
"""Share of a line's height by which its place may differ from that of the next column's line."""
FEWEST_HEADINGS, MOST_HEADINGS = 2, 50
"""Headings of a column that show it to be one."""
DEEPEST = 4


def reading_order(rows: Sequence[TextRow]) -> list[TextBlock]:
    """Return the rows from top to bottom, column by column where there are columns, as blocks."""
    return _blocks(_ordered(_without_bridges(rows), DEEPEST))


def file_order(rows: Iterable[TextRow]) -> list[TextBlock]:
    """Return the rows in the order of the file, as its blocks."""
    runs = groupby(rows, key=lambda row: row.block)
    return _blocks(lines_of(list(run)) for _, run in runs)


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
    """The columns of a page or column in reading order, as lines from top to bottom.

    Lines of columns of prose may be aligned like the cells of a table: the former come first.
    """
    others: TextBlock = []
    for group, ink in _groups(rows):
        columns = (_headed(group, ink) or _columns(group, ink)) if deepest else []
        if len(columns) > 1 and (all(map(_is_wrapped, columns)) or all(map(_headings, columns))):
            yield from _with_tables(others, deepest)
            others = []
            for column in reversed(columns) if reads_leftwards(group) else columns:
                yield from _ordered(column, deepest - 1)
        else:
            others += group
    yield from _with_tables(others, deepest)


def _with_tables(rows: Sequence[TextRow], deepest: int) -> Iterable[TextBlock]:
    """The lines of tables without rules, and of what is around them."""
    tables = [row for row in with_streams(lines_of(rows)) if row.table]
    if tables:
        used = {word.box for each in tables for word in each.words}
        others = [
            row for row in rows if not row.table and used.isdisjoint(word.box for word in row.words)
        ]
        rows = [*others, *(each._replace(words=()) for each in tables)]
    for group, ink in _groups(rows):
        yield from _cut(group, ink, deepest)


def _groups(rows: Sequence[TextRow]) -> Iterable[tuple[TextBlock, list[tuple[float, float]]]]:
    """Successive bands through which the same vertical white space runs, with their extents."""
    group: TextBlock = []
    ink: list[tuple[float, float]] = []
    for band in _bands(rows):
        own = _merged((row.box.x0, row.box.x1) for row in band)
        both = _merged([*ink, *own])
        if group and len(both) < max(len(ink) > 1, len(own) > 1) + 1:
            yield group, ink
            group, both = [], own
        group += band
        ink = both
    if group:
        yield group, ink


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
        yield lines_of(group)
        return
    for column in reversed(columns) if reads_leftwards(group) else columns:
        yield from _ordered(column, deepest - 1)


def _columns(group: TextBlock, ink: list[tuple[float, float]]) -> list[TextBlock]:
    """The columns of a group; one that is no column, such as bullets, belongs to its neighbour."""
    columns = [
        [row for row in group if start <= (row.box.x0 + row.box.x1) / 2 <= end]
        for start, end in ink
    ]
    gaps = [right[0] - left[1] for left, right in pairwise(ink)]
    while gaps:
        joined = [
            at for at, gap in enumerate(gaps) if not _is_gutter(gap, *columns[at : at + 2])
        ] or [at for at, gap in enumerate(gaps) if _are_cells(columns[at], columns[at + 1])]
        if not joined:
            break
        at = min(joined, key=lambda at: gaps[at])
        columns[at : at + 2] = [columns[at] + columns[at + 1]]
        del gaps[at]
    return columns


def _headed(group: TextBlock, ink: list[tuple[float, float]]) -> list[TextBlock]:
    """The columns of a group that have headings at heights of their own, as those of a card have.

    A column without any belongs to the one on its left; no columns if there is only one then.
    """
    columns: list[TextBlock] = []
    heights = set[int]()
    for start, end in ink:
        column = [row for row in group if start <= (row.box.x0 + row.box.x1) / 2 <= end]
        found = {round(row.box.y1 / 2) for row in _headings(column)}
        if len(found - heights) < FEWEST_HEADINGS and columns:
            columns[-1] += column
        else:
            columns.append(column)
        heights |= found
    return columns if len(columns) > 1 else []


def _headings(column: TextBlock) -> TextBlock:
    """The rows of a column that are larger than most, or bold, and alone on their line.

    Of those that follow each other, such as the lines of a title, only the first counts.
    """
    rows = sorted(column, key=lambda row: row.box.y0)
    size = sorted(row.size for row in column)[len(column) // 2] if column else 0.0
    found = [at for at, row in enumerate(rows) if row.bold or row.size > 1.1 * size]
    if not FEWEST_HEADINGS <= len(found) <= MOST_HEADINGS or 2 * len(found) > len(column):
        return []
    alone = [
        rows[at]
        for last, at in pairwise([-2, *found])
        if last != at - 1
        and not any(row is not rows[at] and row.box.beside(rows[at].box) for row in rows)
    ]
    return alone if len(alone) >= FEWEST_HEADINGS else []


def _are_cells(left: TextBlock, right: TextBlock) -> bool:
    """Whether a column is no text of its own but cells, bullets or numbers beside the other one.

    Several columns of cells may be a table that stands beside text in another column: then their
    lines are not at the same heights.
    """
    lines = [lines_of(left), lines_of(right)]
    poor = [each for each in lines if not _is_column(each)]
    if not poor or any(
        sum(len(row.text) for row in each) < COLUMN_CHARACTERS * len(each) and not _is_tabbed(each)
        for each in poor
    ):
        return bool(poor)
    if len(poor) == 1:
        (cells,), (text,) = poor, [each for each in lines if each is not poor[0]]
        height = text[0].box.y1 - text[0].box.y0
        if (
            text[0].box.y0 < cells[0].box.y0 - 2.5 * height
            or text[-1].box.y1 > cells[-1].box.y1 + 4 * height
        ):
            return False
    few, many = sorted(lines, key=len)
    bases, same = sorted(row.box.y1 for row in many), 0
    for row in few:
        near = SAME_HEIGHT * (row.box.y1 - row.box.y0)
        at = bisect_left(bases, row.box.y1 - near)
        same += at < len(bases) and bases[at] <= row.box.y1 + near
    return same >= 0.6 * len(few)


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


def _is_tabbed(rows: TextBlock) -> bool:
    """Whether most lines have several cells."""
    return 2 * sum("\t" in row.text for row in rows) > len(rows)


def _is_column(rows: TextBlock) -> bool:
    if any(row.table for row in rows):
        return True
    if all(row.mono for row in rows):  # the columns of a listing
        return False
    if _is_tabbed(rows) or is_numeric(row.text for row in rows):
        return False
    if len(rows) > 2:
        heights = sum(row.box.y1 - row.box.y0 for row in rows)
        if heights < SPARSE * (max(row.box.y1 for row in rows) - min(row.box.y0 for row in rows)):
            return False  # cells beside longer ones
    # The mean line length weighted by length: a few short last lines do not count for much.
    lengths = [len(row.text) for row in rows]
    widths = [row.box.x1 - row.box.x0 for row in rows]
    width = max(row.box.x1 for row in rows) - min(row.box.x0 for row in rows)
    long = sum(length * length for length in lengths) >= COLUMN_CHARACTERS * sum(lengths)
    return (long and sum(widths) >= COLUMN_FILL * width * len(widths)) or _is_wrapped(rows)


def _is_wrapped(rows: TextBlock) -> bool:
    """Whether rows are lines of prose: few of them had room for the first word of the next one."""
    lines = [row for row in lines_of(rows) if row.words]
    pairs = [
        (last, row)
        for last, row in pairwise(lines)
        if last.size == row.size and not MARK.fullmatch(row.words[0].text)  # an item of a list
    ]
    if len(pairs) < 3 or sum(len(row.words) for row in lines) < 2.5 * len(lines):
        return False
    left, right = min(row.box.x0 for row in lines), max(row.box.x1 for row in lines)
    leftwards, wrapped = reads_leftwards(lines), 0
    for last, row in pairs:
        word, space = row.words[0].box, 0.2 * row.size
        room = last.box.x0 - left if leftwards else right - last.box.x1
        wrapped += word.x1 - word.x0 + space > room
    return wrapped >= WRAPPED * len(pairs)


# --- blocks


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
