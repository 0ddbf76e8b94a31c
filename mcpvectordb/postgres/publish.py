"""Publishing a file: compare it with what its origin has, and send what differs.

There is no state between two runs but what is published: each item has digests of what was sent. So
a run that was killed is continued by the next one, and one with nothing to do writes nothing. An
item of the file is the version that the history would keep of it (`documents.items` …).
"""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from contextlib import closing
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple

from mcpvectordb.documents import libraries as known_libraries
from mcpvectordb.documents.items import DocumentItems, key_of
from mcpvectordb.errors import InvalidInput, NotFound
from mcpvectordb.history.versions import Version
from mcpvectordb.index import arrays
from mcpvectordb.index.chunks import ChunkIndex, ModelRow, active_model
from mcpvectordb.memories.items import VALIDITY, MemoryItems
from mcpvectordb.metadata import library_name
from mcpvectordb.postgres import Published, PublishedItems, origins, schema, staged
from mcpvectordb.postgres.connection import Connection, Server, from_text, to_text
from mcpvectordb.postgres.keyword import Tokenizer
from mcpvectordb.postgres.origins import Origin
from mcpvectordb.postgres.vector import MOST_NUMBERS
from mcpvectordb.ranking.why_empty import unknown_name
from mcpvectordb.records import Progress, ProgressCallback
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.lazy import np
from mcpvectordb.store import OpenStore

PASSAGES, ITEMS = 512, 256  # at most in one transaction, except for a longer document
_KEYS = "IN (SELECT value FROM json_each(?))"


# --- what a file has and what it has published, compared item by item
#
# An item has a key and digests of its parts. Both sides come in the order of their keys, like two
# sorted lists that are merged, so only what differs is kept in memory.

FORM = 1  # raised when what is made of an item changes: then all is published again


class State(NamedTuple):
    """An item: its key, the digests of its parts, and how many passages it has.

    `place` is a digest of what another item must have to be its successor, under another key.
    `parts` says of an item to be written which of its parts differ; all of a new one do.
    """

    key: int
    digests: tuple[bytes, ...]
    passages: int = 0
    place: bytes = b""
    parts: tuple[bool, ...] = ()


@dataclass(slots=True)
class Differences:
    """The items that are new, changed or gone, and the number of the others."""

    added: list[State] = field(default_factory=list)
    changed: list[State] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    same: int = 0

    @property
    def passages(self) -> int:
        """How many passages are sent: those of items of which more differs than fields."""
        return sum(each.passages for each in (*self.added, *self.changed) if any(each.parts[1:]))

    def counted(self, replaced: int = 0) -> PublishedItems:
        """What a publish reports of them; so many new items took the place of others."""
        return PublishedItems(
            added=len(self.added) - replaced,
            updated=len(self.changed) + replaced,
            deleted=max(0, len(self.gone) - replaced),
            unchanged=self.same,
        )


def digest(*values: Any) -> bytes:
    """A digest of values in JSON's types."""
    said = json.dumps([FORM, *values], ensure_ascii=False, separators=(",", ":"))
    return hashlib.blake2b(said.encode(), digest_size=16).digest()


def differences(local: Iterable[State], remote: Iterable[State]) -> Differences:
    """What has to be done so that the remote side has the items of the local one."""
    found = Differences()
    ours = ((each.key, "own", each) for each in local)
    theirs = ((each.key, "theirs", each) for each in remote)
    for key, both in groupby(merge(ours, theirs), itemgetter(0)):
        sides = {side: each for _, side, each in both}
        own, other = sides.get("own"), sides.get("theirs")
        if own is None:
            found.gone.append(key)
        elif other is None:
            found.added.append(own._replace(parts=(True,) * len(own.digests)))
        elif own.digests == other.digests:
            found.same += 1
        else:
            parts = (mine != its for mine, its in zip(own.digests, other.digests, strict=True))
            found.changed.append(own._replace(parts=tuple(parts)))
    return found


# --- items as they are sent


class Publication(NamedTuple):
    """An origin, the libraries that are published (None: all), and the model of the embeddings.

    A model has a row in the file and a number in PostgreSQL, which origins share.
    """

    origin: Origin
    libraries: tuple[str, ...] | None
    model: ModelRow | None = None
    model_key: int | None = None


class Batch(NamedTuple):
    """Items that one transaction writes, and the keys of published ones that it removes.

    `replaced` of the items are new and take the place of removed ones.
    """

    items: tuple[State, ...]
    gone: tuple[int, ...] = ()
    replaced: int = 0


