"""How well the relevance of hits predicts judgments in files of any size, and its weights.

`python -m benchmarks relevance --data DIR --data DIR`

Each collection is sampled down to files of 5, 50 and 500 documents, and taken whole. Its queries
are asked where a document is that judges called relevant, and those of all other collections, to
which it has no answer: so give collections that know nothing of each other's questions. Two that
have the same ids of queries are translations, and neither is asked the other's.

Weights are fitted in two steps. What tells a right first hit from the best hit of a foreign query
decides how cosine, words and number of passages count against each other; judgments of all hits,
with the logarithm of their rank, decide what probability that is. Every collection, size and kind
of query counts the same. Figures are of collections that were left out of the fit; weights at the
end are fitted on all. The answers of a collection given as `--unfitted` are in no fit: those of
tests/benchmarks/paraphrases have none of the words of their questions, and would teach it that
words say nothing.
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.collection import Collection, Entry, load
from benchmarks.quality import searches
from benchmarks.store import ingest_entry, say
from mcpvectordb import Config, Database, Scores
from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.embedding.embedder import OnnxEmbedder
from mcpvectordb.index.chunks import embedding_text
from mcpvectordb.ranking.relevance import JUDGED, PARAPHRASE, Weights, reread, words
from mcpvectordb.ranking.snippets import word_shares
from mcpvectordb.records import STRONG, WEAK
from mcpvectordb.text.query import parse_query
from mcpvectordb.text.tokens import is_non_latin

EVIDENCE = {
    "text": ("words", "passages"),
    "vector": ("cosine", "passages"),
    "hybrid": ("cosine", "words", "passages"),
    "rerank": ("reread",),
}
# Documents of a file (0: all), how many files are sampled, and queries that are asked of each: own
# ones, and of each other collection.
PLAN = ((5, 40, 3, 3), (50, 10, 20, 8), (500, 3, 60, 25), (0, 1, 120, 40))
SEED = 7
EDGES = np.linspace(0, 1, 11)

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Hit:
    """What is known of a hit, by the names of the weights, and whether it was judged relevant."""

    cosine: float
    words: float
    reread: float
    passages: float
    relevant: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """The first hits of a query in a file of so many documents of a collection."""

    data: str
    size: int
    foreign: bool
    hits: Sequence[Hit]

    @property
    def right(self) -> bool:
        """Whether the first hit answers it."""
        return not self.foreign and self.hits[0].relevant


def main(arguments: list[str]) -> None:
    """Read the options, ask, fit, print."""
    options = _options(arguments)
    collections = [load(folder) for folder in [*options.data, *options.unfitted]]
    unfitted = {each.name for each in collections[len(options.data) :]}
    for model in options.model or [""]:
        for mode in options.mode or ["hybrid", "vector", "text"]:
            with _embedding_once(), tempfile.TemporaryDirectory(prefix="relevance-") as folder:
                file = Path(folder) / "sample.db"
                found = list(ask(collections, Config(model=model), mode, file, options.share))
            print(report(model or "the default model", mode, found, unfitted), flush=True)


@contextmanager
def _embedding_once() -> Iterator[None]:
    """Let each text be embedded once, although many samples have it."""
    known: dict[tuple[int, bool, str], NDArray[np.float32]] = {}
    embed = OnnxEmbedder.embed

    def remembered(
        self: OnnxEmbedder, texts: Sequence[str], *, query: bool = False
    ) -> NDArray[np.float32]:
        new = [text for text in dict.fromkeys(texts) if (id(self), query, text) not in known]
        if new:
            rows = zip(new, embed(self, new, query=query), strict=True)
            known.update({(id(self), query, text): row for text, row in rows})
        return np.stack([known[id(self), query, text] for text in texts])

    OnnxEmbedder.embed = remembered  # type: ignore[method-assign]
    try:
        yield
    finally:
        OnnxEmbedder.embed = embed  # type: ignore[method-assign]


def ask(
    collections: Sequence[Collection], config: Config, mode: str, file: Path, share: float
) -> Iterator[Asked]:
    """The first hits of all queries of the plan, or of a share of its samples."""
    chance = random.Random(SEED)
    for asked in collections:
        others = [each for each in collections if each.queries.keys() != asked.queries.keys()]
        for size, samples, own, foreign in PLAN:
            if size >= len(asked.corpus):
                continue
            for number in range(max(1, round(share * samples))):
                say(f"{asked.name}, {size or 'all'} documents, {number + 1}")
                entries = _sample(asked, size, chance)
                for old in file.parent.iterdir():
                    old.unlink()
                with Database(file, config=config) as db:
                    for entry in entries:
                        ingest_entry(db, entry)
                    db.embed_pending()
                    there = {entry.id for entry in entries}
                    answered = [
                        id
                        for id, judged in asked.judged.items()
                        if any(grade > 0 and each in there for each, grade in judged.items())
                    ]
                    for of, ids in [
                        (asked, answered),
                        *((each, list(each.queries)) for each in others),
                    ]:
                        most = own if of is asked else foreign
                        for id in chance.sample(sorted(ids), min(most, len(ids))):
                            judged = asked.judged[id] if of is asked else {}
                            hits = list(_hits(db, mode, of.queries[id], judged))
                            if hits:
                                yield Asked(asked.name, size, of is not asked, hits)


def _sample(collection: Collection, size: int, chance: random.Random) -> list[Entry]:
    """So many documents, most of which answer some query; all of them if that is 0."""
    if not size:
        return collection.corpus
    entries = {entry.id: entry for entry in collection.corpus}
    chosen: dict[str, None] = {}
    for query in chance.sample(sorted(collection.queries), min(len(collection.queries), size)):
        right = [
            id for id, grade in collection.judged[query].items() if grade > 0 and id in entries
        ]
        if right and len(chosen) < 3 * size // 5:
            chosen[chance.choice(sorted(right))] = None
    rest = sorted(entries.keys() - chosen.keys())
    return [entries[id] for id in (*chosen, *chance.sample(rest, size - len(chosen)))]


def _hits(db: Database, mode: str, text: str, judged: dict[str, int]) -> Iterator[Hit]:
    model = CATALOGUE.get(db.stats().model)
    if is_non_latin(text) and (mode == "text" or (model is not None and model.latin_only)):
        return
    passages, query = db.stats().chunks, parse_query(text)
    for hit in searches(db, mode)(text, limit=JUDGED):
        chunk, document = hit.item, hit.item.document
        searched = embedding_text(document.title, chunk.headings, chunk.header, chunk.text)
        scores: Scores = hit.scores
        yield Hit(
            scores.vector or 0.0,
            words(word_shares(query, [searched])[0], scores, passages),
            reread(scores),
            math.log10(max(1, passages)),
            judged.get(document.source, 0) > 0,
        )


def fit(found: Sequence[Asked], evidence: Sequence[str]) -> Weights:
    """The weights of some kinds of evidence."""
    clear = [each for each in found if each.right or each.foreign]
    known = [_columns(each.hits, evidence) for each in clear]
    first = np.array([each[0] for each in known])
    for _ in range(3):  # the best hit of a query is the one with most evidence, by these weights
        against = _logistic(
            first,
            np.array([each.right for each in clear], float),
            _shares([(each.data, each.size, each.foreign) for each in clear]),
            ridge=1e-3,
        )
        first = np.array([each[np.argmax(each @ against)] for each in known])
    hits = [(each, rank, hit) for each in found for rank, hit in enumerate(each.hits, 1)]
    odds = _columns([hit for _, _, hit in hits], evidence) @ against
    logs = np.log([rank for _, rank, _ in hits])
    base, scale, rank = _logistic(
        np.column_stack([np.ones(len(hits)), odds, logs]),
        np.array([hit.relevant for _, _, hit in hits], float),
        _shares([(each.data, each.size, each.foreign) for each, _, _ in hits]),
    )
    values = {"base": base + scale * against[0], "rank": rank}
    values |= {name: scale * each for name, each in zip(evidence, against[1:], strict=True)}
    return Weights(**{name: round(float(each), 2) for name, each in values.items()})


def _columns(hits: Sequence[Hit], evidence: Sequence[str]) -> Floats:
    return np.array([[1.0, *(getattr(hit, name) for name in evidence)] for hit in hits])


def _shares(kinds: Sequence[tuple[str, int, bool]]) -> Floats:
    """How much each counts, so that all kinds count the same."""
    counts = Counter(kinds)
    return np.array([1 / counts[each] / len(counts) for each in kinds])


def _logistic(known: Floats, relevant: Floats, shares: Floats, ridge: float = 1e-6) -> Floats:
    """Newton's method, with a little ridge for evidence that separates the classes."""
    found = np.zeros(known.shape[1])
    held = ridge * np.diag([0.0, *np.var(known[:, 1:], axis=0)])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-known @ found))
        slope = known.T @ (shares * (relevant - chance)) - held @ found
        bend = (known * (shares * chance * (1 - chance))[:, None]).T @ known + held
        found = found + np.linalg.solve(bend + 1e-12 * np.eye(len(found)), slope)
    return found


