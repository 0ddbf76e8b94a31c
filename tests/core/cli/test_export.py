from __future__ import annotations

import json
from pathlib import Path

from tests.support_cli import PLAN, TEA, Commands


def filled(folder: Path) -> Commands:
    commands = Commands(folder)
    (folder / "tea.md").write_text(TEA)
    (folder / "plan.md").write_text(PLAN)
    commands.run("ingest", "--no-embed", str(folder / "tea.md"))
    commands.run("ingest", "--no-embed", str(folder / "plan.md"), "--library", "work")
    return commands


def test_export_says_what_was_written(tmp_path: Path) -> None:
    shell, out = filled(tmp_path), tmp_path / "out.jsonl"
    assert f"exported to {out} (jsonl): 2 documents" in shell.run("export", str(out))
    assert len(out.read_text("utf-8").splitlines()) == 4
    refused = shell.invoke("export", str(out))
    assert refused.exit_code == 1
    assert "1 document" in shell.run("export", str(out), "--overwrite", "--library", "work")


def test_export_prints_json(tmp_path: Path) -> None:
    shell = filled(tmp_path)
    done = json.loads(shell.run("export", str(tmp_path / "out"), "--format", "markdown", "--json"))
    assert done["format"] == "markdown" and done["documents"] == 2 and done["left_out"] == []
    assert len(list((tmp_path / "out").rglob("*.md"))) == 2
