"""Parquet of passages and vectors, with embeddings as lists of numbers; needs pyarrow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcpvectordb.errors import InvalidInput
from mcpvectordb.export.passages import COLUMNS, Row, numbers, rows
from mcpvectordb.export.snapshot import ExportSnapshot

ROWS = 1_000  # that are collected before they are written: some MB of embeddings


def write(snapshot: ExportSnapshot, part: Path, count: Callable[[], None]) -> None:
    """Write a snapshot into a file; `count` is called for each item."""
    arrow, parquet = modules()
    precise = snapshot.has_double_precision()
    schema = _schema(arrow, arrow.float64() if precise else arrow.float32())
    batch: list[Row] = []
    with parquet.ParquetWriter(part, schema, compression="zstd") as writer:
        for last, row in rows(snapshot):
            batch.append({**row, "embedding": numbers(row["embedding"])})
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
