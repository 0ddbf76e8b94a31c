"""Data as text: CSV as a table, JSON and XML as lines of "name: value", the cells of notebooks.

So passages name what their values are. Rows of CSV with long texts are such lines too. Outer keys
of JSON and titles in XML are headings.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import StringIO
from itertools import islice
from typing import Any
from xml.parsers import expat

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import markdown
from mcpvectordb.ingest.formats.charset import decode, text_of
from mcpvectordb.records import Parsed, Source

# --- CSV and TSV

DELIMITERS = ",;\t|"
LONGEST_CELL = 10**9
LONG_CELL = 60
"""Mean length of cells from which on rows are read as records rather than as a table."""
_YEAR = re.compile(r"(?:19|20)\d\d")
_NUMBER = re.compile(r"[-+]?[\d.,:/ %€$£-]*\d[\d.,:/ %€$£-]*")


def parse_csv(source: Source) -> Parsed:
    """Return the rows of a table; the delimiter and the header are detected."""
    text = markdown.clean(text_of(source))
    try:
        rows = [row for row in _csv_rows(text, delimiter(text)) if any(map(str.strip, row))]
    except csv.Error as error:
        raise ParseFailed(f"{source.name} is not a table of values: {error}") from None
    has_header = _has_header(rows)
    width = markdown.checked_width(rows)
    names = [markdown.line(name) for name in rows[0]] if has_header else []
    names += [""] * (width - len(names))
    records = rows[1:] if has_header else rows
    cells = sum(map(len, records))
    if cells and len(text) > LONG_CELL * cells:
        written = markdown.blocks(_record(names, row) for row in records)
    else:
        written = markdown.table([names, *records] if has_header else rows, has_header=has_header)
    metadata = {"columns": [name for name in names if name], "rows": len(records)}
    return markdown.finish(source, written, metadata, headings=0)


def _record(names: Sequence[str], row: Sequence[str]) -> str:
    """A row with long texts: each value in a line, after the name of its column."""
    cells = zip(names, map(markdown.line, row), strict=False)
    return markdown.prose("\n".join(f"{name}: {it}" if name else it for name, it in cells if it))


def _csv_rows(text: str, character: str) -> Iterator[list[str]]:
    csv.field_size_limit(LONGEST_CELL)
    return csv.reader(StringIO(text), delimiter=character)


def delimiter(text: str) -> str:
    """Return the character that splits the first rows most evenly; a comma if none does."""

    def evenness(character: str) -> tuple[float, int]:
        rows = [row for row in islice(_csv_rows(text, character), 50) if row]
        width, times = Counter(map(len, rows)).most_common(1)[0] if rows else (1, 0)
        return (times / len(rows), width) if width > 1 else (0.0, 0)

    return max(DELIMITERS, key=evenness)


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first of several rows has different names; years may be among them."""
    named = [name for cell in rows[0] if (name := cell.strip())] if rows else []
    numbers = [name for name in named if _NUMBER.fullmatch(name)]
    return (
        len(rows) > 1
        and len(set(named)) == len(named) > len(numbers)
        and all(map(_YEAR.fullmatch, numbers))
    )


# --- JSON and JSON Lines

DEEPEST_HEADING = 2


def parse_json(source: Source) -> Parsed:
    """Return the values of a JSON document, or of one document per line."""
    value = _loaded(text_of(source).lstrip("\ufeff"), source.name)
    named = value if isinstance(value, dict) else {}
    text = markdown.blocks(_json_section(value, 1))
    title = {"title": named.get("title")}
    return markdown.finish(source, text, title, title=named.get("name"), headings=0)