ItemToSend = tuple[State, list[Any], list[str]]
"""An item: its state, its row without keys and digests, and its former ids or its tags."""


class PublishedShelf(ABC):
    """Items of one kind; `index` has their chunks."""

    remote_states: str

    def __init__(self, publication: Publication, index: ChunkIndex) -> None:
        self._publication, self._index, self._origin = publication, index, publication.origin

    @abstractmethod
    def local(self, sql: Sql) -> Iterator[State]:
        """The items of the file, by their published keys."""

    @abstractmethod
    def write(self, local: Sql, remote: Connection, batch: Batch) -> None:
        """Write a batch inside of the caller's transactions."""

    def remote(self, sql: Connection) -> Iterator[State]:
        """The items that are published, by their keys, without holding them all."""
        with sql.cursor(name="published") as cursor:
            cursor.itersize = 10_000
            cursor.execute(self.remote_states.encode(), (self._origin.key,))
            for key, *digests in cursor:
                yield State(int(str(key)), tuple(bytes(each) for each in digests))  # type: ignore[call-overload]

    def batches(self, sql: Connection, found: Differences) -> Iterator[Batch]:
        """Transactions that make the published items equal to those of the file.

        An item that takes the place of another does so at once: a source that was ingested again
        has a new key, and its old document goes in the same transaction. Those that are only gone
        go last.
        """
        replaced = self._places(sql, found.gone) if found.added else {}
        taken: set[int] = set()
        for items in _groups(sorted([*found.added, *found.changed])):
            before = [keys for each in items if (keys := replaced.pop(each.place, None))]
            gone = tuple(key for each in before for key in each)
            taken.update(gone)
            yield Batch(items, gone, len(before))
        left = [key for key in found.gone if key not in taken]
        for first in range(0, len(left), ITEMS):
            yield Batch((), tuple(left[first : first + ITEMS]))

    def _places(self, sql: Connection, keys: Sequence[int]) -> dict[bytes, list[int]]:
        """The keys of published items by the place that another item may take."""
        return {}

    # The chunks and embeddings of these items, as they are published.

    def _waiting(self, sql: Sql, owners: Sequence[int] | None) -> dict[int, int]:
        """How many chunks wait for their embedding, by owner; owners without such are not in it."""
        model = self._publication.model
        if model is None:
            return {}
        if owners is not None:
            return self._index.pending_by_owner(sql, model.key, owners)
        return dict(
            sql.execute(  # CROSS: from all that waits down
                f"SELECT c.owner, count(*) FROM {self._index.pending} p CROSS JOIN "
                f"{self._index.chunks} c ON p.chunk = c.id WHERE p.model = ? GROUP BY c.owner",
                (model.key,),
            )
        )

    def _embeddings_digest(self, waiting: int) -> bytes:
        """The digest of an item's embeddings, so many of which are still missing."""
        model = self._publication.model
        return digest(list(model[1:]), waiting) if model else digest(None)

    def _chunks(self, sql: Sql, owners: Sequence[int]) -> Iterator[list[Any]]:
        """The rows of the chunks of these owners."""
        for id, owner, *values in sql.execute(
            'SELECT c.id, c.owner, c.position, c.tile_start, c.start, c."end", c.first_line, '
            "c.last_line, c.page, c.tile, c.headings, c.header, c.footer, c.hash "
            f"FROM {self._index.chunks} c WHERE c.owner {_KEYS} ORDER BY c.owner, c.position",
            (json.dumps(owners),),
        ):
            yield [self._origin.id(id), self._origin.id(owner), self._origin.key, *values]

    def _embeddings(self, sql: Sql, owners: Sequence[int]) -> Iterator[list[Any]]:
        """The rows of their embeddings by the published model."""
        model = self._publication.model
        if model is None:
            return
        for chunk, embedding in sql.execute(
            f"SELECT e.chunk, e.embedding FROM {self._index.chunks} c "
            f"JOIN {self._index.embeddings} e ON e.chunk = c.id AND e.model = ? "
            f"WHERE c.owner {_KEYS} ORDER BY e.chunk",
            (model.key, json.dumps(owners)),
        ):
            [wide] = arrays.in_precision([embedding], model.dimension, "float32")
            yield [self._origin.id(chunk), self._publication.model_key, self._origin.key, wide]

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

    def local(self, sql: Sql) -> Iterator[State]:
        """The documents of the file."""
        chosen = self._publication.libraries
        found = DocumentItems.present(sql)
        if chosen is not None:
            found = DocumentItems.where(sql, f"library {_KEYS}", (json.dumps(chosen),))
        waiting = self._waiting(sql, None)
        for version in found:
            yield self._item(sql, version, waiting)[0]

    def write(self, local: Sql, remote: Connection, batch: Batch) -> None:
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
        owners = [self._origin.own(state.key) for state, *_ in found]
        keys = {key: self._origin.id(key) for key in owners}
        whole = [key for key in owners if parts[key][1]]
        _remove_documents(remote, [keys[key] for key in whole])
        remote.execute("DELETE FROM former_ids WHERE document = ANY(%s)", ([*keys.values()],))
        self._delete_embeddings(remote, [keys[key] for key in owners if parts[key][2]])
        origin = self._origin.key
        rows = ([state.key, origin, *row, *state.digests] for state, row, _ in found)
        staged.put(remote, "documents", rows, again=True)
        former = (
            [origin, state.key, number, id]
            for state, _, ids in found
            for number, id in enumerate(ids)
        )
        staged.put(remote, "former_ids", former)
        staged.put(remote, "document_chunks", self._chunks_with_words(local, whole))
        embedded = [key for key in owners if any(parts[key][1:])]
        staged.put(remote, "document_embeddings", self._embeddings(local, embedded))

    def _places(self, sql: Connection, keys: Sequence[int]) -> dict[bytes, list[int]]:
        """The keys of published documents by their library and source."""
        found: dict[bytes, list[int]] = {}
        for key, library, source in sql.execute(
            "SELECT key, library, source FROM documents WHERE key = ANY(%s)", (list(keys),)
        ):
            place = digest(from_text(str(library)), from_text(str(source)))
            found.setdefault(place, []).append(int(str(key)))
        return found

    def _item(self, sql: Sql, version: Version, waiting: Mapping[int, int]) -> ItemToSend:
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
        return state, [*row, metadata, metadata, path, chunks], json.loads(former)

    def _chunks_with_words(self, sql: Sql, owners: Sequence[int]) -> Iterator[list[Any]]:
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

    def local(self, sql: Sql) -> Iterator[State]:
        """The memories of the file."""
        if self._publication.libraries is None:
            waiting = self._waiting(sql, None)
            for version in MemoryItems.present(sql):
                yield self._item(sql, version, waiting)[0]

    def write(self, local: Sql, remote: Connection, batch: Batch) -> None:
        """Write memories as a whole, or the embeddings of those that waited for them."""
        whole = {each.key for each in batch.items if each.parts[0]}
        renewed = [each.key for each in batch.items if each.key not in whole]
        remote.execute("DELETE FROM contexts WHERE id = ANY(%s)", ([*batch.gone, *whole],))
        self._delete_embeddings(remote, renewed)
        own = [self._origin.own(each.key) for each in batch.items]
        waiting, origin = self._waiting(local, own), self._origin.key
        found = [
            self._item(local, version, waiting)
            for version in MemoryItems.where(local, f"id {_KEYS}", (json.dumps(own),))
        ]
        new = [each for each in found if each[0].key in whole]
        ids = [self._origin.own(state.key) for state, *_ in new]
        staged.put(remote, "contexts", self._with_words(local, new, ids))
        tagged = ([state.key, origin, tag] for state, _, tags in new for tag in tags)
        staged.put(remote, "context_tags", tagged)
        images = local.execute(
            "SELECT context, position, mime_type, metadata, data FROM context_images "
            f"WHERE context {_KEYS} ORDER BY context, position",
            (json.dumps(ids),),
        )
        shown = ([self._origin.id(memory), origin, *values] for memory, *values in images)
        staged.put(remote, "context_images", shown)
        staged.put(remote, "context_chunks", self._chunks(local, ids))
        for state, *_ in found:
            if state.key not in whole:
                remote.execute(
                    "UPDATE contexts SET embeddings_digest = %s WHERE id = %s",
                    (state.digests[1], state.key),
                )
        every = [self._origin.own(state.key) for state, *_ in found]
        staged.put(remote, "context_embeddings", self._embeddings(local, every))

    def _item(self, sql: Sql, version: Version, waiting: Mapping[int, int]) -> ItemToSend:
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
        row += [fields.get(name) for name in VALIDITY]
        state = State(self._origin.id(id), digests, count)
        return state, [*row, version.item.name], fields["tags"]

    def _with_words(
        self, sql: Sql, memories: Sequence[ItemToSend], ids: Sequence[int]
    ) -> Iterator[list[Any]]:
        stems, spellings = Tokenizer(), Tokenizer(stemmed=False)
        texts = dict(self._index.texts(sql, ids))
        for (state, row, _), id in zip(memories, ids, strict=True):
            words, tokens = stems.words([texts.get(id, "")])
            spelled, _ = spellings.words([texts.get(id, "")])
            yield [state.key, self._origin.key, *row, words, spelled, tokens, *state.digests]


