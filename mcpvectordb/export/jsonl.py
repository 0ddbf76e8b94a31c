"""JSONL with everything: importing it into an empty file gives an equal one.

One JSON object per line, in this order. Bytes are base64, numbers of embeddings little-endian
float32 or float16 (of vectors float32 or float64): 4, 2 or 8 bytes for each of `dimension`.

{"mcpvectordb": 1, "model": …, "settings": …, …}    the header; 1 is the version of this format
{"kind": "library", …}                              a library that follows a folder
{"kind": "document", …, "text": …, "chunks": […]}
{"kind": "context", …, "text": …, "chunks": […]}
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
from mcpvectordb.export.snapshot import ExportSnapshot

FORMAT = 1

_line = json.JSONEncoder(
    ensure_ascii=False,
    separators=(",", ":"),
    allow_nan=False,
    default=lambda raw: b64encode(raw).decode(),
).encode


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
    yield from ({"kind": "library", **each} for each in snapshot.libraries())
    yield from ({"kind": "document", **each} for each in snapshot.documents())
    yield from ({"kind": "context", **each} for each in snapshot.memories())
    for name, metric in snapshot.stores():
        yield {"kind": "store", "name": name, "metric": metric}
    yield from ({"kind": "vector", **each} for each in snapshot.vectors())
