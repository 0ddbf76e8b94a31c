"""Transcripts of hosts: the turns of people and models, from a place in the file on.

Each line of a transcript is JSON. Claude Code, Codex and Gemini CLI write different objects, which
are told apart by their keys, so no one has to say whose file it is. Of what a turn is made of, the
text is kept; thoughts, calls of tools and what tools answered are not: they are most of the bytes,
can be had again, and would be words of nobody who may be trusted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mcpvectordb.memories.memory import MemorySource, Turn

ENOUGH = 20_000_000  # bytes with a turn in them; the rest is read by the next hook
LONGEST_LINE = 20_000_000  # bytes; a longer one is no turn
# What Claude Code and Codex write in the place of a person.
_NOT_SAID = re.compile(
    r"\s*(?:<(?:command-|local-command-|bash-|system-reminder|user_instructions|environment_context"
    r"|turn_aborted)|\[Request interrupted)"
)
# What Gemini CLI puts before a prompt: the answers of hooks, ours among them.
_OF_HOOKS = re.compile(r"\s*(?:<hook_context>.*?</hook_context>\s*)+", re.DOTALL)
_SPEAKERS: dict[str, MemorySource] = {
    "user": "user",
    "assistant": "agent",
    "gemini": "agent",
    "user_message": "user",
    "agent_message": "agent",
    "UserMessage": "user",
    "AgentMessage": "agent",
}


def read(path: Path, session: str, start: int = 0, *, enough: int = ENOUGH) -> list[Turn]:
    """The turns of a transcript that end after `start`; of a file that was made anew, all.

    Of a long transcript they are those up to `enough` bytes further, and at least one.

    The last line counts only when it is complete: a host may be writing it.
    """
    if path.suffix == ".json":  # one object: Gemini CLI before it wrote lines
        return list(_of_whole(path.read_bytes(), session))
    turns: list[Turn] = []
    items = False  # newer versions of Codex tell a message as an item, older ones as an event
    with path.open("rb") as file:
        if start:
            file.seek(start - 1)
            if file.read(1) != b"\n":
                start = 0
                file.seek(0)
        end = start
        for line in file:
            end += len(line)
            if not line.endswith(b"\n") or (turns and end - start > enough):
                break
            items = items or b'"item_completed"' in line
            if len(line) <= LONGEST_LINE:
                found = _turn(_decoded(line), f"{session} {end}", items)
                turns += [Turn(**found, end=end)] if found else []
    return turns


def _of_whole(content: bytes, session: str) -> Iterator[Turn]:
    record = _decoded(content)
    for number, message in enumerate(record.get("messages") or ()):
        if isinstance(message, dict) and (found := _turn(message, f"{session} {number}")):
            yield Turn(**found)


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _turn(entry: dict[str, Any], place: str, items: bool = False) -> dict[str, Any] | None:
    """The fields of the turn that an entry is; None if it is none."""
    message, kind = entry, entry.get("type")
    content = entry.get("content")
    if kind == "event_msg" and isinstance(entry.get("payload"), dict):  # Codex
        message = entry["payload"]
        if isinstance(item := message.get("item"), dict):
            kind, content = item.get("type"), item.get("content")
        elif items:
            return None
        else:
            kind, content = message.get("type"), message.get("message")
    elif isinstance(entry.get("message"), dict):  # Claude Code
        if entry.get("isMeta") or entry.get("isSidechain") or entry.get("isCompactSummary"):
            return None
        message = entry["message"]
        content = message.get("content")
    source = _SPEAKERS.get(str(kind))
    text = _text(content)
    if before := _OF_HOOKS.match(text):
        text = text[before.end() :]
    if source is None or not text.strip() or _NOT_SAID.match(text):
        return None
    id = entry.get("uuid") or entry.get("id")
    return {
        "id": id if isinstance(id, str) and id else place,
        "source": source,
        "text": text.encode("utf-8", "replace").decode().replace("\0", ""),
        "time": entry["timestamp"] if isinstance(entry.get("timestamp"), str) else "",
    }


def _text(content: object) -> str:
    """The text of a message: a string, or the blocks of text among others."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    parts = [each if isinstance(each, str) else _block(each) for each in blocks]
    return "\n\n".join(part for part in parts if part.strip())


def _block(block: object) -> str:
    if not isinstance(block, dict) or str(block.get("type", "text")).lower() != "text":
        return ""
    text = block.get("text")
    return text if isinstance(text, str) and not block.get("thought") else ""
