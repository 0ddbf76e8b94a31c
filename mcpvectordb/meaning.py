"""Embeddings by nearness: float32 BLOBs in an ordinary table are the truth, vec0 holds int8 codes that choose candidates.

The codes are scaled per vector (a cosine does not mind), cost a quarter of the floats, and every candidate is ranked
again by its exact cosine. sqlite-vec is spoken to in this module and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import apsw

from mcpvectordb.connection import vector_table

EXACT_ROWS = 5_000  # up to so many candidates every embedding is compared; above, the codes choose them
VEC0_LIMIT = 4_096  # the largest k that vec0 takes

Ranked = list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which ids a search may return: a SELECT of them with its bindings, or "" for all."""

    select: str = ""
    bindings: tuple[object, ...] = ()


def code(embedding: bytes) -> bytes:
    """The int8 code of a float32 embedding: its largest component becomes ±127."""
    import numpy as np

    values = np.frombuffer(embedding, np.float32)
    largest = np.abs(values).max(initial=0.0)
    return np.round(values * (127 / largest) if largest else values).astype(np.int8).tobytes()


class Meaning:
    """The embeddings in `table`, whose rows belong to groups (a model, a dimension) with one vec0 table each.

    All methods work inside the caller's transaction.
    """

    def __init__(self, prefix: str, table: str, id: str, group: str) -> None:
        self._prefix, self._table, self._id, self._group = prefix, table, id, group

    def codes(self, group: int) -> str:
        """The name of a group's vec0 table."""
        return f"{self._prefix}_meaning_{group}"

    def create(self, sql: apsw.Connection, group: int, dimension: int) -> None:
        """Make the vec0 table of a new group."""
        sql.execute(vector_table(self.codes(group), dimension))

    def drop(self, sql: apsw.Connection, group: int) -> None:
        """Remove a group's vec0 table."""
        sql.execute(f"DROP TABLE {self.codes(group)}")

    def add(self, sql: apsw.Connection, group: int, id: int, embedding: bytes) -> None:
        """Enter the code of an embedding that was just stored."""
        sql.execute(f"INSERT INTO {self.codes(group)} (rowid, embedding) VALUES (?, vec_int8(?))", (id, code(embedding)))

    def remove(self, sql: apsw.Connection, group: int, ids: Sequence[int]) -> None:
        """Take codes out; ids that have none are passed over."""
        sql.executemany(f"DELETE FROM {self.codes(group)} WHERE rowid = ?", ((id,) for id in ids))

    def rebuild(self, sql: apsw.Connection, group: int, dimension: int) -> None:
        """Make a vec0 table again from the embeddings; it does not give space back by itself."""
        self.drop(sql, group)
        self.create(sql, group, dimension)
        for id, embedding in self._stored(sql, group):
            self.add(sql, group, id, embedding)

    def nearest(self, sql: apsw.Connection, group: int, embedding: bytes, allowed: Allowed, limit: int) -> Ranked:
        """The ids nearest to an embedding, as (id, cosine), best first."""
        few = self._few(sql, group, allowed)
        if few is None and 2 * limit > VEC0_LIMIT:  # deeper than vec0 goes
            return self._scan(sql, group, embedding, allowed, limit)
        candidates = self._candidates(sql, group, embedding, allowed, limit) if few is None else few
        scores = self.cosines(sql, group, embedding, candidates)
        return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]

    def cosines(self, sql: apsw.Connection, group: int, embedding: bytes, ids: Sequence[int]) -> dict[int, float]:
        """The exact cosine of given ids; those without an embedding are left out."""
        return dict(sql.execute(
            f"SELECT {self._id}, 1 - vec_distance_cosine(embedding, ?) FROM {self._table} "
            f"WHERE {self._group} = ? AND {self._id} IN (SELECT value FROM json_each(?))",
            (embedding, group, json.dumps(ids))))

    def problems(self, sql: apsw.Connection, group: int, dimension: int) -> Iterator[str]:
        """What is wrong with a group's vec0 table, in words."""
        coded = dict(sql.execute(f"SELECT rowid, embedding FROM {self.codes(group)}"))
        stored = 0
        for id, embedding in self._stored(sql, group):
            stored += 1
            if len(embedding) != 4 * dimension:
                yield f"{self._table}: the embedding of {id} has {len(embedding) // 4} values instead of {dimension}"
            elif coded.pop(id, None) != code(embedding):
                yield f"{self.codes(group)}: {id} is missing or differs from its embedding"
        if coded:
            yield f"{self.codes(group)}: {len(coded)} rows without an embedding, beside {stored} with one"

    def _stored(self, sql: apsw.Connection, group: int) -> Iterator[tuple[int, bytes]]:
        return sql.execute(f"SELECT {self._id}, embedding FROM {self._table} WHERE {self._group} = ? ORDER BY {self._id}",
                           (group,))

    def _few(self, sql: apsw.Connection, group: int, allowed: Allowed) -> list[int] | None:
        """The ids that may be returned when they are few enough to compare one by one, else None."""
        select = allowed.select or f"SELECT {self._id} FROM {self._table} WHERE {self._group} = {group}"
        ids = [id for (id,) in sql.execute(f"SELECT * FROM ({select}) LIMIT {EXACT_ROWS + 1}", allowed.bindings)]
        return ids if len(ids) <= EXACT_ROWS else None

    def _candidates(self, sql: apsw.Connection, group: int, embedding: bytes, allowed: Allowed, limit: int) -> list[int]:
        within = f"AND rowid IN ({allowed.select})" if allowed.select else ""
        rows = sql.execute(
            f"SELECT rowid FROM {self.codes(group)} WHERE embedding MATCH vec_int8(?) AND k = ? {within}",
            (code(embedding), min(VEC0_LIMIT, 2 * limit + 20), *allowed.bindings))
        return [id for (id,) in rows]

    def _scan(self, sql: apsw.Connection, group: int, embedding: bytes, allowed: Allowed, limit: int) -> Ranked:
        within = f"AND {self._id} IN ({allowed.select})" if allowed.select else ""
        return list(sql.execute(
            f"SELECT {self._id}, 1 - vec_distance_cosine(embedding, ?) AS s FROM {self._table} "
            f"WHERE {self._group} = ? {within} ORDER BY s DESC, {self._id} LIMIT ?",
            (embedding, group, *allowed.bindings, limit)))
