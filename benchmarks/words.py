"""How fast passages are found by words, beside other engines: `python -m benchmarks words --rival
tantivy --rival fts5`.

The passages are cut from Python sources and documents on this machine, the queries made from them:
a rare word, a common word, all words of a natural question (which should find the passage that it
was made from), two words without a third. Each process asks every query twice: what it has learned
of a word by then it need not look up again.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks import report, rivals, texts
from benchmarks.rivals import OURS, Plan, Runs
from benchmarks.texts import Query

PLAN = Plan(fill=("add_texts",), ask=("matching", "matching"))


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    names = [OURS, *rivals.chosen(options.rival, "matching", "rank texts by words")]
    passages = texts.passages(options.passages)
    queries = texts.queries(passages, options.queries)
    with tempfile.TemporaryDirectory(prefix="words-") as temporary:
        folder, cache = Path(temporary), options.cache or Path(temporary) / "cache"
        rivals.write(folder, texts=passages, questions=[query.words for query in queries])
        runs = rivals.measured(folder, cache, dict.fromkeys(names, PLAN), options.rounds)
    kinds = {
        query.kind: [place for place, each in enumerate(queries) if each.kind == query.kind]
        for query in queries
    }
    rows = [
        line(each, len(passages), kind, kinds[kind], queries)
        for kind in sorted(kinds)
        for each in runs.values()
    ]
    steps = {
        f"{kind}{again}": (f"matching{again}", kinds[kind])
        for kind in sorted(kinds)
        for again in ("", " again")
    }
    notes = [rivals.against(runs[OURS], runs[name], steps) for name in names[1:]]
    report.show(rows, notes, as_json=options.json)


def line(
    runs: Runs, passages: int, kind: str, places: list[int], queries: list[Query]
) -> report.Row:
    """The figures of one engine for one kind of queries."""
    right = [queries[place].right for place in places]
    return {
        "query": kind,
        "engine": runs.engine,
        "version": runs.version,
        "passages": passages,
        "ms": runs.took("matching", only=places),
        "p95": runs.took("matching", share=0.95, only=places),
        "CPU ms": runs.took("matching", "cpu", only=places),
        "again: CPU ms": runs.took("matching again", "cpu", only=places),
        "right in 10": round(rivals.recall(runs.found("matching", places), right), 3),
        "added/s": 1000 * passages / runs.took("add_texts"),
        "MB": runs.filled["bytes"] / 1e6,
    }


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks words", description=__doc__)
    parser.add_argument(
        "--passages", type=int, default=100_000, metavar="N", help="passages to search [100000]"
    )
    parser.add_argument(
        "--queries", type=int, default=50, metavar="N", help="queries of each kind [50]"
    )
    rivals.add_options(parser)
    return parser.parse_args(arguments)
