"""A walk through a folder: which files are meant, in the order of their paths, and why the others
are not.

Hidden files and folders, links and what is not a file are passed over; .gitignore and
.mcpvectordbignore files in the folder and below it are obeyed, the second where both speak. Links
are never followed: one that leads out of the root leads out of what was asked for, and what one
within the root leads to has a path of its own. So no loop is possible.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mcpvectordb.errors import Unreadable
from mcpvectordb.ingest import gitignore
from mcpvectordb.ingest.gitignore import IgnoreRules
from mcpvectordb.ingest.globs import compile_glob
from mcpvectordb.ingest.sources import SIBLINGS

EVERYTHING = "**/*"
IGNORE_FILES = (".gitignore", ".mcpvectordbignore")
LARGEST_IGNORE_FILE = 1_000_000

_is_junction: Callable[[str], bool] = getattr(
    os.path, "isjunction", lambda path: False
)  # a link of Windows; Python 3.12


class _Scope(NamedTuple):
    """The rules of one folder, for paths from `offset` on, and of those above it."""

    rules: IgnoreRules
    offset: int
    above: _Scope | None


class _Folder(NamedTuple):
    """A folder that is being walked through: names left to visit, those of folders with a slash at
    their end.
    """

    names: Iterator[str]
    path: str
    relative: str
    scope: _Scope | None


class Walk:
    """Iterate it once for (absolute path, stat) of each file; then `skipped` counts what was passed
    over by reason.

    An ignored or hidden folder counts once. `too_large` has the size of each file above `limit`
    bytes, and `failures` a message for each path that could not be looked at: what lies there is
    unknown, not gone. `ignore` has patterns as in a .gitignore, and the last word; `databases` are
    left out, whatever the pattern.
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
        self.skipped: Counter[str] = Counter()
        self.too_large: dict[str, int] = {}
        self.failures: dict[str, str] = {}
        self._root = os.fspath(root)
        self._limit = limit
        self._fits = None if pattern == EVERYTHING else compile_glob(pattern).fullmatch
        self._own = gitignore.of_patterns(ignore) if ignore else None
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
                    self._fits is None or self._fits(relative)
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
            if ignore_files:
                text = "\n".join(
                    _ignore_file(path + name) for name in IGNORE_FILES if name in ignore_files
                )
                scope = _Scope(gitignore.of_file(text), len(relative), scope)
            return _Folder(iter(sorted(names)), path, relative, scope)
        except (FileNotFoundError, NotADirectoryError):
            if not relative:
                raise Unreadable(f"{self._root} is not a folder, or is not there") from None
        except OSError as error:
            self.failures[path.rstrip(os.sep) or os.sep] = (
                f"{path} cannot be read: {error.strerror}"
            )
        return _Folder(iter(()), path, relative, scope)

    def _listed(self, path: str) -> tuple[list[str], list[str]]:
        """The names to visit, and those of ignore files. With the slash of folders, names sort as
        the paths below them.
        """
        names, ignore_files = [], []
        with os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                is_file = entry.is_file(follow_symlinks=False)
                if name[0] == ".":
                    if is_file and name in IGNORE_FILES:
                        ignore_files.append(name)
                    else:
                        self.skipped["hidden"] += 1
                elif is_file and (name.isascii() or _is_unicode(name)):
                    names.append(name)
                elif reason := _why_not(entry, self._root):
                    self.skipped[reason] += 1
                else:
                    names.append(name + os.sep)
        return names, ignore_files

    def _ignored(self, relative: str, name: str, scope: _Scope | None, *, folder: bool) -> bool:
        ignored = self._own.ignores(relative, name, folder=folder) if self._own else None
        while scope is not None and ignored is None:
            ignored = scope.rules.ignores(relative[scope.offset :], name, folder=folder)
            scope = scope.above
        if ignored:
            self.skipped["ignored"] += 1
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
            self.skipped["too large"] += 1
            self.too_large[path] = info.st_size
        elif path in self._databases:
            self.skipped["the database itself"] += 1
        else:
            return info
        return None


def _why_not(entry: os.DirEntry[str], root: str) -> str:
    """Why an entry is passed over; "" for a folder that is entered."""
    if not _is_unicode(entry.name):
        return "name is not Unicode"
    if entry.is_symlink() or _is_junction(entry.path):
        return _kind_of_link(entry.path, root)
    return "" if entry.is_dir(follow_symlinks=False) else "not a file"


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind_of_link(path: str, root: str) -> str:
    target = os.path.realpath(path)
    if not os.path.exists(target):  # noqa: PTH110 - Path.exists raises where it may not look
        return "broken link"
    return (
        "link within the root"
        if Path(target).is_relative_to(os.path.realpath(root))
        else "link out of the root"
    )


def _ignore_file(path: str) -> str:
    with Path(path).open(
        encoding="utf-8", errors="surrogateescape"
    ) as file:  # as names of files are decoded
        text = file.read(LARGEST_IGNORE_FILE + 1)
    if len(text) > LARGEST_IGNORE_FILE:
        raise OSError(errno.EFBIG, f"its {Path(path).name} is too large")
    return text
