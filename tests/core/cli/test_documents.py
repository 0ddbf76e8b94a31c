from __future__ import annotations

import hashlib
import json

import pytest

from mcpvectordb import Database, InvalidInput, NotFound
from tests.support import Letters
from tests.support_cli import TEA, Commands


def hash_of(text: str) -> str:
    return "#" + hashlib.sha256(text.encode()).hexdigest()[:6]


def test_get_prefers_the_file_in_the_working_folder(
    notes: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    (notes.folder / "notes" / "deeper").mkdir()
    (notes.folder / "notes" / "deeper" / "tea.md").write_text("the deeper one\n")
    with Database(notes.db, embedder=Letters()) as db:
        db.documents.sync(embed=False)
    assert isinstance(notes.invoke("get", "tea.md").exception, InvalidInput)
    monkeypatch.chdir(notes.folder / "notes" / "deeper")
    assert notes.run("get", "tea.md") == "the deeper one\n"


def listed(notes: Commands, *arguments: str) -> list[str]:
    found = json.loads(notes.run("list", *arguments, "--json"))
    assert found["total"] >= len(found["documents"])
    return sorted(each["path"] for each in found["documents"])


def test_list_shows_all_documents_or_those_of_a_library_a_folder_or_a_name(
    notes: Commands,
) -> None:
    with Database(notes.db, embedder=Letters()) as db:
        db.documents.ingest_text("loose", source="loose.txt", library="other")
    everything = ["notes/sub/big.md", "notes/sub/plan.md", "notes/tea.md"]
    assert listed(notes) == [*everything, "other/loose.txt"]
    assert listed(notes, "notes") == listed(notes, "notes/") == everything
    assert listed(notes, "other") == ["other/loose.txt"]
    assert listed(notes, "notes/sub/") == listed(notes, "sub") == everything[:2]
    assert listed(notes, "notes/tea.md") == listed(notes, "tea.md") == ["notes/tea.md"]


def test_a_document_is_updated_by_any_of_its_names(notes: Commands) -> None:
    assert notes.run(
        "update", "tea.md", "-m", "year=2024", "-m", "kind=drink", "--title", "Cha"
    ) == ("updated notes/tea.md\n")
    [tea] = json.loads(notes.run("list", "--where", "title=Cha", "--json"))["documents"]
    assert tea["metadata"] == {"year": 2024, "kind": "drink"}
    assert notes.run("update", tea["id"], "-m", "kind=null", "--library", "drinks") == (
        "updated drinks" + str(notes.folder / "notes" / "tea.md") + "\n"
    )
    [tea] = json.loads(notes.run("list", "drinks", "--json"))["documents"]
    assert tea["metadata"] == {"year": 2024}
    assert notes.run("update", tea["id"], "-m", "year=2024").startswith("unchanged ")
    assert isinstance(notes.invoke("update", "nowhere.md", "--title", "x").exception, NotFound)
    assert isinstance(notes.invoke("update", "plan.md").exception, InvalidInput)


def test_a_name_that_two_documents_have_is_neither_printed_nor_deleted_nor_updated(
    notes: Commands,
) -> None:
    file = str(notes.folder / "notes" / "tea.md")
    notes.run("ingest", file, "--library", "other", "--no-embed")
    copy = hash_of(TEA)
    for arguments in (
        *([command, name] for command in ("get", "delete") for name in (file, "tea.md", copy)),
        ["get", "tea.md:1"],
        ["multi-get", "plan.md,tea.md"],
        ["update", file, "--title", "x"],
    ):
        error = notes.invoke(*arguments).exception
        assert isinstance(error, InvalidInput) and "2 documents are called" in str(error)
        assert "notes/tea.md (" in str(error) and f"other{file} (" in str(error)
    assert len(json.loads(notes.run("list", "tea.md", "--json"))["documents"]) == 2
    assert notes.run("get", "notes/tea.md") == TEA
    assert "notes/tea.md" in notes.run("delete", "notes/tea.md")
    assert "other" in notes.run("delete", "tea.md")


def test_what_is_deleted_together_is_one_change_and_a_followed_file_is_warned_of(
    notes: Commands,
) -> None:
    (notes.folder / "notes" / "tea.md").unlink()
    warned = notes.invoke("delete", "plan.md", "tea.md").stderr
    assert "the next sync takes notes/sub/plan.md in again" in warned
    assert "the line /sub/plan.md" in warned and "tea.md" not in warned
    notes.run("undo", "--yes")
    assert len(listed(notes)) == 3
