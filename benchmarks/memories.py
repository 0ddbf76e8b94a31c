"""What a memory costs as it grows: `python -m benchmarks memories`.

Entries of a few dozen words are stored, as many as asked for, and the same texts as documents in a
file beside them: half of them in one large thread (a library), the others in a hundred. Timed are,
at each size, browsing by a metadata key that is indexed (and, to compare, by one that is not), and
every usual form of a search, of entries beside documents in turn. The embedder is made of random
numbers, because it is not what is measured: each word has a vector of its own, and a text is the
sum of its words.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import report
from benchmarks.store import say
from mcpvectordb import Change, Config, Database, Entry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WORDS = 20_000
WORDS_PER_TEXT = 30
PER_VALUE = 20  # entries that share a value of a key, however many there are in all
THREADS = 100  # in which a user and an agent take turns, beside a large one
LARGE, SMALL = "large", "thread 7"
BATCH = 1_000
ENDED = 100  # one of so many entries ends before the last searches
# times that browsing by an indexed key may take in the largest file, of what it takes in the
# smallest
GROWTH_TARGET = 1.5
SEARCH_TARGET = 1.3  # times that a search of entries may take, of what one of documents takes


class Sums:
    """An embedder without a model: the sum of vectors that stand for words."""

    name = "sums"
    dimension = 384

    def __init__(self) -> None:
        self._known: dict[str, NDArray[np.float32]] = {}

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """One row for each text."""
        import numpy as np

        return np.stack(
            [np.sum([self._vector(word) for word in text.split()], axis=0) for text in texts]
        ).astype(np.float32)

    def _vector(self, word: str) -> NDArray[np.float32]:
        import numpy as np

        if word not in self._known:
            self._known[word] = (
                np.random.default_rng(list(word.encode()))
                .standard_normal(self.dimension)
                .astype(np.float32)
            )
        return self._known[word]


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    rows: list[report.Row] = []
    for size in options.sizes:
        with tempfile.TemporaryDirectory(prefix="contexts-", dir=options.folder) as temporary:
            rows += measure(Path(temporary), size, options.rounds)
    searches = [row for row in rows if row["documents"] is not None]
    browsing = [row["entries"] for row in rows if row["what"] == INDEXED]
    worst, growth = max(row["ratio"] for row in searches), browsing[-1] / browsing[0]
    notes = [
        "Medians of the processor's time, in milliseconds.",
        f"A search of entries takes up to {worst:.2f} times as long as one of documents, "
        f"{report.verdict(worst, SEARCH_TARGET)}.",
        f"Browsing by an indexed key takes {growth:.2f} times as long in the largest file as in "
        f"the smallest, {report.verdict(growth, GROWTH_TARGET)}.",
    ]
    report.show(rows, notes, as_json=options.json)


INDEXED = "browsing by an indexed key"


def measure(folder: Path, size: int, rounds: int) -> list[report.Row]:
    """Fill two files with the same texts and time the same questions to both, in turn."""
    embedder, config = Sums(), Config(indexed_metadata="project")
    queries = [" ".join(text.split()[:3]) for text in texts(rounds, seed=2)]
    rows: list[report.Row] = []

    def add(what: str, entries: list[float], documents: list[float] | None = None) -> None:
        ours, theirs = median(entries), median(documents) if documents else None
        ratio = ours / theirs if theirs else None
        rows.append(
            {"size": size, "what": what, "entries": ours, "documents": theirs, "ratio": ratio}
        )

    opened = partial(Database, config=config, embedder=embedder)
    paths = folder / "contexts.db", folder / "documents.db"
    with opened(paths[0]) as memories, opened(paths[1]) as documents:
        remember(memories, size)
        ingest(documents, size)
        assert memories.memories.statistics().chunks == documents.stats().chunks
    firsts: list[list[tuple[float, float]]] = [[], []]
    for query in queries[:3]:
        with opened(paths[0]) as memories, opened(paths[1]) as documents:
            for first in firsts:
                first.append(asked(memories, documents, query))
    add("the first question of a process", *map(list, zip(*firsts[0], strict=True)))
    add("its second", *map(list, zip(*firsts[1], strict=True)))
    with opened(paths[0]) as memories, opened(paths[1]) as documents:
        values = [f"p{round * 7 % (size // PER_VALUE)}" for round in range(rounds)]
        add(INDEXED, [timed(partial(browse, memories, "project", value)) for value in values])
        others = [timed(partial(browse, memories, "owner", value)) for value in values[:10]]
        add("browsing by another key", others)

        def compare(what: str, **options: Any) -> None:
            say(f"asking: {what}")
            for query in ("warm up", *queries):  # words are read when they are first asked for
                asked(memories, documents, query, **options)
            pairs = [asked(memories, documents, query, **options) for query in queries]
            add(what, *map(list, zip(*pairs, strict=True)))

        for mode in ("hybrid", "text", "vector"):
            compare(f"{mode} search", mode=mode)
            compare(f"… in a thread of {size // 2:,}", mode=mode, where=LARGE)
            compare(f"… in one of {size // 2 // THREADS:,}", mode=mode, where=SMALL)
        ids = [memory.id for memory in memories.memories][::ENDED]
        memories.memories.update_many([Change(id=id, valid_to="2020-01-01") for id in ids])
        compare(f"hybrid search, {len(ids):,} entries ended")
        compare("… of what held in 2015", as_of="2015")
    return rows


def asked(
    memories: Database,
    documents: Database,
    query: str,
    *,
    mode: str = "hybrid",
    where: str | None = None,
    as_of: str | None = None,
) -> tuple[float, float]:
    """What the ten best entries cost, and the ten best documents."""
    return (
        timed(
            partial(memories.memories.search, query, mode=mode, thread=where, as_of=as_of)  # type: ignore[arg-type]
        ),
        timed(partial(documents.documents.search, query, mode=mode, library=where)),  # type: ignore[arg-type]
    )


def thread(number: int, size: int) -> str:
    """The thread, or the library, of a text: the first half is in a large one."""
    return LARGE if number < size // 2 else f"thread {number % THREADS}"


def texts(count: int, seed: int = 1) -> Iterator[str]:
    """Texts whose words are as unevenly common as those of a language."""
    choice = random.Random(seed)
    words = [f"word{number}" for number in range(WORDS)]
    weights = [1 / (number + 1) for number in range(WORDS)]
    cumulated = list(accumulate(weights))
    for _ in range(count):
        yield " ".join(choice.choices(words, cum_weights=cumulated, k=WORDS_PER_TEXT))


def remember(db: Database, size: int) -> None:
    """Store the texts as turns of threads; PER_VALUE of them share project and owner."""
    batch: list[Entry] = []
    for number, text in enumerate(texts(size)):
        value = f"p{number // PER_VALUE}"
        batch.append(
            Entry(
                thread=thread(number, size),
                source="user" if number // THREADS % 2 else "agent",
                text=text,
                metadata={"project": value, "owner": value, "n": number},
            )
        )
        if len(batch) == BATCH or number == size - 1:
            db.memories.add_many(batch)
            batch = []
            say(f"stored {number + 1:,} of {size:,} entries")


def ingest(db: Database, size: int) -> None:
    """Store the same texts as documents, and libraries in place of threads."""
    every: dict[str, list[tuple[int, str]]] = {}
    for number, text in enumerate(texts(size)):
        every.setdefault(thread(number, size), []).append((number, text))
    done = 0
    for library, numbered in every.items():
        for first in range(0, len(numbered), BATCH):
            batch = numbered[first : first + BATCH]
            names = [str(number) for number, _ in batch]
            db.documents.ingest_many(
                [text for _, text in batch],
                sources=[f"{name}.txt" for name in names],
                titles=names,
                library=library,
            )
            done += len(batch)
            say(f"stored {done:,} of {size:,} documents")


def browse(db: Database, key: str, value: str) -> int:
    """The first page of the entries that have this value."""
    found = len(db.memories.browse(where={f"metadata.{key}": value}, limit=PER_VALUE))
    assert found == PER_VALUE
    return found


def timed(work: Callable[[], object]) -> float:
    """Milliseconds of the processor's time."""
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks memories", description=__doc__)
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[1_000, 100_000],
        metavar="N",
        help="how many entries [1,000 100,000]",
    )
    parser.add_argument(
        "--rounds", type=int, default=50, metavar="N", help="how many queries are timed [50]"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="DIR",
        help="where the files are made [the system's temporary folder]",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args(arguments)
