"""A version of an item: what a document, memory, vector or library was at one time.

The fields say what it was; its body, packed, has what is large. Versions have a total order: by
their stamps and, for changes that two copies of a file made at the same one, by a digest of the
fields. Two versions of equal stamp and digest are the same one.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from mcpvectordb.errors import Damaged
from mcpvectordb.storage.dialect import Sql
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


class VersionedShelf(ABC):
    """All items of one kind: the one codec for history, undo, merge, export and import.

    A subclass says in SQL where its items are, and how one of its rows is a version. An item's
    content is what its body unpacks to; `line` is the item as an export writes it.
    """

    shelf: ClassVar[str]
    noun: ClassVar[str]
    select: ClassVar[str]
    key: ClassVar[str] = "key"
    stamp: ClassVar[str] = "stamp"
    identity: ClassVar[str]  # the condition for an item, by :place, :name and :twin

    @classmethod
    def where(cls, sql: Sql, condition: str, bindings: Any = ()) -> Iterator[Version]:
        """The present versions of the items that fulfil a condition, in the order of their keys."""
        for row in sql.execute(f"{cls.select} WHERE {condition} ORDER BY {cls.key}", bindings):
            yield cls.version(sql, row)

    @classmethod
    def find(cls, sql: Sql, item: Item) -> Version | None:
        """The present version of an item, the newest one; None if there is none."""
        # The plus keeps SQLite from reading all items in their order instead of using an index.
        row = sql.execute(
            f"{cls.select} WHERE {cls.identity} ORDER BY +{cls.key} DESC", item._asdict()
        ).fetchone()
        return None if row is None else cls.version(sql, row)

    @classmethod
    def by_key(cls, sql: Sql, key: int) -> Version | None:
        """The version of the row with this key; None if readers do not see it."""
        return next(cls.where(sql, f"{cls.key} = ?", (key,)), None)

    @classmethod
    def present(cls, sql: Sql, stamps: Collection[int] | None = None) -> Iterator[Version]:
        """The present versions of all items, or of those that were changed at these stamps."""
        if stamps is None:
            return cls.where(sql, "1")
        chosen = f"{cls.stamp} IN (SELECT value FROM json_each(?))"
        return cls.where(sql, chosen, (json.dumps(list(stamps)),))

    @classmethod
    @abstractmethod
    def version(cls, sql: Sql, row: Sequence[Any]) -> Version:
        """The version in a row of `select`."""

    @classmethod
    def body(cls, sql: Sql, version: Version) -> bytes:
        """The packed body of a present version; b"" where all is in the fields."""
        return b""

    @classmethod
    def content(cls, body: bytes) -> Any:
        """What a packed body holds; raises Damaged."""
        return None

    @classmethod
    @abstractmethod
    def check(cls, version: Version, content: Any) -> None:
        """Raise an error unless this library could have written a version with this content.

        It may be of another file, whose maker may have written anything.
        """

    @classmethod
    def checked(cls, version: Version, body: bytes) -> Any:
        """The content of a version's body; raises Damaged unless both are as they are written."""
        try:
            content = cls.content(body)
            cls.check(version, content)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            raise Damaged(
                f"the {cls.noun} {version.item.name!r:.100} is not what was written"
            ) from None
        return content

    @classmethod
    def text(cls, body: bytes) -> str:
        """The text of a packed body; "" if it has none."""
        return ""

    @classmethod
    def label(cls, sql: Sql, version: Version) -> str:
        """The name of a version's item, as people know it."""
        return version.item.name

    @classmethod
    def owner(cls, version: Version) -> int:
        """The key of a present version's chunks; 0 on a shelf without chunks."""
        return 0

    @abstractmethod
    def restore(self, version: Version, content: Any) -> None:
        """Make a version, which was checked, the present one, as a change of its own."""

    @abstractmethod
    def remove(self, item: Item) -> None:
        """Delete an item, if it is there."""


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
