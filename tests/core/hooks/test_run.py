"""Hooks store each turn once, brief the next session, and never fail the host."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Database
from mcpvectordb.config import Config
from mcpvectordb.hooks.run import EVENTS, LARGEST_LOG, LOG, HookCall, _log, main, run
from tests.core.hooks.test_transcripts import CLAUDE_CODE, CODEX, GEMINI, written
from tests.support import Letters

TRANSCRIPTS = {"claude-code": CLAUDE_CODE, "codex": CODEX, "gemini": GEMINI}
END = {"claude-code": "Stop", "codex": "Stop", "gemini": "AfterAgent"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of work, beside a data folder of its own."""
    monkeypatch.setattr(Config, "data_folder", staticmethod(lambda: tmp_path / "data"))
    (tmp_path / "tea").mkdir()
    return tmp_path


def called(place: Path, host: str, event: str, **said: Any) -> HookCall:
    """An event as the documentation of the host has it."""
    known = {"session_id": "s", "cwd": str(place / "tea"), "hook_event_name": event}
    return HookCall(host, event, {**known, **said}, place / "notes.db")


def stored(place: Path) -> list[tuple[str, str, str]]:
    with Database(place / "notes.db", embedder=Letters()) as db:
        return [(each.thread, each.source, each.text) for each in db.memories]


@pytest.mark.parametrize("host", TRANSCRIPTS)
def test_the_turns_of_a_session_are_stored_once_as_a_conversation(place: Path, host: str) -> None:
    path = written(place / "t.jsonl", TRANSCRIPTS[host])
    call = called(place, host, END[host], transcript_path=str(path))
    assert run(call) == ({}, f"2 turns stored in tea/{host} s")
    assert run(call) == ({}, f"0 turns stored in tea/{host} s")
    assert stored(place) == [
        (f"tea/{host} s", "user", "Which tea?"),
        (f"tea/{host} s", "agent", "Sencha."),
    ]


def test_cursor_tells_its_turns_itself(place: Path) -> None:
    said = {"conversation_id": "c", "generation_id": "g", "workspace_roots": [str(place / "tea")]}
    for event, more in (
        ("beforeSubmitPrompt", {"prompt": "Which tea?"}),
        ("afterAgentResponse", {"text": "Sencha."}),
        ("afterAgentResponse", {"text": "Sencha."}),
    ):
        reply, _ = run(HookCall("cursor", event, {**said, **more}, place / "notes.db"))
        assert reply == {}
    assert [text for _, _, text in stored(place)] == ["Which tea?", "Sencha."]
    start = HookCall("cursor", "sessionStart", {**said, "session_id": "d"}, place / "notes.db")
    assert '"Sencha." [memory:2]' in run(start)[0]["additional_context"]


def test_a_new_turn_is_added_and_a_resumed_session_repeats_nothing(place: Path) -> None:
    path = written(place / "t.jsonl", CLAUDE_CODE)
    run(called(place, "claude-code", "Stop", transcript_path=str(path)))
    more = {"type": "user", "uuid": "u9", "message": {"content": "And the water?"}}
    written(path, [*CLAUDE_CODE, more])
    call = called(place, "claude-code", "PreCompact", transcript_path=str(path), session_id="s2")
    assert run(call)[1] == "1 turns stored in tea/claude-code s2"
    assert [text for _, _, text in stored(place)][-1] == "And the water?"


def test_a_deleted_turn_does_not_come_back(place: Path) -> None:
    path = written(place / "t.jsonl", CLAUDE_CODE)
    call = called(place, "claude-code", "Stop", transcript_path=str(path))
    run(call)
    with Database(place / "notes.db", embedder=Letters()) as db:
        db.memories.delete([2])
    run(call)
    assert [text for _, _, text in stored(place)] == ["Which tea?"]


def test_secrets_are_left_out_and_the_log_says_so_but_not_what(place: Path) -> None:
    secret = "ghp_" + "a1B2" * 9
    entry = {"type": "user", "uuid": "u", "message": {"content": f"use {secret}"}}
    path = written(place / "t.jsonl", [entry])
    _, told = run(called(place, "claude-code", "Stop", transcript_path=str(path)))
    assert told.endswith("; one secret was left out (GitHub token)") and secret not in told
    assert stored(place)[0][2] == "use [redacted: GitHub token]"


def test_two_sessions_of_a_project_store_their_turns_at_once(place: Path) -> None:
    calls = []
    for session in ("a", "b"):
        entries = [
            {"type": "user", "uuid": f"{session}{n}", "message": {"content": f"{session} {n}"}}
            for n in range(20)
        ]
        path = written(place / session, entries)
        calls += 2 * [
            called(place, "claude-code", "Stop", transcript_path=str(path), session_id=session)
        ]
    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(text for _, _, text in stored(place)) == sorted(
        f"{session} {n}" for session in "ab" for n in range(20)
    )


