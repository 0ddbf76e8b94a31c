"""How well searches find the passages of a file of one's own: `python -m benchmarks known_items
FILE`.

The queries are made of passages, so that nobody has to judge what they find ("known-item search"):
titles, a few rare words of a sentence, and sentences without their rarest words, each of a document
that no other is a copy of. Words of the passages favour keyword search over vector search: with
questions in other words, the modes may rank differently. The file is opened for reading only. Where
it can be searched by meaning, other vector weights are tried on the same queries.
"""

from __future__ import annotations

import argparse
import math
import re
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean, stdev

from benchmarks import metrics, report
from mcpvectordb import Chunk, Config, Database, Document, InvalidInput
from mcpvectordb.text.tokens import stop_words

PAGE = 10  # results of a query that count
TERMS = 4
DROPPED = 1 / 3  # of the content words of a sentence
WEIGHTS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
SENTENCE = re.compile(r"[^\W\d_][^.!?\n|#]{60,300}[.!?](?=\s)")
WORD = re.compile(r"\w{3,}")


@dataclass(frozen=True, slots=True)
class KnownItem:
    """A query, and the part of a document that it should find."""

    kind: str
    query: str
    document: str
    start: int
    end: int

    def found_in(self, chunk: Chunk) -> bool:
        """Whether a chunk has at least half of the part, or lies in it by at least half."""
        common = min(self.end, chunk.end) - max(self.start, chunk.start)
        shorter = min(self.end - self.start, chunk.end - chunk.start)
        return chunk.document.id == self.document and 2 * common >= shorter > 0


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    config = Config(read_only=True)
    with Database(options.file, config=config) as db:
        items = sample(db, options.queries, options.seed)
        reason = db.documents.search("what", mode="vector", limit=1).reasons.get("vector", "")
        modes = ["text"] if reason else ["text", "vector", "hybrid"]
        rows = [row for mode in modes for row in measured(db, items, mode)]
    notes = [f"Keyword search only: {reason}"] if reason else []
    if "hybrid" in modes:
        notes = [
            f"vector_weight {weight:g}: MRR@10 {gain:+.3f} ± {error:.3f} over the one in force"
            for weight, gain, error in weights(options.file, config, items)
        ]
    report.show(rows, notes, as_json=options.json)


def sample(db: Database, queries: int, seed: int) -> list[KnownItem]:
    """About so many items, the same for the same seed."""
    documents = db.documents.browse(limit=1_000_000)
    copies = Counter(each.hash for each in documents)
    titles = Counter(each.title.casefold() for each in documents)
    texts = {each.id: db.documents.text(each.id) for each in documents}
    frequencies = Counter(word for text in texts.values() for word in set(words(text)))
    random = Random(seed)
    items: dict[str, KnownItem] = {}
    for document in random.sample(documents, len(documents)):
        if len(items) >= queries:
            break
        if copies[document.hash] > 1:
            continue
        text = texts[document.id]
        found = _from_sentence(document, text, frequencies, random)
        if titles[document.title.casefold()] == 1 and words(document.title):
            found.append(KnownItem("title", document.title, document.id, 0, len(text)))
        items |= {item.query: item for item in found}
    if not items:
        raise InvalidInput("no document has a title of its own or a sentence to ask for")
    return sorted(items.values(), key=lambda item: item.kind)


def words(text: str) -> list[str]:
    """The words of a text that are no stop words, each once."""
    found = list(dict.fromkeys(each.casefold() for each in WORD.findall(text)))
    stops = stop_words(found)
    return [word for word in found if word not in stops]


def _from_sentence(
    document: Document, text: str, frequencies: Counter[str], random: Random
) -> list[KnownItem]:
    """Rare words of a sentence (nobody remembers those that occur once), and the rest of it."""
    spans = [each.span() for each in SENTENCE.finditer(text)]
    if not spans:
        return []
    start, end = random.choice(spans)
    content = sorted(words(text[start:end]), key=lambda word: frequencies[word])
    remembered = sorted(content, key=lambda word: (frequencies[word] < 2, frequencies[word]))
    if len(content) <= TERMS:
        return []
    dropped = set(content[: round(DROPPED * len(content))])
    rest = [each for each in re.findall(r"\w+", text[start:end]) if each.casefold() not in dropped]
    return [
        KnownItem("terms", " ".join(remembered[:TERMS]), document.id, start, end),
        KnownItem("sentence", " ".join(rest), document.id, start, end),
    ]


def measured(db: Database, items: list[KnownItem], mode: str) -> list[report.Row]:
    """The figures of a mode for each kind of query and for all."""
    ranks, times = [], []
    for item in items:
        started = time.perf_counter()
        ranks.append(rank(db, item, mode))
        times.append(1000 * (time.perf_counter() - started))
    rows = []
    for kind in [*dict.fromkeys(item.kind for item in items), "all"]:
        chosen = [n for n, item in enumerate(items) if kind in (item.kind, "all")]
        rows.append(
            {
                "mode": mode,
                "queries": kind,
                "n": len(chosen),
                "recall@1": fmean(ranks[n] == 1 for n in chosen),
                "recall@10": fmean(ranks[n] > 0 for n in chosen),
                "MRR@10": fmean(reciprocal(ranks[n]) for n in chosen),
                "ms p50": metrics.percentile([times[n] for n in chosen], 0.5),
                "p95": metrics.percentile([times[n] for n in chosen], 0.95),
            }
        )
    return rows


def rank(db: Database, item: KnownItem, mode: str = "hybrid") -> int:
    """The rank of the first result that has the item, or 0."""
    results = db.documents.search(item.query, mode=mode, limit=PAGE)
    return next((n for n, hit in enumerate(results, 1) if item.found_in(hit.item)), 0)


def reciprocal(rank: int) -> float:
    """1 / rank, or 0."""
    return 1 / rank if rank else 0.0


def weights(file: Path, config: Config, items: list[KnownItem]) -> list[tuple[float, float, float]]:
    """(weight, mean gain over the weight in force, standard error of the gain), query by query."""
    scores = {}
    for weight in (None, *WEIGHTS):
        with Database(file, config=replace(config, vector_weight=weight)) as db:
            scores[weight] = [reciprocal(rank(db, item)) for item in items]
    found = []
    for weight in WEIGHTS:
        gains = [new - old for new, old in zip(scores[weight], scores[None], strict=True)]
        error = stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0
        found.append((weight, fmean(gains), error))
    return found


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks known_items", description=__doc__)
    parser.add_argument("file", type=Path, help="a file of mcpvectordb")
    parser.add_argument(
        "--queries", type=int, default=100, metavar="N", help="queries to make and ask [100]"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the sample [0]")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args(arguments)
