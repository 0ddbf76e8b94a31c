"""How much memory is taken: `python -m benchmarks memory --rival chroma`.

A server that has listed its tools, the same one after it has answered with its model, a process
that searches many vectors, and one that brings files in. Linux only. With `--data FILE` it is the
memory of agents that is measured: see `benchmarks.leaderboard`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks import embeddings, ingest, leaderboard, report, rivals, vectors
from benchmarks.processes import Server, figures
from benchmarks.rivals import OURS
from benchmarks.store import say
from mcpvectordb import Database, InvalidInput

IDLE = "mcpvectordb-server, idle, before the model is loaded"
TARGET = 150.0
QUERIES = 50
SEARCH = {"name": "search", "arguments": {"query": "hot drink"}}


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    if options.data:
        others = rivals.chosen(options.rival, "recall", "remember conversations")
        leaderboard.run(
            options.data,
            [*leaderboard.models(options.model), *others],
            options.cache,
            as_json=options.json,
        )
        return
    if options.model:
        raise InvalidInput("--model goes with --data")
    names = [OURS, *rivals.chosen(options.rival, "nearest", "search vectors")]
    with tempfile.TemporaryDirectory(prefix="memory-") as temporary:
        folder, cache = Path(temporary), options.cache or Path(temporary) / "cache"
        found = servers(folder / "server.db", options.rounds)
        ingest.plant(folder / "files", options.characters)
        say("bringing files in")
        ingested = figures(
            "benchmarks.ingest_process", "ours", folder / "files", folder / "ingested.db"
        )
        found["mcpvectordb bringing files in"] = ingested["peak"]
        rows, queries = embeddings.clustered(options.rows, 384, QUERIES)
        rivals.write(folder, rows=rows, queries=queries)
        for name, runs in rivals.measured(
            folder, cache, dict.fromkeys(names, vectors.PLAN), options.rounds
        ).items():
            found[f"{name} {runs.version} searching {len(rows):,} × {rows.shape[1]}"] = runs.peak()
    lines = [
        {"what": what, "MB": taken / 1e6, "target": TARGET if what == IDLE else None}
        for what, taken in found.items()
    ]
    report.show(lines, as_json=options.json)


def servers(path: Path, rounds: int) -> dict[str, float]:
    """The memory of a bare server and of ours, before and after it has used its model."""
    with Database(path) as db:
        db.documents.ingest_text("Green tea is brewed at 80 degrees.", source="tea.txt")
    found: dict[str, list[int]] = {
        "bare SDK server": [],
        IDLE: [],
        "… after a search by words and meaning": [],
    }
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}: servers")
        bare, ours = (
            Server("-m", "benchmarks.bare_server"),
            Server("-m", "mcpvectordb_server", "--db", path),
        )
        now = [bare.memory, ours.memory]
        while not ours.ask("tools/call", SEARCH)["structuredContent"]["results"]:
            time.sleep(0.1)  # it is loading its model, and finds nothing by words meanwhile
        for taken, each in zip([*now, ours.memory], found.values(), strict=True):
            each.append(taken)
        bare.end(), ours.end()
    return {what: median(each) for what, each in found.items()}


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks memory", description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=100_000, metavar="N", help="vectors to search [100000]"
    )
    parser.add_argument(
        "--characters",
        type=int,
        default=100_000,
        metavar="N",
        help="about how much text comes in [100000]",
    )
    parser.add_argument(
        "--data",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="measure how well the turns of conversations are found again: files in the layout of "
        "LoCoMo or REALTALK, folders in that of BEAM",
    )
    parser.add_argument(
        "--model",
        action="append",
        metavar="NAME",
        help=f"with --data: an embedding model, any number of times [{leaderboard.MODEL}]",
    )
    rivals.add_options(parser)
    return parser.parse_args(arguments)
