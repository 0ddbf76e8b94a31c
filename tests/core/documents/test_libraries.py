from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from mcpvectordb import Config, Database, InvalidInput, NotFound, Refused, Unreadable, Unwritable
from tests.support import ROOT, Letters

POSIX = pytest.mark.skipif(os.name != "posix", reason="needs modes and variables of POSIX")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this user's data."""
    monkeypatch.setattr(Config, "data_folder", staticmethod(lambda: tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with one document, which the library `notes` of the fixture `mine` follows."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("apple")
    return tmp_path / "notes"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A folder that nobody has added."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "diary.md").write_text("dear diary")
    return tmp_path / "private"


@pytest.fixture
def mine(path: Path, root: Path) -> Path:
    """A file that was made on this machine."""
    with Database(path, embedder=Letters()) as db:
        db.documents.add_library("notes", root)
    return path


def edited(path: Path, **columns: str) -> None:
    """Change the row of the library as somebody else's program can."""
    other = apsw.Connection(str(path))
    for column, value in columns.items():
        other.execute(f"UPDATE libraries SET {column} = ?", (value,))
    other.close()


def synced(path: Path) -> list[str]:
    """The texts of the documents after a sync."""
    with Database(path, embedder=Letters()) as db:
        try:
            db.documents.sync()
        finally:
            texts = sorted(db.documents.text(each.id) for each in db.documents.browse())
    return texts


def confirm(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.confirm_library("notes")


def test_a_folder_that_was_added_here_is_read_by_every_process(mine: Path, root: Path) -> None:
    with Database(mine) as db:
        assert [each.confirmed for each in db.documents.libraries()] == [True]
    assert synced(mine) == ["apple"]


def test_a_received_file_reads_nothing_before_it_is_confirmed(
    mine: Path, root: Path, data: Path
) -> None:
    shutil.rmtree(data)  # another machine, or another user
    touched: list[object] = []

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if str(root) in str(arguments):
            touched.append(event)

    with Database(mine, embedder=Letters()) as db:
        assert [each.confirmed for each in db.documents.libraries()] == [False]
        listening = True
        sys.addaudithook(lambda *event: hook(*event) if listening else None)
        for name in ("notes", None):
            with pytest.raises(Refused, match="not confirmed on this machine") as caught:
                db.documents.sync(name)
        listening = False
        message = str(caught.value)
        assert "'notes'" in message and str(root) in message
        assert f"mcpvectordb --db {shlex.quote(str(mine))} library confirm notes" in message
        assert touched == [] and db.documents.count() == 0
        db.documents.confirm_library("notes")
        assert [each.confirmed for each in db.documents.libraries()] == [True]
    assert synced(mine) == ["apple"]


@pytest.mark.parametrize(
    "change",
    [
        {"root": "PRIVATE"},
        {"root": "/"},
        {"root": ""},
        {"root": "x\0y"},
        {"root": "ROOT/../private"},
        {"pattern": "**/*.txt"},
        {"ignore": '["a.md"]'},
        {"name": "other"},
    ],
)
def test_an_edited_library_must_be_confirmed_again(
    mine: Path, root: Path, private: Path, change: dict[str, str]
) -> None:
    values = {
        column: value.replace("PRIVATE", str(private)).replace("ROOT", str(root))
        for column, value in change.items()
    }
    edited(mine, **values)
    with pytest.raises(Refused, match="not confirmed"):
        synced(mine)


def test_a_confirmation_is_of_one_file_and_one_library(
    mine: Path, root: Path, tmp_path: Path
) -> None:
    copy, moved = tmp_path / "copy.db", tmp_path / "moved.db"
    with Database(mine, embedder=Letters()) as db:
        db.copy_to(copy)
    for file in (copy, mine.rename(moved)):
        with pytest.raises(Refused, match="not confirmed"):
            synced(file)
        confirm(file)
        assert synced(file) == ["apple"]


def test_a_link_to_the_file_is_the_file(mine: Path, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(mine)
    assert synced(tmp_path / "link.db") == ["apple"]


@pytest.mark.parametrize("by", ["folder", "link"])
def test_a_folder_that_took_the_place_of_the_confirmed_one_is_not_read(
    mine: Path, root: Path, private: Path, tmp_path: Path, by: str
) -> None:
    root.rename(tmp_path / "old")
    if by == "link":
        root.symlink_to(private)
    else:
        private.rename(root)
    with pytest.raises(Refused, match=r"not the one that was confirmed.*library confirm notes"):
        synced(mine)
    confirm(mine)
    assert synced(mine) == ["dear diary"]


def test_a_missing_folder_cannot_be_confirmed(mine: Path, root: Path, data: Path) -> None:
    shutil.rmtree(data)
    shutil.rmtree(root)
    with pytest.raises(Unreadable, match="No such file"):
        confirm(mine)


def test_adding_the_library_again_confirms_its_new_patterns(mine: Path, root: Path) -> None:
    edited(mine, pattern="**/*.txt")
    with Database(mine, embedder=Letters()) as db:
        db.documents.add_library("notes", root, ignore=["b.md"])
    assert synced(mine) == ["apple"]


def test_a_removed_library_takes_its_confirmation_with_it(mine: Path, data: Path) -> None:
    assert len(list((data / "confirmed").iterdir())) == 1
    with Database(mine) as db:
        db.documents.remove_library("notes")
    assert list((data / "confirmed").iterdir()) == []


def unreadable_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_text("{"),
        lambda file: file.write_text("[]"),
        lambda file: file.write_text("[" * 100_000),
        lambda file: file.write_bytes(b"\xff\xfe\0"),
        unreadable_folder,
    ],
)
def test_a_damaged_confirmation_is_none(
    mine: Path, data: Path, damage: Callable[[Path], None]
) -> None:
    (file,) = (data / "confirmed").iterdir()
    damage(file)
    with pytest.raises(Refused, match="not confirmed"):
        synced(mine)


@POSIX
def test_confirmations_are_for_their_owner_only(mine: Path, data: Path) -> None:
    (file,) = (data / "confirmed").iterdir()
    assert [each.stat().st_mode & 0o777 for each in (file.parent, file)] == [0o700, 0o600]


def test_a_library_is_not_added_where_its_confirmation_cannot_be_kept(
    path: Path, root: Path, data: Path
) -> None:
    data.write_text("no folder can be made here")
    with Database(path) as db:
        with pytest.raises(Unwritable, match=r"cannot be confirmed, because .*data.* cannot be"):
            db.documents.add_library("notes", root)
        assert db.documents.libraries() == []


def test_a_database_in_memory_needs_no_data_folder(root: Path, data: Path) -> None:
    with Database(":memory:", embedder=Letters()) as db:
        db.documents.add_library("notes", root)
        assert db.documents.sync()[0].indexed == 1
        db.documents.remove_library("notes")
    assert not data.exists()


ADD = """
import sys
from mcpvectordb import Config, Database
with Database(sys.argv[1]) as db:
    db.documents.add_library(sys.argv[2], sys.argv[3])
"""


@POSIX
def test_libraries_that_are_added_at_once_are_all_confirmed(
    path: Path, root: Path, data: Path
) -> None:
    environment = {**os.environ, "XDG_DATA_HOME": str(data), "HOME": str(data)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ADD, str(path), f"library {number}", str(root)],
            cwd=ROOT,
            env=environment,
        )
        for number in range(4)
    ]
    assert [each.wait() for each in processes] == [0] * 4
    assert len([each for each in data.rglob("*.json") if len(each.stem) == 64]) == 4


def test_a_folder_that_nobody_confirmed_is_not_read(db: Database, root: Path) -> None:
    (root / "a.md").write_text("apple")
    db.documents.add_library("notes", root, confirm=False)
    assert [each.confirmed for each in db.documents.libraries()] == [False]
    with pytest.raises(Refused, match="not confirmed on this machine"):
        db.documents.sync("notes")
    db.documents.confirm_library("notes")
    assert [each.indexed for each in db.documents.sync("notes")] == [1]


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
