"""The exports of ChatGPT and Claude, and sessions of Claude Code.

The services make the first two for their users only, so these are written by hand after the
layouts that public importers document; sessions likewise.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Database, ParseFailed, UnsupportedFormat


def message(
    id: str, role: str, text: Any, parent: str | None, time: float | None = None, **other: Any
) -> dict[str, Any]:
    """A node of a conversation of ChatGPT."""
    content = text if isinstance(text, dict) else {"content_type": "text", "parts": [text]}
    said = {"id": id, "author": {"role": role}, "create_time": time, "content": content, **other}
    return {id: {"id": id, "message": said, "parent": parent, "children": []}}


HIDDEN = {"metadata": {"is_visually_hidden_from_conversation": True}}
CHATGPT: dict[str, Any] = {
    "title": "Green tea",
    "create_time": 1700000000.0,
    "conversation_id": "c-1",
    "current_node": "a2",
    "mapping": {
        "root": {"id": "root", "message": None, "parent": None, "children": ["s"]},
        **message("s", "system", "You are helpful.", "root", **HIDDEN),
        **message("u1", "user", "How hot should water be?", "s", 1700000001.5),
        **message("a1", "assistant", "Ninety degrees.", "u1", 1700000002.0),
        **message("a1b", "assistant", "Eighty.", "u1", 1700000003.0, metadata={"model_slug": "x"}),
        **message("u2", "user", {"parts": [{}, "And this \ud83d leaf?"]}, "a1b", 1700000004.0),
        **message("t", "tool", "42", "u2", 1700000005.0),
        **message("th", "assistant", {"content_type": "thoughts", "thoughts": []}, "t"),
        **message(
            "a2", "assistant", {"content_type": "code", "language": "py", "text": "print(1)"}, "th"
        ),
    },
}
del CHATGPT["mapping"]["u1"]["message"]["id"]
CHATGPT["mapping"]["a1b"]["message"]["id"] = "of a1b"
CLAUDE: dict[str, Any] = {
    "uuid": "k-1",
    "name": "Keys",
    "created_at": "2025-01-02T03:04:05.678901Z",
    "chat_messages": [
        {
            "uuid": "m1",
            "text": "old form",
            "content": [{"type": "text", "text": "Rotate the keys?"}],
            "sender": "human",
            "created_at": "2025-01-02T03:04:06Z",
            "attachments": [{"file_name": "keys.txt", "extracted_content": "key one"}],
            "files": [{"file_name": "photo.png"}],
        },
        {
            "uuid": "m2",
            "text": "Yes, in May.",
            "content": [{"type": "tool_use", "name": "search", "input": {}}],
            "sender": "assistant",
            "created_at": "2025-01-02T03:04:07Z",
        },
        {"uuid": "m3", "text": "", "content": [], "sender": "human"},
        "not a message",
    ],
}


def line(type: str, uuid: str, content: Any, **other: Any) -> dict[str, Any]:
    """A line of a session of Claude Code."""
    return {
        "type": type,
        "uuid": uuid,
        "sessionId": "s-1",
        "timestamp": "2025-05-26T07:27:40.079Z",
        "cwd": "/home/me/project",
        "gitBranch": "main",
        "message": {"role": type, "content": content},
        **other,
    }


SESSION = [
    {"type": "summary", "summary": "A session about tea", "leafUuid": "2"},
    line("user", "1", "Fix the tea pot."),
    line("user", "2", "<command-name>/clear</command-name>"),
    line("user", "3", [{"type": "tool_result", "content": "ok"}]),
    line("assistant", "4", [{"type": "text", "text": "Fixed."}, {"type": "tool_use"}]),
    line("assistant", "5", [{"type": "text", "text": "Aside"}], isSidechain=True),
    line("user", "6", "Caveat", isMeta=True),
    {"type": "file-history-snapshot", "snapshot": {}},
]


def said(db: Database) -> list[tuple[str, str, str, str]]:
    """Source, text, thread and time of all memories, the oldest first."""
    return [
        (each.source, each.text, each.thread, each.created_at[:23])
        for each in reversed(db.memories.browse(limit=100).items)
    ]


EXPECTED_CHATGPT = [
    ("user", "How hot should water be?", "chatgpt/c-1", "2023-11-14T22:13:21.500"),
    ("agent", "Eighty.", "chatgpt/c-1", "2023-11-14T22:13:23.000"),
    ("user", "And this ? leaf?", "chatgpt/c-1", "2023-11-14T22:13:24.000"),
    ("agent", "```py\nprint(1)\n```", "chatgpt/c-1", "2023-11-14T22:13:25.000"),
]


def written(path: Path, value: object) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize("form", ["file", "folder", "zip"])
def test_the_shown_branch_of_a_chatgpt_conversation_becomes_a_thread(
    db: Database, tmp_path: Path, form: str
) -> None:
    folder = tmp_path / "export"
    path = written(folder / "conversations.json", [CHATGPT])
    if form == "folder":
        path = folder
    elif form == "zip":
        path = tmp_path / "export.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(folder / "conversations.json", "sub/conversations.json")
            archive.writestr("chat.html", "<html>")
    done = db.import_from(path)
    assert done.kind == "chatgpt" and done.added == {"memories": 4} and not done.unread
    assert said(db) == EXPECTED_CHATGPT
    assert done.not_kept == {
        "messages of branches that were edited or generated again": 1,
        "images and files in messages": 1,
        "messages of tools and of the system": 2,
        "thoughts of the model": 1,
    }
    [eighty] = db.memories.browse(where={"metadata.model": "x"})
    assert eighty.metadata is not None and eighty.metadata["title"] == "Green tea"
    ids = {(each.metadata or {})["imported"]["id"] for each in db.memories.browse()}
    assert ids == {"u1", "of a1b", "u2", "a2"}
    again = db.import_from(path)
    assert again.known == {"memories": 4} and not again.added and not again.changed


def test_an_export_in_parts_is_read_as_a_whole_and_a_later_one_brings_the_rest(
    db: Database, tmp_path: Path
) -> None:
    written(tmp_path / "export" / "conversations-000.json", [CHATGPT])
    more = {**CHATGPT["mapping"], **message("u3", "user", "Thanks!", "a2", 1700000009.0)}
    later = {**CHATGPT, "mapping": more, "current_node": "u3"}
    written(tmp_path / "export" / "conversations-001.json", [later])
    written(tmp_path / "export" / "conversations-x.json", [{**later, "conversation_id": "c-2"}])
    done = db.import_from(tmp_path / "export")
    assert done.kind == "chatgpt" and (done.added, done.known) == ({"memories": 5}, {"memories": 4})


@pytest.mark.parametrize(
    "change",
    [
        {"current_node": "gone"},
        {"current_node": None},
        {"mapping": {}},
        {"mapping": {"x": None}},
        {"mapping": {"a": {"message": {"author": 5, "content": [1]}, "parent": "a"}}},
        {"mapping": []},
        {"conversation_id": 5},
    ],
)
def test_a_conversation_that_is_not_sound_does_not_keep_others_out(
    db: Database, tmp_path: Path, change: dict[str, Any]
) -> None:
    path = written(tmp_path / "conversations.json", [{**CHATGPT, **change}, CHATGPT])
    done = db.import_from(path, "chatgpt")
    assert db.memories.count() == 4 and not done.skipped
    assert len(done.unread) == (change in ({"mapping": []}, {"conversation_id": 5}))


def test_parents_in_a_circle_end(db: Database, tmp_path: Path) -> None:
    circle = {**message("x", "user", "One.", "y", 1.0), **message("y", "user", "Two.", "x", 2.0)}
    conversation = {**CHATGPT, "mapping": circle, "current_node": "x"}
    db.import_from(written(tmp_path / "conversations.json", [conversation]))
    assert [text for _, text, _, _ in said(db)] == ["One.", "Two."]


def test_claude_messages_come_with_the_text_of_their_attachments(
    db: Database, tmp_path: Path
) -> None:
    path = written(tmp_path / "conversations.json", [CLAUDE, {"uuid": 5}, 7])
    done = db.import_from(path)
    assert done.kind == "claude" and done.added == {"memories": 2}
    assert said(db) == [
        (
            "user",
            "Rotate the keys?\n\nAttachment keys.txt:\n\nkey one",
            "claude/k-1",
            "2025-01-02T03:04:06.000",
        ),
        ("agent", "Yes, in May.", "claude/k-1", "2025-01-02T03:04:07.000"),
    ]
    assert done.not_kept["files in messages"] == 1 and len(done.unread) == 2
    [memory] = db.memories.browse(where={"metadata.title": "Keys"}, source="agent")
    assert db.memories.search("keys May").hits[0].item.thread == memory.thread


def session(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in lines) + "{broken\n")
    return path


@pytest.mark.parametrize(
    "place", ["", "projects", "projects/-home-me", "projects/-home-me/s.jsonl"]
)
def test_sessions_of_claude_code_become_threads(db: Database, tmp_path: Path, place: str) -> None:
    home = tmp_path / "claude"
    session(home / "projects" / "-home-me" / "s.jsonl", SESSION)
    done = db.import_from(home / place)
    assert done.kind == "claude-code" and done.added == {"memories": 2}
    assert [(source, text) for source, text, _, _ in said(db)] == [
        ("user", "Fix the tea pot."),
        ("agent", "Fixed."),
    ]
    [memory] = db.memories.browse(source="user")
    assert memory.thread == "claude-code/s-1" and memory.metadata is not None
    assert memory.metadata["title"] == "A session about tea"
    assert memory.metadata["project"] == "/home/me/project"
    assert memory.created_at == "2025-05-26T07:27:40.079000+00:00"
    assert done.not_kept["messages of subagents"] == 1
    assert done.unread[0].startswith("s.jsonl, line 9: it is not JSON")


def test_a_resumed_session_does_not_repeat_messages(db: Database, tmp_path: Path) -> None:
    session(tmp_path / "p" / "a.jsonl", SESSION)
    resumed = [{**each, "sessionId": "s-2"} for each in SESSION if "uuid" in each]
    session(tmp_path / "p" / "b.jsonl", [*resumed, line("user", "9", "More.", sessionId="s-2")])
    assert db.import_from(tmp_path / "p").added == {"memories": 3}
    assert db.memories.count(thread="claude-code/s-2") == 1


def test_damaged_archives_are_refused_or_read_as_far_as_they_go(
    db: Database, tmp_path: Path
) -> None:
    path = tmp_path / "export.zip"
    path.write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(UnsupportedFormat):
        db.import_from(path)
    with pytest.raises(ParseFailed, match="it is no ZIP archive"):
        db.import_from(path, "chatgpt")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps([CHATGPT])[:-40])
    done = db.import_from(path)
    assert len(done.unread) == 1 and not done.added
    raw = bytearray(path.read_bytes())
    raw[60:120] = bytes(60)
    path.write_bytes(raw)
    assert db.import_from(path, "chatgpt").unread
    raw[6] |= 1
    raw[raw.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(raw)
    with pytest.raises(ParseFailed, match="is encrypted"):
        db.import_from(path, "chatgpt")


def test_a_value_of_any_depth_ends_in_the_report(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(f"[{json.dumps(CHATGPT)}, {'[' * 200_000}]")
    done = db.import_from(path)
    assert done.added == {"memories": 4} and "nested too deep" in done.unread[0]
