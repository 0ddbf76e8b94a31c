"""What of a file is published: its items as they are compared with those of the origin, and sent.

An item of the file is the version that the history would keep of it (`documents.items` …). Its
state, digests of all that is sent, is stored with it, so that the next publish sends what differs.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import apsw

from mcpvectordb.documents.items import DocumentItems, key_of
from mcpvectordb.history.versions import Version
from mcpvectordb.index import arrays
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.models import ModelRow
from mcpvectordb.memories.items import MemoryItems
from mcpvectordb.postgres import staged
from mcpvectordb.postgres.connection import Connection
from mcpvectordb.postgres.differences import Changed, Differences, State, digest
from mcpvectordb.postgres.origins import Origin, OriginChoice
from mcpvectordb.postgres.values import from_text, to_text
from mcpvectordb.postgres.words import Tokenizer
from mcpvectordb.storage.lazy import np

PASSAGES, ITEMS = 512, 256  # at most in one transaction, except for a longer document
MOST_NUMBERS = 16_000  # of a vector of pgvector
_KEYS = "IN (SELECT value FROM json_each(?))"


class PublishedModel(NamedTuple):
    """The model whose embeddings are published: its row in the file and its number there."""

    row: ModelRow
    key: int


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


class ItemToSend(NamedTuple):
    """An item: its state, its row without keys and digests, and its former ids or its tags."""

    state: State
    row: list[Any]
    names: list[str]


class PublishedShelf(ABC):
    """Items of one kind; `index` has their chunks."""

    remote_states: str

    def __init__(self, publication: Publication, index: ChunkIndex) -> None:
        self._publication, self._index, self._origin = publication, index, publication.origin

    @abstractmethod
    def local(self, sql: apsw.Connection) -> Iterator[State]:
        """The items of the file, by their published keys."""

    @abstractmethod
    def write(self, local: apsw.Connection, remote: Connection, batch: Batch) -> None:
        """Write a batch inside of the caller's transactions."""

    def remote(self, sql: Connection) -> Iterator[State]:
        """The items that are published, by their keys, without holding them all."""
        with sql.cursor(name="published") as cursor:
            cursor.itersize = 10_000
            cursor.execute(self.remote_states.encode(), (self._origin.key,))
            for key, *digests in cursor:
                yield State(int(str(key)), tuple(bytes(each) for each in digests))  # type: ignore[call-overload]

    def batches(self, sql: Connection, found: Differences) -> Iterator[Batch]:
        """Transactions that make the published items equal to those of the file."""
        for items in _groups(sorted([*found.added, *found.changed])):
            yield Batch(items)
        yield from _gone(found.gone)

    # The chunks and embeddings of these items, as they are published.

    def _waiting(self, sql: apsw.Connection, owners: Sequence[int] | None) -> dict[int, int]:
        """How many chunks wait for their embedding, by owner; owners without such are not in it."""
        if self._publication.model is None:
            return {}
        chunks, pending = f"{self._index.chunks} c", f"{self._index.pending} p"
        # CROSS keeps the order: from all that waits down, or from some owners down.
        tables, condition, bindings = (
            (f"{pending} CROSS JOIN {chunks}", "", ())
            if owners is None
            else (f"{chunks} CROSS JOIN {pending}", f"AND c.owner {_KEYS}", (json.dumps(owners),))
        )
        return dict(
            sql.execute(
                f"SELECT c.owner, count(*) FROM {tables} ON p.chunk = c.id "
                f"WHERE p.model = ? {condition} GROUP BY c.owner",
                (self._publication.model.row.key, *bindings),
            )
        )

    def _embeddings_digest(self, waiting: int) -> bytes:
        """The digest of an item's embeddings, so many of which are still missing."""
        model = self._publication.model
        return digest(list(model.row[1:]), waiting) if model else digest(None)

    def _chunks(self, sql: apsw.Connection, owners: Sequence[int]) -> Iterator[list[Any]]:
        """The rows of the chunks of these owners."""
        for id, owner, *values in sql.execute(
            'SELECT c.id, c.owner, c.position, c.tile_start, c.start, c."end", c.first_line, '
            "c.last_line, c.page, c.tile, c.headings, c.header, c.footer, c.hash "
            f"FROM {self._index.chunks} c WHERE c.owner {_KEYS} ORDER BY c.owner, c.position",
            (json.dumps(owners),),
        ):
            yield [self._origin.id(id), self._origin.id(owner), self._origin.key, *values]

    def _embeddings(self, sql: apsw.Connection, owners: Sequence[int]) -> Iterator[list[Any]]:
        """The rows of their embeddings by the published model."""
        model = self._publication.model
        if model is None:
            return
        for chunk, embedding in sql.execute(
            f"SELECT e.chunk, e.embedding FROM {self._index.chunks} c "
            f"JOIN {self._index.embeddings} e ON e.chunk = c.id AND e.model = ? "
            f"WHERE c.owner {_KEYS} ORDER BY e.chunk",
            (model.row.key, json.dumps(owners)),
        ):
            [wide] = arrays.in_precision([embedding], model.row.dimension, "float32")
            yield [self._origin.id(chunk), model.key, self._origin.key, wide]

    def _delete_embeddings(self, remote: Connection, keys: Sequence[int]) -> None:
        remote.execute(
            f"DELETE FROM {self._index.embeddings} e USING {self._index.chunks} c "
            "WHERE c.owner = ANY(%s) AND e.chunk = c.id".encode(),
            (list(keys),),
        )


