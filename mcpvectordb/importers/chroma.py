"""A folder of Chroma (0.4 to 1.5): a library for each collection, with documents and embeddings.

The tables embeddings and embedding_metadata have ids, texts and metadata. Writes go first into the
table embeddings_queue; what is newer there than the segment of metadata (max_seq_id) is applied to
what the tables say. Embeddings are in the queue until the vector segment is written to files beside
the database; see `chroma_hnsw`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from mcpvectordb.importers import values
from mcpvectordb.importers.chroma_hnsw import HnswVectors
from mcpvectordb.importers.foreign_database import ForeignDatabase
from mcpvectordb.importers.items import (
    ImportedDocument,
    ImportedVector,
    ImportOptions,
    Item,
    LeftOut,
    UnreadPart,
)
from mcpvectordb.importers.source import ImportSource
from mcpvectordb.records import Metric

TEXT = "chroma:document"
_DELETE = 3  # an operation of the queue; 0 to 2 add, update and upsert
_BATCH = 256
_METRICS: dict[str, Metric] = {"cosine": "cosine", "ip": "dot", "l2": "euclidean"}
# What its own embedding functions are called, for the report.
_DEFAULT_MODEL = "all-MiniLM-L6-v2"
_DEFAULT_FUNCTIONS = {"default", "onnx_mini_lm_l6_v2"}


class ChromaCollection(NamedTuple):
    """A collection, the ids of its two segments, its metric and its model ("" if unknown)."""

    id: str
    name: str
    vectors: str
    metadata: str
    space: str
    model: str


class QueuedChanges:
    """What the queue has for one collection.

    vectors   the number of the last entry with an embedding, by id: old versions never empty the
              queue, so the embeddings themselves are not kept in memory
    changes   metadata to set, by id, or None for a deletion, where the tables do not have it yet
    replaced  ids that were deleted and added again, so that nothing of their row counts
    """

    def __init__(self, applied: int) -> None:
        self._applied = applied
        self.vectors: dict[str, int] = {}
        self.changes: dict[str, dict[str, Any] | None] = {}
        self.replaced: set[str] = set()

    def add(self, seq: int, operation: object, id: str, has_vector: bool, said: object) -> None:
        """Take the next entry of the queue into account."""
        if has_vector:
            self.vectors[id] = seq
        if operation == _DELETE:
            self.vectors.pop(id, None)
        if seq <= self._applied:
            return
        if operation == _DELETE:
            self.changes[id] = None
            self.replaced.add(id)
        else:
            self.changes[id] = {**(self.changes.get(id) or {}), **values.metadata(said)}


def recognises(source: ImportSource) -> bool:
    """Whether it has Chroma's tables."""
    return source.has(
        collections="id name",
        embeddings="id segment_id embedding_id",
        embedding_metadata="id key string_value",
    )


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """A document for each item that has a text, a vector for any other."""
    database = source.sqlite()
    collections = list(_collections(database, options))
    queues = _queues(database, collections)
    for collection in collections:
        files = source.beside / _folder_name(collection.vectors)
        yield from _collection(database, files, collection, queues[collection.id], options)


def _collections(database: ForeignDatabase, options: ImportOptions) -> Iterator[ChromaCollection]:
    segments: dict[str, dict[str, str]] = {}
    for id, scope, owner in database.rows("segments", "id", "scope", "collection"):
        segments.setdefault(str(owner), {})[str(scope)] = str(id)
    spaces = {
        str(id): str(value)
        for id, key, value in database.rows(
            "collection_metadata", "collection_id", "key", "str_value"
        )
        if key == "hnsw:space"
    }
    for id, name, config, schema in database.rows(
        "collections", "id", "name", "config_json_str", "schema_str"
    ):
        own = segments.get(str(id), {})
        configured = [values.json_value(config), values.json_value(schema)]
        yield ChromaCollection(
            id=str(id),
            name=str(name),
            vectors=own.get("VECTOR", ""),
            metadata=own.get("METADATA", ""),
            space=spaces.get(str(id)) or str(_find(configured, "space") or "l2"),
            model=options.model or _model(configured),
        )


def _collection(
    database: ForeignDatabase,
    folder: Path,
    collection: ChromaCollection,
    queue: QueuedChanges,
    options: ImportOptions,
) -> Iterator[Item]:
    files = HnswVectors(folder, collection.space == "cosine")
    yield from (
        UnreadPart(what=f"{each} (collection {collection.name})") for each in files.problems
    )
    # Those of the queue that have a row come before.
    items = chain(_stored(database, collection), ((0, id, None) for id in queue.changes))
    seen: set[str] = set()
    while batch := list(islice(items, _BATCH)):
        new = {id: (number, created) for number, id, created in batch if id not in seen}
        seen |= new.keys()
        described = _metadata(database, [number for number, _ in new.values() if number])
        queued = _vectors(database, queue, new)
        for id, (number, created) in new.items():
            changed = queue.changes.get(id, {})
            if changed is None:
                continue
            before = {} if id in queue.replaced else described.get(number, {})
            embedding = queued.get(id) or files.get(id)
            said = {**before, **changed}
            yield _item(collection, id, said, embedding, values.time(created), options)


