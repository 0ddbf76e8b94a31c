"""sqlite-vec's private parts: the only module that makes vec0 tables and reads their shadow tables.

Checked with sqlite-vec 0.1.9. A vec0 table T keeps its rows in chunks: T_chunks (chunk_id, size,
validity, rowids) has a bitmap of used places and the ids, T_vector_chunks00 (rowid = chunk_id,
vectors) the vectors themselves. Ours hold int8 codes, scaled per vector, with the cosine metric.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from mcpvectordb.errors import Damaged, DatabaseError
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Codes = tuple[NDArray[np.int64], NDArray[np.int8]]
    """Ids, and the code of each as a row of a matrix."""

MAX_DIMENSION = 8_192  # of a vec0 table
CHUNK_ROWS = 256  # per chunk, few because a chunk takes its full space from its first row on
STATEMENT = re.compile(r"CREATE VIRTUAL TABLE (\w+) USING vec0\(embedding int8\[(\d{1,5})\] .*")


def load(connection: apsw.Connection) -> None:
    """Load the extension into a connection, which can load nothing else afterwards."""
    connection.enable_load_extension(True)
    connection.load_extension(_library())
    connection.enable_load_extension(False)


@functools.cache
def _library() -> str:
    """The path of the extension's shared library.

    Importing its package instead would import numpy, and the list of its files takes as long as
    opening a database.
    """
    package = find_spec("sqlite_vec")
    for folder in (package and package.submodule_search_locations) or ():
        for file in Path(folder).glob("vec0.*"):
            return str(file)
    raise DatabaseError("the package sqlite-vec is not installed properly: reinstall it with pip")


def create_statement(table: str, dimension: int) -> str:
    """The SQL that creates a table."""
    return (
        f"CREATE VIRTUAL TABLE {table} USING "
        f"vec0(embedding int8[{dimension}] distance_metric=cosine, chunk_size={CHUNK_ROWS})"
    )


def tables(sql: Sql, prefix: str) -> list[int]:
    """The numbers N of all tables named PREFIX_N, ascending."""
    names = sql.execute("SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL %'")
    numbers = (name.removeprefix(prefix) for (name,) in names)
    return sorted(int(number) for number in numbers if number.isdecimal())


def exists(sql: Sql, table: str) -> bool:
    """Whether there is such a table."""
    return bool(sql.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)).get)


def insert(sql: Sql, table: str, ids: Iterable[int], codes: Iterable[Any]) -> None:
    """Add codes under ids that have none yet."""
    sql.executemany(
        f"INSERT INTO {table} (rowid, embedding) VALUES (?, vec_int8(?))",
        zip(ids, codes, strict=True),
    )


def delete(sql: Sql, table: str, ids: Iterable[int]) -> None:
    """Delete codes; ids that have none are ignored."""
    sql.executemany(f"DELETE FROM {table} WHERE rowid = ?", ((id,) for id in ids))


def count(sql: Sql, table: str) -> int:
    """The number of rows of a table."""
    return int(sql.execute(f"SELECT count(*) FROM {table}_rowids").get)


def chunks(sql: Sql, table: str) -> int:
    """The number of chunks of up to CHUNK_ROWS rows that a table has: cheaper than `count`."""
    return int(sql.execute(f"SELECT count(*) FROM {table}_chunks").get)


def read_all(sql: Sql, table: str, dimension: int, every: int = 1) -> Codes:
    """All ids and codes, or those of every n-th chunk, read from the shadow tables.

    That is a hundred times as fast as reading the virtual table row by row.
    """
    most = chunks(sql, table) * CHUNK_ROWS
    ids, codes, count = np.empty(most, np.int64), np.empty((most, dimension), np.int8), 0
    try:
        for bits, held, vectors in sql.execute(
            f"SELECT c.validity, c.rowids, v.vectors FROM {table}_chunks c "
            f"JOIN {table}_vector_chunks00 v ON v.rowid = c.chunk_id WHERE c.chunk_id % ? = 0",
            (every,),
        ):
            used = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little").astype(bool)
            part = slice(count, count + int(np.count_nonzero(used)))
            ids[part] = np.frombuffer(held, np.int64)[used]
            codes[part] = np.frombuffer(vectors, np.int8).reshape(-1, dimension)[used]
            count = part.stop
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise Damaged(f"{table} contradicts itself ({error}): run `mcpvectordb rebuild`") from error
    return ids[:count], codes[:count]
