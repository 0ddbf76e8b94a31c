"""The records that methods take and return: frozen, keyword-only data."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
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

from mcpvectordb import dates

T = TypeVar("T")

Mode = Literal["hybrid", "text", "vector"]
Fusion = Literal["convex", "rrf"]
Status = Literal["indexed", "replaced", "updated", "unchanged"]
Metric = Literal["cosine", "dot", "euclidean"]
Confidence = Literal["strong", "possible", "weak"]
RRF_K = 60  # the constant of reciprocal rank fusion, as in its paper

# The least relevance of a strong match, and of one that is not weak.
STRONG, WEAK = 0.3, 0.13


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Record:
    """Base class of frozen, keyword-only data; a subclass names its fields, as a dataclass does.

    To the standard library it is a dataclass (`dataclasses.fields` and `replace` work). Its methods
    are written once, here, because a dataclass has them generated and compiled for each class: with
    as many records as there are, that would be a good part of the import time.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    _defaults: ClassVar[dict[str, Any]]  # of every field, MISSING where there is none

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(init=False, repr=False, eq=False, match_args=False)(cls)
        cls._defaults = {name: each.default for name, each in cls.__dataclass_fields__.items()}

    def __init__(self, **values: Any) -> None:
        if values.keys() != self.__dataclass_fields__.keys():
            values = _complete(type(self), values)
        self.__dict__.update(values)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> bool:
        return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(_compared(self))

    def to_dict(self) -> dict[str, Any]:
        """The fields in JSON's types, also of records inside; a passage has its citation too.

        Bytes become base64 text.
        """
        values = {name: in_json(getattr(self, name)) for name in self.__dataclass_fields__}
        citation = getattr(self, "citation", None)
        return values if citation is None else {**values, "citation": citation}

    def moment(self, field: str) -> datetime | None:
        """A time, which is stored as text, as a datetime in UTC: `document.moment("created_at")`.

        None where it is not known.
        """
        text = getattr(self, field)
        if text == "":
            return None
        return datetime.fromisoformat(dates.parse(text, field))

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
    values = {**record._defaults, **given}
    for name in [name for name, value in values.items() if value is MISSING]:
        make = fields[name].default_factory
        if make is MISSING:
            raise TypeError(f"{record.__name__} needs {name}")
        values[name] = make()
    return values


def in_json(value: Any) -> Any:
    """A value in JSON's types: records and mappings become objects, sequences lists."""
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: in_json(each) for key, each in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return [in_json(each) for each in value] if isinstance(value, list | tuple) else value


def _compared(record: Any) -> tuple[Any, ...]:
    return tuple(
        getattr(record, name) for name, each in record.__dataclass_fields__.items() if each.compare
    )


UNREAD_PAGES = "unread_pages"
"""The metadata with the pages of a PDF that only OCR can read, where it was not installed."""

# Of what is read from these, the text has lines of its own.
EXTRACTED = frozenset(
    """
    url pdf epub mobi prc azw fb2 xps oxps docx docm dotx pptx pptm ppsx xlsx xlsm xltx xlsb doc dot
    ppt pps pot xls ods odt odp rtf html htm xhtml shtml ipynb json jsonl ndjson geojson jsonld
    webmanifest xml xsd xsl xslt rss atom opml wsdl kml gpx xlf xliff dbk docbook tei nxml jats
    csv tsv tab eml msg mbox mht mhtml srt vtt png jpg jpeg gif bmp tif tiff
    """.split()
)


