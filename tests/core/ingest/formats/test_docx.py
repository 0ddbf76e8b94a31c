from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import docx
import pytest
from docx.document import Document
from docx.oxml import parse_xml
from docx.table import Table

from mcpvectordb.errors import NoText, ParseFailed
from tests.support_formats import bomb, read, with_member, zipped

PARTS = "http://schemas.openxmlformats.org/package/2006/relationships"
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def saved(document: Document) -> bytes:
    out = BytesIO()
    document.save(out)
    return out.getvalue()


def with_body(xml: str, before: str = "") -> bytes:
    """The main part of a document."""
    return f"{before}<w:document {W}><w:body>{xml}</w:body></w:document>".encode()


def fill(table: Table, texts: Sequence[str]) -> None:
    for cell, text in zip((cell for row in table.rows for cell in row.cells), texts, strict=True):
        cell.text = text


def report() -> Document:
    document = docx.Document()
    document.core_properties.title = "The Report"
    document.core_properties.author = "Ann Author"
    document.add_heading("Fruit of the year", 0)
    document.add_heading("Apples", 1)
    document.add_paragraph("Apples are red.")
    document.add_paragraph("crisp", style="List Bullet")
    document.add_paragraph("sweet", style="List Bullet")
    document.add_heading("Sorts", 2)
    table = document.add_table(rows=2, cols=2)
    fill(table, ["Sort", "Price", "Boskoop", "1.20"])
    document.add_paragraph("Pears come later.")
    return document


def test_headings_lists_and_tables_come_in_order() -> None:
    assert read(saved(report()), "a.docx").text == (
        "# Fruit of the year\n\n# Apples\n\nApples are red.\n\n- crisp\n- sweet\n\n## Sorts\n\n"
        "| Sort | Price |\n| --- | --- |\n| Boskoop | 1.20 |\n\nPears come later.\n"
    )


def test_title_and_author_come_from_the_properties() -> None:
    parsed = read(saved(report()), "a.docx")
    assert parsed.title == "The Report"
    assert parsed.metadata["author"] == "Ann Author"
    assert parsed.pages == ()


def test_without_properties_the_title_paragraph_is_the_title() -> None:
    document = report()
    document.core_properties.title = ""
    assert read(saved(document), "a.docx").title == "Fruit of the year"


def test_each_numbered_list_has_its_own_numbers() -> None:
    document = docx.Document()
    for text in ("one", "two"):
        document.add_paragraph(text, style="List Number")
    deeper = document.add_paragraph("three", style="List Number")
    deeper._p.get_or_add_pPr().append(
        parse_xml(f'<w:numPr {W}><w:ilvl w:val="0"/><w:numId w:val="0"/></w:numPr>')
    )
    assert read(saved(document), "a.docx").text == "1. one\n2. two\n\nthree\n"


def test_of_tracked_changes_deletions_are_left_out_and_insertions_kept() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("Pay ")._p
    paragraph.append(
        parse_xml(f'<w:del {W} w:id="1" w:author="x"><w:r><w:delText>ten</w:delText></w:r></w:del>')
    )
    paragraph.append(
        parse_xml(f'<w:ins {W} w:id="2" w:author="x"><w:r><w:t>twenty</w:t></w:r></w:ins>')
    )
    assert read(saved(document), "a.docx").text == "Pay twenty\n"


def test_a_hyperlink_and_a_text_box_keep_their_text() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("See ")._p
    paragraph.append(parse_xml(f"<w:hyperlink {W}><w:r><w:t>the page</w:t></w:r></w:hyperlink>"))
    paragraph.append(
        parse_xml(
            f"<w:r {W}><w:pict><w:txbxContent><w:p><w:r><w:t>In a "
            "box</w:t></w:r></w:p></w:txbxContent></w:pict></w:r>"
        )
    )
    assert read(saved(document), "a.docx").text == "In a box\n\nSee the page\n"


