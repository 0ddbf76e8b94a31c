"""CSV of passages and vectors, in UTF-8: lists and embeddings are JSON.

Values are written as they are, also those that begin with =, +, - or @: a spreadsheet would run
them as formulas, so import the file there as text.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcpvectordb.export.passages import COLUMNS, Row, numbers, rows
from mcpvectordb.export.snapshot import ExportSnapshot


def write(snapshot: ExportSnapshot, part: Path, count: Callable[[], None], *, packed: bool) -> None:
    """Write a snapshot into a file, `packed` by gzip; `count` is called for each item."""
    opener = gzip.open if packed else open
    with opener(part, "wt", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for last, row in rows(snapshot):
            table.writerow(_cells(row))
            if last:
                count()


def _cells(row: Row) -> list[Any]:
    cells = {**row, "embedding": numbers(row["embedding"])}
    return [_cell(cells[name]) for name in COLUMNS]


def _cell(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
