from __future__ import annotations

import hashlib
import json

import pytest

from mcpvectordb import Database, InvalidInput, NotFound
from tests.support import Letters
from tests.support_cli import PLAN, TEA, Commands


def hash_of(text: str) -> str:
    return "#" + hashlib.sha256(text.encode()).hexdigest()[:6]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["notes/tea.md"], TEA),
        (["tea.md:3"], "Water at 80 <degrees>.\nPour it.\n"),
        ([hash_of(PLAN)], PLAN),
        (["notes/tea.md:3:1"], "Water at 80 <degrees>.\n"),
        (["tea.md:3", "--lines", "1", "--line-numbers"], "3: Water at 80 <degrees>.\n"),
        (["sub/plan.md", "--lines", "1"], "# Plan\n"),
        (["plan.md:99"], ""),
        (["tea.md", "--lines", "0"], ""),
    ],
)
def test_get_prints_a_document_or_some_lines_of_it(
    notes: Commands, arguments: list[str], expected: str
) -> None:
    assert notes.run("get", *arguments) == expected


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


def test_an_unknown_name_fails_with_similar_ones(notes: Commands) -> None:
    for command in ("get", "multi-get", "delete", "list"):
        error = notes.invoke(command, "plam.md").exception
        assert isinstance(error, NotFound) and "did you mean notes/sub/plan.md?" in str(error)


def test_multi_get_prints_several_documents(notes: Commands) -> None:
    result = notes.invoke("multi-get", "**/*.md", "--lines", "1")
    assert (
        result.stdout
        == '==> notes/sub/plan.md <==\n# Plan\n\n==> notes/tea.md <==\n# Tea & "more"\n'
    )
    assert "notes/sub/big.md is left out" in result.stderr
    assert len(notes.run("multi-get", "sub/*.md", "--max-bytes", "30000")) > 20_000
    listed = json.loads(notes.run("multi-get", "tea.md, plan.md,tea.md", "--json"))["documents"]
    assert listed == [
        {"path": "notes/tea.md", "text": TEA},
        {"path": "notes/sub/plan.md", "text": PLAN},
    ]
    assert notes.invoke("multi-get", "*.txt").exit_code == 1


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


def test_list_prints_id_size_time_path_and_title_of_each_document(notes: Commands) -> None:
    (document,) = json.loads(notes.run("list", "tea.md", "--json"))["documents"]
    id, size, _, path, title = notes.run("list", "tea.md").split(maxsplit=4)
    assert (id, size, path) == (document["id"], str(len(TEA)), "notes/tea.md")
    assert title.strip() == document["title"]


def test_an_empty_list_says_why(notes: Commands) -> None:
    result = notes.invoke("list", "--where", "title=Plan B", "--where", "metadata.x=1")
    assert result.exit_code == 0 and result.stdout == ""
    assert "compared exactly" in result.stderr and "no metadata key 'x'" in result.stderr
    assert "'x'" in json.loads(notes.run("list", "--where", "metadata.x=1", "--json"))["note"]


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


def test_delete_takes_every_name_that_get_takes(notes: Commands) -> None:
    (big,) = json.loads(notes.run("list", "big.md", "--json"))["documents"]
    assert notes.run("delete", big["id"], "big.md") == (
        f"deleted notes/sub/big.md ({big['id']}) with {big['chunks']} chunks\n"
    )
    assert "notes/sub/plan.md" in notes.run("delete", hash_of(PLAN))
    assert "notes/tea.md" in notes.run("delete", "tea.md")
    assert listed(notes) == []


def test_what_is_deleted_together_is_one_change_and_a_followed_file_is_warned_of(
    notes: Commands,
) -> None:
    (notes.folder / "notes" / "tea.md").unlink()
    warned = notes.invoke("delete", "plan.md", "tea.md").stderr
    assert "the next sync takes notes/sub/plan.md in again" in warned
    assert "the line /sub/plan.md" in warned and "tea.md" not in warned
    notes.run("undo", "--yes")
    assert len(listed(notes)) == 3


def test_delete_removes_nothing_when_one_name_is_unknown_or_names_a_line(notes: Commands) -> None:
    assert isinstance(notes.invoke("delete", "tea.md", "nowhere.md").exception, NotFound)
    assert isinstance(notes.invoke("delete", "plan.md", "tea.md:3").exception, InvalidInput)
    assert len(listed(notes)) == 3
