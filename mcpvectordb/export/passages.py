"""Passages and vectors as rows of one flat table, for CSV and Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mcpvectordb.export.snapshot import (
    ExportedChunk,
    ExportedDocument,
    ExportedMemory,
    ExportedVector,
    ExportSnapshot,
)
from mcpvectordb.index import arrays
from mcpvectordb.index.models import ModelRow

COLUMNS = (
    "shelf",  # documents, memories or vectors
    "id",  # of a passage: the document's or memory's id, # and the passage's number from 0
    "text",
    "title",
    "source",
    "library",
    "thread",
    "store",
    "namespace",
    "page",
    "first_line",
    "last_line",
    "headings",
    "tags",
    "metadata",  # JSON
    "created_at",
    "model",
    "embedding",
)
"""The columns; what does not apply to a row is None."""

Row = dict[str, Any]


def rows(snapshot: ExportSnapshot) -> Iterator[tuple[bool, Row]]:
    """The rows, with the raw embedding; each with whether it is the last one of its item."""
    model = snapshot.model
    for document in snapshot.documents():
        yield from _of_item(_document(document), document.text, document.chunks, model)
    for memory in snapshot.memories():
        yield from _of_item(_memory(memory), memory.text, memory.chunks, model)
    for vector in snapshot.vectors():
        yield True, _vector(vector)


def _of_item(
    shared: Row, text: str, chunks: list[ExportedChunk], model: ModelRow | None
) -> Iterator[tuple[bool, Row]]:
    """The passages of a document or memory; one without text has a single row without any."""
    for place, (span, raw) in enumerate(chunks):
        own = {
            "id": f"{shared['id']}#{place}",
            "text": text[span.start : span.end],
            "page": span.page,
            "first_line": span.first_line,
            "last_line": span.last_line,
            "headings": list(span.headings),
            "model": model.name if model and raw else None,
            "embedding": (raw, model.dimension) if model and raw else None,
        }
        yield place == len(chunks) - 1, {**shared, **own}
    if not chunks:
        yield True, shared


def _row(**values: Any) -> Row:
    return {**dict.fromkeys(COLUMNS), **values}


def _document(document: ExportedDocument) -> Row:
    same = ("id", "title", "source", "library", "created_at")
    return _row(
        shelf="documents",
        metadata=_json(document.metadata),
        **{name: getattr(document, name) for name in same},
    )


def _memory(memory: ExportedMemory) -> Row:
    same = ("source", "thread", "tags", "created_at")
    return _row(
        shelf="contexts",
        id=str(memory.id),
        metadata=None if memory.metadata is None else _json(memory.metadata),
        **{name: getattr(memory, name) for name in same},
    )


def _vector(vector: ExportedVector) -> Row:
    return _row(
        shelf="vectors",
        id=vector.id,
        store=vector.store,
        namespace=vector.namespace,
        metadata=_json(vector.metadata),
        embedding=(vector.raw, vector.dimension),
    )


def _json(metadata: Mapping[str, Any]) -> str:
    return json.dumps(metadata, ensure_ascii=False)


def numbers(raw: tuple[bytes, int] | None) -> Any:
    """An embedding, given with its dimension, as an array; None without one."""
    import numpy as np

    if raw is None:
        return None
    blob, dimension = raw
    return arrays.unpacked([blob], dimension)[0].astype(
        np.float64 if len(blob) == 8 * dimension else np.float32
    )
