"""How large a file is, of what is in it: `python -m benchmarks filesize --rival chroma`.

Documents are files of Python sources and texts on this machine, counted as their text and a float32
vector for each chunk; the vectors shelf has clustered vectors, counted as float32. Both are
measured fresh, after all content has been replaced ten times, and after `compact`. Of rivals the
fresh vectors are measured.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks import embeddings, report, rivals, texts
from benchmarks.memories import Sums
from benchmarks.rivals import OURS, Plan
from benchmarks.store import say
from mcpvectordb import Database

FRESH_TARGET, COMPACT_TARGET = 1.5, 1.3
DIMENSION = Sums.dimension
REWRITES = 10


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    names = rivals.chosen(options.rival, "nearest", "store vectors")
    with tempfile.TemporaryDirectory(prefix="filesize-") as temporary:
        folder, cache = Path(temporary), options.cache or Path(temporary) / "cache"
        rows = [
            documents(folder / "documents.db", options.characters),
            vectors(folder / "vectors.db", options.rows),
        ]
        rivals.write(folder, rows=embeddings.clustered(options.rows, DIMENSION, 1)[0])
        runs = rivals.measured(folder, cache, dict.fromkeys(names, Plan(("add_vectors",))), 1)
    rows += [
        line(
            f"vectors in {name} {each.version}", 4 * DIMENSION * options.rows, each.filled["bytes"]
        )
        for name, each in runs.items()
    ]
    report.show(rows, [summary(row) for row in rows[:2]], as_json=options.json)


def documents(path: Path, characters: int) -> report.Row:
    """The documents shelf; in a rewrite every document gets the text of the next."""
    files = texts.files(characters)
    names, bodies = list(files), list(files.values())
    embedder, sizes = Sums(), []
    for number in range(REWRITES + 1):
        say(f"documents: writing {number + 1} of {REWRITES + 1}")
        with Database(path, embedder=embedder) as db:
            for place, name in enumerate(names):
                db.documents.ingest_text(
                    bodies[(place + number) % len(bodies)], source=name, embed=False
                )
            db.embed_pending()
            stats = db.stats()
        sizes.append(path.stat().st_size)
    assert (stats.documents, stats.pending) == (len(files), 0)
    raw = sum(len(text.encode()) for text in bodies) + 4 * DIMENSION * stats.chunks
    return line(
        f"{OURS}: {stats.documents:,} documents, {stats.chunks:,} chunks",
        raw,
        sizes[0],
        sizes[-1],
        compacted(path),
    )


def vectors(path: Path, rows: int) -> report.Row:
    """The vectors shelf; in a rewrite every id gets another vector."""
    data, _ = embeddings.clustered(rows, DIMENSION, 1)
    ids, sizes = [str(number) for number in range(rows)], []
    for number in range(REWRITES + 1):
        say(f"vectors: writing {number + 1} of {REWRITES + 1}")
        with Database(path) as db:
            db.vectors.add_many(ids, data[[(place + number) % rows for place in range(rows)]])
            assert db.vectors.count() == rows
        sizes.append(path.stat().st_size)
    return line(f"{OURS}: {rows:,} vectors", data.nbytes, sizes[0], sizes[-1], compacted(path))


def compacted(path: Path) -> int:
    """The bytes of a file after `compact`."""
    with Database(path, embedder=Sums()) as db:
        db.compact()
    return path.stat().st_size


def line(
    what: str, raw: int, fresh: int, rewritten: int | None = None, compacted: int | None = None
) -> report.Row:
    """The sizes of one file in MB and in proportion."""

    def megabytes(bytes: int | None) -> float | None:
        return None if bytes is None else bytes / 1e6

    return {
        "what": what,
        "content MB": megabytes(raw),
        "fresh MB": megabytes(fresh),
        "fresh / content": fresh / raw,
        "rewritten MB": megabytes(rewritten),
        "compacted MB": megabytes(compacted),
        "compacted / fresh": None if compacted is None else compacted / fresh,
    }


def summary(row: report.Row) -> str:
    """The verdicts in words."""
    return (
        f"{row['what']}: fresh {row['fresh / content']:.2f} times the content, "
        f"{report.verdict(row['fresh / content'], FRESH_TARGET)}; after {REWRITES} rewrites and "
        f"compact {row['compacted / fresh']:.2f} times that, "
        f"{report.verdict(row['compacted / fresh'], COMPACT_TARGET)}."
    )


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks filesize", description=__doc__)
    parser.add_argument(
        "--characters",
        type=int,
        default=2_000_000,
        metavar="N",
        help="about how much text [2000000]",
    )
    parser.add_argument("--rows", type=int, default=20_000, metavar="N", help="vectors [20000]")
    rivals.add_options(parser, rounds=1)
    return parser.parse_args(arguments)
