"""Jupyter notebooks: Markdown cells unchanged, code cells and their text outputs as code blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.ingest.formats.charset import decode
from mcpvectordb.ingest.formats.json import load
from mcpvectordb.records import Parsed, Source

LONGEST_OUTPUT = 2000


def parse(source: Source) -> Parsed:
    """Return the cells of a notebook in their order."""
    book = load(decode(source.raw).lstrip("\ufeff"), source.name)
    cells = list(_cells(book))
    if not cells:
        raise ParseFailed(f"{source.name} is not a notebook: it has no cells")
    about = _dictionary(_dictionary(book).get("metadata"))
    language = str(
        _dictionary(about.get("language_info")).get("name")
        or _dictionary(about.get("kernelspec")).get("language")
        or "python"
    )
    text = markdown_writer.blocks(block for cell in cells for block in _cell(cell, language))
    return markdown_writer.finish(source, text, {"language": language}, title=about.get("title"))


def _dictionary(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _cells(book: Any) -> Iterator[dict[str, Any]]:
    """The cells; notebooks before version 4 have them in worksheets."""
    for sheet in [book, *_list(_dictionary(book).get("worksheets"))]:
        yield from filter(None, map(_dictionary, _list(_dictionary(sheet).get("cells"))))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _cell(cell: dict[str, Any], language: str) -> Iterator[str]:
    source = _text(cell.get("source", cell.get("input")))
    if cell.get("cell_type") == "heading":
        yield markdown_writer.heading(
            cell["level"] if isinstance(cell.get("level"), int) else 1, source
        )
    elif cell.get("cell_type") != "code":
        yield markdown_writer.clean(source).strip("\n")
    else:
        yield markdown_writer.fence(source, language)
        for output in map(_dictionary, _list(cell.get("outputs"))):
            text = _output(output)
            if len(text) > LONGEST_OUTPUT:
                text = text[:LONGEST_OUTPUT].rstrip() + "\n…"
            yield markdown_writer.fence(text)


def _output(output: dict[str, Any]) -> str:
    """The plain text of an output: printed lines, a value or an error."""
    if output.get("output_type") in ("error", "pyerr"):
        return f"{_text(output.get('ename'))}: {_text(output.get('evalue'))}"
    data = _dictionary(output.get("data")) or output
    return _text(data.get("text/plain") or data.get("text"))


def _text(value: Any) -> str:
    """Text that may be stored as a list of lines."""
    return (
        "".join(line for line in value if isinstance(line, str))
        if isinstance(value, list)
        else (value if isinstance(value, str) else "")
    )
