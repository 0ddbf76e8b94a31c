"""What it costs to begin: `python -m benchmarks start --rival chroma`.

Commands are run from start to end, servers until they have listed their tools, all in turn; what
bare Python takes (or a bare server on the SDK) is taken off. A search in the shell is asked of a
file with some passages; its target is of all that it takes. Engines with some vectors are opened in
a fresh process, after numpy is loaded, and asked once. Run it in an environment in which the
package is not installed for editing: that takes 13 ms in every Python.
"""

from __future__ import annotations

import argparse
import compileall
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks import embeddings, engines, report, rivals, texts
from benchmarks.processes import ROOT, Server, Spent, spent_by
from benchmarks.rivals import OURS, Plan, Runs
from benchmarks.store import say
from mcpvectordb import Database

COMMANDS = {
    "bare Python": ["-c", "pass"],
    "import mcpvectordb": ["-c", "import mcpvectordb"],
    "from mcpvectordb import Database": ["-c", "from mcpvectordb import Database"],
    "mcpvectordb --help": ["-m", "mcpvectordb", "--help"],
}
BARE_SERVER = "bare SDK server to tools/list"
OUR_SERVER = "mcpvectordb-server to tools/list"
BASES = {BARE_SERVER: "bare Python", OUR_SERVER: BARE_SERVER}
SEARCHES = {
    "mcpvectordb search --mode text": ["--mode", "text", "python"],
    "mcpvectordb search": ["python"],
}
OVER, WHOLE = "CPU ms over bare", "CPU ms"
TARGETS = {
    "import mcpvectordb": (OVER, 60.0),
    "mcpvectordb --help": (OVER, 60.0),
    "mcpvectordb search --mode text": (WHOLE, 150.0),
    "mcpvectordb search": (WHOLE, 450.0),
    OUR_SERVER: (OVER, 100.0),
}
PASSAGES = 40


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    names = [OURS, *rivals.chosen(options.rival, "close", "be opened")]
    with tempfile.TemporaryDirectory(prefix="start-") as temporary:
        folder = Path(temporary)
        spent = measure(filled(folder / "notes.db"), folder / "server.db", options.rounds)
        runs = opened(folder, options.cache or folder / "cache", names, options)
    rows = [line(what, spent) for what in spent] + [opening(each) for each in runs.values()]
    report.show(
        rows, [f"{row['what']}: {met(row)}." for row in rows if row["target"]], as_json=options.json
    )


def filled(path: Path) -> Path:
    """A file with some passages, embedded by the best model that is installed."""
    passages = texts.passages(PASSAGES)
    with Database(path) as db:
        db.documents.ingest_many(passages, sources=[f"{number}.md" for number in range(PASSAGES)])
    return path


def measure(notes: Path, path: Path, rounds: int) -> dict[str, list[Spent]]:
    """What each of our commands and servers took, in every round."""
    for package in ("mcpvectordb", "mcpvectordb_server"):
        compileall.compile_dir(ROOT / package, quiet=1)  # as it is after an installation
    search = ["-m", "mcpvectordb", "--db", str(notes), "search"]
    commands = COMMANDS | {what: [*search, *words] for what, words in SEARCHES.items()}
    works: dict[str, Callable[[], Spent]] = {
        what: partial(spent_by, [sys.executable, *arguments])
        for what, arguments in commands.items()
    }
    works |= {
        BARE_SERVER: lambda: Server("-m", "benchmarks.bare_server").end(),
        OUR_SERVER: lambda: Server("-m", "mcpvectordb_server", "--db", path).end(),
    }
    spent: dict[str, list[Spent]] = {what: [] for what in works}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}: commands and servers")
        for what, work in works.items():
            spent[what].append(work())
    return spent


def opened(
    folder: Path, cache: Path, names: list[str], options: argparse.Namespace
) -> dict[str, Runs]:
    """Engines, filled and then opened anew for one query in every round."""
    rows, queries = embeddings.clustered(options.rows, 384, 1)
    passages = texts.passages(options.rows // 10)
    rivals.write(
        folder,
        rows=rows,
        queries=queries,
        texts=passages,
        questions=[{"any": ["python"], "all": [], "none": []}],
    )
    plans = {
        name: Plan(("add_vectors" if engines.can(name, "nearest") else "add_texts",), ("first",))
        for name in names
    }
    return rivals.measured(folder, cache, plans, options.rounds)


def line(what: str, spent: dict[str, list[Spent]]) -> report.Row:
    """The figures of one command, over what its base took in the same round."""
    base = spent[BASES.get(what, "bare Python")]
    over = [each.cpu - below.cpu for each, below in zip(spent[what], base, strict=True)]
    return {
        "what": what,
        "ms": median(each.wall for each in spent[what]),
        WHOLE: median(each.cpu for each in spent[what]),
        OVER: median(over) if spent[what] is not base else None,
        "target": f"{TARGETS[what][1]:g} {TARGETS[what][0]}" if what in TARGETS else None,
    }


def met(row: report.Row) -> str:
    """Whether a target is met, in words."""
    measured, target = TARGETS[row["what"]]
    return f"{report.written(row[measured])} {measured}, {report.verdict(row[measured], target)}"


def opening(runs: Runs) -> report.Row:
    """The figures of one engine: import, open, first answer."""
    wall, cpu = (
        sum(runs.took(step, clock) for step in ("open", "first")) for clock in ("wall", "cpu")
    )
    return {
        "what": f"{runs.engine} {runs.version}: import, open, first answer",
        "ms": wall,
        WHOLE: None,
        OVER: cpu,
        "target": None,
    }


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks start", description=__doc__)
    parser.add_argument(
        "--rows",
        type=int,
        default=10_000,
        metavar="N",
        help="vectors that the engines have [10000]",
    )
    rivals.add_options(parser, rounds=11)
    return parser.parse_args(arguments)