class Document(Record):
    """One ingested source. `hash` is the SHA-256 of its raw bytes; `modified` is "" if unknown.

    `path` is its name in listings, by which it can be looked up: its library, then its path in the
    library's folder or its source (`Documents.lookup`). `date` is the one that it gives itself
    (metadata `date`), otherwise that of its file, otherwise that of its ingest.
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

    @property
    def extracted(self) -> bool:
        """Whether lines are those of the text that was extracted from it, not those of its file."""
        return self.file_type in EXTRACTED

    def place(self, first: int, last: int = 0, *, name: str = "") -> str:
        """Its path (or `name`) with lines: notes/tea.md:3-5, or "web/tea.html, text lines 3-5"."""
        lines = f"{first}-{last}" if last > first else f"{first}"
        between = f", text line{'s' * (last > first)} " if self.extracted else ":"
        return f"{name or self.path}{between}{lines}"

    @property
    def date(self) -> str:
        """The date that it is filtered by (`date`, `since`, `until`) and that `newer` means."""
        return dates.own(self.metadata.get("date")) or self.modified or self.created_at


class Place(Record):
    """A document and the lines of it that a name such as notes/tea.md:120:20 asks for.

    `line` is the first one, `lines` their number; None means all. `former` says that the name is
    the id of an earlier version of the document, which was replaced by this one.
    """

    document: Document
    line: int | None = None
    lines: int | None = None
    former: bool = False


class Coverage(Record):
    """How many documents are found by meaning: each is in one of the first four groups.

    embedded          all of its passages have an embedding
    partly_embedded   some have one, the others wait for it
    waiting           all of its passages wait
    empty             it has no passages, as after the salvage of a damaged file
    identical         documents with the same content as another, beyond the first of them
    distinct_waiting  how many different contents are in no completely embedded document
    """

    embedded: int
    partly_embedded: int
    waiting: int
    empty: int
    identical: int
    distinct_waiting: int

    @property
    def any(self) -> bool:
        """Whether any document is found by meaning, at least in part."""
        return self.embedded + self.partly_embedded > 0


class Backlog(Record):
    """How many of a shelf's passages there are, and how many of them wait for their embedding.

    `outlook` says what becomes of those that wait, as the end of a sentence; "" if none does.
    """

    passages: int = 0
    pending: int = 0
    outlook: str = ""

    @property
    def embedded(self) -> int:
        """How many passages are embedded."""
        return self.passages - self.pending

    @property
    def note(self) -> str:
        """One line for people and agents; "" if no passage waits."""
        if not self.pending:
            return ""
        if not self.embedded:
            return f"no passage is embedded yet (waiting: {self.pending:,}); {self.outlook}"
        return (
            f"{self.embedded:,} of all {counted_passages(self.passages)} are searched by meaning "
            f"so far; {self.outlook}"
        )


def counted_passages(count: int) -> str:
    """The number with its noun: 1 passage, 2,722 passages."""
    return f"{count:,} passage{'' if count == 1 else 's'}"


class Chunk(Record):
    """A passage of a document: `documents.text(document.id)[start:end] == text`.

    `position` counts from 0, lines and pages from 1; `page` is None if the format has no pages.
    Lines are those of the document's text, which are those of its file unless the text was
    extracted from it (`Document.extracted`); a citation then calls them text lines. If
    the passage is a part of a table, `header` is that table's header; in a part of a code block,
    `header` and `footer` are its fences.
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
    header: str = ""
    footer: str = ""

    @property
    def passage(self) -> str:
        """The text as it can be read alone: a part of a table below its header, code in fences."""
        return "\n".join(part for part in (self.header, self.text, self.footer) if part)

    @property
    def place(self) -> str:
        """Its document's path with its lines: notes/tea.md:12-20."""
        more = f"-{self.last_line}" if self.last_line > self.first_line else ""
        return f"{self.document.path}:{self.first_line}{more}"

    @property
    def citation(self) -> str:
        """One line with title, page, lines and source.

        It says if the page was read by OCR, and if the lines are those of the extracted text.
        """
        read_by_ocr = self.document.metadata.get("ocr_pages")
        ocr = " (OCR)" if isinstance(read_by_ocr, list) and self.page in read_by_ocr else ""
        page = f"p. {self.page}{ocr}, " if self.page is not None else ""
        lines = (
            f"line {self.first_line}"
            if self.first_line == self.last_line
            else (f"lines {self.first_line}–{self.last_line}")
        )
        of_text = "text " if self.document.extracted else ""
        return f"{self.document.title}, {page}{of_text}{lines} ({self.document.source})"


class DocumentHeading(Record):
    """A heading of a document: the number of its line, its level from 1, and its text."""

    line: int
    level: int
    title: str


class Library(Record):
    """A named group of documents with its counts.

    If it follows a folder, `root` is the folder's absolute path, and `pattern` and `ignore` select
    files of it; see `Documents.add_library`. Otherwise these fields are empty. `confirmed` says
    whether the folder may be read on this machine; see `Documents.confirm_library`.
    """

    name: str
    documents: int
    chunks: int
    root: str = ""
    pattern: str = ""
    ignore: tuple[str, ...] = ()
    description: str = ""
    created_at: str = ""
    confirmed: bool = False


class PassedOver(Record):
    """A file of a folder that a library follows which is not ingested, and why."""

    library: str
    path: str
    reason: str


class Scores(Record):
    """The scores of an item in each leg of a search; those that do not apply are None.

    text, vector  BM25 (higher is better) and the cosine; for items of `Database.vectors`, `vector`
                  is the value of the store's metric: cosine, dot product, or distance (lower is
                  nearer)
    text_rank,    ranks from 1; None if the leg did not return the item itself
    vector_rank
    rrf           reciprocal rank fusion: Σ 1 / (k + rank)
    rerank        the score of the cross-encoder, 0 to 1
    reach         the BM25 of an average chunk that has every word of the query once
    recency       by what the score was multiplied because of the item's age, 0 to 1 (`newer`)
    """

    text: float | None = None
    text_rank: int | None = None
    vector: float | None = None
    vector_rank: int | None = None
    rrf: float | None = None
    rerank: float | None = None
    reach: float | None = None
    recency: float | None = None

    @property
    def distance(self) -> float | None:
        """The Euclidean distance of two unit vectors with this cosine, 0 to 2; lower is nearer."""
        return None if self.vector is None else math.sqrt(max(0.0, 2 - 2 * self.vector))