def test_a_table_in_a_cell_becomes_the_text_of_the_cell() -> None:
    document = docx.Document()
    outer = document.add_table(rows=2, cols=2)
    fill(outer, "abcd")
    inner = outer.cell(1, 1).add_table(rows=1, cols=2)
    inner.cell(0, 0).text, inner.cell(0, 1).text = "x", "y"
    assert read(saved(document), "a.docx").text == "| a | b |\n| --- | --- |\n| c | d x, y |\n"


def test_footnotes_are_at_the_end() -> None:
    raw = saved(docx.Document())
    body = with_body(
        '<w:p><w:r><w:t>Text</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r></w:p>'
    )
    notes = (
        f'<w:footnotes {W}><w:footnote w:type="separator" '
        f'w:id="0"><w:p><w:r><w:t>---</w:t></w:r></w:p></w:footnote>'
        '<w:footnote w:id="2"><w:p><w:r><w:t>A note.</w:t></w:r></w:p></w:footnote></w:footnotes>'
    )
    relations = (
        f'<Relationships xmlns="{PARTS}"><Relationship Id="r1" Target="footnotes.xml" '
        'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"/></Relationships>'
    )
    raw = with_member(
        with_member(raw, "word/document.xml", body), "word/footnotes.xml", notes.encode()
    )
    raw = with_member(raw, "word/_rels/document.xml.rels", relations.encode())
    assert read(raw, "a.docx").text == "Text[^2]\n\n[^2]: A note.\n"


def test_an_empty_document_has_no_text() -> None:
    with pytest.raises(NoText, match=r"^No text found in a\.docx"):
        read(saved(docx.Document()), "a.docx")


@pytest.mark.parametrize("kept", [30, 1000, 10_000])
def test_a_truncated_document_fails_clearly(kept: int) -> None:
    with pytest.raises(ParseFailed, match=r"^a\.docx is damaged"):
        read(saved(report())[:kept], "a.docx")


def test_a_document_is_recognised_under_any_name() -> None:
    assert "Apples are red." in read(saved(report()), "report.pdf").text


def test_entities_are_not_expanded() -> None:
    lol = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    body = with_body(
        "<w:p><w:r><w:t>a&l9;</w:t></w:r></w:p>", f'<!DOCTYPE x [<!ENTITY l0 "lol">{lol}]>'
    )
    raw = with_member(saved(docx.Document()), "word/document.xml", body)
    with pytest.raises(ParseFailed, match=r"^a\.docx is damaged: word/document\.xml"):
        read(raw, "a.docx")


def test_files_cannot_be_read_through_entities() -> None:
    body = with_body(
        "<w:p><w:r><w:t>a&e;</w:t></w:r></w:p>",
        '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>',
    )
    raw = with_member(saved(docx.Document()), "word/document.xml", body)
    assert read(raw, "a.docx").text == "a\n"


def test_thousands_of_nested_elements_fail_clearly() -> None:
    body = with_body("<w:sdt>" * 50_000 + "</w:sdt>" * 50_000)
    with pytest.raises(ParseFailed, match=r"^a\.docx is damaged: word/document\.xml"):
        read(with_member(saved(docx.Document()), "word/document.xml", body), "a.docx")


def test_a_decompression_bomb_is_refused() -> None:
    with pytest.raises(ParseFailed, match=r"a\.docx would unpack to more than 256 MB"):
        read(bomb(), "a.docx")


def test_an_archive_without_a_document_fails_clearly() -> None:
    relations = (
        f'<Relationships xmlns="{PARTS}"><Relationship Id="r1" Type="http://x/officeDocument" '
        'Target="../../etc/passwd"/></Relationships>'
    )
    with pytest.raises(ParseFailed, match=r"a\.docx is damaged: its part etc/passwd is missing"):
        read(zipped({"_rels/.rels": relations, "word/document.xml": "<x/>"}), "a.docx")
