"""CSV with a header: id, text, metadata (JSON) and embedding (JSON), or columns that are named."""

from __future__ import annotations

import codecs
import csv
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

from mcpvectordb.importers import fields, json_files
from mcpvectordb.importers.fields import Row
from mcpvectordb.importers.items import ImportOptions, Item, UnreadPart
from mcpvectordb.importers.source import ImportSource

LONGEST_FIELD = 100_000_000
_DELIMITERS = ",;\t|"


def recognises(source: ImportSource) -> bool:
    """Whether it has the name of a CSV file and a header with a text or an embedding."""
    name = source.path.name.lower().removesuffix(".gz")
    if source.is_folder or not name.endswith((".csv", ".tsv")):
        return False
    encoding, delimiter, head = _form(source.path)
    text = head.decode(encoding, errors="replace")
    return fields.has_known_fields(next(csv.reader(io.StringIO(text), delimiter=delimiter), []))


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """An item for each row."""
    return fields.items(_rows(source.path), options, source.path.name.partition(".")[0])


def _rows(path: Path) -> Iterator[Row | UnreadPart]:
    csv.field_size_limit(LONGEST_FIELD)
    encoding, delimiter, _ = _form(path)
    table: csv.DictReader[str] | None = None
    try:
        raw = json_files.opened(path)
        with io.TextIOWrapper(raw, encoding, errors="replace", newline="") as file:
            table = csv.DictReader(file, delimiter=delimiter, restkey="")
            for row in table:
                row.pop("", None)  # cells beyond the header, and those of a column without name
                yield row
    except (csv.Error, OSError, EOFError, zlib.error) as error:
        number = table.line_num if table else 1
        yield UnreadPart(what=f"from line {number} on: {error}")


def _form(path: Path) -> tuple[str, str, bytes]:
    """The encoding of a file, its delimiter, and its beginning.

    It is in UTF-8 if the beginning is that, otherwise in the encoding of spreadsheets on Windows.
    Of the usual delimiters, it has the one that is most often in the first line.
    """
    head, encoding = json_files.head(path), "utf-8-sig"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    else:
        try:
            codecs.getincrementaldecoder("utf-8")().decode(head)
        except UnicodeDecodeError:
            encoding = "cp1252"
    first = head.decode(encoding, errors="replace").partition("\n")[0]
    return encoding, max(_DELIMITERS, key=first.count), head
