"""Convert a tree of HTML elements to Markdown, in one walk without recursion."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any

from lxml import etree

from mcpvectordb.ingest.formats import markdown_writer

INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark "
    "nobr q rp rt ruby s samp small span strike strong sub sup time tt u var wbr br".split()
)
HEADINGS = {f"h{level}": level for level in range(1, 7)}
LAYOUT = frozenset(["table", "pre", *HEADINGS])
"""Elements that no data table contains: a table with one of them is used for layout."""
DEEPEST_INDENT = 8
WIDEST_SPAN = 20
TALLEST_SPAN = 200
FEWEST_WORDS = 3
"""Words of a text that describes an image; fewer are its name or a label."""

_AROUND_IMAGE = frozenset("a picture span p figure".split())
_SPACE = re.compile(r"[ \t\n]+")
_BREAK = re.compile(r" ?\v ?")
_LANGUAGE = re.compile(
    r"(?:^|\s)(?:language|lang|highlight|brush|sourceCode)[-: ]\s*([\w+#-]+)", re.IGNORECASE
)


def markdown(root: Any, *, skip: Set[Any]) -> str:
    """Return the Markdown of an element, without the elements to skip."""
    writer = _MarkdownWriter(_layout_tables(root))
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        if element in skip or not isinstance(element.tag, str):
            if event == "start":
                walk.skip_subtree()
        elif event == "start":
            writer.start(element)
        else:
            writer.end(element)
        if event == "end" and element is not root:
            writer.text(element.tail)
    return writer.finished()


def _layout_tables(root: Any) -> set[Any]:
    layout: set[Any] = set()
    inside: list[Any] = []
    for event, element in etree.iterwalk(root, events=("start", "end"), tag=tuple(LAYOUT)):
        if event == "start" and inside:
            layout.add(inside[-1])
        if element.tag == "table":
            inside.append(element) if event == "start" else inside.pop()
            if element.get("role") == "presentation":
                layout.add(element)
    return layout


class _MarkdownWriter:
    """Collects inline text until a block ends, and blocks until the walk ends."""

    def __init__(self, layout: set[Any]) -> None:
        self.layout = layout
        self.blocks: list[tuple[str, bool]] = []  # text, and whether it is a list item
        self.inline: list[str] = []
        # The next number of each open list, None for one with bullets.
        self.lists: list[int | None] = []
        self.marker = ""
        self.quotes = 0
        self.code: Any = None
        self.table: _HtmlTable | None = None

    def text(self, text: str | None) -> None:
        if text:
            self.inline.append(text)

    def start(self, element: Any) -> None:
        tag = element.tag
        if tag == "br":
            self.inline.append("\v")
        elif tag == "img" and self.code is None:
            self.text(_described(element))
        elif tag in ("code", "kbd", "samp", "tt") and self.code is None:
            self.inline.append("`")
        elif self.table:
            self.table.start(element, self)
        elif tag not in INLINE:
            self.flush()
            self._open(element, tag)
        self.text(element.text)

    def _open(self, element: Any, tag: str) -> None:
        if tag in ("ul", "ol", "menu", "dir"):
            self.lists.append(_number(element.get("start"), 1, 10**9) if tag == "ol" else None)
        elif tag == "li":
            self.marker = self._next_marker()
        elif tag == "blockquote":
            self.quotes += 1
        elif tag == "pre" and self.code is None:
            self.code = element
        elif tag == "table" and element not in self.layout:
            self.table = _HtmlTable(element)

    def _next_marker(self) -> str:
        number = self.lists[-1] if self.lists else None
        if number is None:
            return "- "
        self.lists[-1] = number + 1
        return f"{number}. "

    def end(self, element: Any) -> None:
        tag = element.tag
        if tag in ("code", "kbd", "samp", "tt") and self.code is None:
            self._close_code()
        elif self.table:
            self.table.end(element, self)
        elif tag in HEADINGS:
            self.add(markdown_writer.heading(HEADINGS[tag], self.take_inline().replace("\n", " ")))
        elif element is self.code:
            self.add(
                markdown_writer.fence("".join(self.inline).replace("\v", "\n"), _language(element))
            )
            self.inline, self.code = [], None
        elif tag not in INLINE:
            self.flush()
            self._close(tag)

    def _close_code(self) -> None:
        """Close inline code; empty code is dropped."""
        if self.inline and self.inline[-1] == "`":
            self.inline.pop()
        else:
            self.inline.append("`")

    def _close(self, tag: str) -> None:
        if tag in ("ul", "ol", "menu", "dir") and self.lists:
            self.lists.pop()
            self.marker = ""
        elif tag == "li":
            self.marker = ""
        elif tag == "blockquote":
            self.quotes -= 1

    def take_inline(self) -> str:
        """Return the inline text collected so far and clear it."""
        text = _BREAK.sub("\n", _SPACE.sub(" ", "".join(self.inline))).strip()
        self.inline = []
        return text

    def flush(self) -> None:
        """End the paragraph, except inside code, where elements are syntax highlighting."""
        if self.code is None and self.inline:
            self.add(markdown_writer.prose(self.take_inline()))

    def add(self, text: str) -> None:
        if not text:
            return
        item = bool(self.marker)
        if self.lists:
            indent = "  " * min(len(self.lists) - bool(self.marker), DEEPEST_INDENT)
            text = indent + self.marker + text.replace("\n", "\n" + indent + "  " * item)
            self.marker = ""
        if self.quotes > 0:
            text = "> " + text.replace("\n", "\n> ")
        self.blocks.append((text, item))

    def finished(self) -> str:
        self.flush()
        return markdown_writer.with_lists(self.blocks)


class _HtmlTable:
    """A data table while it is being read: rows of cells, cells with a rowspan repeated."""

    def __init__(self, element: Any) -> None:
        self.element = element
        self.rows: list[list[str]] = []
        # By column: for how many more rows its cell continues, and the cell's text.
        self.below: dict[int, tuple[int, str]] = {}

    def start(self, element: Any, writer: _MarkdownWriter) -> None:
        if element.tag == "tr":
            self._add_stray(writer)
            self.rows.append([])
        elif element.tag in ("td", "th"):
            self._add_stray(writer)
        elif element.tag not in INLINE:
            writer.text(" ")

    def end(self, element: Any, writer: _MarkdownWriter) -> None:
        if element is self.element:
            self._add_stray(writer)
            writer.table = None
            writer.add(markdown_writer.table(self.rows))
        elif element.tag in ("td", "th"):
            self._add(element, writer.take_inline())
        elif element.tag == "tr":
            self._fill()
        elif element.tag == "caption":
            writer.add(markdown_writer.prose(writer.take_inline()))
        elif element.tag not in INLINE:
            writer.text(" ")

    def _add_stray(self, writer: _MarkdownWriter) -> None:
        """Add the text that stands between cells, where a tag is missing, as a cell."""
        if text := writer.take_inline():
            self.rows = self.rows or [[]]
            self.rows[-1].append(text)

    def _add(self, element: Any, text: str) -> None:
        if not self.rows:
            self.rows.append([])
        self._fill()
        down = _number(element.get("rowspan"), 1, TALLEST_SPAN) - 1
        for across in range(_number(element.get("colspan"), 1, WIDEST_SPAN)):
            if down:
                self.below[len(self.rows[-1])] = (down, text)
            self.rows[-1].append("" if across else text)

    def _fill(self) -> None:
        """Add the cells that continue from the rows above."""
        row = self.rows[-1]
        while len(row) in self.below:
            left, text = self.below.pop(len(row))
            if left > 1:
                self.below[len(row)] = (left - 1, text)
            row.append(text)


def _described(image: Any) -> str:
    """The description of an image that stands alone and has no caption: `![A chart of sales]`."""
    alt = markdown_writer.line(image.get("alt") or "")
    is_latin = len(alt.encode()) < 3 * len(alt)
    if not alt or (is_latin and len(alt.split()) < FEWEST_WORDS):
        return ""
    around = image
    while (outer := around.getparent()) is not None and outer.tag in _AROUND_IMAGE:
        around = outer
    alone = around is image or not any(text.strip() for text in around.itertext())
    return f"![{alt}]" if alone else ""


def _number(value: str | None, default: int, most: int) -> int:
    return (
        min(max(int(value), 1), most)
        if value and value.isascii() and value.isdigit() and len(value) < 10
        else default
    )


def _language(pre: Any) -> str:
    """The language in a class of the element, its ancestors or its <code>, or ""."""
    code = pre.find("code")
    for element in (
        pre,
        code,
        pre.getparent(),
        None if pre.getparent() is None else pre.getparent().getparent(),
    ):
        if element is not None and (found := _LANGUAGE.search(element.get("class") or "")):
            return (
                ""
                if found[1].lower() in ("default", "none", "text", "plaintext")
                else found[1].lower()
            )
    return ""
