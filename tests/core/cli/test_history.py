from __future__ import annotations

import json
import time
from pathlib import Path

from mcpvectordb import Database, InvalidInput, NotFound
from tests.support import Letters
from tests.support_cli import PLAN, TEA, Commands


def test_a_mistaken_deletion_is_back_with_one_command(notes: Commands) -> None:
    notes.run("delete", "tea.md")
    listed = notes.run("history", "--since", "2d")
    assert "shell" in listed and "deleted notes/tea.md" in listed and "sync" in listed
    assert "restored notes/tea.md" in notes.run("undo", "--yes")
    assert notes.run("get", "tea.md") == TEA
    shown = notes.invoke("redo", "--yes", "--json")
    assert json.loads(shown.stdout)["removed"] == ["notes/tea.md"]
    assert "shell, undo" in shown.stderr  # which change it takes back is said before
    assert isinstance(notes.invoke("get", "tea.md").exception, NotFound)


def test_a_diff_shows_what_changes_did(notes: Commands) -> None:
    notes.run("delete", "plan.md")
    shown = notes.run("history", "plan.md", "--diff")
    assert "-The budget for 2025." in shown and "Pour it." not in shown
    listed = json.loads(notes.run("history", "notes/sub/plan.md", "--diff", "--json"))
    assert [each["items"][0]["kind"] for each in listed["changes"]] == ["deleted", "added"]
    assert len(listed["diffs"]) == 2


def test_a_document_is_printed_as_it_was(notes: Commands) -> None:
    with Database(notes.db, embedder=Letters()) as db:
        (notes.folder / "notes" / "tea.md").write_text("colder")
        db.documents.sync(embed=False)
        before = db.history("tea.md")[1].number
    assert notes.run("get", "tea.md") == "colder"
    assert notes.run("get", "tea.md", "--as-of", str(before)) == TEA
    assert notes.run("get", "tea.md", "--as-of", "today") == "colder"
    notes.run("delete", "tea.md")
    assert notes.run("get", "tea.md", "--as-of", str(before)) == TEA
    assert "tea.md as of today;" in str(notes.invoke("get", "tea.md", "--as-of", "today").exception)
    for none in ("soon", str(10**23), "9" * 5000, "99", "0"):
        failed = notes.invoke("get", "tea.md", "--as-of", none).exception
        assert isinstance(failed, InvalidInput) and "as_of" in str(failed)
        assert len(str(failed)) < 400


def test_a_clock_that_was_ahead_is_set_back_by_a_person(notes: Commands) -> None:
    with Database(notes.db, embedder=Letters()) as db:
        db._history.wall_clock = lambda: time.time() + 9 * 365 * 86_400
        db.documents.ingest_text("from 2035", source="wrong.md")
    assert "rebuild --clock" in notes.invoke("check").stdout
    refused = notes.invoke("rebuild", "--clock")
    assert refused.exit_code == 1 and "by this machine's clock" in refused.stderr
    assert notes.run("rebuild", "--clock", "--yes") == "rebuilt\n"
    assert notes.run("check") == "sound\n"
    assert "removed default/wrong.md" in notes.run("undo", "--yes")


def test_history_is_turned_off_and_on(notes: Commands) -> None:
    assert "say --yes" in notes.invoke("history", "off").stderr
    assert notes.run("history", "off", "--yes") == "history is off\n"
    notes.run("delete", "tea.md")
    assert notes.run("history") == ""
    assert isinstance(notes.invoke("undo", "--yes").exception, NotFound)
    assert notes.run("history", "on") == "history is on\n"


def test_forget_wants_to_hear_that_it_is_for_good(notes: Commands) -> None:
    refused = notes.invoke("forget", "plan.md", "--yes")
    assert refused.exit_code == 1 and "--for-good" in refused.stderr
    assert notes.run("get", "plan.md") == PLAN
    assert "forgotten plan.md" in notes.run("forget", "plan.md", "--for-good", "--yes")
    assert b"budget" not in notes.db.read_bytes().lower()
    assert isinstance(notes.invoke("history", "plan.md").exception, NotFound)


def test_copies_are_merged_and_synced(notes: Commands, tmp_path: Path) -> None:
    notes.run("copy", "laptop.db")
    with Database(tmp_path / "laptop.db", embedder=Letters()) as db:
        db.documents.ingest_text("new", source="new.md")
    notes.run("delete", "tea.md")
    shown = notes.run("merge", "laptop.db")
    assert "added default/new.md" in shown
    assert "1 added, 0 updated, 0 deleted, 0 changed in both" in shown
    both = json.loads(notes.run("sync-with", "laptop.db", "--json"))
    assert both["here"]["added"] == [] and both["other"]["deleted"] == ["notes/tea.md"]
    assert isinstance(notes.invoke("merge", "missing.db").exception, InvalidInput)
