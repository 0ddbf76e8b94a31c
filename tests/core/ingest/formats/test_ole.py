from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats.ole import _pieces
from tests.support_formats import ole, page, read

FIXTURES = Path(__file__).parents[3] / "fixtures"


def fixture(name: str) -> bytes:
    return gzip.decompress((FIXTURES / f"{name}.gz").read_bytes())


def test_paragraphs_and_rows_of_a_document_are_read_with_title_and_author() -> None:
    parsed = read(fixture("fruit.doc"), "fruit.doc")
    assert parsed.title == "Fruit of the year" and parsed.metadata["author"] == "Ann Author"
    assert [line.strip(" |") for line in parsed.text.splitlines() if line] == [
        *("Apples", "Apples are red – mostly, says Äpfel & Co.", "crisp", "Sort | Price"),
        *("Boskoop | 1.20", "日本のりんご come later."),
    ]


def test_the_pieces_of_a_text_are_found_behind_property_modifiers() -> None:
    """Each modifier is a 1 with its length; the table is a 2, its length, bounds and descriptors."""
    main = b"one two " + "drei".encode("utf-16-le")
    modifiers = b"\x01\x03\x00abc" + b"\x01\x00\x00"
    places = [
        2 * 0 | 0x40000000,
        2 * 4 | 0x40000000,
        8,
    ]  # of two compressed pieces and one in UTF-16
    pieces = struct.pack("<4I", 0, 4, 8, 12)
    pieces += b"".join(struct.pack("<HIH", 0, place, 0) for place in places)
    table = modifiers + b"\x02" + struct.pack("<I", len(pieces)) + pieces + b"what follows"
    assert list(_pieces(main, table)) == ["one ", "two ", "drei"]


def test_an_encrypted_document_is_reported_as_such() -> None:
    raw = bytearray(fixture("fruit.doc"))
    raw[raw.index(b"\xec\xa5") + 11] |= 0x01  # a flag at the start of the main stream
    with pytest.raises(ParseFailed, match=r"^a\.doc is encrypted; save a copy"):
        read(bytes(raw), "a.doc")


def test_slides_are_pages_with_title_text_and_notes() -> None:
    parsed = read(fixture("fruit.ppt"), "fruit.ppt")
    assert [page(parsed, number) for number in (1, 2)] == [
        "# Apples\n\nred\ncrisp – Äpfel\n\nNotes: Show the apple now.",
        "# Pears\n\n日本の梨 are green",
    ]
    assert parsed.title == "Fruit talk" and parsed.metadata["slides"] == 2


@pytest.mark.parametrize(("language", "charset", "quick"), [
    (0x0407, "cp1252", False), (0x0419, "cp1251", False), (0x0407, "cp1252", True),
])  # fmt: skip
def test_a_document_of_word_95_is_read_in_the_charset_of_its_language(
    language: int, charset: str, quick: bool
) -> None:
    words = {"cp1252": "Größe der Äpfel", "cp1251": "Зелёные яблоки"}[charset].encode(charset)
    main = bytearray(1000) + words
    struct.pack_into("<HHHH", main, 0, 0xA5DC, 0x68, 0, language)
    struct.pack_into("<H", main, 0x0A, 0x0004 if quick else 0)
    struct.pack_into("<II", main, 0x18, 1000, 0 if quick else 1000 + len(words))
    pieces = struct.pack("<IIHIH", 0, len(words), 0, 1000, 0)
    struct.pack_into("<II", main, 0x160, len(main), 5 + len(pieces))
    main += b"\x02" + struct.pack("<I", len(pieces)) + pieces
    text = read(ole({"WordDocument": bytes(main)}), "a.doc").text
    assert text == words.decode(charset) + "\n"
