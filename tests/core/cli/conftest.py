from __future__ import annotations

from pathlib import Path

import pytest

from mcpvectordb import Database
from tests.support import Letters
from tests.support_cli import PLAN, TEA, Commands, Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def filled(shell: Shell) -> Shell:
    """A file with two documents in the library `fruit`, ingested from the folder `notes`."""
    folder = shell.folder / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "apple.md").write_text("---\nyear: 2024\n---\n# Apple\n\nApples are red.\n")
    (folder / "deep" / "pear.txt").write_text("Pears are green.\n")
    (folder / "program.bin").write_bytes(b"\x7fELF\2" + b"\0" * 20)
    (folder / ".hidden.md").write_text("hidden")
    shell.run("ingest", str(folder), "--library", "fruit", "-m", "kind=food", "-m", "n=3")
    return shell


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """A file with three documents in the library `notes`, which follows a folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for name, text in (("tea.md", TEA), ("sub/plan.md", PLAN), ("sub/big.md", "x" * 20_000)):
        (tmp_path / "notes" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "notes" / name).write_text(text)
    with Database(tmp_path / "notes.db", embedder=Letters()) as db:
        db.documents.add_library("notes", tmp_path / "notes", description="my notes")
        db.documents.sync()
    return Commands(tmp_path)
