"""Libraries that follow a folder, with their descriptions, as versions of the history."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import apsw

from mcpvectordb import dates
from mcpvectordb.errors import Damaged
from mcpvectordb.history.log import History
from mcpvectordb.history.versions import LOCAL, Item, Version
from mcpvectordb.metadata import decode_list, storable
from mcpvectordb.storage.file import File

SHELF = "libraries"
_FIELDS = ("root", "pattern", "ignore", "description", "created_at")
_SELECT = (
    f"SELECT name, stamp, inode, {', '.join(_FIELDS)}, (SELECT json_group_object(path, text) "
    "FROM library_notes WHERE library = l.name) FROM libraries l"
)


class LibraryVersions:
    """Keeps versions of libraries that are changed or removed, and restores them."""

    shelf = SHELF

    def __init__(self, file: File, history: History) -> None:
        self._file, self.history = file, history

    def keep(self, sql: apsw.Connection, name: str) -> None:
        """Keep a library as it is, before its row changes; one that is not there is new."""
        if (found := self.find(sql, Item(SHELF, "", name))) is not None:
            self.history.keep(sql, found)

    def mark(self, sql: apsw.Connection, name: str) -> None:
        """Note that a library was changed in this transaction, or removed."""
        stamp = self.history.stamp(sql)
        sql.execute("UPDATE libraries SET stamp = ? WHERE name = ?", (stamp, name))
        if not sql.changes():
            self.history.bury(sql, Item(SHELF, "", name))

    def find(self, sql: apsw.Connection, item: Item) -> Version | None:
        """The present version of a library; None if it follows no folder."""
        row = sql.execute(f"{_SELECT} WHERE name = ?", (item.name,)).fetchone()
        return None if row is None else _version(row)

    def present(
        self, sql: apsw.Connection, stamps: Collection[int] | None = None
    ) -> Iterator[Version]:
        """The present versions of all libraries, or of those changed at these stamps."""
        for row in sql.execute(f"{_SELECT} ORDER BY name"):
            if stamps is None or row[1] in stamps:
                yield _version(row)

    def body(self, sql: apsw.Connection, version: Version) -> bytes:
        """Nothing: all is in the fields."""
        return b""

    def text(self, body: bytes) -> str:
        """Nothing: a library has no text."""
        return ""

    def label(self, sql: apsw.Connection, version: Version) -> str:
        """The library's name."""
        return version.item.name

    def owner(self, version: Version) -> int:
        """None: a library has no chunks."""
        return 0

    def check(self, version: Version, body: bytes) -> None:
        """Raise Damaged unless a version has what a library has."""
        _checked_notes(version)

    def restore(self, version: Version, body: bytes) -> None:
        """Let a library follow its folder again; its folder may have to be confirmed again."""
        name, fields = version.item.name, version.fields or {}
        notes = _checked_notes(version)
        with self._file.writing() as sql:
            self.keep(sql, name)
            sql.execute("DELETE FROM library_notes WHERE library = ?", (name,))
            columns = (name, *(fields[each] for each in _FIELDS), version.local["inode"])
            sql.execute(
                f"INSERT INTO libraries (name, {', '.join(_FIELDS)}, inode) "
                f"VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
                + ", ".join(f"{each} = excluded.{each}" for each in (*_FIELDS, "inode")),
                columns,
            )
            sql.executemany(
                "INSERT INTO library_notes (library, path, text) VALUES (?, ?, ?)",
                ((name, path, text) for path, text in notes.items()),
            )
            self.mark(sql, name)

    def remove(self, item: Item) -> None:
        """Let a library follow no folder; its documents stay."""
        with self._file.writing() as sql:
            if self.find(sql, item) is not None:
                self.keep(sql, item.name)
                sql.execute("DELETE FROM libraries WHERE name = ?", (item.name,))
                self.mark(sql, item.name)


def _version(row: Sequence[Any]) -> Version:
    name, stamp, inode, *values, notes = row
    fields = dict(zip(_FIELDS, values, strict=True))
    fields |= {"notes": json.loads(notes), LOCAL: {"inode": inode}}
    return Version(Item(SHELF, "", name), stamp, fields)


def _checked_notes(version: Version) -> dict[str, str]:
    """The descriptions of the parts of a library; raises Damaged if anything is not as written."""
    try:
        fields = version.fields or {}
        for text in (version.item.name, *(fields[each] for each in _FIELDS)):
            storable(text, "library")
        if version.item.place or version.item.twin or not version.item.name.strip():
            raise ValueError
        dates.check_stored(fields["created_at"])
        storable(version.local["inode"], "inode")
        decode_list(fields["ignore"])
        notes: dict[str, str] = fields["notes"]
        for path, text in notes.items():
            storable(path, "path"), storable(text, "text")
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        raise Damaged(f"the library {version.item.name!r:.100} is not what was written") from None
    return notes
