"""The databases of llm: embeddings.db, and logs.db in its old form (responses) and its new one.

Newer versions store a conversation as a chain of messages, each of which names the one before it;
a turn is one call of a model and ends with the message `tip_message_hash`. What older versions
logged stays in the table responses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mcpvectordb.importers import values
from mcpvectordb.importers.foreign_database import ForeignDatabase
from mcpvectordb.importers.items import (
    ImportedDocument,
    ImportedMemory,
    ImportedVector,
    ImportOptions,
    Item,
    LeftOut,
    NotKept,
)
from mcpvectordb.importers.source import ImportSource
from mcpvectordb.memories.memory import Image

_SOURCES = {"user": "user", "system": "user", "assistant": "agent", "tool": "agent"}
_LEFT = {
    "reasoning": "the reasoning of a model",
    "tool_call": "a call of a tool",
    "tool_result": "the result of a tool",
}


def recognises(source: ImportSource) -> bool:
    """Whether it has the tables of embeddings.db or of logs.db."""
    return (
        _has_embeddings(source)
        or source.has(responses="prompt response conversation_id")
        or source.has(turns="thread_id tip_message_hash")
    )


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """Documents and vectors of collections, or memories of logged conversations."""
    database = source.sqlite()
    if _has_embeddings(source):
        yield from _embeddings(database, options)
    turns = {str(id) for (id,) in database.rows("turns", "id")}
    yield from _turns(database)
    yield from _responses(database, turns)


def _has_embeddings(source: ImportSource) -> bool:
    return source.has(collections="id name model", embeddings="collection_id id embedding content")


def _embeddings(database: ForeignDatabase, options: ImportOptions) -> Iterator[Item]:
    """A document for each item whose text was stored, a vector for any other."""
    collections = {
        id: (str(name), str(model))
        for id, name, model in database.rows("collections", "id", "name", "model")
    }
    for number, id, embedding, content, blob, metadata, updated in database.rows(
        "embeddings", "collection_id", "id", "embedding", "content", "content_blob", "metadata",
        "updated",
    ):  # fmt: skip
        name, model = collections.get(number, (str(number), ""))
        usable = isinstance(embedding, bytes) and bool(embedding) and len(embedding) % 4 == 0
        said = values.metadata(metadata)
        if blob:
            yield NotKept(what="the binary content of an item")
        if isinstance(content, str) and content.strip() and options.into != "vectors":
            yield ImportedDocument(
                id=str(id),
                text=content,
                library=options.library or name,
                metadata=said,
                modified=values.time(updated),
                embeddings={content: embedding} if usable else {},
                model=model,
            )
        elif usable:
            text = {"text": content} if isinstance(content, str) and content else {}
            yield ImportedVector(
                id=str(id), values=embedding, store=name, metadata=said | text | {"model": model}
            )
        else:
            yield LeftOut(id=str(id), reason="neither a text nor an embedding")


def _turns(database: ForeignDatabase) -> Iterator[Item]:
    """A memory for each message of each thread; a fork has only what is not in its origin."""
    threads = {
        str(id): (str(name or ""), str(origin or ""))
        for id, name, origin in database.rows("threads", "id", "name", "forked_from")
    }
    parents = {
        str(hash): (str(role), None if parent is None else str(parent))
        for hash, role, parent in database.rows("messages", "hash", "role", "parent_hash")
    }
    seen: dict[str, set[str]] = {}
    for thread, tip, model, moment in database.rows(
        "turns", "thread_id", "tip_message_hash", "model", "datetime_utc"
    ):
        name, origin = threads.get(str(thread), ("", ""))
        known = seen.setdefault(str(thread), set(seen.get(origin, ())))
        new: list[str] = []
        hash: str | None = str(tip)
        while hash in parents and hash not in known:
            known.add(hash)
            new.append(hash)
            hash = parents[hash][1]
        for each in reversed(new):
            text, images, left = _parts(database, each)
            yield from (NotKept(what=what) for what in left)
            if text.strip():
                role = parents[each][0]
                yield ImportedMemory(
                    id=f"{thread}/{each}",
                    thread=f"llm-{thread}",
                    source="user" if _SOURCES.get(role) == "user" else "agent",
                    text=text,
                    metadata=_said(name, model, role),
                    images=images,
                    created_at=values.time(moment),
                )


def _parts(database: ForeignDatabase, message: str) -> tuple[str, list[Image], list[str]]:
    """The text and images of a message, and what else it has."""
    texts: list[str] = []
    images: list[Image] = []
    left: list[str] = []
    parts = database.lookup(
        "parts", ("position", "type", "text", "payload"), "message_hash", [message]
    )
    for _, kind, text, payload in sorted(parts, key=lambda row: values.integer(row[0])):
        more = values.json_value(payload)
        if kind == "text":
            texts.append(text if isinstance(text, str) else _with_fragments(database, more))
        elif kind == "attachment":
            found = _image(database, values.item(values.item(more, "attachment"), "id"))
            images += [found] if found else []
            left += [] if found else ["an attachment that is no image of the database"]
        else:
            left.append(_LEFT.get(str(kind), "a part of another kind"))
    return "\n".join(texts), images, left


def _with_fragments(database: ForeignDatabase, payload: object) -> str:
    """The text of a part that refers to fragments."""
    return "".join(
        _fragment(database, piece["fragment"])
        if isinstance(piece.get("fragment"), int)
        else str(piece.get("literal", ""))
        for piece in values.listed(values.item(payload, "text_ref"))
        if isinstance(piece, Mapping)
    )


def _fragment(database: ForeignDatabase, id: int) -> str:
    found = next(database.lookup("fragments", ("content",), "id", [id]), ("",))[0]
    return str(found or "")


def _image(database: ForeignDatabase, id: object) -> Image | None:
    """The attachment with this id, if it is an image whose bytes are in the database."""
    ids = [id] if isinstance(id, str) else []
    for kind, content in database.lookup("attachments", ("type", "content"), "id", ids):
        if isinstance(content, bytes) and content and str(kind).startswith("image/"):
            return Image(data=content, mime_type=str(kind))
    return None


def _responses(database: ForeignDatabase, logged: set[str]) -> Iterator[Item]:
    """Two memories for each response of an older version: the prompt and the answer."""
    names = {str(id): str(name or "") for id, name in database.rows("conversations", "id", "name")}
    for id, model, prompt, system, answer, conversation, moment in database.rows(
        "responses", "id", "model", "prompt", "system", "response", "conversation_id",
        "datetime_utc",
    ):  # fmt: skip
        if str(id) in logged:
            continue
        said = _said(names.get(str(conversation), ""), model, "user")
        thread, time = f"llm-{conversation or id}", values.time(moment)
        ids = _of_response(database, "prompt_fragments", "fragment_id", id)
        fragments = [_fragment(database, each) for each in ids if isinstance(each, int)]
        attached = _of_response(database, "prompt_attachments", "attachment_id", id)
        images = [_image(database, each) for each in attached]
        question = "\n".join([*fragments, prompt if isinstance(prompt, str) else ""])
        if question.strip():
            yield ImportedMemory(
                id=f"{id}/prompt",
                thread=thread,
                source="user",
                text=question,
                metadata=said | ({"system": system} if system else {}),
                images=[each for each in images if each],
                created_at=time,
            )
        if isinstance(answer, str) and answer.strip():
            yield ImportedMemory(
                id=f"{id}/response",
                thread=thread,
                source="agent",
                text=answer,
                metadata=said | {"role": "assistant"},
                created_at=time,
            )


def _of_response(database: ForeignDatabase, table: str, column: str, response: object) -> list[Any]:
    """What a table has for a response, in its order."""
    if not database.has(table, "response_id", column):
        return []
    rows = database.lookup(table, ("order", column), "response_id", [str(response)])
    return [id for _, id in sorted(rows, key=lambda row: values.integer(row[0]))]


def _said(name: str, model: object, role: str) -> dict[str, Any]:
    said = {"conversation": name, "model": values.storable(model), "role": role}
    return {key: value for key, value in said.items() if value}
