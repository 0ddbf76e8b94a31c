"""PDF: text in reading order page by page, with headings by font size, code and ruled tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.ingest.formats.pdf_layout import (
    TextBlock,
    TextRow,
    code_lines,
    reading_order,
    text_blocks,
)
from mcpvectordb.ingest.formats.pdf_tables import find_tables
from mcpvectordb.records import Parsed, Source

HEADING_SCALE = 1.12
LONGEST_HEADING = 160
LONGEST_TITLE_ROWS = 4
MARGIN = 0.09
"""Share of a page's height, at top and bottom, in which running titles and page numbers are."""

# Symbol fonts encode bullets as private-use characters.
_BULLET = re.compile(r"^[•‣▪◦●■–∙·▶►➢➤✓\ue000-\uf8ff]\s*")
_NUMBERED = re.compile(r"^\(?\d{1,3}[.)]\s")
_EMPTY_TITLE = re.compile(
    r"^(untitled|title|microsoft (word|powerpoint) - .*|.*\.(docx?|dvi|tex|indd|pptx?|qxd))$", re.I
)
_OCR = "run OCR over it first (ocrmypdf in.pdf out.pdf) or supply the text directly"


def parse(source: Source) -> Parsed:
    """Return the text of a PDF; ParseFailed if it is encrypted, NoText if it has images only."""
    document = open_document(source, "pdf")
    try:
        pages = [(page.rect.height, read_page(page)) for page in document]
        named = document.metadata.get("title") or ""
        metadata = {key: document.metadata.get(key) for key in ("author", "subject", "keywords")}
        listed = outline(document)
    except (RuntimeError, ValueError) as error:
        raise ParseFailed(f"{source.name} is damaged: {markdown_writer.line(str(error))}") from None
    blocks = _without_running_titles(pages)
    if _unreadable(blocks):
        raise markdown_writer.no_text(
            source.name,
            f"its fonts do not map glyphs to characters, so treat it as a scan: {_OCR}",
        )
    texts = markdown_pages(blocks, listed)
    if document.is_repaired and not any(texts):
        raise ParseFailed(f"{source.name} is damaged: its readable part has no text")
    named = "" if _EMPTY_TITLE.match(named.strip()) else named
    title = markdown_writer.title(source, named, *map(markdown_writer.first_heading, texts[:3]))
    metadata["pages"] = len(texts)
    return markdown_writer.finish(
        source, texts, title=title, metadata=metadata, nothing=f"it looks scanned: {_OCR}"
    )


def open_document(source: Source, kind: str) -> Any:
    """Return the source as a pymupdf document."""
    import pymupdf

    library: Any = pymupdf  # it is only partly annotated
    library.TOOLS.mupdf_display_errors(False)
    library.TOOLS.mupdf_display_warnings(False)
    try:
        document = library.open(stream=source.raw, filetype=kind)
    except (RuntimeError, ValueError) as error:
        raise ParseFailed(
            f"{source.name} cannot be opened as {kind.upper()}: {markdown_writer.line(str(error))}"
        ) from None
    if document.needs_pass:
        raise ParseFailed(
            f"{source.name} is encrypted; save a copy without its password and add that"
        )
    return document


def outline(document: Any) -> dict[str, int]:
    """Return the levels of the headings in the document's outline, by their `_key`."""
    return {key: level for level, text, *_ in document.get_toc() if (key := _key(text))}


def read_page(page: Any) -> list[TextBlock]:
    """Return a page's blocks in reading order, including ruled tables."""
    blocks = text_blocks(page)
    for table in find_tables(page) if blocks else ():
        blocks = [rest for block in blocks if (rest := _outside(block, table))] + [table]
    return reading_order(blocks)


def _outside(block: TextBlock, table: TextBlock) -> TextBlock | None:
    rows = [row for row in block.rows if not table.box.holds(row.box)]
    return TextBlock(block.box, rows, block.markdown) if rows or block.markdown else None


def _unreadable(pages: Sequence[Sequence[TextBlock]]) -> bool:
    text = "".join(block.text for blocks in pages[:50] for block in blocks)
    return text.count("\ufffd") > 0.5 * len(text)


def markdown_pages(pages: Sequence[Sequence[TextBlock]], listed: dict[str, int]) -> list[str]:
    """Return the Markdown of each page; `listed` is the document's `outline`."""
    style = PdfStyle(pages, listed)
    return [
        markdown_writer.blocks(
            part for block in style.joined(blocks) for part in style.markdown(block)
        )
        for blocks in pages
    ]


def _body_size(pages: Iterable[Sequence[TextBlock]]) -> float:
    """The font size of most of the text."""
    sizes: Counter[float] = Counter()
    for row in (row for blocks in pages for block in blocks for row in block.rows if not row.mono):
        sizes[row.size] += len(row.text)
    return sizes.most_common(1)[0][0] if sizes else 10.0


def _without_running_titles(
    pages: Sequence[tuple[float, list[TextBlock]]],
) -> list[list[TextBlock]]:
    """The pages without page numbers, and with running titles only where they first occur.

    A running title is a margin row that three or more pages share, apart from its digits.
    """
    body = _body_size(blocks for _, blocks in pages)
    keys = [[_margin(block, height, body) for block in blocks] for height, blocks in pages]
    places = Counter(key for page in keys for key in set(page))
    seen = {key for key in places if not key.strip("#ivxlcdm-–/ ")}
    kept = []
    for page, (_, blocks) in zip(keys, pages, strict=True):
        kept.append(
            [
                block
                for key, block in zip(page, blocks, strict=True)
                if not key or places[key] < 3 or key not in seen
            ]
        )
        seen.update(page)
    return kept


