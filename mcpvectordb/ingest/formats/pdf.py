"""PDF and books: text in reading order, with headings by font size, code and ruled tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise, zip_longest
from typing import Any, NamedTuple
from xml.parsers import expat

import pymupdf

from mcpvectordb.errors import NoText, ParseFailed
from mcpvectordb.ingest.formats import OCR, markdown
from mcpvectordb.ingest.formats.pdf_layout import file_order, reading_order
from mcpvectordb.ingest.formats.pdf_rows import (
    PageText,
    TextBlock,
    TextRow,
    code_lines,
    is_broken,
    page_text,
    without_running_titles,
)
from mcpvectordb.ingest.formats.pdf_tables import with_tables
from mcpvectordb.records import Parsed, Source

HEADING_SCALE = 1.12
LONGEST_HEADING = 160
LONGEST_TITLE_ROWS = 4
FEWEST_LISTED = 4
"""Headings of an outline on the pages from which they show what all headings look like."""

# Symbol fonts encode bullets as private-use characters.
_BULLET = re.compile(r"^[•‣▪◦●■–∙·▶►➢➤✓\ue000-\uf8ff]\s*")
_NUMBERED = re.compile(r"^\(?\d{1,3}[.)]\s")
_NUMBER = re.compile(
    r"^(?:(?:chapter|appendix|part|section)\s+)?(?:[\dIVX]+|[A-Z](?=[.\d]))[.\d]*[.:)]?\s+",
    re.IGNORECASE,
)
# Lines of a table of contents, and bold lines that head no section.
_CONTENTS = re.compile(r"(\. ?){4,}|…{2,}|\t[\divxlc]+$")
_LABEL = re.compile(
    r"(figure|fig|table|example|listing|algorithm|abbildung|abb|tabelle|beispiel|figura|tabla|tableau)"
    r"[.:]?\s*[\dA-Z]+[-.:\d]*(\s|$)|(note|notes|warning|caution|tip|important|hint)[.:!]?$",
    re.IGNORECASE,
)
_CHAPTER = re.compile(
    r"^#+ ((?:chapter|appendix|part|kapitel|teil|chapitre) \w{1,5})\n\n(#+) ", re.I | re.M
)
_SECTION = re.compile(r"(\d{1,2}|[A-Z])(\.\d{1,2}){1,4}\.?\s+[^\W\d_a-z]")
_OCR = f"{OCR}, run OCR over it first (ocrmypdf in.pdf out.pdf) or supply the text directly"
DPI, MOST_PIXELS = 300, 5000
"""The greatest resolution of a page that is drawn, and width or height of its picture."""


def parse(source: Source) -> Parsed:
    """Return the text of a PDF; ParseFailed if it is encrypted, NoText if it has images only."""
    document = open_document(source, "pdf")
    try:
        pages = [read_page(page) for page in document]
        blank = _without_text(document, pages)
        shown = ("title", "author", "subject", "keywords")
        metadata = {key: document.metadata.get(key) for key in shown}
        listed = outline(document)
    except (RuntimeError, ValueError) as error:
        raise markdown.damaged(source.name, error) from None
    if len(blank) == len(pages):
        raise _unreadable(source.name, blank, damaged=document.is_repaired)
    blocks = [
        [] if number in blank else ordered(page)
        for number, page in enumerate(without_running_titles(pages), 1)
    ]
    texts = markdown_pages(blocks, listed)
    for at in range(1, len(texts)):  # a word that is hyphenated at the end of a page ends there
        rest = re.match(r"([^\W\d_]+\S*)\s?", texts[at])
        if rest and is_broken(texts[at - 1], rest[1]):
            texts[at - 1] = texts[at - 1][:-1] + rest[1]
            texts[at] = texts[at][rest.end() :]
    metadata["pages"] = len(texts)
    drawn, note = tuple(number for number in blank if blank[number]), ""
    if drawn:  # its text, perhaps
        numbers = ", ".join(map(str, drawn[:20])) + (", …" if len(drawn) > 20 else "")
        note = (
            f"{len(drawn)} of {len(pages)} pages have no text that can be read: {numbers}; the "
            "extra mcpvectordb[ocr] may read them"
        )
    return markdown.finish(source, texts, metadata, note=note, images=drawn)


def draw(source: Source, kind: str, number: int, most: int = 0) -> tuple[int, int, bytes]:
    """Return a page of a PDF or picture, counted from 1: width, height and its pixels.

    These are a byte of grey each, for OCR, or with `most`, the greatest number on a side, three of
    red, green and blue.
    """
    document = open_document(source, kind)
    if number > len(document):
        raise ParseFailed(
            f"{source.name} has no page {number}: its last one is page {len(document)}"
        )
    page = document[number - 1]
    # Sides are rounded up to whole pixels.
    zoom = min(DPI / 72, ((most or MOST_PIXELS) - 1) / max(page.rect.width, page.rect.height, 1))
    enlarged: Any = pymupdf.Matrix
    picture = page.get_pixmap(
        matrix=enlarged(zoom, zoom), colorspace="rgb" if most else "gray", alpha=False
    )
    return picture.width, picture.height, bytes(picture.samples)


def open_document(source: Source, kind: str) -> Any:
    """Return the source as a pymupdf document."""
    library: Any = pymupdf  # it is only partly annotated
    library.TOOLS.mupdf_display_errors(False)
    library.TOOLS.mupdf_display_warnings(False)
    try:
        document = library.open(stream=source.raw, filetype=kind)
    except (RuntimeError, ValueError) as error:
        raise ParseFailed(
            f"{source.name} cannot be opened as {kind.upper()}: {markdown.line(str(error))}"
        ) from None
    if document.needs_pass:
        raise markdown.encrypted(source.name)
    return document


class Listed(NamedTuple):
    """A heading of the outline: its level, and the pages that it is on, if they are known."""

    level: int
    pages: set[int]


def outline(document: Any) -> dict[str, Listed]:
    """Return the headings in the document's outline by their `_key`."""
    found: dict[str, Listed] = {}
    for level, text, page in document.get_toc():
        if key := _key(text):
            found.setdefault(key, Listed(level, set())).pages.add(page)
    return found


