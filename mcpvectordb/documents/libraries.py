"""Libraries: their names, the folders that they follow, and the descriptions of their parts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import apsw

from mcpvectordb import dates
from mcpvectordb.documents.confirmed_folders import ConfirmedFolders, FollowedLibrary
from mcpvectordb.documents.library_versions import LibraryVersions
from mcpvectordb.errors import LONGEST_QUOTE, InvalidInput, NotFound, Unreadable, quoted
from mcpvectordb.ingest import gitignore
from mcpvectordb.ingest.globs import compile_glob
from mcpvectordb.metadata import storable
from mcpvectordb.records import Library
from mcpvectordb.search.why_empty import unknown_name
from mcpvectordb.storage.file import File

NAMES = "SELECT name FROM libraries UNION SELECT library FROM published_documents"
"""The SQL that selects the names of all libraries."""


def checked_name(library: str) -> str:
    """`library` if it is a valid name of a library; raises InvalidInput."""
    if len(storable(library, "library", blank=False)) > 200:
        raise InvalidInput(f"library is {len(library)} characters long; a name has at most 200")
    return library


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


def restore(
    file: File,
    versions: LibraryVersions,
    name: str,
    root: str,
    pattern: str,
    ignore: Sequence[str],
    description: str,
    created_at: str,
    notes: Mapping[str, str],
) -> None:
    """Add a library as another file had it; its folder need not be here, and is not confirmed."""
    checked_name(name)
    check_selection(pattern, ignore)
    with file.writing() as sql:
        sql.execute(
            "INSERT INTO libraries (name, root, inode, pattern, ignore, description, created_at) "
            "VALUES (?, ?, '', ?, ?, ?, ?)",
            (name, root, pattern, json.dumps(list(ignore)), description, created_at),
        )
        sql.executemany(
            "INSERT INTO library_notes (library, path, text) VALUES (?, ?, ?)",
            ((name, path, text) for path, text in notes.items()),
        )
        versions.mark(sql, name)


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
