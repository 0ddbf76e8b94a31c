"""Documents of a file as they are published: rows, passages with their words, embeddings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import apsw

from mcpvectordb.documents.rows import path
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.postgres import staged
from mcpvectordb.postgres.connection import Connection
from mcpvectordb.postgres.differences import Differences, State, digest
from mcpvectordb.postgres.publication import (
    PASSAGES,
    Batch,
    ChunkReader,
    Publication,
    batches,
    gone_batches,
    states,
)
from mcpvectordb.postgres.values import from_text
from mcpvectordb.postgres.words import Tokenizer

_SELECT = (
    "SELECT d.key, d.id, d.library, d.source, d.title, d.hash, d.file_type, d.size, d.modified, "
    "d.created_at, d.metadata, "
    "coalesce((SELECT root FROM libraries WHERE name = d.library), ''), "
    "(SELECT json_group_array(id) FROM "
    "(SELECT id FROM former_ids WHERE document = d.key ORDER BY number)), "
    "(SELECT count(*) FROM document_chunks WHERE owner = d.key), "
    "(SELECT min(id) FROM document_chunks WHERE owner = d.key), "
    "(SELECT max(id) FROM document_chunks WHERE owner = d.key) FROM published_documents d "
)


class _DocumentToSend(NamedTuple):
    """A document: its state, its row without key and digests, and its former ids."""

    state: State
    row: list[Any]
    former: list[str]


class DocumentsToPublish:
    """The documents of the chosen libraries."""

    def __init__(self, publication: Publication, index: ChunkIndex) -> None:
        self._publication, self._index = publication, index
        self._origin, self._chunks = publication.origin, ChunkReader(publication, index)

    def local(self, sql: apsw.Connection) -> Iterator[State]:
        """The documents of the file: digests of row, passages and embeddings."""
        chosen = self._publication.libraries
        condition = "" if chosen is None else "WHERE d.library IN (SELECT value FROM json_each(?)) "
        bindings = () if chosen is None else (json.dumps(chosen),)
        rows = sql.execute(f"{_SELECT} {condition}ORDER BY d.key", bindings)
        yield from (each.state for each in self._documents(rows, self._chunks.waiting(sql)))

    def remote(self, sql: Connection) -> Iterator[State]:
        """The documents that are published."""
        yield from states(
            sql,
            "SELECT key, row_digest, chunks_digest, embeddings_digest FROM documents "
            "WHERE origin = %s ORDER BY key",
            self._origin,
        )

    def batches(self, sql: Connection, found: Differences) -> Iterator[Batch]:
        """What to write; a document that takes the place of another does so at once.

        A source that was ingested again has a new key: its old document goes in the same
        transaction. Those that are only gone go last.
        """
        replaced = self._places(sql, found.gone) if found.added else {}
        taken: set[int] = set()
        for items in batches(sorted([*found.added, *found.changed])):
            before = [keys for each in items if (keys := replaced.pop(each.place, None))]
            gone = tuple(key for each in before for key in each)
            taken.update(gone)
            yield Batch(items, gone, len(before))
        yield from gone_batches([key for key in found.gone if key not in taken])

    def write(self, local: apsw.Connection, remote: Connection, batch: Batch) -> None:
        """Write documents; passages only of those that are new or have others than before."""
        _remove(remote, list(batch.gone))
        if not batch.items:
            return
        parts = {self._origin.own(each.key): each.parts for each in batch.items}
        found = self._named(local, list(parts))
        owners = [self._origin.own(each.state.key) for each in found]
        whole = [key for key in owners if parts[key][1]]
        self._delete(remote, owners, whole, [key for key in owners if parts[key][2]])
        staged.put_again(remote, staged.DOCUMENTS, map(self._row, found))
        staged.put(remote, staged.FORMER_IDS, self._former_ids(found))
        staged.put(remote, staged.DOCUMENT_CHUNKS, self._with_words(local, whole))
        staged.put(
            remote,
            staged.DOCUMENT_EMBEDDINGS,
            self._chunks.embeddings(
                local, [key for key in owners if parts[key][1] or parts[key][2]]
            ),
        )

    def _places(self, sql: Connection, keys: Sequence[int]) -> dict[bytes, list[int]]:
        """The keys of published documents by their library and source."""
        found: dict[bytes, list[int]] = {}
        for key, library, source in sql.execute(
            "SELECT key, library, source FROM documents WHERE key = ANY(%s)", (list(keys),)
        ):
            place = digest(from_text(str(library)), from_text(str(source)))
            found.setdefault(place, []).append(int(str(key)))
        return found

    def _delete(
        self, remote: Connection, owners: list[int], whole: list[int], embedded: list[int]
    ) -> None:
        """Remove what is written again of published documents."""
        ids = self._origin.id
        _remove(remote, [ids(key) for key in whole])
        remote.execute(
            "DELETE FROM former_ids WHERE document = ANY(%s)", ([ids(key) for key in owners],)
        )
        remote.execute(
            "DELETE FROM document_embeddings e USING document_chunks c "
            "WHERE c.owner = ANY(%s) AND e.chunk = c.id",
            ([ids(key) for key in embedded],),
        )

    def _named(self, sql: apsw.Connection, keys: list[int]) -> list[_DocumentToSend]:
        rows = sql.execute(
            f"{_SELECT} WHERE d.key IN (SELECT value FROM json_each(?)) ORDER BY d.key",
            (json.dumps(keys),),
        )
        return list(self._documents(rows, self._chunks.waiting(sql, keys)))

    def _documents(
        self, rows: Iterable[Any], waiting: Mapping[int, int]
    ) -> Iterator[_DocumentToSend]:
        for key, *fields, metadata, root, former, count, first, last in rows:
            place = path(fields[1], fields[2], root)
            row = [*fields, metadata, metadata, place, count]
            state = State(
                self._origin.id(key),
                (
                    digest(*fields, metadata, place, former),
                    digest(count, first, last),
                    self._chunks.embeddings_digest(waiting.get(key, 0)),
                ),
                count,
                digest(fields[1], fields[2]),
            )
            yield _DocumentToSend(state, row, json.loads(former))

    def _row(self, document: _DocumentToSend) -> list[Any]:
        state = document.state
        return [state.key, self._origin.key, *document.row, *state.digests]

    def _former_ids(self, documents: Sequence[_DocumentToSend]) -> Iterator[list[Any]]:
        for each in documents:
            for number, id in enumerate(each.former):
                yield [self._origin.key, each.state.key, number, id]

    def _with_words(self, sql: apsw.Connection, owners: Sequence[int]) -> Iterator[list[Any]]:
        """The rows of chunks with their words."""
        tokenizer = Tokenizer()
        rows = self._chunks.rows(sql, owners)
        while block := list(islice(rows, PASSAGES)):
            own = {self._origin.own(row[0]): row for row in block}
            for passage in self._index.passages(sql, list(own)):
                yield [*own[passage.id], *tokenizer.words(passage.columns)]


def _remove(remote: Connection, keys: list[int]) -> None:
    """Remove published documents; their passages first, which takes one step for all of them."""
    remote.execute("DELETE FROM document_chunks WHERE owner = ANY(%s)", (keys,))
    remote.execute("DELETE FROM documents WHERE key = ANY(%s)", (keys,))
