from __future__ import annotations

import struct

import pymupdf
import pytest

from mcpvectordb.errors import NoText, ParseFailed
from tests.support_formats import bomb, page, read, with_member, zipped

CONTAINER = """<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>"""


def epub(*chapters: str, title: str = "A Book") -> bytes:
    numbers = range(len(chapters))
    items = "".join(
        f'<item id="c{n}" href="c{n}.xhtml" media-type="application/xhtml+xml"/>' for n in numbers
    )
    spine = "".join(f'<itemref idref="c{n}"/>' for n in numbers)
    package = f"""<package xmlns="http://www.idpf.org/2007/opf" version="3.0">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title><dc:creator>Ann Author</dc:creator></metadata>
<manifest>{items}</manifest><spine>{spine}</spine></package>"""
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": CONTAINER,
            "book.opf": package,
        }
        | {
            f"c{n}.xhtml": f'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>x</title></head><body>{chapters[n]}</body></html>'
            for n in numbers
        }
    )


def mobi(html: str) -> bytes:
    """An uncompressed MOBI file: the database header, a record with metadata and one with text."""
    text = html.encode()
    about = (
        struct.pack(">HHIHHHH", 1, 0, len(text), 1, 4096, 0, 0)
        + b"MOBI"
        + struct.pack(">III", 24, 2, 65001)
    )
    first = 78 + 2 * 8 + 2
    head = b"book".ljust(32, b"\0") + bytes(28) + b"BOOKMOBI" + struct.pack(">IIH", 0, 0, 2)
    index = struct.pack(">II", first, 0) + struct.pack(">II", first + len(about), 1)
    return head + index + b"\0\0" + about + text


def test_the_chapters_of_an_epub_are_its_pages() -> None:
    parsed = read(
        epub("<h1>One</h1><p>First text.</p>", "<h1>Two</h1><p>Second text.</p>"), "a.epub"
    )
    assert parsed.title == "A Book"
    assert parsed.metadata["author"] == "Ann Author"
    assert page(parsed, 1) == "# One\n\nFirst text."
    assert page(parsed, 2) == "# Two\n\nSecond text."


def test_a_long_chapter_is_one_page() -> None:
    parsed = read(
        epub(
            "<h1>One</h1>" + "<p>Some words that fill a line.</p>" * 3000, "<h1>Two</h1><p>End.</p>"
        ),
        "a.epub",
    )
    assert len(parsed.pages) == 2
    assert page(parsed, 1).count("Some words") == 3000
    assert page(parsed, 2) == "# Two\n\nEnd."


def test_text_that_several_chapters_share_is_not_a_running_title() -> None:
    parsed = read(epub(*["<p>Refrain of the song</p><p>Other text.</p>"] * 5), "a.epub")
    assert parsed.text.count("Refrain") == 5


def test_headings_lists_and_code_of_an_epub_survive() -> None:
    html = (
        "<h1>One</h1><p>Text goes here, enough of it to be the body.</p><h2>Sub</h2>"
        "<ul><li>apple</li><li>pear</li></ul><pre>def f():\n    return 1</pre>"
    )
    text = read(epub(html), "a.epub").text
    assert "# One" in text and "## Sub" in text and "- apple\n- pear" in text
    assert "```\ndef f():\n    return 1\n```" in text


def test_a_book_without_a_title_is_named_after_its_first_heading() -> None:
    assert (
        read(epub("<h1>The Opening</h1><p>Text of the chapter.</p>", title=""), "a.epub").title
        == "The Opening"
    )


def test_fb2_is_read() -> None:
    book = """<?xml version="1.0" encoding="utf-8"?>
<FictionBook xmlns="http://www.gribuser.ru/xml/fictionbook/2.0"><description><title-info><book-title>War</book-title>
</title-info></description><body><section><title><p>Chapter</p></title><p>It began in autumn.</p></section></body>
</FictionBook>"""
    parsed = read(book, "a.fb2")
    assert "It began in autumn." in parsed.text
    assert parsed.title == "War"


def test_mobi_is_read() -> None:
    parsed = read(mobi("<html><body><h1>Sea</h1><p>Call me something.</p></body></html>"), "a.mobi")
    assert "# Sea" in parsed.text and "Call me something." in parsed.text


def xps(*pages: str) -> bytes:
    """A fixed document of one line of text per page, with a font that is part of pymupdf."""
    numbers = range(1, len(pages) + 1)
    space = "http://schemas.microsoft.com/xps/2005/06"
    relations = "http://schemas.openxmlformats.org/package/2006/relationships"
    glyphs = (
        '<Glyphs FontUri="/f.ttf" FontRenderingEmSize="14" OriginX="90" OriginY="{y}" '
        'UnicodeString="{text}" '
        'Fill="#ff000000"/>'
    )
    return zipped(
        {
            "[Content_Types].xml": "<Types xmlns='http://schemas.openxmlformats.org/package/2006/content-types'/>",
            "_rels/.rels": f'<Relationships xmlns="{relations}"><Relationship Id="r" '
            f'Type="{space}/fixedrepresentation" '
            'Target="/FixedDocumentSequence.fdseq"/></Relationships>',
            "FixedDocumentSequence.fdseq": f"<FixedDocumentSequence "
            f'xmlns="{space}"><DocumentReference Source="/d.fdoc"/>'
            "</FixedDocumentSequence>",
            "d.fdoc": f'<FixedDocument xmlns="{space}">'
            + "".join(f'<PageContent Source="/{n}.fpage"/>' for n in numbers)
            + "</FixedDocument>",
            "f.ttf": pymupdf.Font("helv").buffer,
        }
        | {
            f"{n}.fpage": f'<FixedPage xmlns="{space}" Width="800" Height="1000" xml:lang="en">'
            + glyphs.format(y=300, text=pages[n - 1])
            + "</FixedPage>"
            for n in numbers
        }
    )


def test_the_pages_of_xps_are_pages() -> None:
    parsed = read(xps("Hello there", "Good bye"), "a.xps")
    assert [page(parsed, 1), page(parsed, 2)] == ["Hello there", "Good bye"]


def test_a_book_with_drm_is_reported_as_encrypted() -> None:
    raw = with_member(epub("<p>x</p>"), "META-INF/rights.xml", b"<rights/>")
    with pytest.raises(ParseFailed, match=r"a\.epub is encrypted \(DRM\)"):
        read(raw, "a.epub")


def test_a_decompression_bomb_is_refused() -> None:
    with pytest.raises(ParseFailed, match=r"a\.epub would unpack to more than 256 MB"):
        read(bomb(), "a.epub")


def test_a_book_without_words_has_no_text() -> None:
    with pytest.raises(NoText, match=r"a\.epub"):
        read(epub("<p></p>"), "a.epub")
