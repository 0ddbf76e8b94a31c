"""DOCX: paragraphs by their styles, lists, tables and notes; what tracked changes deleted is left
out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.ingest.formats.archive import Archive
from mcpvectordb.ingest.formats.ooxml import (
    children,
    find,
    local,
    main_part,
    properties,
    relations,
    value,
)
from mcpvectordb.records import Parsed, Source

SKIPPED = frozenset(
    ["del", "moveFrom", "Fallback", "instrText", "pPr", "rPr", "sectPr", "tblPr", "trPr", "tcPr"]
)


def parse(source: Source) -> Parsed:
    """The text of a Word document as Markdown."""
    archive = Archive(source)
    part = main_part(archive, "word/document.xml")
    parts = {
        kind: archive.xml(target)
        for kind, target in relations(archive, part).values()
        if kind in ("styles", "numbering", "footnotes", "endnotes")
    }
    reader = _DocxReader(_Styles(parts.get("styles")), _numberings(parts.get("numbering")))
    reader.read(archive.xml(part))
    for kind in ("footnotes", "endnotes"):
        reader.read_notes(parts.get(kind))
    text = markdown_writer.with_lists(reader.blocks)
    told = properties(archive)
    title = markdown_writer.title(
        source, told.pop("title", ""), reader.title, markdown_writer.first_heading(text)
    )
    return markdown_writer.finish(source, [text], title=title, metadata=told, paged=False)


class _Styles:
    """What the styles of a document mean: the level of a heading, the numbering of a list."""

    def __init__(self, root: Any) -> None:
        self.names: dict[str, str] = {}
        self.parents: dict[str, str] = {}
        self.outline: dict[str, int] = {}
        self.numbers: dict[str, Any] = {}
        for style in children(root, "style") if root is not None else ():
            key = value(style, "styleId")
            self.names[key] = value(find(style, "name")).lower()
            self.parents[key] = value(find(style, "basedOn"))
            if (level := value(find(style, "pPr", "outlineLvl"))).isdigit():
                self.outline[key] = int(level) + 1
            self.numbers[key] = find(style, "pPr", "numPr")

    def name(self, key: str) -> str:
        """The style's name in lower case, as English versions call it."""
        return self.names.get(key, key.lower())

    def level(self, key: str) -> int:
        """The level of heading that a paragraph of this style is, 0 for other text."""
        for each in self._line(key):
            name = self.name(each)
            if found := re.match(r"heading\s?([1-9])", name):
                return int(found[1])
            if name == "title":
                return 1
            if each in self.outline:
                return self.outline[each] if self.outline[each] < 10 else 0
        return 0

    def number(self, key: str) -> Any:
        """The numbering that paragraphs of this style have, None for none."""
        return next(
            (number for each in self._line(key) if (number := self.numbers.get(each)) is not None),
            None,
        )

    def _line(self, key: str) -> Iterator[str]:
        """A style and those that it is based on."""
        for _ in range(10):
            yield key
            key = self.parents.get(key, "")


def _numberings(root: Any) -> dict[str, dict[str, str]]:
    """By number id and level: "bullet", "decimal" and so on."""
    if root is None:
        return {}
    formats = {
        value(abstract, "abstractNumId"): {
            value(level, "ilvl"): value(find(level, "numFmt"))
            for level in children(abstract, "lvl")
        }
        for abstract in children(root, "abstractNum")
    }
    return {
        value(each, "numId"): formats.get(value(find(each, "abstractNumId")), {})
        for each in children(root, "num")
    }


