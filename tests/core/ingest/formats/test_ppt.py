from __future__ import annotations

import gzip
from pathlib import Path

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
