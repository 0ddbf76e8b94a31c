"""Passages and vectors as rows of one flat table: CSV, and Parquet, which needs pyarrow.

CSV is UTF-8, with lists and embeddings as JSON. Values are written as they are, also those that
begin with =, +, - or @: a spreadsheet would run them as formulas, so import the file there as text.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mcpvectordb.errors import InvalidInput
from mcpvectordb.export.snapshot import ExportSnapshot
from mcpvectordb.index import arrays
from mcpvectordb.index.models import ModelRow
from mcpvectordb.storage.lazy import np

COLUMNS = (
    "shelf",  # documents, contexts (memories) or vectors
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

ROWS = 1_000  # that are collected before they are written: some MB of embeddings

Row = dict[str, Any]


def write_csv(
    snapshot: ExportSnapshot, part: Path, count: Callable[[], None], *, packed: bool
) -> None:
    """Write a snapshot into a file, `packed` by gzip; `count` is called for each item."""
    opener = gzip.open if packed else open
    with opener(part, "wt", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for last, row in _rows(snapshot):
            table.writerow([_cell(row[name]) for name in COLUMNS])
            if last:
                count()


def _cell(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | tuple) else value


def write_parquet(snapshot: ExportSnapshot, part: Path, count: Callable[[], None]) -> None:
    """Write a snapshot into a file; `count` is called for each item."""
    arrow, parquet = modules()
    schema = _schema(arrow, arrow.float64() if snapshot.has_double_precision() else arrow.float32())
    batch: list[Row] = []
    with parquet.ParquetWriter(part, schema, compression="zstd") as writer:
        for last, row in _rows(snapshot):
            batch.append(row)
            if len(batch) == ROWS:
                writer.write_table(_table(arrow, schema, batch))
                batch = []
            if last:
                count()
        if batch:
            writer.write_table(_table(arrow, schema, batch))


def modules() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet; InvalidInput names the extra that brings them."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InvalidInput(
            "Parquet needs pyarrow, which is not installed: pip install 'mcpvectordb[parquet]'"
        ) from None
    return pyarrow, pyarrow.parquet


def _schema(arrow: Any, number: Any) -> Any:
    other = {
        **dict.fromkeys(("page", "first_line", "last_line"), arrow.int32()),
        **dict.fromkeys(("headings", "tags"), arrow.list_(arrow.string())),
        "embedding": arrow.list_(number),
    }
    return arrow.schema([(name, other.get(name, arrow.string())) for name in COLUMNS])


def _table(arrow: Any, schema: Any, batch: list[Row]) -> Any:
    columns = [
        arrow.array([row[each.name] for row in batch], type=each.type, from_pandas=False)
        for each in schema
    ]
    return arrow.table(columns, schema=schema)


def _rows(snapshot: ExportSnapshot) -> Iterator[tuple[bool, Row]]:
    """The rows; each with whether it is the last one of its item."""
    for document in snapshot.documents():
        yield from _of_item("documents", document, snapshot.model)
    for memory in snapshot.memories():
        yield from _of_item("contexts", memory, snapshot.model)
    for vector in snapshot.vectors():
        embedding = _numbers(vector["raw"], vector["dimension"])
        yield True, {**_row("vectors", vector), "embedding": embedding}


def _of_item(shelf: str, item: Row, model: ModelRow | None) -> Iterator[tuple[bool, Row]]:
    """The passages of a document or memory; one without text has a single row without any."""
    shared = {**_row(shelf, item), "text": None}
    for place, chunk in enumerate(item["chunks"]):
        raw = chunk.get("embedding")
        own = {
            "id": f"{item['id']}#{place}",
            "text": item["text"][chunk["start"] : chunk["end"]],
            "page": chunk.get("page"),
            "first_line": chunk["first_line"],
            "last_line": chunk["last_line"],
            "headings": chunk.get("headings", ()),
            "model": model.name if model and raw else None,
            "embedding": _numbers(raw, model.dimension) if model and raw else None,
        }
        yield place == len(item["chunks"]) - 1, {**shared, **own}
    if not item["chunks"]:
        yield True, shared


def _row(shelf: str, item: Row) -> Row:
    """What all rows of an item have."""
    said = item["metadata"]
    return {
        **{name: item.get(name) for name in COLUMNS},
        "shelf": shelf,
        "id": str(item["id"]),
        "metadata": None if said is None else json.dumps(said, ensure_ascii=False),
    }


def _numbers(raw: bytes, dimension: int) -> Any:
    """An embedding as an array."""
    return arrays.unpacked([raw], dimension)[0].astype(
        np.float64 if len(raw) == 8 * dimension else np.float32
    )
