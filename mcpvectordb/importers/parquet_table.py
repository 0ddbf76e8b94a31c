"""Parquet with columns id, text, metadata and embedding, or columns that are named.

It is read by pyarrow in this process, not in the confined one that parses documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mcpvectordb.errors import ParseFailed
from mcpvectordb.export.parquet import modules
from mcpvectordb.importers import fields
from mcpvectordb.importers.fields import Row
from mcpvectordb.importers.items import Expected, ImportOptions, Item, UnreadPart
from mcpvectordb.importers.source import ImportSource

ROWS = 256  # that are read at once


def recognises(source: ImportSource) -> bool:
    """Whether it begins as Parquet does."""
    return source.head.startswith(b"PAR1")


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """An item for each row."""
    arrow, parquet = modules()
    try:
        file = parquet.ParquetFile(source.path)
    except (arrow.ArrowException, OSError) as error:
        raise ParseFailed(f"{source.path.name} is no sound Parquet: {error}"[:300]) from None
    with file:
        yield Expected(items=int(file.metadata.num_rows))
        yield from fields.items(_rows(file, arrow), options, source.path.stem)


def _rows(file: Any, arrow: Any) -> Iterator[Row | UnreadPart]:
    try:
        for batch in file.iter_batches(batch_size=ROWS):
            yield from batch.to_pylist()
    except (arrow.ArrowException, OSError) as error:
        yield UnreadPart(what=f"the rest of the rows: {error}"[:300])
