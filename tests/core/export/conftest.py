from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mcpvectordb import Database, Image
from tests.support import Letters

PNG = bytes.fromhex(  # one pixel
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c02"
    "0000000b4944415478da6364f80f00010501012718e3660000000049454e44ae426082"
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """A file with something on every shelf."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "tea.md").write_text("---\nyear: 2024\n---\n# Tea\n\nWater at 80 degrees.\n")
    with Database(tmp_path / "notes.db", embedder=Letters()) as db:
        db.documents.add_library("notes", notes, description="What I drink")
        db.documents.sync()
        db.documents.ingest_text("print('a')\n", source="tools/a.py", library="code")
        db.documents.ingest_text(
            "=1+1, says the sheet", source="https://example.org/a?b", metadata={"tags": ["x", "y"]}
        )
        db.memories.add(
            "plans",
            "user",
            "Rotate the signing keys in May.",
            tags=["keys"],
            metadata={"status": "open"},
            images=[Image(data=PNG, mime_type="image/png")],
        )
        db.memories.add("plans", "agent", "Done: keys rotated.")
        db.vectors.add("v1", np.array([1, 2, 3], np.float32), metadata={"colour": "red"})
        db.vectors.add("v2", [0.1, 0.2], store="exact", namespace="n", metric="dot")
        yield db
