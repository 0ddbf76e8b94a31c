from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import apsw
import pytest

from mcpvectordb import Database
from mcpvectordb.cli.main import main
from tests.support import ROOT
from tests.support_cli import Commands


class Program:
    """The command line, run in this process on a file of its own."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.notes, self.db = folder / "notes", folder / "test.db"
        self.notes.mkdir()
        self._monkeypatch, self._capsys = monkeypatch, capsys
        monkeypatch.chdir(folder)
        monkeypatch.setenv("MCPVECTORDB_MODEL", "all-MiniLM-L6-v2")

    def __call__(self, *arguments: str, code: int = 0) -> str:
        self._monkeypatch.setattr(sys, "argv", ["mcpvectordb", "--db", str(self.db), *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, self.err = self._capsys.readouterr()
        assert (ended.value.code or 0) == code, self.err
        return out.strip()


@pytest.fixture
def program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Program:
    return Program(tmp_path, monkeypatch, capsys)


@pytest.fixture
def received(program: Program) -> Program:
    """A file from elsewhere: whoever made it chose the folder that its library follows."""
    (program.notes / "apple.md").write_text("# Apple\n\nApples are red.")
    program("library", "add", "fruit", "notes")
    program.db = program.db.rename(program.db.with_name("received.db"))
    return program


def test_a_library_of_a_received_file_is_synced_after_it_was_confirmed(received: Program) -> None:
    assert f"{received.notes}  (not confirmed on this machine)" in received("library", "list")
    received("sync", code=1)
    command = f"mcpvectordb --db {shlex.quote(str(received.db))} library confirm fruit"
    assert f"'{received.notes}'" in received.err and command in received.err
    received("watch", code=1)
    assert f"'fruit' wants to read {received.notes}" in received.err
    assert received("list") == ""
    received("library", "confirm", "fruit", "--yes")
    assert received.err == f"fruit reads {received.notes} (**/*)\n"
    assert "1 indexed" in received("sync")


@pytest.mark.parametrize("root", ["/nowhere at all", "x\0y"])
def test_a_folder_that_cannot_be_read_is_not_confirmed(received: Program, root: str) -> None:
    other = apsw.Connection(str(received.db))
    other.execute("UPDATE libraries SET root = ?", (root,))
    other.close()
    received("library", "confirm", "fruit", "--yes", code=1)
    assert "fruit cannot read" in received.err and "internal error" not in received.err


@pytest.mark.parametrize(
    ("terminal", "answer"), [(False, "y\n"), (True, "n\n"), (True, "\n"), (True, "y\n")]
)
def test_a_person_is_asked_before_a_folder_is_confirmed(
    received: Program, monkeypatch: pytest.MonkeyPatch, terminal: bool, answer: str
) -> None:
    typed = io.StringIO(answer)
    monkeypatch.setattr(typed, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stdin", typed)
    agreed = terminal and answer == "y\n"
    received("library", "confirm", "fruit", code=0 if agreed else 1)
    assert f"fruit reads {received.notes} (**/*)" in received.err
    assert ("othing was done" in received.err) is not agreed
    assert ("not confirmed" in received("library", "list")) is not agreed


def test_the_options_of_a_library_choose_its_files(program: Program) -> None:
    for name in ("a.md", "b.txt", "c.rst", "d.md"):
        (program.notes / name).write_text(name)
    chosen = "--pattern **/*.{md,txt} --ignore d.* --ignore x/ --description".split()
    program("library", "add", "fruit", "notes", *chosen, "All about fruit")
    assert (
        program("sync", "--no-embed")
        == "fruit: 2 indexed; skipped: 1 ignored (--verbose lists them)"
    )
    assert program("library", "list") == (
        f"fruit  2 documents  2 chunks  {program.notes}  **/*.{{md,txt}}  without d.* x/  All about fruit"
    )
    (library,) = json.loads(program("library", "list", "--json"))["libraries"]
    assert (library["name"], library["root"], library["ignore"]) == (
        "fruit",
        str(program.notes),
        ["d.*", "x/"],
    )
    assert json.loads(program("status", "--json"))["pending"] == 2


def test_a_library_with_documents_is_not_removed_unasked(program: Program) -> None:
    (program.notes / "a.md").write_text("apple")
    program("ingest", "notes", "--library", "fruit", "--no-embed")
    program("library", "remove", "fruit", code=1)
    assert program.err == (
        "mcpvectordb: fruit and its 1 document (1 chunk) will be removed from the database. "
        "Nothing was done: say --yes to go on\n"
    )
    program("library", "remove", "fruti", "--yes", code=1)
    assert "there is no library 'fruti'; did you mean 'fruit'?" in program.err
    assert program("library", "list") == "fruit  1 document  1 chunk"


def test_a_library_with_documents_does_not_follow_a_folder_unasked(program: Program) -> None:
    for name in ("a.md", "b.txt", "c.txt"):
        (program.notes / name).write_text(name)
    elsewhere = program.db.with_name("elsewhere.txt")
    elsewhere.write_text("elsewhere")
    program("ingest", "notes", str(elsewhere), "--library", "fruit", "--no-embed")
    follow = ("library", "add", "fruit", "notes", "--pattern", "**/*.md")
    program(*follow, code=1)
    assert "fruit has 4 documents. The next sync drops 2 of them" in program.err
    assert "fruit/b.txt, fruit/c.txt; those from" in program.err
    assert "Nothing was done: say --yes" in program.err
    assert program("library", "list") == "fruit  4 documents  4 chunks"
    program(*follow, "--yes")
    assert program("sync", "--no-embed") == "fruit: 2 removed, 1 unchanged"
    program(*follow, "--description", "nothing more is dropped")
    program("library", "add", "fruit", "notes", "--pattern", "**/*.txt", code=1)
    assert "The next sync drops 1 of them" in program.err and "fruit/a.md" in program.err
    program("library", "add", "new", "notes")
    program("ingest", str(elsewhere), "--library", "other", "--no-embed")
    program("library", "add", "other", "notes", code=1)
    assert "The next sync drops none of them" in program.err


def test_each_file_that_fails_is_one_line_and_the_exit_code_is_1(program: Program) -> None:
    (program.notes / "good.md").write_text("good")
    (program.notes / "bad.pdf").write_bytes(b"%PDF-1.7\nnot really")
    program("library", "add", "fruit", "notes")
    assert program("sync", "--no-embed", code=1) == "fruit: 1 indexed, 1 failed"
    (line,) = program.err.splitlines()
    assert line.startswith("mcpvectordb: ") and str(program.notes / "bad.pdf") in line
    assert "1 unchanged; skipped: 1 encrypted" in program("sync", "--no-embed")


def test_a_missing_folder_does_not_keep_other_libraries_from_being_synced(program: Program) -> None:
    (program.notes / "gone").mkdir()
    (program.notes / "a.md").write_text("apple")
    program("library", "add", "gone", "notes/gone")
    program("library", "add", "here", "notes")
    (program.notes / "gone").rmdir()
    assert program("sync", "--no-embed", code=1) == "here: 1 indexed"
    assert "nothing was removed" in program.err and program.err.count("\n") == 1


def test_an_error_never_starts_to_embed_what_waited_before(program: Program) -> None:
    (program.notes / "gone").mkdir()
    (program.notes / "a.md").write_text("apple")
    program("ingest", "notes/a.md", "--no-embed")
    program("library", "add", "gone", "notes/gone")
    (program.notes / "gone").rmdir()
    program("ingest", "notes/unknown.md", code=1)
    program("sync", code=1)
    with Database(program.db) as db:
        assert db.stats().pending == 1


@contextlib.contextmanager
def watching(program: Program) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
    """A running watch with its output and its errors; ended if it should hang."""
    command = [sys.executable, "-m", "mcpvectordb", "--db", str(program.db), "watch", "fruit"]
    with subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stderr
        timer = threading.Timer(60, process.kill)
        timer.start()
        assert process.stdout.readline() == f"watching {program.notes}; stop it with Ctrl-C\n"
        yield process, process.stdout, process.stderr
        process.kill()
        timer.cancel()


def test_watch_syncs_every_change_until_it_is_killed(program: Program) -> None:
    (program.notes / "a.md").write_text("apple")
    program("library", "add", "fruit", "notes")
    with watching(program) as (_, out, err):
        assert out.readline() == "fruit: 1 indexed\n"
        (program.notes / ".hidden").write_text("of no interest")
        (program.notes / "b.md").write_text("bear")
        assert out.readline() == "fruit: 1 indexed, 1 unchanged; skipped: 1 hidden\n"
        assert any("embedding goes on in the background" in line for line in err)
        (program.notes / ".gitignore").write_text("a.md\n")
        assert out.readline() == "fruit: 1 removed, 1 unchanged; skipped: 1 hidden, 1 ignored\n"
        program.notes.rename(program.notes.with_name("away"))
        assert any("nothing was removed" in line for line in err)  # progress may come before it
        program.notes.with_name("away").rename(program.notes)
    with Database(program.db) as db:
        assert [Path(each.source).name for each in db.documents.browse()] == [
            "b.md"
        ] and db.check() == []


def test_watch_ignores_a_database_in_its_folder_and_ends_by_ctrl_c(
    program: Program,
) -> None:
    program.db = program.notes / "own.db"
    (program.notes / "a.md").write_text("apple")
    program("library", "add", "fruit", "notes")
    with watching(program) as (process, out, _):
        assert out.readline().startswith("fruit: 1 indexed; skipped: ")
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=60)
        assert rest == "" and process.returncode == 130 and "Traceback" not in err


def test_a_dry_sync_says_what_would_be_done_and_does_nothing(notes: Commands) -> None:
    (notes.folder / "notes" / "tea.md").unlink()
    (notes.folder / "notes" / "new.md").write_text("new")
    shown = notes.invoke("sync", "--dry-run").output
    assert f"read  {notes.folder / 'notes' / 'new.md'}" in shown
    assert f"remove  {notes.folder / 'notes' / 'tea.md'}" in shown
    assert "notes: 1 to read, 1 to remove, 2 unchanged" in shown
    assert json.loads(notes.invoke("list", "--json").stdout)["total"] == 3
