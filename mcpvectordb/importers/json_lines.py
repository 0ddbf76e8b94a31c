"""JSON Lines, or a JSON array, of objects with id, text, metadata and embedding."""

from __future__ import annotations

from collections.abc import Iterator

from mcpvectordb.errors import ParseFailed
from mcpvectordb.importers import fields, json_files, own_export
from mcpvectordb.importers.fields import Row
from mcpvectordb.importers.items import ImportOptions, Item, UnreadPart
from mcpvectordb.importers.source import ImportSource
from mcpvectordb.importers.values import json_value


def recognises(source: ImportSource) -> bool:
    """Whether the first line, or the first element of the array, has a text or an embedding."""
    if source.is_folder:
        return False
    head = json_files.head(source.path).lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"{"):
        first = json_value(head.partition(b"\n")[0])
        return isinstance(first, dict) and fields.has_known_fields(first)
    return head.startswith(b"[") and any(map(fields.has_known_fields, _first(source)))


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """An item for each object; our own export is read as what it is."""
    if own_export.recognises(source):
        return own_export.read(source, options)
    head = json_files.head(source.path).lstrip(b"\xef\xbb\xbf \t\r\n")
    rows = _array(source) if head.startswith(b"[") else _lines(source)
    return fields.items(rows, options, source.path.name.partition(".")[0])


def _first(source: ImportSource) -> Iterator[Row]:
    for row in _array(source):
        if not isinstance(row, UnreadPart):
            yield row
        return


def _lines(source: ImportSource) -> Iterator[Row | UnreadPart]:
    for number, value, error in json_files.json_lines(source.path):
        if isinstance(value, dict):
            yield value
        else:
            yield UnreadPart(what=f"line {number}: {error or 'it is no object'}")


def _array(source: ImportSource) -> Iterator[Row | UnreadPart]:
    try:
        with json_files.opened(source.path) as file:
            for element in json_files.elements(file):
                if isinstance(element, dict):
                    yield element
                else:
                    yield UnreadPart(what="an element that is no object")
    except ParseFailed as error:
        yield UnreadPart(what=str(error))
