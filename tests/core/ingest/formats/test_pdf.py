from __future__ import annotations

import pymupdf
import pytest

from mcpvectordb.errors import NoText, ParseFailed
from tests.support import python
from tests.support_formats import page, read

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
    parsed = read(pdf("<p>first page</p>", "<p>second page</p>", "<p>third page</p>"), "a.pdf")
    assert parsed.kind == "markdown"
    assert [page(parsed, number) for number in (1, 2, 3)] == [
        "first page",
        "second page",
        "third page",
    ]
    assert parsed.metadata["pages"] == 3


def test_a_page_without_text_still_counts() -> None:
    parsed = read(pdf("<p>first page</p>", "", "<p>third page</p>", ""), "a.pdf")
    assert len(parsed.pages) == 4
    assert [page(parsed, number) for number in (1, 2, 3, 4)] == ["first page", "", "third page", ""]


def test_the_title_comes_from_the_metadata() -> None:
    parsed = read(pdf("<h1>A heading</h1><p>Text.</p>", title="The Title"), "a.pdf")
    assert parsed.title == "The Title"
    assert parsed.metadata["author"] == "Ann Author"


def test_without_title_and_heading_the_file_name_is_the_title() -> None:
    assert read(pdf(f"<p>{LOREM}</p>"), "report.pdf").title == "report.pdf"


def test_larger_fonts_make_headings_of_the_right_level() -> None:
    html = f"<h1>Fruit</h1><p>{LOREM}</p><h2>Apples</h2><p>{LOREM}</p><h2>Pears</h2><p>{LOREM}</p>"
    lines = read(pdf(html), "a.pdf").text.split("\n")
    assert [line for line in lines if line.startswith("#")] == ["# Fruit", "## Apples", "## Pears"]


def test_bold_lines_are_headings_below_the_larger_ones() -> None:
    text = read(
        pdf(f"<h1>Fruit</h1><p>{LOREM}</p><p><b>Apples and pears</b></p><p>{LOREM}</p>"), "a.pdf"
    ).text
    assert "\n\n## Apples and pears\n\n" in text


def test_lines_of_a_paragraph_are_joined() -> None:
    assert LOREM.strip() in read(pdf(f"<p>{LOREM}</p>"), "a.pdf").text


def test_a_hyphenated_word_is_joined() -> None:
    document = pymupdf.open()
    document.new_page().insert_text(
        (72, 100), ["The compu-", "ter is slow and well-", "Known for it."]
    )
    assert "The computer is slow and well- Known for it." in read(document.tobytes(), "a.pdf").text


def test_bullets_become_a_list() -> None:
    document = pymupdf.open()
    document.new_page().insert_htmlbox(
        (60, 80, 535, 780), "<p>We need:</p><p>• apples<br>• pears<br>• a bag</p>"
    )
    assert "- apples\n- pears\n- a bag" in read(document.tobytes(), "a.pdf").text


def test_code_keeps_its_lines_and_indentation() -> None:
    text = read(
        pdf(f"<p>{LOREM}</p><pre>def f(x):\n    if x:\n        return 1</pre>"), "a.pdf"
    ).text
    assert "```\ndef f(x):\n    if x:\n        return 1\n```" in text


def ruled_table(rows: list[list[str]], *, vertical: bool = True) -> bytes:
    document = pymupdf.open()
    sheet = document.new_page()
    sheet.insert_text((72, 80), "Prices of the year are these:")
    for at, row in enumerate(rows):
        for across, cell in enumerate(row):
            sheet.insert_text((80 + across * 120, 115 + at * 20), cell)
    for at in range(len(rows) + 1) if vertical else (0, 1, len(rows)):
        sheet.draw_line((72, 100 + at * 20), (72 + 120 * len(rows[0]), 100 + at * 20))
    for across in range(len(rows[0]) + 1) if vertical else ():
        sheet.draw_line((72 + across * 120, 100), (72 + across * 120, 100 + 20 * len(rows)))
    sheet.insert_text((72, 300), "After the table.")
    return bytes(document.tobytes())


@pytest.mark.parametrize("vertical", [True, False])
def test_a_ruled_table_becomes_a_markdown_table_in_its_place(vertical: bool) -> None:
    rows = [["Fruit", "Price", "Stock"], ["green apple", "1.20", "17"], ["pear", "0.80", "4"]]
    text = read(ruled_table(rows, vertical=vertical), "a.pdf").text
    assert text == (
        "Prices of the year are these:\n\n| Fruit | Price | Stock |\n| --- | --- | --- |\n"
        "| green apple | 1.20 | 17 |\n| pear | 0.80 | 4 |\n\nAfter the table.\n"
    )


def test_the_outline_gives_levels_to_bold_headings() -> None:
    document = pymupdf.open()
    document.new_page().insert_htmlbox(
        (60, 80, 535, 780), f"<p><b>Fruit</b></p><p>{LOREM}</p><p><b>Apples</b></p><p>{LOREM}</p>"
    )
    document.set_toc([[1, "1 Fruit", 1], [2, "1.1 Apples", 1]])
    text = read(document.tobytes(), "a.pdf").text
    assert "# Fruit\n" in text and "\n## Apples\n" in text


def test_an_encrypted_file_is_reported_as_such() -> None:
    raw = pdf(
        "<p>secret</p>", encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="user", owner_pw="owner"
    )
    with pytest.raises(
        ParseFailed, match=r"^a\.pdf is encrypted; save a copy without its password"
    ):
        read(raw, "a.pdf")


def test_a_file_that_only_restricts_printing_is_read() -> None:
    raw = pdf("<p>open</p>", encryption=pymupdf.PDF_ENCRYPT_AES_256, owner_pw="owner")
    assert read(raw, "a.pdf").text == "open\n"


def picture() -> pymupdf.Pixmap:
    found = pymupdf.Pixmap(pymupdf.csGRAY, (0, 0, 50, 50), False)
    found.clear_with(128)
    return found


def scan() -> bytes:
    document = pymupdf.open()
    document.new_page().insert_image((50, 50, 500, 700), pixmap=picture())
    return bytes(document.tobytes())


def test_the_error_for_a_scan_recommends_ocr() -> None:
    with pytest.raises(
        NoText, match=r"^No text found in scan\.pdf; it looks scanned: .*run OCR .*ocrmypdf"
    ):
        read(scan(), "scan.pdf")


def test_a_scan_with_a_broken_table_of_objects_is_still_a_scan() -> None:
    raw = scan()
    at = raw.index(b"startxref")
    with pytest.raises(NoText, match="it looks scanned"):
        read(raw[:at] + b"startxref\n99\n%%EOF", "scan.pdf")


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
    done = python(
        "import sys; from mcpvectordb.ingest.formats import pdf; import pymupdf; "
        "print(*sys.modules)"
    )
    loaded = set(done.stdout.split())
    assert "pymupdf" in loaded, done.stderr
    assert not loaded & {"onnxruntime", "numpy", "networkx", "pymupdf4llm"}
