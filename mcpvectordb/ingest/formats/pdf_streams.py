"""Find tables on a PDF page that have no ruled lines, by the places of their words.

("Stream" detection, as in Camelot and Tabula.) A run of lines with gaps that are wider than spaces
may be a table. Its columns are what white space separates in nearly all of its lines; the gaps
between the words of prose do not line up like that. A line below another one is the rest of its
wrapped cells if none of their next words had room in the line before, or if its distance is that of
wrapped lines. Everything above the first row with numbers in the columns of numbers is the header.

Text in two columns, bullets with their items, and formulas with their numbers are aligned as well:
cells that all fill their column are prose, and cells that only number others are no column.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from statistics import median

from mcpvectordb.ingest.formats.markdown import table
from mcpvectordb.ingest.formats.pdf_rows import (
    Box,
    PlacedWord,
    TextBlock,
    TextRow,
    around,
    cell_text,
)

CELL_GAP, LEAST_GAP = 0.8, 0.4
"""Least white space between cells, in font sizes: in some line, and in every line of a table."""
FEWEST_ROWS = 3
LONG_CELL, PROSE_CELL = 30, 28
"""Characters of a cell from which two on a line, or the mean of a column, may be prose."""
FULL = 0.85
"""Share of a column's width from which a line of text fills it."""
CROSSED = 0.12
"""Share of the lines of a table that may cross the white space between two of its columns."""
NUMERIC = 0.6
"""Share of a column's cells that are numbers, if it is a column of numbers."""
FILLED_CELLS = 0.35
"""Least share of cells with text; labels of a plot have few."""
LONELY_CELLS = 0.34
"""Share of rows with one cell, at most; lines of text in columns rarely are at one height."""
LEVEL = 0.2
"""Difference in height of cells of one row, in font sizes, at most."""
JUSTIFIED = 0.1
"""Difference in the spaces of a justified line, and in the ends of such lines, in font sizes."""
TOUCHING = 0.35
"""White space between the lines of a cell, in font sizes, at most."""
MANY_GAPS = 5
"""White spaces of a run from which one may be crossed, those on both sides of it included."""
NEAREST = 0.8
"""Distance of the tops of two rows, in font sizes, at least."""
MOST_LINES = 12
"""Lines of a cell."""
MOST_NAMES = 8
"""Lines of a header."""

_NUMBER = re.compile(
    r"[^\w]*[\d.,:/%*()\[\]±+–—−<>=$€£~ -]*\d[^\W\d_]{0,3}[^\w]*|[-–—.…*]+|n/?a\.?", re.I
)
MARK = re.compile(r"[•‣▪◦●■–∙·▶►➢➤✓*\ue000-\uf8ff-]|[(\[]?(\d{1,3}|[a-zA-Z]|[ivxIVX]+)[.)\]]+")
_LEADER = re.compile(r"(\. ?){4,}|…{2,}")


Words = list[PlacedWord]
Cells = list[Words]
"""The words of a row in each of its columns, in reading order."""
Unit = TextBlock
"""A line, or the lines of a row whose cells have several."""
Gap = tuple[float, float]
"""The x positions of white space."""


def with_streams(lines: TextBlock) -> TextBlock:
    """Return lines, from top to bottom, with tables as rows of Markdown instead of their lines.

    These have the words that are in them.
    """
    if sum(_has_gap([line]) for line in lines) < FEWEST_ROWS:
        return lines
    units, found, at = _units(lines), TextBlock(), 0
    while at < len(units):
        end = _run_end(units, at)
        made = _table(units[at:end], found) if end - at >= FEWEST_ROWS else None
        if made:
            before, row, after = made
            del found[len(found) + min(before, 0) :]
            found += [*(line for unit in units[at : at + max(before, 0)] for line in unit), row]
            at = end - after
        else:
            end = end if end - at >= FEWEST_ROWS else at + 1
            found += [line for unit in units[at:end] for line in unit]
            at = end
    return found


# --- lines, and runs of them


