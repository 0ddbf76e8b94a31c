"""What every command prints with --json, and those that find or list something as text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import click
import pytest

from mcpvectordb import Database
from mcpvectordb.cli.main import COMMANDS as NAMES
from mcpvectordb.cli.main import program
from tests.goldens.recorded import Recorded
from tests.support_cli import Commands

COMMANDS = [
    "status",
    "list",
    "list notes --limit 2 --offset 1",
    "list --where metadata.year=2026",
    "list nowhere",
    "search key",
    "search certificate --mode text --unit document",
    "search tea --library code --explain",
    "search xylophone",
    "search tea --where metadata.yeer=2026",
    "grep tea|pump",
    "grep (",
    "verify rotated%every%ninety%days",
    "verify xylophone keys.md",
    "get keys.md",
    "get keys.md:3 --lines 2",
    "get kees.md",
    "multi-get notes/2*/plan.md",
    "library list",
    "model list",
    "update tea.md -m good=true",
    "ingest new.md --library new --no-embed",
    "ingest missing.md",
    "delete new/new.md",
    "delete nothing.md",
    "history",
    "history tea.md",
    "undo --yes",
    "redo --yes",
    "undo --yes",
    "undo 999 --yes",
    "forget tea.md --for-good --yes",
    "export out.jsonl",
    "export out.jsonl",
    "import out.jsonl --dry-run",
    "merge other.db",
    "sync-with other.db",
    "sync",
    "embed",
    "check",
    "compact",
    "salvage house.db saved.db",
    "remember The%pump%is%blue. --project plant --tag colour",
    "memories list --project plant",
    "memories search pump --project plant",
    "memories show 999",
]
# The same and more as people read it, before anything is changed.
AS_TEXT = [
    "search key --files",
    "search key --md",
    "search key --csv",
    "search key --xml",
    "search key --explain --mode text",
    "search key --json --md",
    "search key --csv --xml",
    "search key --expand",
    "search key --unit document --expand",
    "search key --newer 30d",
    "search key --newer lately",
    *(f"search zebra --{form}" for form in ("files", "md", "csv", "xml")),
    "list notes",
    "list notes/2026",
    "list tea.md",
    "list --where metadata.x=1",
    "get tea.md",
    "get tea.md:2 --lines 1 --line-numbers",
    "get tea.md:1:1",
    "get tea.md:99",
    "get tea.md --lines 0",
    "multi-get notes/*.md --lines 1",
    "multi-get keys.md,tea.md,keys.md --max-bytes 60",
    "multi-get *.txt",
    "grep tea|pump",
    "grep -F -i TEA --limit 1",
    "grep nowhere",
    "verify rotated%every%ninety%days",
    "verify ROTATED%every",
    "verify rotated%every tea.md",
    "verify xylophone",
    "library list",
    "history tea.md",
    "update tea.md",
    "delete tea.md nowhere.md",
    "delete keys.md tea.md:2",
]
# They need a server, a real model or minutes; their own tests have them.
WITHOUT = {"publish", "web", "serve", "setup", "grant"}


def test_every_command_prints_what_is_recorded(
    house: Database, tmp_path: Path, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.md").write_text("# New\n\nA new text.\n")
    house.copy_to(tmp_path / "other.db")
    house.close()
    shutil.copy(tmp_path / "house.db", tmp_path / "notes.db")
    shell, printed = Commands(tmp_path), []
    for number, line in enumerate([*AS_TEXT, *COMMANDS]):
        words = [word.replace("%", " ") for word in line.split()]
        json_too = ["--json"] if number >= len(AS_TEXT) and _takes_json(words) else []
        result = shell.invoke(*words, *json_too)
        printed.append(
            {
                "command": " ".join([*words, *json_too]),
                "code": result.exit_code,
                "out": _values(result.stdout),
                "err": result.stderr or str(result.exception or ""),
            }
        )
    recorded("shell", printed)


def test_every_command_with_json_is_recorded() -> None:
    run = {line.split()[0] for line in COMMANDS}
    assert {name for name in NAMES if _takes_json([name])} - WITHOUT <= run


def _takes_json(words: list[str]) -> bool:
    command: click.Command | None = program
    for word in words:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(click.Context(command), word)
    return command is not None and any("--json" in each.opts for each in command.params)


def _values(out: str) -> Any:
    """What was printed, as JSON where it is."""
    try:
        return json.loads(out)
    except ValueError:
        return out
