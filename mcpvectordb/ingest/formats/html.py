"""HTML: the main content as Markdown, and metadata from <title>, <meta>, <link> and JSON-LD."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import islice
from typing import Any

from lxml import etree

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import markdown
from mcpvectordb.ingest.formats.charset import bom, charset, decode
from mcpvectordb.ingest.formats.html_content import (
    HEADINGS,
    INLINE,
    LONGEST_LABEL,
    SILENT,
    main_content,
)
from mcpvectordb.records import Parsed, Source

_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w:.-]+)""", re.IGNORECASE)
_END_OF_PAGE = re.compile(r"</(?:html|body)\s*>", re.IGNORECASE)
_WEB_CHARSETS = dict.fromkeys(("iso-8859-1", "latin1", "us-ascii"), "cp1252")
_WEB_CHARSETS |= {"gb2312": "gb18030", "gbk": "gb18030"}
_META = {
    "description": "description og:description twitter:description dc.description",
    "language": "content-language og:locale dc.language",
    "author": "author article:author dc.creator citation_author",
    "published": "article:published_time date dc.date dcterms.date datepublished citation_date "
    "pubdate",
    "modified": "article:modified_time last-modified og:updated_time dcterms.modified datemodified",
}
_TITLES = ("og:title", "twitter:title", "dc.title", "citation_title")
_LINKED_DATA = {
    "datePublished": "published",
    "dateModified": "modified",
    "description": "description",
    "inLanguage": "language",
}


def parse(source: Source) -> Parsed:
    """Return the main content of a page, or the whole page without menus if it is not marked."""
    root = tree(_decoded(source), source.name)
    metadata = _metadata(root)
    roots, skip = main_content(root)
    text = markdown.blocks(_markdown(each, skip=skip) for each in roots)
    return markdown.finish(source, text, metadata)


def to_markdown(html: str, name: str) -> str:
    """Return all text as Markdown, also menus and the like: for the body of a mail."""
    return written(tree(html, name))


def written(root: Any) -> str:
    """Return all text in an element as Markdown."""
    return _markdown(root, skip={element for element in root.iter() if element.tag in SILENT})


def tree(html: str, name: str) -> Any:
    """Return the root element; ParseFailed if elements are nested too deeply for libxml2."""
    parser = etree.HTMLParser(
        encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True
    )
    try:
        # libxml2 drops what follows these, wherever they stand.
        html = _END_OF_PAGE.sub("", markdown.clean(html))
        root = etree.fromstring(html.encode(), parser)
    except etree.XMLSyntaxError:
        root = None
    if any(
        entry.type_name == "ERR_RESOURCE_LIMIT" or "xcessive depth" in entry.message
        for entry in parser.error_log
    ):
        raise ParseFailed(f"{name} has elements nested more than two thousand deep")
    if root is None:
        raise markdown.no_text(name)
    return root


def _decoded(source: Source) -> str:
    """The page's text; in declared UTF-8, invalid bytes become replacement characters."""
    in_page = _CHARSET.search(source.raw[:4096])
    declared = charset(source.media_type)
    if in_page and not declared:
        declared = in_page[1].decode("ascii", "replace")
    if declared.lower() in ("utf-8", "utf8") and not bom(source.raw)[0]:
        return source.raw.decode("utf-8", "replace")
    return decode(source.raw, declared=_WEB_CHARSETS.get(declared.lower(), declared))


def _metadata(root: Any) -> dict[str, str]:
    """The metadata from <html lang>, <title>, <meta>, <link> and JSON-LD."""
    meta: dict[str, str] = {}
    for element in root.iter("meta"):
        names = map(element.get, ("name", "property", "itemprop", "http-equiv"))
        name, content = next(filter(None, names), ""), element.get("content")
        if name and content:
            meta.setdefault(name.lower(), content)
    known = {key: _first(map(meta.get, names.split())) for key, names in _META.items()}
    metadata = {key: value for key, value in known.items() if value}
    for key, value in _linked_data(root):
        metadata.setdefault(key, value)
    if "author" not in metadata:
        metadata["author"] = _first(_bylines(root))
    title = "".join(root.xpath("(//title)[1]//text()"))
    metadata["title"] = _first([title, *map(meta.get, _TITLES)])
    declared = (root.get("lang"), root.get("{http://www.w3.org/XML/1998/namespace}lang"))
    metadata["language"] = _first([*declared, metadata.get("language")])
    links = [each for each in root.iter("link") if (each.get("rel") or "").lower() == "canonical"]
    metadata["canonical_url"] = _first([*(each.get("href") for each in links), meta.get("og:url")])
    if "published" not in metadata:
        metadata["published"] = _first(time.get("datetime") for time in root.iter("time"))
    return metadata


def _bylines(root: Any) -> Iterator[str]:
    """What is marked as the name of an author, without "By"."""
    for element in root.xpath("//*[@rel='author' or @itemprop='author' or @class='byline']"):
        name = markdown.line("".join(element.itertext()))
        if len(name) <= LONGEST_LABEL:
            yield re.sub(r"^by ", "", name, flags=re.IGNORECASE)


