"""Parquet with columns id, text, metadata and embedding, or columns that are named.

A few bytes can stand for a billion rows, or for one long text in each of them. What a file says of
itself is refused if it is absurd; for the rest there is the memory limit of the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mcpvectordb.errors import ParseFailed, TooLarge
from mcpvectordb.export.tables import modules
from mcpvectordb.importers import fields, json_files
from mcpvectordb.importers.fields import Row
from mcpvectordb.importers.items import ImportOptions, Item, UnreadPart
from mcpvectordb.importers.source import ImportSource

ROWS = 256  # that are read at once
SMALL_ROWS, ROWS_PER_BYTE = 100_000, 10


def recognises(source: ImportSource) -> bool:
    """Whether it begins as Parquet does."""
    return source.head.startswith(b"PAR1")


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """An item for each row."""
    arrow, parquet = modules()
    try:
        file = parquet.ParquetFile(source.path, pre_buffer=False)
    except (arrow.ArrowException, OSError) as error:
        _check_memory(error)
        raise ParseFailed(f"{source.path.name} is no sound Parquet: {error}"[:300]) from None
    with file:
        _check_size(file, source)
        yield from fields.items(_rows(file, arrow), options, source.path.stem)


def _rows(file: Any, arrow: Any) -> Iterator[Row | UnreadPart]:
    try:
        for batch in file.iter_batches(batch_size=ROWS, use_threads=False):
            yield from batch.to_pylist()
    except (arrow.ArrowException, OSError) as error:
        _check_memory(error)
        yield UnreadPart(what=f"the rest of the rows: {error}"[:300])


def _check_memory(error: Exception) -> None:
    """Raise MemoryError if that is what an error means: it is no damage."""
    if isinstance(error, MemoryError):
        raise MemoryError from error


def _check_size(file: Any, source: ImportSource) -> None:
    """Refuse a file that says to have many times more than its bytes could hold."""
    size, said = source.path.stat().st_size, file.metadata
    unpacked = sum(said.row_group(n).total_byte_size for n in range(said.num_row_groups))
    if said.num_rows > SMALL_ROWS + ROWS_PER_BYTE * size or unpacked > json_files.most_unpacked(
        source.path
    ):
        raise TooLarge(
            f"{source.path.name} has {size:,} bytes and says that it has {said.num_rows:,} rows of "
            f"{unpacked:,} bytes: it is made to fill the memory; nothing was imported"
        )
