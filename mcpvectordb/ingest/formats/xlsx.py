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
    """The tables of a sheet, which empty rows separate."""
    texts = ([_text(cell) for cell in row] for row in rows)
    return [
        table
        for filled, group in groupby(texts, any)
        if filled and (table := markdown_writer.table(group))
    ]


def _text(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:.15g}"
    if isinstance(cell, datetime.datetime):
        return cell.isoformat(" ", "seconds")
    return ("TRUE" if cell else "FALSE") if isinstance(cell, bool) else str(cell)
