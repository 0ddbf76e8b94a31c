"""What it costs that machines meet by themselves: CPU and bytes of exchanges through a folder."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mcpvectordb import Database, Exchanged
from mcpvectordb.memories.memory import Entry

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("na", "ro", "ti", "l", "")]


class Noise:
    """Embeddings of 384 numbers that no compression makes smaller, and that cost nothing."""

    name = "noise"
    dimension = 384

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """One row for each text."""
        rng = np.random.default_rng(zlib.crc32("".join(texts).encode()))
        return rng.standard_normal((len(texts), self.dimension), np.float32)


def main(arguments: list[str]) -> None:
    """Fill a file, and let two others meet it through a folder."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks remotes", description=__doc__)
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--documents", type=int, default=1_000)
    parser.add_argument("--encrypted", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_DATA_HOME"] = str(Path(folder) / "data")
        measure(Path(folder), options)


def measure(folder: Path, options: argparse.Namespace) -> None:
    """Print a line for each exchange."""
    rng = np.random.default_rng(7)
    shared = folder / "shared"
    shared.mkdir()
    passphrase = "correct horse" if options.encrypted else ""
    dbs = [Database(folder / f"{name}.db", embedder=Noise()) for name in "abc"]
    for db in dbs:
        db.remotes.add("r", shared, encrypted=options.encrypted, passphrase=passphrase)
    first, second, third = dbs

    def text(words: int) -> str:
        return " ".join(rng.choice(WORDS, words))

    def sync(what: str, db: Database) -> Exchanged:
        start = time.process_time()
        [done] = db.remotes.sync(passphrase=passphrase)
        seconds = time.process_time() - start
        there = [each.stat().st_size / 1e6 for each in shared.iterdir()]
        print(
            f"| {what} | {seconds:.2f} | {done.bytes / 1e6:.2f} | {done.items:,} "
            f"| {done.received} | {done.embedded:,} | {len(there)} | {sum(there):.2f} |"
        )
        return done

    start, written = time.process_time(), 0
    for batch in batches(options.memories, 500):
        entries = [
            Entry(thread=f"thread {number % 50}", source="user", text=text(40)) for number in batch
        ]
        written += sum(len(each.text) for each in entries)
        first.memories.add_many(entries)
    for number in range(options.documents):
        said = "\n\n".join(f"# {text(3)}\n\n{text(150)}" for _ in range(4))
        written += len(said)
        first.documents.ingest_text(said, source=f"{number}.md")
    filled = time.process_time() - start
    passages = first.stats().chunks + options.memories
    print(
        f"{written / 1e6:.1f} MB of text, {passages:,} passages, {passages * 1536 / 1e6:.1f} MB of "
        f"embeddings, file {first.stats().bytes / 1e6:.1f} MB; filling took {filled:.1f} s\n"
    )
    print(
        "| exchange | CPU s | MB sent | versions sent | received | embeddings kept | bundles | MB |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    sync("first machine, all", first)
    sync("second, empty", second)
    sync("first, nothing new", first)
    second.memories.add("t", "user", text(40))
    sync("second, one memory", second)
    sync("first, takes it", first)
    for memory in first.memories.browse(limit=100).items:
        first.memories.update(memory.id, text=text(40))
    first.memories.delete([each.id for each in second.memories.browse(limit=200).items[100:]])
    sync("first, 100 changes and 100 deletions", first)
    sync("second, takes them", second)
    sync("third, empty", third)
    for db in dbs:  # each has a memory that the others have not
        db.memories.add("t", "agent", text(40))
    rounds = 0
    while True:
        rounds += 1
        done = [db.remotes.sync(passphrase=passphrase)[0] for db in dbs]
        if not any(each.received or each.sent for each in done):
            break
    print(f"\nThree machines that had each changed something: at rest after {rounds - 1} rounds.")
    start = time.process_time()
    first.forget(f"memory:{first.memories.browse(limit=1).items[0].id}")
    print(f"Forgetting one memory: {time.process_time() - start:.2f} s of CPU, then:\n")
    sync("first, forgotten", first)
    sync("second, forgets", second)
    for db in dbs:
        db.close()


def batches(count: int, size: int) -> Iterator[range]:
    """Ranges that together are `range(count)`."""
    for start in range(0, count, size):
        yield range(start, min(count, start + size))
