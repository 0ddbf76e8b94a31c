"""How well the relevance of hits predicts judgments, and its weights.

`python -m benchmarks relevance --data DIR`

The queries of each collection are asked of its own documents, where judges said what is relevant,
and of those of all others, where nothing is: so give collections that know nothing of each other's
questions. Two that have the same ids of queries are translations, and neither is asked the other's.
The weights of each kind of evidence are fitted on all collections but one, and tried on
that one; what is printed as code is fitted on all.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.collection import Collection, load
from benchmarks.quality import sample, searches
from benchmarks.store import filled, say
from mcpvectordb import Config, Database, Scores
from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.ranking.relevance import MANY_WORDS, WEAK, Weights, coverage, reread
from mcpvectordb.ranking.snippets import Snippets
from mcpvectordb.text.query import parse_query
from mcpvectordb.text.tokens import is_non_latin

EVIDENCE = {
    "text": ("coverage",),
    "vector": ("cosine",),
    "hybrid": ("cosine", "coverage"),
    "rerank": ("reread",),
}
PRESENT: dict[str, Callable[[Scores], float | None]] = {
    "cosine": lambda scores: scores.vector,
    "coverage": lambda scores: scores.reach,
    "reread": lambda scores: scores.rerank,
}
READ: dict[str, Callable[[Scores], float | None]] = {
    **PRESENT,
    "coverage": coverage,
    "reread": reread,
}
DEPTH = 10  # results of each query that are looked at
EDGES = (0.0, 0.02, WEAK, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Result:
    """One result of a query: its collection, the collection of the query, evidence and judgment.

    `words` is the share of the query's words that it has.
    """

    data: str
    of: str
    query: str
    scores: Scores
    relevant: bool
    words: float = 0.0

    @property
    def foreign(self) -> bool:
        """Whether the query was made for other documents."""
        return self.of != self.data


def main(arguments: list[str]) -> None:
    """Read the options, ask, fit, print."""
    options = _options(arguments)
    collections = [load(folder) for folder in options.data]
    with tempfile.TemporaryDirectory(prefix="relevance-") as temporary:
        for model in options.model or [""]:
            for mode in options.mode or ["text", "vector", "hybrid"]:
                name, results = ask(
                    collections,
                    Config(model=model),
                    mode,
                    options.queries,
                    options.cache or Path(temporary),
                )
                print(report(name, mode, results), flush=True)


def ask(
    collections: Sequence[Collection], config: Config, mode: str, queries: int, cache: Path
) -> tuple[str, list[Result]]:
    """The name of the model, and the first results of queries in each collection.

    These are so many of its own queries, and as many of all other collections together.
    """
    results: list[Result] = []
    for asked in collections:
        file = filled(cache, asked.digest, asked.corpus, config)
        with Database(file.path, config=config) as db:
            say(f"{asked.name} {file.model} {mode}")
            latin_only = file.model in CATALOGUE and CATALOGUE[file.model].latin_only
            others = [each for each in collections if each.queries.keys() != asked.queries.keys()]
            for of in (asked, *others):
                wanted = queries if of is asked else max(1, queries // len(others))
                chosen = sample(of.queries, wanted)
                if latin_only:
                    chosen = {id: text for id, text in chosen.items() if not is_non_latin(text)}
                results += _answers(db, mode, asked, of, chosen)
    return file.model, results


def _answers(
    db: Database, mode: str, asked: Collection, of: Collection, queries: dict[str, str]
) -> Iterator[Result]:
    search = searches(db, mode)
    for id, text in queries.items():
        judged, snippets = asked.judged[id] if of is asked else {}, Snippets(parse_query(text))
        for hit in search(text, limit=DEPTH):
            if all(PRESENT[name](hit.scores) is not None for name in EVIDENCE[mode]):
                document = hit.item.document
                yield Result(
                    asked.name,
                    of.name,
                    id,
                    hit.scores,
                    judged.get(document.source, 0) > 0,
                    snippets.share(f"{document.title}\n{hit.item.text}"),
                )


def fit(results: Sequence[Result], evidence: Sequence[str]) -> Weights:
    """The weights with maximum likelihood.

    Each collection counts the same, and so do its own queries and the foreign ones.
    """
    known = np.column_stack(
        [np.ones(len(results)), *(_figures(results, name) for name in evidence)]
    )
    found = _logistic(known, np.array([each.relevant for each in results], float), shares(results))
    return Weights(
        **dict(zip(("base", *evidence), (round(float(each), 2) for each in found), strict=True))
    )


def shares(results: Sequence[Result]) -> Floats:
    """How much each result counts."""
    counts = Counter((each.data, each.foreign) for each in results)
    return np.array([1 / counts[each.data, each.foreign] for each in results])


def _figures(results: Sequence[Result], evidence: str) -> Floats:
    return np.array([READ[evidence](each.scores) for each in results], float)


def _logistic(known: Floats, relevant: Floats, weights: Floats) -> Floats:
    """Newton's method, with a little ridge for evidence that separates the classes."""
    found = np.zeros(known.shape[1])
    ridge = 1e-6 * np.eye(len(found))
    for _ in range(50):
        chance = 1 / (1 + np.exp(-known @ found))
        slope = known.T @ (weights * (relevant - chance)) - ridge @ found
        bend = (known * (weights * chance * (1 - chance))[:, None]).T @ known + ridge
        found = found + np.linalg.solve(bend, slope)
    return found


