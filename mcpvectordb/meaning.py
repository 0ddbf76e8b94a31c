"""Embeddings by nearness: BLOBs in an ordinary table are the truth, vec0 holds int8 codes that choose candidates.

The codes are scaled per vector (a cosine does not mind), cost a quarter of float32, and every candidate is ranked
again exactly. sqlite-vec is spoken to in this module and nowhere else.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import apsw

from mcpvectordb import arrays, metrics
from mcpvectordb.connection import vector_table
from mcpvectordb.errors import Damaged
from mcpvectordb.resident import Kept, Resident, Residents

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mcpvectordb.arrays import Floats

EXACT_ROWS = 5_000  # up to so many candidates every embedding is compared; above, the codes choose them
VEC0_LIMIT = 4_096  # the largest k that vec0 takes
VEC0_DIMENSION = 8_192  # the largest dimension that vec0 takes
TOWARDS = 0.3  # how far an embedding is moved towards the mean of others
LOGGED = 10_000  # so many changes are remembered for processes that keep codes in memory
ALL = 0  # in place of an id: everything changed

Ranked = list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which ids a search may return: a SELECT of them with its bindings, or "" for all."""

    select: str = ""
    bindings: tuple[object, ...] = ()


EVERYTHING = Allowed()


def code(embedding: bytes) -> bytes:
    """The int8 code of a float32 embedding."""
    import numpy as np

    return codes(np.frombuffer(embedding, np.float32).reshape(1, -1)).tobytes()


def codes(rows: Floats) -> NDArray[np.int8]:
    """The int8 codes of embeddings: the largest component of each becomes ±127.

    One that is zero has no direction, which vec0 would rank before all others; it gets the code of some direction.
    """
    import numpy as np

    result = np.empty(rows.shape, np.int8)
    with np.errstate(invalid="ignore"):  # `check` tells of damaged embeddings; here any code will do for them
        for place, block in arrays.blocks(rows):
            largest = np.maximum(block.max(axis=1), -block.min(axis=1))
            block[largest == 0], largest[largest == 0] = 1, 1
            block /= largest[:, None]
            block *= 127
            result[place] = np.rint(block, out=block)
    return result


