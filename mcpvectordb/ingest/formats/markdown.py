"""Helpers for parsers that write Markdown: clean text, headings, tables, lists, pages, titles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from mcpvectordb.errors import NoText, ParseFailed
from mcpvectordb.ingest.structure import outline
from mcpvectordb.records import Parsed, Source

LONGEST_TITLE = 200
MOST_COLUMNS = 100_000
"""Columns of a table; a spreadsheet has at most 16,384, a matrix of measurements some 10,000."""
LONGEST_METADATA_TEXT = 1000

_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\u00ad\u200b\ufdd0-\ufdef\ufeff\ufffe\uffff]"
)
_NEWLINES = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_BLOCK_START = re.compile(r"^(?=[ ]{0,3}(?:#{1,6}(?:\s|$)|```|~~~|=+[ ]*$|-+[ ]*$))", re.MULTILINE)
_BACKTICKS = re.compile(r"`{3,}")
_NO_TITLE = re.compile(
    r"""
    \W* (
        untitled .{0,4} | title | no \s title | unknown | unspecified | none | null | \(anonymous\)
        | (front | back | book)? [ _-]? cover ([ _-] page)? | title \s page | half \s title
        | (table \s of \s)? contents | corporate | template | blank | layout \s? \d* | print
        | (new | blank)? \s? (document | presentation | workbook | spreadsheet) \s? \d*
        | powerpoint \s presentation | (doc | book | sheet | slide | page) \s? \d+
        | microsoft \s (word | powerpoint | excel) \s - \s .*
        | \S* \.(docx? | dvi | tex | indd | pptx? | qxd | xlsx? | pmd | fm | ai | eps)
    ) \W*
    """,
    re.IGNORECASE | re.VERBOSE,
)


def clean(text: str) -> str:
    """Return the text with "\\n" line ends, without control and zero-width characters."""
    text = _NEWLINES.sub("\n", text).replace("\u00a0", " ")
    return _CONTROLS.sub("", text)


def line(text: str) -> str:
    """Return the text on one line, with single spaces for white space."""
    return " ".join(clean(text).split())


def prose(text: str) -> str:
    """Return the text with lines escaped that Markdown would read as headings or fences."""
    return _BLOCK_START.sub(r"\\", text)


def heading(level: int, text: str) -> str:
    """Return a heading of level 1 to 6, or "" without text."""
    text = line(text)
    return f"{'#' * min(max(level, 1), 6)} {text}" if text else ""


def fence(code: str, language: str = "") -> str:
    """Return a fenced block that no backticks inside can close, or "" without code."""
    code = clean(code).strip("\n").rstrip()
    if not code:
        return ""
    longest = max((len(run) for run in _BACKTICKS.findall(code)), default=2)
    marks = "`" * (longest + 1)
    return f"{marks}{language}\n{code}\n{marks}"


def link(text: str, target: str) -> str:
    """Return a Markdown link; the text alone if it says the target already, or there is none."""
    target = re.sub(r"[\s()<>]", lambda found: f"%{ord(found[0]):02X}", target.strip())
    bare = re.sub(r"^(https?://|mailto:)|/$", "", target)
    if not target or target.startswith("#") or not text.strip() or bare in text:
        return text
    return f"[{text.strip()}]({target})"


def image(description: str) -> str:
    """Return what an image shows, as its alternative text says; "" without one."""
    return f"[Image: {text}]" if (text := line(description)) else ""


def table(rows: Iterable[Sequence[str]], *, has_header: bool = True) -> str:
    """Return a Markdown table with the first row as header, without empty rows and columns.

    A table without a header gets an empty one, which Markdown needs. A single row or column becomes
    plain lines.
    """
    cells = [[line(cell) for cell in row] for row in rows]
    cells = [row for row in cells if any(row)]
    width = checked_width(cells)
    columns = [at for at in range(width) if any(at < len(row) and row[at] for row in cells)]
    if len(cells) < 2 or len(columns) < 2:
        return prose("\n".join(", ".join(filter(None, row)) for row in cells))
    shown = [[row[at] if at < len(row) else "" for at in columns] for row in cells]
    if not has_header:
        shown.insert(0, [""] * len(columns))
    shown.insert(1, ["---"] * len(columns))
    lines = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in shown)
    return "\n".join(f"| {each} |" for each in lines)


def checked_width(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of columns; raises ParseFailed above `MOST_COLUMNS`."""
    width = max(map(len, rows), default=0)
    if width > MOST_COLUMNS:
        raise ParseFailed(
            f"a table has {width} columns, more than the {MOST_COLUMNS} that are read; divide it, "
            "or turn its columns into rows"
        )
    return width


