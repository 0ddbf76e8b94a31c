from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import InvalidInput
from mcpvectordb.projects import folders

git_only = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, as somebody whose settings say nothing."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        **dict.fromkeys(("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"), os.devnull),
        **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "A"),
        **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "a@example.org"),
    }
    return subprocess.run(
        ["git", "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    ).stdout.strip()


def repository(folder: Path, text: str = "first") -> str:
    """Make a repository with one commit; its id."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", text)
    return git(folder, "rev-parse", "HEAD")


def test_a_folder_without_a_repository_is_its_own_project(tmp_path: Path) -> None:
    inner = tmp_path / "app" / "docs"
    inner.mkdir(parents=True)
    found = folders.find(inner)
    assert (found.root, found.repository, found.first_name) == (inner.resolve(), None, "docs")


@git_only
def test_every_folder_of_a_repository_belongs_to_it(tmp_path: Path) -> None:
    first = repository(tmp_path / "app")
    (tmp_path / "app/src/deep").mkdir(parents=True)
    git(tmp_path / "app", "commit", "-q", "--allow-empty", "-m", "second")
    found = folders.find(tmp_path / "app/src/deep")
    assert found == folders.find(tmp_path / "app")
    assert found.first_name == "app"
    assert found.repository is not None
    assert folders.has_root(found.repository)
    assert folders.first_commit(found.repository) == first


@git_only
def test_a_worktree_belongs_to_its_repository(tmp_path: Path) -> None:
    repository(tmp_path / "app")
    git(tmp_path / "app", "worktree", "add", "-q", str(tmp_path / "elsewhere"), "-b", "other")
    found, main = folders.find(tmp_path / "elsewhere"), folders.find(tmp_path / "app")
    assert (found.repository, found.home, found.first_name) == (main.repository, main.home, "app")
    assert found.root == (tmp_path / "elsewhere").resolve()


@git_only
@pytest.mark.parametrize(("bare", "name"), [("app.git", "app"), ("app/.bare", "app")])
def test_a_worktree_of_a_bare_repository_has_its_name(tmp_path: Path, bare: str, name: str) -> None:
    repository(tmp_path / "origin")
    git(tmp_path, "clone", "-q", "--bare", str(tmp_path / "origin"), str(tmp_path / bare))
    git(tmp_path / bare, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "other")
    assert folders.find(tmp_path / "tree").first_name == name


@git_only
def test_a_submodule_is_a_repository_of_its_own(tmp_path: Path) -> None:
    repository(tmp_path / "app")
    part = repository(tmp_path / "part", "a part")
    allow = ("-c", "protocol.file.allow=always")
    git(tmp_path / "app", *allow, "submodule", "add", "-q", str(tmp_path / "part"), "lib")
    found = folders.find(tmp_path / "app/lib")
    assert found.first_name == "lib" and found.repository is not None
    assert folders.first_commit(found.repository) == part


@git_only
def test_a_repository_without_a_commit_or_with_a_cut_history_has_no_first_commit(
    tmp_path: Path,
) -> None:
    (tmp_path / "new").mkdir()
    git(tmp_path / "new", "init", "-q")
    assert not folders.has_root(tmp_path / "new/.git")
    repository(tmp_path / "app")
    git(tmp_path / "app", "commit", "-q", "--allow-empty", "-m", "second")
    origin = (tmp_path / "app").as_uri()
    git(tmp_path, "clone", "-q", "--depth=1", origin, str(tmp_path / "shallow"))
    assert not folders.has_root(tmp_path / "shallow/.git")
    git(tmp_path / "app", "pack-refs", "--all")
    assert folders.has_root(tmp_path / "app/.git")


@git_only
def test_git_is_not_diverted_by_the_variables_of_a_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = repository(tmp_path / "app"), repository(tmp_path / "other", "another")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    assert folders.first_commit(tmp_path / "app/.git") == first


def test_a_git_folder_that_is_broken_is_none(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: nowhere\n")
    assert folders.find(tmp_path).repository is None
    (tmp_path / ".git").write_bytes(b"\0\xff")
    assert folders.find(tmp_path).repository is None
    (tmp_path / ".git").unlink()
    (tmp_path / ".git").mkdir()
    assert folders.find(tmp_path).repository is None


@git_only
def test_a_file_in_the_folder_or_above_it_in_the_repository_names_the_project(
    tmp_path: Path,
) -> None:
    repository(tmp_path / "app")
    inner = tmp_path / "app/part/src"
    inner.mkdir(parents=True)
    (tmp_path / folders.NAME_FILE).write_text('project = "outside"\n')
    assert folders.find(inner).given == ""
    (tmp_path / "app" / folders.NAME_FILE).write_text('project = "whole"\n')
    assert folders.find(inner).given == "whole"
    (tmp_path / "app/part" / folders.NAME_FILE).write_text('project = "part"\n')
    assert folders.find(inner).given == "part"
    assert folders.find(tmp_path).given == "outside"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('project = "a/b"', "without slashes"),
        ('project = "auto"', "not auto"),
        ("project = 3", "a name of 1 to 100 characters"),
        ("project", "is no TOML"),
        ('name = "x"', 'may say project = "name", not name'),
        ("# " + "x" * 70_000, "more than 65,536 bytes"),
    ],
)
def test_a_file_that_names_no_project_is_an_error_that_names_it(
    tmp_path: Path, content: str, why: str
) -> None:
    (tmp_path / folders.NAME_FILE).write_text(content)
    with pytest.raises(InvalidInput, match=why) as error:
        folders.find(tmp_path)
    assert folders.NAME_FILE in str(error.value)


def test_an_empty_file_names_nothing(tmp_path: Path) -> None:
    (tmp_path / folders.NAME_FILE).write_text("# nothing yet\n")
    assert folders.find(tmp_path).given == ""


@given(st.text())
def test_any_folder_suggests_a_valid_name(text: str) -> None:
    name = folders.suggested_name(text)
    assert folders.checked_name(name) == name
    assert folders.suggested_name(name) == name


@given(st.text())
def test_a_checked_name_is_the_given_one_without_outer_space(text: str) -> None:
    try:
        name = folders.checked_name(text)
    except InvalidInput:
        return
    assert name == text.strip()
    assert "/" not in name and 1 <= len(name) <= folders.LONGEST_NAME
