"""XLSX and XLSB workbooks: each sheet is a section with tables."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from itertools import groupby
from typing import Any

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.ingest.formats.archive import Archive
from mcpvectordb.ingest.formats.ooxml import properties
from mcpvectordb.records import Parsed, Source


def parse(source: Source) -> Parsed:
    """Return the sheets of a workbook with their last calculated values."""
    metadata = properties(Archive(source))
    return workbook(source, metadata.pop("title", ""), metadata)


def workbook(source: Source, title: str = "", metadata: dict[str, Any] | None = None) -> Parsed:
    """Return the sheets of a workbook in any format that calamine reads."""
    sheets = [
        markdown_writer.blocks([markdown_writer.heading(1, name), *tables])
        for name, tables in _sheets(source)
        if any(tables)
    ]
    return markdown_writer.finish(
        source, sheets, title=markdown_writer.title(source, title), metadata=metadata, paged=False
    )


def _sheets(source: Source) -> Iterator[tuple[str, list[str]]]:
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        book = CalamineWorkbook.from_object(BytesIO(source.raw))
        for name in book.sheet_names:
            sheet = book.get_sheet_by_name(name)
            yield name, _tables(sheet.iter_rows() if sheet.height else ())
    except BaseException as error:  # a panic of the Rust library is not an Exception
        if not isinstance(error, CalamineError) and type(error).__name__ != "PanicException":
            raise
        raise ParseFailed(
            f"{source.name} cannot be read as a workbook: {markdown_writer.line(str(error))}"
        ) from None


def _tables(rows: Iterable[Sequence[Any]]) -> list[str]:
    """The tables of a sheet, which empty rows separate.

    Rows of values without a header of their own have the last one above them, if their cells are in
    its columns: people leave rows empty below a header, or between groups of rows.
    """
    tables: list[list[Sequence[Any]]] = []
    header: Sequence[Any] = ()
    for filled, group in groupby(rows, lambda row: any(map(_text, row))):
        if not filled:
            continue
        table = list(group)
        if _is_header(table[0]):
            header = table[0]
        elif len(_columns(table[0])) > 1 and _columns(table[0]) <= _columns(header):
            if tables and tables[-1] == [header]:
                tables.pop()
            table.insert(0, header)
        tables.append(table)
    written = (markdown_writer.table([*map(_text, row)] for row in table) for table in tables)
    return [table for table in written if table]


def _is_header(row: Sequence[Any]) -> bool:
    """Whether a row has names in two columns or more, and no numbers or dates."""
    cells = [cell for cell in row if _text(cell)]
    return len(cells) > 1 and all(isinstance(cell, str) for cell in cells)


def _columns(row: Sequence[Any]) -> set[int]:
    return {at for at, cell in enumerate(row) if _text(cell)}


def _text(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:.15g}"
    if isinstance(cell, datetime.datetime):
        return cell.isoformat(" ", "seconds")
    return ("TRUE" if cell else "FALSE") if isinstance(cell, bool) else str(cell)
