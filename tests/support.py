"""What several tests need: small, real, and without a model where the model is not what is
tested.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import settings
from numpy.typing import NDArray

from mcpvectordb.errors import EmbeddingFailed

if TYPE_CHECKING:
    from mcpvectordb import Chunk, Database, Results
    from mcpvectordb.index.resident import ResidentEntries

ROOT = Path(__file__).resolve().parent.parent


def scaled(examples: int) -> int:
    """So many examples with --full, and a fifth of them otherwise."""
    return max(3, examples * settings.default.max_examples // 100)


class Letters:
    """An embedder of the kind a user writes: how often each letter occurs. Texts alike in letters
    are near.
    """

    name = "letters"
    dimension = 32

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        rows = np.full((len(texts), self.dimension), 0.01, np.float32)
        for row, text in zip(rows, texts, strict=True):
            for character in text.casefold():
                row[ord(character) % self.dimension] += 1
        return rows


class Gated(Letters):
    """Embeds passages while its gate is open, and unless it is broken; remembers them."""

    def __init__(self) -> None:
        self.gate, self.seen, self.broken = threading.Event(), list[str](), False

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        if not query:
            assert self.gate.wait(60)
            if self.broken:
                raise EmbeddingFailed("the model is out of order")
            self.seen += texts
        return super().embed(texts, query=query)


def embed_in_the_background(db: Database) -> str:
    """Wait until nothing is pending any more; the error if embedding fails."""
    background = db._encoder.background
    assert background is not None
    return background.wait_until(
        lambda: not db.stats().pending, background.ask(), time.monotonic() + 60
    )


def kept_keys(memory: ResidentEntries, index: str) -> list[Any]:
    """The keys of what is kept in memory of an index, least recently used first."""
    return [key for name, key in memory._entries if name == index]


def python(program: str, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a program text in a fresh interpreter, from the root of the repository."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def search_documents(db: Database, query: str, **options: Any) -> Results[Chunk]:
    """Search for whole documents with every step that the options do not turn off."""
    every_step = {"limit": 10, "fusion": "rrf", "expand": True, "rerank": True}
    return db.documents.search(query, unit="document", **{**every_step, **options})


def leave_a_foreign_log(path: Path) -> None:
    """Put a backup of a file in its place, beside the log that was written after the backup."""
    from mcpvectordb import Database

    backup, log = path.with_name("backup.db"), Path(f"{path}-wal")
    with Database(path, embedder=Letters()) as db:
        db.copy_to(backup)
        db.documents.ingest_text("written after the backup", source="late.md")
        kept = log.read_bytes()
    backup.replace(path)
    log.write_bytes(kept)
