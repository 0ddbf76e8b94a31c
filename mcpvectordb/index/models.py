"""The models of a file: one is active, another may be on its way in, a third may be provisional.

Every chunk is embedded by the first two or waits for them. The provisional one is a fast static
model (`index.provisional`): it has embeddings of chunks that wait for the active one only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import apsw

from mcpvectordb.errors import Damaged
from mcpvectordb.index.arrays import MAX_DIMENSION

# The settings that name the key of a model.
ACTIVE, PROVISIONAL = "model", "provisional"
ACTIVE_KEY = f"(SELECT CAST(value AS INTEGER) FROM settings WHERE name = '{ACTIVE}')"
"""SQL of the key of the active model."""
PRECISION = "embeddings"  # the setting that names the type of stored embeddings


class ModelRow(NamedTuple):
    """A row of the table models."""

    key: int
    name: str
    digest: str
    dimension: int


@dataclass(frozen=True, slots=True)
class QueryEmbedding:
    """A query's embedding by a model of the file, and the weight of its cosines in fusion.

    `name` is the model's name in the catalogue, "" for one that is not in it. `is_provisional` says
    that it is by the provisional model; `provisional` is such an embedding of the same query, for
    passages that wait for this one's model.
    """

    model: int
    embedding: bytes
    weight: float
    name: str = ""
    is_provisional: bool = False
    provisional: QueryEmbedding | None = None


def active(sql: apsw.Connection) -> ModelRow | None:
    """The model that searches use; None in a file into which nothing was ingested yet."""
    return _named_by(sql, ACTIVE)


def provisional(sql: apsw.Connection) -> ModelRow | None:
    """The model that embeds what waits for the active one; None if nothing is embedded by it.

    The active one never is: a setting that says so was damaged, and nothing must be deleted for it.
    """
    fast = _named_by(sql, PROVISIONAL)
    own = active(sql) if fast else None
    return None if fast and own and own.key == fast.key else fast


def _named_by(sql: apsw.Connection, setting: str) -> ModelRow | None:
    row = sql.execute(
        "SELECT key, models.name, digest, dimension FROM models "
        "JOIN settings ON settings.name = ? AND settings.value = CAST(key AS TEXT)",
        (setting,),
    ).fetchone()
    if row and [type(value) for value in row] != [int, str, str, int]:
        raise Damaged(
            "the file's model is not what was written: run `mcpvectordb check`, then "
            "`mcpvectordb salvage`"
        )
    return ModelRow(*row) if row else None


def precision(sql: apsw.Connection) -> str:
    """The type in which the file stores embeddings of texts: float32, unless it says float16."""
    value = sql.execute("SELECT value FROM settings WHERE name = ?", (PRECISION,)).get
    return "float16" if value == '"float16"' else "float32"


def put_precision(sql: apsw.Connection, precision: str) -> None:
    """Have the file store embeddings of texts in this type from now on."""
    sql.execute(
        "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)",
        (PRECISION, f'"{precision}"'),
    )


def every(sql: apsw.Connection) -> list[tuple[int, int]]:
    """Key and dimension of every model of the file; raises Damaged if one cannot be a model."""
    rows = list(
        sql.execute(
            "SELECT key, dimension, typeof(name) || typeof(digest) FROM models ORDER BY key"
        )
    )
    if strange := [
        dimension
        for _, dimension, types in rows
        if types != "texttext" or not 1 <= dimension <= MAX_DIMENSION
    ]:
        raise Damaged(
            f"the file names a model of {strange[0]} dimensions, which is none: run `mcpvectordb "
            f"salvage`"
        )
    return [(key, dimension) for key, dimension, _ in rows]


def dimension(sql: apsw.Connection, model: int) -> int:
    """The number of values of a model's embeddings."""
    return int(sql.execute("SELECT dimension FROM models WHERE key = ?", (model,)).get)


def awaited(sql: apsw.Connection) -> list[int]:
    """The keys of the models that embed every chunk: all but the provisional one."""
    fast = provisional(sql)
    return [key for key, _ in every(sql) if fast is None or key != fast.key]
