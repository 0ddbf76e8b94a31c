"""A folder of Markdown files with YAML front matter: one for each document and each memory.

documents/LIBRARY/PATH.md and memories/THREAD/ID.md, images beside their memories. The front matter
has title, tags and metadata as editors of notes read them; what else is known of a text stands
below its key `mcpvectordb`. The folder can be ingested again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mcpvectordb.documents.rows import path
from mcpvectordb.export.file_names import FileNames
from mcpvectordb.export.snapshot import ExportSnapshot
from mcpvectordb.ingest import formats
from mcpvectordb.ingest.formats.markdown_writer import fence
from mcpvectordb.ingest.structure import front_matter

_IMAGES = {"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp"}


def write(snapshot: ExportSnapshot, folder: Path, count: Callable[[], None]) -> None:
    """Write the documents and memories of a snapshot; `count` is called for each."""
    names = FileNames()
    roots = {each["name"]: each["root"] for each in snapshot.libraries()}
    for document in snapshot.documents():
        library, source = document["library"], document["source"]
        inside = path("", source, roots.get(library, "")).removeprefix("/")
        place = ["documents", library]
        name = names.of(place, inside.partition("://")[2] or inside, document["id"])
        _write(folder / name, _page(_front_of_document(document), _body(document)).encode())
        count()
    for memory in snapshot.memories():
        id = str(memory["id"])
        name = names.of(["contexts", memory["thread"]], id, id)
        images = [
            (Path(name).with_suffix(f".{place}{_IMAGES.get(each['mime_type'], '.bin')}"), each)
            for place, each in enumerate(memory["images"], 1)
        ]
        front = _front_of_memory(memory, [image.name for image, _ in images])
        _write(folder / name, _page(front, memory["text"]).encode())
        for image, each in images:
            _write(folder / image, each["data"])
        count()


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as written:
        written.write(content)


def _front_of_document(document: Mapping[str, Any]) -> dict[str, Any]:
    known = ("id", "library", "source", "hash", "file_type", "modified", "created_at")
    own = {name: document[name] for name in known}
    first = {"title": document["title"], "mcpvectordb": own}
    return {**first, **document["metadata"], **first}


def _front_of_memory(memory: Mapping[str, Any], images: list[str]) -> dict[str, Any]:
    known = ("id", "thread", "source", "created_at", "updated_at")
    own = {name: memory[name] for name in known} | ({"images": images} if images else {})
    first = ({"tags": memory["tags"]} if memory["tags"] else {}) | {"mcpvectordb": own}
    return {**first, **(memory["metadata"] or {}), **first}


def _body(document: Mapping[str, Any]) -> str:
    """The text below its own front matter, whose content is metadata; code is in a fence."""
    text = str(document["text"])
    known = formats.by_name(Path(document["source"]).name)
    if known is not None and known.module == "code":
        return fence(text, document["file_type"])
    end = front_matter(text)[1]
    return text[end:].lstrip("\r\n") if end else text


def _page(front: Mapping[str, Any], text: str) -> str:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # the same in C, where it is there
    head = yaml.dump(
        dict(front), Dumper=dumper, sort_keys=False, allow_unicode=True, width=2**31 - 1
    )
    return f"---\n{head}---\n{text}"