class DocumentsToPublish(PublishedShelf):
    """The documents of the chosen libraries: digests of row, passages and embeddings."""

    remote_states = (
        "SELECT key, row_digest, chunks_digest, embeddings_digest FROM documents "
        "WHERE origin = %s ORDER BY key"
    )

    def local(self, sql: apsw.Connection) -> Iterator[State]:
        """The documents of the file."""
        chosen = self._publication.libraries
        found = DocumentItems.present(sql)
        if chosen is not None:
            found = DocumentItems.where(sql, f"library {_KEYS}", (json.dumps(chosen),))
        waiting = self._waiting(sql, None)
        for version in found:
            yield self._item(sql, version, waiting).state

    def batches(self, sql: Connection, found: Differences) -> Iterator[Batch]:
        """What to write; a document that takes the place of another does so at once.

        A source that was ingested again has a new key: its old document goes in the same
        transaction. Those that are only gone go last.
        """
        replaced = self._places(sql, found.gone) if found.added else {}
        taken: set[int] = set()
        for items in _groups(sorted([*found.added, *found.changed])):
            before = [keys for each in items if (keys := replaced.pop(each.place, None))]
            gone = tuple(key for each in before for key in each)
            taken.update(gone)
            yield Batch(items, gone, len(before))
        yield from _gone([key for key in found.gone if key not in taken])

    def write(self, local: apsw.Connection, remote: Connection, batch: Batch) -> None:
        """Write documents; passages only of those that are new or have others than before."""
        _remove_documents(remote, batch.gone)
        if not batch.items:
            return
        parts = {self._origin.own(each.key): each.parts for each in batch.items}
        waiting = self._waiting(local, list(parts))
        found = [
            self._item(local, version, waiting)
            for version in DocumentItems.where(local, f"key {_KEYS}", (json.dumps([*parts]),))
        ]
        owners = [self._origin.own(each.state.key) for each in found]
        keys = {key: self._origin.id(key) for key in owners}
        whole = [key for key in owners if parts[key][1]]
        _remove_documents(remote, [keys[key] for key in whole])
        remote.execute("DELETE FROM former_ids WHERE document = ANY(%s)", ([*keys.values()],))
        self._delete_embeddings(remote, [keys[key] for key in owners if parts[key][2]])
        staged.put_again(
            remote,
            staged.DOCUMENTS,
            ([each.state.key, self._origin.key, *each.row, *each.state.digests] for each in found),
        )
        staged.put(
            remote,
            staged.FORMER_IDS,
            (
                [self._origin.key, each.state.key, number, id]
                for each in found
                for number, id in enumerate(each.names)
            ),
        )
        staged.put(remote, staged.DOCUMENT_CHUNKS, self._chunks_with_words(local, whole))
        embedded = [key for key in owners if any(parts[key][1:])]
        staged.put(remote, staged.DOCUMENT_EMBEDDINGS, self._embeddings(local, embedded))

    def _places(self, sql: Connection, keys: Sequence[int]) -> dict[bytes, list[int]]:
        """The keys of published documents by their library and source."""
        found: dict[bytes, list[int]] = {}
        for key, library, source in sql.execute(
            "SELECT key, library, source FROM documents WHERE key = ANY(%s)", (list(keys),)
        ):
            place = digest(from_text(str(library)), from_text(str(source)))
            found.setdefault(place, []).append(int(str(key)))
        return found

    def _item(
        self, sql: apsw.Connection, version: Version, waiting: Mapping[int, int]
    ) -> ItemToSend:
        key, item = key_of(version), version.item
        fields, local = version.fields or {}, version.local
        former, first, last = sql.execute(
            "SELECT (SELECT json_group_array(id) FROM "
            "(SELECT id FROM former_ids WHERE document = ?1 ORDER BY number)), "
            "(SELECT min(id) FROM document_chunks WHERE owner = ?1), "
            "(SELECT max(id) FROM document_chunks WHERE owner = ?1)",
            (key,),
        ).get
        row = [local["id"], item.place, item.name, fields["title"], fields["hash"]]
        row += [fields["file_type"], fields["size"], local["modified"], fields["created_at"]]
        metadata, chunks = fields["metadata"], fields["chunks"]
        path = DocumentItems.label(sql, version)
        digests = (
            digest(*row, metadata, path, former),
            digest(chunks, first, last),
            self._embeddings_digest(waiting.get(key, 0)),
        )
        state = State(self._origin.id(key), digests, chunks, digest(item.place, item.name))
        return ItemToSend(state, [*row, metadata, metadata, path, chunks], json.loads(former))

    def _chunks_with_words(
        self, sql: apsw.Connection, owners: Sequence[int]
    ) -> Iterator[list[Any]]:
        tokenizer = Tokenizer()
        rows = self._chunks(sql, owners)
        while block := list(islice(rows, PASSAGES)):
            own = {self._origin.own(row[0]): row for row in block}
            for passage in self._index.passages(sql, list(own)):
                yield [*own[passage.id], *tokenizer.words(passage.columns)]