class Meaning:
    """The embeddings in `table`, whose rows belong to groups (a model, a part of a store) of one dimension each.

    A group can have a vec0 table; without one every search compares all of its embeddings.
    All methods work inside the caller's transaction.
    """

    def __init__(self, prefix: str, table: str, id: str, group: str, residents: Residents | None = None) -> None:
        self._prefix, self._table, self._id, self._group = f"{prefix}_meaning_", table, id, group
        self._residents = residents or Residents(0)

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
        self._log(sql, group, [ALL])
        sql.execute("DELETE FROM changes WHERE codes = ? AND id <> ?", (self.codes(group), ALL))

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
        self._log(sql, group, ids)

    def rebuild(self, sql: apsw.Connection, group: int, dimension: int) -> None:
        """Make a vec0 table again from the embeddings; it does not give space back by itself."""
        self.drop(sql, group)
        self.fill(sql, group, dimension)

    def nearest(self, sql: apsw.Connection, group: int, embedding: bytes, allowed: Allowed, limit: int) -> Ranked:
        """The ids nearest to a float32 embedding, as (id, cosine), best first."""
        import numpy as np

        return self.nearest_each(sql, group, np.frombuffer(embedding, np.float32).reshape(1, -1), allowed, limit)[0]

    def nearest_each(self, sql: apsw.Connection, group: int, queries: Floats, allowed: Allowed, limit: int,
                     metric: str = "cosine") -> list[Ranked]:
        """The ids nearest to each query, as (id, score by `metric`), best first; equal ones in the order of the ids."""
        quick = metric == "cosine" and 2 * limit <= VEC0_LIMIT and group in self.coded(sql)
        few = self._few(sql, group, allowed) if quick else allowed
        if few is not None:
            return self._scan(sql, group, queries, few, limit, metric)
        return [self._by_codes(sql, group, query, allowed, limit) for query in queries]

    def cosines(self, sql: apsw.Connection, group: int, embedding: bytes, ids: Sequence[int]) -> dict[int, float]:
        """The exact cosine of given ids to a float32 embedding; those without an embedding are left out."""
        import numpy as np

        queries = np.frombuffer(embedding, np.float32).reshape(1, -1)
        return dict(self._scan(sql, group, queries, _only(ids), len(ids), "cosine")[0])

    def towards(self, sql: apsw.Connection, group: int, embedding: bytes, ids: Sequence[int]) -> bytes:
        """A float32 embedding moved a little towards the mean direction of those of given ids."""
        import numpy as np

        start = np.frombuffer(embedding, np.float32).astype(np.float64)
        rows = [row / np.linalg.norm(row) for _, block in self._blocks(sql, group, len(start), _only(ids)) for row in block]
        moved = start / np.linalg.norm(start) + TOWARDS * np.mean(rows, axis=0) if rows else start
        return moved.astype(np.float32).tobytes()

    def flaws(self, sql: apsw.Connection, group: int, dimension: int) -> Iterator[str]:
        """What is wrong with a group's embeddings themselves, in words."""
        import numpy as np

        for block in self._stored(sql, group, dimension):
            yield from (f"{self._table}: the embedding of {id} has {len(embedding) // 4} values instead of {dimension}"
                        for id, embedding in block if not arrays.fits(embedding, dimension))
            sound = [(id, embedding) for id, embedding in block if arrays.fits(embedding, dimension)]
            yield from (f"{self._table}: the embedding of {id} has values that are no numbers"
                        for id, embedding in sound if not np.isfinite(arrays.unpacked([embedding], dimension)).all())

    def problems(self, sql: apsw.Connection, group: int, dimension: int) -> Iterator[str]:
        """What is wrong with a group's embeddings and its vec0 table, in words."""
        yield from self.flaws(sql, group, dimension)
        coded = dict(sql.execute(f"SELECT rowid, embedding FROM {self.codes(group)}"))
        scanned = zip(*self._coded_rows(sql, self.codes(group), dimension), strict=True)
        if coded != {int(id): row.tobytes() for id, row in scanned}:
            yield f"{self.codes(group)}: not every row of it can be found by nearness"
        for block in self._stored(sql, group, dimension):
            ids = [id for id, embedding in block if arrays.fits(embedding, dimension)]
            rows = arrays.unpacked([embedding for _, embedding in block if arrays.fits(embedding, dimension)], dimension)
            yield from (f"{self.codes(group)}: {id} is missing or differs from its embedding"
                        for id, row in zip(ids, codes(rows), strict=True) if coded.pop(id, None) != row.tobytes())
        if coded:
            yield f"{self.codes(group)}: {len(coded)} rows without an embedding"

    def _enter(self, sql: apsw.Connection, group: int, ids: Sequence[int], coded: Any) -> None:
        sql.executemany(f"INSERT INTO {self.codes(group)} (rowid, embedding) VALUES (?, vec_int8(?))",
                        zip(ids, coded, strict=True))
        self._log(sql, group, ids)

    def _log(self, sql: apsw.Connection, group: int, ids: Sequence[int]) -> None:
        """Note which codes changed, for processes that keep them in memory."""
        noted = ids if len(ids) <= LOGGED // 10 else [ALL]
        sql.executemany("INSERT INTO changes (codes, id) VALUES (?, ?)", ((self.codes(group), id) for id in noted))
        sql.execute("DELETE FROM changes WHERE seq <= (SELECT max(seq) FROM changes) - ?", (LOGGED,))

    def _stored(self, sql: apsw.Connection, group: int, dimension: int,
                allowed: Allowed = EVERYTHING) -> Iterator[list[tuple[int, bytes]]]:
        # The plus keeps SQLite from looking every single id up in an index of groups.
        within = f"+{self._group} = ? AND {self._id} IN ({allowed.select})" if allowed.select else f"{self._group} = ?"
        rows = sql.execute(f"SELECT {self._id}, embedding FROM {self._table} WHERE {within} ORDER BY {self._id}",
                           (group, *allowed.bindings))
        while block := list(itertools.islice(rows, arrays.block_rows(dimension))):
            yield block

    def _blocks(self, sql: apsw.Connection, group: int, dimension: int,
                allowed: Allowed = EVERYTHING) -> Iterator[tuple[list[int], NDArray[np.float64]]]:
        for block in self._stored(sql, group, dimension, allowed):
            yield [id for id, _ in block], arrays.unpacked([embedding for _, embedding in block], dimension)

    def _few(self, sql: apsw.Connection, group: int, allowed: Allowed) -> Allowed | None:
        """The ids that may be returned when they are few enough to compare one by one, else None."""
        if not allowed.select:
            rows = f"SELECT 1 FROM {self._table} WHERE {self._group} = {group} LIMIT {EXACT_ROWS + 1}"
            return allowed if sql.execute(f"SELECT count(*) FROM ({rows})").get <= EXACT_ROWS else None
        ids = [id for (id,) in sql.execute(f"SELECT * FROM ({allowed.select}) LIMIT {EXACT_ROWS + 1}", allowed.bindings)]
        return _only(ids) if len(ids) <= EXACT_ROWS else None

    def _by_codes(self, sql: apsw.Connection, group: int, query: Floats, allowed: Allowed, limit: int) -> Ranked:
        candidates = self._candidates(sql, group, query, allowed, limit)
        ranked = self._scan(sql, group, query.reshape(1, -1), _only(candidates), limit, "cosine")[0]
        if len(ranked) < limit or min((cosine for _, cosine in ranked), default=1.0) <= 0:
            # Now embeddings that are zero are among the best, and of them the codes know nothing.
            return self._scan(sql, group, query.reshape(1, -1), allowed, limit, "cosine")[0]
        return ranked

    def _candidates(self, sql: apsw.Connection, group: int, query: Floats, allowed: Allowed, limit: int) -> list[int]:
        if (kept := self._resident(sql, group, query.shape[0])) is not None:
            return kept.nearest(query.astype("f4").tobytes(), 2 * limit + 20, _ids(sql, allowed))
        within = f"AND rowid IN ({allowed.select})" if allowed.select else ""
        rows = sql.execute(
            f"SELECT rowid FROM {self.codes(group)} WHERE embedding MATCH vec_int8(?) AND k = ? {within}",
            (codes(query.reshape(1, -1)).tobytes(), min(VEC0_LIMIT, 2 * limit + 20), *allowed.bindings))
        return [id for (id,) in rows]

    def _resident(self, sql: apsw.Connection, group: int, dimension: int) -> Resident | None:
        """A group's codes in memory, as this transaction sees them or newer; None when they are not (yet) kept.

        What is newer does no harm: candidates are read again from the file, and those that it does not have are left out.
        """
        name = self.codes(group)
        if not self._residents.lock.acquire(blocking=False):
            return None  # another thread is at it: the file answers meanwhile
        try:
            oldest, newest = sql.execute("SELECT coalesce(min(seq), 0), coalesce(max(seq), 0) FROM changes").get
            kept = self._residents.get(name)
            if kept is None:
                rows = sql.execute(f"SELECT count(*) FROM {name}_rowids").get
                if not self._residents.wanted(name, rows, dimension):
                    return None
            elif kept.seq >= newest or (oldest <= kept.seq + 1 and self._follow(sql, group, kept, newest)):
                return kept.codes
            kept = Kept(Resident(*self._coded_rows(sql, name, dimension)), newest)
            self._residents.keep(name, kept)
            return kept.codes
        finally:
            self._residents.lock.release()

    def _follow(self, sql: apsw.Connection, group: int, kept: Kept, newest: int) -> bool:
        """Bring codes in memory up to date by the log of changes; False where it does not tell all."""
        import numpy as np

        ids = [id for (id,) in sql.execute("SELECT DISTINCT id FROM changes WHERE seq > ? AND codes = ?",
                                           (kept.seq, self.codes(group)))]
        if ALL in ids:
            return False
        for present, rows in self._blocks(sql, group, kept.codes.dimension, _only(ids)):
            kept.codes.replace(np.array(present, np.int64), np.array(present, np.int64), codes(rows))
            ids = [id for id in ids if id not in set(present)]
        kept.codes.replace(np.array(ids, np.int64), np.empty(0, np.int64), np.empty((0, kept.codes.dimension), np.int8))
        kept.seq = newest
        return True

    def _coded_rows(self, sql: apsw.Connection, name: str, dimension: int) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
        """All ids and codes of a vec0 table, read from its own tables: a hundred times as fast as row by row."""
        import numpy as np

        rows = list(sql.execute(f"SELECT c.validity, c.rowids, v.vectors FROM {name}_chunks c "
                                f"JOIN {name}_vector_chunks00 v ON v.rowid = c.chunk_id"))
        try:
            valid = [np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little").astype(bool) for bits, _, _ in rows]
            ids = [np.frombuffer(held, np.int64)[used] for used, (_, held, _) in zip(valid, rows, strict=True)]
            found = [np.frombuffer(held, np.int8).reshape(-1, dimension)[used]
                     for used, (_, _, held) in zip(valid, rows, strict=True)]
        except (ValueError, TypeError, IndexError, AttributeError) as error:
            raise Damaged(f"{name} contradicts itself ({error}): run `mcpvectordb rebuild`") from error
        return (np.concatenate([np.empty(0, np.int64), *ids]), np.concatenate([np.empty((0, dimension), np.int8), *found]))

    def _scan(self, sql: apsw.Connection, group: int, queries: Floats, allowed: Allowed, limit: int,
              metric: str) -> list[Ranked]:
        """Compare every allowed embedding, a block at a time."""
        import numpy as np

        score = metrics.METRICS[metric]
        wide = queries.astype(np.float64)
        found = [(np.empty(0, np.int64), np.empty(0)) for _ in wide]
        for ids, rows in self._blocks(sql, group, queries.shape[1], allowed):
            for position, query in enumerate(wide):
                scores = score(rows, query)
                if np.isnan(scores).any():
                    raise Damaged(f"{self._table}: an embedding has values that are no numbers: run `mcpvectordb check`")
                known_ids, known_scores = found[position]
                found[position] = metrics.best(np.concatenate([known_ids, np.array(ids, np.int64)]),
                                               np.concatenate([known_scores, scores]), limit)
        return [list(zip(ids.tolist(), scores.tolist(), strict=True)) for ids, scores in found]


def _ids(sql: apsw.Connection, allowed: Allowed) -> NDArray[np.int64] | None:
    import numpy as np

    if not allowed.select:
        return None
    return np.fromiter((id for (id,) in sql.execute(allowed.select, allowed.bindings)), np.int64)


def _only(ids: Sequence[int]) -> Allowed:
    return Allowed("SELECT value FROM json_each(?)", (json.dumps(ids),))