def relevance(
    found: Asked, weights: Weights, alone: Weights | None = None, discount: float = 0.0
) -> Floats:
    """What the weights make of the hits of a query; never more than of the hit before.

    `alone` are those of meaning alone, for hits that say it in other words, which are discounted.
    """

    def log_odds(hit: Hit, by: Weights) -> float:
        names = ("cosine", "words", "reread", "passages")
        return by.base + sum(getattr(by, name) * getattr(hit, name) for name in names)

    odds = [
        max(log_odds(hit, weights), log_odds(hit, alone) - discount if alone else -math.inf)
        + weights.rank * math.log(rank)
        for rank, hit in enumerate(found.hits, 1)
    ]
    return np.asarray(np.maximum.accumulate((1 / (1 + np.exp(-np.array(odds))))[::-1])[::-1])


def calibration_error(chance: Floats, relevant: Floats) -> float:
    """The expected calibration error: |probability - share of relevant|, by ten buckets."""
    buckets = np.digitize(chance, EDGES[1:-1])
    return sum(
        abs(float(np.sum(chance[buckets == each] - relevant[buckets == each])))
        for each in range(len(EDGES) - 1)
    ) / max(1, len(chance))


def report(model: str, mode: str, found: Sequence[Asked], unfitted: Set[str]) -> str:
    """The figures of collections that were left out, by size, and the weights fitted on all."""
    names = list(dict.fromkeys(each.data for each in found))
    fitted = [each for each in found if each.data not in unfitted]
    predicted: list[tuple[Asked, Floats]] = []
    for name in names:
        others = [each for each in fitted if each.data != name]
        weights = fit(others, EVIDENCE[mode])
        alone = fit(others, EVIDENCE["vector"]) if mode == "hybrid" else None
        predicted += [
            (each, relevance(each, weights, alone, PARAPHRASE.get(model, 0.35)))
            for each in found
            if each.data == name
        ]
    heads = ("right: weak", "right: strong", "foreign: weak", "foreign: strong", "error", "of own")
    lines = [
        f"### {mode}, {model}",
        "",
        f"| documents | collection | {' | '.join(heads)} |",
        "|--:|---|" + "--:|" * len(heads),
    ]
    for size in dict.fromkeys(each.size for each in found):
        of_size = [pair for pair in predicted if pair[0].size == size]
        for name in [*names, "all"]:
            of = set(names) - unfitted if name == "all" else {name}
            some = [pair for pair in of_size if pair[0].data in of]
            if some:
                lines.append(f"| {size or 'all'} | {name} | {' | '.join(_figures(some))} |")
    return "\n".join([*lines, "", f"fitted on all: {fit(fitted, EVIDENCE[mode])}", ""])


