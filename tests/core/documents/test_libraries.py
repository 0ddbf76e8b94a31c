from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Database, InvalidInput, NotFound, Refused, Unreadable


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


def test_a_library_is_listed_with_its_folder_before_it_has_documents(
    db: Database, root: Path
) -> None:
    db.documents.add_library(
        "notes", root, pattern="**/*.md", ignore=["drafts/", "*.tmp"], description="What I know"
    )
    (library,) = db.documents.libraries()
    assert (library.name, library.documents, library.chunks) == ("notes", 0, 0)
    assert (library.root, library.pattern) == (str(root), "**/*.md")
    assert (library.ignore, library.description) == (("drafts/", "*.tmp"), "What I know")
    assert library.created_at.endswith("+00:00")


def test_a_folder_that_nobody_confirmed_is_not_read(db: Database, root: Path) -> None:
    (root / "a.md").write_text("apple")
    db.documents.add_library("notes", root, confirm=False)
    assert [each.confirmed for each in db.documents.libraries()] == [False]
    with pytest.raises(Refused, match="not confirmed on this machine"):
        db.documents.sync("notes")
    db.documents.confirm_library("notes")
    assert [each.indexed for each in db.documents.sync("notes")] == [1]


def test_libraries_with_and_without_a_folder_are_listed_together(db: Database, root: Path) -> None:
    db.documents.add_library("notes", root)
    db.documents.ingest_text("words", source="a", library="loose")
    db.documents.ingest_text("more words", source="b", library="notes")
    loose, notes = db.documents.libraries()
    assert (loose.name, loose.documents, loose.root, loose.created_at) == ("loose", 1, "", "")
    assert (notes.name, notes.documents, notes.chunks, notes.root) == ("notes", 1, 1, str(root))


def test_adding_a_library_again_changes_its_options_and_nothing_else(
    db: Database, root: Path
) -> None:
    db.documents.add_library("notes", root, pattern="*.md")
    db.documents.describe("notes", "api", "about the API")
    before = db.documents.libraries()[0]
    db.documents.add_library("notes", root, ignore=["x"], description="new")
    (after,) = db.documents.libraries()
    assert (after.pattern, after.ignore, after.description) == ("**/*", ("x",), "new")
    assert after.created_at == before.created_at
    assert db.documents.descriptions("notes", "api") == [
        "new",
        "about the API",
    ]


def test_another_folder_under_the_same_name_is_refused(
    db: Database, root: Path, tmp_path: Path
) -> None:
    db.documents.add_library("notes", root)
    with pytest.raises(InvalidInput, match=r"already follows .*notes"):
        db.documents.add_library("notes", tmp_path)


def test_the_folder_is_stored_with_links_resolved(
    db: Database, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(root)
    monkeypatch.chdir(tmp_path)
    db.documents.add_library("notes", "link/../notes")
    assert db.documents.libraries()[0].root == str(root)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": " "}, InvalidInput, "library must not be blank"),
        ({"name": "x" * 201}, InvalidInput, "201 characters"),
        ({"root": "missing"}, Unreadable, "missing.*No such file"),
        ({"root": "file"}, Unreadable, "is a file"),
        ({"pattern": ""}, InvalidInput, "pattern must not be blank"),
        ({"pattern": "[a"}, InvalidInput, r"\[ without"),
        ({"pattern": "/etc/*"}, InvalidInput, "relative"),
        ({"pattern": "../*"}, InvalidInput, "relative"),
        ({"ignore": ["{a"]}, InvalidInput, "{ without"),
        ({"description": "\ud800"}, InvalidInput, "surrogate"),
    ],
)
def test_an_invalid_name_folder_or_pattern_is_refused(
    db: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(error, match=message):
        db.documents.add_library(**{"name": "notes", "root": tmp_path, **arguments})
    assert db.documents.libraries() == []


def test_descriptions_go_from_general_to_specific_by_whole_parts_of_the_path(
    db: Database, root: Path
) -> None:
    db.documents.add_library("notes", root, description="all")
    for path, text in (
        ("api/v2/auth.md", "one file"),
        ("/api/", "the API"),
        (str(root / "api" / "v2"), "version 2"),
    ):
        db.documents.describe("notes", path, text)
    everything = ["all", "the API", "version 2", "one file"]
    assert db.documents.descriptions("notes", "api/v2/auth.md") == everything
    assert db.documents.descriptions("notes", str(root / "api" / "v2" / "auth.md")) == everything
    assert db.documents.descriptions("notes", "/api/v2/other.md") == everything[:3]
    assert db.documents.descriptions("notes", "api-v2/x.md") == ["all"]
    assert db.documents.descriptions("notes", "") == ["all"]


@pytest.mark.parametrize("whole", ["", "/", ".", "./"])
def test_the_whole_library_is_described_by_an_empty_path(
    db: Database, root: Path, whole: str
) -> None:
    db.documents.add_library("notes", root, description="old")
    db.documents.describe("notes", whole, "new")
    assert db.documents.descriptions("notes", "a") == ["new"]
    assert db.documents.libraries()[0].description == "new"


def test_a_description_is_replaced_and_removed(db: Database, root: Path) -> None:
    db.documents.add_library("notes", root)
    db.documents.describe("notes", "a", "one")
    db.documents.describe("notes", "a", "two")
    assert db.documents.descriptions("notes", "a/b") == ["two"]
    db.documents.describe("notes", "a", " ")
    assert db.documents.descriptions("notes", "a/b") == []


def test_only_a_path_inside_of_a_known_library_is_described(db: Database, root: Path) -> None:
    db.documents.add_library("notes", root)
    with pytest.raises(InvalidInput, match="is outside of the library"):
        db.documents.describe("notes", "../x", "text")
    with pytest.raises(NotFound, match="library add other"):
        db.documents.describe("other", "x", "text")
    assert db.documents.descriptions("other", "x") == []


def test_removing_a_library_removes_its_documents_and_descriptions_but_no_file(
    db: Database, root: Path
) -> None:
    (root / "a.md").write_text("apple")
    db.documents.add_library("notes", root)
    db.documents.describe("notes", "a.md", "fruit")
    db.documents.sync("notes")
    kept = db.documents.ingest_text("kept", source="x", library="other").document
    assert db.documents.remove_library("notes") == 1
    assert [each.name for each in db.documents.libraries()] == ["other"]
    assert (root / "a.md").exists()
    assert [*db.documents.browse()] == [kept] and db.documents.sync() == [] and db.check() == []
    db.documents.add_library("notes", root)
    assert db.documents.descriptions("notes", "a.md") == []


def test_documents_can_stay_when_a_folder_is_no_longer_followed(db: Database, root: Path) -> None:
    (root / "a.md").write_text("apple")
    db.documents.add_library("notes", root)
    db.documents.sync()
    assert db.documents.remove_library("notes", keep_documents=True) == 0
    (library,) = db.documents.libraries()
    assert (library.name, library.documents, library.root) == ("notes", 1, "")
    with pytest.raises(NotFound, match="follows a folder"):
        db.documents.sync("notes")


def test_a_library_without_a_folder_can_be_removed_and_an_unknown_one_cannot(db: Database) -> None:
    for number in range(120):
        db.documents.ingest_text(
            f"words {number}", source=str(number), library="loose", embed=False
        )
    assert db.documents.remove_library("loose") == 120 and db.documents.libraries() == []
    with pytest.raises(NotFound, match="no library 'loose'"):
        db.documents.remove_library("loose")
