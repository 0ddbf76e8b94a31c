"""The records of our own export, checked: whoever wrote the file may have written anything."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mcpvectordb import dates, metadata
from mcpvectordb.config import PRECISIONS, Config, how_to_allow
from mcpvectordb.documents.given import Given
from mcpvectordb.documents.libraries import check_selection, checked_name
from mcpvectordb.documents.write import PreparedDocument
from mcpvectordb.errors import InvalidInput, TooLarge, quoted
from mcpvectordb.index.arrays import MAX_DIMENSION
from mcpvectordb.index.indexed_chunk import covers_tile
from mcpvectordb.index.metrics import METRICS
from mcpvectordb.ingest.span import Span
from mcpvectordb.memories.memory import Entry, Image
from mcpvectordb.memories.validation import checked_entry, checked_id
from mcpvectordb.metadata import storable
from mcpvectordb.records import Source
from mcpvectordb.vectors.shelf import MAX_ID, MAX_NAME

Fields = Mapping[str, Any]
LONGEST_ID = 200
_LARGEST = 2**63 - 1
_LONGEST_UID = 100


class OwnDocument(NamedTuple):
    """A document to restore; `given` is False where it is not known what people said of it."""

    prepared: PreparedDocument
    given: bool
    former_ids: list[str]
    embeddings: list[bytes | None]


class OwnMemory(NamedTuple):
    """A memory to restore."""

    id: int
    uid: str
    entry: Entry
    spans: list[Span]
    embeddings: list[bytes | None]


class OwnModel(NamedTuple):
    """The model, the chunk sizes and the precision of embeddings of the exported file."""

    name: str
    digest: str
    dimension: int
    chunk_size: int
    chunk_overlap: int
    precision: str


class OwnLibrary(NamedTuple):
    """A library that followed a folder where it was exported."""

    name: str
    root: str
    pattern: str
    ignore: tuple[str, ...]
    description: str
    created_at: str
    notes: Mapping[str, str]


class OwnVector(NamedTuple):
    """A vector with its numbers exactly as they were."""

    store: str
    namespace: str
    id: str
    values: Any
    metadata: Fields


def model(header: Fields) -> OwnModel | None:
    """The model in a header; None if the exported file had none."""
    found, settings = header.get("model"), header.get("settings")
    if found is None:
        return None
    if not isinstance(found, Mapping) or not isinstance(settings, Mapping):
        raise InvalidInput("the header of the export does not describe its model")
    size, overlap = _number(settings, "chunk_size", 16, 2000), _number(settings, "chunk_overlap")
    if overlap > size // 2:
        raise InvalidInput("the header of the export has a chunk_overlap that is too large")
    precision = settings.get("embeddings", PRECISIONS[0])
    if precision not in PRECISIONS:
        raise InvalidInput(
            f"the header of the export has embeddings of {quoted(precision)}, which is not known"
        )
    return OwnModel(
        _text(found, "name"),
        _text(found, "digest", blank=True),
        _number(found, "dimension", 1, MAX_DIMENSION),
        size,
        overlap,
        precision,
    )


def document(fields: Fields, config: Config) -> OwnDocument:
    """A document that can be written as it was; raises InvalidInput or TooLarge."""
    text = storable(fields.get("text"), "text")
    if len(text.encode()) > config.max_source_bytes:
        raise TooLarge(f"its text is too large {how_to_allow('max_source_bytes')}")
    spans, embeddings = _chunks(fields, text, config)
    own = _object(fields, "metadata")
    metadata.encode(own)
    said = fields.get("given")
    source = _text(fields, "source")
    prepared = PreparedDocument(
        library=checked_name(_text(fields, "library")),
        source=Source(
            source=source,
            name=source,
            raw=b"",
            file_type=_text(fields, "file_type", blank=True),
            modified=_text(fields, "modified", blank=True),
            etag=_text(fields, "etag", blank=True),
            mtime_ns=_number(fields, "mtime_ns", -1),
        ),
        size=_number(fields, "size"),
        hash=_text(fields, "hash", blank=True),
        title=_text(fields, "title", blank=True),
        text=text,
        spans=spans,
        own=own,
        given=Given() if said is None else _given(said),
        moved=None,
        created_at=dates.parse(fields.get("created_at"), "created_at"),
        id=_id(fields.get("id")),
    )
    former = [_id(each) for each in _list(fields, "former_ids")]
    return OwnDocument(prepared, said is not None, former, embeddings)


def memory(fields: Fields, config: Config) -> OwnMemory:
    """A memory that can be written as it was; raises InvalidInput or TooLarge."""
    entry = checked_entry(
        Entry(
            thread=fields.get("thread"),  # type: ignore[arg-type]  # it is checked here
            source=fields.get("source"),  # type: ignore[arg-type]
            text=fields.get("text"),  # type: ignore[arg-type]
            metadata=fields.get("metadata"),
            tags=_list(fields, "tags"),
            images=[_image(each) for each in _list(fields, "images")],
            created_at=dates.parse(fields.get("created_at"), "created_at"),
            updated_at=dates.parse(fields.get("updated_at"), "updated_at"),
        ),
        config,
    )
    uid = storable(fields.get("uid", ""), "uid")[:_LONGEST_UID]
    return OwnMemory(checked_id(fields.get("id")), uid, entry, *_chunks(fields, entry.text, config))


def decoded(value: object, name: str) -> bytes:
    """The bytes of a base64 text."""
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise InvalidInput(f"{name} is not base64 text")


def _given(said: object) -> Given:
    match said:
        case {"title": str(title), "metadata": dict(values)} if all(
            isinstance(each, list) and len(each) < 2 for each in values.values()
        ):
            metadata.encode(values, "given")
            return Given(storable(title, "title"), values)
    raise InvalidInput("what people said of it (given) is not in the form in which it is exported")


def _image(fields: object) -> Image:
    if not isinstance(fields, Mapping):
        raise InvalidInput("an image is not an object")
    return Image(
        data=decoded(fields.get("data"), "an image"),
        mime_type=_text(fields, "mime_type"),
        metadata=fields.get("metadata"),
    )


def _chunks(fields: Fields, text: str, config: Config) -> tuple[list[Span], list[bytes | None]]:
    """The chunks of a text and their embeddings; together their tiles must be the text."""
    chunks = _list(fields, "chunks")
    if len(chunks) > config.max_chunks:
        raise TooLarge(
            f"it has more than {config.max_chunks:,} chunks {how_to_allow('max_chunks')}"
        )
    spans: list[Span] = []
    embeddings: list[bytes | None] = []
    before, at = 0, 0
    for each in chunks:
        if not isinstance(each, Mapping):
            raise InvalidInput("a chunk is not an object")
        span = _span(each, text, before, at)
        before, at = at, span.tile_end
        spans.append(span)
        raw = each.get("embedding")
        embeddings.append(None if raw is None else decoded(raw, "an embedding"))
    if at != len(text):
        raise InvalidInput("its chunks are not its whole text")
    return spans, embeddings


def _span(chunk: Fields, text: str, before: int, tile_start: int) -> Span:
    """The place of a chunk whose tile begins at `tile_start`, the one before it at `before`."""
    tile_end = _number(chunk, "tile_end", tile_start + 1, len(text))
    start = _number(chunk, "start", before, tile_end)
    end = _number(chunk, "end", start, tile_end)
    if not covers_tile(text[tile_start:tile_end], start - tile_start, end - tile_start):
        raise InvalidInput("a chunk leaves out a part of the text")
    first = _number(chunk, "first_line", 1)
    page = chunk.get("page")
    return Span(
        start=start,
        end=end,
        tile_start=tile_start,
        tile_end=tile_end,
        first_line=first,
        last_line=_number(chunk, "last_line", first),
        page=None if page is None else _number(chunk, "page", 1),
        headings=tuple(storable(each, "a heading") for each in _list(chunk, "headings")),
        header=storable(chunk.get("header", ""), "header"),
        footer=storable(chunk.get("footer", ""), "footer"),
    )


def _id(value: object) -> str:
    return _text({"id": value}, "id", most=LONGEST_ID)


def _text(fields: Fields, name: str, *, blank: bool = False, most: int = _LARGEST) -> str:
    text = storable(fields.get(name), name, blank=blank)
    if len(text) > most:
        raise InvalidInput(f"{name} has more than {most:,} characters")
    return text


def _number(fields: Fields, name: str, least: int = 0, most: int = _LARGEST) -> int:
    value = fields.get(name)
    if type(value) is not int or not least <= value <= most:
        raise InvalidInput(f"{name} must be a number from {least} to {most}, not {quoted(value)}")
    return value


def _object(fields: Fields, name: str) -> Fields:
    value = fields.get(name)
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{name} is not an object")
    return value


def _list(fields: Fields, name: str) -> Sequence[Any]:
    value = fields.get(name, [])
    if not isinstance(value, list):
        raise InvalidInput(f"{name} is not a list")
    return value


def library(fields: Fields) -> OwnLibrary:
    """A library, as far as its own fields can be checked; raises InvalidInput."""
    notes = {
        storable(path, "a path"): storable(text, "a note")
        for path, text in _object(fields, "notes").items()
    }
    ignore = tuple(storable(each, "ignore") for each in _list(fields, "ignore"))
    check_selection(_text(fields, "pattern"), ignore)
    return OwnLibrary(
        checked_name(_text(fields, "name")),
        _text(fields, "root"),
        _text(fields, "pattern"),
        ignore,
        _text(fields, "description", blank=True),
        dates.parse(fields.get("created_at"), "created_at"),
        notes,
    )


def store(fields: Fields) -> tuple[str, str]:
    """Name and metric of a store of vectors; raises InvalidInput."""
    metric = _text(fields, "metric")
    if metric not in METRICS:
        raise InvalidInput(f"metric must be {', '.join(METRICS)}, not {quoted(metric)}")
    return _text(fields, "name", most=MAX_NAME), metric


def vector(fields: Fields) -> OwnVector:
    """A vector with the numbers of its dimension; raises InvalidInput."""
    import numpy as np

    raw, dimension = decoded(fields.get("raw"), "raw"), _number(fields, "dimension", 1)
    if dimension > MAX_DIMENSION or len(raw) not in (4 * dimension, 8 * dimension):
        raise InvalidInput(f"raw has not the size of {dimension} numbers")
    values = np.frombuffer(raw, "<f4" if len(raw) == 4 * dimension else "<f8")
    if not np.isfinite(values).all():
        raise InvalidInput("an embedding with numbers that are not finite")
    found = _object(fields, "metadata")
    metadata.encode(found)
    return OwnVector(
        _text(fields, "store", most=MAX_NAME),
        _text(fields, "namespace", blank=True, most=MAX_NAME),
        _text(fields, "id", most=MAX_ID),
        values,
        found,
    )
