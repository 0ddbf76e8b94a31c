"""Documents as versions of the history: what one was, and the text that it had.

A stored document's text never changes: another text is another row with another key. So a version
of which only the metadata was replaced names the key of the stored document as its body, and the
text is packed, once, when that document is removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apsw

from mcpvectordb.errors import Damaged
from mcpvectordb.history.log import History
from mcpvectordb.history.versions import LOCAL, Item, Version, pack, unpack
from mcpvectordb.index import spans
from mcpvectordb.ingest.span import Span

SHELF = "documents"
_FIELDS = ("title", "hash", "file_type", "size", "created_at", "metadata", "given")
# The id by which this copy knows it, and what its source said when it was read on this machine.
_LOCAL = ("id", "modified", "etag", "mtime_ns")
_SELECT = (
    f"SELECT key, library, source, twin, stamp, {', '.join((*_FIELDS, *_LOCAL))}, "
    "(SELECT count(*) FROM document_chunks WHERE owner = key) FROM published_documents"
)


class DocumentVersions:
    """Keeps the versions of documents that are replaced, changed or removed."""

    def __init__(self, history: History, long: int) -> None:
        self.history, self._long = history, long

    def packed_long(self, sql: apsw.Connection, keys: Iterable[int]) -> dict[int, bytes]:
        """The packed bodies of those documents that are long, to be made before a transaction."""
        return {
            key: packed_body(sql, key)
            for key in keys
            if sql.execute("SELECT count(*) FROM document_chunks WHERE owner = ?", (key,)).get
            > self._long
        }

    @contextlib.contextmanager
    def changing(self, sql: apsw.Connection, key: int) -> Iterator[int]:
        """Keep a document as it is before its row is changed in this block, to have this stamp.

        In another library, or with another source, it is another item: the old one is deleted.
        """
        found = by_key(sql, key)
        if found is not None:
            self.history.keep(sql, found)
        yield self.history.stamp(sql)
        after = by_key(sql, key)
        if found is not None and (after is None or after.item != found.item):
            self.bury_missing(sql, [found.item])

    def keep_whole(
        self, sql: apsw.Connection, keys: Iterable[int], packed: Mapping[int, bytes] | None = None
    ) -> list[Item]:
        """Keep documents with their texts, before they are removed; returns what they are."""
        items = []
        for key in keys:
            found = by_key(sql, key)
            if found is not None:
                items.append(found.item)
                if self.history.keeps(sql):
                    known = self.history.has_body(sql, found.body)
                    body = (packed or {}).get(key) or (None if known else packed_body(sql, key))
                    self.history.keep(sql, found, body)
        return items

    def bury_missing(self, sql: apsw.Connection, items: Iterable[Item]) -> None:
        """Note of those items that are not there any more that they were deleted."""
        for item in items:
            if find(sql, item) is None:
                self.history.bury(sql, item)


def by_key(sql: apsw.Connection, key: int) -> Version | None:
    """The version of a stored document; None if readers do not see it."""
    row = sql.execute(f"{_SELECT} WHERE key = ?", (key,)).fetchone()
    return None if row is None else _version(row)


def find(sql: apsw.Connection, item: Item) -> Version | None:
    """The present version of an item; None if there is none."""
    row = sql.execute(
        f"{_SELECT} WHERE library = ? AND source = ? AND twin = ? ORDER BY key DESC", item[1:]
    ).fetchone()
    return None if row is None else _version(row)


def present(sql: apsw.Connection, stamps: Collection[int] | None = None) -> Iterator[Version]:
    """The present versions of all documents, or of those that were changed at these stamps."""
    chosen = "" if stamps is None else " WHERE stamp IN (SELECT value FROM json_each(?))"
    bindings = () if stamps is None else (str(list(stamps)),)
    for row in sql.execute(f"{_SELECT}{chosen} ORDER BY key", bindings):
        yield _version(row)


def key_of(version: Version) -> int:
    """The key of the stored document whose text a version has; 0 if it is none."""
    name = version.body or b""
    return int(name) if len(name) < 16 and name.isdigit() else 0


def _version(row: Sequence[Any]) -> Version:
    key, library, source, twin, stamp, *values, chunks = row
    fields = dict(zip(_FIELDS, values, strict=False))
    local = dict(zip(_LOCAL, values[len(_FIELDS) :], strict=True))
    item = Item(SHELF, library, source, twin)
    fields |= {"chunks": chunks, LOCAL: local}
    return Version(item, stamp, fields, str(key).encode())


def packed_body(sql: apsw.Connection, key: int) -> bytes:
    """The text of a document and the places of its chunks, packed."""
    text, found = spans.stored(sql, "document_chunks", key)
    return pack([text, spans.places(found)])


def unpacked_body(body: bytes) -> tuple[str, list[Span]]:
    """The text and the spans of its chunks in a packed body; raises Damaged."""
    try:
        text, places = unpack(body)
        return text, spans.checked(text, places)
    except (ValueError, TypeError):
        raise Damaged("a document in the history is not what was written") from None
