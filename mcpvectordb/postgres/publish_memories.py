"""Memories of a file as they are published, with the words of each as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apsw

from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.postgres import staged
from mcpvectordb.postgres.connection import Connection
from mcpvectordb.postgres.differences import Differences, State, digest
from mcpvectordb.postgres.publication import (
    Batch,
    ChunkReader,
    Publication,
    batches,
    gone_batches,
    states,
)
from mcpvectordb.postgres.words import Tokenizer

# Images are told apart by their sizes: whatever changes one gives the memory another stamp.
_SELECT = (
    "SELECT x.id, x.thread, x.source, x.hash, x.metadata, x.created_at, x.updated_at, x.uid, "
    "x.stamp, (SELECT json_group_array(tag) FROM "
    "(SELECT tag FROM context_tags WHERE context = x.id ORDER BY tag)), "
    "(SELECT json_group_array(size) FROM (SELECT octet_length(data) AS size "
    "FROM context_images WHERE context = x.id ORDER BY position)), "
    "(SELECT count(*) FROM context_chunks WHERE owner = x.id), "
    "(SELECT max(id) FROM context_chunks WHERE owner = x.id) FROM contexts x "
)


class _MemoryToSend(NamedTuple):
    """A memory: its state, its row without words and digests, and its tags."""

    state: State
    row: list[Any]
    tags: list[str]


class MemoriesToPublish:
    """The memories of the file; none if only some libraries are published."""

    def __init__(self, publication: Publication, index: ChunkIndex) -> None:
        self._publication, self._index = publication, index
        self._origin, self._chunks = publication.origin, ChunkReader(publication, index)

    def local(self, sql: apsw.Connection) -> Iterator[State]:
        """The memories of the file: digests of all but the embeddings, and of these."""
        if self._publication.libraries is None:
            rows = sql.execute(f"{_SELECT} ORDER BY x.id")
            yield from (each.state for each in self._memories(rows, self._chunks.waiting(sql)))

    def remote(self, sql: Connection) -> Iterator[State]:
        """The memories that are published."""
        yield from states(
            sql,
            "SELECT id, row_digest, embeddings_digest FROM contexts WHERE origin = %s ORDER BY id",
            self._origin,
        )

    def batches(self, sql: Connection, found: Differences) -> Iterator[Batch]:
        """What to write, then what to remove."""
        for items in batches(sorted([*found.added, *found.changed])):
            yield Batch(items)
        yield from gone_batches(found.gone)

    def write(self, local: apsw.Connection, remote: Connection, batch: Batch) -> None:
        """Write memories as a whole, or the embeddings of those that waited for them."""
        whole = [each.key for each in batch.items if each.parts[0]]
        remote.execute("DELETE FROM contexts WHERE id = ANY(%s)", ([*batch.gone, *whole],))
        embedded = [each.key for each in batch.items if not each.parts[0]]
        owners = self._put_whole(local, remote, whole) + self._renew(local, remote, embedded)
        staged.put(remote, staged.MEMORY_EMBEDDINGS, self._chunks.embeddings(local, owners))

    def _put_whole(
        self, local: apsw.Connection, remote: Connection, keys: Sequence[int]
    ) -> list[int]:
        """Write memories with all but their embeddings; the ids of those that still exist."""
        found = self._named(local, keys)
        ids = [self._origin.own(each.state.key) for each in found]
        staged.put(remote, staged.MEMORIES, self._with_words(local, found, ids))
        staged.put(
            remote,
            staged.MEMORY_TAGS,
            ([each.state.key, self._origin.key, tag] for each in found for tag in each.tags),
        )
        staged.put(remote, staged.MEMORY_IMAGES, self._images(local, ids))
        staged.put(remote, staged.MEMORY_CHUNKS, self._chunks.rows(local, ids))
        return ids

    def _renew(self, local: apsw.Connection, remote: Connection, keys: Sequence[int]) -> list[int]:
        """Make room for other embeddings of published memories; the ids of those that exist."""
        found = self._named(local, keys)
        remote.execute(
            "DELETE FROM context_embeddings e USING context_chunks c "
            "WHERE c.owner = ANY(%s) AND e.chunk = c.id",
            (list(keys),),
        )
        for each in found:
            remote.execute(
                "UPDATE contexts SET embeddings_digest = %s WHERE id = %s",
                (each.state.digests[1], each.state.key),
            )
        return [self._origin.own(each.state.key) for each in found]

    def _named(self, sql: apsw.Connection, keys: Sequence[int]) -> list[_MemoryToSend]:
        own = [self._origin.own(key) for key in keys]
        rows = sql.execute(
            f"{_SELECT} WHERE x.id IN (SELECT value FROM json_each(?)) ORDER BY x.id",
            (json.dumps(own),),
        )
        return list(self._memories(rows, self._chunks.waiting(sql, own)))

    def _memories(self, rows: Iterable[Any], waiting: Mapping[int, int]) -> Iterator[_MemoryToSend]:
        for id, *fields, stamp, tags, images, count, last in rows:
            thread, source, hash, metadata, *others = fields
            said = [thread, source, hash.hex(), metadata, *others, stamp, tags, images, count, last]
            state = State(
                self._origin.id(id),
                (digest(*said), self._chunks.embeddings_digest(waiting.get(id, 0))),
                count,
            )
            row = [thread, source, hash, metadata, metadata, *others]
            yield _MemoryToSend(state, row, json.loads(tags))

    def _with_words(
        self, sql: apsw.Connection, memories: Sequence[_MemoryToSend], ids: Sequence[int]
    ) -> Iterator[list[Any]]:
        stems, spellings = Tokenizer(), Tokenizer(stemmed=False)
        texts = dict(self._index.texts(sql, ids))
        for each, id in zip(memories, ids, strict=True):
            words, tokens = stems.words([texts.get(id, "")])
            spelled, _ = spellings.words([texts.get(id, "")])
            begin = [each.state.key, self._origin.key]
            yield [*begin, *each.row, words, spelled, tokens, *each.state.digests]

    def _images(self, sql: apsw.Connection, ids: Sequence[int]) -> Iterator[list[Any]]:
        for memory, *values in sql.execute(
            "SELECT context, position, mime_type, metadata, data FROM context_images "
            "WHERE context IN (SELECT value FROM json_each(?)) ORDER BY context, position",
            (json.dumps(ids),),
        ):
            yield [self._origin.id(memory), self._origin.key, *values]
