"""How the readers of rich formats write what they found: clean text, Markdown blocks, pages,
titles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mcpvectordb.errors import NoText
from mcpvectordb.ingest.structure import outline
from mcpvectordb.records import Parsed, Source

LONGEST_TITLE = 200
TABLE_PART = 500
"""Characters after which a table starts anew with its header, so that a passage of a long one knows
its columns.
"""
LONGEST_NOTE = 1000

_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\u00ad\u200b\ufdd0-\ufdef\ufeff\ufffe\uffff]"
)
_NEWLINES = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_BLOCK_START = re.compile(r"^(?=[ ]{0,3}(?:#{1,6}(?:\s|$)|```|~~~|=+[ ]*$|-+[ ]*$))", re.MULTILINE)
_BACKTICKS = re.compile(r"`{3,}")


def clean(text: str) -> str:
    """The text with newlines as "\\n" and without control characters, lone surrogates and
    characters of no width.
    """
    text = _NEWLINES.sub("\n", text).replace("\u00a0", " ")
    return _CONTROLS.sub("", text)


def line(text: str) -> str:
    """The text on one line, each run of white space one space."""
    return " ".join(clean(text).split())


def prose(text: str) -> str:
    """The text as it is, safe from being taken for a heading or a fence."""
    return _BLOCK_START.sub(r"\\", text)


def heading(level: int, text: str) -> str:
    """A heading of level 1 to 6, or "" where there is no text."""
    text = line(text)
    return f"{'#' * min(max(level, 1), 6)} {text}" if text else ""


def fence(code: str, language: str = "") -> str:
    """A fenced block that no back-ticks inside can close, or "" where there is no code."""
    code = clean(code).strip("\n").rstrip()
    if not code:
        return ""
    longest = max((len(run) for run in _BACKTICKS.findall(code)), default=2)
    marks = "`" * (longest + 1)
    return f"{marks}{language}\n{code}\n{marks}"


def table(rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose first row is the header; columns and rows without any text are left
    out.

    A long one is written in parts that each repeat the header. A single row or column becomes a
    line or lines.
    """
    cells = [[line(cell) for cell in row] for row in rows]
    cells = [row for row in cells if any(row)]
    width = max(map(len, cells), default=0)
    columns = [at for at in range(width) if any(at < len(row) and row[at] for row in cells)]
    if len(cells) < 2 or len(columns) < 2:
        return prose("\n".join(", ".join(filter(None, row)) for row in cells))
    lines = [_row([row[at] if at < len(row) else "" for at in columns]) for row in cells]
    return "\n\n".join(_parts(lines, _row(["---"] * len(columns))))


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _parts(lines: list[str], rule: str) -> Iterator[str]:
    top, part, size = [lines[0], rule], list[str](), 0
    most = max(TABLE_PART, 3 * len(lines[0]))
    for row in lines[1:]:
        if part and size + len(row) > most:
            yield "\n".join(top + part)
            part, size = [], 0
        part.append(row)
        size += len(row)
    yield "\n".join(top + part)


def blocks(parts: Iterable[str]) -> str:
    """The parts that are not empty, a blank line between them."""
    return "\n\n".join(part for part in parts if part and not part.isspace())


def with_lists(parts: Iterable[tuple[str, bool]]) -> str:
    """The parts, a blank line between them, but none between two that are marked as items of a
    list.
    """
    written: list[str] = []
    after_item = False
    for text, item in parts:
        if text:
            written += ["\n" if item and after_item else "\n\n", text]
            after_item = item
    return "".join(written).strip("\n")


def title(source: Source, *candidates: object) -> str:
    """The first candidate with text in it, else the source's name; on one line of at most 200
    characters.
    """
    for candidate in candidates:
        if isinstance(candidate, str) and (found := line(candidate)):
            return found[:LONGEST_TITLE].rstrip()
    return line(source.name)[:LONGEST_TITLE]


def first_heading(text: str) -> str:
    """The first Markdown heading without its inline markup, or ""."""
    return next(
        (each.path[-1] for each in outline(text[:20_000], "markdown").headings if each.path[-1]), ""
    )


def no_text(name: str, why: str = "") -> NoText:
    """The error for a source without any text, with the way out."""
    return NoText(
        f"No text found in {name}; {why or 'if you know what it says, supply the text directly'}"
    )


def finish(
    source: Source,
    pages: Sequence[str],
    *,
    title: str,
    metadata: Mapping[str, Any] | None = None,
    paged: bool = True,
    nothing: str = "",
) -> Parsed:
    """The parsed Markdown of the pages, which a blank line separates; `nothing` explains a source
    without text.
    """
    offsets, written, at = [], list[str](), 0
    for page in pages:
        offsets.append(at)
        if page := clean(page).strip("\n").rstrip():
            written.append(page)
            at += len(page) + 2
    if not written:
        raise no_text(source.name, nothing)
    text = "\n\n".join(written) + "\n"
    return Parsed(
        text=text,
        title=title,
        kind="markdown",
        pages=tuple(min(offset, len(text)) for offset in offsets) if paged else (),
        metadata={
            key: short
            for key, value in (metadata or {}).items()
            if (short := _note(value)) not in ("", None, [])
        },
    )


def _note(value: Any) -> Any:
    """A value of the metadata: text on one line of at most a thousand characters, at most a hundred
    items in a list.
    """
    if isinstance(value, str):
        return line(value)[:LONGEST_NOTE].rstrip()
    return [_note(item) for item in value[:100]] if isinstance(value, list) else value
