"""The records of memories, frozen and keyword-only as in `records`, and what may be in them.

A check returns a normalized value or raises InvalidInput or TooLarge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Literal, TypeVar, final

from mcpvectordb import dates, metadata
from mcpvectordb.config import Config, how_to_allow
from mcpvectordb.errors import InvalidInput, MCPVectorDBError, TooLarge, quoted
from mcpvectordb.metadata import storable, whole_number
from mcpvectordb.records import Record

T = TypeVar("T")
Item = TypeVar("Item", "Entry", "Change")
Choice = TypeVar("Choice", bound=str)

MemorySource = Literal["user", "agent"]
ContentType = Literal["text", "multimodal"]
Provenance = Literal["person", "agent", "document", "web"]
Words = Literal["any", "match", "prefix", "phrase", "boolean"]

SOURCES: tuple[MemorySource, ...] = ("user", "agent")
CONTENT_TYPES: tuple[ContentType, ...] = ("text", "multimodal")
# The most trusted first.
PROVENANCES: tuple[Provenance, ...] = ("person", "agent", "document", "web")
# Of a memory that does not say its own.
PROVENANCE_OF_SOURCE: Mapping[str, Provenance] = {"user": "person", "agent": "agent"}
MAX_NAME_CHARACTERS = 1_000
MAX_TAGS = 1_000
MAX_THREADS = 10_000


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
    For `valid_from`, `valid_to`, `replaces` and `provenance` see `Memories.add`.
    """

    thread: str
    source: MemorySource
    text: str
    metadata: Mapping[str, Any] | None = None
    tags: Sequence[str] | None = None
    images: Sequence[Image] | None = None
    created_at: str | None = None
    updated_at: str | None = None
    valid_from: str | None = None
    valid_to: str | None = None
    replaces: int | None = None
    provenance: Provenance | None = None


class Change(Record):
    """A change of one memory; a field that is None stays as it is.

    `metadata_patch` is a JSON Merge Patch (RFC 7396). For `valid_from`, `valid_to` and `provenance`
    see `Memories.update`.
    """

    id: int
    text: str | None = None
    metadata: Mapping[str, Any] | None = None
    metadata_patch: Mapping[str, Any] | None = None
    tags: Sequence[str] | None = None
    images: Sequence[Image] | None = None
    valid_from: str | None = None
    valid_to: str | None = None
    provenance: Provenance | None = None


class Memory(Record):
    """A text that an agent or a user stored in a thread.

    `images` is empty unless the call that returned the memory asked for images. What it says holds
    from `valid_from` (None: since it was created) to `valid_to` (None: no end is known), both
    included; `replaced_by` is the id of the memory that took its place. `provenance` says who or
    what it is from.
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
    provenance: Provenance
    valid_from: str | None = None
    valid_to: str | None = None
    replaced_by: int | None = None

    @property
    def validity(self) -> str:
        """When it holds and what replaced it, in words; "" if nothing is known of that."""
        told = []
        if self.valid_from is not None:
            told.append(f"valid from {_shown(self.valid_from)}")
        if self.valid_to is not None:
            told.append(f"{'' if told else 'valid '}to {_shown(self.valid_to, end=True)}")
        replaced = [] if self.replaced_by is None else [f"replaced by memory:{self.replaced_by}"]
        return ", ".join(filter(None, [" ".join(told), *replaced]))

    @property
    def place(self) -> str:
        """Its name in citations: memory:7."""
        return f"memory:{self.id}"


class Turn(Record):
    """A turn of a conversation, as a host has it in its transcript.

    `id` is the same whenever the turn is read, and no other turn has it; `time` is ISO 8601, ""
    if it is not known. `end` is where it ends in the transcript, in bytes.
    """

    id: str
    source: MemorySource
    text: str
    time: str = ""
    end: int = 0


class Stored(Record):
    """The result of adding a memory.

    `status` is "repeated" where the same source had stored the same text last in that thread: that
    memory was updated and no new one was stored. `note` is the reason why the memory has no
    embedding yet, "" if it has one. `redacted` says that secrets were left out, and of what kinds;
    "" if there were none.
    """

    status: Literal["added", "repeated"]
    memory: Memory
    note: str = ""
    redacted: str = ""

    @property
    def id(self) -> int:
        """The memory's id."""
        return self.memory.id


class Near(Record):
    """A memory that says nearly the same as a text; `same` if it does so in the same words.

    `contradiction` are the values in which they differ, that of the text and that of the memory:
    numbers, names, or whether there is a "not"; None if no such difference was found.
    """

    memory: Memory
    same: bool
    contradiction: tuple[str, str] | None


