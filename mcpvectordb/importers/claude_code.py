"""Sessions of Claude Code: ~/.claude/projects, one project of it, or one session (JSON Lines)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mcpvectordb.importers import conversation_files, json_files, values
from mcpvectordb.importers.items import ImportedMemory, ImportOptions, Item, UnreadPart
from mcpvectordb.importers.source import ImportSource

_TITLES = {"summary": "summary", "custom-title": "customTitle", "ai-title": "aiTitle"}
# What the program writes in the place of a person: commands and their output.
_COMMAND = re.compile(r"\s*<(command-|local-command-|bash-|system-reminder)")
_PLACES = ("*.jsonl", "*/*.jsonl", "projects/*/*.jsonl")


def recognises(source: ImportSource) -> bool:
    """Whether it is a session, or a folder of sessions."""
    return any(map(_is_session, _sessions(source)[:20]))


def _sessions(source: ImportSource) -> list[Path]:
    if not source.is_folder:
        return [source.path]
    return sorted(path for place in _PLACES for path in source.path.glob(place) if path.is_file())


def _is_session(path: Path) -> bool:
    if path.suffix != ".jsonl":
        return False
    for line in json_files.head(path).splitlines()[:10]:
        found = values.json_value(line)
        if isinstance(found, dict) and (
            ("sessionId" in found and "type" in found)
            or (found.get("type") == "summary" and "leafUuid" in found)
        ):
            return True
    return False


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """A memory for each message of people and of the model, a thread for each session."""
    left: Counter[str] = Counter()
    seen: set[str] = set()  # a session that was resumed repeats the messages of the one before
    for path in _sessions(source):
        if source.is_folder and not _is_session(path):
            continue
        title = _title(path)
        for number, entry, error in json_files.json_lines(path):
            if error:
                yield UnreadPart(what=f"{path.name}, line {number}: {error}")
                continue
            item = _message(entry, title, path.stem, left) if isinstance(entry, dict) else None
            if item is not None and item.id not in seen:
                seen.add(item.id)
                yield item
    yield from conversation_files.not_kept(left)


def _title(path: Path) -> str:
    """The last title that a session was given; "" without one."""
    title = ""
    for _, entry, _ in json_files.json_lines(path):
        found = values.item(entry, _TITLES.get(str(values.item(entry, "type")), ""))
        title = found if isinstance(found, str) else title
    return title


def _message(
    entry: Mapping[str, Any], title: str, file: str, left: Counter[str]
) -> ImportedMemory | None:
    role, message = conversation_files.ROLES.get(str(entry.get("type"))), entry.get("message")
    if role is None or not isinstance(message, dict) or entry.get("isMeta"):
        return None
    if entry.get("isSidechain"):
        left["messages of subagents"] += 1
        return None
    text = _text(message.get("content"), left)
    if not text.strip() or _COMMAND.match(text):
        return None
    session = str(entry.get("sessionId") or file)
    said = {
        "title": title,
        "session": session,
        "project": entry.get("cwd"),
        "branch": entry.get("gitBranch"),
        "model": message.get("model"),
    }
    return conversation_files.message(
        entry.get("uuid") or f"{session}/{entry.get('timestamp')}",
        f"claude-code/{session}",
        role,
        text,
        values.time(entry.get("timestamp")),
        **{name: value for name, value in said.items() if value},
    )


def _text(content: object, left: Counter[str]) -> str:
    """The text of a message, without calls of tools and what these returned."""
    if isinstance(content, str):
        return content
    parts = []
    for block in values.listed(content):
        if values.item(block, "type") == "text":
            parts.append(str(block.get("text", "")))
        else:
            left["thoughts, images, and calls of tools"] += 1
    return "\n\n".join(part for part in parts if part.strip())