def _stored(
    database: ForeignDatabase, collection: ChromaCollection
) -> Iterator[tuple[int, str, object]]:
    """(number, id, time) of the items of a collection, without what the queue changes.

    They are found by the index on segments; if that is damaged, in the whole table, and some come
    twice.
    """
    columns, segment = ("id", "segment_id", "embedding_id", "created_at"), collection.metadata
    found = database.lookup("embeddings", columns, "segment_id", [segment])
    for rows in (found, database.rows("embeddings", *columns)):
        for number, owner, id, created in rows:
            if owner == segment and isinstance(number, int):
                yield number, str(id), created
        if "embeddings" not in database.damaged:
            return


def _vectors(
    database: ForeignDatabase, queue: QueuedChanges, ids: Iterable[str]
) -> dict[str, bytes]:
    """The embeddings that the queue has for these items."""
    wanted = {queue.vectors[id]: id for id in ids if id in queue.vectors}
    return {
        wanted[seq]: vector
        for seq, vector in database.lookup(
            "embeddings_queue", ("seq_id", "vector"), "seq_id", list(wanted)
        )
        if isinstance(vector, bytes)
    }


def _metadata(database: ForeignDatabase, numbers: list[int]) -> dict[int, dict[str, Any]]:
    """The metadata of items by their number, their text included."""
    found: dict[int, dict[str, Any]] = {}
    columns = ("id", "key", "string_value", "int_value", "float_value", "bool_value")
    for number, key, *cells in database.lookup("embedding_metadata", columns, "id", numbers):
        found.setdefault(number, {})[str(key)] = _cell(cells)
    for number, key, *cells in database.lookup("embedding_metadata_array", columns, "id", numbers):
        found.setdefault(number, {}).setdefault(str(key), []).append(_cell(cells))
    return found


def _cell(cells: list[Any]) -> Any:
    text, whole, real, truth = cells
    if truth is not None:
        return bool(truth)
    return next((each for each in (text, whole, real) if each is not None), None)


def _queues(
    database: ForeignDatabase, collections: Sequence[ChromaCollection]
) -> dict[str, QueuedChanges]:
    """What the queue has for each collection, by its id."""
    applied = {
        str(segment): _number(seq)
        for segment, seq in database.rows("max_seq_id", "segment_id", "seq_id")
    }
    queues = {each.id: QueuedChanges(applied.get(each.metadata, 0)) for each in collections}
    for seq, operation, topic, id, vector, encoding, metadata in database.rows(
        "embeddings_queue", "seq_id", "operation", "topic", "id", "vector", "encoding", "metadata"
    ):
        if queue := queues.get(str(topic).rpartition("/")[2]):
            has_vector = isinstance(vector, bytes) and encoding == "FLOAT32"
            queue.add(_number(seq), operation, str(id), has_vector, metadata)
    return queues


def _item(
    collection: ChromaCollection,
    id: str,
    said: Mapping[str, Any],
    embedding: bytes | None,
    created: str,
    options: ImportOptions,
) -> Item:
    text = said.get(TEXT)
    rest = values.metadata(
        {key: value for key, value in said.items() if key != TEXT and value is not None}
    )
    if isinstance(text, str) and text.strip() and options.into != "vectors":
        return ImportedDocument(
            id=id,
            text=text,
            library=options.library or collection.name,
            metadata=rest,
            created_at=created,
            embeddings={text: embedding} if embedding else {},
            model=collection.model,
            origin=collection.id,
        )
    if not embedding:
        return LeftOut(id=id, reason="neither a text nor an embedding that can be read")
    return ImportedVector(
        id=id,
        values=embedding,
        store=collection.name,
        metadata=rest | ({"text": text} if isinstance(text, str) and text else {}),
        metric=_METRICS.get(collection.space, "cosine"),
        origin=collection.id,
    )


def _model(configured: list[Any]) -> str:
    """The name of a collection's model, as far as its configuration says it."""
    for each in configured:
        function = _find([each], "embedding_function")
        if isinstance(function, Mapping):
            named = values.item(function.get("config"), "model_name")
            name = str(named or function.get("name") or "")
            return _DEFAULT_MODEL if name in _DEFAULT_FUNCTIONS else name
    return ""


def _find(value: Any, key: str) -> Any:
    """The first value of a key in nested JSON, breadth first."""
    level = [value]
    while level:
        for each in level:
            if isinstance(each, Mapping) and each.get(key):
                return each[key]
        level = [item for each in level for item in _inner(each)]
    return None


def _inner(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, Mapping) else values.listed(value)


def _folder_name(segment: str) -> str:
    """The name of a segment's folder; one that is not its id would lead elsewhere."""
    return segment if segment and all(each.isalnum() or each == "-" for each in segment) else "-"


def _number(value: object) -> int:
    """A sequence number: an integer, or in old versions 8 bytes."""
    if isinstance(value, bytes):
        return int.from_bytes(value[-8:], "big")
    return values.integer(value)
