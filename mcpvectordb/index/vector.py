"""Embeddings by nearness: BLOBs in an ordinary table are the truth, vec0 holds int8 codes that
choose candidates.

The codes are scaled per vector (a cosine does not mind), cost a quarter of float32, and every
candidate is ranked again exactly. sqlite-vec is spoken to in this module and, to keep codes in
memory, in `following`.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import apsw

from mcpvectordb.errors import Damaged
from mcpvectordb.index import EVERYTHING, Allowed, Ranked, arrays, memory, metrics
from mcpvectordb.index.codes import Residents
from mcpvectordb.index.columns import NOWHERE, Source
from mcpvectordb.index.memory import Following, View
from mcpvectordb.storage.file import vector_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mcpvectordb.index.arrays import Floats

EXACT_ROWS = (
    5_000  # up to so many candidates every embedding is compared; above, the codes choose them
)
VEC0_LIMIT = 4_096  # the largest k that vec0 takes
VEC0_DIMENSION = 8_192  # the largest dimension that vec0 takes
ROCCHIO_WEIGHT = 0.3  # how far an embedding is moved towards the mean of others


def code(embedding: bytes) -> bytes:
    """The int8 code of a float32 embedding."""
    import numpy as np

    return codes(np.frombuffer(embedding, np.float32).reshape(1, -1)).tobytes()


def codes(rows: Floats) -> NDArray[np.int8]:
    """The int8 codes of embeddings: the largest component of each becomes ±127.

    One that is zero has no direction, which vec0 would rank before all others; it gets the code of
    some direction.
    """
    import numpy as np

    result = np.empty(rows.shape, np.int8)
    with np.errstate(
        invalid="ignore"
    ):  # `check` tells of damaged embeddings; here any code will do for them
        for place, block in arrays.blocks(rows):
            largest = np.maximum(block.max(axis=1), -block.min(axis=1))
            block[largest == 0], largest[largest == 0] = 1, 1
            block /= largest[:, None]
            block *= 127
            result[place] = np.rint(block, out=block)
    return result


@dataclass(frozen=True, slots=True)
class Gathered:
    """Some embeddings, read once to be compared more than once."""

    ids: list[int]
    rows: NDArray[np.float64]

    def cosines(self, embedding: bytes) -> dict[int, float]:
        """The exact cosine of each to a float32 embedding."""
        import numpy as np

        return dict(
            zip(
                self.ids,
                metrics.cosine(
                    self.rows, np.frombuffer(embedding, np.float32).astype(np.float64)
                ).tolist(),
                strict=True,
            )
        )

    def rocchio(self, embedding: bytes, ids: Sequence[int]) -> bytes:
        """A float32 embedding moved a little towards the mean direction of those of given ids."""
        import numpy as np

        start = np.frombuffer(embedding, np.float32).astype(np.float64)
        rows = self.rows[np.isin(self.ids, ids)]
        if not len(rows):
            return embedding
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        mean = (rows / np.where(lengths > 0, lengths, 1)).mean(axis=0)
        moved: bytes = (
            (start / (np.linalg.norm(start) or 1) + ROCCHIO_WEIGHT * mean)
            .astype(np.float32)
            .tobytes()
        )
        return moved


class VectorIndex:
    """The embeddings in `table`, whose rows belong to groups (a model, a part of a store) of one
    dimension each.

    A group can have a vec0 table; without one every search compares all of its embeddings.
    All methods work inside the caller's transaction.
    """

    def __init__(
        self,
        prefix: str,
        table: str,
        id: str,
        group: str,
        residents: Residents | None = None,
        source: Source = NOWHERE,
    ) -> None:
        self._prefix, self._table, self._id, self._group = f"{prefix}_meaning_", table, id, group
        self._following = Following(residents or Residents(0), source)

    def codes(self, group: int) -> str:
        """The name of a group's vec0 table."""
        return f"{self._prefix}{group}"

    def coded(self, sql: apsw.Connection) -> list[int]:
        """The groups that have a vec0 table."""
        names = sql.execute("SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL %'")
        numbers = (name.removeprefix(self._prefix) for (name,) in names)
        return sorted(int(number) for number in numbers if number.isdecimal())

    def create(self, sql: apsw.Connection, group: int, dimension: int) -> None:
        """Make the vec0 table of a group that has no embeddings yet."""
        sql.execute(vector_table(self.codes(group), dimension))

    def drop(self, sql: apsw.Connection, group: int) -> None:
        """Remove a group's vec0 table."""
        sql.execute(f"DROP TABLE {self.codes(group)}")
        memory.log_all(sql, self.codes(group))

    def fill(self, sql: apsw.Connection, group: int, dimension: int) -> None:
        """Make the vec0 table of a group from the embeddings that it has."""
        self.create(sql, group, dimension)
        for ids, rows in self._blocks(sql, group, dimension):
            self.add_many(sql, group, ids, rows)

    def add(self, sql: apsw.Connection, group: int, id: int, embedding: bytes) -> None:
        """Enter the code of a float32 embedding that was just stored."""
        self._enter(sql, group, [id], [code(embedding)])

    def add_many(self, sql: apsw.Connection, group: int, ids: Sequence[int], rows: Floats) -> None:
        """Enter the codes of embeddings that were just stored."""
        self._enter(sql, group, ids, codes(rows))

    def remove(self, sql: apsw.Connection, group: int, ids: Sequence[int]) -> None:
        """Take codes out; ids that have none are passed over."""
        sql.executemany(f"DELETE FROM {self.codes(group)} WHERE rowid = ?", ((id,) for id in ids))
        memory.log(sql, self.codes(group), ids)

    def rebuild(self, sql: apsw.Connection, group: int, dimension: int) -> None:
        """Make a vec0 table again from the embeddings; it does not give space back by itself."""
        self.drop(sql, group)
        self.fill(sql, group, dimension)

    def nearest(
        self, sql: apsw.Connection, group: int, embedding: bytes, allowed: Allowed, limit: int
    ) -> Ranked:
        """The ids nearest to a float32 embedding, as (id, cosine), best first."""
        import numpy as np

        return self.nearest_each(
            sql, group, np.frombuffer(embedding, np.float32).reshape(1, -1), allowed, limit
        )[0]

    def nearest_each(
        self,
        sql: apsw.Connection,
        group: int,
        queries: Floats,
        allowed: Allowed,
        limit: int,
        metric: str = "cosine",
    ) -> list[Ranked]:
        """The ids nearest to each query, as (id, score by `metric`), best first; equal ones in the
        order of the ids.
        """
        quick = metric == "cosine" and 2 * limit <= VEC0_LIMIT
        if quick and (view := self._view(sql, group, queries.shape[1], allowed)) is not None:
            return [self._by_memory(sql, group, query, view, allowed, limit) for query in queries]
        few = self._few(sql, group, allowed) if quick and group in self.coded(sql) else allowed
        if few is not None:
            return self._scan(sql, group, queries, few, limit, metric)
        return [self._by_codes(sql, group, query, allowed, limit) for query in queries]

    def gathered(
        self, sql: apsw.Connection, group: int, dimension: int, ids: Sequence[int]
    ) -> Gathered:
        """The embeddings of given ids, as far as they have any."""
        import numpy as np

        blocks = list(self._blocks(sql, group, dimension, _only(ids)))
        return Gathered(
            [id for found, _ in blocks for id in found],
            np.concatenate([np.empty((0, dimension)), *(rows for _, rows in blocks)]),
        )

    def flaws(self, sql: apsw.Connection, group: int, dimension: int) -> Iterator[str]:
        """What is wrong with a group's embeddings themselves, in words."""
        import numpy as np

        for block in self._stored(sql, group, dimension):
            yield from (
                f"{self._table}: the embedding of {id} has {len(embedding) // 4} values instead of "
                f"{dimension}"
                for id, embedding in block
                if not arrays.fits(embedding, dimension)
            )
            sound = [
                (id, embedding) for id, embedding in block if arrays.fits(embedding, dimension)
            ]
            yield from (
                f"{self._table}: the embedding of {id} has values that are no numbers"
                for id, embedding in sound
                if not np.isfinite(arrays.unpacked([embedding], dimension)).all()
            )

    def problems(self, sql: apsw.Connection, group: int, dimension: int) -> Iterator[str]:
        """What is wrong with a group's embeddings and its vec0 table, in words."""
        yield from self.flaws(sql, group, dimension)
        coded = dict(sql.execute(f"SELECT rowid, embedding FROM {self.codes(group)}"))
        scanned = zip(*memory.coded_rows(sql, self.codes(group), dimension), strict=True)
        if coded != {int(id): row.tobytes() for id, row in scanned}:
            yield f"{self.codes(group)}: not every row of it can be found by nearness"
        for block in self._stored(sql, group, dimension):
            ids = [id for id, embedding in block if arrays.fits(embedding, dimension)]
            rows = arrays.unpacked(
                [embedding for _, embedding in block if arrays.fits(embedding, dimension)],
                dimension,
            )
            yield from (
                f"{self.codes(group)}: {id} is missing or differs from its embedding"
                for id, row in zip(ids, codes(rows), strict=True)
                if coded.pop(id, None) != row.tobytes()
            )
        if coded:
            yield f"{self.codes(group)}: {len(coded)} rows without an embedding"

    def _enter(self, sql: apsw.Connection, group: int, ids: Sequence[int], coded: Any) -> None:
        sql.executemany(
            f"INSERT INTO {self.codes(group)} (rowid, embedding) VALUES (?, vec_int8(?))",
            zip(ids, coded, strict=True),
        )
        memory.log(sql, self.codes(group), ids)

    def _stored(
        self, sql: apsw.Connection, group: int, dimension: int, allowed: Allowed = EVERYTHING
    ) -> Iterator[list[tuple[int, bytes]]]:
        # The plus keeps SQLite from looking every single id up in an index of groups.
        within = (
            f"+{self._group} = ? AND {self._id} IN ({allowed.select})"
            if allowed.select
            else f"{self._group} = ? ORDER BY {self._id}"
        )
        rows = sql.execute(
            f"SELECT {self._id}, embedding FROM {self._table} WHERE {within}",
            (group, *allowed.bindings),
        )
        while block := list(itertools.islice(rows, arrays.block_rows(dimension))):
            yield block

    def _blocks(
        self, sql: apsw.Connection, group: int, dimension: int, allowed: Allowed = EVERYTHING
    ) -> Iterator[tuple[list[int], NDArray[np.float64]]]:
        for block in self._stored(sql, group, dimension, allowed):
            yield (
                [id for id, _ in block],
                arrays.unpacked([embedding for _, embedding in block], dimension),
            )

    def _few(self, sql: apsw.Connection, group: int, allowed: Allowed) -> Allowed | None:
        """The ids that may be returned when they are few enough to compare one by one, else
        None.
        """
        if not allowed.select:
            rows = (
                f"SELECT 1 FROM {self._table} WHERE {self._group} = {group} LIMIT {EXACT_ROWS + 1}"
            )
            return (
                allowed if sql.execute(f"SELECT count(*) FROM ({rows})").get <= EXACT_ROWS else None
            )
        ids = [
            id
            for (id,) in sql.execute(
                f"SELECT * FROM ({allowed.select}) LIMIT {EXACT_ROWS + 1}", allowed.bindings
            )
        ]
        return _only(ids) if len(ids) <= EXACT_ROWS else None

    def _by_codes(
        self, sql: apsw.Connection, group: int, query: Floats, allowed: Allowed, limit: int
    ) -> Ranked:
        within = f"AND rowid IN ({allowed.select})" if allowed.select else ""
        rows = sql.execute(
            f"SELECT rowid FROM {self.codes(group)} WHERE embedding MATCH vec_int8(?) AND k = ? "
            f"{within}",
            (
                codes(query.reshape(1, -1)).tobytes(),
                min(VEC0_LIMIT, 2 * limit + 20),
                *allowed.bindings,
            ),
        )
        return self._exactly(sql, group, query, [id for (id,) in rows], allowed, limit)

    def _by_memory(
        self,
        sql: apsw.Connection,
        group: int,
        query: Floats,
        view: View,
        allowed: Allowed,
        limit: int,
    ) -> Ranked:
        import numpy as np

        candidates = view.codes.nearest(query, limit, view.usable)
        return self._exactly(
            sql, group, query, candidates, allowed, limit, int(np.count_nonzero(view.usable))
        )

    def _exactly(
        self,
        sql: apsw.Connection,
        group: int,
        query: Floats,
        candidates: Sequence[int],
        allowed: Allowed,
        limit: int,
        rows: float = math.inf,
    ) -> Ranked:
        """Rank candidates of so many rows by their exact cosines; where one may be missing, all
        that are allowed.
        """
        ranked = self._scan(sql, group, query.reshape(1, -1), _only(candidates), limit, "cosine")[0]
        enough = len(ranked) == min(limit, rows)
        if enough and (
            len(candidates) == rows or min((cosine for _, cosine in ranked), default=1.0) > 0
        ):
            return ranked
        # Embeddings that are zero may be among the best, and of them the codes know nothing.
        return self._scan(sql, group, query.reshape(1, -1), allowed, limit, "cosine")[0]

    def _view(
        self, sql: apsw.Connection, group: int, dimension: int, allowed: Allowed
    ) -> View | None:
        """What is in memory of a group, with only the allowed rows usable."""
        view = self._following.view(sql, self.codes(group), group, dimension, allowed.conditions)
        if view is None or view.filtered or not allowed.select:
            return view
        return view._replace(usable=view.codes.narrowed(view.usable, allowed.ids(sql)))

    def _scan(
        self,
        sql: apsw.Connection,
        group: int,
        queries: Floats,
        allowed: Allowed,
        limit: int,
        metric: str,
    ) -> list[Ranked]:
        """Compare every allowed embedding, a block at a time."""
        import numpy as np

        score = metrics.METRICS[metric]
        wide = queries.astype(np.float64)
        found = [(np.empty(0, np.int64), np.empty(0)) for _ in wide]
        for ids, rows in self._blocks(sql, group, queries.shape[1], allowed):
            for position, query in enumerate(wide):
                scores = score(rows, query)
                if np.isnan(scores).any():
                    raise Damaged(
                        f"{self._table}: an embedding has values that are no numbers: run "
                        f"`mcpvectordb check`"
                    )
                known_ids, known_scores = found[position]
                found[position] = metrics.best(
                    np.concatenate([known_ids, np.array(ids, np.int64)]),
                    np.concatenate([known_scores, scores]),
                    limit,
                )
        return [list(zip(ids.tolist(), scores.tolist(), strict=True)) for ids, scores in found]


def _only(ids: Sequence[int]) -> Allowed:
    return Allowed("SELECT value FROM json_each(?)", (json.dumps(ids),))
