"""Database files for benchmarks, made once for the same data, settings and library code."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import mcpvectordb
from benchmarks.collection import Entry, digest
from mcpvectordb import Config, Database, Progress


@dataclass(frozen=True, slots=True)
class Filled:
    """A database file with a corpus in it, and how it was filled."""

    path: Path
    documents: int
    chunks: int
    bytes: int
    seconds: float
    model: str


def filled(folder: Path, data: str, corpus: Iterable[Entry], config: Config) -> Filled:
    """The file in `folder` with a corpus (`data` is its digest), made if it does not exist."""
    key = hashlib.sha256("\0".join([data, repr(config), _library()]).encode()).hexdigest()[:24]
    path, notes = folder / f"{key}.db", folder / f"{key}.json"
    if not notes.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{key}.db*"):  # of a run that was ended
            old.unlink()
        made = asdict(_fill(path, corpus, config))
        notes.write_text(json.dumps({**made, "path": str(path)}))
    return Filled(**{**json.loads(notes.read_text()), "path": path})


def say(text: str) -> None:
    """Progress, on stderr; on a terminal it stays on one line."""
    end = "\r" if sys.stderr.isatty() else "\n"
    print(f"{text:<70}", end=end, file=sys.stderr, flush=True)


def _library() -> str:
    """What the library is made of: other code may index otherwise."""
    folder = Path(mcpvectordb.__file__).parent
    return digest(
        sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".sql", ".txt"))
    )


def _fill(path: Path, corpus: Iterable[Entry], config: Config) -> Filled:
    begin = time.perf_counter()
    with Database(path, config=config) as db:
        for entry in corpus:
            ingest_entry(db, entry)
        db.embed_pending(progress=_Report())
        seconds = time.perf_counter() - begin
        stats = db.stats()
    return Filled(
        path, stats.documents, stats.chunks, path.stat().st_size, round(seconds, 2), stats.model
    )


def ingest_entry(db: Database, entry: Entry) -> None:
    """Ingest entries as a user would; an entry without text has its title as its text."""
    text = entry.text if entry.text.strip() else entry.title
    if text.strip():
        db.documents.ingest_text(
            text, source=entry.id, title=entry.title.strip() or None, embed=False
        )


class _Report:
    """Says how far the embedding is, every ten seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() - self._last > 10 or progress.done == progress.total:
            self._last = time.monotonic()
            say(f"embedded {progress.done:,} of {progress.total:,} chunks")
