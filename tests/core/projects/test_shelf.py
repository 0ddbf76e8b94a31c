from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mcpvectordb import Config, Damaged, Database, InvalidInput
from mcpvectordb.projects import folders
from tests.core.projects.test_folders import git, git_only, repository


@pytest.fixture
def db() -> Database:
    return Database(":memory:")


def settings(db: Database, prefix: str) -> dict[str, object]:
    with db._file.reading() as sql:
        rows = sql.execute("SELECT name, value FROM settings").fetchall()
    return {name: json.loads(value) for name, value in rows if name.startswith(prefix)}


def test_the_first_name_is_that_of_the_folder_unless_another_project_has_it(
    db: Database, tmp_path: Path
) -> None:
    for each in ("a/app", "b/app", "c/app"):
        (tmp_path / each).mkdir(parents=True)
    names = [db.projects.resolve(tmp_path / each / "app").name for each in "abc"]
    assert names == ["app", "app-2", "app-3"]
    assert [db.projects.resolve(tmp_path / each / "app").name for each in "abc"] == names


@git_only
def test_a_repository_keeps_its_project_when_it_is_moved_or_renamed(
    db: Database, tmp_path: Path
) -> None:
    first = repository(tmp_path / "app")
    before = db.projects.resolve(tmp_path / "app")
    assert (before.name, before.key) == ("app", f"git:{first}")
    (tmp_path / "app").rename(tmp_path / "renamed")
    after = db.projects.resolve(tmp_path / "renamed")
    assert (after.name, after.key) == ("app", before.key)
    assert after.folder == (tmp_path / "renamed").resolve()


@git_only
def test_worktrees_and_clones_are_of_one_project(db: Database, tmp_path: Path) -> None:
    repository(tmp_path / "app")
    git(tmp_path / "app", "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "other")
    git(tmp_path, "clone", "-q", str(tmp_path / "app"), str(tmp_path / "fork"))
    names = {db.projects.resolve(tmp_path / each).name for each in ("tree", "app", "fork")}
    assert names == {"app"}
    (tmp_path / "fork" / folders.NAME_FILE).write_text('project = "fork"')
    assert db.projects.resolve(tmp_path / "fork").name == "fork"


@git_only
def test_git_is_asked_once(db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(tmp_path / "app")
    known = db.projects.resolve(tmp_path / "app")
    monkeypatch.setenv("PATH", "")
    assert folders.first_commit(tmp_path / "app/.git") is None
    assert db.projects.resolve(tmp_path / "app") == known
    (tmp_path / "app").rename(tmp_path / "moved")  # unknown, and git cannot be asked
    assert db.projects.resolve(tmp_path / "moved").key.startswith("path:")


@git_only
def test_another_repository_at_the_same_place_is_another_project(
    db: Database, tmp_path: Path
) -> None:
    repository(tmp_path / "app")
    assert db.projects.resolve(tmp_path / "app").name == "app"
    (tmp_path / "app").rename(tmp_path / "gone")
    repository(tmp_path / "app", "something else")
    assert db.projects.resolve(tmp_path / "app").name == "app-2"
    assert db.projects.resolve(tmp_path / "gone").name == "app"


@git_only
def test_a_folder_that_becomes_a_repository_stays_the_same_project(
    db: Database, tmp_path: Path
) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    (tmp_path / "first").mkdir()
    (tmp_path / "first/app").mkdir()
    assert db.projects.resolve(tmp_path / "first/app").name == "app"
    assert db.projects.resolve(folder).name == "app-2"
    git(folder, "init", "-q")
    assert db.projects.resolve(folder).name == "app-2"
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    now = db.projects.resolve(folder)
    assert now.name == "app-2" and now.key.startswith("git:")
    shutil.rmtree(folder)
    folder.mkdir()
    assert db.projects.resolve(folder).name == "app-3", "another folder is not that repository"


@git_only
def test_a_broken_repository_is_known_by_its_folder_and_git_is_not_asked_again(
    db: Database, tmp_path: Path
) -> None:
    repository(tmp_path / "app")
    (tmp_path / "app/.git/HEAD").write_text("0" * 40 + "\n")
    found = db.projects.resolve(tmp_path / "app")
    assert found.key == folders.path_key((tmp_path / "app").resolve())
    [known] = settings(db, "repository:").values()
    assert isinstance(known, dict) and known["first"] == ""


def test_the_configuration_wins_over_the_file_and_the_file_over_the_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / folders.NAME_FILE).write_text('project = "said"')
    assert Database(":memory:").projects.resolve(tmp_path).name == "said"
    for project, name in (("given", "given"), ("auto", "said")):
        db = Database(":memory:", config=Config(project=project))
        assert db.projects.resolve(tmp_path).name == name
    with pytest.raises(InvalidInput, match="MCPVECTORDB_PROJECT"):
        Database(":memory:", config=Config(project="a/b")).projects.resolve(tmp_path)


def test_a_file_that_is_read_only_remembers_nothing(tmp_path: Path) -> None:
    path, folder = tmp_path / "a.db", tmp_path / "app"
    folder.mkdir()
    with Database(path):
        pass
    with Database(path, config=Config(read_only=True)) as db:
        assert db.projects.resolve(folder).name == "app"
        assert not settings(db, "project:")


def test_resolving_is_no_change_of_the_history(db: Database, tmp_path: Path) -> None:
    db.projects.resolve(tmp_path)
    assert db.history() == []


def test_merged_files_know_the_folders_of_both_in_either_order(tmp_path: Path) -> None:
    for each in ("one", "two"):
        (tmp_path / each).mkdir()
    for path, folder in (("a.db", "one"), ("b.db", "two")):
        with Database(tmp_path / path) as db:
            db.projects.resolve(tmp_path / folder)
    with Database(tmp_path / "a.db") as db:
        db.sync_with(tmp_path / "b.db")
        known = settings(db, "project:")
        assert len(known) == 2
        db.merge(tmp_path / "b.db")
        assert settings(db, "project:") == known
    with Database(tmp_path / "b.db") as db:
        assert settings(db, "project:") == known
        assert db.projects.resolve(tmp_path / "one").name == "one"


@pytest.mark.parametrize("value", [{"a/b": 1}, {"a": "x"}, {"a": -1}, {"a": 2**62}])
def test_a_file_with_projects_that_nobody_wrote_is_not_merged(
    tmp_path: Path, value: dict[str, object]
) -> None:
    with Database(tmp_path / "bad.db") as db, db._file.writing() as sql:
        sql.execute("INSERT INTO settings VALUES ('project:path:/x', ?)", (json.dumps(value),))
    with Database(tmp_path / "a.db") as db, pytest.raises(Damaged, match="not merged"):
        db.merge(tmp_path / "bad.db")
