"""CSV and TSV: each row becomes lines of "column: value", so that passages name their columns."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import islice

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.ingest.formats.charset import text_of
from mcpvectordb.records import Parsed, Source

DELIMITERS = ",;\t|"
LONGEST_CELL = 10**9
_NUMBER = re.compile(r"[-+]?[\d.,:/ %€$£-]*\d[\d.,:/ %€$£-]*")


def parse(source: Source) -> Parsed:
    """Return the rows of a table; the delimiter and the header are detected."""
    text = markdown_writer.clean(text_of(source))
    try:
        rows = [row for row in _rows(text, delimiter(text)) if any(map(str.strip, row))]
    except csv.Error as error:
        raise ParseFailed(f"{source.name} is not a table of values: {error}") from None
    names, records = _header(rows)
    written = "\n\n".join(filter(None, (_record(names, row) for row in records)))
    metadata = {"columns": names, "rows": len(records)}
    return markdown_writer.finish(source, written, metadata, headings=0)


def _rows(text: str, character: str) -> Iterator[list[str]]:
    csv.field_size_limit(LONGEST_CELL)
    return csv.reader(StringIO(text), delimiter=character)


def delimiter(text: str) -> str:
    """Return the character that splits the first rows most evenly; a comma if none does."""

    def evenness(character: str) -> tuple[float, int]:
        rows = [row for row in islice(_rows(text, character), 50) if row]
        width, times = Counter(map(len, rows)).most_common(1)[0] if rows else (1, 0)
        return (times / len(rows), width) if width > 1 else (0.0, 0)

    return max(DELIMITERS, key=evenness)


def _header(rows: Sequence[list[str]]) -> tuple[list[str], Sequence[list[str]]]:
    """The column names, taken from the first row if it looks like a header, and the other rows."""
    width = markdown_writer.checked_width(rows)
    first = [markdown_writer.line(cell) for cell in rows[0]] if rows else []
    named = [name for name in first if name]
    is_header = (
        len(rows) > 1
        and named
        and len(set(named)) == len(named)
        and not any(map(_NUMBER.fullmatch, named))
    )
    names = first if is_header else []
    return [
        names[at] if at < len(names) and names[at] else f"column {at + 1}" for at in range(width)
    ], (rows[1:] if is_header else rows)


def _record(names: Sequence[str], row: Sequence[str]) -> str:
    cells = ((name, markdown_writer.line(cell)) for name, cell in zip(names, row, strict=False))
    return markdown_writer.prose("\n".join(f"{name}: {cell}" for name, cell in cells if cell))