class Hit(Record, Generic[T]):
    """An item that a search found; `score` is 0 to 1, or by the metric of a store of vectors.

    relevance    the probability that a judge calls it relevant, which never rises from one hit to
                 the next; None where that was not calibrated (`Results.uncalibrated` says why)
    line         the number of the line that has most words of the query; the first if none has
    snippet      that line with its neighbours, each as `number: line`
    folded       items that say nothing that this one does not say (`fold`), best first
    more         how many other passages of its document were found and left out (`group`)
    passage      the part of a memory that is nearest to the query; "" without vector search
    highlighted  the whole text of a memory with <mark> around the matches, if requested
    """

    item: T
    score: float
    scores: Scores
    relevance: float | None = None
    line: int = 0
    snippet: str = ""
    folded: tuple[T, ...] = ()
    more: int = 0
    passage: str = ""
    highlighted: str | None = None

    @property
    def confidence(self) -> Confidence | None:
        """The relevance in a word: strong, possible or weak; None where it is not known."""
        if self.relevance is None:
            return None
        if self.relevance >= STRONG:
            return "strong"
        return "possible" if self.relevance >= WEAK else "weak"

    def to_dict(self) -> dict[str, Any]:
        """The fields in JSON's types, and the confidence."""
        return {**super().to_dict(), "confidence": self.confidence}

    @classmethod
    def shown_by(cls, show: Callable[[], tuple[int, str]], **values: Any) -> Hit[T]:
        """A hit whose line and snippet `show` returns, when one of them is first asked for.

        Many who search look at neither.
        """
        hit = cls.__new__(cls)
        hit.__dict__.update(_NOT_GIVEN, _show=show, **values)
        return hit

    if not TYPE_CHECKING:  # with it, a type checker would take any name for an attribute

        def __getattr__(self, name: str) -> Any:
            if name not in ("line", "snippet"):
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
            line, snippet = self.__dict__.pop("_show")()
            self.__dict__.update(line=line, snippet=snippet)
            return self.__dict__[name]


if not TYPE_CHECKING:  # their defaults, which are in `_defaults`, would be found before
    del Hit.line, Hit.snippet
_NOT_GIVEN = {
    name: Hit._defaults[name] for name in ("relevance", "folded", "more", "passage", "highlighted")
}


class Explained(Record):
    """How a query was run: its time, its rows, and SQLite's query plan, with one step per line.

    `legs` has the same for each leg of a search.
    """

    milliseconds: float
    rows: int
    plan: str
    legs: Mapping[str, Explained] = field(default_factory=dict)


class Page(Record, Sequence[T]):
    """A page of a list; `explained` has the query plan if `explain` was asked for."""

    items: tuple[T, ...]
    explained: Explained | None = None

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)


class Results(Record, Sequence[Hit[T]]):
    """Hits, best first, and how they were found.

    legs     the legs that ran: "text", "vector", "expansion", "rerank"
    reasons  why a requested leg did not run, by leg
    verdict  a sentence if nothing relevant was found, otherwise ""
    uncalibrated  why hits have no relevance; "" if all have one
    counts   memories only: how many "text", "vector" and "both" returned, and the "total"
    note     a sentence if the query was not parsed as requested or names what does not exist, or ""
    backlog  passages of the whole shelf that the vector leg could not search yet; none without it
    """

    hits: tuple[Hit[T], ...]
    legs: tuple[str, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)
    verdict: str = ""
    uncalibrated: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    explained: Explained | None = None
    backlog: Backlog = Backlog()

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

    @property
    def weak_from(self) -> int | None:
        """The index of the first weak hit, below which all are weak; None if none is."""
        return next((at for at, hit in enumerate(self.hits) if hit.confidence == "weak"), None)


class Embedded(Record):
    """How many chunks were embedded, the tokens of their distinct texts, and the model's time."""

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
    """The result of an ingest or an update; `pending` chunks have no embedding yet.

    status  "indexed" (new), "replaced" (other content), "updated" (only metadata, title or library)
            or "unchanged" (it was stored like this already)
    note    why chunks are pending, unless this was requested, and what could not be read
    """

    status: Status
    document: Document
    pending: int = 0
    note: str = ""
    embedded: Embedded = Embedded()