def _segments(unit: Unit, gap: float) -> list[Words]:
    """The words of a unit in parts between which there is so much white space, in font sizes.

    In justified text even the spaces between words are wide: it takes more there.
    """
    words = sorted(word for line in unit for word in line.words)
    size = unit[0].size or 1.0
    white, right = [], words[0].box.x1
    for word in words[1:]:
        white.append((word.box.x0 - right) / size)
        right = max(right, word.box.x1)
    spaces = sorted(each for each in white if 0 < each < CELL_GAP)
    if len(unit) == 1 and len(spaces) > 2:
        wider, most = (2.2, 1.1) if gap >= CELL_GAP else (1.5, 0.7)
        gap = max(gap, min(wider * spaces[len(spaces) // 4], most))
    parts = [words[:1]]
    for word, before in zip(words[1:], white, strict=True):
        if before > gap:
            parts.append([])
        parts[-1].append(word)
    return parts


def _has_gap(unit: Unit) -> bool:
    """Whether a unit has two cells or more; bullets and numbers of formulas do not count."""
    if unit[0].table:
        return False
    parts = _segments(unit, CELL_GAP)
    return len(parts) > 1 and sum(not MARK.fullmatch(cell_text(part)) for part in parts) > 1


def _units(lines: TextBlock) -> list[Unit]:
    """Lines, those that touch as one unit if they are the lines of a row with wrapped cells."""
    groups: list[Unit] = []
    for line in lines:
        last = groups[-1][-1] if groups else line
        touch = line.box.y0 - last.box.y1 < TOUCHING * line.size
        if groups and touch and not line.table and not last.table:
            groups[-1].append(line)
        else:
            groups.append([line])
    units: list[Unit] = []
    for group in groups:
        is_row = 1 < len(group) <= MOST_LINES and _is_wrapped_row(group)
        units += [group] if is_row else [[line] for line in group]
    return units


def _is_wrapped_row(group: Unit) -> bool:
    """Whether lines that touch are one row: a cell has one line, and none has several numbers."""
    edges = [(start + end) / 2 for start, end in zip(*[iter(_ends(group))] * 2, strict=True)]
    columns = list(zip(*(_placed([line], edges) for line in group), strict=True))
    counts = [sum(map(bool, column)) for column in columns]
    # Lines of cells in the middle of taller ones are nearer to others than rows are.
    nearest = NEAREST * group[0].size
    is_one = all(after.box.y0 - line.box.y0 < nearest for line, after in pairwise(group))
    return (
        len(columns) > 1
        and min(counts) == 1
        and not any(
            not is_one and count > 1 and any(map(_NUMBER.fullmatch, map(cell_text, column)))
            for count, column in zip(counts, columns, strict=True)
        )
    )


def _ends(unit: Unit) -> list[float]:
    """Where the parts of a unit begin and end, but for its outer ends."""
    parts = _segments(unit, CELL_GAP)
    return [x for part in parts for x in (part[0].box.x0, max(w.box.x1 for w in part))][1:-1]


def _run_end(units: Sequence[Unit], start: int) -> int:
    """Where a run of units that may be a table ends; `start` if it does not begin there.

    It ends where the white space between its columns does. Lines of one part are rests of cells or
    titles of groups; the run may end with some of them.
    """
    if not _has_gap(units[start]) or _is_prose(units[start]):
        return start
    gaps, box = _gaps(units[start], CELL_GAP), around(line.box for line in units[start])
    size, pitch, alone = units[start][0].size, 0.0, 0
    bottom = box.y1
    for at in range(start + 1, len(units)):
        unit = units[at]
        line, own = unit[0], around(line.box for line in unit)
        white = max(own.y0 - bottom, -0.2 * size)
        jump = at - start > 1 and white > pitch + 0.5 * size
        if (
            line.table
            or not 0.8 * size <= line.size <= 1.25 * size
            or white > 2.2 * size * (2 if not jump and white > size else 1)
            or _is_prose(unit)
        ):
            return at
        common = _common(gaps, _gaps(unit, LEAST_GAP), LEAST_GAP * size)
        lost = sum(not _common([gap], common, 0) for gap in gaps)
        if _has_gap(unit):
            if lost > (len(gaps) > MANY_GAPS) or len(common) < 3:
                return at
            gaps, alone, box = common, 0, around((box, own))
        else:
            is_long = own.x1 - own.x0 > 0.6 * (box.x1 - box.x0)
            alone += 1
            if jump or alone > MOST_LINES or (lost and (is_long or alone > 1)):
                return at
        pitch = white if at == start + 1 else min(white, max(pitch, white - 0.5 * size))
        bottom = own.y1
    return len(units)


def _gaps(unit: Unit, least: float) -> list[Gap]:
    """The white space of a unit that is so wide, and that on both sides of it."""
    parts = _segments(unit, least)
    inks = [(part[0].box.x0, max(word.box.x1 for word in part)) for part in parts]
    return list(pairwise([float("-inf"), *(x for ink in inks for x in ink), float("inf")]))[::2]


def _common(some: Sequence[Gap], others: Sequence[Gap], least: float) -> list[Gap]:
    """The white space that both have, if it is so wide."""
    both = ((max(a, c), min(b, d)) for a, b in some for c, d in others)
    return [(start, end) for start, end in both if end - start > least]


def _is_prose(unit: Unit) -> bool:
    """Whether a line is of text in columns."""
    if len(unit) > 1:
        return False
    lengths = [sum(len(word.text) + 1 for word in part) for part in _segments(unit, CELL_GAP)]
    return sum(length > LONG_CELL for length in lengths) > max(1, len(lengths) / 2)


# --- rows and columns of a run


def _table(run: Sequence[Unit], above: TextBlock) -> tuple[int, TextRow, int] | None:
    """The table of a run as a row of Markdown, and how many units before and after it are none.

    The former is negative if so many of the lines above the run belong to the header.
    """
    wide = [unit for unit in run if _has_gap(unit)]
    size = median(unit[0].size for unit in wide)
    # The names of groups of columns run across their white space.
    tried = range(_leading(wide, size) + 1)
    edges = max((_edges(wide[at:], size) for at in tried), key=len)
    code = sum(unit[0].mono for unit in run)
    if not edges or len(wide) < FEWEST_ROWS or code > len(run) / 2:
        return None
    if median(map(_slope, wide)) > LEVEL * size:  # lines of several columns
        return None
    placed = [_placed(unit, edges) for unit in run]
    rows = _rows(placed, run, size)
    # rows at the start and at the end with one cell are text before and after the table
    first, last = (
        next((at for at, (cells, _) in enumerate(some) if sum(map(bool, cells)) > 1), len(some))
        for some in (rows, rows[::-1])
    )
    kept = rows[first : len(rows) - last]
    if len(kept) < FEWEST_ROWS:
        return None
    before, after = (
        sum(count for _, count in some) for some in (rows[:first], rows[len(rows) - last :])
    )
    cells, taken = _with_header([row for row, _ in kept], [] if before else above, edges, size)
    texts = [[cell_text(words) for words in row] for row in cells]
    if not _tabular(texts, cells) or _is_justified(cells, size):
        return None
    words = tuple(word for row in cells for cell in row for word in cell)
    box = around(word.box for word in words)
    return before - taken, TextRow(box, "", words=words, table=table(texts)), after


def _slope(unit: Unit) -> float:
    """How far the first words of a line's cells are from being at one height."""
    heights = [part[0].box.y1 for part in _segments(unit, CELL_GAP)]
    return max(heights) - min(heights) if len(unit) == 1 else 0.0


def _edges(units: Sequence[Unit], size: float) -> list[float]:
    """The x positions between columns: the middles of white space in nearly all of the units."""
    allowed = int(CROSSED * len(units)) if len(units) > 5 else 0
    changes: list[tuple[float, int]] = []
    for unit in units:
        for part in _segments(unit, LEAST_GAP):
            changes += [(part[0].box.x0, 1), (max(word.box.x1 for word in part), -1)]
    changes.sort()
    edges, depth, start = [], 0, float("inf")
    for x, change in changes:
        if depth <= allowed < depth + change and x - start > LEAST_GAP * size:
            edges.append((start + x) / 2)
        depth += change
        if change < 0 and depth == allowed:
            start = x
    return edges


def _placed(unit: Unit, edges: Sequence[float]) -> Cells:
    """The words of a unit in each column; a part across an edge is where its middle is.

    If it is the only one, it is where it begins.
    """
    columns: Cells = [[] for _ in range(len(edges) + 1)]
    for line in unit:
        parts = _segments([line], LEAST_GAP)
        for part in parts:
            left, right = part[0].box.x0, max(word.box.x1 for word in part)
            crosses = bisect_left(edges, left) < bisect_left(edges, right)
            for word in part:
                x = (word.box.x0 + word.box.x1) / 2
                if crosses:
                    x = left if len(parts) == 1 else (left + right) / 2
                columns[bisect_left(edges, x)].append(word)
    return columns


def _rows(placed: Sequence[Cells], run: Sequence[Unit], size: float) -> list[tuple[Cells, int]]:
    """The rows of a table, rests of wrapped cells joined to them, and the number of their units."""
    extents = []
    for column in zip(*placed, strict=True):
        boxes = [word.box for cell in column for word in cell]
        extents.append(
            max((box.x1 for box in boxes), default=0) - min((box.x0 for box in boxes), default=0)
        )
    rows: list[tuple[Cells, int]] = []
    last: Cells = []
    for cells, unit in zip(placed, run, strict=True):
        if rows and len(unit) == 1 and _is_rest(cells, last, rows[-1][0], extents, size):
            row, count = rows[-1]
            rows[-1] = [[*cell, *more] for cell, more in zip(row, cells, strict=True)], count + 1
            last = [more or cell for cell, more in zip(last, cells, strict=True)]
        else:
            rows.append((cells, 1))
            last = cells
    return rows


def _is_rest(cells: Cells, last: Cells, row: Cells, widths: Sequence[float], size: float) -> bool:
    """Whether all cells of a line go on with those above them, where they had no room left."""
    filled = [at for at, cell in enumerate(cells) if cell]
    if len(filled) >= sum(map(bool, row)) or (filled == [0] and cells[0][0].text[:1].isupper()):
        return False  # the latter is the title of a group
    for at in filled:
        above, word = last[at], cells[at][0].box
        if (
            not above
            or _NUMBER.fullmatch(cell_text(cells[at]))
            or _NUMBER.fullmatch(cell_text(above))
        ):
            return False
        used = above[-1].box.x1 - above[0].box.x0
        if used + word.x1 - word.x0 + 0.2 * size <= widths[at]:
            return False
    return True


# --- the header


def _leading(units: Sequence[Unit], size: float) -> int:
    """How many units at the start may be names of columns only: they begin to the right."""
    lefts = [min(line.box.x0 for line in unit) for unit in units]
    left = min(lefts) + 2 * size
    first = next(at for at, each in enumerate(lefts) if each <= left)
    return max(0, min(first, MOST_NAMES, len(units) - FEWEST_ROWS))


def _with_header(
    rows: list[Cells], above: TextBlock, edges: Sequence[float], size: float
) -> tuple[list[Cells], int]:
    """The rows, with the lines of the names of columns as one; how many lines above it are in it.

    Lines that name groups of columns are rows of their own, with each name in its first column.
    """
    columns = [
        around(word.box for row in rows for word in row[at])
        if any(row[at] for row in rows)
        else None
        for at in range(len(edges) + 1)
    ]
    taken, is_named = 0, any(row[0] for row in rows[: _header_rows(rows)])
    boxes = [around(word.box for cell in row for word in cell) for row in rows]
    apart = min(after.y0 - before.y1 for before, after in pairwise(boxes))
    near, top = max(apart, TOUCHING * size), boxes[0].y0
    is_padded = apart > TOUCHING * size
    for line in reversed(above):
        if (
            taken == MOST_NAMES
            or line.table
            or line.mono
            or not 0.8 * size <= line.size <= 1.25 * size
            or top - line.box.y1 > near + 0.1 * size
        ):
            break
        cells = _placed([line], edges)
        if line.box.x0 < edges[0] and not (cells[0] and cells[0][-1].box.x1 < edges[0]):
            break
        if cells[0] and is_named and not is_padded:  # the lines between are the rest of a row
            rows, taken = rows[taken:], 0
            break
        rows, taken, is_named = [cells, *rows], taken + 1, is_named or bool(cells[0])
        near, top = TOUCHING * size, line.box.y0
    count = _header_rows(rows)
    if is_padded and taken:
        count = max(count, taken)
    if not count:
        return rows[taken:], 0
    header = rows[count - 1 : count]
    for row in reversed(rows[: count - 1]):
        if sum(map(bool, row)) < sum(map(bool, header[0])) and any(
            _is_group(cell, below, edges, size) for cell, below in zip(row, header[0], strict=True)
        ):
            header.insert(0, _grouped(row, columns))
        else:
            header[0] = [[*some, *more] for some, more in zip(row, header[0], strict=True)]
    return [*header, *rows[count:]], taken


def _header_rows(rows: Sequence[Cells]) -> int:
    """How many rows are above the first number in a column of numbers."""
    texts = [[cell_text(cell) for cell in row] for row in rows]
    lower = texts[len(texts) // 2 :]
    numeric = [
        at
        for at, column in enumerate(zip(*lower, strict=True))
        if sum(map(bool, column)) > 1 and is_numeric(column)
    ]
    count = next(
        (at for at, row in enumerate(texts) if any(_NUMBER.fullmatch(row[x]) for x in numeric)), 0
    )
    if not numeric:
        count = 1 + next((at for at, row in enumerate(texts) if row[0]), 0)
    firsts = [at for at, row in enumerate(texts[:count]) if row[0]]
    # A second name in the first column is that of a row without numbers, or of a group of rows.
    count = next((at for at in firsts[1:] if not texts[at][0][0].islower()), count)
    return count if count <= MOST_NAMES else 0


def _is_group(cell: Words, below: Words, edges: Sequence[float], size: float) -> bool:
    """Whether a cell names several columns: it crosses their edge, or is aligned with no name."""
    if not cell:
        return False
    box = around(word.box for word in cell)
    if any(box.x0 + 0.3 * size < edge < box.x1 - 0.3 * size for edge in edges):
        return True
    name = around(word.box for word in below) if below else box
    ends = box.x0 - name.x0, box.x1 - name.x1, (box.x0 + box.x1 - name.x0 - name.x1) / 2
    return min(map(abs, ends)) > 0.5 * size


def _grouped(row: Cells, columns: Sequence[Box | None]) -> Cells:
    """A row of names of groups, each in the first of the columns in whose middle it is."""
    moved: Cells = [[] for _ in row]
    filled = [at for at, cell in enumerate(row) if cell]
    for last, at, after in zip([-1, *filled], filled, [*filled[1:], len(row)], strict=False):
        middle = (row[at][0].box.x0 + row[at][-1].box.x1) / 2
        spans = [
            (abs((left.x0 + right.x1) / 2 - middle), end - start, start)
            for start in range(max(1, last + 1), at + 1)
            for end in range(at, after)
            if (left := columns[start]) and (right := columns[end])
        ]
        moved[min(spans)[2] if spans else at] += row[at]
    return moved


def is_numeric(cells: Iterable[str]) -> bool:
    """Return whether most of the cells that are not empty are numbers."""
    filled = [cell for cell in cells if cell]
    return sum(map(bool, map(_NUMBER.fullmatch, filled))) > NUMERIC * len(filled)


def _tabular(texts: Sequence[Sequence[str]], rows: Sequence[Cells]) -> bool:
    """Whether rows are those of a table."""
    columns = [[cell for cell in column if cell] for column in zip(*texts, strict=True)]
    counts = [sum(map(bool, row)) for row in texts]
    if (
        sum(counts) < FILLED_CELLS * len(texts) * len(columns)
        or counts.count(1) > LONELY_CELLS * len(counts)
        or (max(counts) == 2 and _are_counted(columns[0]))  # lines or items with their numbers
    ):
        return False
    long = [sum(map(len, column)) > PROSE_CELL * len(column) for column in columns]
    return not (
        all(long)
        or any(all(map(MARK.fullmatch, column)) for column in columns)  # bullets
        or any(map(_LEADER.search, chain(*columns)))  # a table of contents
        or any(each and _ends_full(rows, at) for at, each in enumerate(long))
    )


def _is_justified(rows: Sequence[Cells], size: float) -> bool:
    """Whether rows are lines of justified prose: equal spaces in a line, whose words end there."""
    lines = [[word.box for cell in row for word in cell] for row in rows]
    ends = [line[-1].x1 for line in lines]
    spaces = [[right.x0 - left.x1 for left, right in pairwise(line)] for line in lines]
    uneven = [max(each) - min(each) for each in spaces if len(each) > 1]
    return bool(uneven) and max(max(ends) - min(ends), *uneven) < JUSTIFIED * size


def _are_counted(column: Sequence[str]) -> bool:
    """Whether cells are whole numbers, each one more than the one before."""
    numbers = [int(cell) if cell.isdecimal() else 0 for cell in column]
    return all(after == before + 1 for before, after in pairwise(numbers))


def _ends_full(rows: Sequence[Cells], at: int) -> bool:
    """Whether the last lines of most cells of a column fill it, as those of prose do."""
    cells = [row[at] for row in rows if row[at]]
    left = min(word.box.x0 for cell in cells for word in cell)
    right = max(word.box.x1 for cell in cells for word in cell)
    full = sum(cell[-1].box.x1 - left >= FULL * (right - left) for cell in cells)
    return full > 0.5 * len(cells)
