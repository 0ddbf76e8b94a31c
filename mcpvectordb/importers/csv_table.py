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
    head = json_files.head(source.path).decode(_encoding(source.path), errors="replace")
    return fields.has_known_fields(next(csv.reader(io.StringIO(head), _dialect(head)), []))


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """An item for each row."""
    return fields.items(_rows(source.path), options, source.path.name.partition(".")[0])


def _rows(path: Path) -> Iterator[Row | UnreadPart]:
    csv.field_size_limit(LONGEST_FIELD)
    encoding = _encoding(path)
    head = json_files.head(path).decode(encoding, errors="replace")
    table: csv.DictReader[str] | None = None
    try:
        with io.TextIOWrapper(
            json_files.opened(path), encoding, errors="replace", newline=""
        ) as file:
            table = csv.DictReader(file, dialect=_dialect(head), restkey="", strict=False)
            for row in table:
                row.pop("", None)  # cells beyond the header, and those of a column without name
                yield row
    except (csv.Error, OSError, EOFError, zlib.error) as error:
        number = table.line_num if table else 1
        yield UnreadPart(what=f"from line {number} on: {error}")


def _encoding(path: Path) -> str:
    """UTF-8 if the beginning is that, otherwise the encoding of spreadsheets on Windows."""
    head = json_files.head(path)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8-sig"


def _dialect(head: str) -> type[csv.Dialect]:
    """Excel's dialect with the delimiter that the header has most of."""
    first = head.partition("\n")[0]
    chosen = max(_DELIMITERS, key=first.count)

    class _Dialect(csv.excel):
        delimiter = chosen

    return _Dialect
