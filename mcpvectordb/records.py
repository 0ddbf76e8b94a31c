"""The data that goes in and out: frozen, keyword-only, free of behaviour beyond reading it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypeVar, overload

T = TypeVar("T")

Mode = Literal["hybrid", "text", "vector"]
Status = Literal["indexed", "replaced", "skipped"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """One ingested source. `hash` is the SHA-256 of its raw bytes; `modified` is "" where unknown."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
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
        lines = f"line {self.first_line}" if self.first_line == self.last_line else (
            f"lines {self.first_line}–{self.last_line}")
        return f"{self.document.title}, {page}{lines} ({self.document.source})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """A named group of documents with its counts."""

    name: str
    documents: int
    chunks: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """The legs' own figures: `text` is BM25 (higher is better), `vector` the cosine; ranks count from 1.

    A rank is None where the leg did not bring the item up by itself.
    """

    text: float | None = None
    text_rank: int | None = None
    vector: float | None = None
    vector_rank: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit(Generic[T]):
    """An item that a search found; `score` is 0 to 1, higher is better."""

    item: T
    score: float
    scores: Scores


@dataclass(frozen=True, kw_only=True, slots=True)
class Results(Sequence[Hit[T]]):
    """Hits, best first. `legs` names what ran ("text", "vector"); `reasons` says why a leg that was asked for did not."""

    hits: tuple[Hit[T], ...]
    legs: tuple[str, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Ingested:
    """What an ingest did. `pending` chunks have no embedding yet, and `note` says why when that was not asked for."""

    status: Status
    document: Document
    pending: int = 0
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stats:
    """What is in a file and what it was made with; `model` is "" before the first ingest."""

    path: str
    bytes: int
    format: int
    documents: int
    libraries: int
    chunks: int
    pending: int
    model: str
    dimension: int
    chunk_size: int
    chunk_overlap: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a long step is; `total` is None while it is not known."""

    step: str
    done: int
    total: int | None


ProgressCallback = Callable[[Progress], None]


class Condition(NamedTuple):
    """One condition of a `where`: a field or metadata path, an operator, and the value it takes.

    `field` is a column ("title") or a metadata path ("metadata.a.b"; ("metadata", "a.b") for a key with a dot in it).
    """

    field: str | tuple[str, ...]
    operator: str
    value: Any = None
    case_sensitive: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Raw bytes and where they came from; `name` is the last part of the path or URL.

    `media_type` is the whole Content-Type header, charset included; `etag` is the server's mark of this version.
    """

    source: str
    name: str
    raw: bytes
    file_type: str
    modified: str = ""
    media_type: str = ""
    etag: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parsed:
    """The text of a source. `pages[i]` is the offset in `text` at which page i + 1 begins.

    `kind` tells the chunker what the structure is written in.
    """

    text: str
    title: str
    kind: Literal["markdown", "text", "code"] = "text"
    pages: tuple[int, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Where a chunk lies in a text.

    The chunk's text is `text[start:end]`. It owns `text[tile_start:tile_end]`: tiles follow each other without gap
    or overlap and together are the whole text. `start` may reach back into the previous tile (overlap) or skip white
    space; `end` leaves trailing white space out.
    """

    start: int
    end: int
    tile_start: int
    tile_end: int
    first_line: int
    last_line: int
    page: int | None
    headings: tuple[str, ...]
