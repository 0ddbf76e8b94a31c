"""How fast vectors are added and found, beside another engine: `python -m benchmarks vectors --rival chroma`.

Both engines get the same clustered vectors, each in a process of its own and in turn, and the medians of the rounds are
compared. The rival is installed into an environment of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import vector_engines
from benchmarks.store import say
from mcpvectordb import InvalidInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

OURS = "mcpvectordb"
RIVALS = {"chroma": ["chromadb"], "lancedb": ["lancedb"], "sqlite-vec": ["sqlite-vec", "apsw", "numpy"],
          "hnswlib": ["hnswlib", "numpy"]}
TARGET = 20.0  # times as fast as Chroma in adding
PER_CLUSTER = 100


@dataclass(frozen=True, slots=True)
class Outcome:
    """Medians: vectors added per second, milliseconds per query, each by the clock and by the processor's time."""

    engine: str
    version: str
    rows: int
    dimension: int
    added_per_second: float
    added_per_cpu_second: float
    search_ms: float
    search_cpu_ms: float
    recall_10: float
    megabytes: float


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="vectors-") as temporary:
        pythons = {OURS: Path(sys.executable)}
        if options.rival != "none":
            pythons[options.rival] = interpreter(options.cache or Path(temporary), options.rival)
        outcomes = measure(pythons, options.rows, options.dimension, options.queries, options.rounds)
    print(json.dumps([asdict(each) for each in outcomes], indent=2) if options.json else table(outcomes))


def measure(pythons: dict[str, Path], rows: int, dimension: int, queries: int, rounds: int) -> list[Outcome]:
    """Run every engine once a round with its interpreter; the figures of each."""
    data, asked = clustered(rows, dimension, queries)
    truth = nearest(data, asked, vector_engines.NEAREST)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in pythons}
    with tempfile.TemporaryDirectory(prefix="vectors-") as temporary:
        _save(Path(temporary) / "data.npz", data, asked)
        for number in range(rounds):
            for name, python in pythons.items():
                say(f"round {number + 1} of {rounds}: {name}")
                runs[name].append(_run(python, name, Path(temporary), number))
    return [_outcome(name, each, data.shape, truth) for name, each in runs.items()]


def clustered(rows: int, dimension: int, queries: int, seed: int = 1) -> tuple[Matrix, Matrix]:
    """Unit vectors in clusters of about 100, as texts on the same matter are; queries are of the same kind."""
    import numpy as np

    random = np.random.default_rng(seed)
    centres = random.standard_normal((max(1, rows // PER_CLUSTER), dimension), np.float32)

    def some(count: int) -> Matrix:
        vectors = centres[random.integers(len(centres), size=count)] + random.standard_normal((count, dimension), np.float32)
        unit: Matrix = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit

    return some(rows), some(queries)


def nearest(rows: Matrix, queries: Matrix, count: int) -> list[set[int]]:
    """The numbers of the rows that are nearest to each query, by exact comparison of unit vectors."""
    import numpy as np

    return [set(np.argpartition(-(rows @ query), min(count, len(rows) - 1))[:count].tolist()) for query in queries]


def recall(found: list[list[int]], truth: list[set[int]]) -> float:
    """The share of the true neighbours that were found."""
    return sum(len(wanted.intersection(got)) for wanted, got in zip(truth, found, strict=True)) / sum(map(len, truth))


def interpreter(cache: Path, rival: str) -> Path:
    """The Python of a rival's environment, made now if it is not there yet."""
    folder = cache / rival
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = folder / "installed"
    if not done.exists():
        say(f"installing {rival} into {folder}")
        venv.create(folder, with_pip=True, clear=True)
        result = subprocess.run([python, "-m", "pip", "install", "--quiet", *RIVALS[rival]], capture_output=True, text=True)
        if result.returncode:
            raise InvalidInput(f"{rival} cannot be installed: {result.stderr.strip().splitlines()[-1]}")
        done.touch()
    return python


def table(outcomes: list[Outcome]) -> str:
    """The outcomes as a Markdown table, and the first in proportion to the second below it."""
    lines = ["| engine | version | vectors | added/s | added/CPU s | ms per query | CPU ms | recall@10 | MB |",
             "|---|---|--:|--:|--:|--:|--:|--:|--:|"]
    lines += [f"| {o.engine} | {o.version} | {o.rows} × {o.dimension} | {o.added_per_second:,.0f} | "
              f"{o.added_per_cpu_second:,.0f} | {o.search_ms:.2f} | {o.search_cpu_ms:.2f} | {o.recall_10:.3f} | "
              f"{o.megabytes:.1f} |" for o in outcomes]
    if len(outcomes) == 2:
        lines += ["", compared(*outcomes)]
    return "\n".join(lines)


def compared(ours: Outcome, rival: Outcome) -> str:
    """How many times as fast we are, by the clock and by CPU time."""
    goal = f", target {TARGET:.0f}" if rival.engine == "chroma" else ""
    adding = ours.added_per_second / rival.added_per_second, ours.added_per_cpu_second / rival.added_per_cpu_second
    searching = rival.search_ms / ours.search_ms, rival.search_cpu_ms / ours.search_cpu_ms
    return (f"Times as fast as {rival.engine} (by CPU time): adding {adding[0]:.1f} ({adding[1]:.1f}{goal}), "
            f"searching {searching[0]:.1f} ({searching[1]:.1f}).")


def _save(path: Path, rows: Matrix, queries: Matrix) -> None:
    import numpy as np

    np.savez(path, rows=rows, queries=queries)


def _run(python: Path, engine: str, temporary: Path, number: int) -> dict[str, Any]:
    folder = temporary / f"{engine}-{number}"
    folder.mkdir()
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent) if engine == OURS else ""}
    result = subprocess.run([python, vector_engines.__file__, engine, folder, temporary / "data.npz"],
                            capture_output=True, text=True, env=environ)
    if result.returncode:
        raise InvalidInput(f"{engine} failed: {result.stderr.strip()[-500:]}")
    figures: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return figures


def _outcome(engine: str, runs: list[dict[str, Any]], shape: tuple[int, ...], truth: list[set[int]]) -> Outcome:
    def middle(name: str) -> float:
        return float(median(run[name] for run in runs))

    rows, dimension = shape
    return Outcome(
        engine=engine, version=runs[0]["version"], rows=rows, dimension=dimension,
        added_per_second=round(rows / middle("add"), 1), added_per_cpu_second=round(rows / middle("add_cpu"), 1),
        search_ms=round(middle("search"), 3), search_cpu_ms=round(middle("search_cpu"), 3),
        recall_10=round(median(recall(run["found"], truth) for run in runs), 4), megabytes=round(middle("bytes") / 1e6, 1))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks vectors", description=__doc__)
    parser.add_argument("--rival", choices=[*RIVALS, "none"], default="none", help="the engine to compare with [none]")
    parser.add_argument("--rows", type=int, default=20_000, metavar="N", help="vectors to add [20000]")
    parser.add_argument("--dimension", type=int, default=384, metavar="N", help="numbers in a vector [384]")
    parser.add_argument("--queries", type=int, default=200, metavar="N", help="searches to time [200]")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="runs of each engine [3]")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep the rival's environment here for the next run")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args(arguments)
