"""EPUB, MOBI, FB2 and XPS, read with MuPDF; each chapter is a page where the file has chapters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import markdown
from mcpvectordb.ingest.formats.archive import Archive
from mcpvectordb.ingest.formats.pdf import (
    markdown_pages,
    open_document,
    ordered,
    outline,
    read_page,
)
from mcpvectordb.ingest.formats.pdf_layout import TextBlock, file_order, page_text
from mcpvectordb.records import Parsed, Source

WIDTH, HEIGHT = 800, 100_000
"""Page size for the layout of a book: so tall that nearly every chapter fits on one page."""


def parse(source: Source) -> Parsed:
    """Return the text of a book, chapter by chapter."""
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
        archive = Archive(source)
        is_marked = b"mimetypeapplication/epub+zip" in source.raw[:200]
        if is_marked or "META-INF/container.xml" in archive.members:
            kind = "epub"
        encrypted = b"xmlenc#aes" in archive.read("META-INF/encryption.xml")
        if encrypted or "META-INF/rights.xml" in archive.members:
            raise ParseFailed(f"{source.name} is encrypted (DRM) and cannot be read")
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