def _figures(some: Sequence[tuple[Asked, Floats]]) -> Iterator[str]:
    """Shares of queries by confidence in their first hit, and calibration errors of all hits."""

    def share(which: Callable[[Asked], bool], what: Callable[[float], bool]) -> str:
        first = [what(chances[0]) for each, chances in some if which(each)]
        return f"{np.mean(first):.3f}" if first else ""

    for which in (lambda each: each.right, lambda each: each.foreign):
        yield share(which, lambda chance: chance < WEAK)
        yield share(which, lambda chance: chance >= STRONG)
    for pairs in (some, [pair for pair in some if not pair[0].foreign]):
        chance = np.concatenate([chances for _, chances in pairs])
        relevant = np.array([hit.relevant for each, _ in pairs for hit in each.hits], float)
        yield f"{calibration_error(chance, relevant):.3f}"


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks relevance", description=__doc__)
    parser.add_argument(
        "--data",
        type=Path,
        action="append",
        required=True,
        metavar="DIR",
        help="a folder in BEIR layout; two or more",
    )
    parser.add_argument(
        "--unfitted",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="one whose figures are reported, and that no weights are fitted on",
    )
    parser.add_argument(
        "--model",
        action="append",
        metavar="NAME",
        help="an embedding model [the best one installed]",
    )
    parser.add_argument(
        "--mode",
        action="append",
        choices=list(EVIDENCE),
        help="how to search [hybrid, vector, text]",
    )
    parser.add_argument(
        "--share",
        type=float,
        default=1.0,
        metavar="X",
        help="take this share of the sampled files [1]",
    )
    options = parser.parse_args(arguments)
    if len(options.data) < 2:
        parser.error(
            "give two collections or more: each is tried with weights that were fitted on the "
            "others"
        )
    return options