class MemoriesToPublish(PublishedShelf):
    """The memories, with the words of each as a whole: digests of all but embeddings, and of these.

    There are none if only some libraries are published.
    """

    remote_states = (
        "SELECT id, row_digest, embeddings_digest FROM contexts WHERE origin = %s ORDER BY id"
    )

    def local(self, sql: apsw.Connection) -> Iterator[State]:
        """The memories of the file."""
        if self._publication.libraries is None:
            waiting = self._waiting(sql, None)
            for version in MemoryItems.present(sql):
                yield self._item(sql, version, waiting).state

    def write(self, local: apsw.Connection, remote: Connection, batch: Batch) -> None:
        """Write memories as a whole, or the embeddings of those that waited for them."""
        whole = [each.key for each in batch.items if each.parts[0]]
        remote.execute("DELETE FROM contexts WHERE id = ANY(%s)", ([*batch.gone, *whole],))
        embedded = [each.key for each in batch.items if not each.parts[0]]
        owners = self._put_whole(local, remote, whole) + self._renew(local, remote, embedded)
        staged.put(remote, staged.MEMORY_EMBEDDINGS, self._embeddings(local, owners))

    def _put_whole(
        self, local: apsw.Connection, remote: Connection, keys: Sequence[int]
    ) -> list[int]:
        """Write memories with all but their embeddings; the ids of those that still exist."""
        found = self._named(local, keys)
        ids, origin = [self._origin.own(each.state.key) for each in found], self._origin.key
        staged.put(remote, staged.MEMORIES, self._with_words(local, found, ids))
        staged.put(
            remote,
            staged.MEMORY_TAGS,
            ([each.state.key, origin, tag] for each in found for tag in each.names),
        )
        images = local.execute(
            "SELECT context, position, mime_type, metadata, data FROM context_images "
            f"WHERE context {_KEYS} ORDER BY context, position",
            (json.dumps(ids),),
        )
        staged.put(
            remote,
            staged.MEMORY_IMAGES,
            ([self._origin.id(int(str(memory))), origin, *values] for memory, *values in images),
        )
        staged.put(remote, staged.MEMORY_CHUNKS, self._chunks(local, ids))
        return ids

    def _renew(self, local: apsw.Connection, remote: Connection, keys: Sequence[int]) -> list[int]:
        """Make room for other embeddings of published memories; the ids of those that exist."""
        found = self._named(local, keys)
        self._delete_embeddings(remote, keys)
        for each in found:
            remote.execute(
                "UPDATE contexts SET embeddings_digest = %s WHERE id = %s",
                (each.state.digests[1], each.state.key),
            )
        return [self._origin.own(each.state.key) for each in found]

    def _named(self, sql: apsw.Connection, keys: Sequence[int]) -> list[ItemToSend]:
        own = [self._origin.own(key) for key in keys]
        waiting = self._waiting(sql, own)
        found = MemoryItems.where(sql, f"id {_KEYS}", (json.dumps(own),))
        return [self._item(sql, version, waiting) for version in found]

    def _item(
        self, sql: apsw.Connection, version: Version, waiting: Mapping[int, int]
    ) -> ItemToSend:
        id, fields = version.local["id"], version.fields or {}
        count, last = sql.execute(
            "SELECT count(*), max(id) FROM context_chunks WHERE owner = ?", (id,)
        ).get
        digests = (
            digest(version.item.name, version.stamp, version.digest.hex(), count, last),
            self._embeddings_digest(waiting.get(id, 0)),
        )
        row = [fields["thread"], fields["source"], bytes.fromhex(fields["hash"])]
        row += [fields["metadata"], fields["metadata"], fields["created_at"], fields["updated_at"]]
        state = State(self._origin.id(id), digests, count)
        return ItemToSend(state, [*row, version.item.name], fields["tags"])

    def _with_words(
        self, sql: apsw.Connection, memories: Sequence[ItemToSend], ids: Sequence[int]
    ) -> Iterator[list[Any]]:
        stems, spellings = Tokenizer(), Tokenizer(stemmed=False)
        texts = dict(self._index.texts(sql, ids))
        for each, id in zip(memories, ids, strict=True):
            words, tokens = stems.words([texts.get(id, "")])
            spelled, _ = spellings.words([texts.get(id, "")])
            begin = [each.state.key, self._origin.key]
            yield [*begin, *each.row, words, spelled, tokens, *each.state.digests]


