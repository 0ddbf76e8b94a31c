"""The data of the contexts shelf: frozen and keyword-only, as in `records`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar, final, overload

from mcpvectordb.errors import MCPVectorDBError
from mcpvectordb.records import Explained, Record

T = TypeVar("T")

ContextSource = Literal["user", "agent"]
ContentType = Literal["text", "multimodal"]


class Image(Record):
    """A picture that belongs to a context; `data` are its bytes as they are, not in base64."""

    data: bytes
    mime_type: str = "image/png"
    metadata: Mapping[str, Any] | None = None


@final
class Entry(Record):
    """A context to be added; what is None was not given."""

    thread: str
    source: str
    text: str
    metadata: Mapping[str, Any] | None = None
    tags: Sequence[str] | None = None
    images: Sequence[Image] | None = None


class Change(Record):
    """What to change in a context; what is None stays as it is. `metadata_patch` is a JSON Merge
    Patch (RFC 7396).
    """

    id: int
    text: str | None = None
    metadata: Mapping[str, Any] | None = None
    metadata_patch: Mapping[str, Any] | None = None
    tags: Sequence[str] | None = None
    images: Sequence[Image] | None = None


class Context(Record):
    """What an agent or its user said in a thread. `images` are there only when they were asked
    for.
    """

    id: int
    thread: str
    source: ContextSource
    text: str
    content_type: ContentType
    metadata: Mapping[str, Any] | None
    tags: tuple[str, ...]
    images: tuple[Image, ...]
    created_at: str
    updated_at: str


class Stored(Record):
    """What adding a context did: a text that the same source just said in the same thread is not
    stored twice.

    `note` says why the context is not found by meaning yet, when it is not.
    """

    status: Literal["added", "repeated"]
    context: Context
    note: str = ""

    @property
    def id(self) -> int:
        """The context's id."""
        return self.context.id


class Updated(Record):
    """What changing a context did: `fields` are text, metadata, tags, images, content_type,
    embedding, where written.
    """

    context: Context
    fields: tuple[str, ...]
    note: str = ""


class Outcome(Record, Generic[T]):
    """What became of one item of a batch: its result, or the error that kept it out. `index` counts
    from 0.
    """

    index: int
    result: T | None = None
    error: MCPVectorDBError | None = None


class Thread(Record):
    """A thread of contexts; `sources` is how many different ones spoke in it, `last_id` its newest
    context.
    """

    name: str
    contexts: int
    sources: int
    multimodal: int
    first_at: str
    last_at: str
    last_id: int


class ContextStats(Record):
    """How much is on the contexts shelf. Threads and tags come with their counts, the most used
    first.

    `embedded` counts the contexts that are found by meaning as a whole. `lacking` says why searches
    by meaning ("vector") or a second look ("rerank") cannot be had on this machine; it has no word
    on what can.
    """

    contexts: int
    by_source: Mapping[str, int]
    by_content_type: Mapping[str, int]
    images: int
    tags: int
    threads: int
    chunks: int
    embedded: int
    lacking: Mapping[str, str]
    most_active_threads: tuple[tuple[str, int], ...]
    top_tags: tuple[tuple[str, int], ...]


class Page(Record, Sequence[T]):
    """Some items of a list, in its order; `explained` says how they were found, when that was asked
    for.
    """

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
