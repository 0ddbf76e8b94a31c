from __future__ import annotations

import struct

import pymupdf
import pytest

from mcpvectordb.errors import NoText, ParseFailed
from tests.support import python
from tests.support_formats import epub, page, read, with_member, zipped
from tests.support_pdf import FONT

A4 = (595, 842)
LOREM = (
    "The brown fox jumps over the lazy dog while the band plays on and the rain keeps falling "
    "upon the old roof. Nobody knows how long it will last, but everybody has an opinion about "
    "it, and most of them are wrong. "
)


def pdf(*pages: str, title: str = "", **save: object) -> bytes:
    """A PDF with one page per HTML text."""
    document = pymupdf.open()
    for html in pages:
        document.new_page(width=A4[0], height=A4[1]).insert_htmlbox((60, 80, 535, 780), html)
    document.set_metadata({"title": title, "author": "Ann Author"} if title else {})
    return bytes(document.tobytes(**save))


def test_every_page_has_the_offset_at_which_its_text_begins() -> None:
    parsed = read(
        pdf("<p>first page</p>", "", "<p>third page</p>", ""), "a.pdf"
    )  # also without text
    assert (parsed.kind, parsed.metadata["pages"], len(parsed.pages)) == ("markdown", 4, 4)
    assert [page(parsed, number) for number in (1, 2, 3, 4)] == ["first page", "", "third page", ""]


def test_the_title_comes_from_the_metadata_or_is_the_file_name() -> None:
    parsed = read(pdf("<h1>A heading</h1><p>Text.</p>", title="The Title"), "a.pdf")
    assert (parsed.title, parsed.metadata["author"]) == ("The Title", "Ann Author")
    assert read(pdf(f"<p>{LOREM}</p>"), "report.pdf").title == "report.pdf"


def test_larger_fonts_and_bold_lines_make_headings_and_lines_of_a_paragraph_are_joined() -> None:
    headings = (
        "<h1>Fruit</h1>",
        "<h2>Apples</h2>",
        "<h2>Pears</h2>",
        "<p><b>Sorts of pears</b></p>",
    )
    html = "".join(f"{heading}<p>{LOREM}</p>" for heading in headings)
    found = ("# Fruit", "## Apples", "## Pears", "### Sorts of pears")
    assert (
        read(pdf(html), "a.pdf").text
        == "\n\n".join(f"{each}\n\n{LOREM.strip()}" for each in found) + "\n"
    )


def test_a_hyphenated_word_is_joined() -> None:
    document = pymupdf.open()
    document.new_page().insert_text(
        (72, 100), ["The compu-", "ter is slow and well-", "Known for it."]
    )
    assert "The computer is slow and well- Known for it." in read(document.tobytes(), "a.pdf").text


def test_a_word_with_another_hyphen_is_joined_too() -> None:
    document = pymupdf.open()
    writer = pymupdf.TextWriter(document.new_page().rect)
    for at, text in enumerate(("The compu\u2010", "ter is slow.")):
        writer.append((72, 100 + 14 * at), text, font=FONT)
    writer.write_text(document[0])
    assert "The computer is slow." in read(document.tobytes(), "a.pdf").text


def test_bullets_become_a_list() -> None:
    raw = pdf("<p>We need:</p><p>• apples<br>• pears<br>• a bag</p>")
    assert "- apples\n- pears\n- a bag" in read(raw, "a.pdf").text


def test_code_keeps_its_lines_and_indentation() -> None:
    html = f"<p>{LOREM}</p><pre>def f(x):\n    if x:\n        return 1</pre>"
    text = read(pdf(html), "a.pdf").text
    assert "```\ndef f(x):\n    if x:\n        return 1\n```" in text


def test_the_outline_gives_levels_to_bold_headings() -> None:
    html = f"<p><b>Fruit</b></p><p>{LOREM}</p><p><b>Apples</b></p><p>{LOREM}</p>"
    document = pymupdf.open(stream=pdf(html))
    document.set_toc([[1, "1 Fruit", 1], [2, "1.1 Apples", 1]])
    text = read(document.tobytes(), "a.pdf").text
    assert "# Fruit\n" in text and "\n## Apples\n" in text


