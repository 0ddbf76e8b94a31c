"""The file that goldens are about: a little of everything, the same in every run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mcpvectordb import Database

_SAME = {
    "certificate": "key", "change": "rotate", "rotated": "rotate", "keys": "key", "beverage": "tea",
    "drink": "tea", "hot": "warm", "temperature": "degrees", "machine": "pump", "broken": "fail",
    "fails": "fail", "money": "budget", "costs": "budget", "gathering": "meeting",
}  # fmt: skip

NOTES = {
    "notes/keys.md": "# Keys\n\nThe signing key is rotated every ninety days.\n\n## Lost keys\n\n"
    "A lost key is revoked within the hour, and the incident gets the number E-4021.\n",
    "notes/tea.md": "---\ntags: [drinks]\n---\n# Tea\n\nGreen tea wants water of 80 degrees.\n\n"
    "| tea | degrees |\n|---|--:|\n| green | 80 |\n| black | 95 |\n",
    "notes/pump.md": "# Pump\n\nThe pump P-200 fails when the inlet is warm.\n\n```sh\n"
    "pumpctl --reset P-200\n```\n",
    "notes/2025/plan.md": "# Plan\n\nThe budget of the greenhouse is 1,200 euros.\n\n- seeds\n"
    "- a warm lamp\n",
    "notes/2026/plan.md": "# Plan\n\nThe budget of the greenhouse is 1,450 euros.\n\n- seeds\n"
    "- two lamps\n",
    "code/brew.py": 'def brewTea(water):\n    """Brew tea."""\n    return heat_water(water, 80)\n',
    "code/readme.txt": "A small program that brews tea.\n\nRun it with python brew.py.\n",
}
CHINESE = "# 绿茶\n\n绿茶用八十度的水冲泡。\n"


class Words:
    """An embedder that needs no model: each word, or another that means the same, has a vector."""

    name = "words"
    dimension = 48

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        rows = np.full((len(texts), self.dimension), 0.01, np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"\w+", text.casefold()):
                known = _SAME.get(word, word).encode()
                digest = hashlib.blake2b(known, digest_size=self.dimension).digest()
                row += (np.frombuffer(digest, np.uint8).astype(np.float32) - 127.5) / 255
        return rows


def build(db: Database, folder: Path) -> None:
    """Fill an empty database."""
    for name, text in NOTES.items():
        library, _, source = name.partition("/")
        year = {"metadata": {"year": int(source[:4])}} if source[:2] == "20" else {}
        db.documents.ingest_text(text, source=source, library=library, **year)
    db.documents.ingest_text(CHINESE, source="绿茶.md", library="notes", title="绿茶")
    file = folder / "letter.txt"
    file.write_text("Dear Ana,\n\nthe meeting about the pump is on Friday.\n")
    db.documents.ingest(file, library="letters", metadata={"owner": "Ana", "pages": 1})
    db.memories.add(
        "kitchen", "user", "Ana drinks green tea, never coffee.", tags=["people", "drinks"]
    )
    db.memories.add("kitchen", "agent", "The kettle is descaled on the first Monday.")
    db.memories.add(
        "garden", "agent", "We decided to plant tomatoes in May.", tags=["decision"],
        metadata={"priority": 3, "done": False},
    )  # fmt: skip
    db.vectors.add("one", [1.0, 0.0, 0.0], metadata={"kind": "axis"})
    db.vectors.add("two", [0.6, 0.8, 0.0])
    db.vectors.add("far", [0.0, 0.0, 1.0], store="other", namespace="n1")
