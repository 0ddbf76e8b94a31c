from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support_cli import Shell


@pytest.fixture
def app(shell: Shell) -> Shell:
    """A shell that stands in the folder `app`."""
    shell.folder = shell.folder / "app"
    shell.folder.mkdir()
    return shell


def elsewhere(shell: Shell, name: str) -> Shell:
    """The same shell in another folder."""
    shell.folder = shell.folder.parent / name
    shell.folder.mkdir(exist_ok=True)
    return shell


def test_what_is_remembered_belongs_to_the_project_of_the_folder(app: Shell) -> None:
    assert "in app" not in app.run("remember", "The", "pump", "is", "blue.", "--tag", "colour")
    assert app.run("memories", "list").split("  ")[2:] == ["app", "The pump is blue.\n"]
    assert "1 of 1 memory in the project app" in app.err
    other = elsewhere(app, "other")
    assert other.run("memories", "list") == ""
    assert "0 of 0 memories in the project other" in other.err
    assert "The pump is blue." in other.run("memories", "list", "--project", "all")
    assert "in all projects" in other.err
    assert "The pump is blue." in other.run("memories", "search", "pump", "--project", "app")
    assert "in the project app" in other.out
    assert "nothing found" in other.run("memories", "search", "pump")
    assert "other" not in other.run("project", "list"), "looking makes no project"


def test_the_variable_names_the_project_wherever_one_stands(app: Shell) -> None:
    app.environment["MCPVECTORDB_PROJECT"] = "plant"
    app.run("remember", "The valve is open.", "--thread", "state")
    assert "  plant/state  The valve is open." in app.run("memories", "list", "--thread", "state")
    app.run("memories", "list", "--project", "plnt", code=1)
    assert "there is no project 'plnt'; did you mean 'plant'" in app.err


def test_remember_reads_standard_input_and_tells_of_what_is_nearly_the_same(app: Shell) -> None:
    app.run("remember", "-", stdin="The deploy happens on Tuesday at 10:00.\n")
    app.run("remember", "The deploy happens on Tuesday at 11:00.")
    assert "it contradicts memory:1" in app.err
    assert "known: memory:2" in app.run("remember", "The deploy happens on Tuesday at 11:00.")
    app.run("remember", " ", code=1)
    assert "text must not be blank" in app.err


def test_memories_are_shown_and_forgotten_by_their_ids(app: Shell) -> None:
    for text in ("First of all.\nIn two lines.", "Second.", "Third."):
        app.run("remember", text, "--tag", "note")
    assert app.run("memories", "show", "memory:1").endswith(
        "tags note\nFirst of all.\nIn two lines.\n"
    )
    found = json.loads(app.run("memories", "show", "1", "3", "--json"))["memories"]
    assert [each["text"] for each in found] == ["First of all.\nIn two lines.", "Third."]
    app.run("memories", "forget", "2", code=1)
    assert "say --yes" in app.err
    assert "deleted 1 memory" in app.run("memories", "forget", "2", "--yes")
    app.run("memories", "show", "2", code=1)
    assert "there is no memory:2" in app.err
    app.run("undo", "--yes")
    assert "Second." in app.run("memories", "show", "2")
    app.run("memories", "show", "tea", code=2)
    assert "tea is no memory" in app.err


def test_a_listing_is_json_on_request(app: Shell) -> None:
    app.run("remember", "The pump is blue.", "--tag", "colour")
    listed = json.loads(app.run("memories", "list", "--tag", "colour", "--json"))
    assert (listed["total"], listed["project"]) == (1, "app")
    found = json.loads(app.run("memories", "search", "pump", "--json"))
    assert [each["item"]["text"] for each in found["hits"]] == ["The pump is blue."]


def test_documents_are_ingested_and_found_in_a_project(app: Shell) -> None:
    for name in ("one", "two"):
        (app.folder / f"{name}.md").write_text(f"# {name}\n\nThe hose of {name}.\n")
    app.run("ingest", "one.md", "--project", "auto")
    app.run("ingest", "two.md", "--library", "manuals", "--project", "plant")
    app.run("search", "hose", "--project", "auto")
    assert "The hose of one." in app.out and "The hose of two." not in app.out
    assert "in the project app" in app.out
    app.run("grep", "hose", "--project", "plant")
    [line] = app.out.splitlines()
    assert line.startswith("plant/manuals/") and line.endswith("two.md:3: The hose of two.")
    app.run("search", "hose")
    assert "The hose of one." in app.out and "The hose of two." in app.out
    assert "in the project" not in app.out


def test_a_hit_says_that_its_file_changed_or_is_gone(app: Shell) -> None:
    for name in ("a", "b"):
        (app.folder / f"{name}.md").write_text(f"# {name}\n\nThe hose of {name} is long.\n")
    app.run("ingest", "a.md", "b.md")
    assert "since it was read" not in app.run("search", "hose")
    Path(app.folder / "a.md").write_text("# a\n\nThe hose is short now.\n")
    Path(app.folder / "b.md").unlink()
    app.run("search", "hose")
    assert "the file has changed since it was read: ingest it again" in app.out
    assert "the file is gone from this machine" in app.out


def test_the_shell_says_that_a_secret_was_left_out(app: Shell) -> None:
    assert "[redacted: password]" in app.run("remember", "The password is hunter2.")
    assert "one secret was left out (password)" in app.err
