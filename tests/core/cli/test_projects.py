from __future__ import annotations

import json

import pytest

from tests.support_cli import Shell


@pytest.fixture
def two(shell: Shell) -> Shell:
    """A shell whose database has memories of the projects plant and works."""
    shell.run("remember", "The pump is blue.", "--project", "plant")
    shell.run("remember", "The hose is long.", "--project", "works", "--thread", "parts")
    return shell


def test_projects_are_listed_with_what_belongs_to_them(two: Shell) -> None:
    lines = two.run("project", "list").splitlines()
    assert [line.split("  ")[:3] for line in lines] == [
        ["works", "1 memory in 1 thread", "0 documents"],
        ["plant", "1 memory in 1 thread", "0 documents"],
    ]
    listed = json.loads(two.run("project", "list", "--json"))
    assert [each["keys"] for each in listed["projects"]] == [["name:works"], ["name:plant"]]


def test_an_empty_database_says_how_projects_come_about(shell: Shell) -> None:
    shell.run("ingest", "-", stdin="text")
    assert shell.run("project", "list") == ""
    assert "no project yet" in shell.err


def test_a_project_is_renamed_and_renamed_back_by_undo(two: Shell) -> None:
    assert (
        two.run("project", "rename", "works", "factory") == "works is factory now: 1 item moved\n"
    )
    assert "factory/parts" in two.run("memories", "list", "--project", "factory")
    two.run("undo", "--yes")
    assert "works/parts" in two.run("memories", "list", "--project", "works")
    two.run("project", "rename", "works", "plant", code=1)
    assert "merge them instead" in two.err


def test_projects_are_merged_after_asking(two: Shell) -> None:
    two.run("project", "merge", "works", "plant", code=1)
    assert "say --yes" in two.err
    two.run("project", "merge", "works", "plant", "--yes")
    assert "2 of 2 memories" in (two.run("memories", "list", "--project", "plant") and two.err)


def test_a_folder_is_given_to_a_project(two: Shell) -> None:
    (two.folder / "moved").mkdir()
    assert two.run("project", "move", "plant", "moved").endswith("moved belongs to plant now\n")
    two.folder = two.folder / "moved"
    assert "The pump is blue." in two.run("memories", "list")
    assert "plant (here)" in two.run("project", "list")
    two.run("project", "move", "plnt", ".", code=1)
    assert "did you mean 'plant'" in two.err
