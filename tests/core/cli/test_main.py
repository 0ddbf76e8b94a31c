from __future__ import annotations

import json

import click
import pytest

from mcpvectordb.cli.main import COMMANDS, program
from tests.support import python
from tests.support_cli import Commands, Shell


def test_every_reading_command_can_print_json(filled: Shell) -> None:
    found = json.loads(filled.run("search", "green", "--json", "--mode", "text"))
    assert found["legs"] == ["text"] and found["hits"][0]["item"]["document"]["metadata"] == {
        "kind": "food",
        "n": 3,
    }
    listed = json.loads(filled.run("list", "--json"))
    assert listed["total"] == 2 and {each["library"] for each in listed["documents"]} == {"fruit"}
    (library,) = json.loads(filled.run("library", "list", "--json"))["libraries"]
    assert (library["name"], library["documents"], library["chunks"]) == ("fruit", 2, 3)
    assert json.loads(filled.run("status", "--json"))["model"] == "all-MiniLM-L6-v2"
    assert json.loads(filled.run("check", "--json")) == {"sound": True, "problems": []}
    document = listed["documents"][0]
    assert json.loads(filled.run("get", document["id"], "--json"))["document"] == document


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["ingest", "nowhere.txt"], 1, "nowhere.txt"),
        (["search", "x"], 1, "there is no database"),
        (["search"], 2, "Missing argument"),
        (["serch", "x"], 2, "No such command 'serch'. Did you mean search"),
        (["search", "x", "--mode", "magic"], 2, "magic"),
        (["search", "x", "--limit", "-1"], 2, "-1"),
    ],
)
def test_an_error_is_one_line(shell: Shell, arguments: list[str], code: int, message: str) -> None:
    shell.run(*arguments, code=code)
    lines = [line for line in shell.err.splitlines() if line.strip()]
    assert message in lines[-1] and lines[-1].startswith("mcpvectordb: ")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("ls", "list"), ("stats", "status"), ("libraries", "library"), ("multiget", "multi-get")],
)
def test_an_unknown_command_fails_with_similar_ones(
    notes: Commands, typed: str, meant: str
) -> None:
    result = notes.invoke(typed)
    assert result.exit_code == 2
    assert f"No such command '{typed}'. Did you mean {meant}" in result.stderr


def test_an_unknown_command_that_is_like_no_other_fails_too(notes: Commands) -> None:
    result = notes.invoke("xyzzy")
    assert result.exit_code == 2 and "No such command 'xyzzy'." in result.stderr


def test_a_misspelt_environment_variable_is_an_error(shell: Shell) -> None:
    shell.environment["MCPVECTORDB_MODELL"] = "x"
    shell.run("ingest", "-", stdin="x", code=1)
    assert "did you mean MCPVECTORDB_MODEL" in shell.err


def test_the_default_file_is_in_the_data_folder_and_a_variable_names_another(shell: Shell) -> None:
    (shell.folder / "a.txt").write_text("apple")
    for place in ("data/mcpvectordb/notes.db", "other.db"):
        process = shell.start("ingest", "a.txt", "--no-embed")
        assert process.communicate(timeout=60)[0].strip() == "1 indexed"
        assert (shell.folder / place).exists()
        shell.environment["MCPVECTORDB_DB"] = str(shell.folder / "other.db")


def test_help_names_every_command(shell: Shell) -> None:
    out = shell.run("--help")
    for command in COMMANDS:
        assert f"  {command} " in out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_shows_how_the_help_of_each_command_begins(name: str) -> None:
    command = program.get_command(click.Context(program), name)
    assert command and (command.help or "").startswith(COMMANDS[name][1])


@pytest.mark.parametrize("arguments", [["status"], ["library", "list"], ["setup", "--help"]])
def test_no_module_of_the_server_is_loaded_before_serve_and_setup_run(
    notes: Commands, arguments: list[str]
) -> None:
    done = python(
        """
import sys
from mcpvectordb.cli.main import program
program(sys.argv[1:], standalone_mode=False)
print([name for name in sys.modules if name.startswith(("mcpvectordb_server", "mcp."))])
""",
        "--db",
        str(notes.db),
        *arguments,
    )
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "[]", done.stderr
