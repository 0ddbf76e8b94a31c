"""What a memory costs as it grows: `python -m benchmarks memories`.

Entries of a few dozen words are stored, as many as asked for, and the same texts as documents in a
file beside them. Two things are timed at each size: browsing by a metadata key that is indexed
(and, to compare, by one that is not), and hybrid search of entries beside hybrid search of
documents. The embedder is made of random numbers, because it is not what is measured: each word has
a vector of its own, and a text is the sum of its words.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.store import say
from mcpvectordb import Config, Database, Entry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WORDS = 20_000
WORDS_PER_TEXT = 30
PER_VALUE = 20  # entries that share a value of a key, however many there are in all
THREADS = 100  # in which a user and an agent take turns
BATCH = 1_000
# times that browsing by an indexed key may take in the largest file, of what it takes in the
# smallest
GROWTH_TARGET = 1.5
SEARCH_TARGET = 1.3  # times that a search of entries may take, of what one of documents takes


@dataclass(frozen=True, slots=True)
class Outcome:
    """Medians of CPU time in milliseconds; `ratio` compares searches of entries and documents."""

    entries: int
    chunks: int
    browse_indexed: float
    browse_unindexed: float
    search_contexts: float
    search_documents: float
    ratio: float


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
    outcomes = []
    for size in options.sizes:
        with tempfile.TemporaryDirectory(prefix="contexts-", dir=options.folder) as temporary:
            outcomes.append(measure(Path(temporary), size, options.rounds))
    print(json.dumps([asdict(each) for each in outcomes]) if options.json else summary(outcomes))


def measure(folder: Path, size: int, rounds: int) -> Outcome:
    """Fill two files with the same texts and time the same questions to both, in turn."""
    embedder, config = Sums(), Config(indexed_metadata="project")
    queries = [" ".join(text.split()[:3]) for text in texts(rounds, seed=2)]
    with (
        Database(folder / "contexts.db", config=config, embedder=embedder) as memories,
        Database(folder / "documents.db", config=config, embedder=embedder) as documents,
    ):
        remember(memories, size)
        ingest(documents, size)
        chunks = documents.stats().chunks
        assert memories.memories.statistics().chunks == chunks
        values = [f"p{round * 7 % (size // PER_VALUE)}" for round in range(rounds)]
        indexed = [timed(partial(browse, memories, "project", value)) for value in values]
        unindexed = [timed(partial(browse, memories, "owner", value)) for value in values[:10]]
        pairs = [
            (
                timed(partial(search, memories.memories, query)),
                timed(partial(search, documents.documents, query)),
            )
            for query in ["warm up", *queries]
        ][1:]
    ours, theirs = median(first for first, _ in pairs), median(second for _, second in pairs)
    return Outcome(
        entries=size,
        chunks=chunks,
        browse_indexed=round(median(indexed), 3),
        browse_unindexed=round(median(unindexed), 3),
        search_contexts=round(ours, 2),
        search_documents=round(theirs, 2),
        ratio=round(ours / theirs, 2),
    )


def texts(count: int, seed: int = 1) -> Iterator[str]:
    """Texts whose words are as unevenly common as those of a language."""
    choice = random.Random(seed)
    words = [f"word{number}" for number in range(WORDS)]
    weights = [1 / (number + 1) for number in range(WORDS)]
    cumulated = list(accumulate(weights))
    for _ in range(count):
        yield " ".join(choice.choices(words, cum_weights=cumulated, k=WORDS_PER_TEXT))


def remember(db: Database, size: int) -> None:
    """Store the texts as turns of many threads; PER_VALUE of them share project and owner."""
    batch: list[Entry] = []
    for number, text in enumerate(texts(size)):
        value = f"p{number // PER_VALUE}"
        batch.append(
            Entry(
                thread=f"thread {number % THREADS}",
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
    """Store the same texts as documents."""
    every = enumerate(texts(size))
    while batch := list(islice(every, BATCH)):
        numbers = [str(number) for number, _ in batch]
        db.documents.ingest_many(
            [text for _, text in batch],
            sources=[f"{number}.txt" for number in numbers],
            titles=numbers,
        )
        say(f"stored {batch[-1][0] + 1:,} of {size:,} documents")


def browse(db: Database, key: str, value: str) -> int:
    """The first page of the entries that have this value."""
    found = len(db.memories.browse(where={f"metadata.{key}": value}, limit=PER_VALUE))
    assert found == PER_VALUE
    return found


def search(shelf: Any, query: str) -> int:
    """The ten best by words and by meaning."""
    return len(shelf.search(query, limit=10))


def timed(work: Callable[[], int]) -> float:
    """Milliseconds of the processor's time."""
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began)


def summary(outcomes: Sequence[Outcome]) -> str:
    """The outcomes in sentences."""
    lines = [
        f"{each.entries:,} entries in {each.chunks:,} chunks: browsing by an indexed key "
        f"{each.browse_indexed} ms (by another {each.browse_unindexed} ms); hybrid search "
        f"{each.search_contexts} ms, of documents {each.search_documents} ms: {each.ratio} times, "
        f"{_verdict(each.ratio, SEARCH_TARGET)}"
        for each in outcomes
    ]
    growth = outcomes[-1].browse_indexed / outcomes[0].browse_indexed
    return "\n".join(
        [
            *lines,
            f"browsing by an indexed key takes {growth:.2f} times as long in the largest file as "
            f"in the smallest, {_verdict(growth, GROWTH_TARGET)}",
        ]
    )


def _verdict(value: float, target: float) -> str:
    return f"{'within' if value <= target else 'ABOVE'} the target of {target:g}"


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
    parser.add_argument("--json", action="store_true", help="print JSON instead of sentences")
    return parser.parse_args(arguments)