def read_page(page: Any) -> PageText:
    """Return a page's rows, including ruled tables."""
    text = page_text(page)
    return with_tables(page, text) if text.rows else text


def ordered(page: PageText) -> list[TextBlock]:
    """Return a page's blocks in reading order, text of another direction at the end."""
    return reading_order(page.rows) + file_order(page.aside)


def _without_text(document: Any, pages: Sequence[PageText]) -> dict[int, str]:
    """What is on each page without text: "image", "drawing", "glyphs" or "" for nothing.

    Glyphs are text of fonts that do not map them to characters, so that most of it is U+FFFD.
    """
    found: dict[int, str] = {}
    for number, page in enumerate(pages, 1):
        text = "".join(row.text or row.table for row in page.rows + page.aside)
        if text.count("\ufffd") > 0.5 * len(text):
            found[number] = "glyphs"
        elif not text.strip():
            drawn = {kind for kind, _ in document[number - 1].get_bboxlog()}
            is_image = any("image" in each for each in drawn)
            found[number] = "image" if is_image else "drawing" if drawn else ""
    return found


def _unreadable(name: str, blank: dict[int, str], *, damaged: bool) -> NoText | ParseFailed:
    """Why a document of only such pages cannot be read."""
    kinds = set(blank.values())
    if damaged and not kinds & {"image", "glyphs"}:
        return markdown.damaged(name, "its readable part has no text")
    why = "there is no text on its pages, and no image of any; supply the text directly"
    if "glyphs" in kinds:
        why = f"its fonts do not map glyphs to characters, so treat it as a scan: {_OCR}"
    elif "image" in kinds:
        why = f"it looks scanned: {_OCR}"
    error = markdown.no_text(name, why)
    error.pages, error.images = len(blank), tuple(each for each in blank if blank[each])
    return error


def markdown_pages(pages: Sequence[Sequence[TextBlock]], listed: dict[str, Listed]) -> list[str]:
    """Return the Markdown of each page; `listed` is the document's `outline`."""
    style = PdfStyle(pages, listed)
    texts = []
    for number, blocks in enumerate(pages, 1):
        joined = style.joined(style.divided(block, number) for block in blocks)
        parts = (
            part
            for block, after in zip_longest(joined, joined[1:])
            for part in style.markdown(block, number, after[0] if after else None)
        )
        texts.append(_CHAPTER.sub(r"\2 \1 ", markdown.blocks(parts)))
    return texts


