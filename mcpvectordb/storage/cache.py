"""Answers that took long to find, kept under a digest of everything they depend on.

They are kept in the file, or in memory when a search must not write. Nothing here is ever needed: a
file that cannot be written just does not remember.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apsw

from mcpvectordb.errors import DatabaseError
from mcpvectordb.storage.file import File

MOST = 20_000  # answers; the oldest go first


def key(*parts: str) -> bytes:
    """The key of an answer: what it is, which model gave it, and what it was asked."""
    return hashlib.sha256(json.dumps(parts).encode()).digest()


class Cache:
    """The table `cache` of a file, and what this process keeps in memory instead."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._held: dict[bytes, Any] = {}

    def read(self, keys: Iterable[bytes]) -> dict[bytes, Any]:
        """The answers that are known."""
        keys = list(keys)
        with self._lock:
            held = {key: self._held[key] for key in keys if key in self._held}
        with self._file.reading() as sql:
            rows = (
                row
                for key in keys
                if key not in held
                for row in sql.execute("SELECT key, value FROM cache WHERE key = ?", (key,))
            )
            return held | {key: json.loads(value) for key, value in rows}

    def hold(self, answers: Mapping[bytes, Any]) -> None:
        """Remember answers in memory; the file is not written."""
        with self._lock:
            self._held |= answers
            for oldest in list(self._held)[:-MOST]:
                del self._held[oldest]

    def write(self, answers: Mapping[bytes, Any]) -> None:
        """Remember answers, if the file can be written; never call it inside of a transaction."""
        if not answers or self._file.read_only:
            return
        with contextlib.suppress(DatabaseError), self._file.writing() as sql:
            sql.executemany(
                "INSERT OR REPLACE INTO cache (key, value) VALUES (?, ?)",
                ((key, json.dumps(value)) for key, value in answers.items()),
            )
            sql.execute("DELETE FROM cache WHERE seq <= (SELECT max(seq) FROM cache) - ?", (MOST,))

    # What `compact`, `rebuild` and `check` ask of everything in the file that can be made again.

    def optimize(self, sql: apsw.Connection) -> None:
        """Forget everything: answers may hold words of documents that are gone."""
        with self._lock:
            self._held.clear()
        sql.execute("DELETE FROM cache")

    def rebuild(self, sql: apsw.Connection) -> None:
        """Forget everything."""
        self.optimize(sql)

    def problems(self, sql: apsw.Connection) -> Iterator[str]:
        """Nothing can be wrong with what is never needed."""
        return iter(())
