"""Libraries: their names, the folders that they follow, and the descriptions of their parts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw

from mcpvectordb import dates
from mcpvectordb.documents.confirmed_folders import ConfirmedFolders, FollowedLibrary
from mcpvectordb.errors import LONGEST_QUOTE, InvalidInput, NotFound, Unreadable, quoted
from mcpvectordb.history.log import History
from mcpvectordb.history.versions import LOCAL, Item, Version, VersionedShelf
from mcpvectordb.ingest import gitignore
from mcpvectordb.ingest.globs import compile_glob
from mcpvectordb.metadata import decode_list, storable
from mcpvectordb.records import Library
from mcpvectordb.search.why_empty import unknown_name
from mcpvectordb.storage.file import File

_FIELDS = ("root", "pattern", "ignore", "description", "created_at")
NAMES = "SELECT name FROM libraries UNION SELECT library FROM published_documents"
"""The SQL that selects the names of all libraries."""


def checked_name(library: str) -> str:
    """`library` if it is a valid name of a library; raises InvalidInput."""
    if len(storable(library, "library", blank=False)) > 200:
        raise InvalidInput(f"library is {len(library)} characters long; a name has at most 200")
    return library


class LibraryVersions(VersionedShelf):
    """Libraries that follow a folder, with their descriptions, as items of the history."""

    shelf, noun = "libraries", "library"
    key, identity = "name", "name = :name"
    select = (
        f"SELECT name, stamp, inode, {', '.join(_FIELDS)}, (SELECT json_group_object(path, text) "
        "FROM (SELECT path, text FROM library_notes WHERE library = l.name ORDER BY path)) "
        "FROM libraries l"
    )

    def __init__(self, file: File, history: History) -> None:
        self._file, self.history = file, history

    def keep(self, sql: apsw.Connection, name: str) -> None:
        """Keep a library as it is, before its row changes; one that is not there is new."""
        if (found := self.find(sql, Item(self.shelf, "", name))) is not None:
            self.history.keep(sql, found)

    def mark(self, sql: apsw.Connection, name: str) -> None:
        """Note that a library was changed in this transaction, or removed."""
        stamp = self.history.stamp(sql)
        sql.execute("UPDATE libraries SET stamp = ? WHERE name = ?", (stamp, name))
        if not sql.changes():
            self.history.bury(sql, Item(self.shelf, "", name))

    @classmethod
    def version(cls, sql: apsw.Connection, row: Sequence[Any]) -> Version:
        """The version in a row."""
        name, stamp, inode, *values, notes = row
        fields = dict(zip(_FIELDS, values, strict=True))
        fields |= {"notes": json.loads(notes), LOCAL: {"inode": inode}}
        return Version(Item(cls.shelf, "", name), stamp, fields)

    @classmethod
    def check(cls, version: Version, content: None = None) -> None:
        """Raise an error unless a version has what a library has."""
        fields = version.fields or {}
        for name in _FIELDS:
            storable(fields[name], name)
        storable(version.item.name, "name", blank=False)
        if version.item.place or version.item.twin:
            raise InvalidInput("a library is in no other one")
        dates.check_stored(fields["created_at"])
        storable(version.local["inode"], "inode")
        decode_list(fields["ignore"])
        for path, text in fields["notes"].items():
            storable(path, "a path"), storable(text, "a note")

    @classmethod
    def line(cls, version: Version) -> dict[str, Any]:
        """A library as an export has it."""
        fields = version.fields or {}
        return {
            "name": version.item.name,
            **{name: fields[name] for name in _FIELDS},
            "ignore": decode_list(fields["ignore"]),
            "notes": fields["notes"],
        }

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> Version:
        """The library of such a line, which may say anything; raises InvalidInput."""
        ignore, notes = line.get("ignore", []), line.get("notes")
        if not isinstance(ignore, list) or not isinstance(notes, Mapping):
            raise InvalidInput("ignore is not a list, or notes is not an object")
        check_selection(storable(line.get("pattern"), "pattern"), ignore)
        storable(line.get("root"), "root", blank=False)
        fields = {name: line.get(name) for name in _FIELDS}
        fields |= {
            "ignore": json.dumps(ignore),
            "created_at": dates.parse(line.get("created_at"), "created_at"),
            "notes": notes,
            LOCAL: {"inode": ""},
        }
        version = Version(Item(cls.shelf, "", checked_name(line.get("name", ""))), 0, fields)
        cls.check(version)
        return version

    def restore(self, version: Version, content: None = None) -> None:
        """Let a library follow its folder again; its folder may have to be confirmed again."""
        name, fields = version.item.name, version.fields or {}
        columns = (name, *(fields[each] for each in _FIELDS), version.local["inode"])
        with self._file.writing() as sql:
            self.keep(sql, name)
            sql.execute("DELETE FROM library_notes WHERE library = ?", (name,))
            sql.execute(
                f"INSERT INTO libraries (name, {', '.join(_FIELDS)}, inode) "
                f"VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
                + ", ".join(f"{each} = excluded.{each}" for each in (*_FIELDS, "inode")),
                columns,
            )
            sql.executemany(
                "INSERT INTO library_notes (library, path, text) VALUES (?, ?, ?)",
                ((name, path, text) for path, text in fields["notes"].items()),
            )
            self.mark(sql, name)

    def remove(self, item: Item) -> None:
        """Let a library follow no folder; its documents stay."""
        with self._file.writing() as sql:
            if self.find(sql, item) is not None:
                self.keep(sql, item.name)
                sql.execute("DELETE FROM libraries WHERE name = ?", (item.name,))
                self.mark(sql, item.name)


def put(
    sql: apsw.Connection, versions: LibraryVersions, library: FollowedLibrary, description: str
) -> None:
    """Add a library that follows a folder, or change the options of the one with this folder."""
    check_selection(library.pattern, library.ignore)
    storable(description, "description")
    known = sql.execute("SELECT root FROM libraries WHERE name = ?", (library.name,)).fetchone()
    if known and known[0] != library.root:
        raise InvalidInput(
            f"the library {quoted(library.name)} already follows {known[0]}; remove it first, "
            "or choose another name"
        )
    versions.keep(sql, library.name)
    sql.execute(
        "INSERT INTO libraries (name, root, inode, pattern, ignore, description, created_at) "
        "VALUES (?, ?, '', ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET pattern = "
        "excluded.pattern, ignore = excluded.ignore, description = excluded.description",
        (
            library.name,
            library.root,
            library.pattern,
            json.dumps(list(library.ignore)),
            description,
            dates.now(),
        ),
    )
    versions.mark(sql, library.name)


def unfollow(sql: apsw.Connection, versions: LibraryVersions, name: str) -> None:
    """Stop following the folder of a library; its descriptions are removed, its documents stay."""
    known = [each for (each,) in sql.execute(NAMES)]
    if checked_name(name) not in known:
        raise NotFound(unknown_name("library", name, known))
    versions.keep(sql, name)
    sql.execute("DELETE FROM libraries WHERE name = ?", (name,))
    if sql.changes():
        versions.mark(sql, name)


def describe(
    sql: apsw.Connection, versions: LibraryVersions, name: str, path: str, text: str
) -> None:
    """Set the description of a library (path "") or of a part of it; a blank text removes it."""
    parts = _parts(followed(sql, name)[0].root, storable(path, "path"))
    if ".." in parts:
        raise InvalidInput(f"{quoted(path)} is outside of the library; name a path inside of it")
    storable(text, "text")
    versions.keep(sql, name)
    if not parts:
        sql.execute("UPDATE libraries SET description = ? WHERE name = ?", (text, name))
    elif text.strip():
        sql.execute(
            "INSERT OR REPLACE INTO library_notes (library, path, text) VALUES (?, ?, ?)",
            (name, "/".join(parts), text),
        )
    else:
        sql.execute(
            "DELETE FROM library_notes WHERE library = ? AND path = ?", (name, "/".join(parts))
        )
    versions.mark(sql, name)


def descriptions(sql: apsw.Connection, name: str, path: str) -> list[str]:
    """The descriptions of a library and of the folders down to a path, general to specific."""
    found = sql.execute(
        "SELECT root, description FROM libraries WHERE name = ?", (storable(name, "library"),)
    ).fetchone()
    notes = dict(sql.execute("SELECT path, text FROM library_notes WHERE library = ?", (name,)))
    if not found:
        return []
    parts = _parts(found[0], storable(path, "path"))
    of_parts = (notes.get("/".join(parts[:length]), "") for length in range(1, len(parts) + 1))
    return [text for text in (found[1], *of_parts) if text.strip()]


def one_time(
    name: str, root: str | os.PathLike[str], pattern: str, ignore: Sequence[str] = ()
) -> FollowedLibrary:
    """A library with a folder that is looked into once, without an entry in the database."""
    _check_pattern(pattern)
    return FollowedLibrary(checked_name(name), _folder(root), pattern, tuple(ignore))


def every(sql: apsw.Connection, folders: ConfirmedFolders) -> list[Library]:
    """The libraries that have documents or follow a folder, sorted by name."""
    rows = sql.execute(
        "SELECT n.name, "
        "(SELECT count(*) FROM published_documents d WHERE d.library = n.name), "
        "(SELECT count(*) FROM published_documents d JOIN document_chunks c "
        "ON c.owner = d.key WHERE d.library = n.name), max(l.root), max(l.pattern), "
        "max(l.ignore), max(l.description), max(l.created_at) "
        f"FROM ({NAMES}) n LEFT JOIN libraries l ON l.name = n.name "
        "GROUP BY n.name ORDER BY n.name"
    )
    return [
        Library(
            name=name,
            documents=documents,
            chunks=chunks,
            root=root or "",
            pattern=pattern or "",
            ignore=tuple(json.loads(ignore or "[]")),
            description=description or "",
            created_at=created_at or "",
            confirmed=root is not None
            and folders.has(FollowedLibrary(name, root, pattern, tuple(json.loads(ignore)))),
        )
        for name, documents, chunks, root, pattern, ignore, description, created_at in rows
    ]


def followed(sql: apsw.Connection, name: str | None = None) -> list[FollowedLibrary]:
    """The libraries that follow a folder, sorted by name, or only the one with this name."""
    rows = sql.execute(
        "SELECT name, root, pattern, ignore FROM libraries WHERE name = coalesce(?, name) "
        "ORDER BY name",
        (None if name is None else storable(name, "library"),),
    )
    found = [
        FollowedLibrary(each, root, pattern, tuple(json.loads(ignore)))
        for each, root, pattern, ignore in rows
    ]
    if name is not None and not found:
        raise NotFound(
            f"no library {quoted(name)} follows a folder; add it with `mcpvectordb library add "
            f"{name[:LONGEST_QUOTE]} FOLDER`"
        )
    return found


def check_selection(pattern: str, ignore: Sequence[str]) -> None:
    """Refuse a pattern or rules that cannot select files of a folder (InvalidInput)."""
    _check_pattern(pattern)
    gitignore.of_patterns(storable(each, "ignore") for each in ignore)


def _check_pattern(pattern: str) -> None:
    compile_glob(storable(pattern, "pattern", blank=False))
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise InvalidInput(
            f"the pattern {quoted(pattern)} must be relative to the folder, for example **/*.md"
        )


def _folder(root: str | os.PathLike[str]) -> str:
    """The absolute path of a folder with links resolved; raises Unreadable."""
    try:
        folder = Path(root).expanduser().resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise Unreadable(
            f"{quoted(os.fspath(root))} cannot be a library's folder: {reason} (working folder: "
            f"{Path.cwd()})"
        ) from None
    if not folder.is_dir():
        raise Unreadable(f"{folder} is a file; a library needs a folder")
    return storable(str(folder), "root")


def _parts(root: str, path: str) -> list[str]:
    """The parts of a path inside a library; it may be absolute, or relative to the folder."""
    native = Path(path)
    if native.is_absolute() and native.is_relative_to(root):
        path = native.relative_to(root).as_posix()
    return [part for part in path.split("/") if part not in ("", ".")]
