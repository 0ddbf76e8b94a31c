"""Runs one engine: `python -m benchmarks.engines ENGINE FOLDER DATA STEP...`.

Prints the times and results as JSON.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.engines import GROUPS, opened
from benchmarks.engines.clocks import Timed, peak, timed

WARM = 5  # queries that are not timed: what is done once is not the time of a query


class Steps:
    """What can be asked of an engine, with the data of a folder."""

    def __init__(self, engine: Any, data: Path) -> None:
        self._engine, self._data = engine, data

    def add_vectors(self) -> Timed:
        """All rows."""
        return timed([partial(self._engine.add_vectors, self._numbers("rows"))])

    def add_texts(self) -> Timed:
        """All passages."""
        return timed([partial(self._engine.add_texts, self._read("texts"))])

    def add_both(self) -> Timed:
        """All passages with their rows."""
        return timed([partial(self._engine.add_both, self._read("texts"), self._numbers("rows"))])

    def first(self) -> Timed:
        """The first query, whatever must be loaded for it: by a vector if there is one."""
        if hasattr(self._engine, "nearest") and (self._data / "queries.npy").exists():
            return timed([partial(self._engine.nearest, self._numbers("queries")[0], None)])
        return timed([partial(self._engine.matching, self._read("questions")[0])])

    def nearest(self) -> Timed:
        """Every vector among all rows."""
        return self._asked(
            [partial(self._engine.nearest, each, None) for each in self._numbers("queries")]
        )

    def filtered(self) -> Timed:
        """Every vector among the rows of one group."""
        return self._asked(
            [
                partial(self._engine.nearest, each, number % GROUPS)
                for number, each in enumerate(self._numbers("queries"))
            ]
        )

    def matching(self) -> Timed:
        """Every question by words."""
        return self._asked(
            [partial(self._engine.matching, each) for each in self._read("questions")]
        )

    def warm(self) -> Timed:
        """What a process that lives on reads before it is asked."""
        return timed([partial(self._engine.warm, self._numbers("queries").shape[1])])

    def both(self) -> Timed:
        """Every question by words and by its vector."""
        pairs = zip(self._read("questions"), self._numbers("queries"), strict=True)
        return self._asked([partial(self._engine.both, words, vector) for words, vector in pairs])

    def remember(self) -> Timed:
        """The turns of every conversation."""
        return timed(
            [
                partial(self._engine.remember, each["name"], each["turns"])
                for each in self._read("conversations")
            ]
        )

    def recall(self) -> Timed:
        """Every question about every conversation."""
        return self._asked(
            [
                partial(self._engine.recall, each["name"], question)
                for each in self._read("conversations")
                for question in each["questions"]
            ]
        )

    def _asked(self, works: list[Callable[[], Any]]) -> Timed:
        for work in works[:WARM]:
            work()
        return timed(works)

    def _numbers(self, name: str) -> Any:
        import numpy as np

        return np.load(self._data / f"{name}.npy")

    def _read(self, name: str) -> Any:
        return json.loads((self._data / f"{name}.json").read_text())


def run(name: str, folder: Path, data: Path, steps: list[str]) -> dict[str, Any]:
    """Open an engine, run the steps, close it; the figures of each step, process and folder."""
    # what every engine needs sooner or later is not the time of the first to ask for it
    import numpy  # noqa: F401

    engines: list[Any] = []
    figures: dict[str, Any] = {"open": timed([lambda: engines.append(opened(name, folder))])}
    for step in steps:
        figures[step if step not in figures else f"{step} again"] = getattr(
            Steps(engines[0], data), step
        )()
    packages = engines[0].packages
    engines[0].close()
    return figures | {
        "version": version(_distribution(packages[0])),
        "peak": peak(),
        "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
    }


def _distribution(requirement: str) -> str:
    """The name in a requirement: without extras and versions."""
    return re.split(r"[\[<>=;]", requirement)[0]


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])))