class VectorsToPublish(PublishedShelf):
    """The vectors of the file; none if only some libraries are published.

    One whose numbers change gets another stamp, so that these need not be read to be compared.
    """

    remote_states = "SELECT key, row_digest FROM vectors WHERE origin = %s ORDER BY key"

    def __init__(self, publication: Publication) -> None:
        self._publication, self._origin = publication, publication.origin

    def local(self, sql: Sql) -> Iterator[State]:
        """The vectors of the file."""
        if self._publication.libraries is None:
            for key, *values in sql.execute(f"SELECT {_VECTOR} FROM vectors v ORDER BY v.key"):
                yield State(self._origin.id(int(str(key))), (digest(*values),))

    def write(self, local: Sql, remote: Connection, batch: Batch) -> None:
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
        staged.put(remote, "vectors", rows)
        staged.put(remote, "vector_embeddings", embeddings)


_VECTOR = "v.key, v.store, v.dimension, v.namespace, v.id, v.metadata, v.stamp"


def _numbers(raw: bytes, dimension: int) -> tuple[bytes | None, bytes | None]:
    """The float32 numbers of a vector, if PostgreSQL can have them; its own, unless they are it."""
    single = len(raw) == 4 * dimension
    with np.errstate(over="ignore"):
        near = np.frombuffer(raw, "<f4" if single else "<f8").astype("<f4")
    fits = dimension <= MOST_NUMBERS and bool(np.isfinite(near).all())
    return near.tobytes() if fits else None, None if fits and single else raw