def chances(results: Sequence[Result], weights: Weights) -> Floats:
    """What the weights make of the evidence of each result."""
    return np.array([weights.chance(each.scores) for each in results])


def calibration_error(chance: Floats, relevant: Floats) -> float:
    """The expected calibration error: |probability - share of relevant|, by buckets."""
    buckets = [_within(chance, low, high) for low, high in pairwise(EDGES)]
    return float(
        sum(abs(np.sum(chance[each] - relevant[each])) for each in buckets) / max(1, len(chance))
    )


def _within(chance: Floats, low: float, high: float) -> NDArray[np.bool_]:
    return (chance >= low) & ((chance < high) | (high == EDGES[-1]))


def report(model: str, mode: str, results: Sequence[Result]) -> str:
    """A table of predictions for collections that were left out, and the weights fitted on all."""
    evidence, names = EVIDENCE[mode], list(dict.fromkeys(each.data for each in results))
    unseen = {name: [each for each in results if each.data == name] for name in names}
    predicted = {
        name: chances(unseen[name], fit([each for each in results if each.data != name], evidence))
        for name in names
    }
    heads = [f"{name}, {whose}" for name in names for whose in ("own", "foreign")]
    lines = [
        f"### {mode}, {model}",
        "",
        f"| relevance | {' | '.join(heads)} |",
        "|---|" + "--:|" * len(heads),
    ]
    for low, high in pairwise(EDGES):
        cells = [
            cell
            for name in names
            for cell in _cells(unseen[name], _within(predicted[name], low, high))
        ]
        lines.append(_row(f"{low:g} to {high:g}", cells))
    lines += [
        _row(what, [cell for name in names for cell in figures(unseen[name], predicted[name])])
        for what, figures in (
            ("queries with the verdict that nothing relevant was found", _warned),
            ("calibration error", _errors),
        )
    ]
    return "\n".join([*lines, "", f"fitted on all: {fit(results, evidence)}", ""])


def _row(name: str, cells: list[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"


def _cells(results: Sequence[Result], within: NDArray[np.bool_]) -> Iterator[str]:
    """The share of relevant results of own queries in a bucket; counts of own and foreign ones."""
    chosen = [each for each, inside in zip(results, within, strict=True) if inside]
    own = [each.relevant for each in chosen if not each.foreign]
    yield f"{np.mean(own):.2f} ({len(own)})" if own else ""
    yield f"{len(chosen) - len(own)}"


def _warned(results: Sequence[Result], chance: Floats) -> Iterator[str]:
    warned: dict[tuple[bool, str], bool] = {}
    for each, found in zip(results, chance, strict=True):
        key = (each.foreign, f"{each.of} {each.query}")
        weak = found < WEAK and each.words < MANY_WORDS
        warned[key] = weak and warned.get(key, True)
    for foreign in (False, True):
        of_these = [weak for (strange, _), weak in warned.items() if strange == foreign]
        yield f"{np.mean(of_these):.3f}"


def _errors(results: Sequence[Result], chance: Floats) -> Iterator[str]:
    relevant, foreign = (
        np.array([getattr(each, name) for each in results], float)
        for name in ("relevant", "foreign")
    )
    for these in (foreign == 0, foreign == 1):
        yield f"{calibration_error(chance[these], relevant[these]):.3f}"


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
        "--model",
        action="append",
        metavar="NAME",
        help="an embedding model [the best one installed]",
    )
    parser.add_argument(
        "--mode",
        action="append",
        choices=list(EVIDENCE),
        help="how to search [text, vector, hybrid]",
    )
    parser.add_argument(
        "--queries",
        type=int,
        default=300,
        metavar="N",
        help="ask so many queries of each kind [300]",
    )
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="keep the filled databases here for the next run"
    )
    options = parser.parse_args(arguments)
    if len(options.data) < 2:
        parser.error(
            "give two collections or more: each is tried with weights that were fitted on the "
            "others"
        )
    return options
