"""Conversations: the exports of ChatGPT and of Claude, and sessions of Claude Code.

Messages of people and of the model become memories, in a thread for each conversation. An export is
conversations.json, its parts (conversations-000.json …), their folder, or the ZIP in which it
comes; a session is a file of JSON Lines in ~/.claude/projects.
"""

from __future__ import annotations

import contextlib
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from mcpvectordb.errors import ParseFailed
from mcpvectordb.memories.memory import MemorySource
from mcpvectordb.transfer import values
from mcpvectordb.transfer.items import ImportedMemory, ImportOptions, Item, NotKept, UnreadPart
from mcpvectordb.transfer.source import ImportSource

ROLES: Mapping[str, MemorySource] = {"user": "user", "human": "user", "assistant": "agent"}
_NAME = re.compile(r"conversations(-\d+)?\.json", re.IGNORECASE)
_ZIP = b"PK\x03\x04"


def is_export(key: str, source: ImportSource) -> bool:
    """Whether the first conversations of an export have a key that only one service uses."""
    try:
        with contextlib.closing(_opened(source)) as files:
            for _, file in files:
                head = file.read(values.HEAD_BYTES).lstrip(values.BLANK)
                return head[:1] in (b"[", b"{") and f'"{key}"'.encode() in head
    except (ParseFailed, RuntimeError, *values.DAMAGE):
        pass
    return False


def read_export(
    messages: Callable[[Mapping[str, Any], Counter[str]], Iterator[Item]],
    source: ImportSource,
    options: ImportOptions,
) -> Iterator[Item]:
    """The messages of every conversation of an export, and what could not be read.

    `messages` returns those of a conversation, and counts what it leaves out of it.
    """
    left: Counter[str] = Counter()
    for name, file in _opened(source):
        try:
            for found in values.elements(file):
                if isinstance(found, dict):
                    yield from messages(found, left)
                else:
                    yield UnreadPart(what=f"{name}: an element that is no conversation")
        except ParseFailed as error:
            yield UnreadPart(what=f"{name}, {error}")
    yield from (NotKept(what=what, count=count) for what, count in left.items())


def _memory(
    id: object, thread: str, role: MemorySource, text: str, time: str, **said: object
) -> ImportedMemory:
    """A message as a memory; what is said of it becomes metadata."""
    return ImportedMemory(
        id=str(id),
        thread=values.storable(thread),
        source=role,
        text=values.storable(text),
        created_at=time,
        metadata=values.metadata(said),
    )


def _joined(parts: list[str]) -> str:
    return "\n\n".join(part for part in parts if part.strip())


def _texts(blocks: object, left: Counter[str], others: str) -> list[str]:
    """The texts among the blocks of a message; others are counted under their name."""
    parts = []
    for block in values.listed(blocks):
        text = block if isinstance(block, str) else values.item(block, "text")
        if isinstance(text, str):
            parts.append(text)
        else:
            left[others] += 1
    return parts


def _opened(source: ImportSource) -> Generator[tuple[str, BinaryIO], None, None]:
    """The names and the contents of the files with conversations, in the order of their names.

    Each is open until the next one is asked for.
    """
    if not source.head.startswith(_ZIP):
        paths = [source.path]
        if source.is_folder:
            named = (path for path in source.path.iterdir() if _NAME.fullmatch(path.name))
            paths = sorted(path for path in named if path.is_file())
        for path in paths:
            with path.open("rb") as content:
                yield path.name, content
        return
    name = source.path.name
    try:
        archive = zipfile.ZipFile(source.path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, OSError) as error:
        raise ParseFailed(f"{name} is damaged: it is no ZIP archive ({error})") from None
    with archive:
        members = archive.infolist()
        found = [each for each in members if _NAME.fullmatch(PurePosixPath(each.filename).name)]
        if any(each.flag_bits & 1 for each in found):
            raise ParseFailed(f"{name} is encrypted; save a copy without its password")
        # No more of a member is unpacked than the archive says that it has.
        values.check_unpacked(source.path, sum(each.file_size for each in found))
        for member in sorted(found, key=lambda each: each.filename):
            with archive.open(member) as file:
                yield member.filename, cast("BinaryIO", file)


