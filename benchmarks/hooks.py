"""What a hook costs at each event: `python -m benchmarks hooks`.

A file gets many memories, spread over projects and sessions. Then hooks are run as hosts run them,
each in a process of its own, in turn with bare Python, whose CPU time is taken off. At the end of
each turn the transcript has one more turn of a person and one of the model.
"""

from __future__ import annotations

import argparse
import compileall
import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks import report, texts
from benchmarks.processes import ROOT, Spent, spent_by
from benchmarks.store import say
from mcpvectordb import Database, Turn

TARGET = 100.0
PROJECTS, PER_SESSION = 20, 250
EVENTS = ("SessionStart", "Stop", "PreCompact")
BARE = "bare Python"


def main(arguments: list[str]) -> None:
    """Fill a file, run the hooks, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks hooks", description=__doc__)
    parser.add_argument("--memories", type=int, default=100_000, metavar="N")
    parser.add_argument("--rounds", type=int, default=11, metavar="N")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    compileall.compile_dir(ROOT / "mcpvectordb", quiet=1)  # as it is after an installation
    with tempfile.TemporaryDirectory(prefix="hooks-") as temporary:
        folder = Path(temporary)
        fill(folder / "notes.db", options.memories)
        spent = measure(folder, options.rounds)
    over = {
        event: [each.cpu - bare.cpu for each, bare in zip(found, spent[BARE], strict=True)]
        for event, found in spent.items()
    }
    rows: list[report.Row] = [
        {
            "event": event,
            "ms": median(each.wall for each in found),
            "CPU ms": median(each.cpu for each in found),
            "CPU ms over bare": None if event == BARE else median(over[event]),
        }
        for event, found in spent.items()
    ]
    notes = [f"{each}: {report.verdict(median(over[each]), TARGET)} CPU ms." for each in EVENTS]
    report.show(rows, notes, as_json=options.json)


def fill(path: Path, count: int) -> None:
    """Put so many turns into a file, and some facts into each project."""
    passages = texts.passages(min(count, 5_000))
    with Database(path) as db:
        for project in range(PROJECTS):
            db.memories.capture(
                f"p{project}",
                [Turn(id=f"fact {project} {n}", source="user", text=passages[n]) for n in range(5)],
            )
            for number in range(20):
                tags = [("standing", "open", "decision", "note")[number % 4]]
                text = f"{project}.{number} {passages[number][:200]}"
                db.memories.add(f"p{project}", "agent", text, tags=tags)
        for start in range(0, count, PER_SESSION):
            session = start // PER_SESSION
            turns = [
                Turn(
                    id=f"{number}",
                    source="user" if number % 2 else "agent",
                    text=passages[number % len(passages)][:800],
                    time=f"2026-{1 + number * 9 // count:02}-01T00:00:{number % 60:02}Z",
                )
                for number in range(start, min(start + PER_SESSION, count))
            ]
            db.memories.capture(f"p{session % PROJECTS}/claude-code {session}", turns)
            if session % 40 == 0:
                say(f"{start:,} of {count:,} memories")


def measure(folder: Path, rounds: int) -> dict[str, list[Spent]]:
    """What each event took in every round."""
    variables = {"MCPVECTORDB_PROJECT": "p1", "XDG_DATA_HOME": str(folder)}
    transcript = folder / "session.jsonl"
    spent: dict[str, list[Spent]] = {each: [] for each in (BARE, *EVENTS)}
    for number in range(rounds):
        with transcript.open("a") as file:
            for kind in ("user", "assistant"):
                message = {"role": kind, "content": f"Turn {number} of {kind}. " * 30}
                entry = {"type": kind, "uuid": f"{number} {kind}", "message": message}
                file.write(json.dumps(entry) + "\n")
        said = {"session_id": "measured", "transcript_path": str(transcript), "cwd": str(folder)}
        content = json.dumps(said).encode()
        spent[BARE].append(spent_by([sys.executable, "-c", "pass"]))
        for event in EVENTS:
            line = [sys.executable, "-m", "mcpvectordb", "hook", event]
            line += ["--db", str(folder / "notes.db")]
            spent[event].append(spent_by(line, content, variables))
    return spent
