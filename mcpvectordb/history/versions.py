"""A version of an item: what a document, memory, vector or library was at one time.

The fields say what it was; its body, packed, has what is large. Versions have a total order: by
their stamps and, for changes that two copies of a file made at the same one, by a digest of the
fields. Two versions of equal stamp and digest are the same one.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import apsw

from mcpvectordb.errors import Damaged
from mcpvectordb.text import json_text

LOCAL = "local"
"""The field with what differs between copies of a file although the item is the same."""

MOST_UNPACKED = 400_000_000
SMALL_BODY, MOST_RATIO = 20_000_000, 100
"""A body from elsewhere must not fill the memory: it is at most 400 MB of JSON, at most 100 times
its packed size beyond the first 20 MB, and has no more values than `json_text.MOST_VALUES`."""

_LEVEL = 6


class Item(NamedTuple):
    """What stays the same while versions change, in every copy of a file.

    documents  library, source, twin      memories   "", uid, ""
    vectors    store, id, namespace       libraries  "", name, ""
    """

    shelf: str
    place: str
    name: str
    twin: str = ""


class Version(NamedTuple):
    """One version; without fields it says that the item was deleted at this stamp."""

    item: Item
    stamp: int
    fields: Mapping[str, Any] | None
    body: bytes | None = None

    @property
    def digest(self) -> bytes:
        """Of what it says, apart from what is local."""
        if self.fields is None:
            return b""
        said = {name: value for name, value in self.fields.items() if name != LOCAL}
        return hashlib.sha256(encoded(said).encode()).digest()[:16]

    @property
    def order(self) -> tuple[int, bytes]:
        """What versions of an item are sorted by; the last one is the one that counts."""
        return self.stamp, self.digest

    @property
    def local(self) -> Mapping[str, Any]:
        """The fields that differ between copies of a file."""
        found = (self.fields or {}).get(LOCAL)
        return found if isinstance(found, dict) else {}


class VersionedShelf(Protocol):
    """What undo and merge need of a shelf; methods with `sql` work in its transaction."""

    shelf: str

    def find(self, sql: apsw.Connection, item: Item) -> Version | None:
        """The present version of an item; None if there is none."""

    def present(
        self, sql: apsw.Connection, stamps: Collection[int] | None = None
    ) -> Iterator[Version]:
        """The present versions of all items, or of those that were changed at these stamps."""

    def body(self, sql: apsw.Connection, version: Version) -> bytes:
        """The packed body of a present version."""

    def restore(self, version: Version, body: bytes) -> None:
        """Make a version the present one again, as a change of its own."""

    def remove(self, item: Item) -> None:
        """Delete an item, if it is there."""

    def text(self, body: bytes) -> str:
        """The text of a packed body; "" if it has none."""

    def owner(self, version: Version) -> int:
        """The key of a present version's chunks; 0 on a shelf without chunks."""

    def check(self, version: Version, body: bytes) -> None:
        """Raise Damaged unless a version has the fields and the body of an item of this shelf.

        It may be of another file, whose maker may have written anything.
        """

    def label(self, sql: apsw.Connection, version: Version) -> str:
        """The name of a version's item, as people know it."""


def encoded(value: Any) -> str:
    """JSON text in which equal values are equal texts."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def pack(value: Any) -> bytes:
    """A value as compressed JSON, never so small that `unpack` would refuse it."""
    raw = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    packed = zlib.compress(raw, _LEVEL)
    return packed if len(raw) <= _most_unpacked(packed) else zlib.compress(raw, 0)


def unpack(body: bytes) -> Any:
    """The value of a packed body; raises Damaged."""
    try:
        reader = zlib.decompressobj()
        raw = reader.decompress(body, _most_unpacked(body) + 1)
        if not reader.eof or len(raw) > _most_unpacked(body):
            raise ValueError
        return json_text.loads(raw)
    except (zlib.error, ValueError):
        raise Damaged(
            "a version in the history is not what was written: run `mcpvectordb check`, then "
            "`rebuild`"
        ) from None


def _most_unpacked(body: bytes) -> int:
    return min(MOST_UNPACKED, SMALL_BODY + MOST_RATIO * len(body))


def body_name(content: bytes) -> bytes:
    """The name of a body that is kept once, however many versions have it."""
    return hashlib.sha256(content).digest()[:16]
