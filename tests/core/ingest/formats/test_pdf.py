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