def _margin(block: TextBlock, height: float, body: float) -> str:
    """The text of a margin row with its digits replaced; "" for a block outside of the margins."""
    in_margin = block.box.y1 < MARGIN * height or block.box.y0 > (1 - MARGIN) * height
    if not in_margin or len(block.rows) != 1 or block.rows[0].size > body * HEADING_SCALE:
        return ""
    return re.sub(r"\d+", "#", block.text.lower())


class PdfStyle:
    """What font sizes and weights mean in one document."""

    def __init__(self, pages: Sequence[Sequence[TextBlock]], listed: dict[str, int]) -> None:
        self.body, self.listed = _body_size(pages), listed
        large = {
            rows[0].size
            for blocks in pages
            for block in blocks
            for rows in self._runs(block)
            if self._large(rows[0]) and len(_paragraph(rows)) <= LONGEST_HEADING
        }
        self.levels = {size: level for level, size in enumerate(sorted(large, reverse=True), 1)}

    def joined(self, blocks: Iterable[TextBlock]) -> list[TextBlock]:
        """Return the blocks, with the separate lines of a long title joined into one block."""
        joined: list[TextBlock] = []
        for block in blocks:
            last = joined[-1] if joined else None
            if last and self._continues(last, block):
                joined[-1] = TextBlock(last.box.around(block.box), last.rows + block.rows)
            else:
                joined.append(block)
        return joined

    def _continues(self, title: TextBlock, block: TextBlock) -> bool:
        rows = title.rows + block.rows
        return (
            bool(title.rows and block.rows)
            and len(rows) <= LONGEST_TITLE_ROWS
            and self._large(rows[0])
            and (
                {row.size for row in rows} == {rows[0].size}
                and 0 <= block.box.y0 - title.box.y1 + rows[0].size / 2 <= 2 * rows[0].size
            )
        )

    def markdown(self, block: TextBlock) -> Iterable[str]:
        """Return the block's headings, code and paragraphs."""
        if block.markdown:
            yield block.markdown
        for rows in self._runs(block):
            text = _paragraph(rows)
            if level := self._level(rows, text, alone=len(rows) == len(block.rows)):
                yield markdown_writer.heading(level, text)
            elif rows[0].mono and len(rows) > 1:
                yield markdown_writer.fence(code_lines(rows))
            else:
                yield _items(rows)

    def _runs(self, block: TextBlock) -> Iterable[list[TextRow]]:
        for _, rows in groupby(
            block.rows, lambda row: (row.mono, self._large(row) and row.size, self._is_listed(row))
        ):
            yield list(rows)

    def _is_listed(self, row: TextRow) -> bool:
        return row.bold and _key(row.text) in self.listed

    def _large(self, row: TextRow) -> bool:
        return row.size >= self.body * HEADING_SCALE

    def _level(self, rows: Sequence[TextRow], text: str, *, alone: bool) -> int:
        """The heading's level, 0 for other text."""
        if (
            len(text) > LONGEST_HEADING
            or len(rows) > LONGEST_TITLE_ROWS
            or not re.search(r"[^\W\d_]{2}", text)
        ):
            return 0
        if (listed := self.listed.get(_key(text))) and (
            rows[0].bold or (alone and rows[0].size > self.body)
        ):
            return listed
        if rows[0].size in self.levels:
            return self.levels[rows[0].size]
        return len(self.levels) + 1 if _stands_out(rows, text) else 0


def _stands_out(rows: Sequence[TextRow], text: str) -> bool:
    """Whether short bold rows look like a heading."""
    return (
        all(row.bold and not row.mono for row in rows)
        and len(text) <= 80
        and text[-1] not in ".,;:"
        and (text[0].isupper() or text[0].isdigit())
    )


def _key(text: str) -> str:
    """A heading without number, spaces and case, which differ between outline and page."""
    return re.sub(r"[\W_]+", "", re.sub(r"^[\dIVX.]+\s+", "", text)).lower()


def _paragraph(rows: Sequence[TextRow]) -> str:
    """The rows on one line, with hyphenated words joined."""
    text = rows[0].text
    for row in rows[1:]:
        broken = re.search(r"[^\W\d_]{2}-$", text) and row.text[:1].islower()
        text = text[:-1] + row.text if broken else f"{text} {row.text}"
    return text.replace("\t", " ")


def _items(rows: Sequence[TextRow]) -> str:
    """A paragraph, a list if rows begin with bullets or numbers, or rows of cells unchanged."""
    if sum("\t" in row.text for row in rows) > len(rows) / 2:
        return markdown_writer.prose("\n".join(row.text.replace("\t", "  ") for row in rows))
    parts = [list(rows[:1])]
    for last, row in pairwise(rows):
        if _BULLET.match(row.text) or (_NUMBERED.match(row.text) and last.text[-1] in ".:;!?"):
            parts.append([])
        parts[-1].append(row)
    return "\n".join(_BULLET.sub("- ", markdown_writer.prose(_paragraph(part))) for part in parts)
