"""Libraries of documents: list, add, describe and remove them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from mcpvectordb.documents import libraries
from mcpvectordb.documents.confirmed_folders import ConfirmedFolders
from mcpvectordb.documents.libraries import LibraryVersions, checked_name
from mcpvectordb.documents.stored import StoredDocuments
from mcpvectordb.ingest.globs import EVERYTHING
from mcpvectordb.records import Library
from mcpvectordb.store import OpenStore


class LibraryDocuments(StoredDocuments):
    """The methods of the documents shelf that concern libraries and the folders they follow."""

    def __init__(self, store: OpenStore) -> None:
        super().__init__(store)
        self.library_versions = LibraryVersions(store.file, store.history)
        self._folders = ConfirmedFolders(store.file)

    def libraries(self) -> list[Library]:
        """The libraries that have documents or follow a folder, sorted by name."""
        return libraries.all_libraries(self._file, self._folders)

    def add_library(
        self,
        name: str,
        root: str | os.PathLike[str],
        *,
        pattern: str = EVERYTHING,
        ignore: Sequence[str] = (),
        description: str = "",
        confirm: bool = True,
    ) -> None:
        """Let a library follow a folder; `sync` ingests its files.

        `pattern` selects files relative to the folder: `*` matches within one folder, `**/` any
        folders, `{md,txt}` one of both. `ignore` has patterns as in a .gitignore; .gitignore and
        .mcpvectordbignore files in the folder apply too. To change these options, add the library
        again with the same folder. `confirm=False` leaves the consent to read it to a person; see
        `confirm_library`.
        """
        libraries.add(
            self._file,
            self._folders,
            self.library_versions,
            name,
            root,
            pattern,
            ignore,
            description,
            confirm=confirm,
        )

    def confirm_library(self, name: str) -> None:
        """Let a library that was not added on this machine, or not to this file, read its folder.

        Ask a person first: whoever wrote the file chose the folder (`Library.root`). What is
        confirmed is kept in the user's data folder. A change of the file's place, of the folder or
        of the patterns must be confirmed again.
        """
        for library in libraries.followed(self._file, checked_name(name)):
            self._folders.confirm(library)

    def remove_library(self, name: str, *, keep_documents: bool = False) -> int:
        """Remove a library with its documents, or stop following its folder with `keep_documents`.

        Returns the number of removed documents. The folder is not touched.
        """
        removed = 0
        with self._history.change("remove library"):
            libraries.unfollow(self._file, self._folders, self.library_versions, name)
            while not keep_documents and (some := self.delete_where(library=name)):
                removed += some
        return removed

    def describe(self, name: str, path: str, text: str) -> None:
        """Describe a path of a library that follows a folder, or with "" the whole library.

        A blank text removes the description.
        """
        libraries.describe(self._file, self.library_versions, name, path, text)

    def descriptions(self, library: str, path: str) -> list[str]:
        """The descriptions of a library down to a document's source, general to specific."""
        return libraries.descriptions(self._file, library, path)
