"""What adding and searching cost as the rows grow: `python -m benchmarks growth --rival chroma
--svg growth.svg`.

Vectors are clustered. A cost that grows with the rows shows as the same figure per row (or thousand
rows) at each size.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import pairwise
from pathlib import Path

from benchmarks import embeddings, report, rivals, vectors
from benchmarks.engines import GROUPS
from benchmarks.rivals import OURS, Runs
from benchmarks.svg import Chart, drawing

SIZES = [10_000, 100_000]
MILLION = 1_000_000
# times what a row costs in the largest file, of what it costs in the one before: above, it is not
# linear
LINEAR = 1.1


def main(arguments: list[str]) -> None:
    """Read the options, measure, print and plot."""
    options = _options(arguments)
    names = rivals.chosen(options.rival, "nearest", "search vectors")
    rows: list[report.Row] = []
    with tempfile.TemporaryDirectory(prefix="growth-") as temporary:
        for size in options.sizes + ([MILLION] if options.million else []):
            folder = Path(temporary) / str(size)
            folder.mkdir()
            engines = [OURS, *(name for name in names if size <= options.rival_rows)]
            rows += measure(
                folder, options.cache or Path(temporary) / "cache", size, engines, options
            )
    if options.svg:
        options.svg.write_text(plot(rows))
    report.show(
        rows,
        [summary(rows, what) for what in ("search: CPU ms", "1 %: CPU ms")],
        as_json=options.json,
    )


def measure(
    folder: Path, cache: Path, size: int, names: list[str], options: argparse.Namespace
) -> list[report.Row]:
    """The figures of every engine at one size."""
    data, queries = embeddings.clustered(size, options.dimension, options.queries)
    rivals.write(folder, rows=data, queries=queries)
    runs = rivals.measured(folder, cache, dict.fromkeys(names, vectors.PLAN), options.rounds)
    right = {
        "nearest": vectors.nearest(data, queries),
        "filtered": vectors.nearest(data, queries, GROUPS),
    }
    return [line(each, size, right) for each in runs.values()]


def line(runs: Runs, size: int, right: dict[str, list[set[int]]]) -> report.Row:
    """The figures of one engine at one size; costs per row in microseconds."""
    row: report.Row = {
        "rows": size,
        "engine": runs.engine,
        "added: CPU µs per row": 1000 * runs.took("add_vectors", "cpu") / size,
    }
    for what, step in (("search", "nearest"), ("1 %", "filtered")):
        row |= {
            f"{what}: {name}": value
            for name, value in vectors.searching(runs, step, right[step]).items()
        }
    return row | {
        "search: CPU µs per 1,000 rows": 1e6 * runs.took("nearest", "cpu") / size,
        "peak MB": runs.peak() / 1e6,
        "MB on disk": runs.filled["bytes"] / 1e6,
    }


def summary(rows: list[report.Row], what: str) -> str:
    """How the cost of ours grows from one size to the next, in words."""
    ours = [row for row in rows if row["engine"] == OURS]
    steps = [
        (after["rows"] / before["rows"], after[what] / before[what])
        for before, after in pairwise(ours)
    ]
    grown = ", ".join(
        f"{cost:.1f} times for {more:g} times the rows "
        f"({'linear or less' if cost <= LINEAR * more else 'MORE'})"
        for more, cost in steps
    )
    return f"{what} grows {grown or 'not: there is one size only'}."


def plot(rows: list[report.Row]) -> str:
    """Latency and memory against the number of rows."""

    def chart(title: str, up: str, what: str) -> Chart:
        return Chart(
            title,
            "rows",
            up,
            {
                name: [(row["rows"], row[what]) for row in rows if row["engine"] == name]
                for name in dict.fromkeys(row["engine"] for row in rows)
            },
        )

    return drawing(
        [
            chart("The ten nearest", "CPU milliseconds", "search: CPU ms"),
            chart("The ten nearest of 1 %", "CPU milliseconds", "1 %: CPU ms"),
            chart("ResidentEntries while searching", "MB at most", "peak MB"),
        ]
    )


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks growth", description=__doc__)
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=SIZES,
        metavar="N",
        help="how many rows [10000 100000]",
    )
    parser.add_argument(
        "--million",
        action="store_true",
        help="a million rows too: 6 GB of disk, 6 of memory, minutes",
    )
    parser.add_argument(
        "--rival-rows",
        type=int,
        default=100_000,
        metavar="N",
        help="most rows that rivals get [100000]",
    )
    parser.add_argument(
        "--dimension", type=int, default=384, metavar="N", help="numbers in a vector [384]"
    )
    parser.add_argument(
        "--queries", type=int, default=100, metavar="N", help="searches to time [100]"
    )
    parser.add_argument(
        "--svg", type=Path, metavar="FILE", help="write a plot of latency and memory here"
    )
    rivals.add_options(parser)
    return parser.parse_args(arguments)
