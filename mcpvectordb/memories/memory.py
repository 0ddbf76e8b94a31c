"""The records of memories: frozen and keyword-only, as in `records`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar, final

from mcpvectordb.errors import MCPVectorDBError
from mcpvectordb.records import Record

T = TypeVar("T")

MemorySource = Literal["user", "agent"]
ContentType = Literal["text", "multimodal"]
Words = Literal["any", "match", "prefix", "phrase", "boolean"]


class Image(Record):
    """An image that belongs to a memory; `data` are its raw bytes, not base64."""

    data: bytes
    mime_type: str = "image/png"
    metadata: Mapping[str, Any] | None = None


@final
class Entry(Record):
    """A memory to add; a field that is None was not given.

    One that is brought from elsewhere has the times of its own, ISO 8601: it is stored beside the
    last memory of its thread even if that has the same text. `updated_at` alone is no such time.
    """

    thread: str
    source: MemorySource
    text: str
    metadata: Mapping[str, Any] | None = None
    tags: Sequence[str] | None = None
    images: Sequence[Image] | None = None
    created_at: str | None = None
    updated_at: str | None = None


class Change(Record):
    """A change of one memory; a field that is None stays as it is.

    `metadata_patch` is a JSON Merge Patch (RFC 7396).
    """

    id: int
    text: str | None = None
    metadata: Mapping[str, Any] | None = None
    metadata_patch: Mapping[str, Any] | None = None
    tags: Sequence[str] | None = None
    images: Sequence[Image] | None = None


class Memory(Record):
    """A text that an agent or a user stored in a thread.

    `images` is empty unless the call that returned the memory asked for images.
    """

    id: int
    thread: str
    source: MemorySource
    text: str
    content_type: ContentType
    metadata: Mapping[str, Any] | None
    tags: tuple[str, ...]
    images: tuple[Image, ...]
    created_at: str
    updated_at: str


class Stored(Record):
    """The result of adding a memory.

    `status` is "repeated" where the same source had stored the same text last in that thread: that
    memory was updated and no new one was stored. `note` is the reason why the memory has no
    embedding yet, "" if it has one.
    """

    status: Literal["added", "repeated"]
    memory: Memory
    note: str = ""

    @property
    def id(self) -> int:
        """The memory's id."""
        return self.memory.id


class Updated(Record):
    """The result of changing a memory.

    `fields` names what was written: text, metadata, tags, images, content_type, embedding. `note`
    is the reason why a new text has no embedding yet, "" if it has one.
    """

    memory: Memory
    fields: tuple[str, ...]
    note: str = ""


class Outcome(Record, Generic[T]):
    """The result of one item of a batch, or its error; `index` is the item's place, from 0."""

    index: int
    result: T | None = None
    error: MCPVectorDBError | None = None


class Thread(Record):
    """Counts of one thread; `sources` counts distinct sources, `last_id` is its newest memory."""

    name: str
    memories: int
    sources: int
    multimodal: int
    first_at: str
    last_at: str
    last_id: int


class MemoryStats(Record):
    """Counts of everything stored as memories.

    `embedded` counts the memories whose chunks all have an embedding. `unavailable` has the reason
    why vector search ("vector") or the cross-encoder ("rerank") cannot run on this machine; what
    can run has no entry. `most_active_threads` and `top_tags` are (name, count), highest first.
    """

    memories: int
    by_source: Mapping[str, int]
    by_content_type: Mapping[str, int]
    images: int
    tags: int
    threads: int
    chunks: int
    embedded: int
    unavailable: Mapping[str, str]
    most_active_threads: tuple[tuple[str, int], ...]
    top_tags: tuple[tuple[str, int], ...]