def test_a_killed_hook_loses_nothing_and_repeats_nothing(place: Path) -> None:
    entries = [
        {"type": "user", "uuid": f"u{n}", "message": {"content": f"turn {n}"}} for n in range(40)
    ]
    path = written(place / "t.jsonl", entries)
    said = {"session_id": "s", "transcript_path": str(path), "cwd": str(place / "tea")}
    line = [sys.executable, "-m", "mcpvectordb", "hook", "Stop", "--db", str(place / "notes.db")]
    for wait in (0.15, 0.4, 0.7, 1.0, None):
        with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            try:
                out, _ = process.communicate(json.dumps(said).encode(), wait)
            except subprocess.TimeoutExpired:
                process.kill()
                out, _ = process.communicate()
            assert out == b""
    assert [text for _, _, text in stored(place)] == [f"turn {n}" for n in range(40)]


def test_a_clock_that_is_ahead_does_not_make_a_turn_newest_for_ever(place: Path) -> None:
    entry = {**CLAUDE_CODE[1], "timestamp": "2999-01-01T00:00:00Z"}
    path = written(place / "t.jsonl", [entry, {**CLAUDE_CODE[2], "timestamp": "yesterday-ish"}])
    run(called(place, "claude-code", "Stop", transcript_path=str(path)))
    with Database(place / "notes.db", embedder=Letters()) as db:
        assert [each.created_at[:4] < "2999" for each in db.memories] == [True]


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (["Stop"], b"not JSON"),
        (["Stop"], b"[1]"),
        (["Stop"], b'{"session_id": 5, "transcript_path": "/nowhere", "cwd": "/nowhere"}'),
        (["Nothing"], b"{}"),
        (["Stop", "--host", "nobody"], b"{}"),
        ([], b""),
    ],
)
def test_whatever_is_wrong_is_a_line_in_the_log_and_no_failure(
    place: Path, arguments: list[str], given: bytes
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mcpvectordb", "hook", *arguments, "--db", str(place / "n.db")],
        input=given,
        capture_output=True,
        env={"XDG_DATA_HOME": str(place), "HOME": str(place), "PATH": ""},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (log,) = place.rglob(LOG)
    assert len(log.read_text().splitlines()) == 1


def test_a_broken_database_is_a_line_in_the_log(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "notes.db").write_bytes(b"no database" * 1_000)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}")))
    assert main(["SessionStart", "--db", str(place / "notes.db")]) == 0
    assert "failed: NotOurFile" in (place / "data" / LOG).read_text()


def test_what_was_published_is_no_place_for_turns(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}")))
    assert main(["Stop", "--db", "postgresql://me@host/notes"]) == 0
    assert "hooks need a file" in (place / "data" / LOG).read_text()
    assert {each.name for each in place.iterdir()} == {"data", "tea"}


def test_the_log_is_bounded(place: Path) -> None:
    for _ in range(8):
        _log("x" * (LARGEST_LOG // 3))
    sizes = [each.stat().st_size for each in (place / "data").iterdir()]
    assert len(sizes) == 2 and max(sizes) < 2 * LARGEST_LOG


def test_without_a_file_a_start_says_nothing_and_makes_none(place: Path) -> None:
    assert run(called(place, "claude-code", "SessionStart", source="startup")) == ({}, "")
    assert not (place / "notes.db").exists()


def test_a_hook_loads_no_model_and_nothing_of_the_shell(place: Path) -> None:
    path = written(place / "t.jsonl", CLAUDE_CODE)
    said = {"session_id": "s", "transcript_path": str(path), "cwd": str(place / "tea")}
    code = (
        "import sys; from mcpvectordb.hooks.run import main; main(sys.argv[1:]); heavy = {'numpy',"
        "'tokenizers','onnxruntime','click','rich','mcp','asyncio'} & set(sys.modules); print(heavy)"
    )
    for event in ("Stop", "SessionStart"):
        done = subprocess.run(
            [sys.executable, "-c", code, event, "--db", str(place / "notes.db")],
            input=json.dumps(said).encode(),
            capture_output=True,
            check=True,
        )
        assert done.stdout.splitlines()[-1] == b"set()"


def test_every_event_of_every_host_is_answered(place: Path) -> None:
    with Database(place / "notes.db", embedder=Letters()) as db:
        db.memories.add("tea", "user", "Sencha is brewed at 70 degrees.", tags=["standing"])
    for host, events in EVENTS.items():
        for event in events:
            reply, _ = run(called(place, host, event, prompt="How hot is sencha brewed?"))
            assert event.lower() == "sessionstart" or "hookSpecificOutput" in reply or reply == {}