def sheet(*rows: tuple[str, float, str]) -> pymupdf.Document:
    """A page of rows: text, size, and "bold" or ""; lines of text are close to each other."""
    document = pymupdf.open()
    page, y = document.new_page(width=A4[0], height=A4[1]), 90.0
    for text, size, weight in rows:
        y += 1.15 * size
        page.insert_text((72, y), text, fontsize=size, fontname="hebo" if weight else "helv")
    return document


def headings(document: pymupdf.Document) -> list[str]:
    lines = read(document.tobytes(), "a.pdf").text.splitlines()
    return [line for line in lines if line.startswith("#")]


LINES = [(LOREM[at : at + 70].strip(), 10.0, "") for at in (0, 70, 140)]


def test_a_bold_line_right_above_its_paragraph_is_a_heading() -> None:
    document = sheet(("Fruit of the north", 10, "bold"), *LINES, *LINES)
    assert headings(document) == ["# Fruit of the north"]


def test_a_bold_line_inside_of_a_paragraph_does_not_end_it() -> None:
    rows = [*LINES, ("and this is a hyphen-", 10.0, "bold"), ("ated word of it.", 10.0, ""), *LINES]
    assert (
        "and this is a hyphenated word of it. The brown"
        in read(sheet(*rows).tobytes(), "a.pdf").text
    )


def test_lines_of_contents_captions_and_labels_are_no_headings() -> None:
    contents = [(f"{at} Fruit {'. ' * 30}{at}", 14.0, "bold") for at in range(1, 5)]
    bold = ["Table 3: Prices of fruit", "Figure 1.2", "Note", "Warning!"]
    rows = [row for text in bold for row in ((text, 10.0, "bold"), *LINES)]
    assert headings(sheet(*contents, *rows, ("Pears", 14, "bold"), *LINES)) == ["# Pears"]


def test_a_bold_term_above_its_indented_meaning_is_no_heading() -> None:
    document = sheet(*LINES, *LINES)
    document[0].insert_text((72, 400), "Quince", fontsize=10, fontname="hebo")
    document[0].insert_text((100, 412), "a fruit that is cooked before it is eaten", fontsize=10)
    assert headings(document) == []


def test_a_numbered_line_is_a_heading_unless_it_is_repeated() -> None:
    rows = [("2.1 Apples of the north", 10.0, ""), *LINES, ("2.2 Pears", 10.0, ""), *LINES]
    document = sheet()
    for at, (text, size, _) in enumerate(rows):
        y = 100 + 12 * at + 30 * (at >= 1) + 30 * (at >= 4) + 30 * (at >= 5)
        document[0].insert_text((72, y), text, fontsize=size)
        if at:  # the first one is the running title of another page
            continue
        document.new_page().insert_text((72, 300), text, fontsize=size)
    assert headings(document) == ["# 2.2 Pears"]


def test_the_number_of_a_chapter_and_its_title_are_one_heading() -> None:
    document = sheet(("Chapter 3", 16, "bold"), ("Of apples", 22, "bold"), *LINES, *LINES)
    assert headings(document) == ["# Chapter 3 Of apples"]


def test_headings_look_like_those_of_the_outline() -> None:
    rows = [row for name in "ABCDE" for row in ((f"Fruit {name}", 14.0, ""), *LINES)]
    document = sheet(*rows, ("Sold here", 10, "bold"), *LINES)
    assert len(headings(document)) == 6
    document.set_toc([[1, f"Fruit {name}", 1] for name in "ABCDE"])
    assert headings(document) == [f"# Fruit {name}" for name in "ABCDE"]


def test_a_heading_of_the_outline_that_is_run_into_its_paragraph_is_found() -> None:
    first, *rest = LINES
    document = sheet((f"1.1. Fruit. {first[0]}", 10, ""), *rest)
    assert headings(document) == []
    document.set_toc([[1, "1.1 Fruit", 1]])
    text = read(document.tobytes(), "a.pdf").text
    assert text.startswith(f"# 1.1. Fruit.\n\n{first[0]}")


