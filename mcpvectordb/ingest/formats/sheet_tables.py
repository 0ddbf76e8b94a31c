"""The tables of a spreadsheet's sheet: where they begin, and which row is their header."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from mcpvectordb.ingest.formats import markdown_writer

# A number, amount, date or time.
_VALUE = re.compile(r"[-+(]?[\d.,:/ %€$£¥T-]*\d[\d.,:/ %€$£¥)ZE+-]*|TRUE|FALSE")

Row = Sequence[str]


def sheet_tables(rows: Iterable[Row]) -> list[str]:
    """Return the tables of a sheet in Markdown; empty rows separate them.

    Rows with a single cell above a table are lines of text. Rows that follow an empty row and have
    values in columns of the header before it belong to that header: it is repeated for them.
    """
    found: list[str] = []
    header: Row = ()
    waiting: Row = ()  # a header without rows so far
    for filled, group in groupby(rows, any):
        if not filled:
            continue
        table = list(group)
        while len(table) > 1 and _width(table[0]) == 1 < _width(table[1]):
            found.append(markdown_writer.table([table.pop(0)]))
        if header and not _is_header(table[0]) and _fits(table, header):
            table, waiting = [header, *table], ()
        elif waiting:
            found.append(markdown_writer.table([waiting]))
            waiting = ()
        header = table[0] if _is_header(table[0]) else ()
        if header and len(table) == 1:
            waiting = header
        else:
            found.append(markdown_writer.table(table))
    if waiting:
        found.append(markdown_writer.table([waiting]))
    return [table for table in found if table]


def _width(row: Row) -> int:
    return sum(map(bool, row))


def _is_header(row: Row) -> bool:
    """Whether a row has several different names and no values."""
    names = [cell for cell in row if cell]
    return (
        len(names) > 1 and len(set(names)) == len(names) and not any(map(_VALUE.fullmatch, names))
    )


def _fits(table: Sequence[Row], header: Row) -> bool:
    """Whether all cells of a table are below names of the header, and several of them."""
    columns = {at for row in table for at, cell in enumerate(row) if cell}
    return len(columns) > 1 and all(at < len(header) and header[at] for at in columns)