class PdfStyle:
    """What font sizes and weights mean in one document; `body` is the size of most of its text."""

    def __init__(self, pages: Sequence[Sequence[TextBlock]], listed: dict[str, Listed]) -> None:
        sizes: Counter[float] = Counter()
        for row in (row for blocks in pages for block in blocks for row in block):
            if row.size and not row.mono:
                sizes[row.size] += len(row.text)
        self.body, self.listed = sizes.most_common(1)[0][0] if sizes else 10.0, listed
        large: set[float] = set()
        self.sections: Counter[str] = Counter()  # those that are there once are no running titles
        found: dict[str, tuple[float, bool]] = {}
        for number, blocks in enumerate(pages, 1):
            for rows in (rows for block in blocks for rows in self._runs(block, number)):
                text = _paragraph(rows) if len(rows) <= LONGEST_TITLE_ROWS else ""
                if self._large(rows[0]) and _may_head(rows, text):
                    large.add(rows[0].size)
                self.sections[text] += 1
                if self._listed(text, number):
                    found[_key(text)] = rows[0].size, rows[0].bold
        self.levels = {size: level for level, size in enumerate(sorted(large, reverse=True), 1)}
        # Where most headings of an outline are on the pages, all headings look like one of them.
        is_whole = len(found) >= FEWEST_LISTED and 2 * len(found) > len(listed)
        self.styles = set(found.values()) if is_whole else set[tuple[float, bool]]()

    def joined(self, blocks: Iterable[TextBlock]) -> list[TextBlock]:
        """Return the blocks, with the separate lines of a long title joined into one block."""
        joined: list[TextBlock] = []
        for block in blocks:
            last = joined[-1] if joined else []
            rows, size = last + block, block[0].size
            if (
                last
                and len(rows) <= LONGEST_TITLE_ROWS
                and self._large(rows[0])
                and {row.size for row in rows} == {size}
                and 0 <= block[0].box.y0 - last[-1].box.y1 + size / 2 <= 2 * size
            ):
                joined[-1] = rows
            else:
                joined.append(block)
        return joined

    def divided(self, block: TextBlock, page: int) -> TextBlock:
        """Return the block, the first row divided where a heading of the outline is run in."""
        words = block[0].words if self.listed else ()
        for end, word in enumerate(words[:-1], 1):
            if word.text[-1] in ".:" and self._listed(
                " ".join(each.text for each in words[:end]), page
            ):
                return [block[0].part(words[:end]), block[0].part(words[end:]), *block[1:]]
        return block

    def markdown(self, block: TextBlock, page: int, after: TextRow | None) -> Iterable[str]:
        """Return the block's headings, code and paragraphs; `after` is the row after it."""
        if block[0].table:
            yield block[0].table
            return
        at, plain = 0, TextBlock()
        for rows in self._runs(block, page):
            text, at = _paragraph(rows), at + len(rows)
            next_row = block[at] if at < len(block) else after
            level = self._level(rows, text, page, next_row)
            is_code = rows[0].mono and len(rows) > 1
            if plain and (level or is_code or plain[-1].size != rows[0].size):
                yield _items(plain)
                plain = []
            if level:
                yield markdown.heading(level, text)
            elif is_code:
                yield markdown.fence(code_lines(rows))
            else:
                plain += rows
        if plain:
            yield _items(plain)

    def _runs(self, block: TextBlock, page: int) -> Iterable[list[TextRow]]:
        def style(row: TextRow) -> tuple[bool, float, int, bool]:
            large = self._large(row) and row.size
            return row.mono, large, self._listed(row.text, page), row.bold

        return (list(rows) for _, rows in groupby(block, style))

    def _listed(self, text: str, page: int) -> int:
        """The level of a heading that the outline has on this page, 0 for other text."""
        listed = self.listed.get(_key(text)) if self.listed else None
        return listed.level if listed and (page in listed.pages or not listed.pages) else 0

    def _large(self, row: TextRow) -> bool:
        return row.size >= self.body * HEADING_SCALE

    def _level(self, rows: Sequence[TextRow], text: str, page: int, after: TextRow | None) -> int:
        """The heading's level, 0 for other text."""
        if not _may_head(rows, text):
            return 0
        if listed := self._listed(text, page):
            return listed
        first = rows[0]
        if self.styles and (first.size, first.bold) not in self.styles:
            return 0
        if first.size in self.levels:
            return self.levels[first.size]
        if (
            any(row.mono for row in rows)
            or len(text) > 80
            or text[-1] in ".,;:"
            or not (text[0].isupper() or text[0].isdigit())
            or _LABEL.match(text)
        ):
            return 0
        level = len(self.levels) + 1
        if all(row.bold for row in rows):
            is_term = after and after.box.x0 > first.box.x0 + first.size and not text.isupper()
            return 0 if is_term else level
        is_numbered = len(rows) == 1 and _SECTION.match(text) and self.sections[text] == 1
        return level if is_numbered else 0


