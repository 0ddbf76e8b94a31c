from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mcpvectordb.cli.main import COMMANDS, FIRST, program
from tests.support import python
from tests.support_cli import Commands, Shell


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["ingest", "nowhere.txt"], 1, "nowhere.txt"),
        (["search", "x"], 1, "there is no database"),
        (["search"], 2, "Missing argument"),
        (["serch", "x"], 2, "No such command 'serch'. Did you mean search"),
        (["xyzzy"], 2, "No such command 'xyzzy'."),
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
    [
        ("ls", "list"),
        ("rm", "delete"),
        ("stats", "status"),
        ("libraries", "library"),
        ("multiget", "multi-get"),
    ],
)
def test_an_unknown_command_fails_with_similar_ones(
    notes: Commands, typed: str, meant: str
) -> None:
    result = notes.invoke(typed)
    assert result.exit_code == 2
    assert f"No such command '{typed}'. Did you mean {meant}" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        *(["search", "x"], ["list"], ["get", "x"], ["multi-get", "x"], ["delete", "x"], ["status"]),
        *(["update", "x", "--title", "y"], ["library", "list"], ["library", "remove", "x"]),
        *(["sync"], ["embed"], ["check"], ["rebuild"], ["compact"], ["copy", "copy.db"]),
    ],
)
@pytest.mark.parametrize("empty", [False, True])
def test_only_what_brings_something_in_creates_a_database(
    tmp_path: Path, arguments: list[str], empty: bool
) -> None:
    commands = Commands(tmp_path)
    if empty:
        commands.db.touch()
    result = commands.invoke(*arguments)
    assert result.exit_code == 1
    message = f"{result.stderr} {result.exception}"
    assert any(each in message for each in ("there is no database", "does not exist", "is empty"))
    assert [each.name for each in tmp_path.iterdir()] == ["notes.db"] * empty
    assert not empty or commands.db.stat().st_size == 0


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


def test_every_character_comes_and_goes_through_pipes_of_a_narrow_encoding(shell: Shell) -> None:
    """Which pipes have on Windows; ASCII has the least."""
    narrow = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    shell.environment |= {**narrow, "PYTHONIOENCODING": ""}
    process = shell.start("remember", "-", "--json", stdin=subprocess.PIPE, encoding="utf-8")
    said, errors = process.communicate("Вода 80°, 緑茶 🍵", timeout=60)
    assert process.returncode == 0, errors
    assert "Вода 80°, 緑茶 🍵" in json.dumps(json.loads(said), ensure_ascii=False)
    found = shell.start("memories", "list", encoding="utf-8").communicate(timeout=60)[0]
    assert "Вода 80°, 緑茶 🍵" in found


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


def test_without_a_command_the_five_that_one_needs_first_are_shown(shell: Shell) -> None:
    process = shell.start()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert [line.split()[1] for line in out.splitlines() if line.startswith("  ")] == list(FIRST)
    assert len(out.splitlines()) < 12


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("form", ["--db {}", "--db={}"])
def test_the_database_may_be_named_before_or_after_the_command(
    notes: Commands, form: str, before: bool
) -> None:
    given = form.format(notes.db).split()
    command = ["list", "--json"]
    result = CliRunner().invoke(program, [*given, *command] if before else [*command, *given])
    assert (result.exit_code, "tea.md" in result.output) == (0, True)


def test_what_stands_behind_two_dashes_is_no_option(notes: Commands) -> None:
    result = CliRunner().invoke(program, ["--db", str(notes.db), "search", "--", "--db", "tea"])
    assert result.exit_code == 0


def test_help_before_a_command_is_its_help() -> None:
    asked, helped = (
        CliRunner().invoke(program, each) for each in (["help", "get"], ["get", "--help"])
    )
    assert (asked.exit_code, asked.output) == (0, helped.output)
    assert "Commands:" in CliRunner().invoke(program, ["help"]).output


def test_what_is_no_number_is_called_so(shell: Shell) -> None:
    shell.run("search", "tea", "--limit", "many", code=2)
    assert "'many' is not a whole number." in shell.err
    shell.run("search", "tea", "--limit", "-3", code=2)
    assert "-3 is less than 0." in shell.err
    shell.run("search", "tea", "--min-score", "many", code=2)
    assert "'many' is not a number." in shell.err


def test_a_data_folder_that_cannot_be_made_is_a_clear_error(shell: Shell) -> None:
    (shell.folder / "data").write_text("a file where the folder should be")
    out, err = shell.start("ingest", "-", stdin=subprocess.DEVNULL).communicate(timeout=60)
    assert "data/mcpvectordb cannot be made" in err and "--db FILE" in err and out == ""


def test_a_query_that_looks_like_an_option_is_answered_with_a_hint(shell: Shell) -> None:
    shell.run("search", "-penguins", code=2)
    assert "write -- before the query" in shell.err
    shell.run("ingest", "-", "--no-embed", stdin="tea")
    for word, code in (("-word", 1), ("-lemon", 1), ("-noodles", 2)):
        shell.run("search", "tea", word, code=code)
        assert f"{word} was read as the option {word[:2]}. To search without" in shell.err
    shell.run("search", "tea", "-lnone", "--", "-word", code=1)
    shell.run("list", "-word", code=1)
    assert "was read as" not in shell.err


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_script_that_it_reads(shell_name: str, tmp_path: Path) -> None:
    script = CliRunner().invoke(program, ["completion", shell_name]).output
    assert f"_MCPVECTORDB_COMPLETE={shell_name}_complete" in script
    assert "\ufffd" not in script and len(script.splitlines()) > 10 and script.endswith("\n")
    if interpreter := shutil.which(shell_name):
        (tmp_path / "script").write_text(script)
        # zsh completes after compinit, which -f leaves out.
        before = "autoload -U compinit; compinit -u;" if shell_name == "zsh" else ""
        for arguments in (["-n", "script"], ["-c", f"{before} source ./script"]):
            ended = subprocess.run(
                [interpreter, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert (ended.returncode, ended.stderr) == (0, "")


def test_commands_are_completed(shell: Shell) -> None:
    shell.environment |= {
        "_MCPVECTORDB_COMPLETE": "bash_complete",
        "COMP_WORDS": "mcpvectordb sta",
        "COMP_CWORD": "1",
    }
    out, _ = shell.start().communicate(timeout=60)
    assert out.split() == ["plain,status"]


def test_a_reader_that_leaves_early_is_no_error(filled: Shell) -> None:
    with filled.start("--db", str(filled.db), "get", "apple.md") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait(timeout=60)) == ("", 0)
