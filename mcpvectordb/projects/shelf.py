"""`Database.projects`: which project a folder belongs to, by what the file remembers of it.

A project is a name. Its memories are in the threads NAME and NAME/…, its documents in the libraries
NAME and NAME/…, and in those that follow a folder inside of the project's own. The table of
settings has two kinds of rows for it:

project:KEY        the names that the project with this key has had, and since when, as stamps. KEY
                   is git:<first commit>, path:<folder> or name:<a name that was given>.
repository:FOLDER  the first commit of the repository at a folder of this machine, which only git
                   knows, and the mark of the repository (`folders.mark`) of which that was asked

A key keeps its former names, so that an undo of a rename also undoes it here: its name is the first
one under which anything is stored, and after a rename nothing is under the old one. Merged files
have the names of both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mcpvectordb.documents import libraries
from mcpvectordb.errors import Damaged, InvalidInput, NotFound, quoted
from mcpvectordb.history import clock
from mcpvectordb.memories.rows import inside
from mcpvectordb.metadata import storable
from mcpvectordb.projects import folders
from mcpvectordb.projects.folders import AUTO, ProjectFolder, checked_name
from mcpvectordb.ranking.why_empty import unknown_name
from mcpvectordb.records import Progress, ProgressCallback, Record
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.store import OpenStore

if TYPE_CHECKING:
    from mcpvectordb.documents.shelf import Documents
    from mcpvectordb.memories.shelf import Memories

PROJECT, REPOSITORY = "project:", "repository:"
ALL = "all"
"""In place of a project's name: everything, where a project is set by the configuration."""

_BATCH = 500  # memories that are renamed in one transaction


class Project(Record):
    """A project as it is known for a folder.

    key      git:<first commit>, path:<folder>, or name:<name> if the name was given
    folder   the top of the repository or worktree, else the folder itself
    """

    name: str
    key: str
    folder: Path


class ListedProject(Record):
    """A project, by what it is known, and what belongs to it.

    keys      what its folders are known by; see `Project.key`
    threads   its conversations, and the thread of its own name
    last_at   when its newest memory was stored; "" if it has none
    """

    name: str
    keys: tuple[str, ...]
    memories: int
    threads: int
    documents: int
    last_at: str


class ProjectScope(NamedTuple):
    """A project, and all libraries whose documents belong to it.

    The library of its own name is always named, whether it exists or not.
    """

    name: str
    libraries: list[str]

    def inside(self, name: str) -> str:
        """The thread or library that a name means, which may leave out that of the project.

        Without a name it is the one that is called like the project.
        """
        known = name in self.libraries or name.startswith(f"{self.name}/")
        return (name if known else f"{self.name}/{name}") if name else self.name


