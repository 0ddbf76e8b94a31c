from __future__ import annotations

import gzip
import random
from contextlib import suppress
from pathlib import Path

import pytest

from mcpvectordb.errors import IngestError, ParseFailed
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


def test_a_document_is_recognised_under_any_name() -> None:
    assert "come later" in read(document(), "a.xls").text


def test_an_encrypted_document_is_reported_as_such() -> None:
    raw = bytearray(document())
    at = raw.index(b"\xec\xa5")  # the start of the main stream
    raw[at + 11] |= 0x01
    with pytest.raises(ParseFailed, match=r"^a\.doc is encrypted; save a copy"):
        read(bytes(raw), "a.doc")


@pytest.mark.parametrize("kept", [100, 600, 3000, 9000, 15000])
def test_a_truncated_document_gives_text_or_a_clear_error(kept: int) -> None:
    try:
        read(document()[:kept], "a.doc")
    except IngestError as error:
        assert "a.doc" in str(error)


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_document_gives_text_or_a_clear_error(seed: int) -> None:
    rng, raw = random.Random(seed), bytearray(document())
    for _ in range(20):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    with suppress(IngestError):
        read(bytes(raw), "a.doc")
