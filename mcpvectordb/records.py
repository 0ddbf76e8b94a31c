"""The data that goes in and out: frozen, keyword-only, free of behaviour beyond reading it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field
from datetime import timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    NoReturn,
    TypeVar,
    dataclass_transform,
    overload,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

Mode = Literal["hybrid", "text", "vector"]
Status = Literal["indexed", "replaced", "skipped"]
Metric = Literal["cosine", "dot", "euclidean"]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Record:
    """Base class of frozen, keyword-only data; a subclass names its fields, as a dataclass does.

    To the standard library it is a dataclass (`dataclasses.fields` and `replace` work). Its methods
    are written once, here, because a dataclass has them generated and compiled for each class: with
    as many records as there are, that would be a good part of the import time.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(init=False, repr=False, eq=False, match_args=False)(cls)

    def __init__(self, **values: Any) -> None:
        if values.keys() != self.__dataclass_fields__.keys():
            values = _complete(type(self), values)
        self.__dict__.update(values)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self.__dataclass_fields__)
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> bool:
        return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(_compared(self))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


def _complete(record: type[Record], given: dict[str, Any]) -> dict[str, Any]:
    """The values of all fields in their order, defaults included."""
    fields = record.__dataclass_fields__
    if unknown := given.keys() - fields.keys():
        raise TypeError(
            f"{record.__name__} has no field {', '.join(sorted(unknown))}; there are "
            f"{', '.join(fields)}"
        )
    values = {
        name: given[name] if name in given else _default(each) for name, each in fields.items()
    }
    if missing := [name for name, value in values.items() if value is MISSING]:
        raise TypeError(f"{record.__name__} needs {', '.join(missing)}")
    return values