# --- ChatGPT
#
# A conversation is a tree of messages, because messages can be edited and answers made again. The
# branch that was last shown becomes a thread: the messages from `current_node` up to the root.


def chatgpt_messages(conversation: Mapping[str, Any], left: Counter[str]) -> Iterator[Item]:
    """Those of the branch that was last shown."""
    name = conversation.get("conversation_id") or conversation.get("id")
    mapping = conversation.get("mapping")
    if not isinstance(name, str) or not isinstance(mapping, dict):
        yield UnreadPart(what="a conversation without an id or without messages")
        return
    nodes = {id: values.item(node, "message") for id, node in mapping.items()}
    branch = _branch(mapping, conversation.get("current_node"))
    others = sum(map(_is_said, nodes.values())) - sum(_is_said(nodes[id]) for id in branch)
    left["messages of branches that were edited or generated again"] += others
    said = {"title": conversation.get("title"), "conversation": name}
    time = values.time(conversation.get("create_time"))
    for id in branch:
        message = nodes[id] if isinstance(nodes[id], dict) else {}
        role = _role(message)
        time = values.time(message.get("create_time")) or time
        text = _chatgpt_text(message, left) if _is_said(message) else ""
        if text.strip():
            model = values.item(message, "metadata", "model_slug")
            more = said | ({"model": model} if model else {})
            id = message.get("id") or id
            yield _memory(id, f"chatgpt/{name}", ROLES[role], text, time, **more)
        else:
            left["messages of tools and of the system"] += role not in ("", *ROLES)


def _branch(mapping: Mapping[str, Any], current: object) -> list[str]:
    """The ids from the root to the node that was last shown; of a cycle each is taken once."""
    if not isinstance(current, str) or current not in mapping:
        current = max(
            mapping,
            key=lambda id: values.time(values.item(mapping[id], "message", "create_time")),
            default=None,
        )
    found: dict[str, None] = {}
    while isinstance(current, str) and current in mapping and current not in found:
        found[current] = None
        current = values.item(mapping[current], "parent")
    return list(found)[::-1]


def _role(message: object) -> str:
    return str(values.item(message, "author", "role") or "")


def _is_said(message: object) -> bool:
    """Whether a person or the model said it, and it was shown: not hidden, and to no tool."""
    hidden = values.item(message, "metadata", "is_visually_hidden_from_conversation")
    shown = not hidden and values.item(message, "recipient") in ("all", None)
    return shown and _role(message) in ROLES


def _chatgpt_text(message: Mapping[str, Any], left: Counter[str]) -> str:
    """The text of a message; what is no text is counted."""
    content = message.get("content")
    kind, text = values.item(content, "content_type"), values.item(content, "text")
    if kind in ("thoughts", "reasoning_recap"):
        left["thoughts of the model"] += 1
        return ""
    if kind == "code" and isinstance(text, str):
        language = values.item(content, "language")
        return f"```{language if language not in (None, 'unknown') else ''}\n{text}\n```"
    parts = values.item(content, "parts")
    if not isinstance(parts, list):
        return values.text(text)
    return _joined(_texts(parts, left, "images and files in messages"))


# --- Claude


def claude_messages(conversation: Mapping[str, Any], left: Counter[str]) -> Iterator[Item]:
    """All of them, with the text of attachments."""
    name, messages = conversation.get("uuid"), conversation.get("chat_messages")
    if not isinstance(name, str) or not isinstance(messages, list):
        yield UnreadPart(what="a conversation without an id or without messages")
        return
    said = {"title": conversation.get("name"), "conversation": name}
    time = values.time(conversation.get("created_at"))
    for place, message in enumerate(messages):
        role = ROLES.get(str(values.item(message, "sender")))
        if role is None:
            left["messages of nobody that is known"] += 1
            continue
        time = values.time(message.get("created_at")) or time
        text = _claude_text(message, left)
        if text.strip():
            id = message.get("uuid") or f"{name}/{place}"
            yield _memory(id, f"claude/{name}", role, text, time, **said)