def _may_head(rows: Sequence[TextRow], text: str) -> bool:
    """Whether the text of rows may be that of a heading."""
    return (
        len(text) <= LONGEST_HEADING
        and len(rows) <= LONGEST_TITLE_ROWS
        and re.search(r"[^\W\d_]{2}", text) is not None
        and not any(_CONTENTS.search(row.text) for row in rows)
    )


def _key(text: str) -> str:
    """A heading without number, spaces and case, which differ between outline and page."""
    return re.sub(r"[\W_]+", "", _NUMBER.sub("", text)).lower()


def _paragraph(rows: Sequence[TextRow]) -> str:
    """The rows on one line, with hyphenated words joined."""
    text = rows[0].text
    for row in rows[1:]:
        text = text[:-1] + row.text if is_broken(text, row.text) else f"{text} {row.text}"
    return text.replace("\t", " ")


def _items(rows: Sequence[TextRow]) -> str:
    """A paragraph, a list if rows begin with bullets or numbers, or rows of cells unchanged."""
    if sum("\t" in row.text for row in rows) > len(rows) / 2:
        return markdown.prose("\n".join(row.text.replace("\t", "  ") for row in rows))
    parts = [list(rows[:1])]
    for last, row in pairwise(rows):
        if _BULLET.match(row.text) or (_NUMBERED.match(row.text) and last.text[-1] in ".:;!?"):
            parts.append([])
        parts[-1].append(row)
    return "\n".join(_BULLET.sub("- ", markdown.prose(_paragraph(part))) for part in parts)


# --- EPUB, MOBI, FB2 and XPS: each chapter is a page where the file has chapters

WIDTH, HEIGHT = 800, 100_000
"""Page size for the layout of a book: so tall that nearly every chapter fits on one page."""


def parse_book(source: Source) -> Parsed:
    """Return the text of a book, chapter by chapter."""
    from mcpvectordb.ingest.formats.archive import Archive  # which a PDF does not need

    kind = "xps"  # MuPDF's name of the format
    if source.raw[60:68] in (b"BOOKMOBI", b"TEXtREAd"):
        kind = "mobi"
    elif not source.raw.startswith(b"PK"):
        kind = "fb2"
        try:
            expat.ParserCreate().Parse(source.raw, True)  # MuPDF 1.28 crashes on broken XML
        except expat.ExpatError as error:
            raise markdown.damaged(source.name, error) from None
    else:
        Archive(source)  # refuses one that is damaged or too large
    document = open_document(source, kind)
    try:
        if document.is_reflowable:
            pages = list(_chapters(document))
        else:
            pages = [ordered(read_page(page)) for page in document]
        texts = markdown_pages(pages, outline(document))
    except (RuntimeError, ValueError) as error:
        raise markdown.damaged(source.name, error) from None
    metadata = {key: document.metadata.get(key) for key in ("title", "author")}
    return markdown.finish(source, texts[0] if len(texts) == 1 else texts, metadata)


def _chapters(document: Any) -> Iterator[list[TextBlock]]:
    """The blocks of each chapter."""
    document.layout(width=WIDTH, height=HEIGHT, fontsize=11)
    for chapter in range(document.chapter_count):
        numbers = range(document.chapter_page_count(chapter))
        pages = (document.load_page((chapter, at)) for at in numbers)
        yield [block for page in pages for block in file_order(page_text(page).rows)]