class Projects:
    """Which project a folder belongs to, and what belongs to it; see `Database.projects`."""

    def __init__(
        self, store: OpenStore, documents: Callable[[], Documents], memories: Memories
    ) -> None:
        self._file, self._config, self._history = store.file, store.config, store.history
        self._documents, self._memories = documents, memories

    def resolve(self, folder: str | os.PathLike[str] = ".", *, remember: bool = True) -> Project:
        """The project that a folder belongs to; a new one is remembered.

        It is the one that `Config.project` names, else the one that a file `.mcpvectordb.toml`
        names (project = "name") in the folder or above it up to the top of its repository, else
        that of the repository, which is known by its first commit, else the folder's own. Clones
        of one repository are one project, wherever they are moved to. In a file that is open for
        reading only, and with `remember=False`, nothing is remembered.
        """
        remember = remember and not self._file.read_only
        found = folders.find(folder)
        given = self._config.project if self._config.project != AUTO else ""
        given = checked_name(given, "project (MCPVECTORDB_PROJECT)") if given else found.given
        with self._file.reading() as sql:
            key = f"name:{given}" if given else self._known_key(sql, found)
            if key is not None and (names := _names(sql, key)):
                return Project(name=_current(sql, names), key=key, folder=found.root)
        if key is None:
            key = self._asked_key(found, remember)
        if not remember:
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

    def chosen(
        self, name: str = "", *, folder: str | os.PathLike[str] = ".", new: bool = False
    ) -> str | None:
        """The project that a person or an agent means, None for everything.

        `name` is one of its names, "auto" for the project of the folder, "all" for everything, or
        "" for what `Config.project` says. An unknown name raises NotFound; a `new` one, under which
        something will be stored, is remembered.
        """
        given = name.strip() or self._config.project
        if given in ("", ALL):
            return None
        if given == AUTO or not name.strip():
            return self.resolve(folder, remember=new or not name.strip()).name
        checked_name(given)
        with self._file.reading() as sql:
            every = known_names(sql)
            known = {_current(sql, names) for names in every.values()}
            used = _is_used(sql, given)
            former = next((names for names in every.values() if given in names), None)
            if not used and given not in known and former is not None:
                return _current(sql, former)
        if new and given not in known and not self._file.read_only:
            with self._file.writing() as sql:
                _remember(sql, f"name:{given}", {given: _next_stamp(sql)})
        if new or used or given in known:
            return given
        raise NotFound(unknown_name("project", given, sorted(known)))

    def scope(self, name: str) -> ProjectScope:
        """What belongs to a project: the name of its threads, and its libraries."""
        with self._file.reading() as sql:
            places = _folders(sql)
            found = [name]
            for (library,) in sql.execute(f"SELECT name FROM ({libraries.NAMES}) n ORDER BY name"):
                if library.startswith(f"{name}/"):
                    found.append(library)
            for library, root in sql.execute("SELECT name, root FROM libraries ORDER BY name"):
                above = [each for each in places if _holds(each, root)]
                if above and places[max(above, key=len)] == name and library not in found:
                    found.append(library)
        return ProjectScope(name, found)

    def browse(self) -> list[ListedProject]:
        """All projects that a folder was resolved to, or that were named, the last used first."""
        with self._file.reading() as sql:
            keys: dict[str, list[str]] = {}
            for key, names in known_names(sql).items():
                keys.setdefault(_current(sql, names), []).append(key)
            found = []
            for name, known in keys.items():
                memories, threads, last_at = sql.execute(
                    "SELECT count(*), count(DISTINCT thread), coalesce(max(created_at), '') "
                    "FROM contexts WHERE thread = ? OR thread >= ? AND thread < ?",
                    (name, *inside(name)),
                ).get
                where = {"library": {"in": self.scope(name).libraries}}
                found.append(
                    ListedProject(
                        name=name,
                        keys=tuple(sorted(known)),
                        memories=memories,
                        threads=threads,
                        documents=self._documents().count(where=where),
                        last_at=last_at,
                    )
                )
        return sorted(found, key=lambda each: (each.last_at, each.name), reverse=True)

    def rename(self, name: str, to: str, *, progress: ProgressCallback | None = None) -> int:
        """Give a project another name; the number of memories and documents that were moved.

        Threads and libraries of its name are renamed, as one change that `undo` takes back. After
        a kill the same call continues. Raises InvalidInput if another project has the name.
        """
        old, new = self._known(name), checked_name(to)
        with self._file.reading() as sql:
            begun = any(old in names and new in names for names in known_names(sql).values())
            known = {_current(sql, names) for names in known_names(sql).values()}
            if not begun and (new in known or _is_used(sql, new)):
                raise InvalidInput(f"there is a project {quoted(new)} already: merge them instead")
        return self._put_into(old, new, progress)

    def merge(self, name: str, into: str, *, progress: ProgressCallback | None = None) -> int:
        """Put a project into another one; see `rename`.

        Raises InvalidInput if both have the same document.
        """
        old, new = self._known(name), self._known(into)
        if old == new:
            raise InvalidInput(f"{quoted(name)} and {quoted(into)} are one project already")
        return self._put_into(old, new, progress)

    def move(self, name: str, folder: str | os.PathLike[str]) -> Project:
        """Let a folder belong to a project, as after a folder without a repository was moved.

        Folders of the project that are not there any more are forgotten.
        """
        project, found = self._known(name), folders.find(folder)
        if not found.root.is_dir():
            raise InvalidInput(f"there is no folder {quoted(os.fspath(folder))}")
        if found.given:
            raise InvalidInput(
                f"{found.root} belongs to the project {quoted(found.given)} by its "
                f"{folders.NAME_FILE}: change that file"
            )
        with self._file.reading() as sql:
            key = self._known_key(sql, found)
        key = key or self._asked_key(found)
        with self._file.writing() as sql:
            for each, names in known_names(sql).items():
                left = each.removeprefix("path:")
                if each != left and _current(sql, names) == project and not os.path.isdir(left):  # noqa: PTH112
                    _forget(sql, each)
            _remember(sql, key, {project: _next_stamp(sql)})
        return Project(name=project, key=key, folder=found.root)

    def _known(self, name: str) -> str:
        """The present name of a project that there is; raises NotFound."""
        return self.chosen(checked_name(name)) or ""

    def _put_into(self, old: str, new: str, progress: ProgressCallback | None) -> int:
        with self._history.change("rename project"):
            with self._file.writing() as sql:
                for key, names in known_names(sql).items():
                    if _current(sql, names) == old:
                        _remember(sql, key, {**names, new: _next_stamp(sql)})
                total = self._memories.count(project=old)
            moved = self._documents().rename_libraries(old, new)
            total += moved
            while some := self._memories.rename_threads(old, new, most=_BATCH):
                moved += some
                if progress:
                    progress(Progress(step="rename", done=moved, total=total))
        return moved

    def _known_key(self, sql: Sql, found: ProjectFolder) -> str | None:
        """The key of a folder; None if git has to be asked for it."""
        if found.repository is None:
            return folders.path_key(found.root)
        known = _setting(sql, REPOSITORY + _path(found.root))
        if known.get("mark") == folders.mark(found.repository):
            return f"git:{known['first']}" if known["first"] else folders.path_key(found.home)
        return None if folders.has_root(found.repository) else folders.path_key(found.home)

    def _asked_key(self, found: ProjectFolder, remember: bool = True) -> str:
        """The key of a repository, for which git is asked, and the answer remembered."""
        if found.repository is None:
            raise AssertionError  # the key of a folder is known without git
        first = folders.first_commit(found.repository)
        if first is not None and remember:
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
        taken = {name for each in known_names(sql).values() for name in each}
        name, number = found.first_name, 1
        while name in taken:
            number += 1
            name = f"{found.first_name}-{number}"
        return name


