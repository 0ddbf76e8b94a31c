"""OpenDocument: the text of ODT, the slides of ODP as pages, the sheets of ODS as sections."""

from __future__ import annotations

from typing import Any

from lxml import etree

from mcpvectordb.ingest.formats import markdown
from mcpvectordb.ingest.formats.archive import Archive, local, value
from mcpvectordb.ingest.formats.xlsx import sheet_tables
from mcpvectordb.records import Parsed, Source

SKIPPED = frozenset("tracked-changes table-of-content forms sequence-decls note-citation".split())
WIDEST_REPEAT = 50


def parse(source: Source) -> Parsed:
    """Return the text of a document, a presentation or a workbook."""
    archive = Archive(source)
    if b"encryption-data" in archive.read("META-INF/manifest.xml"):
        raise markdown.encrypted(source.name)
    root = archive.xml("content.xml")
    if "content.xml" not in archive.members:
        raise markdown.damaged(source.name, "its part content.xml is missing")
    slides = list(root.iter("{*}page"))
    text = list(map(_text, slides)) or _text(root)
    metadata = archive.properties("meta.xml")
    # The first heading of a workbook is the name of a sheet, which is not a title.
    has_title = bool(slides) or next(root.iter("{*}h"), None) is not None
    return markdown.finish(source, text, metadata, headings=int(has_title))


def _text(root: Any) -> str:
    """The Markdown of an element, in one walk without recursion."""
    reader = _OdtReader()
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        name = local(element)
        if name in SKIPPED and event == "start":
            walk.skip_subtree()
        elif event == "start":
            reader.start(name, element)
        else:
            reader.end(name, element)
            if element is not root and reader.words:
                reader.words[-1].append(element.tail or "")
    return markdown.with_lists(reader.blocks)


class _OdtReader:
    """Collects blocks; a note or a text box is a paragraph inside another one."""

    def __init__(self) -> None:
        self.blocks: list[tuple[str, bool]] = []  # text, and whether it is a list item
        self.words: list[list[str]] = []
        self.lists = 0
        self.marked = False
        self.titles = 0
        self.notes = 0
        self.tables: list[list[list[str]]] = []
        self.sheet = False
        self.links: list[tuple[int, str]] = []  # where the text of a link begins, and its target

    def start(self, name: str, element: Any) -> None:
        if name in ("p", "h"):
            self.words.append([element.text or ""])
        elif name == "table":
            parent = element.getparent()
            if parent is not None and local(parent) == "spreadsheet":
                self.blocks.append((markdown.heading(1, value(element, "name")), False))
                self.sheet = True
            self.tables.append([])
        elif name == "table-row" and self.tables:
            self.tables[-1].append([])
        elif name == "table-cell" and self.tables and self.tables[-1]:
            self.tables[-1][-1].append("")
        elif name == "list":
            self.lists += 1
        elif name == "list-item":
            self.marked = True
        elif name == "frame":
            self.titles += value(element, "class") == "title"
        elif name == "a" and self.words:
            self.links.append((len(self.words[-1]), value(element, "href")))
            self.words[-1].append(element.text or "")
        elif name == "desc" and self.words:
            self.words[-1].append(markdown.image(element.text or ""))
        elif name == "desc":
            self.blocks.append((markdown.image(element.text or ""), False))
        elif name in ("creator", "date", "date-string") and self.notes:
            pass  # of a comment
        elif name == "annotation":
            self.notes += 1
        elif name == "s" and self.words:
            count = value(element, "c")
            self.words[-1].append(" " * (min(int(count), 100) if count.isdigit() else 1))
        elif self.words:
            space = {"tab": "\t", "line-break": "\n"}.get(name, "")
            self.words[-1].append(space + (element.text or ""))

    def end(self, name: str, element: Any) -> None:
        if name in ("p", "h") and self.words:
            self._add(markdown.line("".join(self.words.pop())), name, element)
        elif name == "table" and self.tables:
            rows = self.tables.pop()
            if self.tables and self.tables[-1] and self.tables[-1][-1]:  # a nested table
                inner = ", ".join(cell for row in rows for cell in row if cell)
                self.tables[-1][-1][-1] += f" {inner}"
            elif self.sheet:
                self.blocks += [(table, False) for table in sheet_tables(rows)]
            else:
                self.blocks.append((markdown.table(rows), False))
        elif name == "table-cell" and self.tables and self.tables[-1]:
            repeat = value(element, "number-columns-repeated")
            row = self.tables[-1][-1]
            row += row[-1:] * (min(int(repeat), WIDEST_REPEAT) - 1 if repeat.isdigit() else 0)
        elif name == "list":
            self.lists -= 1
        elif name == "a" and self.words and self.links:
            start, target = self.links.pop()
            words = self.words[-1]
            words[start:] = [markdown.link("".join(words[start:]), target)]
        elif name == "annotation":
            self.notes -= 1
        elif name == "frame":
            self.titles -= value(element, "class") == "title"

    def _add(self, text: str, name: str, element: Any) -> None:
        if not text:
            return
        if self.notes:
            text = f"Comment: {text}"
        if self.tables:
            row = self.tables[-1][-1] if self.tables[-1] else [""]
            row[-1:] = [f"{row[-1]} {text}".strip() if row else text]
        elif name == "h" or self.titles > 0:
            level = value(element, "outline-level")
            heading = markdown.heading(int(level) if level.isdigit() else 1, text)
            self.blocks.append((heading, False))
        elif self.lists > 0:
            indent = "  " * (min(self.lists, 8) - 1)
            self.blocks.append((f"{indent}{'- ' if self.marked else '  '}{text}", True))
            self.marked = False
        else:
            self.blocks.append((markdown.prose(text), False))
