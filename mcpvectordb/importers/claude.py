"""The export of Claude: conversations.json, or the ZIP in which it comes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from mcpvectordb.importers import conversation_files, values
from mcpvectordb.importers.items import ImportOptions, Item, UnreadPart
from mcpvectordb.importers.source import ImportSource


def recognises(source: ImportSource) -> bool:
    """Whether its conversations are lists of chat_messages."""
    return conversation_files.begins_with(source, "chat_messages")


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """A memory for each message, a thread for each conversation."""
    return conversation_files.read(source, _messages)


def _messages(conversation: Mapping[str, Any], left: Counter[str]) -> Iterator[Item]:
    name, messages = conversation.get("uuid"), conversation.get("chat_messages")
    if not isinstance(name, str) or not isinstance(messages, list):
        yield UnreadPart(what="a conversation without an id or without messages")
        return
    time = values.time(conversation.get("created_at"))
    for place, message in enumerate(messages):
        role = conversation_files.ROLES.get(str(values.item(message, "sender")))
        if role is None:
            left["messages of nobody that is known"] += 1
            continue
        text = _text(message, left)
        if not text.strip():
            continue
        time = values.time(message.get("created_at")) or time
        yield conversation_files.message(
            message.get("uuid") or f"{name}/{place}",
            f"claude/{name}",
            role,
            text,
            time,
            title=conversation.get("name"),
            conversation=name,
        )


def _text(message: Mapping[str, Any], left: Counter[str]) -> str:
    """What was written, and the text of attachments; what is no text is counted."""
    parts = []
    for block in values.listed(message.get("content")):
        text = values.item(block, "text")
        if isinstance(text, str):
            parts.append(text)
        else:
            left["thoughts, and calls of tools"] += 1
    if not any(part.strip() for part in parts) and isinstance(message.get("text"), str):
        parts = [message["text"]]
    for each in values.listed(message.get("attachments")):
        content = values.item(each, "extracted_content")
        if isinstance(content, str) and content.strip():
            parts.append(f"Attachment {each.get('file_name') or ''}:\n\n{content}")
    left["files in messages"] += len(values.listed(message.get("files")))
    return "\n\n".join(part for part in parts if part.strip())
