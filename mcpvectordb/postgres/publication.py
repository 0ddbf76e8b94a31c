"""What the shelves of a publication share: where to, what of the file, and batches of its items."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import apsw

from mcpvectordb.index import arrays
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.models import ModelRow
from mcpvectordb.postgres.connection import Connection
from mcpvectordb.postgres.differences import Changed, Differences, State, digest
from mcpvectordb.postgres.origins import Origin, OriginChoice
from mcpvectordb.postgres.values import to_text

PASSAGES, ITEMS = 512, 256  # at most in one transaction, except for a longer document
CHUNK_COLUMNS = (
    'c.id, c.owner, c.position, c.tile_start, c.start, c."end", c.first_line, c.last_line, '
    "c.page, c.tile, c.headings, c.header, c.footer, c.hash"
)


class PublishedModel(NamedTuple):
    """The model whose embeddings are published: its row in the file and its number there."""

    row: ModelRow
    key: int

    @property
    def identity(self) -> list[Any]:
        """What the digest of embeddings says of it."""
        return [self.row.name, self.row.digest, self.row.dimension]


class Publication(NamedTuple):
    """An origin, the model of its embeddings, and the libraries that are published (None: all)."""

    origin: Origin
    model: PublishedModel | None
    libraries: tuple[str, ...] | None

    @property
    def choice(self) -> OriginChoice:
        """What the origin's row says of it."""
        chosen = None if self.libraries is None else [to_text(each) for each in self.libraries]
        return OriginChoice(self.model.key if self.model else None, chosen)


class Batch(NamedTuple):
    """Items that one transaction writes, and the keys of published ones that it removes.

    `replaced` of the items are new and take the place of removed ones.
    """

    items: tuple[Changed, ...]
    gone: tuple[int, ...] = ()
    replaced: int = 0


class PublishedShelf(Protocol):
    """A shelf whose items are compared and sent."""

    def local(self, sql: apsw.Connection) -> Iterator[State]:
        """The items of the file, by their published keys."""

    def remote(self, sql: Connection) -> Iterator[State]:
        """The items that are published, by their keys."""

    def batches(self, sql: Connection, found: Differences) -> Iterator[Batch]:
        """Transactions that make the published items equal to those of the file."""

    def write(self, local: apsw.Connection, remote: Connection, batch: Batch) -> None:
        """Write a batch inside of the caller's transactions."""


def batches(items: Iterable[Changed]) -> Iterator[tuple[Changed, ...]]:
    """Items in groups that are small enough for a transaction."""
    group: list[Changed] = []
    passages = 0
    for each in items:
        if group and (len(group) == ITEMS or passages + each.passages > PASSAGES):
            yield tuple(group)
            group, passages = [], 0
        group.append(each)
        passages += each.passages
    if group:
        yield tuple(group)


def gone_batches(keys: Sequence[int]) -> Iterator[Batch]:
    """Keys to be removed, in groups."""
    for first in range(0, len(keys), ITEMS):
        yield Batch((), tuple(keys[first : first + ITEMS]))


def states(sql: Connection, statement: str, origin: Origin) -> Iterator[State]:
    """The keys and digests that a statement selects of an origin, without holding them all."""
    with sql.cursor(name="published") as cursor:
        cursor.itersize = 10_000
        cursor.execute(statement.encode(), (origin.key,))
        for key, *digests in cursor:
            yield State(int(str(key)), tuple(bytes(each) for each in digests))  # type: ignore[call-overload]


class ChunkReader:
    """The chunks and embeddings of one shelf of the file, as they are published."""

    def __init__(self, publication: Publication, index: ChunkIndex) -> None:
        self._publication, self._index = publication, index

    def waiting(self, sql: apsw.Connection, owners: Sequence[int] | None = None) -> dict[int, int]:
        """How many chunks wait for their embedding, by owner; owners without such are not in it."""
        if self._publication.model is None:
            return {}
        chunks, pending = f"{self._index.chunks} c", f"{self._index.pending} p"
        # CROSS keeps the order: from all that waits down, or from some owners down.
        tables, condition, bindings = (
            (f"{pending} CROSS JOIN {chunks}", "", ())
            if owners is None
            else (
                f"{chunks} CROSS JOIN {pending}",
                "AND c.owner IN (SELECT value FROM json_each(?))",
                (json.dumps(owners),),
            )
        )
        return dict(
            sql.execute(
                f"SELECT c.owner, count(*) FROM {tables} ON p.chunk = c.id "
                f"WHERE p.model = ? {condition} GROUP BY c.owner",
                (self._publication.model.row.key, *bindings),
            )
        )

    def embeddings_digest(self, waiting: int) -> bytes:
        """The digest of an item's embeddings, so many of which are still missing."""
        model = self._publication.model
        return digest(model.identity, waiting) if model else digest(None)

    def rows(self, sql: apsw.Connection, owners: Sequence[int]) -> Iterator[list[Any]]:
        """The rows of the chunks of these owners."""
        origin = self._publication.origin
        for id, owner, *values in sql.execute(
            f"SELECT {CHUNK_COLUMNS} FROM {self._index.chunks} c "
            "WHERE c.owner IN (SELECT value FROM json_each(?)) ORDER BY c.owner, c.position",
            (json.dumps(owners),),
        ):
            yield [origin.id(id), origin.id(owner), origin.key, *values]

    def embeddings(self, sql: apsw.Connection, owners: Sequence[int]) -> Iterator[list[Any]]:
        """The rows of their embeddings by the published model."""
        origin, model = self._publication.origin, self._publication.model
        if model is None:
            return
        for chunk, embedding in sql.execute(
            f"SELECT e.chunk, e.embedding FROM {self._index.chunks} c "
            f"JOIN {self._index.embeddings} e ON e.chunk = c.id AND e.model = ? "
            "WHERE c.owner IN (SELECT value FROM json_each(?)) ORDER BY e.chunk",
            (model.row.key, json.dumps(owners)),
        ):
            [wide] = arrays.in_precision([embedding], model.row.dimension, "float32")
            yield [origin.id(chunk), model.key, origin.key, wide]
