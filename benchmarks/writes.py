"""How long it takes to store texts without embedding them: `python -m benchmarks writes`.

One long text, and many short ones (of some sixty words, below a heading): given at once, as files
of a folder, and one by one, each in a transaction of its own. Parsed, cut, found by words and on
the disk; a model would come after that. The texts are made, the same ones every time.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import report
from benchmarks.store import say
from mcpvectordb import Database

LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
LONG, SHORT = 20_000_000, 10_000  # characters of the long text, and how many short ones
TARGETS = {"one long text": 11.9, "short texts, at once": 7.3}  # CPU seconds, a third of before


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    long, short = texts(options.characters, options.texts)
    with tempfile.TemporaryDirectory(prefix="writes-") as temporary:
        folder = Path(temporary)
        rows = [
            measured(what, work, folder / f"{number}.db")
            for number, (what, work) in enumerate(works(long, short, folder / "files").items())
        ]
    full = (options.characters, options.texts) == (LONG, SHORT)
    report.show(rows, [summary(row) for row in rows[:2]] if full else (), as_json=options.json)


def texts(characters: int, count: int) -> tuple[str, list[str]]:
    """A long text of so many characters, and so many short ones."""
    rng = random.Random(1)
    words = ["".join(rng.choices(LETTERS, k=rng.randint(2, 10))) for _ in range(5_000)]

    def paragraphs(length: int) -> Iterator[str]:
        while True:
            yield " ".join(rng.choices(words, k=length)).capitalize() + "."

    short = [f"# Note {n}\n\n{text}" for n, text in zip(range(count), paragraphs(60), strict=False)]
    parts: list[str] = []
    size = 0
    for paragraph in paragraphs(80):
        parts.append(paragraph)
        size += len(paragraph) + 2
        if size >= characters:
            return "\n\n".join(parts)[:characters], short
    raise AssertionError("there is no end of paragraphs")


def works(long: str, short: list[str], folder: Path) -> dict[str, Callable[[Database], object]]:
    """What is measured, by name; each gets a database of its own. The folder gets the files."""
    names = [f"{number}.md" for number in range(len(short))]
    folder.mkdir()
    for name, text in zip(names, short, strict=True):
        (folder / name).write_text(text, encoding="utf-8")

    def one_by_one(db: Database) -> None:
        for name, text in zip(names, short, strict=True):
            db.documents.ingest_text(text, source=name, embed=False)

    return {
        "one long text": lambda db: db.documents.ingest_text(long, source="l.md", embed=False),
        "short texts, at once": lambda db: db.documents.ingest_many(
            short, sources=names, embed=False
        ),
        "short texts, as files": lambda db: db.documents.ingest_folder(folder, embed=False),
        "short texts, one by one": one_by_one,
    }


def measured(what: str, work: Callable[[Database], object], path: Path) -> report.Row:
    """The figures of one way to store texts in a new file; the tokenizer is loaded before."""
    say(what)
    with Database(path) as db:
        db.documents.ingest_text("warm", source="warm.md", embed=False)
        cpu, wall = time.process_time(), time.perf_counter()
        work(db)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        stats = db.stats()
    return {
        "what": what,
        "documents": stats.documents - 1,
        "chunks": stats.chunks - 1,
        "s": wall,
        "CPU s": cpu,
        "CPU ms/document": 1000 * cpu / (stats.documents - 1),
    }


def summary(row: report.Row) -> str:
    """The verdict in words."""
    what, cpu = row["what"], row["CPU s"]
    return f"{what}: {cpu:.1f} CPU s, {report.verdict(cpu, TARGETS[what])}."


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks writes", description=__doc__)
    parser.add_argument(
        "--characters", type=int, default=LONG, metavar="N", help=f"of the long text [{LONG}]"
    )
    parser.add_argument("--texts", type=int, default=SHORT, metavar="N", help=f"short [{SHORT}]")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args(arguments)
