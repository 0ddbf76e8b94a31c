"""A folder of Chroma (0.4 to 1.5): a library for each collection, with documents and embeddings.

The tables embeddings and embedding_metadata have ids, texts and metadata. Writes go first into the
table embeddings_queue; what is newer there than the segment of metadata (max_seq_id) is applied to
what the tables say. Embeddings are in the queue until the vector segment is written to files beside
the database (`HnswVectors`).
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from mcpvectordb.records import Metric
from mcpvectordb.storage.lazy import np
from mcpvectordb.transfer import values
from mcpvectordb.transfer.items import ImportOptions, Item, UnreadPart, document_or_vector
from mcpvectordb.transfer.source import ForeignDatabase, ImportSource

TEXT = "chroma:document"
_DELETE = 3  # an operation of the queue; 0 to 2 add, update and upsert
_BATCH = 256
_METRICS: dict[str, Metric] = {"cosine": "cosine", "ip": "dot", "l2": "euclidean"}
# What its own embedding functions are called, for the report.
_DEFAULT_MODEL = "all-MiniLM-L6-v2"
_DEFAULT_FUNCTIONS = {"default", "onnx_mini_lm_l6_v2"}


class ChromaCollection(NamedTuple):
    """A collection, the ids of its segments by scope, its metric and its model ("" if unknown)."""

    id: str
    name: str
    segments: Mapping[str, str]
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

    def add(self, seq: int, entry: Mapping[str, Any]) -> None:
        """Take the next entry of the queue into account."""
        id, deleted = str(entry["id"]), entry["operation"] == _DELETE
        if isinstance(entry["vector"], bytes) and entry["encoding"] == "FLOAT32":
            self.vectors[id] = seq
        if deleted:
            self.vectors.pop(id, None)
        if seq > self._applied and deleted:
            self.changes[id] = None
            self.replaced.add(id)
        elif seq > self._applied:
            said = values.metadata(entry["metadata"])
            self.changes[id] = {**(self.changes.get(id) or {}), **said}


def read_chroma(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """A document for each item that has a text, a vector for any other."""
    database = source.sqlite()
    collections = list(_collections(database, options))
    applied = {
        str(row["segment_id"]): _number(row["seq_id"]) for row in database.rows("max_seq_id")
    }
    queues = {
        each.id: QueuedChanges(applied.get(each.segments.get("METADATA", ""), 0))
        for each in collections
    }
    for entry in database.rows("embeddings_queue"):
        if queue := queues.get(str(entry["topic"]).rpartition("/")[2]):
            queue.add(_number(entry["seq_id"]), entry)
    for collection in collections:
        # A name that is not an id would lead elsewhere.
        vectors = collection.segments.get("VECTOR", "")
        is_id = vectors and all(each.isalnum() or each == "-" for each in vectors)
        files = HnswVectors(source.beside / (vectors if is_id else "-"), collection.space)
        if files.problem:
            yield UnreadPart(what=f"{files.problem} (collection {collection.name})")
        queue = queues[collection.id]
        for id, said, embedding, created in _collected(database, collection, queue, files):
            text = values.text(said.pop(TEXT, None))
            yield document_or_vector(
                options,
                collection.name,
                text,
                embedding,
                id=id,
                metadata=values.metadata(
                    {key: value for key, value in said.items() if value is not None}
                ),
                metric=_METRICS.get(collection.space, "cosine"),
                created_at=values.time(created),
                model=collection.model,
                origin=collection.id,
                why_not="neither a text nor an embedding that can be read",
            )


def _collections(database: ForeignDatabase, options: ImportOptions) -> Iterator[ChromaCollection]:
    segments: dict[str, dict[str, str]] = {}
    for row in database.rows("segments"):
        segments.setdefault(str(row["collection"]), {})[str(row["scope"])] = str(row["id"])
    spaces = {
        str(row["collection_id"]): str(row["str_value"])
        for row in database.rows("collection_metadata")
        if row["key"] == "hnsw:space"
    }
    for row in database.rows("collections"):
        id = str(row["id"])
        configured = [values.json_value(row[each]) for each in ("config_json_str", "schema_str")]
        space = spaces.get(id) or str(_find(configured, "space") or "l2")
        model = options.model or _model(configured)
        yield ChromaCollection(id, str(row["name"]), segments.get(id, {}), space, model)


def _collected(
    database: ForeignDatabase,
    collection: ChromaCollection,
    queue: QueuedChanges,
    files: HnswVectors,
) -> Iterator[tuple[str, dict[str, Any], bytes | None, object]]:
    """(id, metadata, embedding, time) of each item of a collection, its text in the metadata."""
    # Those of the queue that have a row come before.
    items = chain(_stored(database, collection), ((0, id, None) for id in queue.changes))
    seen: set[str] = set()
    while batch := list(islice(items, _BATCH)):
        new = {id: (number, created) for number, id, created in batch if id not in seen}
        seen |= new.keys()
        described: dict[int, dict[str, Any]] = {}  # the metadata of items by their number
        numbers = [number for number, _ in new.values() if number]
        for row in database.lookup("embedding_metadata", "id", *numbers):
            described.setdefault(row["id"], {})[str(row["key"])] = _cell(row)
        for row in database.lookup("embedding_metadata_array", "id", *numbers):
            described.setdefault(row["id"], {}).setdefault(str(row["key"]), []).append(_cell(row))
        wanted = {queue.vectors[id]: id for id in new if id in queue.vectors}
        queued = {
            wanted[row["seq_id"]]: row["vector"]
            for row in database.lookup("embeddings_queue", "seq_id", *wanted)
        }
        for id, (number, created) in new.items():
            changed = queue.changes.get(id, {})
            if changed is not None:
                before = {} if id in queue.replaced else described.get(number, {})
                yield id, {**before, **changed}, queued.get(id) or files.get(id), created


def _stored(
    database: ForeignDatabase, collection: ChromaCollection
) -> Iterator[tuple[int, str, object]]:
    """(number, id, time) of the items of a collection, without what the queue changes.

    They are found by the index on segments; if that is damaged, in the whole table, and some come
    twice.
    """
    segment = collection.segments.get("METADATA", "")
    found = database.lookup("embeddings", "segment_id", segment)
    for rows in (found, database.rows("embeddings")):
        for row in rows:
            if row["segment_id"] == segment and isinstance(row["id"], int):
                yield row["id"], str(row["embedding_id"]), row["created_at"]
        if "embeddings" not in database.damaged:
            return


def _cell(row: Mapping[str, Any]) -> Any:
    if row["bool_value"] is not None:
        return bool(row["bool_value"])
    cells = (row[each] for each in ("string_value", "int_value", "float_value"))
    return next((each for each in cells if each is not None), None)


def _model(configured: list[Any]) -> str:
    """The name of a collection's model, as far as its configuration says it."""
    for each in configured:
        function = _find([each], "embedding_function")
        if isinstance(function, Mapping):
            name = str(values.item(function, "config", "model_name") or function.get("name") or "")
            return _DEFAULT_MODEL if name in _DEFAULT_FUNCTIONS else name
    return ""