def unite(sql: Sql, key: str, theirs: Mapping[Any, Any]) -> None:
    """Add names that the project with a key has had elsewhere; raises Damaged or InvalidInput."""
    for name, stamp in theirs.items():
        checked_name(name)
        if not isinstance(stamp, int) or not 0 <= stamp <= clock.LAST:
            raise Damaged(f"the project {name!r:.100} has the stamp {stamp!r:.50}")
    ours = _names(sql, storable(key, "settings"))
    _remember(sql, key, {**theirs, **ours, **_later(theirs, ours)})


def _later(some: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    return {name: max(some[name], others[name]) for name in some.keys() & others.keys()}


def _folders(sql: Sql) -> dict[str, str]:
    """The names of projects by the folders that they are known to be in."""
    every = {key: _current(sql, names) for key, names in known_names(sql).items()}
    found = {key.removeprefix("path:"): name for key, name in every.items() if key[:5] == "path:"}
    for folder, known in _rows(sql, REPOSITORY):
        if name := every.get(f"git:{known.get('first')}"):
            found[folder] = name
    return found


def _holds(folder: str, path: str) -> bool:
    """Whether a path is a folder, or inside of it."""
    return path == folder or path.startswith(libraries.bounds(folder)[0])


def _current(sql: Sql, names: Mapping[str, int]) -> str:
    """The first of the names under which anything is stored; if nothing is, the last."""
    in_order = sorted(names, key=lambda each: (names[each], each))
    used = (each for each in in_order[:-1] if _is_used(sql, each))
    return next(used, in_order[-1])


def _is_used(sql: Sql, name: str) -> bool:
    """Whether a memory or document belongs to this name of a project."""
    found = " OR ".join(
        f"EXISTS (SELECT 1 FROM {table} WHERE {column} = ?1) "
        f"OR EXISTS (SELECT 1 FROM {table} WHERE {column} >= ?2 AND {column} < ?3)"
        for table, column in (("contexts", "thread"), ("published_documents", "library"))
    )
    return bool(sql.execute(f"SELECT {found}", (name, *inside(name))).get)


def known_names(sql: Sql) -> dict[str, dict[str, int]]:
    """The names of each key."""
    return {key: names for key, names in _rows(sql, PROJECT) if names}


def _rows(sql: Sql, prefix: str) -> list[tuple[str, dict[str, Any]]]:
    """What follows the prefix in the names of settings, with their values."""
    rows: Iterable[Any] = sql.execute(
        "SELECT name, value FROM settings WHERE name >= ? AND name < ? ORDER BY name",
        (prefix, f"{prefix[:-1]};"),
    )
    return [(name.removeprefix(prefix), _decoded(value)) for name, value in rows]


def _names(sql: Sql, key: str) -> dict[str, int]:
    return _setting(sql, PROJECT + key)


def _forget(sql: Sql, key: str) -> None:
    sql.execute("DELETE FROM settings WHERE name = ?", (PROJECT + key,))


def _remember(sql: Sql, key: str, names: Mapping[str, int]) -> None:
    _put(sql, PROJECT + key, names)


def _next_stamp(sql: Sql) -> int:
    """A stamp after all that names of projects have, and not before the file's clock."""
    last = max(
        (stamp for names in known_names(sql).values() for stamp in names.values()), default=0
    )
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
