"""XLSX and XLSB workbooks: each sheet is a section with tables, comments and charts."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from html import unescape
from io import BytesIO
from typing import Any

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.ingest.formats.archive import Archive
from mcpvectordb.ingest.formats.ooxml import (
    find,
    links,
    local,
    main_part,
    properties,
    relation_id,
    relations,
    value,
)
from mcpvectordb.ingest.formats.ooxml_chart import chart_markdown
from mcpvectordb.ingest.formats.sheet_tables import sheet_tables
from mcpvectordb.records import Parsed, Source

_HYPERLINK = re.compile(r"<(?:\w+:)?hyperlink\s[^>]*>")
_ATTRIBUTE = re.compile(r"""([\w:]+)=["']([^"']*)["']""")


def parse(source: Source) -> Parsed:
    """Return the sheets of a workbook with their last calculated values, comments and charts."""
    archive = Archive(source)
    metadata = properties(archive)
    return workbook(source, metadata.pop("title", ""), metadata, _extras(archive))


def workbook(
    source: Source,
    title: str = "",
    metadata: dict[str, Any] | None = None,
    extras: Mapping[str, list[str]] | None = None,
) -> Parsed:
    """Return the sheets of a workbook in any format that calamine reads.

    `extras` are blocks to add to a sheet, by its name.
    """
    extras = extras or {}
    sheets = [
        markdown_writer.blocks([markdown_writer.heading(1, name), *tables, *extras.get(name, ())])
        for name, tables in _sheets(source)
        if any(tables) or extras.get(name)
    ]
    return markdown_writer.finish(
        source, sheets, title=markdown_writer.title(source, title), metadata=metadata, paged=False
    )


def _extras(archive: Archive) -> dict[str, list[str]]:
    """What the sheets of an XLSX have beside their cells: links, comments and charts."""
    part = main_part(archive, "xl/workbook.xml")
    if not part.endswith(".xml"):  # XLSB
        return {}
    parts = {key: target for key, (_, target) in relations(archive, part).items()}
    sheets = find(archive.xml(part), "sheets")
    return {
        value(sheet, "name"): list(_sheet_extras(archive, parts.get(relation_id(sheet), "")))
        for sheet in (sheets if sheets is not None else ())
    }


def _sheet_extras(archive: Archive, part: str) -> Iterator[str]:
    if targets := links(archive, part):
        # Found by their form, because parsing a large sheet once more would take seconds.
        for tag in _HYPERLINK.findall(archive.read(part).decode("utf-8", "replace")):
            place = {
                key.rpartition(":")[2]: unescape(text) for key, text in _ATTRIBUTE.findall(tag)
            }
            shown = place.get("display") or place.get("ref", "")
            yield markdown_writer.link(shown, targets.get(place.get("id", ""), ""))
    for kind, target in relations(archive, part).values():
        if kind in ("comments", "threadedComment"):
            yield from _comments(archive.xml(target))
        elif kind == "drawing":
            for other, chart in relations(archive, target).values():
                if other == "chart":
                    yield chart_markdown(archive.xml(chart))


def _comments(root: Any) -> Iterator[str]:
    for comment in root.iter() if root is not None else ():
        if local(comment) in ("comment", "threadedComment"):
            texts = (each.text or "" for each in comment.iter() if local(each) in ("t", "text"))
            if text := markdown_writer.line("".join(texts)):
                yield markdown_writer.prose(f"Comment ({value(comment, 'ref')}): {text}")


def _sheets(source: Source) -> Iterator[tuple[str, list[str]]]:
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        book = CalamineWorkbook.from_object(BytesIO(source.raw))
        for name in book.sheet_names:
            sheet = book.get_sheet_by_name(name)
            rows = sheet.iter_rows() if sheet.height else ()
            yield name, sheet_tables([_text(cell) for cell in row] for row in rows)
    except BaseException as error:  # a panic of the Rust library is not an Exception
        if not isinstance(error, CalamineError) and type(error).__name__ != "PanicException":
            raise
        raise ParseFailed(
            f"{source.name} cannot be read as a workbook: {markdown_writer.line(str(error))}"
        ) from None


def _text(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:.15g}"
    if isinstance(cell, datetime.datetime):
        return cell.isoformat(" ", "seconds")
    return ("TRUE" if cell else "FALSE") if isinstance(cell, bool) else str(cell)
