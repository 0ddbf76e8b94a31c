"""Find tables on a PDF page by the lines that are drawn around and between their cells.

("Lattice" detection, as in Camelot and Tabula.) Horizontal and vertical lines that touch form a
connected component. The distinct x positions of its vertical lines bound the columns, the y
positions of its horizontal ones the rows.

Words are then put into cells by their centres. A table needs two rows and two columns with text,
and text in a good part of its cells, or it is a drawing. Long cells are text in frames. Tables
without vertical lines are found by the places of their words (`pdf_streams`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from mcpvectordb.ingest.formats.markdown import table
from mcpvectordb.ingest.formats.pdf_rows import (
    Box,
    PageText,
    PlacedWord,
    TextRow,
    Turn,
    cell_text,
)

FEWEST_PATHS, MOST_PATHS = 3, 10_000
MOST_LINES = 2000
"""Number of lines on a page above which it is taken for a map or a plot."""
NEAR = 3.0
"""Distance in points within which two positions count as equal."""
LONGEST_CELL = 250
FILLED_CELLS = 0.35
"""Least share of cells with text; the lines of a drawing make many cells that have none."""
LINE_FILL = 0.75
"""Share of a column's width above which a line may be one that was wrapped."""

_PATH = re.compile(rb"[\d\s](?:re|l)\s")
_FORM = re.compile(rb"\sDo\s")


class RuledLine(NamedTuple):
    """A horizontal or vertical line: at y or x position `at`, from `start` to `end`."""

    at: float
    start: float
    end: float


def with_tables(page: Any, text: PageText) -> PageText:
    """Return the rows of a page with ruled tables as rows of Markdown instead of their words.

    Each word of the page is either in a table or in a row, never in both and never in none.
    """
    across, down = _ruled_lines(page, text.turn)
    rows, aside = list(text.rows), list(text.aside)
    for area, xs, ys in _grids(across, down):
        inside = [word for row in [*rows, *aside] for word in row.words if area.holds(word.box)]
        if not inside:
            continue
        placed = _placed(inside, xs, _with_lines(inside, xs, ys))
        cells = [[cell_text(cell) for cell in row] for row in placed]
        if _tabular(cells):
            rows, aside = _outside(area, rows), _outside(area, aside)
            rows.append(TextRow(area, "", table=table(cells)))
    return text._replace(rows=rows, aside=aside)


def _outside(area: Box, rows: Iterable[TextRow]) -> list[TextRow]:
    """The rows without the words that are in an area."""
    return [
        row.part(words) if words else row
        for row in rows
        if (words := [word for word in row.words if not area.holds(word.box)]) or row.table
    ]


def _ruled_lines(page: Any, turn: Turn | None) -> tuple[set[RuledLine], set[RuledLine]]:
    """The horizontal and vertical lines of a page, including edges of boxes; none if too many."""
    across: set[RuledLine] = set()
    down: set[RuledLine] = set()
    # Counting the operators of a page is faster than drawing it.
    operators = page.read_contents() if page.parent.is_pdf else b" Do "
    paths = len(_PATH.findall(operators))
    if paths > MOST_PATHS or (paths < FEWEST_PATHS and not _FORM.search(operators)):
        return across, down
    items = [item for drawing in page.get_cdrawings() for item in drawing["items"]]
    boxes = [Box(*item[1]) for item in items if item[0] == "re"]
    ends = [Box(*item[1], *item[2]) for item in items if item[0] == "l"]
    for x0, y0, x1, y1 in ends:
        if min(abs(x0 - x1), abs(y0 - y1)) < 1:
            boxes.append(Box(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)))
    for x0, y0, x1, y1 in map(turn, boxes) if turn else boxes:
        if x1 - x0 > 2 * NEAR:
            across |= {RuledLine(y0, x0, x1), RuledLine(y1, x0, x1)}
        if y1 - y0 > 2 * NEAR:
            down |= {RuledLine(x0, y0, y1), RuledLine(x1, y0, y1)}
    return (across, down) if len(across) + len(down) <= MOST_LINES else (set(), set())


Grid = tuple[Box, list[float], list[float]]


