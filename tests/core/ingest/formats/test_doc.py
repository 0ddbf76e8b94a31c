from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from mcpvectordb.errors import ParseFailed
from tests.support_formats import read

FIXTURE = Path(__file__).parents[3] / "fixtures" / "fruit.doc.gz"


def document() -> bytes:
    return gzip.decompress(FIXTURE.read_bytes())


def test_paragraphs_and_rows_are_read_with_title_and_author() -> None:
    parsed = read(document(), "fruit.doc")
    assert parsed.title == "Fruit of the year" and parsed.metadata["author"] == "Ann Author"
    lines = [line.strip(" |") for line in parsed.text.splitlines() if line]
    assert lines == [
        "Apples",
        "Apples are red – mostly, says Äpfel & Co.",
        "crisp",
        "Sort | Price",
        "Boskoop | 1.20",
        "日本のりんご come later.",
    ]


def test_an_encrypted_document_is_reported_as_such() -> None:
    raw = bytearray(document())
    at = raw.index(b"\xec\xa5")  # the start of the main stream
    raw[at + 11] |= 0x01
    with pytest.raises(ParseFailed, match=r"^a\.doc is encrypted; save a copy"):
        read(bytes(raw), "a.doc")
