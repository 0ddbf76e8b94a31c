from __future__ import annotations

import struct

import pymupdf
import pytest

from mcpvectordb.errors import NoText, ParseFailed
from tests.support_formats import epub, page, read, with_member, zipped


def mobi(html: str) -> bytes:
    """An uncompressed MOBI file: the database header, a record with metadata and one with text."""
    text = html.encode()
    about = struct.pack(">HHIHHHH", 1, 0, len(text), 1, 4096, 0, 0) + b"MOBI"
    about += struct.pack(">III", 24, 2, 65001)
    first = 78 + 2 * 8 + 2
    head = b"book".ljust(32, b"\0") + bytes(28) + b"BOOKMOBI" + struct.pack(">IIH", 0, 0, 2)
    index = struct.pack(">II", first, 0) + struct.pack(">II", first + len(about), 1)
    return head + index + b"\0\0" + about + text


def test_the_chapters_of_an_epub_are_its_pages() -> None:
    long = "<h1>One</h1>" + "<p>Some words that fill a line.</p>" * 9000
    parsed = read(epub(long, "<h1>Two</h1><p>Second text.</p>"), "a.epub")
    assert parsed.title == "A Book" and parsed.metadata["author"] == "Ann Author"
    assert len(parsed.pages) == 2 and page(parsed, 2) == "# Two\n\nSecond text."
    assert page(parsed, 1) == "# One" + "\n\nSome words that fill a line." * 9000


def test_a_paragraph_longer_than_a_sheet_of_paper_is_one() -> None:
    text = read(epub(f"<p>{'many words of one paragraph ' * 2000}</p>"), "a.epub").text
    assert text == " ".join(["many words of one paragraph"] * 2000) + "\n"


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
    raw = epub("<h1>The Opening</h1><p>Text of the chapter.</p>", title="")
    assert read(raw, "a.epub").title == "The Opening"


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
    space, parts = (
        "http://schemas.microsoft.com/xps/2005/06",
        "http://schemas.openxmlformats.org/package/2006",
    )
    glyphs = 'FontUri="/f.ttf" FontRenderingEmSize="14" OriginX="90" OriginY="300" Fill="#ff000000"'
    relation = f'Id="r" Type="{space}/fixedrepresentation" Target="/FixedDocumentSequence.fdseq"'
    contents = "".join(f'<PageContent Source="/{n}.fpage"/>' for n in range(len(pages)))
    return zipped(
        {
            "[Content_Types].xml": f"<Types xmlns='{parts}/content-types'/>",
            "_rels/.rels": f'<Relationships xmlns="{parts}/relationships"><Relationship {relation}/></Relationships>',
            "FixedDocumentSequence.fdseq": f'<FixedDocumentSequence xmlns="{space}"><DocumentReference Source="/d.fdoc"/></FixedDocumentSequence>',
            "d.fdoc": f'<FixedDocument xmlns="{space}">{contents}</FixedDocument>',
            "f.ttf": pymupdf.Font("helv").buffer,
        }
        | {
            f"{n}.fpage": f'<FixedPage xmlns="{space}" Width="800" Height="1000" xml:lang="en"><Glyphs {glyphs} UnicodeString="{text}"/></FixedPage>'
            for n, text in enumerate(pages)
        }
    )


def test_the_pages_of_xps_are_pages() -> None:
    parsed = read(xps("Hello there", "Good bye"), "a.xps")
    assert [page(parsed, 1), page(parsed, 2)] == ["Hello there", "Good bye"]


def test_a_book_with_drm_is_reported_as_encrypted() -> None:
    raw = with_member(epub("<p>x</p>"), "META-INF/rights.xml", b"<rights/>")
    with pytest.raises(ParseFailed, match=r"a\.epub is encrypted \(DRM\)"):
        read(raw, "a.epub")


def test_a_book_without_words_has_no_text() -> None:
    with pytest.raises(NoText, match=r"a\.epub"):
        read(epub("<p></p>"), "a.epub")
