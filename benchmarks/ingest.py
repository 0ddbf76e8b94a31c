"""How fast files come in, beside what the model alone could do: `python -m benchmarks ingest`.

A folder of Python sources and texts is brought in by a process of its own: read, cut, embedded and
written. Then the ONNX session alone runs on the texts that were embedded, in two ways of which the
quicker counts; tokens are those that the session gets, with the special ones. There is no rival:
Chroma and others that embed would download a model of their own, and measure that.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import report, rivals, texts
from benchmarks.processes import figures
from benchmarks.store import say

TARGET = 0.9
WAYS = ("session alone, in batches", "session alone, one by one")


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    rivals.chosen(
        options.rival,
        "ingest",
        "ingest with a model that is on this machine (it would download its own)",
    )
    with tempfile.TemporaryDirectory(prefix="ingest-") as temporary:
        folder = Path(temporary)
        size = plant(folder / "files", options.characters)
        runs = measure(folder, options.rounds)
    rows = [line(way, size, each) for way, each in runs.items()]
    report.show(rows, [summary(rows)], as_json=options.json)


def plant(folder: Path, characters: int) -> int:
    """Write files of about so many characters into a folder; how many files."""
    folder.mkdir()
    files = texts.files(characters)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return len(files)


def measure(folder: Path, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """What each way of working took in every round."""
    runs: dict[str, list[dict[str, Any]]] = {
        "mcpvectordb, end to end": [],
        **{way: [] for way in WAYS},
    }
    asked = folder / "texts.json"
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        ours = figures(
            "benchmarks.ingest_process", "ours", folder / "files", folder / f"{number}.db"
        )
        asked.write_text(json.dumps(ours.pop("texts")))
        runs["mcpvectordb, end to end"].append(ours)
        raw = figures("benchmarks.ingest_process", "raw", asked)
        ours["tokens"] = raw["tokens"]  # of the same texts
        for place, way in enumerate(WAYS):
            runs[way].append(raw | {"wall": raw["wall"][place], "cpu": raw["cpu"][place]})
    return runs


def line(way: str, files: int, runs: list[dict[str, Any]]) -> report.Row:
    """The figures of one way of working."""
    wall, cpu = (median(each[clock] for each in runs) / 1000 for clock in ("wall", "cpu"))
    chunks = runs[0]["chunks"]
    return {
        "what": way,
        "files": files,
        "chunks": chunks,
        "chunks/s": chunks / wall,
        "chunks/CPU s": chunks / cpu,
        "tokens/s": runs[0]["tokens"] / wall,
        "tokens/CPU s": runs[0]["tokens"] / cpu,
        "processors busy": cpu / wall,
        "peak MB": median(each["peak"] for each in runs) / 1e6,
    }


def summary(rows: list[report.Row]) -> str:
    """The verdict in words."""
    ours, *alone = rows
    shares = {
        unit: ours[unit] / max(row[unit] for row in alone) for unit in ("chunks/s", "chunks/CPU s")
    }
    return (
        f"End to end is {shares['chunks/s']:.0%} of the quicker session alone, by CPU time "
        f"{shares['chunks/CPU s']:.0%}: "
        f"{'at or above' if shares['chunks/s'] >= TARGET else 'BELOW'} the target of {TARGET:.0%}. "
        f"In tokens: {ours['tokens/s']:,.0f} a second, {ours['tokens/CPU s']:,.0f} a CPU second of "
        f"{max(row['tokens/s'] for row in alone):,.0f} and "
        f"{max(row['tokens/CPU s'] for row in alone):,.0f}."
    )


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks ingest", description=__doc__)
    parser.add_argument(
        "--characters", type=int, default=300_000, metavar="N", help="about how much text [300000]"
    )
    rivals.add_options(parser)
    return parser.parse_args(arguments)
