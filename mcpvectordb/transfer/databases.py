"""SQLite databases of other programs: qmd, llm, mcp-memory-service, mcp-context-server.

What a program is known by are the tables in `kinds.KINDS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from mcpvectordb.memories.memory import Image
from mcpvectordb.transfer import values
from mcpvectordb.transfer.items import (
    FollowedFolder,
    ImportedDocument,
    ImportedMemory,
    ImportedVector,
    ImportOptions,
    Item,
    LeftOut,
    NotKept,
    document_or_vector,
)
from mcpvectordb.transfer.source import ForeignDatabase, ForeignRow, ImportSource, Vec0Vectors


def _of(database: ForeignDatabase, table: str, key: str, value: int | str) -> list[ForeignRow]:
    """The rows that belong to something, by their position or order, if they have one."""
    rows = database.lookup(table, key, value) if database.has(table, key) else ()
    return sorted(rows, key=lambda row: values.integer(row["position"] or row["order"]))


# --- qmd
#
# Newer versions keep the collections in the table store_collections, older ones in a YAML file: in
# the folder of the index, or in ~/.config/qmd beside ~/.cache/qmd, where the index usually is.

LONGEST_YAML = 100_000  # bytes: the parser takes seconds for more


def read_qmd(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """The collections as libraries, then the documents, whose sources are their files' paths."""
    database = source.sqlite()
    roots: dict[str, str] = {}
    for name, settings in _collections(source, database).items():
        ignore, contexts = settings.get("ignore"), settings.get("context")
        roots[name] = values.text(settings.get("path"))
        if not options.library:
            yield FollowedFolder(
                library=name,
                root=roots[name],
                pattern=values.text(settings.get("pattern")) or "**/*.md",
                ignore=tuple(filter(None, map(values.text, values.listed(ignore)))),
                descriptions={
                    values.text(path).strip("/"): values.text(text)
                    for path, text in (contexts if isinstance(contexts, Mapping) else {}).items()
                },
            )
        if settings.get("update"):
            yield NotKept(what="the update command of a collection")
    vectors = Vec0Vectors(database, "vectors_vec")
    for row in database.rows("documents"):
        collection, path, hash = (str(row[each]) for each in ("collection", "path", "hash"))
        root = roots.get(collection)
        place = (
            str(Path(root, *PurePosixPath(path).parts)) if root else f"qmd://{collection}/{path}"
        )
        if not row["active"]:
            yield LeftOut(id=place, reason="its file was deleted, as qmd noticed")
            continue
        text = next(database.lookup("content", "hash", hash), ForeignRow())["doc"]
        if not isinstance(text, str):
            yield LeftOut(id=place, reason="its text could not be read")
            continue
        embeddings, model = _qmd_embeddings(database, vectors, hash, text)
        yield ImportedDocument(
            id=place,
            text=text,
            library=options.library or collection,
            modified=values.time(row["modified_at"]),
            embeddings=embeddings,
            model=model,
        )


def _collections(
    source: ImportSource, database: ForeignDatabase
) -> Mapping[str, Mapping[str, Any]]:
    """The settings of each collection by its name, as they are in the YAML file."""
    import yaml

    found: dict[str, Mapping[str, Any]] = {
        str(row["name"]): {
            "path": row["path"],
            "pattern": row["pattern"],
            "ignore": values.json_value(row["ignore_patterns"]),
            "context": values.json_value(row["context"]),
            "update": row["update_command"],
        }
        for row in database.rows("store_collections")
    }
    for folder in (source.beside, source.beside / ".config" / "qmd"):
        file = folder / f"{source.path.stem}.yml"
        if not found and file.is_file() and file.stat().st_size <= LONGEST_YAML:
            try:
                configured = values.item(yaml.safe_load(file.read_text("utf-8")), "collections")
            except (OSError, ValueError, yaml.YAMLError, RecursionError):
                continue
            for name, settings in configured.items() if isinstance(configured, Mapping) else ():
                if isinstance(settings, Mapping):
                    found[str(name)] = settings
    return found


def _qmd_embeddings(
    database: ForeignDatabase, vectors: Vec0Vectors, hash: str, text: str
) -> tuple[dict[str, bytes], str]:
    """The embeddings of a text's chunks, by their text, and the name of the model.

    A chunk reaches to the next one or further; only a text of one chunk can be told for certain.
    """
    chunks = sorted(
        (row["seq"], row["pos"], str(row["model"]))
        for row in (_of(database, "content_vectors", "hash", hash) if vectors.dimension else ())
        if isinstance(row["seq"], int) and isinstance(row["pos"], int)
    )
    ends = [pos for _, pos, _ in chunks[1:]] + [len(text)]
    found = {
        text[pos:end]: embedding
        for (seq, pos, _), end in zip(chunks, ends, strict=False)
        if (embedding := vectors.get(f"{hash}_{seq}"))
    }
    return found, chunks[0][2] if chunks else ""


# --- mcp-memory-service


