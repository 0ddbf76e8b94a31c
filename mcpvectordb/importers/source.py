"""The file or folder that is imported, as far as a kind needs it to recognise and read it.

What may change while it is read is copied first: SQLite databases, and the files that belong to
one. The process that reads a source is given the folder with these copies.
"""

from __future__ import annotations

import glob
import os
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from mcpvectordb.errors import MCPVectorDBError, Unreadable, UnsupportedFormat
from mcpvectordb.importers.foreign_database import (
    MAGIC,
    ForeignDatabase,
    copy_stable,
    snapshot,
)
from mcpvectordb.storage.schema import APPLICATION_ID

HEAD_BYTES = 65_536


class ImportSource:
    """A file or folder to import; `copies` is the folder with what was copied of it.

    `beside` is the folder with copies of the files that belong to it (`ImportKind.beside`), where
    each has its relative path without "..".
    """

    def __init__(self, path: Path, copies: Path, name: str = "source") -> None:
        self.path, self._copies = path, copies
        self._snapshot, self.beside = copies / f"{name}.db", copies / f"{name}-files"
        if not path.exists():
            raise Unreadable(f"{path} does not exist (working folder: {Path.cwd()})")
        self.is_folder = path.is_dir()
        if not self.is_folder and not path.is_file():
            raise Unreadable(f"{path} is a device or a pipe; name a file or a folder")
        if not os.access(path, os.R_OK):
            raise Unreadable(f"{path} may not be read: permission denied")
        self._inside: dict[str, ImportSource] = {}

    def copy(self, beside: Iterable[str]) -> None:
        """Copy it, if it is a database, and the files beside it that match these patterns."""
        if not self.head.startswith(MAGIC):
            return
        try:
            if not self._snapshot.exists():
                snapshot(self.path, self._snapshot)
            self._copy_beside(beside)
        except OSError as error:
            if isinstance(error, MCPVectorDBError):
                raise
            raise Unreadable(f"{self.path} cannot be copied: {error}") from None

    def _copy_beside(self, patterns: Iterable[str]) -> None:
        """Copy the files that match, those of one folder as of one moment."""
        folder, stem = self.path.parent, glob.escape(self.path.stem)
        pairs: defaultdict[Path, list[tuple[Path, Path]]] = defaultdict(list)
        for pattern in patterns:
            for path in folder.glob(pattern.format(stem=stem)):
                names = [name for name in path.relative_to(folder).parts if name != ".."]
                pairs[path.parent].append((path, self.beside.joinpath(*names)))
        for some in pairs.values():
            some[0][1].parent.mkdir(parents=True, exist_ok=True)
            copy_stable(some, self.path)

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
        """The snapshot of the file if it is a SQLite database; None for other sources."""
        return ForeignDatabase(self.path, self._snapshot) if self._snapshot.exists() else None

    def sqlite(self) -> ForeignDatabase:
        """The snapshot of a SQLite database; UnsupportedFormat if it is none."""
        if self.database is None:
            raise UnsupportedFormat(f"{self.path} is not a SQLite database")
        return self.database

    def has(self, **tables: str) -> bool:
        """Whether it is a SQLite database with these tables, each with these columns."""
        return self.database is not None and all(
            self.database.has(table, *columns.split()) for table, columns in tables.items()
        )

    def inside(self, file: str) -> ImportSource | None:
        """The file of this name in a folder, None if it has none; a file itself as it is."""
        if not self.is_folder or not file:
            return self
        if file not in self._inside and (self.path / file).is_file():
            self._inside[file] = ImportSource(self.path / file, self._copies, file)
        return self._inside.get(file)