def _grids(across: set[RuledLine], down: set[RuledLine]) -> Iterable[Grid]:
    """Areas in which horizontal and vertical lines cross, with the positions of these lines.

    They are the connected components of lines that touch, found by breadth-first search.
    """
    waiting_across, waiting_down = set(across), set(down)
    while waiting_across and waiting_down:
        rows, columns = {min(waiting_across)}, set[RuledLine]()
        waiting_across -= rows
        fresh = rows
        while fresh:
            more = {each for each in waiting_down if any(_touch(row, each) for row in fresh)}
            waiting_down -= more
            columns |= more
            fresh = {each for each in waiting_across if any(_touch(each, line) for line in more)}
            waiting_across -= fresh
            rows |= fresh
        xs, ys = _distinct(rule.at for rule in columns), _distinct(rule.at for rule in rows)
        if len(xs) > 2 and len(ys) > 2:
            yield Box(xs[0], ys[0], xs[-1], ys[-1]), xs, ys


def _touch(row: RuledLine, column: RuledLine) -> bool:
    return (row.start - NEAR <= column.at <= row.end + NEAR) and (
        column.start - NEAR <= row.at <= column.end + NEAR
    )


def _distinct(values: Iterable[float]) -> list[float]:
    """The sorted values, those near each other as one."""
    distinct: list[float] = []
    for value in sorted(values):
        if not distinct or value - distinct[-1] > NEAR:
            distinct.append(value)
    return distinct


Words = Sequence[PlacedWord]


def _lines(words: Words) -> list[float]:
    """The y positions that separate the lines of words."""
    bounds: list[float] = []
    bottom = float("-inf")
    for box, _ in sorted(words, key=lambda word: word.box.y0 + word.box.y1):
        middle = (box.y0 + box.y1) / 2
        if middle > bottom:
            bounds.append(box.y0)
            bottom = box.y1
    return [*bounds, bottom + NEAR]


def _with_lines(words: Words, xs: Sequence[float], ys: Sequence[float]) -> list[float]:
    """The y positions of ruled rows, with those added that separate rows without rules.

    Many tables have rules only around them and below their header. Lines of text are rows of their
    own where nearly all of them have text in the first column and in another one; the lines of a
    long cell have not, or they fill its width.
    """
    bounds = list(ys[:1])
    for top, bottom in pairwise(ys):
        here = [word for word in words if top <= (word.box.y0 + word.box.y1) / 2 < bottom]
        between = _lines(here)[1:-1]
        if len(between) >= 2 and _are_rows(here, xs, [top, *between, bottom]):
            bounds += between
        bounds.append(bottom)
    return bounds


def _are_rows(words: Words, xs: Sequence[float], ys: Sequence[float]) -> bool:
    lines = _placed(words, xs, ys)
    first = next((at for at in range(len(xs) - 1) if any(line[at] for line in lines)), 0)
    filled = sum(bool(line[first]) and sum(map(bool, line)) > 1 for line in lines)
    short = [
        all(
            sum(word.box.x1 - word.box.x0 for word in line[at]) < LINE_FILL * (end - start)
            for line in lines
        )
        for at, (start, end) in enumerate(pairwise(xs))
    ]
    return filled >= 0.8 * len(lines) and all(short)


def _placed(words: Words, xs: Sequence[float], ys: Sequence[float]) -> list[list[list[PlacedWord]]]:
    """The words of each row and column."""
    cells: list[list[list[PlacedWord]]] = [[[] for _ in pairwise(xs)] for _ in pairwise(ys)]
    for word in words:
        box = word.box
        row, column = (
            min(max(bisect_right(bounds, centre) - 1, 0), len(bounds) - 2)
            for bounds, centre in ((ys, (box.y0 + box.y1) / 2), (xs, (box.x0 + box.x1) / 2))
        )
        cells[row][column].append(word)
    return cells


def _tabular(cells: Sequence[Sequence[str]]) -> bool:
    """Whether this is a table, and not text in frames, or a drawing."""
    rows = [row for row in cells if any(row)]
    columns = [column for column in zip(*rows, strict=True) if any(column)]
    lengths = [len(cell) for row in rows for cell in row if cell]
    return (
        len(rows) > 1
        and len(columns) > 1
        and max(lengths) <= LONGEST_CELL
        and len(lengths) >= FILLED_CELLS * len(rows) * len(columns)
    )
