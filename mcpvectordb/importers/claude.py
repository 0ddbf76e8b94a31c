"""The export of Claude: conversations.json, or the ZIP in which it comes."""

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

_SENDERS: Mapping[str, MemorySource] = {"human": "user", "user": "user", "assistant": "agent"}


def recognises(source: ImportSource) -> bool:
    """Whether its conversations are lists of chat_messages."""
    return begins_with(source, "chat_messages")


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """A memory for each message, a thread for each conversation."""
    left: Counter[str] = Counter()
    for conversation in conversations(source):
        if isinstance(conversation, UnreadPart):
            yield conversation
        elif not isinstance(conversation.get("chat_messages"), list) or not isinstance(
            conversation.get("uuid"), str
        ):
            yield UnreadPart(what="a conversation without an id or without messages")
        else:
            yield from _messages(conversation, left)
    yield from (NotKept(what=what, count=count) for what, count in left.items())


def _messages(conversation: Mapping[str, Any], left: Counter[str]) -> Iterator[Item]:
    name = conversation["uuid"]
    time = values.time(conversation.get("created_at"))
    for place, message in enumerate(conversation["chat_messages"]):
        if not isinstance(message, dict) or str(message.get("sender")) not in _SENDERS:
            left["messages of nobody that is known"] += 1
            continue
        text = _text(message, left)
        if not text.strip():
            continue
        time = values.time(message.get("created_at")) or time
        yield ImportedMemory(
            id=str(message.get("uuid") or f"{name}/{place}"),
            thread=values.storable(f"claude/{name}"),
            source=_SENDERS[str(message["sender"])],
            text=values.storable(text),
            created_at=time,
            metadata=values.metadata({"title": conversation.get("name"), "conversation": name}),
        )


def _text(message: Mapping[str, Any], left: Counter[str]) -> str:
    """What was written, and the text of attachments; what is no text is counted."""
    blocks = message.get("content")
    parts = []
    for block in blocks if isinstance(blocks, list) else []:
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            parts.append(block["text"])
        else:
            left["thoughts, and calls of tools"] += 1
    if not any(part.strip() for part in parts) and isinstance(message.get("text"), str):
        parts = [message["text"]]
    attached = message.get("attachments")
    for each in attached if isinstance(attached, list) else []:
        content = each.get("extracted_content") if isinstance(each, dict) else None
        if isinstance(content, str) and content.strip():
            parts.append(f"Attachment {each.get('file_name') or ''}:\n\n{content}")
    files = message.get("files")
    left["files in messages"] += len(files) if isinstance(files, list) else 0
    return "\n\n".join(part for part in parts if part.strip())
