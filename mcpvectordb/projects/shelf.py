"""`Database.projects`: which project a folder belongs to, by what the file remembers of it.

A project is a name. Its memories are in the threads NAME and NAME/…, its documents in the libraries
NAME and NAME/…, and in those that follow a folder inside of the project's own. The table of
settings has two kinds of rows for it:

project:KEY        the names that the project with this key has had, and since when, as stamps. KEY
                   is git:<first commit>, path:<folder> or name:<a name that was given>.
repository:FOLDER  the first commit of the repository at a folder of this machine, which only git
                   knows, and the mark of the repository (`folders.mark`) of which that was asked

A key keeps its former names, so that an undo of a rename also undoes it here: its name is the last
one under which anything is stored. Merged files have the names of both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mcpvectordb.errors import Damaged
from mcpvectordb.history import clock
from mcpvectordb.projects import folders
from mcpvectordb.projects.folders import AUTO, ProjectFolder, checked_name
from mcpvectordb.records import Record
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.store import OpenStore

PROJECT, REPOSITORY = "project:", "repository:"


class Project(Record):
    """A project as it is known for a folder.

    key      git:<first commit>, path:<folder>, or name:<name> if the name was given
    folder   the top of the repository or worktree, else the folder itself
    """

    name: str
    key: str
    folder: Path


class Projects:
    """Which project a folder belongs to; see `Database.projects`."""

    def __init__(self, store: OpenStore) -> None:
        self._file, self._config = store.file, store.config

    def resolve(self, folder: str | os.PathLike[str] = ".") -> Project:
        """The project that a folder belongs to; a new one is remembered.

        It is the one that `Config.project` names, else the one that a file `.mcpvectordb.toml`
        names (project = "name") in the folder or above it up to the top of its repository, else
        that of the repository, which is known by its first commit, else the folder's own. Clones
        of one repository are one project, wherever they are moved to. In a file that is open for
        reading only nothing is remembered.
        """
        found = folders.find(folder)
        given = self._config.project if self._config.project != AUTO else ""
        given = checked_name(given, "project (MCPVECTORDB_PROJECT)") if given else found.given
        with self._file.reading() as sql:
            key = f"name:{given}" if given else self._known_key(sql, found)
            if key is not None and (names := _names(sql, key)):
                return Project(name=_current(sql, names), key=key, folder=found.root)
        if key is None:
            key = self._asked_key(found)
        if self._file.read_only:
            with self._file.reading() as sql:
                name = given or self._first_name(sql, key, found)
            return Project(name=name, key=key, folder=found.root)
        with self._file.writing() as sql:
            if not (names := _names(sql, key)):
                names = {given or self._first_name(sql, key, found): _next_stamp(sql)}
                _remember(sql, key, names)
                if key.startswith("git:"):  # it is not what another folder at this place will be
                    _forget(sql, folders.path_key(found.home))
            return Project(name=_current(sql, names), key=key, folder=found.root)

    def _known_key(self, sql: Sql, found: ProjectFolder) -> str | None:
        """The key of a folder; None if git has to be asked for it."""
        if found.repository is None:
            return folders.path_key(found.root)
        known = _setting(sql, REPOSITORY + _path(found.root))
        if known.get("mark") == folders.mark(found.repository):
            return f"git:{known['first']}" if known["first"] else folders.path_key(found.home)
        return None if folders.has_root(found.repository) else folders.path_key(found.home)

    def _asked_key(self, found: ProjectFolder) -> str:
        """The key of a repository, for which git is asked, and the answer remembered."""
        if found.repository is None:
            raise AssertionError  # the key of a folder is known without git
        first = folders.first_commit(found.repository)
        if first is not None and not self._file.read_only:
            known = {"first": first, "mark": folders.mark(found.repository)}
            with self._file.writing() as sql:
                _put(sql, REPOSITORY + _path(found.root), known)
        return f"git:{first}" if first else folders.path_key(found.home)

    def _first_name(self, sql: Sql, key: str, found: ProjectFolder) -> str:
        """The name of a project that is new: that of its folder, if no other project has it.

        A repository whose folder was a project before, when it had no commit, is the same one.
        """
        if names := _names(sql, folders.path_key(found.home)):
            return _current(sql, names)
        taken = {name for each in _all(sql).values() for name in each}
        name, number = found.first_name, 1
        while name in taken:
            number += 1
            name = f"{found.first_name}-{number}"
        return name


def merge(sql: Sql, other: Sql) -> None:
    """Take the projects of another file, too; raises Damaged for values that are never written."""
    for key, theirs in _all(other).items():
        for name, stamp in theirs.items():
            checked_name(name)
            if not isinstance(stamp, int) or not 0 <= stamp <= clock.LAST:
                raise Damaged(f"the project {name!r:.100} has the stamp {stamp!r:.50}")
        ours = _names(sql, key)
        _remember(sql, key, {**theirs, **ours, **_later(theirs, ours)})


def _later(some: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    return {name: max(some[name], others[name]) for name in some.keys() & others.keys()}


def inside(name: str) -> tuple[str, str]:
    """The bounds, the second not included, of the names of threads that begin with NAME/."""
    return f"{name}/", f"{name}0"  # the character after the slash


def _current(sql: Sql, names: Mapping[str, int]) -> str:
    """The last of the names under which anything is stored; if nothing is, the last."""
    last_first = sorted(names, key=lambda each: (names[each], each), reverse=True)
    if len(last_first) == 1:
        return last_first[0]
    return next((each for each in last_first if _is_used(sql, each)), last_first[0])


def _is_used(sql: Sql, name: str) -> bool:
    """Whether a memory or document belongs to this name of a project."""
    found = " OR ".join(
        f"EXISTS (SELECT 1 FROM {table} WHERE {column} = ?1) "
        f"OR EXISTS (SELECT 1 FROM {table} WHERE {column} >= ?2 AND {column} < ?3)"
        for table, column in (("contexts", "thread"), ("published_documents", "library"))
    )
    return bool(sql.execute(f"SELECT {found}", (name, *inside(name))).get)


def _all(sql: Sql) -> dict[str, dict[str, int]]:
    """The names of each key."""
    rows: Iterable[Any] = sql.execute(
        "SELECT name, value FROM settings WHERE name >= 'project:' AND name < 'project;'"
    )
    return {name.removeprefix(PROJECT): _decoded(value) for name, value in rows}


def _names(sql: Sql, key: str) -> dict[str, int]:
    return _setting(sql, PROJECT + key)


def _forget(sql: Sql, key: str) -> None:
    sql.execute("DELETE FROM settings WHERE name = ?", (PROJECT + key,))


def _remember(sql: Sql, key: str, names: Mapping[str, int]) -> None:
    _put(sql, PROJECT + key, names)


def _next_stamp(sql: Sql) -> int:
    """A stamp after all that names of projects have, and not before the file's clock."""
    last = max((stamp for names in _all(sql).values() for stamp in names.values()), default=0)
    return max(last + 1, int(sql.execute("SELECT clock FROM history_state").get))


def _setting(sql: Sql, name: str) -> dict[str, Any]:
    return _decoded(sql.execute("SELECT value FROM settings WHERE name = ?", (name,)).get or "{}")


def _put(sql: Sql, name: str, value: Mapping[str, Any]) -> None:
    sql.execute(
        "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)",
        (name, json.dumps(value, ensure_ascii=False)),
    )


def _decoded(value: str) -> dict[str, Any]:
    """A value of ours; empty if somebody else wrote it."""
    found = json.loads(value)
    return found if isinstance(found, dict) else {}


def _path(folder: Path) -> str:
    return folders.path_key(folder).removeprefix("path:")
