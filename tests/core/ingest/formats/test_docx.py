from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import docx
import pymupdf
import pytest
from docx.document import Document
from docx.oxml import parse_xml
from docx.table import Table

from mcpvectordb.errors import ParseFailed
from tests.support_formats import bomb, read, saved, with_member, zipped

PNG = pymupdf.Pixmap(pymupdf.csRGB, (0, 0, 4, 4), False).tobytes("png")
PARTS = "http://schemas.openxmlformats.org/package/2006/relationships"
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def text_of(document: Document) -> str:
    return read(saved(document), "a.docx").text


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


def test_headings_lists_and_tables_come_in_order_with_title_and_author() -> None:
    document = report()
    parsed = read(saved(document), "a.docx")
    assert parsed.text == (
        "# Fruit of the year\n\n# Apples\n\nApples are red.\n\n- crisp\n- sweet\n\n## Sorts\n\n"
        "| Sort | Price |\n| --- | --- |\n| Boskoop | 1.20 |\n\nPears come later.\n"
    )
    assert (parsed.title, parsed.metadata["author"], parsed.pages) == (
        "The Report",
        "Ann Author",
        (),
    )
    document.core_properties.title = ""  # then the title is the paragraph with that style
    assert read(saved(document), "a.docx").title == "Fruit of the year"


def test_each_numbered_list_has_its_own_numbers() -> None:
    document = docx.Document()
    for text in ("one", "two"):
        document.add_paragraph(text, style="List Number")
    deeper = document.add_paragraph("three", style="List Number")
    deeper._p.get_or_add_pPr().append(
        parse_xml(f'<w:numPr {W}><w:ilvl w:val="0"/><w:numId w:val="0"/></w:numPr>')
    )
    assert text_of(document) == "1. one\n2. two\n\nthree\n"


def test_a_list_goes_on_where_another_of_its_sequence_ended_or_starts_again() -> None:
    numbering = (
        f'<w:numbering {W}><w:abstractNum w:abstractNumId="7"><w:lvl w:ilvl="0">'
        '<w:start w:val="1"/><w:numFmt w:val="decimal"/></w:lvl></w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num>'
        '<w:num w:numId="2"><w:abstractNumId w:val="7"/></w:num>'
        '<w:num w:numId="3"><w:abstractNumId w:val="7"/><w:lvlOverride w:ilvl="0">'
        '<w:startOverride w:val="5"/></w:lvlOverride></w:num></w:numbering>'
    )
    body = "".join(
        f'<w:p><w:pPr><w:numPr><w:ilvl w:val="0"/><w:numId w:val="{number}"/></w:numPr></w:pPr>'
        f"<w:r><w:t>{text}</w:t></w:r></w:p>"
        for number, text in ((1, "a"), (2, "b"), (3, "c"), (3, "d"), (1, "e"))
    )
    document = docx.Document()
    document.add_paragraph("a", style="List Number")  # so that there is a part for numberings
    raw = with_member(saved(document), "word/numbering.xml", numbering.encode())
    text = read(with_member(raw, "word/document.xml", with_body(body)), "a.docx").text
    assert text == "1. a\n2. b\n5. c\n6. d\n7. e\n"


def test_of_tracked_changes_deletions_are_left_out_and_insertions_kept() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("Pay ")._p
    paragraph.append(
        parse_xml(f'<w:del {W} w:id="1" w:author="x"><w:r><w:delText>ten</w:delText></w:r></w:del>')
    )
    paragraph.append(
        parse_xml(f'<w:ins {W} w:id="2" w:author="x"><w:r><w:t>twenty</w:t></w:r></w:ins>')
    )
    assert text_of(document) == "Pay twenty\n"


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
    assert text_of(document) == "In a box\n\nSee the page\n"


def test_a_table_in_a_cell_becomes_the_text_of_the_cell() -> None:
    document = docx.Document()
    outer = document.add_table(rows=2, cols=2)
    fill(outer, "abcd")
    inner = outer.cell(1, 1).add_table(rows=1, cols=2)
    inner.cell(0, 0).text, inner.cell(0, 1).text = "x", "y"
    assert text_of(document) == "| a | b |\n| --- | --- |\n| c | d x, y |\n"


