from __future__ import annotations

from io import BytesIO

import pytest
import xlwt

from mcpvectordb.errors import ParseFailed, UnsupportedFormat
from tests.support_formats import read


def workbook() -> bytes:
    book = xlwt.Workbook()
    sheet = book.add_sheet("Fruit")
    for at, row in enumerate([["Sort", "Price"], ["Boskoop", 1.2]]):
        for across, cell in enumerate(row):
            sheet.write(at, across, cell)
    out = BytesIO()
    book.save(out)
    return out.getvalue()


def container(*streams: str) -> bytes:
    """A container of the binary Office formats with streams of these names."""
    directory = b"".join(name.encode("utf-16-le").ljust(128, b"\0") for name in streams)
    return b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + directory


def test_an_old_workbook_is_read() -> None:
    parsed = read(workbook(), "old.xls")
    assert parsed.text == "# Fruit\n\n| Sort | Price |\n| --- | --- |\n| Boskoop | 1.2 |\n"
    assert parsed.title == "old.xls"


@pytest.mark.parametrize(
    ("stream", "name", "message"),
    [
        ("WordDocument", "a.doc", "the old binary format of Word; save it as DOCX and add that"),
        (
            "PowerPoint Document",
            "a.ppt",
            "the old binary format of PowerPoint; save it as PPTX and add that",
        ),
    ],
)
def test_other_binary_office_formats_are_named_with_the_format_to_save_as(
    stream: str, name: str, message: str
) -> None:
    with pytest.raises(UnsupportedFormat, match=rf"^Unsupported format of {name}: {message}$"):
        read(container(stream), name)


def test_an_encrypted_office_file_is_reported_as_such() -> None:
    with pytest.raises(
        ParseFailed, match=r"^a\.docx is encrypted; save a copy without its password"
    ):
        read(container("EncryptionInfo", "EncryptedPackage"), "a.docx")


@pytest.mark.parametrize("kept", [100, 2000])
def test_a_truncated_workbook_fails_clearly(kept: int) -> None:
    with pytest.raises(ParseFailed, match=r"^a\.xls cannot be read as a workbook"):
        read(workbook()[:kept], "a.xls")