def read_memory_service(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """A memory for each memory that is not deleted, all of them in one thread."""
    database = source.sqlite()
    if relations := database.count("memory_graph"):
        yield NotKept(what="a relation between two memories", count=relations)
    vectors = Vec0Vectors(database, "memory_embeddings")
    for row in database.rows("memories"):
        id, text, tags = str(row["content_hash"]), values.text(row["content"]), row["tags"]
        if row["deleted_at"] is not None:
            yield LeftOut(id=id, reason="it is deleted")
            continue
        # Tags are stored as one text with commas, in old versions as a list in JSON.
        listed = values.json_value(tags)
        said = {
            "memory_type": row["memory_type"],
            "superseded_by": row["superseded_by"],
            "store": None if row["store"] == "default" else row["store"],
        }
        embedding = vectors.get(row["id"])
        yield ImportedMemory(
            id=id,
            thread="mcp-memory-service",
            source="agent",
            text=text,
            metadata=values.metadata(row["metadata"])
            | values.storable({key: value for key, value in said.items() if value}),
            tags=list(
                map(str, listed if isinstance(listed, list) else values.text(tags).split(","))
            ),
            created_at=values.time(row["created_at"]),
            updated_at=values.time(row["updated_at"]),
            embeddings={text: embedding} if embedding else {},
            model=options.model,
        )


# --- mcp-context-server
#
# Ids of entries are integers, in newer versions (3) UUIDs; everything else has the same names.


def read_context_server(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """A memory for each entry, with times, tags and images."""
    database = source.sqlite()
    for table in database.columns:
        if "version" in table and (count := database.count(table)):
            yield NotKept(what="an earlier version of an entry", count=count)
    vectors = Vec0Vectors(database, "vec_context_embeddings")
    for row in database.rows("context_entries"):
        id, text, author = row["id"], values.text(row["text_content"]), row["source"]
        if author not in ("user", "agent"):
            yield LeftOut(id=str(id), reason="its source is neither user nor agent")
            continue
        embeddings, model = _context_embeddings(database, vectors, id, text)
        summary = {"summary": row["summary"]} if row["summary"] else {}
        yield ImportedMemory(
            id=str(id),
            thread=str(row["thread_id"]),
            source=author,
            text=text,
            metadata=values.metadata(row["metadata"]) | summary,
            tags=[str(each["tag"]) for each in _of(database, "tags", "context_entry_id", id)],
            images=[
                Image(
                    data=each["image_data"],
                    mime_type=str(each["mime_type"]),
                    metadata=values.metadata(each["image_metadata"]) or None,
                )
                for each in _of(database, "image_attachments", "context_entry_id", id)
                if isinstance(each["image_data"], bytes) and each["image_data"]
            ],
            created_at=values.time(row["created_at"]),
            updated_at=values.time(row["updated_at"]),
            embeddings=embeddings,
            model=model,
        )


def _context_embeddings(
    database: ForeignDatabase, vectors: Vec0Vectors, id: int | str, text: str
) -> tuple[dict[str, bytes], str]:
    """The embeddings of an entry's chunks, by their text, and the name of the model."""
    if not vectors.dimension or not database.has("embedding_metadata", "context_id", "model_name"):
        return {}, ""
    models = [
        str(row["model_name"]) for row in _of(database, "embedding_metadata", "context_id", id)
    ]
    if not database.has("embedding_chunks", "context_id", "vec_rowid"):
        whole = vectors.get(id)
        return ({text: whole} if whole else {}), models[0] if models else ""
    found = {}
    for row in _of(database, "embedding_chunks", "context_id", id):
        start, end = row["start_index"], row["end_index"]
        # 0 to 0 is the whole text, from before texts were divided.
        part = text[start:end] if isinstance(start, int) and isinstance(end, int) and end else text
        if isinstance(row["vec_rowid"], int) and (embedding := vectors.get(row["vec_rowid"])):
            found[part] = embedding
    return found, models[0] if models else ""


# --- llm: embeddings.db, and logs.db in its old form (responses) and its new one
#
# Newer versions store a conversation as a chain of messages, each of which names the one before it;
# a turn is one call of a model and ends with the message `tip_message_hash`. What older versions
# logged stays in the table responses.

LLM_EMBEDDINGS = {
    "collections": "id name model",
    "embeddings": "collection_id id embedding content",
}
_NOT_KEPT = {
    "reasoning": "the reasoning of a model",
    "tool_call": "a call of a tool",
    "tool_result": "the result of a tool",
}


def read_llm(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """Documents and vectors of collections, or memories of logged conversations."""
    database = source.sqlite()
    if source.has(LLM_EMBEDDINGS):
        yield from _llm_embeddings(database, options)
    yield from _turns(database)
    yield from _responses(database, {str(row["id"]) for row in database.rows("turns")})


def _llm_embeddings(database: ForeignDatabase, options: ImportOptions) -> Iterator[Item]:
    """A document for each item whose text was stored, a vector for any other."""
    collections = {
        row["id"]: (str(row["name"]), str(row["model"])) for row in database.rows("collections")
    }
    for row in database.rows("embeddings"):
        id, text, embedding = str(row["id"]), values.text(row["content"]), row["embedding"]
        number = row["collection_id"]
        name, model = collections.get(number, (str(number), ""))
        usable = isinstance(embedding, bytes) and bool(embedding) and len(embedding) % 4 == 0
        said = values.metadata(row["metadata"])
        if row["content_blob"]:
            yield NotKept(what="the binary content of an item")
        item = document_or_vector(
            options,
            name,
            text,
            embedding if usable else None,
            id=id,
            metadata=said,
            modified=values.time(row["updated"]),
            model=model,
            why_not="neither a text nor an embedding",
        )
        if isinstance(item, ImportedVector):
            item = replace(item, metadata={**item.metadata, "model": model})
        yield item


def _turns(database: ForeignDatabase) -> Iterator[Item]:
    """A memory for each message of each thread; a fork has only what is not in its origin."""
    threads = {str(row["id"]): row for row in database.rows("threads")}
    messages = {
        str(row["hash"]): (str(row["role"]), row["parent_hash"])
        for row in database.rows("messages")
    }
    seen: dict[str, set[str]] = {}
    for turn in database.rows("turns"):
        thread = str(turn["thread_id"])
        about = threads.get(thread, ForeignRow())
        known = seen.setdefault(thread, set(seen.get(str(about["forked_from"] or ""), ())))
        new: list[str] = []
        hash = str(turn["tip_message_hash"])
        while hash in messages and hash not in known:
            known.add(hash)
            new.append(hash)
            hash = str(messages[hash][1])
        for each in reversed(new):
            text, images, left = _parts(database, each)
            yield from (NotKept(what=what) for what in left)
            if text.strip():
                role = messages[each][0]
                yield ImportedMemory(
                    id=f"{thread}/{each}",
                    thread=f"llm-{thread}",
                    source="user" if role in ("user", "system") else "agent",
                    text=text,
                    metadata=_said(about["name"], turn["model"], role),
                    images=images,
                    created_at=values.time(turn["datetime_utc"]),
                )


def _parts(database: ForeignDatabase, message: str) -> tuple[str, list[Image], list[str]]:
    """The text and images of a message, and what else it has."""
    texts: list[str] = []
    images: list[Image] = []
    left: list[str] = []
    for part in _of(database, "parts", "message_hash", message):
        kind, more = part["type"], values.json_value(part["payload"])
        if kind == "text":
            text = part["text"]
            texts.append(text if isinstance(text, str) else _with_fragments(database, more))
        elif kind == "attachment":
            found = _image(database, values.item(more, "attachment", "id"))
            images += found
            left += [] if found else ["an attachment that is no image of the database"]
        else:
            left.append(_NOT_KEPT.get(str(kind), "a part of another kind"))
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
    return str(next(database.lookup("fragments", "id", id), ForeignRow())["content"] or "")


def _image(database: ForeignDatabase, id: object) -> list[Image]:
    """The attachment with this id, if it is an image whose bytes are in the database."""
    for row in database.lookup("attachments", "id", *([id] if isinstance(id, str) else [])):
        content, kind = row["content"], str(row["type"])
        if isinstance(content, bytes) and content and kind.startswith("image/"):
            return [Image(data=content, mime_type=kind)]
    return []


def _responses(database: ForeignDatabase, logged: set[str]) -> Iterator[Item]:
    """Two memories for each response of an older version: the prompt and the answer."""
    names = {str(row["id"]): row["name"] for row in database.rows("conversations")}
    for row in database.rows("responses"):
        id, conversation = str(row["id"]), row["conversation_id"]
        if id in logged:
            continue
        thread, time = f"llm-{conversation or id}", values.time(row["datetime_utc"])
        name, model = names.get(str(conversation)), row["model"]
        fragments = [
            _fragment(database, each["fragment_id"])
            for each in _of(database, "prompt_fragments", "response_id", id)
            if isinstance(each["fragment_id"], int)
        ]
        attached = _of(database, "prompt_attachments", "response_id", id)
        question = "\n".join([*fragments, values.text(row["prompt"])])
        system = {"system": row["system"]} if row["system"] else {}
        if question.strip():
            yield ImportedMemory(
                id=f"{id}/prompt",
                thread=thread,
                source="user",
                text=question,
                metadata=_said(name, model, "user") | system,
                images=[
                    image for each in attached for image in _image(database, each["attachment_id"])
                ],
                created_at=time,
            )
        answer = values.text(row["response"])
        if answer.strip():
            yield ImportedMemory(
                id=f"{id}/response",
                thread=thread,
                source="agent",
                text=answer,
                metadata=_said(name, model, "assistant"),
                created_at=time,
            )


def _said(name: object, model: object, role: str) -> dict[str, Any]:
    said = {"conversation": str(name or ""), "model": values.storable(model), "role": role}
    return {key: value for key, value in said.items() if value}
