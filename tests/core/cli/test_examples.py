from __future__ import annotations

import shlex
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mcpvectordb.cli.main import examples, program
from mcpvectordb.embedding import endpoint
from tests.support_onnx import graph, table, write_model

FILES = ("keys.md", "report.md", "old.md", "draft.md", "spare.md")
IMPORTED = {
    "Downloads/conversations.json": '[{"uuid": "1", "chat_messages": []}]',
    "vault/.obsidian/app.json": "{}",
    "vault/Tea.md": "See [[Milk]].",
    "rows.csv": "number,question,answer\n1,How hot?,Eighty degrees.\n",
}
ENDLESS = {"watch", "web"}
# The hub of these tests and the servers of models and PostgreSQL cannot be reached, and nobody is
# there to be asked.
CODES = {
    **dict.fromkeys(("model pull", "model add-endpoint", "model remove", "library confirm"), 1),
    **dict.fromkeys(("publish", "grant"), 1),
}


def commands(group: click.Group, name: str = "") -> Iterator[str]:
    """The names of all commands and subcommands."""
    with click.Context(group) as memory:
        for each in group.list_commands(memory):
            command = group.get_command(memory, each)
            yield f"{name} {each}".strip()
            if isinstance(command, click.Group):
                yield from commands(command, each)


def no_names(host: str, port: int) -> list[str]:
    raise socket.gaierror(-2, "there is no network here")


def moved_to(home: Path, patch: pytest.MonkeyPatch) -> None:
    """Let this process live in a home folder, which is also the current one."""
    for name in ("HOME", "USERPROFILE"):
        patch.setenv(name, str(home))
    patch.setenv("XDG_DATA_HOME", str(home / "data"))
    patch.setenv("MCPVECTORDB_MODEL", "all-MiniLM-L6-v2")
    patch.setenv("MCPVECTORDB_MODEL_HUB", "http://127.0.0.1:9")
    patch.setattr(endpoint, "system_resolver", no_names)
    patch.chdir(home)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder with notes, two databases and a model for the examples."""
    home = tmp_path_factory.mktemp("prepared")
    for name in ("notes/recipes/tea.md", *FILES):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"# {name}\n\nThe signing key of {name} is rotated.\n")
    for name, text in IMPORTED.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    (home / ".cursor").mkdir()
    (home / "Dropbox").mkdir()
    (home / "passphrase").write_text("correct horse")
    (home / "passphrase").chmod(0o600)
    write_model(home / "my-model", graph(table(6)))
    ingest = ["ingest", *FILES, "--library", "work", "-m", "year=2026"]
    with pytest.MonkeyPatch.context() as patch:
        moved_to(home, patch)
        for arguments in (
            ingest,
            ["--db", "work.db", *ingest],
            ["--db", "damaged.db", "ingest", "keys.md"],
            ["--db", "laptop.db", "ingest", "keys.md"],
            ["remember", "The pump is red.", "--project", "plant"],
            ["remember", "The valve is green.", "--project", "plant"],
            ["remember", "The hose is long.", "--project", "works"],
        ):
            result = CliRunner().invoke(program, arguments)
            assert result.exit_code == 0, result.output
    return home


@pytest.fixture
def home(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    moved_to(tmp_path, monkeypatch)
    for arguments in (
        ["library", "add", "notes", str(tmp_path / "notes")],
        ["remote", "add", "shared", str(tmp_path / "Dropbox")],
    ):
        added = CliRunner().invoke(program, arguments)
        assert added.exit_code == 0, added.output
    return tmp_path


def run(line: str) -> tuple[int, str]:
    """Run an example in this process; the exit code and what it printed."""
    before, pipe, command = line.rpartition(" | ")
    given = f"{shlex.split(before)[1]}\n" if pipe else ""
    arguments = [
        each.replace("~", str(Path.home()), 1) if each.startswith("~") else each
        for each in shlex.split(command)[1:]
    ]
    result = CliRunner().invoke(program, arguments, input=given)
    return result.exit_code, f"{result.output}\n{result.exception!r}"


NAMES = list(commands(program))


def test_every_command_has_two_or_three_examples_at_the_end_of_its_help(home: Path) -> None:
    for name in NAMES:
        assert 2 <= len(examples(name)) <= 3, name
        if name != "serve":  # whose help is the server's own
            shown = CliRunner().invoke(program, [*name.split(), "--help"]).output
            assert shown.rstrip().endswith(examples(name)[-1]), name


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (name, line)
        for name in NAMES
        if name
        not in {
            *ENDLESS,
            "library",
            "model",
            "memories",
            "project",
            "remote",
        }  # whose examples are those of subcommands
        for line in examples(name)
    ],
)
def test_every_example_runs(name: str, line: str, home: Path) -> None:
    if name == "redo":
        run("mcpvectordb undo --yes")
    code, printed = run(line)
    assert code == CODES.get(name, 0), printed
