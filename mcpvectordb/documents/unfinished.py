"""Ingests of folders that were cut off: what `status` says of them, and how to go on.

A row of the settings says that one is under way. It is deleted when all files of the folder were
read; a killed process leaves it behind, and so does one that fails.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from collections.abc import Iterator, Mapping
from typing import Any

import apsw

from mcpvectordb.documents.confirmed_folders import FollowedLibrary, bounds
from mcpvectordb.documents.unpublished import has_ended, this_process
from mcpvectordb.errors import MCPVectorDBError
from mcpvectordb.index.tuning import DEFAULT
from mcpvectordb.ingest.globs import EVERYTHING
from mcpvectordb.storage.file import File

PREFIX = "ingest:"
_STORED = "SELECT count(*) FROM published_documents WHERE library = ? AND source > ? AND source < ?"


class UnfinishedIngest:
    """The mark of an ingest or a sync that is under way, inside of its `with` block.

    `new` is how many files are to be read that are no documents yet. `renew` keeps others from
    taking it for cut off where they cannot see whether this process has ended.
    """

    def __init__(
        self,
        file: File,
        library: FollowedLibrary,
        new: int,
        *,
        sync: bool,
        metadata: Mapping[str, Any] | None,
    ) -> None:
        self._file, self._name = file, f"{PREFIX}{library.name}:{library.root}"
        self._new = new
        self._value: dict[str, Any] = {
            "library": library.name,
            "folder": library.root,
            "process": this_process(),
            "command": "sync " + shlex.quote(library.name)
            if sync
            else _ingest_command(library, metadata),
        }
        self._renewed = float("-inf")

    def __enter__(self) -> UnfinishedIngest:
        if self._new > 1:  # one file is read or is not
            with self._file.reading(limited=False) as sql:
                self._value["total"] = self._new + _stored(sql, self._value)
            self.renew()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            with contextlib.suppress(MCPVectorDBError):  # else its process ends, or its time
                self._write(0.0)
            return
        with self._file.reading(limited=False) as sql:
            begun = sql.execute("SELECT 1 FROM settings WHERE name = ?", (self._name,)).get
        if begun:
            with self._file.writing() as sql:
                sql.execute("DELETE FROM settings WHERE name = ?", (self._name,))

    def renew(self) -> None:
        """Say that it goes on, if that was not said for a while."""
        now = time.monotonic()
        if self._new > 1 and now - self._renewed > DEFAULT.writer_seconds / 4:
            self._renewed = now
            self._write(time.time() + DEFAULT.writer_seconds)

    def _write(self, leased: float) -> None:
        if self._new <= 1:
            return
        with self._file.writing() as sql:
            sql.execute(
                "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)",
                (self._name, json.dumps({**self._value, "leased": leased})),
            )


def unfinished(sql: apsw.Connection) -> Iterator[str]:
    """A sentence for each ingest of a folder that was cut off."""
    for (value,) in sql.execute(
        "SELECT value FROM settings WHERE name GLOB ? ORDER BY name", (f"{PREFIX}*",)
    ).fetchall():
        with contextlib.suppress(ValueError, TypeError, KeyError):  # only a changed file has these
            ingest = json.loads(str(value))
            goes_on = time.time() <= float(ingest["leased"]) and not has_ended(ingest["process"])
            if not goes_on:
                yield (
                    f"the ingest of {ingest['folder']} into the library {ingest['library']} was "
                    f"cut off: {_stored(sql, ingest):,} of {int(ingest['total']):,} files are "
                    f"stored; `mcpvectordb {ingest['command']}` goes on"
                )


def _stored(sql: apsw.Connection, ingest: Mapping[str, Any]) -> int:
    """How many files of the folder are documents of the library."""
    return int(sql.execute(_STORED, (str(ingest["library"]), *bounds(str(ingest["folder"])))).get)


def _ingest_command(library: FollowedLibrary, metadata: Mapping[str, Any] | None) -> str:
    """The command that ingests a folder in the same way."""
    words = ["ingest", library.root, "--library", library.name]
    if library.pattern != EVERYTHING:
        words += ["--pattern", library.pattern]
    for each in library.ignore:
        words += ["--ignore", each]
    for key, value in (metadata or {}).items():
        words += ["--metadata", f"{key}={json.dumps(value, ensure_ascii=False)}"]
    return shlex.join(words)