def _find(value: Any, key: str) -> Any:
    """The first value of a key in nested JSON, breadth first."""
    level = [value]
    while level:
        for each in level:
            if isinstance(each, Mapping) and each.get(key):
                return each[key]
        level = [
            item
            for each in level
            for item in (each.values() if isinstance(each, Mapping) else values.listed(each))
        ]
    return None


def _number(value: object) -> int:
    """A sequence number: an integer, or in old versions 8 bytes."""
    if isinstance(value, bytes):
        return int.from_bytes(value[-8:], "big")
    return values.integer(value)


class HnswVectors:
    """The vectors in the files of a segment: an HNSW index of chroma-hnswlib, read as data.

    header.bin              version (int32 = 1), then uint64 each: offset of level 0, most elements,
                            elements, bytes per element, offset of the label, offset of the vector
    data_level0.bin         the elements: links, float32 values, label (uint64)
    length.bin              the length of each vector as float32, in a cosine index: there the
                            values are those of the vector divided by its length
    index_metadata.pickle   which id has which label

    `problem` says why there are none, if that is unexpected.
    """

    _HEADER = struct.Struct("<i6Q")

    def __init__(self, folder: Path, space: str) -> None:
        self._folder, self.problem = folder, ""
        self._rows: dict[str, int] = {}
        self._lengths = np.empty(0, np.float32)
        if not (folder / "index_metadata.pickle").is_file():
            return  # nothing was written to files yet
        try:
            self._open(space)
        except (OSError, ValueError, struct.error) as error:
            self.problem = f"the HNSW files of a segment are of an unknown layout: {error}"

    def get(self, id: str) -> bytes | None:
        """The float32 values of the vector of an item; None if there is none."""
        place = self._rows.get(id)
        if place is None:
            return None
        row = self._elements[place, self._start : self._end].view("<f4")
        if place < len(self._lengths):
            row = row * self._lengths[place]
        return row.astype("<f4").tobytes()

    def _open(self, space: str) -> None:
        with (self._folder / "header.bin").open("rb") as file:
            header = file.read(self._HEADER.size)
        version, _, most, count, size, self._end, self._start = self._HEADER.unpack(header)
        width = self._end - self._start
        if (
            version != 1
            or not 0 <= count <= most
            or not 0 < width <= 4 * 65_536
            or width % 4
            or self._end + 8 > size
        ):
            raise ValueError(f"header {header.hex()}")
        if not count:
            return
        self._elements = np.memmap(
            self._folder / "data_level0.bin", np.uint8, "r", shape=(count, size)
        )
        labels = np.ascontiguousarray(self._elements[:, self._end : self._end + 8]).view("<u8")
        places = {label: place for place, label in enumerate(labels[:, 0].tolist())}
        found = values.item(
            plain((self._folder / "index_metadata.pickle").read_bytes()), "id_to_label"
        )
        if not isinstance(found, dict):
            raise ValueError("index_metadata.pickle has no labels")
        self._rows = {
            id: places[label]
            for id, label in found.items()
            if isinstance(id, str) and isinstance(label, int) and label in places
        }
        lengths = self._folder / "length.bin"
        if space == "cosine" and lengths.is_file():
            raw = lengths.read_bytes()
            self._lengths = np.frombuffer(raw[: len(raw) // 4 * 4], "<f4")


class _Instance:
    """What stands for every class and function that a pickle names: it only keeps its state."""

    def __init__(self, *_: object) -> None:
        pass


# The implementation in Python: that in C takes as much memory as a number in the pickle says.
class _PlainUnpickler(pickle._Unpickler):
    """A reader of pickles that finds no class and no function, so that it can call none."""

    def find_class(self, module: str, name: str) -> type[_Instance]:
        """The same for every name."""
        return _Instance


def plain(pickled: bytes) -> Any:
    """The value of a pickle, in which an instance of a class is its dict; raises ValueError.

    A pickle is a program that could do anything when it is loaded. This one does nothing but make
    dicts, lists, texts and numbers: what it names is not imported, and not called.
    """
    try:
        found = _PlainUnpickler(io.BytesIO(pickled)).load()
    except MemoryError:
        raise
    except Exception as error:  # whatever an operation of a program for no machine can raise
        raise ValueError(f"not a pickle of plain data ({type(error).__name__})") from None
    return vars(found) if isinstance(found, _Instance) else found