def _groups(items: Iterable[State]) -> Iterator[tuple[State, ...]]:
    """Items in groups that are small enough for a transaction."""
    group: list[State] = []
    passages = 0
    for each in items:
        if group and (len(group) == ITEMS or passages + each.passages > PASSAGES):
            yield tuple(group)
            group, passages = [], 0
        group.append(each)
        passages += each.passages
    if group:
        yield tuple(group)


def _remove_documents(remote: Connection, keys: Sequence[int]) -> None:
    """Remove published documents; their passages first, which takes one step for all of them."""
    remote.execute("DELETE FROM document_chunks WHERE owner = ANY(%s)", (list(keys),))
    remote.execute("DELETE FROM documents WHERE key = ANY(%s)", (list(keys),))


# Libraries, their notes and the stores of vectors are few: all rows of both sides are compared.
_CATALOGUE = {
    "libraries": "name, root, pattern, ignore, description, created_at",
    "library_notes": "library, path, text",
    "stores": "key, name, metric",
}
Catalogue = dict[str, list[tuple[Any, ...]]]


def _local_catalogue(sql: Sql, publication: Publication) -> Catalogue:
    """The catalogue of a file, with keys as they are published."""
    found: Catalogue = {
        table: [
            tuple(to_text(each) if isinstance(each, str) else each for each in row)
            for row in sql.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2")
        ]
        for table, columns in _CATALOGUE.items()
    }
    named = {row[0] for row in found["libraries"]}
    if publication.libraries is not None:
        named &= {to_text(each) for each in publication.libraries}
        found["stores"] = []
    for table in ("libraries", "library_notes"):
        found[table] = [row for row in found[table] if row[0] in named]
    stores = [(publication.origin.id(key), *others) for key, *others in found["stores"]]
    return {**found, "stores": stores}