def _default(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


def _compared(record: Any) -> tuple[Any, ...]:
    return tuple(
        record.__dict__[name] for name, each in record.__dataclass_fields__.items() if each.compare
    )


class Document(Record):
    """One ingested source. `hash` is the SHA-256 of its raw bytes; `modified` is "" where unknown.

    `path` is its name in listings, which `Documents.find` takes: its library, then where it lies in
    the library's folder, or its source.
    """

    id: str
    library: str
    source: str
    title: str
    hash: str
    file_type: str
    size: int
    modified: str
    created_at: str
    metadata: Mapping[str, Any]
    chunks: int
    path: str = ""


class Place(Record):
    """A document, and what a name such as notes/tea.md:120:20 says of its lines: from which one on,
    and how many.
    """

    document: Document
    line: int | None = None
    lines: int | None = None


class Coverage(Record):
    """How many different contents of documents are found by meaning, and how many wait for that,
    wholly or in part.
    """

    embedded: int
    waiting: int


class Chunk(Record):
    """A passage of a document: `documents.text(document.id)[start:end] == text`.

    `position` counts from 0, lines and pages from 1; `page` is None where the format has no pages.
    """

    id: int
    document: Document
    position: int
    text: str
    start: int
    end: int
    first_line: int
    last_line: int
    page: int | None
    headings: tuple[str, ...]

    @property
    def citation(self) -> str:
        """One line that names the place: title, page, lines and source."""
        page = f"p. {self.page}, " if self.page is not None else ""
        lines = (
            f"line {self.first_line}"
            if self.first_line == self.last_line
            else (f"lines {self.first_line}–{self.last_line}")
        )
        return f"{self.document.title}, {page}{lines} ({self.document.source})"


class Library(Record):
    """A named group of documents with its counts.

    One that follows a folder has the folder's absolute path as `root`, and which files of it come
    in; see `Documents.add_library`. For others these fields are empty.
    """

    name: str
    documents: int
    chunks: int
    root: str = ""
    pattern: str = ""
    ignore: tuple[str, ...] = ()
    description: str = ""
    created_at: str = ""


class Vector(Record):
    """An embedding that a user brought along, under an id of its own in a namespace of a store.

    `raw` is the embedding as the file keeps it: float32 where that holds every number exactly,
    otherwise float64.
    """

    id: str
    store: str
    namespace: str
    dimension: int
    raw: bytes
    metadata: Mapping[str, Any]

    @property
    def embedding(self) -> NDArray[np.floating[Any]]:
        """The numbers, exactly as they were given; read-only, and not a copy."""
        import numpy as np

        return np.frombuffer(
            self.raw, np.float32 if len(self.raw) == 4 * self.dimension else np.float64
        )


class Added(Record):
    """What adding a vector did."""

    status: Literal["added", "updated"]
    vector: Vector


class AddedMany(Record):
    """How many vectors were new, and how many took the place of one with the same id."""

    added: int
    updated: int


class Store(Record):
    """A named set of vectors, the metric that ranks them, and how many they are."""

    name: str
    metric: Metric
    vectors: int


class Namespace(Record):
    """A part of a store in which ids are unique; the unnamed one is ""."""

    name: str
    vectors: int


class Scores(Record):
    """The legs' own figures: `text` is BM25 (higher is better), `vector` the cosine; ranks count
    from 1.

    A rank is None where the leg did not bring the item up by itself. For items of
    `Database.vectors`, `vector` is what the store's metric gives: the cosine, the dot product, or
    the distance (lower is nearer). `rrf` is there where ranks were fused: Σ 1 / (k + rank).
    `rerank` is what a cross-encoder gave the item, 0 to 1, where one was asked. `reach` is the BM25
    of an average chunk that has every word of the query once, where words were looked for in chunks
    of documents.
    """

    text: float | None = None
    text_rank: int | None = None
    vector: float | None = None
    vector_rank: int | None = None
    rrf: float | None = None
    rerank: float | None = None
    reach: float | None = None

    @property
    def distance(self) -> float | None:
        """The Euclidean distance of two vectors of length 1 that have this cosine: 0 to 2, lower is
        nearer.
        """
        return None if self.vector is None else math.sqrt(max(0.0, 2 - 2 * self.vector))


class Hit(Record, Generic[T]):
    """An item that a search found; `score` is 0 to 1 (by a store's metric for vectors), higher is
    better.

    `relevance` is the chance that a judge would call it relevant, as it was on judged collections;
    None where that was not calibrated: other models than the catalogue's, queries in other than
    Latin letters, contexts, and vectors. `passage` is the part of a context that was nearest to the
    query, "" where meaning had no say; `highlighted` its whole text with <mark> around the words
    that were found, when that was asked for.
    """

    item: T
    score: float
    scores: Scores
    relevance: float | None = None
    passage: str = ""
    highlighted: str | None = None


class Explained(Record):
    """How a query was run: its time, the rows it gave, and SQLite's plan of each statement, one
    step a line.

    `legs` has the same of the parts of a search.
    """

    milliseconds: float
    rows: int
    plan: str
    legs: Mapping[str, Explained] = field(default_factory=dict)


class Results(Record, Sequence[Hit[T]]):
    """Hits, best first. `legs` names what ran ("text", "vector", "expansion", "rerank"); `reasons`
    says why a leg that was asked for did not. `verdict` is a sentence when nothing relevant was
    found, otherwise "".

    In searches of contexts, `counts` says how many entries each leg brought ("text", "vector"), and
    how many both and all legs together did ("both", "total"); `note` says when a query was not read
    the way it was asked to be.
    """

    hits: tuple[Hit[T], ...]
    legs: tuple[str, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)
    verdict: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    explained: Explained | None = None

    @overload
    def __getitem__(self, index: int) -> Hit[T]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Hit[T]]: ...
    def __getitem__(self, index: int | slice) -> Hit[T] | Sequence[Hit[T]]:
        return self.hits[index]

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit[T]]:
        return iter(self.hits)


