"""This library and other engines on the same data, in turns, each in a process of its own."""

from __future__ import annotations

import argparse
import json
import sys
import venv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import engines, processes
from benchmarks.metrics import percentile
from benchmarks.store import say
from mcpvectordb import InvalidInput

OURS = "mcpvectordb"
HERE = (OURS, "fts5")  # they run by the interpreter that runs this, which has all they need
RIVALS = tuple(name for name in engines.NAMES if name != OURS)


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps by which an engine is filled, once, and asked, every round."""

    fill: tuple[str, ...]
    ask: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Runs:
    """The figures of one engine: of filling it, and of every round in which it was asked."""

    engine: str
    filled: dict[str, Any]
    asked: list[dict[str, Any]]

    @property
    def version(self) -> str:
        """The engine's own."""
        return str(self.filled["version"])

    def took(
        self, step: str, clock: str = "wall", share: float = 0.5, only: Sequence[int] | None = None
    ) -> float:
        """The median (or another quantile) of query times; of several rounds the median."""
        return median(
            percentile(_some(figures[step][clock], only), share) for figures in self._rounds(step)
        )

    def found(self, step: str, only: Sequence[int] | None = None) -> list[list[int]]:
        """What was found by each query, in the last round."""
        return _some(self._rounds(step)[-1][step]["found"], only)

    def peak(self) -> float:
        """The most memory that it had while it was asked, in bytes."""
        return float(median(figures["peak"] for figures in self.asked))

    def _rounds(self, step: str) -> list[dict[str, Any]]:
        return [self.filled] if step in self.filled and step != "open" else self.asked


def add_options(parser: argparse.ArgumentParser, rounds: int = 3) -> None:
    """The options that every benchmark with rivals has."""
    parser.add_argument(
        "--rival",
        action="append",
        type=_rival,
        metavar="NAME",
        help=f"an engine to compare with, any number of times: {', '.join(RIVALS)} [none]; one may "
        "be named with a setting, a graph with the entries that it keeps while it searches: "
        "hnswlib@400",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=rounds,
        metavar="N",
        help=f"how often each is measured [{rounds}]",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="keep environments and embeddings here for the next run",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _rival(name: str) -> str:
    """A name of a rival as it was given, or "none"; an error for any other."""
    if engines.base(name) not in (*RIVALS, "none"):
        raise argparse.ArgumentTypeError(
            f"invalid choice: {name!r} (choose from {', '.join([*RIVALS, 'none'])})"
        )
    return name


def chosen(names: Iterable[str] | None, verb: str, what: str) -> list[str]:
    """The rivals that were named; raises if one lacks the verb, and names those with it."""
    rivals = [name for name in dict.fromkeys(names or ()) if name != "none"]
    able = [name for name in RIVALS if engines.can(name, verb)]
    for name in rivals:
        if engines.base(name) not in able:
            raise InvalidInput(
                f"{name} cannot {what}: of the rivals {', '.join(able) or 'none'} can"
            )
    return rivals


def measured(folder: Path, cache: Path, plans: dict[str, Plan], rounds: int) -> dict[str, Runs]:
    """Fill every engine with what `write` has put into the folder, then ask them in turn."""
    pythons = {name: interpreter(cache, name) for name in plans}
    filled = {}
    for name, plan in plans.items():
        base = engines.base(name)
        if base not in filled:
            say(f"filling {base}")
            (folder / base).mkdir()
            filled[base] = _run(pythons[name], base, folder, plan.fill)
        filled[name] = filled[base]
    asked: dict[str, list[dict[str, Any]]] = {name: [] for name in plans}
    for number in range(rounds):
        for name, plan in plans.items():
            if plan.ask:
                say(f"round {number + 1} of {rounds}: {name}")
                asked[name].append(_run(pythons[name], name, folder, plan.ask))
    return {name: Runs(name, filled[name], asked[name]) for name in plans}


def once(folder: Path, cache: Path, name: str, steps: Iterable[str]) -> dict[str, Any]:
    """The figures of an engine that is filled and asked by one process, with a setting if named."""
    (folder / name).mkdir()
    return processes.figures(
        "benchmarks.engines", name, folder / name, folder, *steps, python=interpreter(cache, name)
    )


def write(folder: Path, **data: Any) -> None:
    """Put data where engines find it: arrays as they are, lists as JSON."""
    import numpy as np

    for name, values in data.items():
        if isinstance(values, np.ndarray):
            np.save(folder / f"{name}.npy", values)
        else:
            (folder / f"{name}.json").write_text(json.dumps(values))


def interpreter(cache: Path, name: str) -> Path:
    """The Python of an engine's environment, made now if it is not there yet."""
    base = engines.base(name)
    if base in HERE:
        return Path(sys.executable)
    engine, folder = engines.load(base), cache / base
    needed = getattr(engine, "python", (3,))
    if sys.version_info < needed:
        raise InvalidInput(
            f"{base} needs Python {'.'.join(map(str, needed))} or later: run this benchmark with it"
        )
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    installed, packages = folder / "installed", "\n".join(engine.packages)
    if not installed.exists() or installed.read_text() != packages:
        say(f"installing {base} into {folder}")
        venv.create(folder, with_pip=True, clear=True)
        processes.run([python, "-m", "pip", "install", "--quiet", *engine.packages])
        installed.write_text(packages)
    return python


def recall(found: Sequence[Sequence[int]], right: Sequence[Iterable[int]]) -> float:
    """The share of what should have been found that was, where at most NEAREST of each can be."""
    pairs = [(set(got), set(wanted)) for got, wanted in zip(found, right, strict=True)]
    possible = sum(min(engines.NEAREST, len(wanted)) for _, wanted in pairs)
    return sum(len(got & wanted) for got, wanted in pairs) / possible if possible else 1.0


def against(ours: Runs, theirs: Runs, steps: Mapping[str, tuple[str, Sequence[int] | None]]) -> str:
    """One sentence: how many times as fast we are, by step and positions of queries."""

    def times(step: str, only: Sequence[int] | None) -> str:
        wall, cpu = (
            theirs.took(step, clock, only=only) / ours.took(step, clock, only=only)
            for clock in ("wall", "cpu")
        )
        return f"{wall:.1f} ({cpu:.1f})"

    parts = [f"{what} {times(*step)}" for what, step in steps.items()]
    return f"Times as fast as {theirs.engine} (by CPU time): {', '.join(parts)}."


def _run(python: Path, name: str, folder: Path, steps: Iterable[str]) -> dict[str, Any]:
    return processes.figures(
        "benchmarks.engines", name, folder / engines.base(name), folder, *steps, python=python
    )


def _some(values: list[Any], only: Sequence[int] | None) -> list[Any]:
    return values if only is None else [values[position] for position in only]