def test_footnotes_are_at_the_end() -> None:
    note = '<w:footnote w:{0}="{1}" w:id="2"><w:p><w:r><w:t>{2}</w:t></w:r></w:p></w:footnote>'
    notes = note.format("type", "separator", "---") + note.format("x", "", "A note.")
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"
    relation = f'<Relationship Id="r1" Target="footnotes.xml" Type="{kind}"/>'
    raw = saved(docx.Document())
    for name, part in (
        ("document.xml", f'<w:document {W}><w:body><w:p><w:r><w:t>Text</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r></w:p></w:body></w:document>'),
        ("footnotes.xml", f"<w:footnotes {W}>{notes}</w:footnotes>"),
        ("_rels/document.xml.rels", f'<Relationships xmlns="{PARTS}">{relation}</Relationships>'),
    ):  # fmt: skip
        raw = with_member(raw, f"word/{name}", part.encode())
    assert read(raw, "a.docx").text == "Text[^2]\n\n[^2]: A note.\n"


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize("body", [
    with_body("<w:p><w:r><w:t>a&l9;</w:t></w:r></w:p>", f'<!DOCTYPE x [<!ENTITY l0 "lol">{LAUGHS}]>'),
    with_body("<w:sdt>" * 50_000 + "</w:sdt>" * 50_000),
], ids=["entities", "nested"])  # fmt: skip
def test_entities_and_thousands_of_nested_elements_fail_clearly(body: bytes) -> None:
    raw = with_member(saved(docx.Document()), "word/document.xml", body)
    with pytest.raises(ParseFailed, match=r"^a\.docx is damaged: word/document\.xml"):
        read(raw, "a.docx")


def test_files_cannot_be_read_through_entities() -> None:
    entity = '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
    body = with_body("<w:p><w:r><w:t>a&e;</w:t></w:r></w:p>", entity)
    raw = with_member(saved(docx.Document()), "word/document.xml", body)
    assert read(raw, "a.docx").text == "a\n"


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


R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
M = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'


def test_a_hyperlink_keeps_its_target_unless_its_text_says_it() -> None:
    document = docx.Document()
    for text, target in (
        ("the list", "https://fruit.example/list"),
        ("https://fruit.example", "https://fruit.example/"),
        ("ann@fruit.example", "mailto:ann@fruit.example"),
    ):
        id = document.part.relate_to(target, f"{R.split(chr(34))[1]}/hyperlink", is_external=True)
        document.add_paragraph("see ")._p.append(
            parse_xml(
                f'<w:hyperlink {W} {R} r:id="{id}"><w:r><w:t>{text}</w:t></w:r></w:hyperlink>'
            )
        )
    assert text_of(document) == (
        "see [the list](https://fruit.example/list)\n\nsee https://fruit.example\n\n"
        "see ann@fruit.example\n"
    )


def test_comments_are_kept_with_their_author() -> None:
    document = docx.Document()
    run = document.add_paragraph("Apples are cheap.").runs[0]
    document.add_comment(run, text="too cheap", author="Ann Author")
    assert text_of(document) == ("Apples are cheap.\n\nComment (Ann Author): too cheap\n")


def test_headers_and_footers_are_kept_once_without_page_numbers() -> None:
    document = docx.Document()
    document.add_paragraph("Apples are red.")
    for section in (document.sections[0], document.add_section()):
        section.header.is_linked_to_previous = section.footer.is_linked_to_previous = False
        section.header.paragraphs[0].text = "The Fruit Office"
        section.footer.paragraphs[0].text = "17"
    assert text_of(document) == "Apples are red.\n\nThe Fruit Office\n"


def test_code_keeps_its_lines_and_indentation() -> None:
    document = docx.Document()
    document.styles.add_style("Source Code", docx.enum.style.WD_STYLE_TYPE.PARAGRAPH)
    document.add_paragraph("An example:")
    for line in ("def f(x):", "    if x:", "", "        return 1"):
        document.add_paragraph(line, style="Source Code")
    document.add_paragraph("In another font:")
    run = document.add_paragraph().add_run("  y = 2")
    run.font.name = "Courier New"
    assert text_of(document) == (
        "An example:\n\n```\ndef f(x):\n    if x:\n\n        return 1\n```\n\n"
        "In another font:\n\n```\n  y = 2\n```\n"
    )


def test_the_alternative_text_of_a_picture_is_kept() -> None:
    document = docx.Document()
    document.add_paragraph("Apples:")
    document.add_picture(BytesIO(PNG))
    document.inline_shapes[0]._inline.docPr.set("descr", "a basket of apples")
    assert "[Image: a basket of apples]" in text_of(document)


