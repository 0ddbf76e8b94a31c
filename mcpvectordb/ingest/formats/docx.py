"""DOCX: headings by style, lists, tables, code, notes and comments, charts and equations.

Deleted text of tracked changes is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from lxml import etree

from mcpvectordb.ingest.formats import markdown
from mcpvectordb.ingest.formats.archive import (
    Archive,
    chart_markdown,
    children,
    find,
    latex,
    local,
    relation_id,
    value,
)
from mcpvectordb.records import Parsed, Source

SKIPPED = frozenset("del moveFrom Fallback instrText pPr rPr sectPr tblPr trPr tcPr".split())
_SIGNS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_FEW = re.compile("[0-9]{1,4}")
_CODE_STYLE = re.compile(r"\bcode\b|preformatted|listing|\bmacro\b|source")
_MONOSPACED = re.compile(r"courier|consolas|mono|menlo|typewriter", re.IGNORECASE)


def parse(source: Source) -> Parsed:
    """Return the text of a Word document as Markdown."""
    archive = Archive(source)
    part = archive.main_part("word/document.xml")
    linked = archive.relations(part)
    parts = dict(linked.values())
    reader = _DocxReader(
        _DocxStyles(archive.xml(parts.get("styles", ""))),
        _numberings(archive.xml(parts.get("numbering", ""))),
        lambda id: chart_markdown(archive.xml(linked.get(id, ("", ""))[1])),
    )
    reader.read(archive.xml(part), archive.links(part))
    for kind in ("footnotes", "endnotes", "comments"):
        if target := parts.get(kind):
            reader.read_remarks(archive.xml(target), archive.links(target))
    reader.read_margins(
        archive.xml(target) for kind, target in linked.values() if kind in ("header", "footer")
    )
    text = markdown.with_lists(reader.blocks)
    return markdown.finish(source, text, archive.properties(), title=reader.title)


class _DocxStyles:
    """The heading levels and list numberings that the styles of a document define."""

    def __init__(self, root: Any) -> None:
        styles = {value(style, "styleId"): style for style in children(root, "style")}
        self.names = {key: value(find(each, "name")).lower() for key, each in styles.items()}
        self.parents = {key: value(find(each, "basedOn")) for key, each in styles.items()}
        self.outline = {key: value(find(each, "pPr", "outlineLvl")) for key, each in styles.items()}
        self.numbers = {key: find(each, "pPr", "numPr") for key, each in styles.items()}

    def name(self, key: str) -> str:
        """The style's English name in lower case."""
        return self.names.get(key, key.lower())

    def level(self, key: str) -> int:
        """The heading level of a paragraph with this style, 0 for other text."""
        for each in self._ancestry(key):
            name = self.name(each)
            if found := re.match(r"heading\s?([1-9])", name):
                return int(found[1])
            if name == "title":
                return 1
            if (level := self.outline.get(each, "")).isdigit():
                return int(level) + 1 if int(level) < 9 else 0
        return 0

    def number(self, key: str) -> Any:
        """The numbering of paragraphs with this style, or None."""
        numbers = map(self.numbers.get, self._ancestry(key))
        return next((each for each in numbers if each is not None), None)

    def _ancestry(self, key: str) -> Iterator[str]:
        """A style and the styles that it is based on, at most ten."""
        for _ in range(10):
            yield key
            key = self.parents.get(key, "")


class _DocxLevel(NamedTuple):
    """A level of a numbering: "bullet" or how it counts, its text ("%1.%2"), its first number."""

    format: str
    text: str
    start: int


class _Numbering(NamedTuple):
    """The levels of a numbering by their number from 0, where some of them start again.

    Numberings of one sequence go on where another one has ended.
    """

    sequence: str
    levels: dict[str, _DocxLevel]
    restarts: dict[int, int]


def _numberings(root: Any) -> dict[str, _Numbering]:
    """The numberings of a document by their ids."""
    levels = {value(each, "abstractNumId"): _levels(each) for each in children(root, "abstractNum")}
    found = {}
    for each in children(root, "num"):
        sequence, own, restarts = value(find(each, "abstractNumId")), dict[str, _DocxLevel](), {}
        for changed in children(each, "lvlOverride"):
            own |= _levels(changed)
            start, level = value(find(changed, "startOverride")), value(changed, "ilvl")
            if _FEW.fullmatch(start) and _FEW.fullmatch(level):
                restarts[int(level)] = int(start)
        found[value(each, "numId")] = _Numbering(sequence, levels.get(sequence, {}) | own, restarts)
    return found