class _DocxReader:
    """Walks through a part once, without recursion, and collects blocks."""

    def __init__(self, styles: _Styles, numberings: dict[str, dict[str, str]]) -> None:
        self.styles, self.numberings = styles, numberings
        self.counts: dict[tuple[str, int], int] = {}
        self.blocks: list[tuple[str, bool]] = []  # text, and whether it is an item of a list
        self.title = ""
        self.words: list[
            list[str]
        ] = []  # of each open paragraph: a text box is a paragraph inside another
        self.tables: list[list[list[str]]] = []

    def read(self, root: Any) -> None:
        """Add the blocks of a part."""
        from lxml import etree

        walk = etree.iterwalk(root, events=("start", "end"))
        for event, element in walk:
            name = local(element)
            if event == "start" and name in SKIPPED:
                walk.skip_subtree()
            elif event == "start":
                self._start(name, element)
            elif name == "p":
                self._end_paragraph(element)
            elif name == "tbl":
                self._end_table()

    def read_notes(self, root: Any) -> None:
        """Add footnotes or endnotes, but not the lines that Word draws above them."""
        for note in children(root, "footnote", "endnote") if root is not None else ():
            if value(note, "type") in ("", "normal"):
                before = len(self.blocks)
                self.read(note)
                text = " ".join(text for text, _ in self.blocks[before:])
                self.blocks[before:] = [(f"[^{value(note, 'id')}]: {text}", False)]

    def _start(self, name: str, element: Any) -> None:
        if name == "p":
            self.words.append([])
        elif name == "tbl":
            self.tables.append([])
        elif name == "tr" and self.tables:
            self.tables[-1].append([])
        elif name == "tc" and self.tables and self.tables[-1]:
            self.tables[-1][-1].append("")
        elif self.words:
            self.words[-1].append(_inline(name, element))

    def _end_paragraph(self, element: Any) -> None:
        text = markdown_writer.clean("".join(self.words.pop())).strip()
        if self.tables:
            self._add_to_cell(text)
        elif text:
            self._add(text, find(element, "pPr"))

    def _add(self, text: str, properties: Any) -> None:
        style = value(find(properties, "pStyle"))
        name = self.styles.name(style)
        if name.startswith("toc ") and name[4:].isdigit():
            return  # the table of contents repeats the headings
        level = value(find(properties, "outlineLvl"))
        if (
            depth := int(level) + 1
            if level.isdigit() and level != "9"
            else self.styles.level(style)
        ):
            self.title = self.title or (text if name == "title" else "")
            self.blocks.append((markdown_writer.heading(depth, text), False))
        elif marker := self._marker(properties, style):
            self.blocks.append((marker + text.replace("\n", " "), True))
        else:
            self.blocks.append((markdown_writer.prose(text), False))

    def _marker(self, properties: Any, style: str) -> str:
        """What stands before an item of a list, "" before other paragraphs."""
        number = find(properties, "numPr")
        number = self.styles.number(style) if number is None else number
        key, level = value(find(number, "numId")), value(find(number, "ilvl")) or "0"
        if not key or key == "0" or not level.isdigit():
            return ""
        depth = min(int(level), 8)
        if self.numberings.get(key, {}).get(level, "bullet") in ("bullet", "none"):
            return "  " * depth + "- "
        for deeper in range(depth + 1, 9):
            self.counts.pop((key, deeper), None)
        self.counts[key, depth] = self.counts.get((key, depth), 0) + 1
        return "  " * depth + f"{self.counts[key, depth]}. "

    def _add_to_cell(self, text: str) -> None:
        row = self.tables[-1][-1] if self.tables[-1] else []
        if row and text:
            row[-1] = f"{row[-1]} {text}".strip()

    def _end_table(self) -> None:
        rows = self.tables.pop()
        if self.tables:  # a table in a cell
            self._add_to_cell(", ".join(cell for row in rows for cell in row if cell))
        else:
            self.blocks.append((markdown_writer.table(rows), False))


def _inline(name: str, element: Any) -> str:
    """What an element inside a paragraph adds to its text."""
    if name == "t":
        return element.text or ""
    if name in ("footnoteReference", "endnoteReference"):
        return f"[^{value(element, 'id')}]"
    return {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}.get(name, "")
