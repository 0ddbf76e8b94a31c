from __future__ import annotations

import gzip
import random
from contextlib import suppress
from pathlib import Path

import pytest

from mcpvectordb.errors import IngestError
from tests.support_formats import page, read

FIXTURE = Path(__file__).parents[3] / "fixtures" / "fruit.ppt.gz"


def presentation() -> bytes:
    return gzip.decompress(FIXTURE.read_bytes())


def test_slides_are_pages_with_title_text_and_notes() -> None:
    parsed = read(presentation(), "fruit.ppt")
    assert [page(parsed, number) for number in (1, 2)] == [
        "# Apples\n\nred\ncrisp – Äpfel\n\nNotes: Show the apple now.",
        "# Pears\n\n日本の梨 are green",
    ]
    assert parsed.title == "Fruit talk" and parsed.metadata["slides"] == 2


@pytest.mark.parametrize("kept", [100, 600, 3000, 9000, 300_000])
def test_a_truncated_presentation_gives_text_or_a_clear_error(kept: int) -> None:
    try:
        read(presentation()[:kept], "a.ppt")
    except IngestError as error:
        assert "a.ppt" in str(error)


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_presentation_gives_text_or_a_clear_error(seed: int) -> None:
    rng, raw = random.Random(seed), bytearray(presentation())
    for _ in range(200):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    with suppress(IngestError):
        read(bytes(raw), "a.ppt")