def _claude_text(message: Mapping[str, Any], left: Counter[str]) -> str:
    """What was written, and the text of attachments; what is no text is counted."""
    parts = _texts(message.get("content"), left, "thoughts, and calls of tools")
    if not any(part.strip() for part in parts):
        parts = [values.text(message.get("text"))]
    for each in values.listed(message.get("attachments")):
        content = values.text(values.item(each, "extracted_content"))
        if content.strip():
            parts.append(f"Attachment {each.get('file_name') or ''}:\n\n{content}")
    left["files in messages"] += len(values.listed(message.get("files")))
    return _joined(parts)


# --- Claude Code

_TITLES = {"summary": "summary", "custom-title": "customTitle", "ai-title": "aiTitle"}
# What the program writes in the place of a person: commands and their output.
_COMMAND = re.compile(r"\s*<(command-|local-command-|bash-|system-reminder)")
_PLACES = ("*.jsonl", "*/*.jsonl", "projects/*/*.jsonl")


def has_sessions(source: ImportSource) -> bool:
    """Whether it is a session of Claude Code, or a folder of sessions."""
    return any(map(_is_session, _sessions(source)[:20]))


def _sessions(source: ImportSource) -> list[Path]:
    if not source.is_folder:
        return [source.path]
    return sorted(path for place in _PLACES for path in source.path.glob(place) if path.is_file())


def _is_session(path: Path) -> bool:
    if path.suffix != ".jsonl":
        return False
    for line in values.head(path).splitlines()[:10]:
        found = values.json_value(line)
        if isinstance(found, dict) and (
            ("sessionId" in found and "type" in found)
            or (found.get("type") == "summary" and "leafUuid" in found)
        ):
            return True
    return False


def read_sessions(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """A memory for each message of people and of the model, a thread for each session."""
    left: Counter[str] = Counter()
    seen: set[str] = set()  # a session that was resumed repeats the messages of the one before
    for path in _sessions(source):
        if source.is_folder and not _is_session(path):
            continue
        title = _session_title(path)
        for number, entry, error in values.json_lines(path):
            if error:
                yield UnreadPart(what=f"{path.name}, line {number}: {error}")
                continue
            item = _of_session(entry, title, path.stem, left) if isinstance(entry, dict) else None
            if item is not None and item.id not in seen:
                seen.add(item.id)
                yield item
    yield from (NotKept(what=what, count=count) for what, count in left.items())


def _session_title(path: Path) -> str:
    """The last title that a session was given; "" without one."""
    title = ""
    for _, entry, _ in values.json_lines(path):
        found = values.item(entry, _TITLES.get(str(values.item(entry, "type")), ""))
        title = found if isinstance(found, str) else title
    return title


def _of_session(
    entry: Mapping[str, Any], title: str, file: str, left: Counter[str]
) -> ImportedMemory | None:
    role, message = ROLES.get(str(entry.get("type"))), entry.get("message")
    if role is None or not isinstance(message, dict) or entry.get("isMeta"):
        return None
    if entry.get("isSidechain"):
        left["messages of subagents"] += 1
        return None
    text = message.get("content")
    if not isinstance(text, str):
        text = _joined(_texts(text, left, "thoughts, images, and calls of tools"))
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
    return _memory(
        entry.get("uuid") or f"{session}/{entry.get('timestamp')}",
        f"claude-code/{session}",
        role,
        text,
        values.time(entry.get("timestamp")),
        **{name: value for name, value in said.items() if value},
    )
