"""Which folders the libraries of a file may read on this machine; kept outside of the file.

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

import hashlib
import json
import os
import shlex
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from mcpvectordb.config import Config
from mcpvectordb.errors import Refused, Unreadable, Unwritable, quoted
from mcpvectordb.storage.file import File


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
            _replace(path, json.dumps(confirmed, indent=2).encode())
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
        if not _same(self._confirmed(library.name), self._identity(library)):
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
        with suppress(OSError):
            self._path(name).unlink()

    def _how(self, library: FollowedLibrary) -> str:
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


def _same(confirmed: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether two identities are of one folder.

    Either the path or the device may change: a folder is moved and linked to, and a disk gets
    another number when the machine starts.
    """
    same = {name for name in now if confirmed.get(name) == now[name]}
    return "inode" in same and len(same) > 1


def _replace(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all; mkstemp makes it for its owner only."""
    number, name = tempfile.mkstemp(prefix=".confirmed-", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
