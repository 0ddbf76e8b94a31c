from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from mcpvectordb import Database, Progress
from mcpvectordb.cli import output
from mcpvectordb.cli.output import LINE_SECONDS, bar, quantity
from tests.support import ROOT, Letters
from tests.support_cli import Commands

# A window title (OSC), a colour (CSI), both with C1 as well, bell, backspace, DEL, return, NUL.
EVIL = "\x1b]0;owned\x07\x1b[31m\x9b32m\x9d0;owned\x9c\x08\x7f\rx\x00\x85"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# What a folder or an option may be called: everything but NUL.
NAME = EVIL.replace("\0", "")


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """A file whose texts, titles, paths and library names all have control characters."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / f"followed{NAME}".replace("/", "")
    folder.mkdir()
    (folder / f"file{NAME}.md").write_text(f"# Heading {NAME}\n\npenguin {NAME}\n")
    with Database(tmp_path / "notes.db", embedder=Letters()) as db:
        db.documents.ingest_text(
            f"# Heading {EVIL}\n\nthe penguin {EVIL} swims\n",
            source=f"path{EVIL}.md",
            title=f"title{EVIL}",
            library=f"library{EVIL}",
            metadata={f"key{EVIL}": EVIL},
        )
        db.documents.add_library(
            f"followed{NAME}", folder, ignore=["*\x1b]0;owned\x07\x9b.bak"], description=EVIL
        )
    return Commands(tmp_path)


COMMANDS = [
    ["sync", "--no-embed"],
    ["list"],
    ["list", "--json"],
    ["list", f"library{NAME}"],
    ["list", f"unknown{NAME}"],
    ["list", "--where", NAME],
    *(
        ["search", "penguin", *options]
        for options in (
            [],
            ["--json"],
            ["--md"],
            ["--csv"],
            ["--xml"],
            ["--files"],
            ["--explain"],
            ["--unit", "document"],
            ["--library", f"unknown{NAME}"],
        )
    ),
    ["get", f"file{NAME}.md", "--json"],
    ["get", f"unknown{NAME}"],
    ["multi-get", "**/*", "--json"],
    ["multi-get", "**/*", "--max-bytes", "1"],
    ["multi-get", f"unknown{NAME}*"],
    ["library", "list"],
    ["library", "list", "--json"],
    ["library", "add", f"new{NAME}", f"followed{NAME}"],
    ["library", "add", f"new{NAME}", f"nowhere{NAME}"],
    ["library", "confirm", f"followed{NAME}"],
    ["library", "confirm", f"followed{NAME}", "--yes"],
    ["library", "confirm", f"unknown{NAME}"],
    ["sync", "--no-embed"],
    ["watch", f"unknown{NAME}"],
    ["library", "describe", f"unknown{NAME}", "/", NAME],
    ["library", "remove", f"followed{NAME}", "--keep-documents"],
    ["sync", f"unknown{NAME}"],
    ["status"],
    ["status", "--json"],
    ["check"],
    ["check", "--json"],
    ["rebuild"],
    ["compact"],
    ["copy", f"copy{NAME}.db"],
    ["salvage", "notes.db", f"saved{NAME}.db"],
    ["salvage", "notes.db", f"saved{NAME}.json.db", "--json"],
    ["model", "pull", f"unknown{NAME}"],
    ["model", "use", f"unknown{NAME}"],
    ["model", "add", f"unknown{NAME}"],
    ["setup", f"unknown{NAME}"],
    ["ingest", f"unknown{NAME}", "--no-embed"],
    ["ingest", f"http://unknown{NAME}/", "--no-embed"],
    ["ingest", "--library", f"other{NAME}", "--no-embed", "followed" + NAME],
    [f"unknown{NAME}"],
    ["list", f"--unknown{NAME}"],
    ["delete", f"unknown{NAME}"],
    ["delete", f"file{NAME}.md"],
]


def test_no_command_prints_a_control_character(
    hostile: Commands, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mcpvectordb.cli.main import main

    # click removes colours from what does not go to a terminal: here it must not help.
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)
    monkeypatch.setenv("HOME", str(hostile.folder))
    for arguments in COMMANDS:
        monkeypatch.setattr(sys, "argv", ["mcpvectordb", "--db", str(hostile.db), *arguments])
        with pytest.raises(SystemExit):
            main()
        captured = capsys.readouterr()
        printed = captured.out + captured.err
        assert not CONTROLS.search(printed.replace("\n", "")), (arguments, printed)
        assert "internal error" not in printed
        if "--json" in arguments:
            assert json.loads(captured.out), (arguments, captured.err)


def test_a_name_with_a_line_end_forges_no_line_and_no_style(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "x\nFORGED\u2028FORGED [bold]b[/bold] [link=http://e.example]l[/link] :smile:"
    with Database(tmp_path / "notes.db", embedder=Letters()) as db:
        db.documents.ingest_text("the penguin swims", source=f"{name}.md", title=name, library=name)
    commands = Commands(tmp_path)
    for arguments in (
        ["list"],
        ["library", "list"],
        ["status"],
        ["search", "penguin"],
        ["search", "penguin", "--md"],
        ["multi-get", _id(commands)],
        ["delete", _id(commands)],
    ):
        printed = commands.run(*arguments)
        assert "FORGED" in printed and "[bold]b[/bold]" in printed, arguments
        assert "[link=http://e.example]l[/link] :smile:" in printed, arguments
        assert not any(line.startswith("FORGED") for line in printed.splitlines()), arguments


def test_json_keeps_control_characters_as_escapes(hostile: Commands) -> None:
    printed = hostile.run("list", "--json")
    assert "\\u009b" in printed and "\\u007f" in printed and "\x9b" not in printed
    [document] = json.loads(printed)["documents"]
    assert document["title"] == f"title{EVIL}"


def test_get_prints_a_text_as_it_is_into_a_pipe(hostile: Commands) -> None:
    assert f"the penguin {EVIL} swims" in hostile.run("get", _id(hostile))


def _id(commands: Commands) -> str:
    return str(json.loads(commands.run("list", "--json"))["documents"][0]["id"])


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("command", ["get", "multi-get", "search"])
def test_nothing_reprograms_a_terminal(hostile: Commands, command: str) -> None:
    import pty
    import subprocess

    name = "penguin" if command == "search" else _id(hostile)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "mcpvectordb", "--db", str(hostile.db), command, name],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "TERM": "xterm"},
    )
    os.close(theirs)
    printed = b""
    try:
        while part := os.read(ours, 65536):
            printed += part
    except OSError:  # Linux says so when the other side is closed
        pass
    os.close(ours)
    assert process.wait(60) == 0
    text = (
        re.sub(r"\x1b\[[0-9;]*m", "", printed.decode()) if command == "search" else printed.decode()
    )
    assert "penguin \ufffd]0;owned" in text
    assert not CONTROLS.search(text.replace("\r\n", "")), text


def test_every_command_prints_through_the_output_module() -> None:
    for module in (ROOT / "mcpvectordb" / "cli").glob("*.py"):
        if module.name != "output.py":
            found = re.findall(
                r"click\.s?echo|(?<![.\w])print\(|sys\.std(?:out|err)\.write", module.read_text()
            )
            assert not found, module


def test_visible_keeps_tabs_and_line_ends() -> None:
    assert output.visible("a\tb\nc\r\nd") == "a\tb\nc\r\nd"
    assert output.visible("a\x1b[1m\rb\x9b") == "a\ufffd[1m\ufffdb\ufffd"


def test_without_a_terminal_progress_is_a_line_every_few_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    with bar("reading notes", "files", clock=lambda: now[0]) as move:
        for second in range(8):
            now[0] = float(second)
            move(Progress(step="ingest", done=second * 100, total=1_200))
        move(Progress(step="embed", done=5, total=None, tokens_per_second=70.0))
    assert capsys.readouterr().err.splitlines() == [
        "reading notes: 300/1,200 files",
        "reading notes: 600/1,200 files",
    ]


def test_progress_says_how_fast_the_model_is(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    with bar("reading", "files", clock=lambda: now[0]) as move:
        now[0] = LINE_SECONDS
        move(Progress(step="embed", done=5, total=9, tokens_per_second=70.0, seconds_left=4))
    assert capsys.readouterr().err == "embedding: 5/9 chunks, 70 tokens/s, 0:00:04 left\n"


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "document", "0 documents"),
        (1, "document", "1 document"),
        (1200, "chunk", "1,200 chunks"),
        (2, "library", "2 libraries"),
        (1, "library", "1 library"),
    ],
)
def test_numbers_have_the_right_form_of_their_noun(count: int, noun: str, text: str) -> None:
    assert quantity(count, noun) == text
