"""What it costs to move in, with embeddings kept and without: `python -m benchmarks imports`.

The source is a table of a SQLite database, with short texts from files on this machine. It is
imported without embeddings, which are made anew by the model; then with these embeddings in it, and
once more, when everything is known.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from benchmarks import report, texts
from benchmarks.embeddings import installed
from benchmarks.store import say
from mcpvectordb import Database, Embedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Remembered:
    """An embedder that remembers the embedding of each text."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.name, self.dimension = embedder.name, embedder.dimension
        self.made: dict[str, bytes] = {}

    def embed(self, passages: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """The embeddings of the wrapped embedder."""
        rows = self._embedder.embed(passages, query=query)
        self.made.update(
            (passage, row.astype("<f4").tobytes())
            for passage, row in zip(passages, rows, strict=True)
        )
        return rows


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="imports-") as temporary:
        rows = measure(Path(temporary), options.items, options.characters, Remembered(installed()))
    report.show(rows, as_json=options.json)


def measure(folder: Path, items: int, characters: int, embedder: Remembered) -> list[report.Row]:
    """The figures of three imports of the same texts."""
    bodies = [passage[:characters] for passage in texts.passages(items)]
    source = folder / "embeddings.db"
    plant(source, bodies)
    rows = [timed("without embeddings: embedded anew", folder / "anew.db", source, embedder)]
    add_embeddings(source, bodies, embedder.made)
    kept = folder / "kept.db"
    rows.append(timed("with embeddings: kept", kept, source, embedder))
    rows.append(timed("again: everything known", kept, source, embedder))
    return rows


def timed(what: str, path: Path, source: Path, embedder: Embedder) -> report.Row:
    """The figures of one import into a file."""
    say(what)
    with Database(path, embedder=embedder) as db:
        began = time.process_time()
        done = db.import_from(source, table="embeddings")
        seconds = time.process_time() - began
    items = done.added.get("documents", 0) + done.known.get("documents", 0)
    return {
        "import": what,
        "items": items,
        "CPU s": seconds,
        "items/CPU s": items / seconds,
        "kept": done.embeddings.get("kept", 0),
        "embedded": done.embedded.chunks,
    }


def plant(path: Path, bodies: Sequence[str]) -> None:
    """Write a table with texts and no embeddings."""
    sql = apsw.Connection(str(path))
    sql.execute("CREATE TABLE embeddings (id TEXT PRIMARY KEY, embedding BLOB, content TEXT)")
    with sql:
        sql.executemany(
            "INSERT INTO embeddings VALUES (?, NULL, ?)",
            ((f"n{number}", body) for number, body in enumerate(bodies)),
        )
    sql.close()


def add_embeddings(path: Path, bodies: Sequence[str], made: dict[str, bytes]) -> None:
    """Give each text the embedding that was made of it, with its title in front."""
    by_text = {text.partition("\n")[2].strip(): values for text, values in made.items()}
    sql = apsw.Connection(str(path))
    with sql:
        sql.executemany(
            "UPDATE embeddings SET embedding = ? WHERE id = ?",
            ((by_text.get(body.strip()), f"n{number}") for number, body in enumerate(bodies)),
        )
    sql.close()


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks imports", description=__doc__)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--characters", type=int, default=120, help="of each text, at most")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)