@pytest.mark.parametrize(("xml", "latex"), [
    ("<m:f><m:num>{a}</m:num><m:den>{b}</m:den></m:f>", r"\frac{a}{b}"),
    ("<m:sSup><m:e>{a}</m:e><m:sup>{b}</m:sup></m:sSup>", "a^{b}"),
    ("<m:sSub><m:e>{a}</m:e><m:sub>{b}</m:sub></m:sSub>", "a_{b}"),
    ("<m:rad><m:deg/><m:e>{a}</m:e></m:rad>", r"\sqrt{a}"),
    ("<m:rad><m:deg>{b}</m:deg><m:e>{a}</m:e></m:rad>", r"\sqrt[b]{a}"),
    ('<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:sub>{a}</m:sub><m:sup>{b}</m:sup><m:e>{a}</m:e></m:nary>', r"\sum_{a}^{b} a"),
    ('<m:d><m:dPr><m:begChr m:val="["/></m:dPr><m:e>{a}</m:e></m:d>', "[a)"),
    ("<m:func><m:fName><m:r><m:t>sin</m:t></m:r></m:fName><m:e>{a}</m:e></m:func>", r"\sin a"),
    ("<m:m><m:mr><m:e>{a}</m:e><m:e>{b}</m:e></m:mr><m:mr><m:e>{b}</m:e><m:e>{a}</m:e></m:mr></m:m>", r"\begin{matrix}a & b \\ b & a\end{matrix}"),
])  # fmt: skip
def test_an_equation_is_written_like_latex(xml: str, latex: str) -> None:
    a, b = (f"<m:r><m:t>{letter}</m:t></m:r>" for letter in "ab")
    body = xml.replace("{a}", a).replace("{b}", b)
    document = docx.Document()
    document.add_paragraph("It is ")._p.append(parse_xml(f"<m:oMath {M}>{body}</m:oMath>"))
    assert text_of(document) == f"It is ${latex}$\n"


def test_the_values_of_a_chart_become_a_table() -> None:
    document = docx.Document()
    c = "http://schemas.openxmlformats.org/drawingml/2006/chart"
    points = "".join(f'<c:pt idx="{at}"><c:v>{v}</c:v></c:pt>' for at, v in enumerate((1.2, 3)))
    names = "".join(f'<c:pt idx="{at}"><c:v>{v}</c:v></c:pt>' for at, v in enumerate("AB"))
    chart = (
        f'<c:chartSpace xmlns:c="{c}"><c:chart><c:plotArea><c:barChart><c:ser><c:tx><c:v>Price</c:v></c:tx>'
        f"<c:cat><c:strRef><c:strCache>{names}</c:strCache></c:strRef></c:cat>"
        f"<c:val><c:numRef><c:numCache>{points}</c:numCache></c:numRef></c:val>"
        "</c:ser></c:barChart></c:plotArea></c:chart></c:chartSpace>"
    )
    part = docx.opc.part.Part(
        docx.opc.packuri.PackURI("/word/charts/chart1.xml"), "application/xml", chart.encode(), None
    )
    id = document.part.relate_to(part, f"{R.split(chr(34))[1]}/chart")
    document.add_paragraph("Prices:").runs[0]._r.append(
        parse_xml(f'<w:drawing {W}><c:chart xmlns:c="{c}" {R} r:id="{id}"/></w:drawing>')
    )
    assert text_of(document) == (
        "Prices:\n\nChart:\n\n|  | Price |\n| --- | --- |\n| A | 1.2 |\n| B | 3 |\n"
    )


def test_headings_have_the_numbers_that_word_counts() -> None:
    levels = "".join(
        f'<w:lvl w:ilvl="{n}"><w:start w:val="{start}"/><w:numFmt w:val="{form}"/>'
        f'<w:lvlText w:val="{text}"/></w:lvl>'
        for n, start, form, text in (
            (0, 2, "decimal", "%1"), (1, 1, "decimal", "%1.%2"), (2, 1, "upperLetter", "%3)"),
        )
    )  # fmt: skip
    numbering = (
        f'<w:numbering {W}><w:abstractNum w:abstractNumId="7">{levels}</w:abstractNum>'
        '<w:num w:numId="9"><w:abstractNumId w:val="7"/></w:num></w:numbering>'
    )
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="Heading{depth + 1}"/><w:numPr><w:ilvl w:val="{depth}"/>'
        f'<w:numId w:val="9"/></w:numPr></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'
        for depth, text in (
            (0, "Ships"),
            (1, "Hulls"),
            (1, "Masts"),
            (2, "Oak"),
            (0, "Sails"),
            (1, "Jib"),
        )
    )
    document = docx.Document()
    document.add_paragraph("a", style="List Number")  # so that there is a part for numberings
    raw = with_member(saved(document), "word/numbering.xml", numbering.encode())
    text = read(with_member(raw, "word/document.xml", with_body(body)), "a.docx").text
    found = [line.lstrip("# ") for line in text.splitlines() if line]
    assert found == ["2 Ships", "2.1 Hulls", "2.2 Masts", "A) Oak", "3 Sails", "3.1 Jib"]
