"""Vector search: the exact cosines of the nearest embeddings, chosen by their codes.

Embeddings are BLOBs (`index.arrays`) in an ordinary table, which is the truth. Beside it a vec0
table holds an int8 code of each (scalar quantization, scaled per vector, which does not change a
cosine). Up to some thousand embeddings are all compared; of more, the codes choose candidates
(`arrays.Codes`), whose embeddings are then compared exactly (hybrid search goes by the codes alone:
there a cosine is one of two scores, and its fourth digit decides nothing). The codes are read from
the vec0 table when first needed and stay in memory as far as the budget allows; beyond it they are
read for every query. The result is the same.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mcpvectordb.errors import Damaged
from mcpvectordb.index import arrays
from mcpvectordb.index.arrays import CodedRows, Codes, CodeView, Embeddings, centre, encode
from mcpvectordb.index.resident import (
    EVERYTHING,
    NOWHERE,
    Allowed,
    Columns,
    ColumnSource,
    Ranked,
    ResidentEntries,
    changes_since,
    log_changes,
    log_rebuilt,
    newest_change,
)
from mcpvectordb.storage import vec0
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mcpvectordb.index.arrays import Floats

CENTRE_CHUNKS = 16  # vec0 chunks (4,096 rows) from which on a centre is stored: below, no sign bits
CENTRE_SAMPLE = 80  # chunks that it is computed from, at most, which bounds its cost
FEW = 30  # ids that a statement names one by one: each number of them is a statement of its own
CODES = "codes"  # the key of a group's codes in memory


@dataclass(slots=True)
class _ResidentCodes:
    """The codes of a group, its filter columns, and the last change that both include."""

    codes: Codes
    columns: Columns
    seq: int

    @property
    def size(self) -> int:
        """How many bytes of memory this takes."""
        return self.codes.size + self.columns.size


class CodedPassages(Protocol):
    """Passages that are ranked by the codes of their embeddings, in a file or elsewhere."""

    def best(self, query: Floats, limit: int) -> Ranked:
        """(id, cosine) of the nearest by their codes, best first."""

    def rows(self, ids: NDArray[np.int64]) -> CodedRows:
        """The codes of those of the given ids that have one."""


class EmbeddingTable(NamedTuple):
    """Where embeddings are stored: a table with columns for their ids and groups.

    `prefix` begins the names of the vec0 tables of its groups.
    """

    prefix: str
    name: str
    id: str
    group: str


class VectorIndex:
    """The embeddings in `table`, whose rows belong to groups (a model, a part of a store).

    All embeddings of a group have one dimension. A group of more than `uncoded` rows gets a vec0
    table; of a smaller one the codes are made of its embeddings when they are needed, which takes
    some milliseconds, and space in the file is saved. With None the caller decides which groups get
    one, and a search of the others compares all embeddings. All methods work inside the caller's
    transaction.
    """

    def __init__(
        self,
        stored: EmbeddingTable,
        memory: ResidentEntries | None = None,
        source: ColumnSource = NOWHERE,
        uncoded: int | None = None,
    ) -> None:
        self._uncoded, self._prefix = uncoded, f"{stored.prefix}_meaning_"
        self._table, self._id, self._group = stored.name, stored.id, stored.group
        self._memory, self._source = memory or ResidentEntries(0), source
        self._tuning = self._memory.tuning

    # Writing.

    def codes_table(self, group: int) -> str:
        """The name of a group's vec0 table."""
        return f"{self._prefix}{group}"

    def coded(self, sql: Sql) -> list[int]:
        """The groups that have a vec0 table."""
        return vec0.tables(sql, self._prefix)

    def drop(self, sql: Sql, group: int) -> None:
        """Remove a group's vec0 table, if it has one."""
        sql.execute(f"DROP TABLE IF EXISTS {self.codes_table(group)}")
        sql.execute("DELETE FROM settings WHERE name = ?", (self._centre_setting(group),))
        log_rebuilt(sql, self.codes_table(group))

    def fill(self, sql: Sql, group: int, dimension: int) -> None:
        """Create the vec0 table of a group from its embeddings."""
        sql.execute(vec0.create_statement(self.codes_table(group), dimension))
        for ids, rows in self.blocks(sql, group, dimension):
            self.add_many(sql, group, ids, rows)

    def add_many(self, sql: Sql, group: int, ids: Sequence[int], rows: Floats) -> None:
        """Add the codes of embeddings that were just stored."""
        table = self.codes_table(group)
        log_changes(sql, table, ids)
        if vec0.exists(sql, table):
            vec0.insert(sql, table, ids, encode(rows))
            self._update_centre(sql, group, rows.shape[1])
        elif self._is_large(sql, group):
            self.fill(sql, group, rows.shape[1])

    def remove(self, sql: Sql, group: int, ids: Sequence[int]) -> None:
        """Remove codes; ids that have none are ignored."""
        if vec0.exists(sql, table := self.codes_table(group)):
            vec0.delete(sql, table, ids)
        log_changes(sql, table, ids)

    def rebuild(self, sql: Sql, group: int, dimension: int) -> None:
        """Create a vec0 table again from the embeddings, if there are enough of them.

        vec0 does not free the space of deleted rows by itself.
        """
        self.drop(sql, group)
        if self._is_large(sql, group):
            self.fill(sql, group, dimension)

    def _is_large(self, sql: Sql, group: int) -> bool:
        """Whether a group has so many embeddings that it should have a vec0 table."""
        if self._uncoded is None:
            return True
        rows = f"SELECT 1 FROM {self._table} WHERE {self._group} = ? LIMIT {self._uncoded + 1}"
        return int(sql.execute(f"SELECT count(*) FROM ({rows})", (group,)).get) > self._uncoded

    def count(self, sql: Sql, group: int) -> int:
        """The number of a group's embeddings."""
        if vec0.exists(sql, table := self.codes_table(group)):
            return vec0.count(sql, table)
        rows = f"SELECT count(*) FROM {self._table} WHERE {self._group} = ?"
        return int(sql.execute(rows, (group,)).get)

    def _codes(
        self, sql: Sql, group: int, dimension: int, allowed: Allowed = EVERYTHING
    ) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
        """Ids and codes of a group; of some or of a small one they are made of the embeddings."""
        if not allowed.select and vec0.exists(sql, table := self.codes_table(group)):
            return vec0.read_all(sql, table, dimension)
        found = self._read(sql, group, dimension, allowed)
        return np.array(found.ids, np.int64), encode(found.rows)

    def _update_centre(self, sql: Sql, group: int, dimension: int) -> None:
        """Store the mean direction of a group's codes when its size has doubled since then.

        The centre is what sign bits are relative to (`arrays.centre`). It is stored in the file and
        not computed by each reader, so that all processes have the same sign bits and give the same
        results, independent of which part of the group's history they have seen. It is computed
        from a sample of bounded size, once per doubling, and a mean over half of the rows is still
        close to that of all. A new centre changes all sign bits, hence `log_rebuilt`: readers
        read all codes again.
        """
        table = self.codes_table(group)
        chunks = vec0.chunks(sql, table)
        known, _ = self._centre(sql, group)
        if chunks < max(CENTRE_CHUNKS, 2 * known):
            return
        _, codes = vec0.read_all(sql, table, dimension, every=-(-chunks // CENTRE_SAMPLE))
        if len(codes):
            value = base64.b64encode(centre(codes).tobytes()).decode()
            sql.execute(
                "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)",
                (self._centre_setting(group), json.dumps([chunks, value])),
            )
            log_rebuilt(sql, table)

    def _centre(
        self, sql: Sql, group: int, dimension: int = 0
    ) -> tuple[int, NDArray[np.float32] | None]:
        """The number of vec0 chunks when a group's centre was computed (0: never), and it."""
        stored = sql.execute(
            "SELECT value FROM settings WHERE name = ?", (self._centre_setting(group),)
        ).get
        if stored is None:
            return 0, None
        try:
            chunks, text = json.loads(stored)
            centre = np.frombuffer(base64.b64decode(text, validate=True), np.float32)
            if dimension and (len(centre) != dimension or not np.isfinite(centre).all()):
                raise ValueError(f"{len(centre)} values")
            return int(chunks), centre
        except (ValueError, TypeError) as error:
            raise Damaged(
                f"the setting {self._centre_setting(group)} is not what was written ({error}): "
                "run `mcpvectordb rebuild`"
            ) from None

    def _centre_setting(self, group: int) -> str:
        return f"centre_{self.codes_table(group)}"

    # Searching.

    def nearest(
        self, sql: Sql, group: int, embedding: bytes, allowed: Allowed, limit: int
    ) -> Ranked:
        """(id, exact cosine) of the nearest to a float32 embedding, best first."""
        query = np.frombuffer(embedding, np.float32)
        return self.nearest_by(sql, group, query, allowed, limit, "cosine")

    def nearest_by(
        self, sql: Sql, group: int, query: Floats, allowed: Allowed, limit: int, metric: str
    ) -> Ranked:
        """(id, score) of the nearest to a query; equal scores come in the order of the ids.

        For the cosine of many embeddings, codes choose candidates, which are ranked by their exact
        cosines; otherwise all are compared.
        """
        view = self._view(sql, group, len(query), allowed) if metric == "cosine" else None
        if view is not None:
            candidates = view.codes.nearest(query, limit, view.alive, view.usable)
            found = self._scan(sql, group, query, _only(candidates), limit, metric)
            rows = int(np.count_nonzero(view.usable))
            positive = min((cosine for _, cosine in found), default=1.0) > 0
            if len(found) == min(limit, rows) and (len(candidates) == rows or positive):
                return found
            # Zero embeddings, whose codes are arbitrary, may be among the nearest.
        return self._scan(sql, group, query, allowed, limit, metric)

    def code_view(self, sql: Sql, group: int, dimension: int, allowed: Allowed) -> CodedPassages:
        """The codes of the allowed ids, to rank them without their embeddings.

        A first question of few rows reads the codes of these alone: all of a small table, otherwise
        those of the embeddings that the filter allows.
        """
        view = self._view(sql, group, dimension, allowed)
        if view is not None:
            return view
        codes = Codes(*self._codes(sql, group, dimension, allowed), tuning=self._tuning)
        return CodeView(codes, codes.alive, codes.alive)

    def preload(self, sql: Sql, group: int, dimension: int, budget: int) -> None:
        """Have the codes of a group in memory before a question needs them, if they are small."""
        table = self.codes_table(group)
        if Codes.bytes_for(self.count(sql, group), dimension) <= budget:
            self._memory.worth_loading(table, 0, 0)  # this process will ask more than once
            self._view(sql, group, dimension, EVERYTHING)

    def embeddings(self, sql: Sql, group: int, dimension: int, ids: Sequence[int]) -> Embeddings:
        """The embeddings of the given ids that have one."""
        return self._read(sql, group, dimension, _only(ids))

    def _read(self, sql: Sql, group: int, dimension: int, allowed: Allowed) -> Embeddings:
        rows = [row for block in self._stored(sql, group, dimension, allowed) for row in block]
        return Embeddings.of(rows, dimension)

    def _view(self, sql: Sql, group: int, dimension: int, allowed: Allowed) -> CodeView | None:
        """A group's codes as this transaction sees them; None if comparing all is as good.

        Codes in memory may be used and brought up to date only by a transaction that sees at least
        what they include (`resident.seq <= seq`) and has written nothing itself. An older
        transaction, and one with uncommitted changes, see other rows: they read the codes for
        themselves and keep nothing (a zero budget). The lock covers only bringing up to date. After
        it, other threads may append rows and replace `codes.alive`; this search goes on with the
        mask that it holds, which is never changed in place (copy on write, as in multiversion
        concurrency control). A filter becomes a second mask, from columns in memory if it can.
        """
        table, seq = self.codes_table(group), newest_change(sql)
        with self._memory.loading(table):
            known: _ResidentCodes | None = self._memory.get(table, CODES)
            fits = not sql.may_roll_back and (known is None or known.seq <= seq)
            memory, resident = (self._memory, known) if fits else (ResidentEntries(0), None)
            unchanged = resident is not None and resident.seq == seq
            if resident is None and not self._pays(sql, group, dimension, allowed):
                return None
            try:
                resident = self._current(sql, group, dimension, resident, seq)
                codes, alive = resident.codes, resident.codes.alive
                usable = None
                if allowed.conditions and memory is self._memory:
                    usable = resident.columns.fulfilling(sql, allowed.conditions, codes.ids)
            except BaseException:  # the entry may be brought up to date only in part
                memory.drop(table)
                raise
            if not unchanged or usable is not None:  # it may have grown
                memory.put(table, CODES, resident)
        if not allowed.select:
            return CodeView(codes, alive, alive)
        if usable is None:
            usable = allowed.mask(sql, codes.ids[: len(alive)])
        return CodeView(codes, alive, alive & usable)

    def _pays(self, sql: Sql, group: int, dimension: int, allowed: Allowed) -> bool:
        """Whether a query that finds no codes in memory should read them all."""
        table, few = self.codes_table(group), self._tuning.exact_rows
        if self._uncoded is None and not vec0.exists(sql, table):
            return False
        rows = f"SELECT 1 FROM {self._table} WHERE {self._group} = {group}"
        select = f"SELECT count(*) FROM ({allowed.select or rows} LIMIT {few + 1})"
        count = int(sql.execute(select, allowed.bindings).get)
        worth = self._memory.worth_loading(table, count, few)
        if count > few or not worth:
            return count > few
        every = self.count(sql, group) if allowed.select else count
        return self._memory.has_room(Codes.bytes_for(every, dimension))

    def _current(
        self,
        sql: Sql,
        group: int,
        dimension: int,
        resident: _ResidentCodes | None,
        seq: int,
    ) -> _ResidentCodes:
        """The codes as of change `seq`: those in memory, brought up to date, or all read again."""
        table = self.codes_table(group)
        if resident is not None and resident.seq == seq:
            return resident
        changed = changes_since(sql, table, resident.seq) if resident else None
        if resident is None or changed is None or resident.codes.fragmented:
            _, centre = self._centre(sql, group, dimension)
            codes = Codes(*self._codes(sql, group, dimension), centre, self._tuning)
            return _ResidentCodes(codes, Columns(self._source, group, self._tuning), seq)
        if changed:
            present, new = self._codes(sql, group, dimension, _only(changed))
            resident.columns.append(sql, present)
            resident.codes.replace(np.array(changed, np.int64), present, new)
        resident.seq = seq
        return resident

    def _scan(
        self, sql: Sql, group: int, query: Floats, allowed: Allowed, limit: int, metric: str
    ) -> Ranked:
        """Compare every allowed embedding, a block at a time."""
        best, best_scores = np.empty(0, np.int64), np.empty(0)
        wide = query.astype(np.float64)
        for ids, rows in self.blocks(sql, group, len(query), allowed):
            scores = arrays.METRICS[metric](rows, wide)
            if np.isnan(scores).any():
                raise Damaged(
                    f"{self._table}: an embedding has values that are no numbers: "
                    "run `mcpvectordb check`"
                )
            found, both = np.append(best, ids), np.append(best_scores, scores)
            order = arrays.highest(found, both, limit)
            best, best_scores = found[order], both[order]
        return list(zip(best.tolist(), best_scores.tolist(), strict=True))

    # Checking.

    def problems(self, sql: Sql, group: int, dimension: int) -> Iterator[str]:
        """The problems of a group's embeddings and, if it has one, of its vec0 table."""
        table = self.codes_table(group)
        coded: dict[int, bytes] | None = None
        if vec0.exists(sql, table):
            coded = dict(sql.execute(f"SELECT rowid, embedding FROM {table}"))
            scanned = zip(*vec0.read_all(sql, table, dimension), strict=True)
            if coded != {int(id): row.tobytes() for id, row in scanned}:
                yield f"{table}: not every row of it can be found by nearness"
        for block in self._stored(sql, group, dimension):
            sound = [row for row in block if arrays.fits(row[1], dimension)]
            yield from (
                f"{self._table}: the embedding of {id} has {len(embedding) // 4} values "
                f"instead of {dimension}"
                for id, embedding in block
                if not arrays.fits(embedding, dimension)
            )
            rows = arrays.unpacked([embedding for _, embedding in sound], dimension)
            codes = encode(rows) if coded else rows
            for (id, _), row, code in zip(sound, rows, codes, strict=True):
                if not np.isfinite(row).all():
                    yield f"{self._table}: the embedding of {id} has values that are no numbers"
                if coded is not None and coded.pop(id, None) != code.tobytes():
                    yield f"{table}: {id} is missing or differs from its embedding"
        if coded:
            yield f"{table}: {len(coded)} rows without an embedding"
        if coded is not None:
            try:
                self._centre(sql, group, dimension)
            except Damaged as error:
                yield str(error)

    def _stored(
        self, sql: Sql, group: int, dimension: int, allowed: Allowed = EVERYTHING
    ) -> Iterator[list[tuple[int, bytes]]]:
        # The plus keeps SQLite from using the index of groups, which is slower for given ids.
        within = (
            f"+{self._group} = ? AND {self._id} IN ({allowed.select})"
            if allowed.select
            else f"{self._group} = ? ORDER BY {self._id}"
        )
        rows = sql.execute(
            f"SELECT {self._id}, embedding FROM {self._table} WHERE {within}",
            (group, *allowed.bindings),
        )
        most = arrays.block_rows(dimension)
        while block := list(itertools.islice(rows, most)):
            yield block

    def blocks(
        self, sql: Sql, group: int, dimension: int, allowed: Allowed = EVERYTHING
    ) -> Iterator[Embeddings]:
        """(ids, embeddings) of a group, some at a time, by id unless `allowed` chooses some."""
        for block in self._stored(sql, group, dimension, allowed):
            yield Embeddings.of(block, dimension)


def _only(ids: Sequence[int]) -> Allowed:
    if 0 < len(ids) <= FEW:  # sooner bound than read as JSON
        return Allowed(f"VALUES {', '.join(['(?)'] * len(ids))}", tuple(ids))
    return Allowed("SELECT value FROM json_each(?)", (json.dumps(ids),))
