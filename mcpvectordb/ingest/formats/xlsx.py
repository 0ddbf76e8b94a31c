"""XLSX, XLSB and XLS workbooks: each sheet is a section with tables, comments and charts.

Of other OLE containers than XLS, the error says what they are.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Sequence
from html import unescape
from io import BytesIO
from itertools import groupby
from typing import Any

from python_calamine import CalamineError, CalamineWorkbook

from mcpvectordb.errors import ParseFailed, UnsupportedFormat
from mcpvectordb.ingest.formats import OLE, markdown
from mcpvectordb.ingest.formats.archive import Archive, chart_markdown, relation_id, value
from mcpvectordb.ingest.formats.ole import OleStreams
from mcpvectordb.records import Parsed, Source

_HYPERLINK = re.compile(r"<(?:\w+:)?hyperlink\s[^>]*>")
_ATTRIBUTE = re.compile(r"""([\w:]+)=["']([^"']*)["']""")


def parse(source: Source) -> Parsed:
    """Return the sheets of a workbook with their last calculated values, comments and charts."""
    metadata: dict[str, str] = {}
    extras: dict[str, list[str]] = {}
    if source.raw.startswith(OLE):
        _check_container(source)
    else:
        archive = Archive(source)
        metadata, part = archive.properties(), archive.main_part("xl/workbook.xml")
        if part.endswith(".xml"):  # not of XLSB
            parts = {key: target for key, (_, target) in archive.relations(part).items()}
            for sheet in archive.xml(part).iterfind("{*}sheets/*"):
                target = parts.get(relation_id(sheet), "")
                extras[value(sheet, "name")] = list(_extras(archive, target))
    sheets = [
        markdown.blocks([markdown.heading(1, name), *tables, *extras.get(name, ())])
        for name, tables in _sheets(source)
        if any(tables) or extras.get(name)
    ]
    return markdown.finish(source, markdown.blocks(sheets), metadata, headings=0)


# What an OLE container is in which one of these is found, if it is no workbook.
_CONTAINERS = {
    "VisioDocument": "a drawing of Visio; save it as PDF and add that",
    "Quill": "a publication of Publisher; save it as PDF and add that",
    "MatOST": "a document of Works; open it in LibreOffice, save it as ODT and add that",
    "TBkndTask": "a plan of Project; save it as PDF and add that",
}
_NEITHER = "an OLE container without a document, such as an installer; nothing in it is text"
_ENCRYPTED_WORKBOOK = 0x2F
"""The kind of the record that a workbook with a password has behind its first one."""


def _check_container(source: Source) -> None:
    """Refuse an OLE container that is encrypted or no workbook, by what its directory lists."""

    def has(stream: str) -> bool:
        return stream.encode("utf-16-le") in source.raw

    if has("EncryptedPackage"):
        raise markdown.encrypted(source.name)
    if has("Book") or has("Workbook"):
        streams = OleStreams(source)
        book = streams.read("Workbook") or streams.read("Book")
        first = int.from_bytes(book[2:4], "little")
        if int.from_bytes(book[4 + first : 6 + first], "little") == _ENCRYPTED_WORKBOOK:
            raise markdown.encrypted(source.name)
        return
    for lost in ("WordDocument", "PowerPoint Document", "__properties_version1.0"):
        if has(lost):  # it was not found in the container
            raise markdown.damaged(source.name, f"its {lost} cannot be found")
    what = next((what for name, what in _CONTAINERS.items() if has(name)), _NEITHER)
    raise UnsupportedFormat(f"Unsupported format of {source.name}: {what}")


def _extras(archive: Archive, part: str) -> Iterator[str]:
    """What a sheet of an XLSX has beside its cells: links, comments and charts."""
    if targets := archive.links(part):
        # Found by their form, because parsing a large sheet once more would take seconds.
        for tag in _HYPERLINK.findall(archive.read(part).decode("utf-8", "replace")):
            place = {
                key.rpartition(":")[2]: unescape(text) for key, text in _ATTRIBUTE.findall(tag)
            }
            shown = place.get("display") or place.get("ref", "")
            yield markdown.link(shown, targets.get(place.get("id", ""), ""))
    for kind, target in archive.relations(part).values():
        if kind in ("comments", "threadedComment"):
            yield from _comments(archive.xml(target))
        elif kind == "drawing":
            for other, chart in archive.relations(target).values():
                if other == "chart":
                    yield chart_markdown(archive.xml(chart))


def _comments(root: Any) -> Iterator[str]:
    for comment in root.iter("{*}comment", "{*}threadedComment"):
        texts = (each.text or "" for each in comment.iter("{*}t", "{*}text"))
        if text := markdown.line("".join(texts)):
            yield markdown.prose(f"Comment ({value(comment, 'ref')}): {text}")


def _sheets(source: Source) -> Iterator[tuple[str, list[str]]]:
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
            f"{source.name} cannot be read as a workbook: {markdown.line(str(error))}"
        ) from None


def _text(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:.15g}"
    if isinstance(cell, datetime.datetime):
        return cell.isoformat(" ", "seconds")
    return ("TRUE" if cell else "FALSE") if isinstance(cell, bool) else str(cell)


# --- the tables of a sheet: where they begin, and which row is their header

# A number, amount, date or time.
_VALUE = re.compile(r"[-+(]?[\d.,:/ %€$£¥T-]*\d[\d.,:/ %€$£¥)ZE+-]*|TRUE|FALSE")
_YEAR = re.compile(r"(?:19|20)\d\d")

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
            found.append(markdown.table([table.pop(0)]))
        columns = {at for row in table for at, cell in enumerate(row) if cell}
        is_below = len(columns) > 1 and all(at < len(header) and header[at] for at in columns)
        if is_below and not _is_header(table[0]):
            table, waiting = [header, *table], ()
        elif waiting:
            found.append(markdown.table([waiting]))
            waiting = ()
        header = table[0] if _is_header(table[0]) else ()
        if header and len(table) == 1:
            waiting = header
        else:
            found.append(markdown.table(table, has_header=not _is_data(table)))
    if waiting:
        found.append(markdown.table([waiting]))
    return [table for table in found if table]


def _is_data(table: Sequence[Row]) -> bool:
    """Whether the first row has values only, as the second has: the table has no header."""
    first, second = ([cell for cell in row if cell] for row in (*table[:2], ())[:2])
    values = all(map(_VALUE.fullmatch, [*first, *second]))
    return bool(second) and values and not all(map(_YEAR.fullmatch, first))


def _width(row: Row) -> int:
    return sum(map(bool, row))


def _is_header(row: Row) -> bool:
    """Whether a row has several different names and no values."""
    names = [cell for cell in row if cell]
    return (
        len(names) > 1 and len(set(names)) == len(names) and not any(map(_VALUE.fullmatch, names))
    )