class Updated(Record):
    """The result of changing a memory.

    `fields` names what was written: text, metadata, tags, images, content_type, embedding,
    valid_from, valid_to. `note` is the reason why a new text has no embedding yet, "" if it has
    one. `redacted` says that secrets were left out, and of what kinds; "" if there were none.
    """

    memory: Memory
    fields: tuple[str, ...]
    note: str = ""
    redacted: str = ""


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


# What may be stored, and asked for.


def checked_entry(entry: Entry, config: Config) -> Entry:
    """The entry as it will be stored: trimmed, with normalized tags; InvalidInput or TooLarge."""
    if not isinstance(entry, Entry):
        raise InvalidInput(f"an entry to add must be an Entry, not {type(entry).__name__}")
    metadata.encode(entry.metadata)
    valid_from, valid_to = _bound(entry, "valid_from"), _bound(entry, "valid_to")
    check_period(valid_from, valid_to)
    return replace(
        entry,
        thread=checked_thread(entry.thread),
        source=one_of(entry.source, SOURCES, "source"),
        text=_text(entry.text, config),
        tags=None if entry.tags is None else normalized_tags(entry.tags),
        images=None if entry.images is None else _images(entry.images, config),
        created_at=_time(entry.created_at, "created_at"),
        updated_at=_time(entry.updated_at or entry.created_at, "updated_at"),
        replaces=None if entry.replaces is None else checked_id(entry.replaces),
        provenance=checked_provenance(entry.provenance),
        valid_from=valid_from,
        valid_to=valid_to,
    )


def checked_change(change: Change, config: Config) -> Change:
    """The change as it will be made: trimmed, with normalized tags; InvalidInput or TooLarge."""
    if not isinstance(change, Change):
        raise InvalidInput(f"a change must be a Change, not {type(change).__name__}")
    checked_id(change.id)
    given = (change.text, change.metadata, change.metadata_patch, change.tags, change.images)
    if all(value is None for value in (*given, change.valid_from, change.valid_to)):
        raise InvalidInput(
            "nothing to change was given: give text, metadata, metadata_patch, tags or images"
        )
    if change.metadata is not None and change.metadata_patch is not None:
        raise InvalidInput(
            "give either metadata, which replaces all of it, or metadata_patch, which changes "
            "parts of it"
        )
    metadata.encode(change.metadata)
    metadata.encode(change.metadata_patch, "metadata_patch")
    return replace(
        change,
        text=None if change.text is None else _text(change.text, config),
        tags=None if change.tags is None else normalized_tags(change.tags),
        images=None if change.images is None else _images(change.images, config),
        provenance=checked_provenance(change.provenance),
        valid_from=_bound(change, "valid_from"),
        valid_to=_bound(change, "valid_to"),
    )


def without_secrets(item: Item) -> tuple[Item, tuple[str, ...]]:
    """An entry or change with markers in place of secrets in text and metadata, and their kinds.

    What is stored already, or was exported from a file, is not changed: it comes another way.
    """
    from mcpvectordb.text.secrets import redacted, redacted_values  # for what is stored only

    kinds: tuple[str, ...] = ()
    given: dict[str, Any] = {}
    if item.text is not None:
        given["text"], kinds = redacted(item.text)
    for name in ("metadata", "metadata_patch"):
        if values := getattr(item, name, None):
            clean, more = redacted_values(values)
            if more:
                given[name], kinds = clean, kinds + more
    return (replace(item, **given) if kinds else item), kinds


def left_out(kinds: tuple[str, ...]) -> str:
    """That secrets were left out and of what kind, never what; "" for none."""
    if not kinds:
        return ""
    count = "one secret was" if len(kinds) == 1 else f"{len(kinds):,} secrets were"
    return f"{count} left out ({', '.join(dict.fromkeys(kinds))})"


def checked_provenance(provenance: object) -> Provenance | None:
    """`provenance` if it is one, or None."""
    return None if provenance is None else one_of(provenance, PROVENANCES, "provenance")


def less_trusted(first: Provenance, second: Provenance) -> Provenance:
    """The provenance of what two had a part in."""
    return max(first, second, key=PROVENANCES.index)


def check_period(valid_from: str | None, valid_to: str | None) -> None:
    """Raise InvalidInput if a period ends before it begins."""
    if valid_from and valid_to and valid_from > valid_to:
        raise InvalidInput(
            f"valid_from ({_shown(valid_from)}) lies after valid_to ({_shown(valid_to, end=True)})"
        )


