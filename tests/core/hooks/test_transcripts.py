"""Turns are read from the transcripts of hosts, whatever else stands in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.hooks.transcripts import read

# Small sessions in the layouts of the hosts' own files.
CLAUDE_CODE: list[dict[str, Any]] = [
    {"type": "summary", "summary": "Tea", "leafUuid": "u2"},
    {
        "type": "user",
        "uuid": "u1",
        "sessionId": "s",
        "timestamp": "2026-11-18T10:00:00.000Z",
        "message": {"role": "user", "content": "Which tea?"},
    },
    {
        "type": "assistant",
        "uuid": "u2",
        "timestamp": "2026-11-18T10:00:05.000Z",
        "message": {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hidden"},
                {"type": "text", "text": "Sencha."},
                {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}},
            ],
        },
    },
    {
        "type": "user",
        "uuid": "u3",
        "message": {"role": "user", "content": [{"type": "tool_result", "content": "bulk"}]},
    },
    {"type": "user", "uuid": "u4", "isMeta": True, "message": {"content": "caveat"}},
    {"type": "assistant", "uuid": "u5", "isSidechain": True, "message": {"content": "subagent"}},
    {"type": "user", "uuid": "u6", "message": {"content": "<command-name>/clear</command-name>"}},
    {"type": "user", "uuid": "u7", "isCompactSummary": True, "message": {"content": "summary"}},
]
CODEX: list[dict[str, Any]] = [
    {"timestamp": "2026-11-18T10:00:00Z", "type": "session_meta", "payload": {"id": "s"}},
    {
        "timestamp": "2026-11-18T10:00:00Z",
        "type": "response_item",
        "payload": {"type": "message", "role": "user", "content": [{"text": "Which tea?"}]},
    },
    {
        "timestamp": "2026-11-18T10:00:01Z",
        "type": "event_msg",
        "payload": {"type": "user_message", "message": "Which tea?"},
    },
    {
        "timestamp": "2026-11-18T10:00:04Z",
        "type": "event_msg",
        "payload": {"type": "agent_reasoning", "text": "hidden"},
    },
    {
        "timestamp": "2026-11-18T10:00:05Z",
        "type": "event_msg",
        "payload": {"type": "agent_message", "message": "Sencha."},
    },
]
GEMINI: list[dict[str, Any]] = [
    {"sessionId": "s", "projectHash": "p", "startTime": "2026-11-18T10:00:00Z"},
    {
        "id": "m1",
        "timestamp": "2026-11-18T10:00:00Z",
        "type": "user",
        "content": [{"text": "<hook_context>Notes\n<b></hook_context>\n\nWhich tea?"}],
    },
    {
        "id": "m2",
        "timestamp": "2026-11-18T10:00:05Z",
        "type": "gemini",
        "content": "Sencha.",
        "toolCalls": [{"name": "ls", "result": "bulk"}],
        "thoughts": [{"subject": "hidden"}],
    },
    {"id": "m3", "type": "info", "content": "Request cancelled."},
    {"$set": {"lastUpdated": "2026-11-18T10:00:06Z"}},
]
# As Codex 0.169 writes it.
CODEX_ITEMS: list[dict[str, Any]] = [
    CODEX[0],
    {"type": "event_msg", "payload": {"type": "task_started", "item": None}},
    {
        "timestamp": "2026-11-18T10:00:01Z",
        "type": "event_msg",
        "payload": {
            "type": "item_completed",
            "item": {"type": "UserMessage", "content": [{"type": "text", "text": "Which tea?"}]},
        },
    },
    {
        "timestamp": "2026-11-18T10:00:05Z",
        "type": "event_msg",
        "payload": {
            "type": "item_completed",
            "item": {
                "type": "AgentMessage",
                "id": "item_0",
                "content": [{"type": "Text", "text": "Sencha."}],
            },
        },
    },
]
LAYOUTS = {
    "claude-code": CLAUDE_CODE,
    "codex": CODEX,
    "codex items": CODEX_ITEMS,
    "gemini": GEMINI,
}


def written(path: Path, entries: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in entries))
    return path


def test_each_layout_has_the_same_two_turns(tmp_path: Path) -> None:
    for name, entries in LAYOUTS.items():
        path = written(tmp_path / name, entries)
        turns = read(path, "s")
        assert [(turn.source, turn.text) for turn in turns] == [
            ("user", "Which tea?"),
            ("agent", "Sencha."),
        ]
        assert all(turn.time.startswith("2026-11-18T10:00:0") for turn in turns)
        assert len({turn.id for turn in turns}) == 2
        assert read(path, "s", turns[0].end) == turns[1:]
        assert read(path, "s", turns[1].end) == []


def test_a_session_of_gemini_as_one_object_is_read(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    path.write_text(json.dumps({"sessionId": "s", "messages": GEMINI[1:4]}))
    assert [turn.text for turn in read(path, "s")] == ["Which tea?", "Sencha."]


def test_a_line_that_is_being_written_is_read_when_it_is_complete(tmp_path: Path) -> None:
    path = written(tmp_path / "t", CLAUDE_CODE[:2])
    (first,) = read(path, "s")
    line = json.dumps(CLAUDE_CODE[2])
    path.write_text(path.read_text() + line)
    assert read(path, "s", first.end) == []
    path.write_text(path.read_text() + "\n")
    assert [turn.text for turn in read(path, "s", first.end)] == ["Sencha."]


def test_a_long_transcript_is_read_bit_by_bit_to_its_end(tmp_path: Path) -> None:
    bulk = {"type": "user", "message": {"content": [{"type": "tool_result", "content": "x" * 500}]}}
    path = written(tmp_path / "t", [*[bulk] * 9, CLAUDE_CODE[1], *[bulk] * 9, CLAUDE_CODE[2]])
    found, start = [], 0
    while turns := read(path, "s", start, enough=300):
        found += [turn.id for turn in turns]
        start = turns[-1].end
    assert found == ["u1", "u2"]


def test_a_file_that_was_made_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = written(tmp_path / "t", CLAUDE_CODE)
    assert [turn.id for turn in read(path, "s", 10_000_000)] == ["u1", "u2"]
    assert [turn.id for turn in read(path, "s", 7)] == ["u1", "u2"]


@given(st.lists(st.binary(max_size=40) | st.sampled_from([b"{}", b"[", b'{"type":"user"}'])))
def test_no_line_of_a_transcript_fails(tmp_path_factory: Any, lines: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("t") / "t"
    path.write_bytes(b"\n".join(lines))
    read(path, "s")
