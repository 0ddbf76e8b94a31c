"""The export of ChatGPT: conversations.json, its parts (conversations-000.json …), or the ZIP.

A conversation is a tree of messages, because messages can be edited and answers made again. The
branch that was last shown becomes a thread: the messages from `current_node` up to the root.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from mcpvectordb.importers import conversation_files, values
from mcpvectordb.importers.conversation_files import ROLES
from mcpvectordb.importers.items import ImportOptions, Item, UnreadPart
from mcpvectordb.importers.source import ImportSource


def recognises(source: ImportSource) -> bool:
    """Whether its conversations are trees of messages."""
    return conversation_files.begins_with(source, "mapping")


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """A memory for each message of people and of the model, a thread for each conversation."""
    return conversation_files.read(source, _messages)


def _messages(conversation: Mapping[str, Any], left: Counter[str]) -> Iterator[Item]:
    name = conversation.get("conversation_id") or conversation.get("id")
    mapping = conversation.get("mapping")
    if not isinstance(name, str) or not isinstance(mapping, dict):
        yield UnreadPart(what="a conversation without an id or without messages")
        return
    nodes = {id: values.item(node, "message") for id, node in mapping.items()}
    branch = _branch(mapping, conversation.get("current_node"))
    said = sum(map(_is_said, nodes.values())) - sum(_is_said(nodes[id]) for id in branch)
    left["messages of branches that were edited or generated again"] += said
    time = values.time(conversation.get("create_time"))
    for id in branch:
        message = nodes[id]
        if not isinstance(message, dict):
            continue
        time = values.time(message.get("create_time")) or time
        text = _text(message, left) if _is_said(message) else ""
        if not text.strip():
            left["messages of tools and of the system"] += _role(message) not in ("", *ROLES)
            continue
        model = values.item(message.get("metadata"), "model_slug")
        yield conversation_files.message(
            message.get("id") or id,
            f"chatgpt/{name}",
            ROLES[_role(message)],
            text,
            time,
            title=conversation.get("title"),
            conversation=name,
            **({"model": model} if model else {}),
        )


def _branch(mapping: Mapping[str, Any], current: object) -> list[str]:
    """The ids from the root to the node that was last shown; of a cycle each is taken once."""
    if not isinstance(current, str) or current not in mapping:
        current = max(mapping, key=lambda id: _time(mapping[id]), default=None)
    found: dict[str, None] = {}
    while isinstance(current, str) and current in mapping and current not in found:
        found[current] = None
        current = values.item(mapping[current], "parent")
    return list(found)[::-1]


def _time(node: object) -> str:
    return values.time(values.item(values.item(node, "message"), "create_time"))


def _role(message: object) -> str:
    return str(values.item(values.item(message, "author"), "role") or "")


def _is_said(message: object) -> bool:
    """Whether a person or the model said it, and it was shown: not hidden, and to no tool."""
    hidden = values.item(values.item(message, "metadata"), "is_visually_hidden_from_conversation")
    shown = not hidden and values.item(message, "recipient") in ("all", None)
    return shown and _role(message) in ROLES


def _text(message: Mapping[str, Any], left: Counter[str]) -> str:
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
        return text if isinstance(text, str) else ""
    found = []
    for part in parts:
        spoken = values.item(part, "text") if isinstance(part, dict) else part
        if isinstance(spoken, str):
            found.append(spoken)
        else:
            left["images and files in messages"] += 1
    return "\n\n".join(part for part in found if part.strip())