def _write_catalogue(sql: Connection, origin: Origin, before: Catalogue, after: Catalogue) -> None:
    """Bring a published catalogue up to date; vectors of stores that are gone go with them."""
    if any(before[table] != after[table] for table in ("libraries", "library_notes")):
        sql.execute("DELETE FROM libraries WHERE origin = %s", (origin.key,))  # notes go with them
        before = {**before, "libraries": [], "library_notes": []}
    gone = {row[0] for row in before["stores"]} - {row[0] for row in after["stores"]}
    sql.execute("DELETE FROM stores WHERE key = ANY(%s)", (sorted(gone),))
    known = "ON CONFLICT (key) DO UPDATE SET name = excluded.name, metric = excluded.metric"
    for table, columns in _CATALOGUE.items():
        marks = ", %s" * (columns.count(",") + 1)
        insert = f"INSERT INTO {table} (origin, {columns}) VALUES (%s{marks})"
        with sql.cursor() as cursor:
            cursor.executemany(
                f"{insert} {known if table == 'stores' else ''}".encode(),
                [(origin.key, *row) for row in after[table] if row not in before[table]],
            )


_LOOK = 0.5  # seconds between two looks at how far PostgreSQL is with a graph
CONNECTIONS = 4  # that write at the same time
# After so many passages postings are vacuumed: only then scans need to read nothing but the index.
# Embeddings are left to autovacuum, which takes a graph apart row by row for those that are gone.
VACUUMED_ROWS = 1_000
VACUUM = (
    f"VACUUM (ANALYZE, SKIP_LOCKED) {', '.join(staged.WORD_TABLES)}",
    f"ANALYZE (SKIP_LOCKED) {', '.join(staged.TABLES)}",
)


def publish(
    store: OpenStore,
    url: str,
    *,
    origin: str | None = None,
    libraries: Sequence[str] | None = None,
    progress: ProgressCallback | None = None,
) -> Published:
    """Bring a file into a PostgreSQL database; see `Database.publish`."""
    began = time.monotonic()
    if isinstance(libraries, str) or (libraries is not None and not libraries):
        raise InvalidInput("libraries must be a list of names, or None for everything")
    with store.file.reading(limited=False) as sql:
        known = [str(name) for (name,) in sql.execute(known_libraries.NAMES)]
    for each in libraries or ():
        if library_name(each) not in known:
            raise NotFound(unknown_name("library", each, known))
    own_name = origins.name_of_file(store.file)
    if origin is None and not own_name:
        raise InvalidInput(
            f"{store.file.path} is open for reading only and cannot keep a name for itself: name "
            "an origin"
        )
    name = origins.checked_name(own_name if origin is None else origin)
    with closing(Server(url)) as server:
        schema.migrate(server)
        with origins.locked(server, name, own_name, store.config.busy_timeout) as locked:
            report = _PublishRun(store, server, locked, libraries, progress).publish()
        notice = schema.notice(server)
    return replace(report, notice=notice, seconds=time.monotonic() - began)