class Embedded(Record):
    """What went through the model: chunks, the tokens of their different texts, and the seconds it
    was at work.
    """

    chunks: int = 0
    tokens: int = 0
    seconds: float = field(default=0.0, compare=False)

    @property
    def tokens_per_second(self) -> float:
        """0 when nothing was embedded."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def __add__(self, other: Embedded) -> Embedded:
        return Embedded(
            chunks=self.chunks + other.chunks,
            tokens=self.tokens + other.tokens,
            seconds=self.seconds + other.seconds,
        )


class Ingested(Record):
    """What an ingest did. `pending` chunks have no embedding yet, and `note` says why when that was
    not asked for.
    """

    status: Status
    document: Document
    pending: int = 0
    note: str = ""
    embedded: Embedded = Embedded()


class Synced(Record):
    """What a sync, or the ingest of a folder, did to a library, in files.

    `skipped` counts what is not taken in by reason; `failures` are (path, message) of what could
    not be read: there the library is as it was. `note` says why new chunks have no embedding yet
    when that was not asked for. `embedded` is what was embedded meanwhile; the last library of a
    sync has what was left to embed.
    """

    library: str
    indexed: int
    replaced: int
    moved: int
    removed: int
    unchanged: int
    skipped: Mapping[str, int]
    failures: tuple[tuple[str, str], ...]
    note: str = ""
    embedded: Embedded = Embedded()


class Stats(Record):
    """What is in a file and what it was made with; before the first ingest, what it would be made
    with.
    """

    path: str
    bytes: int
    format: int
    documents: int
    libraries: int
    chunks: int
    pending: int
    contexts: int
    vectors: int
    stores: int
    model: str
    dimension: int
    chunk_size: int
    chunk_overlap: int


class Progress(Record):
    """How far a long step is.

    step    "ingest" and "sync" count files, "embed" chunks, "fetch" bytes; a model that is pulled
    counts the bytes of each file done    what is safely in the file; `total` is None while it is
    not known chunks  how many have gone through the model meanwhile, of `chunks_known` that were
    found so far, and their `tokens` seconds_left  an estimate for all of the work, also for what
    comes after this step; None while there is nothing to go by
    """

    step: str
    done: int
    total: int | None
    chunks: int = 0
    chunks_known: int = 0
    tokens: int = 0
    tokens_per_second: float = 0.0
    seconds_left: float | None = None

    @property
    def pace(self) -> str:
        """What is known of it in words: "32/70 chunks, 7,110 tokens/s, 0:00:09 left"."""
        beside = self.chunks_known and self.step != "embed"
        return ", ".join(
            filter(
                None,
                [
                    f"{self.chunks:,}/{self.chunks_known:,} chunks" if beside else "",
                    f"{self.tokens_per_second:,.0f} tokens/s" if self.tokens_per_second else "",
                    ""
                    if self.seconds_left is None
                    else f"{timedelta(seconds=round(self.seconds_left))} left",
                ],
            )
        )


ProgressCallback = Callable[[Progress], None]
"""Called in the thread that does the work; what it raises ends the work, and the next try goes on
from there.
"""


class Condition(NamedTuple):
    """One condition of a `where`: a field or metadata path, an operator, and the value it takes.

    `field` is a column ("title") or a metadata path ("metadata.a.b"; ("metadata", "a.b") for a key
    with a dot in it).
    """

    field: str | tuple[str, ...]
    operator: str
    value: Any = None
    case_sensitive: bool = True


class Source(Record):
    """Raw bytes and where they came from; `name` is the last part of the path or URL.

    `media_type` is the whole Content-Type header, charset included; `etag` is the server's mark of
    this version. `mtime_ns` is the file's modification time if it tells this version from every
    later one, otherwise -1.
    """

    source: str
    name: str
    raw: bytes
    file_type: str
    modified: str = ""
    media_type: str = ""
    etag: str = ""
    mtime_ns: int = -1


class Parsed(Record):
    """The text of a source. `pages[i]` is the offset in `text` at which page i + 1 begins.

    `kind` tells the chunker what the structure is written in.
    """

    text: str
    title: str
    kind: Literal["markdown", "text", "code"] = "text"
    pages: tuple[int, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


class Span(Record):
    """Where a chunk lies in a text.

    The chunk's text is `text[start:end]`. It owns `text[tile_start:tile_end]`: tiles follow each
    other without gap or overlap and together are the whole text. `start` may reach back into the
    previous tile (overlap) or skip white space; `end` leaves trailing white space out.
    """

    start: int
    end: int
    tile_start: int
    tile_end: int
    first_line: int
    last_line: int
    page: int | None
    headings: tuple[str, ...]