def checked_id(id: object) -> int:
    """`id` if it is a whole number of 1 or more."""
    return whole_number(id, "the id of a context", 1)


def checked_ids(ids: int | Iterable[int]) -> list[int]:
    """One id or several as a list, if each is a whole number of 1 or more."""
    if isinstance(ids, int):
        return [checked_id(ids)]
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise InvalidInput(f"ids must be a list of whole numbers, not {quoted(ids)}")
    return [checked_id(id) for id in ids]


def checked_thread(thread: object) -> str:
    """The thread's name without surrounding white space."""
    return _name(thread, "thread")


def checked_threads(threads: Iterable[str]) -> list[str]:
    """The names without surrounding white space; a single string is one name."""
    given = [threads] if isinstance(threads, str) else threads
    names = [checked_thread(thread) for thread in given]
    if len(names) > MAX_THREADS:
        raise InvalidInput(
            f"{len(names):,} threads were given; name at most {MAX_THREADS:,} at once"
        )
    return names


def one_of(value: object, known: Sequence[Choice], name: str) -> Choice:
    """`value` if it is one of `known`."""
    for each in known:
        if value == each:
            return each
    raise InvalidInput(f"{name} must be {' or '.join(known)}, not {quoted(value)}")


def normalized_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Tags in lower case, without surrounding white space, blanks and duplicates, sorted."""
    if isinstance(tags, str | bytes) or not isinstance(tags, Iterable):
        raise InvalidInput(f"tags must be a list of texts, not {type(tags).__name__}")
    kept = sorted({_name(tag, "a tag").lower() for tag in tags if storable(tag, "a tag").strip()})
    if len(kept) > MAX_TAGS:
        raise InvalidInput(f"{len(kept)} tags were given; at most {MAX_TAGS} are kept")
    return tuple(kept)


def _bound(given: Entry | Change, name: Literal["valid_from", "valid_to"]) -> str | None:
    """An end of the period in which it holds, as it is stored; "" in a change removes it."""
    said: str | None = getattr(given, name)
    if said is None or (said == "" and isinstance(given, Change)):
        return said
    return dates.moment(said, name, end=name == "valid_to")


def _shown(time: str, *, end: bool = False) -> str:
    """A stored time in short: a day, where it is the first moment of one, or its last (`end`)."""
    whole = "T23:59:59.999999" if end else "T00:00:00.000000"
    return time[:10] if time[10:26] == whole else time[:19] + "Z"


def _time(time: str | None, name: str) -> str | None:
    return None if time is None else dates.parse(time, name)


def _name(text: object, name: str) -> str:
    trimmed = storable(text, name, blank=False).strip()
    if len(trimmed) > MAX_NAME_CHARACTERS:
        raise InvalidInput(
            f"{name} is {len(trimmed):,} characters long; it may have at most "
            f"{MAX_NAME_CHARACTERS:,}"
        )
    return trimmed


def _text(text: object, config: Config) -> str:
    trimmed = storable(text, "text", blank=False).strip()
    if (size := len(trimmed.encode())) > config.max_source_bytes:
        raise TooLarge(
            f"text is {size:,} bytes; at most {config.max_source_bytes:,} are stored "
            f"{how_to_allow('max_source_bytes')}"
        )
    return trimmed


def _images(images: Iterable[Image], config: Config) -> tuple[Image, ...]:
    if isinstance(images, str | bytes) or not isinstance(images, Iterable):
        raise InvalidInput(f"images must be a list of Image, not {type(images).__name__}")
    kept = tuple(_image(image, f"image {place}", config) for place, image in enumerate(images))
    if (size := sum(len(image.data) for image in kept)) > config.max_image_bytes_total:
        raise TooLarge(
            f"the images are {size:,} bytes together; at most {config.max_image_bytes_total:,} "
            "are stored"
        )
    return kept


def _image(image: object, name: str, config: Config) -> Image:
    if not isinstance(image, Image):
        raise InvalidInput(f"{name} must be an Image, not {type(image).__name__}")
    if not isinstance(image.data, bytes) or not image.data:
        raise InvalidInput(f"{name} has no data: give its bytes")
    if len(image.data) > config.max_image_bytes:
        raise TooLarge(
            f"{name} is {len(image.data):,} bytes; at most {config.max_image_bytes:,} are stored"
        )
    metadata.encode(image.metadata, f"{name}'s metadata")
    return replace(image, mime_type=_name(image.mime_type, f"{name}'s mime_type"))