class _PublishRun:
    """One publish of an origin that is locked."""

    def __init__(
        self,
        store: OpenStore,
        server: Server,
        origin: Origin,
        libraries: Sequence[str] | None,
        progress: ProgressCallback | None,
    ) -> None:
        self._store, self._server, self._file = store, server, store.file
        self._report: ProgressCallback = progress or (lambda _: None)
        chosen = None if libraries is None else tuple(sorted(set(libraries)))
        self._publication = Publication(origin, chosen, *self._model())
        self._shelves: dict[str, PublishedShelf] = {
            "documents": DocumentsToPublish(self._publication, store.documents),
            "contexts": MemoriesToPublish(self._publication, store.memories),
            "vectors": VectorsToPublish(self._publication),
        }

    def publish(self) -> Published:
        """Compare, write what differs, and report it."""
        found = {name: self._differences(shelf) for name, shelf in self._shelves.items()}
        changes = sum(
            len(each.added) + len(each.changed) + len(each.gone) for each in found.values()
        )
        passages = sum(each.passages for each in found.values())
        replaced = 0
        if self._begin(changes > 0):
            replaced = self._write(found, changes)
            self._finish(passages)
        model, waiting = self._publication.model, 0
        if model is not None:
            with self._file.reading(limited=False) as sql:
                waiting = sum(each.count_pending(sql, model.key) for each in self._store.indexes)
        return Published(
            origin=self._publication.origin.name,
            documents=found["documents"].counted(replaced),
            memories=found["contexts"].counted(),
            vectors=found["vectors"].counted(),
            passages=passages,
            waiting=waiting,
        )

    def _model(self) -> tuple[ModelRow | None, int | None]:
        """The file's model, and its number in PostgreSQL; None if there are no embeddings."""
        with self._file.reading(limited=False) as sql:
            row = active_model(sql)
        if row is None:
            return None, None
        named = (to_text(row.name), to_text(row.digest), row.dimension)
        with self._server.writing() as remote:
            key: Any = remote.execute("SELECT model_key(%s, %s, %s)", named).fetchone()
        return row, int(key[0])

    def _differences(self, shelf: PublishedShelf) -> Differences:
        def reported(states: Iterator[State]) -> Iterator[State]:
            for number, state in enumerate(states, 1):
                if number % 1_000 == 0:
                    self._report(Progress(step="compare", done=number, total=None))
                yield state

        with self._file.reading(limited=False) as local, self._server.reading() as remote:
            return differences(reported(shelf.local(local)), shelf.remote(remote))

    def _begin(self, changes: bool) -> bool:
        """Claim the origin and write libraries and stores; not if nothing at all has changed."""
        origin, libraries = self._publication.origin, self._publication.libraries
        chosen = None if libraries is None else [to_text(each) for each in libraries]
        choice = self._publication.model_key, chosen
        with self._file.reading(limited=False) as local, self._server.reading() as remote:
            before: Catalogue = {
                table: remote.execute(
                    f"SELECT {columns} FROM {table} WHERE origin = %s ORDER BY 1, 2".encode(),
                    (origin.key,),
                ).fetchall()
                for table, columns in _CATALOGUE.items()
            }
            after = _local_catalogue(local, self._publication)
            last = remote.execute(  # None if it was not finished
                "SELECT model, libraries FROM origins WHERE key = %s AND published_at IS NOT NULL",
                (origin.key,),
            ).fetchone()
        if (before, last) == (after, choice) and not changes:
            return False
        with self._server.writing() as sql:
            origins.claim(sql, origin, choice)
            _write_catalogue(sql, origin, before, after)
        return True

    def _write(self, found: Mapping[str, Differences], total: int) -> int:
        """Write all batches; how many new documents took the place of others."""
        with self._server.outside() as sql:
            batches = [
                (shelf, batch)
                for name, shelf in self._shelves.items()
                for batch in shelf.batches(sql, found[name])
            ]
        began, done = time.monotonic(), 0
        with ThreadPoolExecutor(CONNECTIONS, "publish") as pool:
            running = {pool.submit(self._send, *each): each[1] for each in batches}
            try:
                for each in as_completed(running):
                    each.result()  # raises what went wrong
                    done += len(running[each].items) + len(running[each].gone)
                    left = (time.monotonic() - began) / done * (total - done)
                    self._report(
                        Progress(step="publish", done=done, total=total, seconds_left=left)
                    )
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return sum(batch.replaced for _, batch in batches)

    def _send(self, shelf: PublishedShelf, batch: Batch) -> None:
        """Write one batch, in a thread with connections of its own."""
        with self._file.reading(limited=False) as local, self._server.writing() as remote:
            self._publication.origin.verify(remote)
            staged.prepare(remote)
            shelf.write(local, remote, batch)

    def _finish(self, passages: int) -> None:
        """Make the graphs that are due, have the tables vacuumed, and note the time.

        Graphs are of all models and stores that have too many rows to compare them all. Others
        cannot write embeddings meanwhile, but everybody can read.
        """

        def make_graphs() -> None:
            with self._server.writing() as sql:
                sql.execute("SELECT make_graphs(%s)", (self._store.tuning.engine_rows,))

        with ThreadPoolExecutor(1, "graphs") as pool:
            made = pool.submit(make_graphs)
            while wait([made], _LOOK).not_done:
                with self._server.outside() as sql:
                    row: Any = sql.execute(
                        "SELECT blocks_done, blocks_total FROM pg_stat_progress_create_index p "
                        "JOIN pg_stat_activity a USING (pid) WHERE a.datname = current_database() "
                        "AND a.application_name = 'mcpvectordb' AND blocks_total > 0 LIMIT 1"
                    ).fetchone()
                if row:
                    self._report(Progress(step="graph", done=int(row[0]), total=int(row[1])))
        made.result()
        if passages >= VACUUMED_ROWS:
            with self._server.outside() as sql:
                for number, statement in enumerate(VACUUM):
                    self._report(Progress(step="vacuum", done=number, total=len(VACUUM)))
                    sql.execute(statement.encode())
        with self._server.writing() as sql:
            origin = self._publication.origin
            origin.verify(sql)
            sql.execute("UPDATE origins SET published_at = now() WHERE key = %s", (origin.key,))
