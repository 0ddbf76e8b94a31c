"""Walk through a folder: the files to ingest in the order of their paths, and why others are not.

Hidden files and folders, links and special files are skipped. The .gitignore and .mcpvectordbignore
files in the folder and below it apply; where both match, the latter wins. Links are never followed:
a target outside of the root was not asked for, and a target inside of it has a path of its own. So
no loop is possible.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mcpvectordb.errors import Unreadable
from mcpvectordb.ingest.globs import (
    EVERYTHING,
    IgnoreRules,
    compile_glob,
    rules_of_file,
    rules_of_patterns,
)
from mcpvectordb.ingest.sources import SIBLINGS

MOST_LISTED = 10_000
"""Number of skipped paths that are listed; all of them are counted."""
IGNORE_FILES = (".gitignore", ".mcpvectordbignore")
LARGEST_IGNORE_FILE = 1_000_000

# A kind of link on Windows; the function exists from Python 3.12 on.
_is_junction: Callable[[str], bool] = getattr(os.path, "isjunction", lambda path: False)


class _Scope(NamedTuple):
    """The ignore rules of one folder, for paths from `offset` on, and of the folders above."""

    rules: IgnoreRules
    offset: int
    above: _Scope | None


_Folder = tuple[Iterator[str], str, str, _Scope | None]
"""A folder on the stack of the walk: names still to visit (folders with a slash at the end), its
path, that from the root, and its ignore rules."""


class Skipped:
    """Paths that are not ingested: their number by reason (`counts`), and the first ones (`paths`).

    An ignored or hidden folder is one path.
    """

    def __init__(self, most: int = MOST_LISTED) -> None:
        self.counts: Counter[str] = Counter()
        self.paths: list[tuple[str, str]] = []
        self._most = most

    def add(self, path: str, reason: str) -> None:
        """Add a path; bytes of it that are not Unicode are escaped."""
        self.counts[reason] += 1
        if len(self.paths) < self._most:
            self.paths.append((path.encode(errors="backslashreplace").decode(), reason))

    def remove(self, path: str, reason: str) -> None:
        """Take back a path that was added."""
        self.counts[reason] -= 1
        if (path, reason) in self.paths:
            self.paths.remove((path, reason))

    def __add__(self, other: Skipped) -> Skipped:
        both = Skipped(self._most)
        both.counts = self.counts + other.counts
        both.paths = sorted(self.paths + other.paths)[: self._most]
        return both


class Walk:
    """Iterate once over (absolute path, stat) of each file; afterwards `skipped` has the rest.

    `too_large` has the size of each file above `limit` bytes, and `failures` a message for each
    path that could not be examined: its content is unknown, not deleted. `ignore` has patterns as
    in a .gitignore, which win over the ignore files; `databases` are always left out.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        limit: int,
        pattern: str = EVERYTHING,
        ignore: Sequence[str] = (),
        databases: Collection[Path] = (),
    ) -> None:
        self.skipped = Skipped()
        self.too_large: dict[str, int] = {}
        self.failures: dict[str, str] = {}
        self._root = os.fspath(root)
        self._limit = limit
        self._matches = None if pattern == EVERYTHING else compile_glob(pattern).fullmatch
        self._given = rules_of_patterns(ignore) if ignore else None
        self._databases = {f"{path}{suffix}" for path in databases for suffix in SIBLINGS}

    def __iter__(self) -> Iterator[tuple[str, os.stat_result]]:
        stack = [self._entered(os.path.join(self._root, ""), "", None)]  # noqa: PTH118 - the slash at the end is wanted
        while stack:
            names, folder, above, scope = stack[-1]
            for name in names:
                path, relative = folder + name, above + name
                if name[-1] == os.sep:
                    relative = f"{above}{name[:-1]}/"
                    if not self._ignored(relative[:-1], name[:-1], scope, folder=True):
                        stack.append(self._entered(path, relative, scope))
                        break
                elif not self._ignored(relative, name, scope, folder=False) and (
                    self._matches is None or self._matches(relative)
                ):
                    info = self._examined(path)
                    if info is not None:
                        yield path, info
            else:
                stack.pop()

    def _entered(self, path: str, relative: str, scope: _Scope | None) -> _Folder:
        """Open a folder; one that cannot be read is a failure and has no names."""
        try:
            names, ignore_files = self._listed(path)
            found = [_ignore_file(path + each) for each in IGNORE_FILES if each in ignore_files]
            if found:
                scope = _Scope(rules_of_file("\n".join(found)), len(relative), scope)
            return iter(sorted(names)), path, relative, scope
        except (FileNotFoundError, NotADirectoryError):
            if not relative:
                raise Unreadable(f"{self._root} is not a folder, or is not there") from None
        except OSError as error:
            failed = path.rstrip(os.sep) or os.sep
            self.failures[failed] = f"{path} cannot be read: {error.strerror}"
        return iter(()), path, relative, scope

    def _listed(self, path: str) -> tuple[list[str], list[str]]:
        """The names to visit (the slash of folders sorts them like paths) and ignore files."""
        names, ignore_files = [], []
        with os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                is_file = entry.is_file(follow_symlinks=False)
                if name[0] == ".":
                    if is_file and name in IGNORE_FILES:
                        ignore_files.append(name)
                    else:
                        self.skipped.add(path + name, "hidden")
                elif is_file and (name.isascii() or _is_unicode(name)):
                    names.append(name)
                elif reason := _skip_reason(entry, self._root):
                    self.skipped.add(path + name, reason)
                else:
                    names.append(name + os.sep)
        return names, ignore_files

    def _ignored(self, relative: str, name: str, scope: _Scope | None, *, folder: bool) -> bool:
        ignored = self._given.ignores(relative, name, folder=folder) if self._given else None
        while scope is not None and ignored is None:
            ignored = scope.rules.ignores(relative[scope.offset :], name, folder=folder)
            scope = scope.above
        if ignored:
            self.skipped.add(os.path.join(self._root, relative), "ignored")  # noqa: PTH118 - cheap
        return bool(ignored)

    def _examined(self, path: str) -> os.stat_result | None:
        try:
            info = os.lstat(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.failures[path] = f"{path} cannot be read: {error.strerror}"
            return None
        if info.st_size > self._limit:
            self.skipped.add(path, "too large")
            self.too_large[path] = info.st_size
        elif path in self._databases:
            self.skipped.add(path, "the database itself")
        else:
            return info
        return None


def _skip_reason(entry: os.DirEntry[str], root: str) -> str:
    """Why an entry is skipped; "" for a folder to enter."""
    if not _is_unicode(entry.name):
        return "name is not Unicode"
    if not entry.is_symlink() and not _is_junction(entry.path):
        return "" if entry.is_dir(follow_symlinks=False) else "not a file"
    target = os.path.realpath(entry.path)
    if not os.path.exists(target):  # noqa: PTH110 - Path.exists raises without permission
        return "broken link"
    within = Path(target).is_relative_to(os.path.realpath(root))
    return f"link {'within' if within else 'out of'} the root"


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _ignore_file(path: str) -> str:
    # Decoded like file names, so that patterns match names that are not Unicode.
    with Path(path).open(encoding="utf-8", errors="surrogateescape") as file:
        text = file.read(LARGEST_IGNORE_FILE + 1)
    if len(text) > LARGEST_IGNORE_FILE:
        raise OSError(errno.EFBIG, f"its {Path(path).name} is too large")
    return text