def test_an_encrypted_file_is_reported_as_such_and_one_that_restricts_printing_is_read() -> None:
    locked = {"encryption": pymupdf.PDF_ENCRYPT_AES_256, "owner_pw": "owner"}
    with pytest.raises(
        ParseFailed, match=r"^a\.pdf is encrypted; save a copy without its password"
    ):
        read(pdf("<p>secret</p>", user_pw="user", **locked), "a.pdf")
    assert read(pdf("<p>open</p>", **locked), "a.pdf").text == "open\n"


def picture() -> pymupdf.Pixmap:
    found = pymupdf.Pixmap(pymupdf.csGRAY, (0, 0, 50, 50), False)
    found.clear_with(128)
    return found


def scan() -> bytes:
    document = pymupdf.open()
    document.new_page().insert_image((50, 50, 500, 700), pixmap=picture())
    return bytes(document.tobytes())


def test_the_error_for_a_scan_recommends_ocr_also_if_its_table_of_objects_is_broken() -> None:
    raw = scan()
    for each in (raw, raw[: raw.index(b"startxref")] + b"startxref\n99\n%%EOF"):
        with pytest.raises(NoText, match=r"^No text found in a\.pdf; it looks scanned: .*ocrmypdf"):
            read(each, "a.pdf")


def test_pages_with_drawings_only_are_not_called_scanned() -> None:
    document = pymupdf.open()
    document.new_page().draw_circle((200, 200), 50)
    with pytest.raises(NoText, match=r"^No text found in a\.pdf; there is no text on its pages"):
        read(document.tobytes(), "a.pdf")


def test_pages_without_text_among_others_are_noted_but_not_blank_ones() -> None:
    document = pymupdf.open()
    document.new_page().insert_text((72, 100), "first page")
    document.new_page().insert_image((50, 50, 500, 700), pixmap=picture())
    document.new_page()
    document.new_page().draw_circle((200, 200), 50)
    parsed = read(document.tobytes(), "a.pdf")
    assert parsed.text == "first page\n" and len(parsed.pages) == 4
    assert parsed.note.startswith("2 of 4 pages have no text that can be read: 2, 4")


def with_unknown_glyphs(*pages: bool) -> bytes:
    """A PDF in which the fonts of some pages do not map glyphs to characters."""
    document = pymupdf.open()
    for unknown in pages:
        text = "\ufffd" * 60 if unknown else "text that can be read"
        writer = pymupdf.TextWriter(document.new_page().rect)
        writer.append((72, 100), text, font=pymupdf.Font("cjk"))
        writer.write_text(document[-1])
    return bytes(document.tobytes())


def test_glyphs_without_characters_are_judged_page_by_page() -> None:
    parsed = read(with_unknown_glyphs(True, False, True, True), "a.pdf")
    assert parsed.text == "text that can be read\n"
    assert parsed.note.startswith("3 of 4 pages have no text that can be read: 1, 3, 4")
    with pytest.raises(NoText, match="do not map glyphs to characters"):
        read(with_unknown_glyphs(True, True), "a.pdf")


@pytest.mark.parametrize(
    "useless", ["Front cover", "Layout 1", "Table of Contents", "untitled", "thesis.dvi"]
)
def test_a_title_that_says_nothing_is_no_title(useless: str) -> None:
    raw = pdf(f"<h1>{useless}</h1>", f"<h1>Apples and pears</h1><p>{LOREM}</p>", title=useless)
    assert read(raw, "a.pdf").title == "Apples and pears"


def test_reading_a_pdf_imports_no_models_and_no_arrays() -> None:
    done = python("import sys, mcpvectordb.ingest.formats.pdf; print(*sys.modules)")
    loaded = set(done.stdout.split())
    assert "pymupdf" in loaded, done.stderr
    assert not loaded & {"onnxruntime", "numpy", "networkx", "pymupdf4llm"}


# --- books


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