def _loaded(text: str, name: str) -> Any:
    """Return the value of a document, or the list of values of JSON Lines."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ParseFailed(f"{name} is nested too deeply") from None
    except ValueError as error:
        if "\n" not in text.strip():
            raise ParseFailed(f"{name} is not valid JSON: {error}") from None
        whole = str(error)
    values = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            values += [json.loads(line)] if line.strip() else []
        except RecursionError:
            raise ParseFailed(f"{name} is nested too deeply in line {number}") from None
        except ValueError as error:
            reason = f"line {number}: {error}" if values else whole
            raise ParseFailed(f"{name} is not valid JSON: {reason}") from None
    return values


def _json_section(value: Any, level: int) -> Iterator[str]:
    """Plain values first, then each nested value below a heading; records of a list separately."""
    if isinstance(value, dict) and level <= DEEPEST_HEADING:
        nested = {key: each for key, each in value.items() if _is_nested(each)}
        yield _lines({key: each for key, each in value.items() if key not in nested})
        for key, each in nested.items():
            yield markdown.heading(level, key)
            yield from _json_section(each, level + 1)
    elif isinstance(value, list) and any(map(_is_nested, value)):
        yield from map(_lines, value)
    else:
        yield _lines(value)


def _is_nested(value: Any) -> bool:
    """Whether a value needs more than one line; a list of plain values does not."""
    return isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(each, dict | list) for each in value)
    )


def _lines(value: Any) -> str:
    """Every plain value in it on a separate line, after its path."""
    lines = []
    pending = [("", value)]
    while pending:
        path, each = pending.pop()
        if isinstance(each, dict):
            pending += [
                (f"{path}.{key}" if path else key, inner) for key, inner in reversed(each.items())
            ]
        elif _is_nested(each):
            pending += [(f"{path}[{at}]", each[at]) for at in reversed(range(len(each)))]
        elif text := _plain(each):
            lines.append(f"{path}: {text}" if path else text)
    return markdown.prose("\n".join(lines))


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return markdown.clean(value).strip() if isinstance(value, str) else json.dumps(value)


# --- Jupyter notebooks: Markdown cells unchanged, code cells and their text outputs as code

LONGEST_OUTPUT = 2000


def parse_notebook(source: Source) -> Parsed:
    """Return the cells of a notebook in their order."""
    book = _loaded(decode(source.raw).lstrip("\ufeff"), source.name)
    # Before version 4 the cells are in worksheets.
    sheets = [book, *_list(_dictionary(book).get("worksheets"))]
    found = [cell for sheet in sheets for cell in _list(_dictionary(sheet).get("cells"))]
    cells = list(filter(None, map(_dictionary, found)))
    if not cells:
        raise ParseFailed(f"{source.name} is not a notebook: it has no cells")
    about = _dictionary(_dictionary(book).get("metadata"))
    language = str(
        _dictionary(about.get("language_info")).get("name")
        or _dictionary(about.get("kernelspec")).get("language")
        or "python"
    )
    text = markdown.blocks(block for cell in cells for block in _cell(cell, language))
    return markdown.finish(source, text, {"language": language}, title=about.get("title"))


def _dictionary(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _cell(cell: dict[str, Any], language: str) -> Iterator[str]:
    source = _cell_text(cell.get("source", cell.get("input")))
    if cell.get("cell_type") == "heading":
        level = cell.get("level")
        yield markdown.heading(level if isinstance(level, int) else 1, source)
    elif cell.get("cell_type") != "code":
        yield markdown.clean(source).strip("\n")
    else:
        yield markdown.fence(source, language)
        for output in map(_dictionary, _list(cell.get("outputs"))):
            if output.get("output_type") in ("error", "pyerr"):
                text = f"{_cell_text(output.get('ename'))}: {_cell_text(output.get('evalue'))}"
            else:  # printed lines or a value
                data = _dictionary(output.get("data")) or output
                text = _cell_text(data.get("text/plain") or data.get("text"))
            if len(text) > LONGEST_OUTPUT:
                text = text[:LONGEST_OUTPUT].rstrip() + "\n…"
            yield markdown.fence(text)


def _cell_text(value: Any) -> str:
    """Text that may be stored as a list of lines."""
    if isinstance(value, list):
        return "".join(line for line in value if isinstance(line, str))
    return value if isinstance(value, str) else ""


# --- XML: of entities, only short texts are allowed

DEEPEST = 1000
LONGEST_ENTITY = 200
_CHARACTER_REFERENCE = re.compile(r"&#(?:\d+|x[0-9a-fA-F]+);")
TITLES = frozenset(["title", "name", "head", "heading", "headline", "subject"])


def parse_xml(source: Source) -> Parsed:
    """Return the text of an XML document of any kind."""
    reader = _XmlReader(source.name)
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.text
    parser.EntityDeclHandler = reader.declare
    try:
        parser.Parse(source.raw, True)
    except expat.ExpatError as error:
        raise ParseFailed(f"{source.name} is not well-formed XML: {error}") from None
    text = markdown.blocks(reader.blocks)
    return markdown.finish(source, text, title=reader.title, headings=0)


@dataclass(slots=True)
class _OpenElement:
    """An element that is not closed yet: its text and the blocks of its children."""

    name: str
    attributes: list[str]
    words: list[str] = field(default_factory=list)
    mixed: bool = False
    leaf: bool = True
    blocks: list[str] = field(default_factory=list)


class _XmlReader:
    """Makes blocks as elements close; an element with mixed content is one paragraph."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.title = ""
        self.open: list[_OpenElement] = []
        self.blocks: list[str] = []

    def declare(self, _: str, parameter: bool, text: str | None, *__: object) -> None:
        """Allow an entity that stands for a short text; expansion is bounded by `LONGEST_ENTITY`.

        Expat expands it. One that refers to other entities, to a file or to markup is refused.
        """
        plain = _CHARACTER_REFERENCE.sub("", text or "")
        if parameter or text is None or len(text) > LONGEST_ENTITY or set("&%<") & set(plain):
            raise ParseFailed(
                f"{self.name} declares XML entities, which can expand to gigabytes or read files; "
                "save it without a document type definition"
            )

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self.open) >= DEEPEST:
            raise ParseFailed(f"{self.name} has elements nested more than {DEEPEST} deep")
        if self.open:
            self.open[-1].leaf = False
        if self.open and self.open[0].name == "svg":
            attributes = {}  # they describe shapes; the words of a drawing are text
        plain = [
            f"{_local(key)}: {text}"
            for key, value in attributes.items()
            if (text := markdown.line(value))
        ]
        self.open.append(_OpenElement(_local(tag), plain))

    def text(self, text: str) -> None:
        self.open[-1].words.append(text)
        self.open[-1].mixed = self.open[-1].mixed or not text.isspace()

    def end(self, _: str) -> None:
        element = self.open.pop()
        text = markdown.line("".join(element.words))
        parent = self.open[-1] if self.open else None
        if parent is not None:
            parent.words += [" " if element.blocks else "", text, " " if element.blocks else ""]
        (self if parent is None else parent).blocks.extend(self._blocks(element, text))

    def _blocks(self, element: _OpenElement, text: str) -> list[str]:
        # References in JATS have such titles too.
        is_title = element.name == "article-title" and not self.title
        if element.leaf and text and (is_title or element.name.lower() in TITLES):
            self.title = self.title or text
            return [markdown.heading(1 if is_title else len(self.open), text)]
        if element.leaf or element.mixed:
            about = f" ({', '.join(element.attributes)})" if element.attributes else ""
            shown = markdown.prose(f"{element.name}{about}: {text}".removeprefix("p: "))
            return [shown] if text or about else []
        blocks = [*element.attributes, *element.blocks]
        if any(block.startswith("#") or "\n" in block or len(block) > 200 for block in blocks):
            return blocks
        return ["\n".join(blocks)] if blocks else []  # the short lines of a record


def _local(name: str) -> str:
    return name.rpartition("}")[2]