def blocks(parts: Iterable[str]) -> str:
    """Return the non-empty parts with blank lines between them."""
    return "\n\n".join(part for part in parts if part and not part.isspace())


def with_lists(parts: Iterable[tuple[str, bool]]) -> str:
    """Return the parts with blank lines between them, but not between two list items."""
    written: list[str] = []
    after_item = False
    for text, item in parts:
        if text:
            written += ["\n" if item and after_item else "\n\n", text]
            after_item = item
    return "".join(written).strip("\n")


def _first_heading(text: str) -> str:
    """The first Markdown heading without inline markup, or ""."""
    headings = (each.path[-1] for each in outline(text[:20_000], "markdown").headings)
    return next(filter(None, headings), "")


def no_text(name: str, why: str = "") -> NoText:
    """Return the error for a source without text; the message says what to do."""
    return NoText(
        f"No text found in {name}; {why or 'if you know what it says, supply the text directly'}"
    )


def damaged(name: str, why: object) -> ParseFailed:
    """Return the error for a source that cannot be read; the message says what to do."""
    advice = "open it in its program, save it again and add that"
    return ParseFailed(f"{name} is damaged: {line(str(why))}; {advice}")


def encrypted(name: str) -> ParseFailed:
    """Return the error for a source that needs a password."""
    return ParseFailed(f"{name} is encrypted; save a copy without its password and add that")


def join_pages(pages: Iterable[str]) -> tuple[str, tuple[int, ...]]:
    """Return the pages with blank lines between them, and the offsets at which they begin."""
    offsets, written, at = list[int](), list[str](), 0
    for page in pages:
        offsets.append(at)
        if page:
            written.append(page)
            at += len(page) + 2
    text = "\n\n".join(written) + "\n"
    return text, tuple(min(each, len(text)) for each in offsets)


def finish(
    source: Source,
    text: str | Sequence[str],
    metadata: Mapping[str, Any] | None = None,
    *,
    title: object = "",
    headings: int = 3,
    nothing: str = "",
    note: str = "",
    images: tuple[int, ...] = (),
    keep_lines: bool = False,
) -> Parsed:
    """Return the result for a text, or for pages of Markdown, joined by blank lines.

    The title is that of the metadata, or `title`, or the first heading on so many pages, or the
    source's name. `keep_lines` keeps blank lines at the start. Raises NoText if no page has text;
    `nothing` then says why and what to do.
    """
    pages = [text] if isinstance(text, str) else text
    joined, offsets = join_pages(
        (clean(page) if keep_lines else clean(page).strip("\n")).rstrip() for page in pages
    )
    if joined == "\n":
        raise no_text(source.name, nothing)
    about = dict(metadata or {})
    candidates = chain([about.pop("title", ""), title], map(_first_heading, pages[:headings]))
    lines = (line(each) for each in candidates if isinstance(each, str))
    # Names that programs and templates give are no titles.
    telling = (each for each in lines if each and not _NO_TITLE.fullmatch(each))
    shown = {key: _short(value) for key, value in about.items()}
    return Parsed(
        text=joined,
        title=next(telling, line(source.name))[:LONGEST_TITLE].rstrip(),
        kind="markdown",
        pages=() if isinstance(text, str) else offsets,
        metadata={key: value for key, value in shown.items() if value not in ("", None, [])},
        note=note,
        images=images,
    )


def _short(value: Any) -> Any:
    """A shortened metadata value: one line of 1000 characters, a list of 100 items at most."""
    if isinstance(value, str):
        return line(value)[:LONGEST_METADATA_TEXT].rstrip()
    return [_short(item) for item in value[:100]] if isinstance(value, list) else value
