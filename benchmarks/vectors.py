"""How fast vectors are added and found, beside other engines: `python -m benchmarks vectors --rival
chroma`.

All engines get the same vectors: clustered ones, or with --data real embeddings of a collection's
texts (and of passages of text on this machine, if there are too few). A query asks for the ten
nearest of all, and of one group of a hundred.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import embeddings, report, rivals
from benchmarks.engines import GROUPS, NEAREST
from benchmarks.rivals import OURS, Plan, Runs

if TYPE_CHECKING:
    from benchmarks.embeddings import Matrix

PLAN = Plan(fill=("add_vectors",), ask=("nearest", "filtered"))
STEPS = {
    "adding": ("add_vectors", None),
    "searching": ("nearest", None),
    "searching 1 %": ("filtered", None),
}
FLOOR_TARGET, FLOOR_ROWS = 3.0, 100_000


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    names = [OURS, *rivals.chosen(options.rival, "nearest", "search vectors")]
    with tempfile.TemporaryDirectory(prefix="vectors-") as temporary:
        folder, cache = Path(temporary), options.cache or Path(temporary) / "cache"
        if options.data:
            rows, queries = embeddings.real(
                options.data, options.rows, options.queries, cache, options.model
            )
        else:
            rows, queries = embeddings.clustered(options.rows, options.dimension, options.queries)
        rivals.write(folder, rows=rows, queries=queries)
        runs = rivals.measured(folder, cache, dict.fromkeys(names, PLAN), options.rounds)
        right = {"nearest": nearest(rows, queries), "filtered": nearest(rows, queries, GROUPS)}
        lines = [line(each, rows, right) for each in runs.values()]
    notes = [rivals.against(runs[OURS], runs[name], STEPS) for name in names[1:]]
    report.show(lines, [*notes, beside_floor(runs[OURS], rows)], as_json=options.json)


def nearest(rows: Matrix, queries: Matrix, groups: int = 1) -> list[set[int]]:
    """The rows nearest to each query by exact comparison, of all rows or of its group."""
    import numpy as np

    found = []
    for number, query in enumerate(queries):
        scores = rows[number % groups :: groups] @ query
        best = np.argpartition(-scores, min(NEAREST, len(scores) - 1))[:NEAREST]
        found.append({int(place) * groups + number % groups for place in best})
    return found


def line(runs: Runs, rows: Matrix, right: dict[str, list[set[int]]]) -> report.Row:
    """The figures of one engine."""
    return {
        "engine": runs.engine,
        "version": runs.version,
        "vectors": f"{len(rows):,} × {rows.shape[1]}",
        "added/s": 1000 * len(rows) / runs.took("add_vectors"),
        "added/CPU s": 1000 * len(rows) / runs.took("add_vectors", "cpu"),
        **searching(runs, "nearest", right["nearest"]),
        **{
            f"1 %: {name}": value
            for name, value in searching(runs, "filtered", right["filtered"]).items()
        },
        "MB": runs.filled["bytes"] / 1e6,
    }


def searching(runs: Runs, step: str, right: Sequence[set[int]]) -> report.Row:
    """What a query took, and how much of what it should find it found."""
    return {
        "ms": runs.took(step),
        "p95": runs.took(step, share=0.95),
        "CPU ms": runs.took(step, "cpu"),
        "recall@10": round(rivals.recall(runs.found(step), right), 4),
    }


def beside_floor(ours: Runs, rows: Matrix) -> str:
    """What a query takes in passes over as many bytes as there are numbers."""
    floor = one_pass(rows.size)
    ratio = ours.took("nearest", "cpu") / floor
    # With fewer rows, the time is mostly that of Python itself.
    goal = f", {report.verdict(ratio, FLOOR_TARGET)}" if len(rows) >= FLOOR_ROWS else ""
    return (
        f"One pass over {rows.size / 1e6:,.1f} MB takes {floor:.2f} ms; "
        f"a query takes {ratio:.1f} times as much CPU time{goal}."
    )


def one_pass(size: int, tries: int = 9) -> float:
    """The milliseconds in which this machine can read so many bytes of memory, at best."""
    import numpy as np

    data = np.ones(max(8, size), np.int8)[: size // 8 * 8].view(np.uint64)
    taken = []
    for _ in range(tries):
        begin = time.perf_counter()
        np.bitwise_or.reduce(data)
        taken.append(1000 * (time.perf_counter() - begin))
    return min(taken)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks vectors", description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=20_000, metavar="N", help="vectors to add [20000]"
    )
    parser.add_argument(
        "--dimension",
        type=int,
        default=384,
        metavar="N",
        help="numbers in a clustered vector [384]",
    )
    parser.add_argument(
        "--queries", type=int, default=200, metavar="N", help="searches to time [200]"
    )
    parser.add_argument(
        "--data",
        type=Path,
        action="append",
        metavar="DIR",
        help="a folder in BEIR layout: embed its texts",
    )
    parser.add_argument(
        "--model",
        default="",
        metavar="NAME",
        help="with --data: embed by this model [the best installed]",
    )
    rivals.add_options(parser)
    return parser.parse_args(arguments)
