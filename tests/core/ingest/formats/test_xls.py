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


def test_a_message_of_outlook_is_named_with_the_format_to_save_as() -> None:
    with pytest.raises(
        UnsupportedFormat,
        match=r"^Unsupported format of a\.msg: a message of Outlook; save it as EML",
    ):
        read(container("__properties_version1.0"), "a.msg")


@pytest.mark.parametrize("stream", ["WordDocument", "PowerPoint Document"])
def test_a_container_whose_directory_is_damaged_is_reported_as_such(stream: str) -> None:
    with pytest.raises(ParseFailed, match=rf"^a\.doc is damaged: its {stream} cannot be found"):
        read(container(stream), "a.doc")


def test_an_encrypted_office_file_is_reported_as_such() -> None:
    with pytest.raises(
        ParseFailed, match=r"^a\.docx is encrypted; save a copy without its password"
    ):
        read(container("EncryptionInfo", "EncryptedPackage"), "a.docx")


@pytest.mark.parametrize("kept", [100, 2000])
def test_a_truncated_workbook_fails_clearly(kept: int) -> None:
    with pytest.raises(ParseFailed, match=r"^a\.xls cannot be read as a workbook"):
        read(workbook()[:kept], "a.xls")