class VectorsToPublish(PublishedShelf):
    """The vectors of the file; none if only some libraries are published.

    One whose numbers change gets another stamp, so that these need not be read to be compared.
    """

    remote_states = "SELECT key, row_digest FROM vectors WHERE origin = %s ORDER BY key"

    def __init__(self, publication: Publication) -> None:
        self._publication, self._origin = publication, publication.origin

    def local(self, sql: apsw.Connection) -> Iterator[State]:
        """The vectors of the file."""
        if self._publication.libraries is None:
            for key, *values in sql.execute(f"SELECT {_VECTOR} FROM vectors v ORDER BY v.key"):
                yield State(self._origin.id(int(str(key))), (digest(*values),))

    def write(self, local: apsw.Connection, remote: Connection, batch: Batch) -> None:
        """Write vectors, in place of those that are published under their keys."""
        keys = [each.key for each in batch.items]
        remote.execute("DELETE FROM vectors WHERE key = ANY(%s)", ([*batch.gone, *keys],))
        rows, embeddings = [], []
        for key, store, dimension, *names, metadata, stamp, raw in local.execute(
            f"SELECT {_VECTOR}, e.embedding FROM vectors v "
            f"JOIN vector_embeddings e ON e.vector = v.key WHERE v.key {_KEYS} ORDER BY v.key",
            (json.dumps([self._origin.own(key) for key in keys]),),
        ):
            said = digest(store, dimension, *names, metadata, stamp)
            ids = [self._origin.id(key), self._origin.key, self._origin.id(store), dimension]
            rows.append([*ids, *names, metadata, metadata, said])
            embeddings.append([*ids, *_numbers(raw, dimension)])
        staged.put(remote, staged.VECTORS, rows)
        staged.put(remote, staged.VECTOR_EMBEDDINGS, embeddings)


_VECTOR = "v.key, v.store, v.dimension, v.namespace, v.id, v.metadata, v.stamp"


def _numbers(raw: bytes, dimension: int) -> tuple[bytes | None, bytes | None]:
    """The float32 numbers of a vector, if PostgreSQL can have them; its own, unless they are it."""
    single = len(raw) == 4 * dimension
    with np.errstate(over="ignore"):
        near = np.frombuffer(raw, "<f4" if single else "<f8").astype("<f4")
    fits = dimension <= MOST_NUMBERS and bool(np.isfinite(near).all())
    return near.tobytes() if fits else None, None if fits and single else raw


def _groups(items: Iterable[Changed]) -> Iterator[tuple[Changed, ...]]:
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


def _gone(keys: Sequence[int]) -> Iterator[Batch]:
    """Keys to be removed, in groups."""
    for first in range(0, len(keys), ITEMS):
        yield Batch((), tuple(keys[first : first + ITEMS]))


def _remove_documents(remote: Connection, keys: Sequence[int]) -> None:
    """Remove published documents; their passages first, which takes one step for all of them."""
    remote.execute("DELETE FROM document_chunks WHERE owner = ANY(%s)", (list(keys),))
    remote.execute("DELETE FROM documents WHERE key = ANY(%s)", (list(keys),))
