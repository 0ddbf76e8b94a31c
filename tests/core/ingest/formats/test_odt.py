from __future__ import annotations

import pytest

from mcpvectordb.errors import ParseFailed
from tests.support_formats import odf, page, read, zipped

LETTER = """<office:text><text:tracked-changes><text:p>gone</text:p></text:tracked-changes>
<text:h text:outline-level="1">Fruit</text:h><text:p>Apples<text:s text:c="2"/>are <text:span>red</text:span>.<text:note>
<text:note-citation>1</text:note-citation><text:note-body><text:p>Mostly.</text:p></text:note-body></text:note></text:p>
<text:list><text:list-item><text:p>crisp</text:p><text:list><text:list-item><text:p>very</text:p></text:list-item></text:list>
</text:list-item><text:list-item><text:p>sweet</text:p></text:list-item></text:list>
<text:h text:outline-level="2">Sorts</text:h>
<table:table><table:table-row><table:table-cell><text:p>Sort</text:p></table:table-cell><table:table-cell><text:p>Price</text:p>
</table:table-cell></table:table-row><table:table-row><table:table-cell table:number-columns-repeated="2"><text:p>x</text:p>
</table:table-cell></table:table-row></table:table></office:text>"""


def test_headings_lists_notes_and_tables_come_in_order() -> None:
    about = "<dc:title>A Letter</dc:title><dc:creator>Ann</dc:creator>"
    parsed = read(odf("text", LETTER, meta=about), "a.odt")
    assert parsed.text == (
        "# Fruit\n\nMostly.\n\nApples are red.\n\n- crisp\n  - very\n- sweet\n\n## Sorts\n\n"
        "| Sort | Price |\n| --- | --- |\n| x | x |\n"
    )
    assert parsed.title == "A Letter" and parsed.metadata == {"author": "Ann"}


def test_the_slides_of_a_presentation_are_pages() -> None:
    slide = """<draw:page><draw:frame presentation:class="title"><draw:text-box><text:p>{0}</text:p></draw:text-box>
</draw:frame><draw:frame><draw:text-box><text:p>Text of {0}</text:p></draw:text-box></draw:frame></draw:page>"""
    parsed = read(odf("presentation", slide.format("One") + slide.format("Two")), "a.odp")
    assert [page(parsed, 1), page(parsed, 2)] == ["# One\n\nText of One", "# Two\n\nText of Two"]
    assert parsed.title == "One"


def test_the_sheets_of_a_workbook_are_sections() -> None:
    cell = '<table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>'
    rows = [
        f"{cell.format('Sort')} {cell.format('Price')}",
        f"{cell.format('x')} {cell.format('1,20 €')}",
    ]
    rows.append('<table:table-cell table:number-columns-repeated="1024"/>')
    row = '<table:table-row table:number-rows-repeated="9">{}</table:table-row>'
    sheet = "".join(map(row.format, rows))
    body = "".join(
        f'<table:table table:name="{name}">{sheet}</table:table>' for name in ("Fruit", "Nuts")
    )
    parsed = read(
        odf("spreadsheet", f"<office:spreadsheet>{body}</office:spreadsheet>"), "stock.ods"
    )
    table = "| Sort | Price |\n| --- | --- |\n| x | 1,20 € |\n"
    assert parsed.text == f"# Fruit\n\n{table}\n# Nuts\n\n{table}"
    assert parsed.title == "stock.ods"


def test_an_encrypted_document_and_one_without_content_are_reported_as_such() -> None:
    with pytest.raises(ParseFailed, match=r"a\.odt is encrypted"):
        read(odf("text", LETTER, manifest="<manifest:encryption-data/>"), "a.odt")
    with pytest.raises(ParseFailed, match=r"a\.odt is damaged: its part content\.xml is missing"):
        read(zipped({"mimetype": "application/vnd.oasis.opendocument.text"}), "a.odt")


def test_a_million_repeated_cells_are_not_written_out() -> None:
    cell = '<table:table-cell table:number-columns-repeated="1000000"><text:p>x</text:p></table:table-cell>'
    row = f"<table:table-row>{cell}</table:table-row>"
    body = f"<office:text><table:table>{row}{row}</table:table></office:text>"
    assert len(read(odf("text", body), "a.odt").text) < 2000


def test_links_comments_and_alternative_texts_are_kept() -> None:
    body = (
        '<office:text><text:p>see <text:a xmlns:xlink="x" xlink:href="https://fruit.example/list">the '
        "list</text:a> of <office:annotation><dc:creator>Ann</dc:creator><text:p>too cheap</text:p>"
        "</office:annotation>prices</text:p><text:p><draw:frame><svg:desc xmlns:svg='s'>a basket"
        "</svg:desc></draw:frame></text:p></office:text>"
    )
    text = read(odf("text", body), "a.odt").text
    assert "see [the list](https://fruit.example/list) of prices" in text
    assert "Comment: too cheap" in text and "[Image: a basket]" in text