def _levels(abstract: Any) -> dict[str, _DocxLevel]:
    levels = {}
    for each in children(abstract, "lvl"):
        form, text, start = (value(find(each, name)) for name in ("numFmt", "lvlText", "start"))
        levels[value(each, "ilvl")] = _DocxLevel(
            form, text, int(start) if _FEW.fullmatch(start) else 1
        )
    return levels


class _DocxReader:
    """Collects the blocks of a part in one walk without recursion."""

    def __init__(
        self,
        styles: _DocxStyles,
        numbers: dict[str, _Numbering],
        chart: Callable[[str], str],
    ) -> None:
        self.styles, self.numberings, self.chart = styles, numbers, chart
        self.links: Mapping[str, str] = {}
        self.code: list[str] = []
        self.charts: list[str] = []
        # Where the text of each open hyperlink begins among the words, and its target.
        self.open_links: list[tuple[int, str]] = []
        self.counts: dict[tuple[str, int], int] = {}
        self.blocks: list[tuple[str, bool]] = []  # text, and whether it is a list item
        self.title = ""
        # The words of each open paragraph: a text box is a paragraph inside another.
        self.words: list[list[str]] = []
        self.tables: list[list[list[str]]] = []

    def read(self, root: Any, links: Mapping[str, str]) -> None:
        """Add the blocks of a part; `links` are the targets of its hyperlinks."""
        self.links = links
        walk = etree.iterwalk(root, events=("start", "end"))
        for event, element in walk:
            name = local(element)
            if event == "start" and name in SKIPPED:
                walk.skip_subtree()
            elif event == "start" and name == "oMath" and self.words:
                self.words[-1].append(f"${latex(element)}$")
                walk.skip_subtree()
            elif event == "start":
                self._start(name, element)
            elif name == "p":
                self._end_paragraph(element)
            elif name == "hyperlink" and self.words:
                start, target = self.open_links.pop()
                words = self.words[-1]
                words[start:] = [markdown.link("".join(words[start:]), target)]
            elif name == "tbl":
                rows = self.tables.pop()
                if self.tables:  # a nested table
                    self._add_to_cell(", ".join(cell for row in rows for cell in row if cell))
                else:
                    self.blocks.append((markdown.table(rows), False))
        self._end_code()

    def read_remarks(self, root: Any, links: Mapping[str, str]) -> None:
        """Add footnotes, endnotes or comments, but not the separators that Word draws above."""
        for remark in children(root, "footnote", "endnote", "comment"):
            label = f"[^{value(remark, 'id')}]"
            if local(remark) == "comment":
                author = markdown.line(value(remark, "author"))
                label = f"Comment ({author})" if author else "Comment"
            if value(remark, "type") in ("", "normal"):
                before = len(self.blocks)
                self.read(remark, links)
                text = " ".join(text for text, _ in self.blocks[before:])
                self.blocks[before:] = [(f"{label}: {text}", False)] if text else []

    def read_margins(self, roots: Iterable[Any]) -> None:
        """Add the text of headers and footers, each different one once, without page numbers."""
        before, shown = len(self.blocks), set[str]()
        for root in roots:
            self.read(root, {})
        margins, self.blocks[before:] = self.blocks[before:], []
        for text, _ in margins:
            key = re.sub(r"[\d\W]+", "", text)
            if key and key not in shown:
                shown.add(key)
                self.blocks.append((text.lstrip("# "), False))

    def _start(self, name: str, element: Any) -> None:
        if name == "p":
            self.words.append([])
        elif name == "tbl":
            self._end_code()
            self.tables.append([])
        elif name == "tr" and self.tables:
            self.tables[-1].append([])
        elif name == "tc" and self.tables and self.tables[-1]:
            self.tables[-1][-1].append("")
        elif name == "hyperlink" and self.words:
            self.open_links.append((len(self.words[-1]), self.links.get(relation_id(element), "")))
        elif name == "chart":
            self.charts.append(self.chart(relation_id(element)))
        elif name == "t" and self.words:
            self.words[-1].append(element.text or "")
        elif name == "docPr" and self.words:
            self.words[-1].append(markdown.image(value(element, "descr")))
        elif name in ("footnoteReference", "endnoteReference") and self.words:
            self.words[-1].append(f"[^{value(element, 'id')}]")
        elif name in _SIGNS and self.words:
            self.words[-1].append(_SIGNS[name])

    def _end_paragraph(self, element: Any) -> None:
        text = markdown.clean("".join(self.words.pop()))
        if self.tables:
            self._add_to_cell(text.strip())
        elif self._is_code(element, text):
            self.code.append(text.rstrip())
        elif text.strip():
            self._end_code()
            self._add(text.strip(), find(element, "pPr"))
        self.blocks += [(chart, False) for chart in self.charts]
        self.charts.clear()

    def _is_code(self, paragraph: Any, text: str) -> bool:
        """Whether a paragraph has a style for code or a monospaced font; blank lines go with it."""
        if not text.strip():
            return bool(self.code)
        if _CODE_STYLE.search(self.styles.name(value(find(paragraph, "pPr", "pStyle")))):
            return True
        runs = [run for run in children(paragraph, "r") if find(run, "t") is not None]
        fonts = [value(find(run, "rPr", "rFonts"), "ascii") for run in runs]
        return bool(fonts) and all(map(_MONOSPACED.search, fonts))

    def _end_code(self) -> None:
        if self.code:
            self.blocks.append((markdown.fence("\n".join(self.code)), False))
            self.code.clear()

    def _add(self, text: str, properties: Any) -> None:
        style = value(find(properties, "pStyle"))
        name = self.styles.name(style)
        if name.startswith("toc ") and name[4:].isdigit():
            return  # an entry of the table of contents, which repeats a heading
        level = value(find(properties, "outlineLvl"))
        own_level = int(level) + 1 if level.isdigit() and level != "9" else 0
        if depth := own_level or self.styles.level(style):
            self.title = self.title or (text if name == "title" else "")
            self.blocks.append(
                (markdown.heading(depth, self._number(properties, style) + text), False)
            )
        elif marker := self._marker(properties, style):
            self.blocks.append((marker + text.replace("\n", " "), True))
        else:
            self.blocks.append((markdown.prose(text), False))

    def _marker(self, properties: Any, style: str) -> str:
        """The bullet or number of a list item, "" for other paragraphs."""
        key, depth = self._place(properties, style)
        if not key:
            return ""
        counted = self._count(key, depth)
        return "  " * depth + (f"{counted}. " if counted else "- ")

    def _number(self, properties: Any, style: str) -> str:
        """The number that Word writes before a heading, as in `2.1 `; "" without one."""
        key, depth = self._place(properties, style)
        if not key or not self._count(key, depth):
            return ""
        sequence, levels, _ = self.numberings[key]

        def written(found: re.Match[str]) -> str:
            at = int(found[1]) - 1
            level = levels.get(str(at))
            if level is None:
                return ""
            number = self.counts.get((sequence, at), level.start)
            is_letter = level.format.endswith("Letter") and 0 < number <= 26
            sign = chr(96 + number) if is_letter else str(number)
            if level.format.endswith("Roman"):
                sign = _roman(number)
            return sign.upper() if level.format.startswith("upper") else sign

        return f"{re.sub('%([1-9])', written, levels[str(depth)].text).strip()} ".lstrip()

    def _place(self, properties: Any, style: str) -> tuple[str, int]:
        """The numbering of a paragraph and its level there; "" for none."""
        number = find(properties, "numPr")
        number = self.styles.number(style) if number is None else number
        key, level = value(find(number, "numId")), value(find(number, "ilvl")) or "0"
        if not key or key == "0" or not level.isdigit():
            return "", 0
        return key, min(int(level), 8)

    def _count(self, key: str, depth: int) -> int:
        """The number of this paragraph at its level, 0 for a bullet."""
        sequence, levels, restarts = self.numberings.get(key, _Numbering("", {}, {}))
        level = levels.get(str(depth))
        if level is None or level.format in ("bullet", "none"):
            return 0
        for deeper in range(depth + 1, 9):
            self.counts.pop((sequence, deeper), None)
        start = restarts.pop(depth, None)  # once
        count = self.counts.get((sequence, depth), level.start - 1) + 1 if start is None else start
        self.counts[sequence, depth] = count
        return count

    def _add_to_cell(self, text: str) -> None:
        row = self.tables[-1][-1] if self.tables[-1] else []
        if row and text:
            row[-1] = f"{row[-1]} {text}".strip()


def _roman(number: int) -> str:
    """A number in small Roman digits."""
    digits = ""
    for worth, sign in _ROMAN:
        digits += sign * (number // worth)
        number %= worth
    return digits


_ROMAN = tuple(zip((100, 90, 50, 40, 10, 9, 5, 4, 1), "c xc l xl x ix v iv i".split(), strict=True))
