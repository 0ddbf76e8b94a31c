"""The export of ChatGPT: conversations.json, its parts (conversations-000.json …), or the ZIP.

A conversation is a tree of messages, because messages can be edited and answers made again. The
branch that was last shown becomes a thread: the messages from `current_node` up to the root.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from mcpvectordb.importers import values
from mcpvectordb.importers.conversation_files import begins_with, conversations
from mcpvectordb.importers.items import (
    ImportedMemory,
    ImportOptions,
    Item,
    NotKept,
    UnreadPart,
)
from mcpvectordb.importers.source import ImportSource
from mcpvectordb.memories.memory import MemorySource

_ROLES: Mapping[str, MemorySource] = {"user": "user", "assistant": "agent"}
_OTHER_BRANCHES = "messages of branches that were edited or generated again"
_TOOLS = "messages of tools and of the system"
_THOUGHTS = "thoughts of the model"
_FILES = "images and files in messages"


def recognises(source: ImportSource) -> bool:
    """Whether its conversations are trees of messages."""
    return begins_with(source, "mapping")


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """A memory for each message of people and of the model, a thread for each conversation."""
    left: Counter[str] = Counter()
    for conversation in conversations(source):
        if isinstance(conversation, UnreadPart):
            yield conversation
        else:
            yield from _messages(conversation, left)
    yield from (NotKept(what=what, count=count) for what, count in left.items())


def _messages(conversation: Mapping[str, Any], left: Counter[str]) -> Iterator[Item]:
    name = conversation.get("conversation_id") or conversation.get("id")
    mapping = conversation.get("mapping")
    if not isinstance(name, str) or not isinstance(mapping, dict):
        yield UnreadPart(what="a conversation without an id or without messages")
        return
    branch = _branch(mapping, conversation.get("current_node"))
    left[_OTHER_BRANCHES] += sum(map(_is_said, mapping.values())) - sum(
        _is_said(mapping[id]) for id in branch
    )
    time = values.time(conversation.get("create_time"))
    shared = {"title": conversation.get("title"), "conversation": name}
    for id in branch:
        node = mapping[id]
        message = node.get("message") if isinstance(node, dict) else None
        if not isinstance(message, dict):
            continue
        time = values.time(message.get("create_time")) or time
        role = _ROLES.get(_role(message))
        text = _text(message, left) if role is not None and _is_shown(message) else ""
        if role is None or not text.strip():
            left[_TOOLS] += role is None and _role(message) != ""
            continue
        model = _object(message, "metadata").get("model_slug")
        yield ImportedMemory(
            id=str(message.get("id") or id),
            thread=values.storable(f"chatgpt/{name}"),
            source=role,
            text=values.storable(text),
            created_at=time,
            metadata=values.metadata({**shared, **({"model": model} if model else {})}),
        )


def _branch(mapping: Mapping[str, Any], current: object) -> list[str]:
    """The ids from the root to the node that was last shown; of a cycle each is taken once."""
    if not isinstance(current, str) or current not in mapping:
        current = max(mapping, key=lambda id: _time(mapping[id]), default=None)
    found: dict[str, None] = {}
    while isinstance(current, str) and current in mapping and current not in found:
        found[current] = None
        node = mapping[current]
        current = node.get("parent") if isinstance(node, dict) else None
    return list(found)[::-1]


def _time(node: object) -> str:
    message = node.get("message") if isinstance(node, dict) else None
    return values.time(message.get("create_time")) if isinstance(message, dict) else ""


def _is_said(node: object) -> bool:
    """Whether a node is a message of a person or of the model."""
    message = node.get("message") if isinstance(node, dict) else None
    return isinstance(message, dict) and _role(message) in _ROLES and _is_shown(message)


def _is_shown(message: Mapping[str, Any]) -> bool:
    """Whether a message was shown, and not hidden or said to a tool."""
    hidden = _object(message, "metadata").get("is_visually_hidden_from_conversation")
    return not hidden and message.get("recipient", "all") in ("all", None)


def _role(message: Mapping[str, Any]) -> str:
    return str(_object(message, "author").get("role") or "")


def _text(message: Mapping[str, Any], left: Counter[str]) -> str:
    """The text of a message; what is no text is counted."""
    content = _object(message, "content")
    kind, text = content.get("content_type"), content.get("text")
    if kind in ("thoughts", "reasoning_recap"):
        left[_THOUGHTS] += 1
        return ""
    if kind == "code" and isinstance(text, str):
        language = content.get("language")
        return f"```{language if language not in (None, 'unknown') else ''}\n{text}\n```"
    parts = content.get("parts")
    if not isinstance(parts, list):
        return text if isinstance(text, str) else ""
    found = []
    for part in parts:
        spoken = part.get("text") if isinstance(part, dict) else part
        if isinstance(spoken, str):
            found.append(spoken)
        else:
            left[_FILES] += 1
    return "\n\n".join(part for part in found if part.strip())


def _object(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}
