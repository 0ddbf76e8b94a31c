"""Libraries: their names, the folders that they follow, and which of these may be read here.

A file may come from anywhere, and whoever wrote it chose the folders that its libraries follow. So
what a person has agreed to is kept in this user's data folder: the place of the file, the name of
the library, its folder (by path and inode) and the patterns that select files of it. Everything
must be the same when the library is synced; otherwise nothing is read until it is confirmed again:
the file that is now in this place may name another folder, and the folder may be another one. A
file that was moved or copied is another file.

Each confirmation is a file of its own, which is replaced as a whole: processes that confirm at the
same time need no lock, and none of them loses what another one wrote.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mcpvectordb import dates
from mcpvectordb.config import Config
from mcpvectordb.errors import (
    LONGEST_QUOTE,
    InvalidInput,
    NotFound,
    Refused,
    Unreadable,
    Unwritable,
    quoted,
)
from mcpvectordb.history.log import History
from mcpvectordb.history.versions import LOCAL, Item, Version, VersionedShelf
from mcpvectordb.ingest.globs import compile_glob, rules_of_patterns
from mcpvectordb.metadata import decode_list, library_name, storable
from mcpvectordb.storage.dialect import SQLITE, Sql
from mcpvectordb.storage.file import File
from mcpvectordb.storage.new_file import replace_private

_FIELDS = ("root", "pattern", "ignore", "description", "created_at")
FOLDERS_KEPT = 20  # that a library was ingested from
NAMES = "SELECT name FROM libraries UNION SELECT library FROM published_documents"
"""The SQL that selects the names of all libraries."""


class FollowedLibrary(NamedTuple):
    """A library with the folder `root` that it follows."""

    name: str
    root: str
    pattern: str
    ignore: tuple[str, ...]


def bounds(folder: str) -> tuple[str, str]:
    """The texts between which the paths below a folder sort, neither of them one of these."""
    prefix = os.path.join(folder, "")  # noqa: PTH118 - the slash at the end is wanted
    return prefix, prefix[:-1] + chr(ord(os.sep) + 1)


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

    @contextlib.contextmanager
    def changing(self, sql: Sql, name: str) -> Iterator[None]:
        """Keep a library as it is before this block changes it; one that is not there is new."""
        item = Item(self.shelf, "", name)
        if (found := self.find(sql, item)) is not None:
            self.history.keep(sql, found)
        yield
        stamp = self.history.stamp(sql)
        sql.execute("UPDATE libraries SET stamp = ? WHERE name = ?", (stamp, name))
        if not sql.changes():
            self.history.bury(sql, item)

    @classmethod
    def version(cls, sql: Sql, row: Sequence[Any]) -> Version:
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
        version = Version(Item(cls.shelf, "", library_name(line.get("name", ""))), 0, fields)
        cls.check(version)
        return version

    def restore(self, version: Version, content: None = None) -> None:
        """Let a library follow its folder again; its folder may have to be confirmed again."""
        name, fields = version.item.name, version.fields or {}
        columns = (name, *(fields[each] for each in _FIELDS), version.local["inode"])
        with self._file.writing() as sql, self.changing(sql, name):
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

    def remove(self, item: Item) -> None:
        """Let a library follow no folder; its documents stay."""
        with self._file.writing() as sql:
            if self.find(sql, item) is not None:
                ingested_from(sql, item.name, root(sql, item.name))
                with self.changing(sql, item.name):
                    sql.execute("DELETE FROM libraries WHERE name = ?", (item.name,))


def one_time(
    name: str, root: str | os.PathLike[str], pattern: str, ignore: Sequence[str] = ()
) -> FollowedLibrary:
    """A library with a folder that is looked into once, without an entry in the database.

    The folder's path is absolute, with links resolved. Raises Unreadable if there is none.
    """
    check_selection(pattern, ignore)
    library_name(name)
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
    return FollowedLibrary(name, storable(str(folder), "root"), pattern, tuple(ignore))


def followed(sql: Sql, name: str | None = None) -> list[FollowedLibrary]:
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


def folders(root: str | None, others: str | None) -> list[str]:
    """The folders below which paths of a library were shown, of these columns; the present first.

    A path that was shown before it had this one still finds its document.
    """
    found = json.loads(others or "[]")
    known = found if isinstance(found, list) else []
    return list(dict.fromkeys(each for each in (root, *known) if isinstance(each, str) and each))


def folders_of(sql: Sql, name: str) -> list[str]:
    """The folders below which paths of the library with this name were shown."""
    columns = f"{SQLITE.root}, {SQLITE.folders}"
    return folders(*sql.execute(f"SELECT {columns} FROM (SELECT ? AS library) d", (name,)).get)


def root(sql: Sql, name: str) -> str:
    """The folder below which a library has its files; "" if there is none."""
    return next(iter(folders_of(sql, name)), "")


def ingested_from(sql: Sql, name: str, folder: str) -> None:
    """Let the paths of a library that follows no folder be those below the one it is ingested from.

    After ingests from several folders it is the one that holds them all.
    """
    before = folders_of(sql, name)
    if (
        before
        and sql.execute(
            "SELECT 1 FROM published_documents WHERE library = ? AND source > ? AND source < ?",
            (name, *bounds(before[0])),
        ).fetchone()
    ):
        with contextlib.suppress(ValueError):  # on another drive
            folder = os.path.commonpath([before[0], folder])
    sql.execute(
        "INSERT OR REPLACE INTO settings (name, value) VALUES ('folders:' || ?, ?)",
        (name, json.dumps(list(dict.fromkeys([folder, *before]))[:FOLDERS_KEPT])),
    )


def check_selection(pattern: str, ignore: Sequence[str]) -> None:
    """Refuse a pattern or rules that cannot select files of a folder (InvalidInput)."""
    compile_glob(storable(pattern, "pattern", blank=False))
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise InvalidInput(
            f"the pattern {quoted(pattern)} must be relative to the folder, for example **/*.md"
        )
    rules_of_patterns(storable(each, "ignore") for each in ignore)


def parts(root: str, path: str) -> list[str]:
    """The parts of a path inside a library; it may be absolute, or relative to the folder."""
    native = Path(path)
    if native.is_absolute() and native.is_relative_to(root):
        path = native.relative_to(root).as_posix()
    return [part for part in path.split("/") if part not in ("", ".")]


class ConfirmedFolders:
    """The confirmed folders of the libraries of one file."""

    def __init__(self, file: File) -> None:
        # Nobody else can have written to a database in memory.
        self._in_memory: dict[str, dict[str, Any]] | None = {} if file.memory else None
        self._database = os.path.realpath(file.path)

    def confirm(self, library: FollowedLibrary) -> None:
        """Let a library read its folder as it is now; raises Unreadable or Unwritable."""
        confirmed = self._wanted(library) | self._identity(library)
        if self._in_memory is not None:
            self._in_memory[library.name] = confirmed
            return
        path = self._path(library.name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_private(path, json.dumps(confirmed, indent=2).encode())
        except OSError as error:
            raise Unwritable(
                f"the folder {quoted(library.root)} cannot be confirmed, because {path} cannot be "
                f"written: {error.strerror}"
            ) from None

    def has(self, library: FollowedLibrary) -> bool:
        """Whether the library was confirmed on this machine as it is in the file now."""
        confirmed, wanted = self._confirmed(library.name), self._wanted(library)
        return {name: confirmed.get(name) for name in wanted} == wanted

    def check(self, library: FollowedLibrary) -> None:
        """Raise Refused unless the library was confirmed as it is and its folder is still the same.

        A folder that is missing is Unreadable: its files were not deleted.
        """
        if not self.has(library):
            raise Refused(
                f"the library {quoted(library.name)} of {self._database} wants to read the folder "
                f"{quoted(library.root)} (files: {quoted(library.pattern)}), which was not "
                f"confirmed on this machine; nothing was read. {self._how(library)}"
            )
        confirmed, now = self._confirmed(library.name), self._identity(library)
        same = {name for name in now if confirmed.get(name) == now[name]}
        # Either the path or the device may change: a folder is moved and linked to, and a disk gets
        # another number when the machine starts.
        if "inode" not in same or len(same) < 2:
            raise Refused(
                f"the folder {library.root} of the library {quoted(library.name)} is not the one "
                "that was confirmed: its disk is not mounted, or it was replaced; nothing was read "
                f"or removed. Mount it. {self._how(library)}"
            )

    def forget(self, name: str) -> None:
        """Take the confirmation of a library back, if there is one."""
        if self._in_memory is not None:
            self._in_memory.pop(name, None)
            return
        with contextlib.suppress(OSError):
            self._path(name).unlink()

    def _how(self, library: FollowedLibrary) -> str:
        import shlex

        command = shlex.join(
            ["mcpvectordb", "--db", self._database, "library", "confirm", library.name]
        )
        return f"If it may be read, run: {command}"

    def _path(self, name: str) -> Path:
        key = hashlib.sha256(f"{self._database}\0{name}".encode(errors="surrogateescape"))
        return Config.data_folder() / "confirmed" / f"{key.hexdigest()}.json"

    def _confirmed(self, name: str) -> dict[str, Any]:
        """The confirmation of a library; empty if there is none or it cannot be read."""
        if self._in_memory is not None:
            return self._in_memory.get(name, {})
        try:
            found = json.loads(self._path(name).read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _wanted(self, library: FollowedLibrary) -> dict[str, Any]:
        """What the file says, and a confirmation must repeat."""
        return {
            "database": self._database,
            "library": library.name,
            "root": library.root,
            "pattern": library.pattern,
            "ignore": list(library.ignore),
        }

    def _identity(self, library: FollowedLibrary) -> dict[str, Any]:
        """Which folder is at the root now; raises Unreadable."""
        try:
            info = os.stat(library.root)  # noqa: PTH116 - a path as it is kept in the file
            folder = os.path.realpath(library.root)
        except (OSError, ValueError) as error:
            raise Unreadable(
                f"the folder {quoted(library.root)} of the library {quoted(library.name)} cannot "
                f"be read: {getattr(error, 'strerror', None) or error}; nothing was removed. Mount "
                "its disk, or remove the library"
            ) from None
        return {"folder": folder, "device": info.st_dev, "inode": info.st_ino}
