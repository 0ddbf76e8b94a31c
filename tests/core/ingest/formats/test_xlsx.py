from __future__ import annotations

import datetime

import openpyxl
import pytest
import xlwt
from openpyxl.chart import BarChart, Reference
from openpyxl.comments import Comment
from openpyxl.worksheet.hyperlink import Hyperlink

from mcpvectordb.errors import IngestError, ParseFailed, UnsupportedFormat
from tests.support_formats import ole, read, saved, zipped


def stock() -> openpyxl.Workbook:
    book = openpyxl.Workbook()
    book.properties.title, book.properties.creator = "Stock list", "Ann Author"
    sheet = book.active
    sheet.title = "Fruit"
    for row in (
        ["Sort", "Price", "Since", "Fresh"],
        ["Boskoop", 1.2, datetime.date(2024, 5, 1), True],
        ["Pear | Conference", 3, datetime.datetime(2024, 5, 1, 8, 30), False],
    ):
        sheet.append(row)
    other = book.create_sheet("Notes")
    other["B2"] = "Only a remark"
    other["B4"], other["C4"], other["B5"], other["C5"] = "a", "b", 1, 2
    book.create_sheet("Empty")
    return book


def test_sheets_are_sections_and_rows_are_tables_with_title_and_author() -> None:
    book = stock()
    parsed = read(saved(book), "a.xlsx")
    assert parsed.text == (
        "# Fruit\n\n| Sort | Price | Since | Fresh |\n| --- | --- | --- | --- |\n| Boskoop | 1.2 | "
        "2024-05-01 | TRUE |\n"
        "| Pear \\| Conference | 3 | 2024-05-01 08:30:00 | FALSE |\n\n"
        "# Notes\n\nOnly a remark\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    )
    assert parsed.title == "Stock list" and parsed.metadata["author"] == "Ann Author"
    book.properties.title = None
    assert read(saved(book), "stock.xlsx").title == "stock.xlsx"


def sheet_of(*rows: list[object]) -> str:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    return read(saved(book), "a.xlsx").text.removeprefix("# Sheet\n\n")


@pytest.mark.parametrize("gap", [0, 1, 3])
def test_a_header_above_empty_rows_and_groups_of_rows_keep_their_header(gap: int) -> None:
    header: list[object] = ["Sort", "Price"]
    assert sheet_of(
        ["Stock of May"], [], header, *[[]] * gap, ["Boskoop", 1.2], ["Pear", 3], [], ["Plum", 2], [],
        ["Shops"], ["City", "People"], ["Bergen", 290000], [], ["Name", "Age"],
    ) == (
        "Stock of May\n\n| Sort | Price |\n| --- | --- |\n| Boskoop | 1.2 |\n| Pear | 3 |\n\n"
        "| Sort | Price |\n| --- | --- |\n| Plum | 2 |\n\nShops\n\n"
        "| City | People |\n| --- | --- |\n| Bergen | 290000 |\n\nName, Age\n"
    )  # fmt: skip


def test_values_beside_the_header_or_in_one_column_of_it_do_not_get_it() -> None:
    assert sheet_of(["Sort", "Price"], [], [None] * 3 + ["x", 1], [None] * 3 + ["y", 2]) == (
        "Sort, Price\n\n| x | 1 |\n| --- | --- |\n| y | 2 |\n"
    )
    assert sheet_of(["Sort", "Price"], ["Pear", 3], [], ["a remark"], ["another"]) == (
        "| Sort | Price |\n| --- | --- |\n| Pear | 3 |\n\na remark\nanother\n"
    )


def test_empty_rows_before_a_distant_cell_are_left_out() -> None:
    book = openpyxl.Workbook()
    book.active["A1"], book.active["A1048576"] = "top", "bottom"
    assert read(saved(book), "a.xlsx").text == "# Sheet\n\ntop\n\nbottom\n"


def test_thousands_of_rows_are_read() -> None:
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("Data")
    for number in range(5000):
        sheet.append([f"name {number}", number])
    text = read(saved(book), "a.xlsx").text
    assert "| name 4999 | 4999 |" in text


def test_a_workbook_with_a_broken_sheet_fails_clearly() -> None:
    with pytest.raises(ParseFailed, match=r"^a\.xlsx (cannot be read as a workbook|is damaged)"):
        read(zipped({"xl/workbook.xml": "<nonsense"}), "a.xlsx")


def test_charts_comments_and_links_of_a_sheet_are_kept() -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    for row in (["Sort", "Price"], ["Boskoop", 1.2], ["Conference", 3]):
        sheet.append(row)
    sheet["B2"].comment = Comment("too cheap", "Ann Author")
    sheet["A2"].hyperlink = Hyperlink(ref="A2", target="https://fruit.example/boskoop")
    shown = Hyperlink(ref="A3", target="https://fruit.example/all", display="the list")
    sheet["A3"].hyperlink = shown
    chart = BarChart()
    chart.title = "Prices of the year"
    chart.add_data(Reference(sheet, min_col=2, min_row=1, max_row=3), titles_from_data=True)
    chart.set_categories(Reference(sheet, min_col=1, min_row=2, max_row=3))
    sheet.add_chart(chart, "E5")
    text = read(saved(book), "a.xlsx").text
    assert "Comment (B2): too cheap" in text
    assert "[A2](https://fruit.example/boskoop)" in text
    assert "[the list](https://fruit.example/all)" in text
    assert "Chart: Prices of the year" in text


def old_workbook() -> bytes:
    book = xlwt.Workbook()
    sheet = book.add_sheet("Fruit")
    for at, row in enumerate([["Sort", "Price"], ["Boskoop", 1.2]]):
        for across, cell in enumerate(row):
            sheet.write(at, across, cell)
    return saved(book)


def container(*streams: str) -> bytes:
    """A container of the binary Office formats with streams of these names."""
    directory = b"".join(name.encode("utf-16-le").ljust(128, b"\0") for name in streams)
    return b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + directory


def test_an_old_workbook_is_read() -> None:
    parsed = read(old_workbook(), "old.xls")
    assert parsed.text == "# Fruit\n\n| Sort | Price |\n| --- | --- |\n| Boskoop | 1.2 |\n"
    assert parsed.title == "old.xls"


@pytest.mark.parametrize(("streams", "error"), [
    ({"VisioDocument": b""}, "Unsupported format of a.xls: a drawing of Visio; save it as PDF"),
    ({"Quill/QuillSub/CONTENTS": b""}, "Unsupported format of a.xls: a publication of Publisher; save it as PDF"),
    ({"Anything": b""}, "Unsupported format of a.xls: an OLE container without a document"),
    ({"Workbook": bytes.fromhex("09080000 2f000600")}, "a.xls is encrypted; save a copy without its password"),
    ({"WordDocument": bytes.fromhex("eca5c100")}, "a.xls is damaged: parts of it are missing; open it in its program"),
])  # fmt: skip
def test_a_container_that_cannot_be_read_is_named_with_what_to_do(
    streams: dict[str, bytes], error: str
) -> None:
    with pytest.raises(IngestError) as raised:
        read(ole(streams), "a.xls")
    assert str(raised.value).startswith(error)


@pytest.mark.parametrize(("raw", "error"), [
    (b"\x09\x04\x06\x00\x00\x00\x10\x00", "a workbook of Excel 2 to 4; save it as XLSX"),
    (b"\xdb\xa5\x2d\x00\x00\x00", "a document of Word 1 or 2; save it as DOCX"),
])  # fmt: skip
def test_a_file_from_before_containers_is_named(raw: bytes, error: str) -> None:
    with pytest.raises(UnsupportedFormat, match=error):
        read(raw + bytes(600), "a.xls")


@pytest.mark.parametrize("stream", ["WordDocument", "PowerPoint Document"])
def test_a_container_whose_directory_is_damaged_is_reported_as_such(stream: str) -> None:
    with pytest.raises(ParseFailed, match=rf"^a\.doc is damaged: its {stream} cannot be found"):
        read(container(stream), "a.doc")


def test_an_encrypted_office_file_is_reported_as_such() -> None:
    with pytest.raises(
        ParseFailed, match=r"^a\.docx is encrypted; save a copy without its password"
    ):
        read(container("EncryptionInfo", "EncryptedPackage"), "a.docx")


def test_a_sheet_of_values_alone_has_no_header() -> None:
    assert sheet_of([14.23, 1.71], [13.2, 1.78]).endswith(
        "|  |  |\n| --- | --- |\n| 14.23 | 1.71 |\n| 13.2 | 1.78 |\n"
    )
    assert "| 2019 | 2020 |\n| --- |" in sheet_of([2019, 2020], [13.2, 1.78])