class Synced(Record):
    """The result of a sync, or of the ingest of a folder, in numbers of files.

    updated        files whose content is unchanged and whose documents got other metadata
    skipped        files that are not ingested, by reason
    failures       (path, message) of files that could not be read; what is stored of them stays
    skipped_paths  (path, reason) of the first 10,000 of these; a hidden or ignored folder is one
    partial        (path, note) of ingested files of which something could not be read
    note           why new chunks have no embedding yet, unless this was requested
    embedded       what was embedded meanwhile; the last library of a sync includes what was left
    vanished       after the ingest of a folder: files that are no longer in it, still stored
    planned        after a dry run: (what would be done, path), such as ("index", "/notes/tea.md")
    """

    library: str
    indexed: int
    replaced: int
    moved: int
    removed: int
    unchanged: int
    skipped: Mapping[str, int]
    failures: tuple[tuple[str, str], ...]
    skipped_paths: tuple[tuple[str, str], ...] = ()
    partial: tuple[tuple[str, str], ...] = ()
    note: str = ""
    embedded: Embedded = Embedded()
    updated: int = 0
    planned: tuple[tuple[str, str], ...] = ()
    vanished: tuple[str, ...] = ()


class Exported(Record):
    """What an export wrote: the format, and how many documents, memories and vectors.

    `left_out` says what of the file the format does not hold; JSONL holds everything.
    """

    path: str
    format: str
    documents: int
    memories: int
    vectors: int
    left_out: tuple[str, ...] = ()


class Stats(Record):
    """Counts and sizes of a file, its model and chunk sizes, and the type of its embeddings.

    Before the first ingest, these are the ones that it would get. `history_bytes` is what former
    versions take of the file. Of a published database `path` is the URL, and `origins` are the
    names of the files that were published there. `notes` are what a person should look after: an
    ingest of a folder that was cut off, a log of another file that was set aside, what the
    administrator of a published database should do.
    """

    path: str
    bytes: int
    format: int
    documents: int
    libraries: int
    chunks: int
    pending: int
    memories: int
    vectors: int
    stores: int
    model: str
    dimension: int
    chunk_size: int
    chunk_overlap: int
    history_bytes: int = 0
    embeddings: str = "float32"
    origins: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Progress(Record):
    """The progress of a long step.

    step          "ingest" and "sync" count files, "parse" the one that is ingested, "embed" chunks,
                  "export", "compare" and "publish" items, "graph" blocks of the table that is
                  indexed, "vacuum" statements, "fetch" and the download of a model bytes
    done, total   what is committed, and of how much; `total` is None while it is unknown
    chunks        how many were embedded meanwhile, of `chunks_known` so far, and their `tokens`
    seconds_left  an estimate for this step and those after it; None while there is none
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
        """The known figures as text: "32/70 chunks, 7,110 tokens/s, 0:00:09 left"."""
        with_chunks = self.chunks_known and self.step != "embed"
        return ", ".join(
            filter(
                None,
                [
                    f"{self.chunks:,}/{self.chunks_known:,} chunks" if with_chunks else "",
                    f"{self.tokens_per_second:,.0f} tokens/s" if self.tokens_per_second else "",
                    ""
                    if self.seconds_left is None
                    else f"{timedelta(seconds=round(self.seconds_left))} left",
                ],
            )
        )


ProgressCallback = Callable[[Progress], None]
"""Called in the thread that works. An exception ends the work, and the next call resumes it."""


class Condition(NamedTuple):
    """One condition of a `where`: a field or metadata path, an operator, and its value.

    `field` is a column ("title") or a metadata path ("metadata.a.b"; ("metadata", "a.b") for a key
    with a dot in it).
    """

    field: str | tuple[str, ...]
    operator: str
    value: Any = None
    case_sensitive: bool = True


class Source(Record):
    """Raw bytes and where they came from; `name` is the last part of the path or URL.

    `media_type` is the whole Content-Type header, with the charset; `etag` is the HTTP entity tag.
    `mtime_ns` is the file's modification time if no later version can have the same, otherwise -1.
    `vault` says whether it is a note of an Obsidian vault.
    """

    source: str
    name: str
    raw: bytes
    file_type: str
    modified: str = ""
    media_type: str = ""
    etag: str = ""
    mtime_ns: int = -1
    vault: bool = False

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the bytes, by which content is known again."""
        return hashlib.sha256(self.raw).hexdigest()


class Parsed(Record):
    """The text of a source. `pages[i]` is the offset in `text` at which page i + 1 begins.

    `kind` says in which syntax the chunker finds the structure. `note` says what of the source is
    not in the text. `images` are the numbers of pages, from 1, whose text is only drawn: OCR could
    read them.
    """

    text: str
    title: str
    kind: Literal["markdown", "text", "code"] = "text"
    pages: tuple[int, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    images: tuple[int, ...] = ()
