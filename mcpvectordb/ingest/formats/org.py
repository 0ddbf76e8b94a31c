"""Org mode: headings, code, tables and links as Markdown, without drawers and comments."""

from __future__ import annotations

import re

from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.ingest.formats.charset import charset, decode
from mcpvectordb.records import Parsed, Source

METADATA_NAMES = {
    "author": "author",
    "date": "date",
    "description": "description",
    "language": "language",
    "filetags": "tags",
}
CODE = frozenset(["src", "example", "export", "verse"])

_HEADING = re.compile(r"(\*+)\s+(.*?)(?:\s+:[\w@#%:]+:)?\s*$")
_KEYWORD = re.compile(r"\s*#\+(\w+):\s*(.*)$")
_BEGIN = re.compile(r"\s*#\+begin_(\w+)\s*(\S*)", re.IGNORECASE)
_DRAWER = re.compile(r"\s*:[\w-]+:\s*$")
_ITEM = re.compile(r"\s*(?:[-+]|\d{1,9}[.)])\s")
_INLINE = (
    (re.compile(r"\[\[[^\[\]]*\]\[([^\[\]]*)\]\]"), r"\1"),
    (re.compile(r"\[\[(?:file:)?([^\[\]]*)\]\]"), r"\1"),
    (re.compile(r"(?<!\w)([=~])(?=\S)([^=~\n]+?)(?<=\S)\1(?!\w)"), r"`\2`"),
)


def parse(source: Source) -> Parsed:
    """Return the text of an Org file; the title is its #+TITLE or first heading."""
    reader = _OrgReader(
        markdown_writer.clean(decode(source.raw, declared=charset(source.media_type))).split("\n")
    )
    text = markdown_writer.blocks(reader.read())
    title = markdown_writer.title(
        source, reader.metadata.pop("title", ""), markdown_writer.first_heading(text)
    )
    return markdown_writer.finish(
        source, [text], title=title, metadata=reader.metadata, paged=False
    )


class _OrgReader:
    """Reads the lines from the top."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines[::-1]  # a stack: the next line is the last
        self.metadata: dict[str, str] = {}
        self.blocks: list[str] = []
        self.paragraph: list[str] = []

    def read(self) -> list[str]:
        """Return all blocks."""
        while self.lines:
            self._line(self.lines.pop())
        self._end()
        return self.blocks

    def _line(self, line: str) -> None:
        if heading := _HEADING.match(line):
            self._end()
            self.blocks.append(markdown_writer.heading(len(heading[1]), _inline(heading[2])))
        elif begin := _BEGIN.match(line):
            self._end()
            self._block(begin[1].lower(), begin[2])
        elif keyword := _KEYWORD.match(line):
            self._keyword(keyword[1].lower(), keyword[2])
        elif _DRAWER.match(line) and any(
            re.match(r"\s*:end:\s*$", each, re.I) for each in self.lines[-100:]
        ):
            self._until(r"\s*:end:\s*$")
        elif line.lstrip().startswith("|"):
            self._end()
            self._table(line)
        elif line.strip() in ("", "#") or line.lstrip().startswith("# "):
            self._end()
        else:
            self._text(line)

    def _text(self, line: str) -> None:
        if _ITEM.match(line):
            self.paragraph.append(re.sub(r"^(\s*)\+", r"\1-", line.rstrip()))
        elif self.paragraph:
            self.paragraph[-1] += " " + line.strip()
        else:
            self.paragraph.append(line.strip())

    def _end(self) -> None:
        self.blocks.append(markdown_writer.prose("\n".join(map(_inline, self.paragraph))))
        self.paragraph = []

    def _keyword(self, name: str, text: str) -> None:
        if name == "title":
            self.metadata["title"] = " ".join(filter(None, [self.metadata.get("title", ""), text]))
        elif name in METADATA_NAMES:
            self.metadata[METADATA_NAMES[name]] = text
        elif name == "caption":
            self.blocks.append(_inline(text))

    def _until(self, end: str) -> list[str]:
        """Consume the lines up to a matching one, and return those before it."""
        taken: list[str] = []
        while self.lines and not re.match(end, self.lines[-1], re.IGNORECASE):
            taken.append(self.lines.pop())
        self.lines[-1:] = []
        return taken

    def _block(self, kind: str, language: str) -> None:
        body = self._until(rf"\s*#\+end_{re.escape(kind)}\b")
        if kind in CODE:
            self.blocks.append(
                markdown_writer.fence("\n".join(body), language if kind == "src" else "")
            )
        elif kind == "quote":
            self.blocks.append(
                "\n".join(f"> {_inline(line.strip())}" for line in body if line.strip())
            )
        elif kind != "comment":
            self.lines += body[::-1]

    def _table(self, line: str) -> None:
        rows = [line]
        while self.lines and self.lines[-1].lstrip().startswith("|"):
            rows.append(self.lines.pop())
        cells = (
            [_inline(cell.strip()) for cell in row.strip().strip("|").split("|")]
            for row in rows
            if not row.lstrip().startswith("|-")
        )
        self.blocks.append(markdown_writer.table(cells))


def _inline(text: str) -> str:
    for expression, replacement in _INLINE:
        text = expression.sub(replacement, text)
    return text
