"""The file or folder that is imported, as far as a kind needs it to recognise and read it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from mcpvectordb.errors import Unreadable, UnsupportedFormat
from mcpvectordb.importers.foreign_database import (
    MAGIC,
    ForeignDatabase,
    copy_stable,
    snapshot,
)
from mcpvectordb.storage.schema import APPLICATION_ID

HEAD_BYTES = 65_536


class Copies:
    """Makes copies of parts of a source, in a private folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def snapshot(self, path: Path) -> Path:
        """A copy of a SQLite database as of one moment."""
        return snapshot(path, self.folder)

    def beside(self, path: Path, folder: str, files: Sequence[str]) -> Path:
        """A copy of these files of a folder beside a file, as far as they exist."""
        copy = self.folder / f"{folder}-files"
        copy.mkdir(exist_ok=True)
        copy_stable([(path.parent / folder / name, copy / name) for name in files], path)
        return copy


class ImportSource:
    """A file or folder to import; what must be copied to be read is copied by `copies`."""

    def __init__(self, path: Path, copies: Copies) -> None:
        self.path, self._copies = path, copies
        if not path.exists():
            raise Unreadable(f"{path} does not exist (working folder: {Path.cwd()})")
        self.is_folder = path.is_dir()
        if not self.is_folder and not path.is_file():
            raise Unreadable(f"{path} is a device or a pipe; name a file or a folder")
        if not os.access(path, os.R_OK):
            raise Unreadable(f"{path} may not be read: permission denied")
        self._inside: dict[str, ImportSource] = {}

    @cached_property
    def head(self) -> bytes:
        """The first bytes of a file; b"" for a folder."""
        if self.is_folder:
            return b""
        with self.path.open("rb") as file:
            return file.read(HEAD_BYTES)

    @property
    def is_ours(self) -> bool:
        """Whether it is a database of mcpvectordb, by its application id."""
        return self.database is not None and self.database.application_id == APPLICATION_ID

    @cached_property
    def database(self) -> ForeignDatabase | None:
        """A snapshot of the file if it is a SQLite database; None for other sources."""
        if not self.head.startswith(MAGIC):
            return None
        return ForeignDatabase(self.path, self._copies.snapshot(self.path))

    def sqlite(self, recognised: bool = True, what: str = "") -> ForeignDatabase:
        """The snapshot of a SQLite database; UnsupportedFormat if it is none.

        One that was not recognised as `what` is refused, unless it is damaged.
        """
        if self.database is None:
            raise UnsupportedFormat(f"{self.path} is not a SQLite database")
        if not recognised and not self.database.unread:
            raise UnsupportedFormat(
                f"{self.path} is not {what}: it has the tables {', '.join(self.database.columns)}"
            )
        return self.database

    def inside(self, file: str) -> ImportSource | None:
        """The file of this name in a folder, None if it has none; a file itself as it is."""
        if not self.is_folder or not file:
            return self
        if file not in self._inside and (self.path / file).is_file():
            self._inside[file] = ImportSource(self.path / file, self._copies)
        return self._inside.get(file)

    def beside(self, folder: str, files: Sequence[str]) -> Path:
        """A copy of these files of a folder beside the file, as far as they exist."""
        return self._copies.beside(self.path, folder, files)

    def close(self) -> None:
        """Close the snapshot of a database, if there is one."""
        for each in self._inside.values():
            each.close()
        if "database" in self.__dict__ and self.database is not None:
            self.database.close()
