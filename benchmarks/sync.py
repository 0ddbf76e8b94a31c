"""What it costs to sync files that have not changed: `python -m benchmarks sync`.

Compared with a bare walk through the same folders that stats each file: both in turn, in one
process, medians.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.store import say
from mcpvectordb import Database

PER_FOLDER = 100
TARGET = 5.0
# a usual .gitignore
IGNORED = "__pycache__/\n*.py[co]\n/build/\ndist/\n*.log\n!keep.log\nnode_modules/\n.venv/\n"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Milliseconds of CPU and of wall clock, and how many bare walks a sync costs."""

    files: int
    walk_cpu: float
    sync_cpu: float
    walk_wall: float
    sync_wall: float
    ratio: float


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="sync-") as temporary:
        outcome = measure(Path(temporary), options.files, options.rounds)
    print(json.dumps(asdict(outcome)) if options.json else summary(outcome))


def measure(folder: Path, files: int, rounds: int) -> Outcome:
    """Fill a folder, sync it, then time walks and syncs in turn."""
    root = folder / "root"
    say(f"writing and syncing {files:,} files")
    plant(root, files)
    with Database(folder / "sync.db") as db:
        db.documents.add_library("bench", root)
        assert [each.indexed for each in db.documents.sync(embed=False)] == [files]
        walks, syncs = [], []
        for _ in range(rounds):
            walks.append(timed(lambda: bare_walk(str(root)), files))
            syncs.append(timed(lambda: db.documents.sync(embed=False)[0].unchanged, files))
    (walk_cpu, walk_wall), (sync_cpu, sync_wall) = middle(walks), middle(syncs)
    return Outcome(
        files=files,
        walk_cpu=walk_cpu,
        sync_cpu=sync_cpu,
        walk_wall=walk_wall,
        sync_wall=sync_wall,
        ratio=round(sync_cpu / walk_cpu, 2),
    )


def plant(root: Path, files: int) -> None:
    """Small Markdown files, a hundred to a folder, three folders deep."""
    for number in range(files):
        folder = root / f"part {number // PER_FOLDER // 10}" / f"topic {number // PER_FOLDER}"
        if number % PER_FOLDER == 0:
            folder.mkdir(parents=True)
        (folder / f"note {number}.md").write_text(
            f"# Note {number}\n\nA few words about number {number}.\n"
        )
    (root / ".gitignore").write_text(IGNORED)


def bare_walk(root: str) -> int:
    """The least that can be done: list every folder, stat every file; how many."""
    count, folders = 0, [root]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    entry.stat(follow_symlinks=False)
                    count += 1
    return count - 1  # the ignore file


def timed(work: Callable[[], int], expected: int) -> tuple[float, float]:
    """Milliseconds of CPU and of wall clock."""
    cpu, wall = time.process_time(), time.perf_counter()
    found = work()
    spent = 1000 * (time.process_time() - cpu), 1000 * (time.perf_counter() - wall)
    assert found == expected
    return spent


def middle(times: list[tuple[float, float]]) -> tuple[float, float]:
    """The medians."""
    cpu, wall = zip(*times, strict=True)
    return round(median(cpu), 1), round(median(wall), 1)


def summary(outcome: Outcome) -> str:
    """The outcome in words."""
    verdict = "within" if outcome.ratio <= TARGET else "ABOVE"
    return (
        f"{outcome.files:,} unchanged files: bare walk {outcome.walk_cpu} ms CPU "
        f"({outcome.walk_wall} ms), sync {outcome.sync_cpu} ms CPU ({outcome.sync_wall} ms): "
        f"{outcome.ratio} walks, {verdict} the target of {TARGET:g}"
    )


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks sync", description=__doc__)
    parser.add_argument(
        "--files", type=int, default=10_000, metavar="N", help="how many files [10,000]"
    )
    parser.add_argument(
        "--rounds", type=int, default=11, metavar="N", help="how often each is timed [11]"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a sentence")
    return parser.parse_args(arguments)