def _linked_data(root: Any) -> Iterator[tuple[str, str]]:
    for script in root.iter("script"):
        if script.get("type") != "application/ld+json":
            continue
        try:
            data = json.loads(script.text or "")
        except (ValueError, RecursionError):
            continue
        for item in data if isinstance(data, list) else [data]:
            known = item if isinstance(item, Mapping) else {}
            named = ((key, known.get(name)) for name, key in _LINKED_DATA.items())
            yield from ((key, value) for key, value in named if isinstance(value, str))


def _first(values: Iterable[str | None]) -> str:
    return next((value.strip() for value in values if value and value.strip()), "")


# --- elements as Markdown, in one walk without recursion

LAYOUT = frozenset(["table", "pre", *HEADINGS])
"""Elements that no data table contains: a table with one of them is used for layout."""
DEEPEST_INDENT = 8
WIDEST_SPAN = 20
TALLEST_SPAN = 200
FEWEST_WORDS = 6
"""Words of a text that describes an image; fewer are its name or a label."""
LONGEST_CAPTION = 1000
"""Characters of the text around an image that may repeat its description."""

_AROUND_IMAGE = frozenset("a picture span p figure".split())
_SPACE = re.compile(r"[ \t\n]+")
_BREAK = re.compile(r" ?\v ?")
_LANGUAGE = re.compile(
    r"(?:^|\s)(?:language|lang|highlight|brush|sourceCode)[-: ]\s*([\w+#-]+)", re.IGNORECASE
)


def _markdown(root: Any, *, skip: Set[Any]) -> str:
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
    writer.flush()
    return markdown.with_lists(writer.blocks)


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
        self.images: set[str] = set()  # descriptions, of which each is written once
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
            described = _described(element)
            self.text(described if described not in self.images else "")
            self.images.add(described)
        elif tag in ("code", "kbd", "samp", "tt") and self.code is None:
            self.inline.append("`")
        elif self.table:
            self.table.start(element, self)
        elif tag not in INLINE:
            self.flush()
            number = self.lists[-1] if self.lists else None
            if tag in ("ul", "ol", "menu", "dir"):
                self.lists.append(_number(element.get("start"), 10**9) if tag == "ol" else None)
            elif tag == "li" and number is not None:
                self.marker = f"{number}. "
                self.lists[-1] = number + 1
            elif tag == "li":
                self.marker = "- "
            elif tag == "blockquote":
                self.quotes += 1
            elif tag == "pre" and self.code is None:
                self.code = element
            elif tag == "table" and element not in self.layout:
                self.table = _HtmlTable(element)
        self.text(element.text)

    def end(self, element: Any) -> None:
        tag = element.tag
        if tag in ("code", "kbd", "samp", "tt") and self.code is None:
            if self.inline[-1:] == ["`"]:  # empty code is dropped
                self.inline.pop()
            else:
                self.inline.append("`")
        elif self.table:
            self.table.end(element, self)
        elif tag in HEADINGS:
            self.add(markdown.heading(HEADINGS[tag], self.take_inline().replace("\n", " ")))
        elif element is self.code:
            self.add(markdown.fence("".join(self.inline).replace("\v", "\n"), _language(element)))
            self.inline, self.code = [], None
        elif tag not in INLINE:
            self.flush()
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
            self.add(markdown.prose(self.take_inline()))

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
            writer.add(markdown.table(self.rows))
        elif element.tag in ("td", "th"):
            self.rows, text = self.rows or [[]], writer.take_inline()
            self._fill()
            down = _number(element.get("rowspan"), TALLEST_SPAN) - 1
            for across in range(_number(element.get("colspan"), WIDEST_SPAN)):
                if down:
                    self.below[len(self.rows[-1])] = (down, text)
                self.rows[-1].append("" if across else text)
        elif element.tag == "tr":
            self._fill()
        elif element.tag == "caption":
            writer.add(markdown.prose(writer.take_inline()))
        elif element.tag not in INLINE:
            writer.text(" ")

    def _add_stray(self, writer: _MarkdownWriter) -> None:
        """Add the text that stands between cells, where a tag is missing, as a cell."""
        if text := writer.take_inline():
            self.rows = self.rows or [[]]
            self.rows[-1].append(text)

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
    alt = markdown.line(image.get("alt") or "")
    is_latin = len(alt.encode()) < 3 * len(alt)
    if not alt or (is_latin and len(alt.split()) < FEWEST_WORDS):
        return ""
    around = image
    while (outer := around.getparent()) is not None and outer.tag in _AROUND_IMAGE:
        around = outer
    if around is not image and any(text.strip() for text in around.itertext()):
        return ""
    words = set(alt.lower().split())
    for outer in islice(around.iterancestors(), 3):
        said = "".join(islice(outer.itertext(), 200)).lower()
        if len(said) < LONGEST_CAPTION and 2 * len(words.intersection(said.split())) >= len(words):
            return ""
    return f"![{alt}]"


def _number(value: str | None, most: int) -> int:
    is_number = value and value.isascii() and value.isdigit() and len(value) < 10
    return min(max(int(value), 1), most) if value and is_number else 1


def _language(pre: Any) -> str:
    """The language in a class of the element, its ancestors or its <code>, or ""."""
    for element in (pre, pre.find("code"), *islice(pre.iterancestors(), 2)):
        if element is not None and (found := _LANGUAGE.search(element.get("class") or "")):
            language: str = found[1].lower()
            return "" if language in ("default", "none", "text", "plaintext") else language
    return ""
