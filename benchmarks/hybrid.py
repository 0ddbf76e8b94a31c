"""How fast passages are found by words and meaning together: `python -m benchmarks hybrid --rival
chroma`.

The passages are cut from Python sources and documents on this machine, and natural questions made
from them. Vectors are given (sums of random vectors that stand for words, the rarer the longer), so
that embedding the query is no part of it. A rival is a vector engine and tantivy, asked one after
the other and fused by ranks: the sum of what the two take, the fusion for free. Each process of
ours reads ahead what a server reads when it starts (`Database.warm`; the table says what that
takes) and asks every question twice: first with words that it has not met, then with known ones.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks import report, rivals, texts
from benchmarks.engines import NEAREST
from benchmarks.metrics import percentile
from benchmarks.rivals import OURS, Plan, Runs

WORDS = "tantivy"
PLANS = {
    OURS: Plan(("add_both",), ("warm", "both", "both")),
    WORDS: Plan(("add_texts",), ("matching", "matching")),
}
VECTORS = Plan(("add_vectors",), ("nearest", "nearest"))
# Times what the rivals take: with new words, with known ones. How far p95 may lie above p50.
NEW, KNOWN, SPREAD = 1.2, 1.0, 3.0
DIMENSION = 384
RRF_K = 60


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    names = rivals.chosen(
        options.rival, "nearest", "search vectors, which is what tantivy is to be completed by"
    )
    rows: list[report.Row] = []
    notes: list[str] = []
    for passages in options.passages:
        some = names if passages <= options.rival_rows else []
        with tempfile.TemporaryDirectory(prefix="hybrid-") as temporary:
            folder = Path(temporary)
            found, said = measure(
                folder, options.cache or folder / "cache", passages, some, options
            )
        rows += found
        notes += said
    report.show(rows, [*notes, *growth(rows)], as_json=options.json)


def measure(
    folder: Path, cache: Path, count: int, names: list[str], options: argparse.Namespace
) -> tuple[list[report.Row], list[str]]:
    """The figures of every engine with so many passages, and sentences about them."""
    passages = texts.passages(count)
    queries = texts.queries(passages, options.queries, kinds=["question"])
    rivals.write(
        folder,
        texts=passages,
        rows=texts.sums(passages, passages, DIMENSION),
        questions=[query.words for query in queries],
        queries=texts.sums(
            [" ".join(query.words["any"]) for query in queries], passages, DIMENSION
        ),
    )
    plans = {
        OURS: PLANS[OURS],
        **dict.fromkeys(names, VECTORS),
        **({WORDS: PLANS[WORDS]} if names else {}),
    }
    runs = rivals.measured(folder, cache, plans, options.rounds)
    right = [query.right for query in queries]
    ours = figures([runs[OURS]], ["both"])
    rows = [
        {
            "engine": OURS,
            "passages": count,
            **ours,
            "read ahead: CPU s": runs[OURS].took("warm", "cpu") / 1000,
            "right in 10": recall(runs[OURS].found("both"), right),
        }
    ]
    notes = []
    for name in names:
        pair = [runs[name], runs[WORDS]]
        theirs = figures(pair, ["nearest", "matching"])
        found = [
            fused(*each)
            for each in zip(pair[0].found("nearest"), pair[1].found("matching"), strict=True)
        ]
        rows.append(
            {
                "engine": f"{name} + {WORDS}",
                "passages": count,
                **theirs,
                "read ahead: CPU s": None,
                "right in 10": recall(found, right),
            }
        )
        notes.append(compared(f"{name} + {WORDS}", ours, theirs))
    return rows, notes


def figures(runs: list[Runs], steps: list[str]) -> dict[str, float]:
    """The time of a query where every engine runs it.

    This is the sum of the times of its parts, then the median over queries and rounds.
    """

    def took(clock: str, share: float, again: str = "") -> float:
        engines = zip(runs, steps, strict=True)
        rounds = zip(
            *([figures[step + again][clock] for figures in each.asked] for each, step in engines),
            strict=True,
        )
        return median(
            percentile([sum(parts) for parts in zip(*clocks, strict=True)], share)
            for clocks in rounds
        )

    return {
        "ms": took("wall", 0.5),
        "p95": took("wall", 0.95),
        "CPU ms": took("cpu", 0.5),
        "CPU p95": took("cpu", 0.95),
        "again: CPU ms": took("cpu", 0.5, " again"),
        "again: CPU p95": took("cpu", 0.95, " again"),
    }


def fused(first: list[int], second: list[int]) -> list[int]:
    """Two rankings by the sum of their reciprocal ranks."""
    scores: dict[int, float] = {}
    for ranking in (first, second):
        for rank, number in enumerate(ranking, 1):
            scores[number] = scores.get(number, 0) + 1 / (RRF_K + rank)
    return sorted(scores, key=lambda number: -scores[number])[:NEAREST]


def recall(found: list[list[int]], right: list[frozenset[int]]) -> float:
    """The share of questions that found the passage they were made from."""
    return round(rivals.recall(found, right), 3)


def compared(name: str, ours: dict[str, float], theirs: dict[str, float]) -> str:
    """What we take in proportion to a rival."""
    new, known = (ours[clock] / theirs[clock] for clock in ("CPU ms", "again: CPU ms"))
    return (
        f"By CPU time a question with new words takes {new:.1f} times what {name} take, "
        f"{report.verdict(new, NEW)}; with known ones {known:.1f} times, "
        f"{report.verdict(known, KNOWN)}."
    )


def growth(rows: list[report.Row]) -> list[str]:
    """How our figures spread, and how they grow from one number of passages to the next."""
    ours = [row for row in rows if row["engine"] == OURS]
    last = ours[-1]
    spread = max(last["CPU p95"] / last["CPU ms"], last["again: CPU p95"] / last["again: CPU ms"])
    grown = [
        f"{after['again: CPU ms'] / before['again: CPU ms']:.1f} times for "
        f"{after['passages'] / before['passages']:g} times the passages"
        for before, after in pairwise(ours)
    ]
    return [
        f"Of {last['passages']:,} passages, p95 is {spread:.1f} times p50, "
        f"{report.verdict(spread, SPREAD)}.",
        *([f"A question with known words takes {', then '.join(grown)}."] if grown else []),
    ]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks hybrid", description=__doc__)
    parser.add_argument(
        "--passages",
        type=int,
        nargs="+",
        default=[100_000],
        metavar="N",
        help="passages to search, one number or several [100000]",
    )
    parser.add_argument(
        "--rival-rows",
        type=int,
        default=100_000,
        metavar="N",
        help="most passages that rivals get [100000]",
    )
    parser.add_argument(
        "--queries", type=int, default=100, metavar="N", help="questions to ask [100]"
    )
    rivals.add_options(parser)
    return parser.parse_args(arguments)
