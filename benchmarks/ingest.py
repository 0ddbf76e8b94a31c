"""How fast files come in, beside what the model alone could do: `python -m benchmarks ingest`.

A folder of Python sources and texts is brought in by a process of its own: read, cut, embedded and
written. Then the ONNX session alone runs on the texts that were embedded, in ways of which the
quicker counts; tokens are those that the session gets, with the special ones. Products alone are
what the machine can do: matrices of the model's sizes, multiplied by ONNX Runtime for as many
tokens; GFLOP are those of these products, which attention and all that is between them add to.
There is no rival: Chroma and others that embed would download a model of their own, and measure
that.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import report, rivals, texts
from benchmarks.ingest_process import ALONE, IN_BATCHES, LAYERS
from benchmarks.processes import figures
from benchmarks.store import say

TARGET = 0.9
OURS = "mcpvectordb, end to end"
EXTENSIONS = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "amx_int8", "asimddp", "i8mm")


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
        runs = measure(folder, options.rounds, options.model)
    rows = [line(way, size, each) for way, each in runs.items()]
    report.show(rows, [summary(rows), extensions()], as_json=options.json)


def plant(folder: Path, characters: int) -> int:
    """Write files of about so many characters into a folder; how many files."""
    folder.mkdir()
    files = texts.files(characters)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return len(files)


def measure(folder: Path, rounds: int, model: str) -> dict[str, list[dict[str, Any]]]:
    """What each way of working took in every round."""
    runs: dict[str, list[dict[str, Any]]] = {OURS: []}
    named = [model] if model else []
    asked = folder / "texts.json"
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        ours = figures(
            "benchmarks.ingest_process", "ours", folder / "files", folder / f"{number}.db", *named
        )
        asked.write_text(json.dumps(ours.pop("texts")))
        raw = figures("benchmarks.ingest_process", "raw", asked, *named)
        runs[OURS].append(raw | ours)  # tokens of the same texts
        for way, took in raw["ways"].items():
            runs.setdefault(way, []).append(raw | took)
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
        "GFLOP/CPU s": runs[0]["gflop"] / cpu,
        "processors busy": cpu / wall,
        "peak MB": median(each["peak"] for each in runs) / 1e6,
    }


def summary(rows: list[report.Row]) -> str:
    """The verdict in words."""
    ours = rows[0]
    alone = [row for row in rows if row["what"] in (ALONE, IN_BATCHES)]
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


def extensions() -> str:
    """Which instructions for products the processor has, where the system says it."""
    info = Path("/proc/cpuinfo")
    known = info.read_text().split() if info.exists() else []
    found = [each for each in EXTENSIONS if each in known]
    return f"Instructions of the processor: {', '.join(found) or 'not known'}."


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks ingest", description=__doc__)
    parser.add_argument(
        "--characters", type=int, default=300_000, metavar="N", help="about how much text [300000]"
    )
    parser.add_argument("--model", default="", choices=LAYERS, help="[the best one installed]")
    rivals.add_options(parser)
    return parser.parse_args(arguments)
