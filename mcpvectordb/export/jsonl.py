"""JSONL with everything: importing it into an empty file gives an equal one.

One JSON object per line, in this order. Bytes are base64, numbers of embeddings little-endian
float32 or float16 (of vectors float32 or float64): 4, 2 or 8 bytes for each of `dimension`.

{"mcpvectordb": 1, "model": …, "settings": …, …}    the header; 1 is the version of this format
{"kind": "library", …}                              a library that follows a folder
{"kind": "document", …, "text": …, "chunks": […]}
{"kind": "memory", …, "text": …, "chunks": […]}
{"kind": "store", "name": …, "metric": …}
{"kind": "vector", "store": …, …}
{"kind": "end", "items": …}                         what comes before it is complete
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mcpvectordb import __version__, dates
from mcpvectordb.export.snapshot import (
    ExportedChunk,
    ExportedDocument,
    ExportedMemory,
    ExportedVector,
    ExportSnapshot,
)

FORMAT = 1

_line = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def write(snapshot: ExportSnapshot, part: Path, count: Callable[[], None], *, packed: bool) -> None:
    """Write a snapshot into a file, `packed` by gzip; `count` is called for each item."""
    items = 0
    opener = gzip.open if packed else open
    with opener(part, "wt", encoding="utf-8", newline="") as file:
        for record in _records(snapshot):
            file.write(_line(record) + "\n")
            if record.get("kind") in ("document", "context", "vector"):
                items += 1
                count()
        file.write(_line({"kind": "end", "items": items}) + "\n")


def _records(snapshot: ExportSnapshot) -> Iterator[dict[str, Any]]:
    model = snapshot.model
    made_by = model and {"name": model.name, "digest": model.digest, "dimension": model.dimension}
    yield {
        "mcpvectordb": FORMAT,
        "program": __version__,
        "created_at": dates.now(),
        "library": snapshot.library,
        "model": made_by,
        "settings": snapshot.settings(),
        "items": snapshot.counts().items,
    }
    for library in snapshot.libraries():
        yield {"kind": "library", **library._asdict()}
    yield from map(_document, snapshot.documents())
    yield from map(_memory, snapshot.memories())
    for name, metric in snapshot.stores():
        yield {"kind": "store", "name": name, "metric": metric}
    yield from map(_vector, snapshot.vectors())


def _document(document: ExportedDocument) -> dict[str, Any]:
    fields = document._asdict()
    del fields["root"]  # the library's own line has it
    return {"kind": "document", **fields, "chunks": [_chunk(each) for each in document.chunks]}


def _memory(memory: ExportedMemory) -> dict[str, Any]:
    return {
        "kind": "context",
        **memory._asdict(),
        "images": [each.to_dict() for each in memory.images],
        "chunks": [_chunk(each) for each in memory.chunks],
    }


def _chunk(chunk: ExportedChunk) -> dict[str, Any]:
    """Where a chunk is, without what is empty; it begins where the tile before it ends."""
    span = chunk.span
    fields = {
        "start": span.start,
        "end": span.end,
        "tile_end": span.tile_end,
        "first_line": span.first_line,
        "last_line": span.last_line,
    }
    optional = {
        "page": span.page,
        "headings": list(span.headings),
        "header": span.header,
        "footer": span.footer,
        "embedding": chunk.embedding and b64encode(chunk.embedding).decode(),
    }
    return {**fields, **{name: value for name, value in optional.items() if value}}


def _vector(vector: ExportedVector) -> dict[str, Any]:
    fields = vector._asdict()
    del fields["metric"]  # the store's own line has it
    return {"kind": "vector", **fields, "raw": b64encode(vector.raw).decode()}
