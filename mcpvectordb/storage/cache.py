"""A cache of results that are slow to compute, in the file, under a digest of all their inputs.

Nothing depends on the cache: where the file cannot be written, nothing is cached.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apsw

from mcpvectordb.errors import DatabaseError
from mcpvectordb.storage.file import File

MOST = 20_000  # entries, which keeps the table small; the oldest are deleted first


def key(*parts: str) -> bytes:
    """The key of an entry: a digest of what it is, the model that computed it, and its inputs."""
    return hashlib.sha256(json.dumps(parts).encode()).digest()


class Cache:
    """The table `cache` of a file."""

    def __init__(self, file: File, most: int = MOST) -> None:
        self._file, self._most = file, most

    def read(self, keys: Iterable[bytes]) -> dict[bytes, Any]:
        """The entries with these keys, as far as there are any."""
        with self._file.reading() as sql:
            rows = (
                row
                for key in keys
                for row in sql.execute("SELECT key, value FROM cache WHERE key = ?", (key,))
            )
            return {key: json.loads(value) for key, value in rows}

    def write(self, answers: Mapping[bytes, Any]) -> None:
        """Add entries, if the file can be written; never call it inside of a transaction."""
        if not answers or self._file.read_only:
            return
        with contextlib.suppress(DatabaseError), self._file.writing() as sql:
            sql.executemany(
                "INSERT OR REPLACE INTO cache (key, value) VALUES (?, ?)",
                ((key, json.dumps(value)) for key, value in answers.items()),
            )
            sql.execute(
                "DELETE FROM cache WHERE seq <= (SELECT max(seq) FROM cache) - ?", (self._most,)
            )

    # The interface for `compact`, `rebuild` and `check`, as every index has it.

    def optimize(self, sql: apsw.Connection) -> None:
        """Delete all entries: they may contain words of deleted documents."""
        sql.execute("DELETE FROM cache")

    def rebuild(self, sql: apsw.Connection) -> None:
        """Delete all entries."""
        sql.execute("DELETE FROM cache")

    def problems(self, sql: apsw.Connection) -> Iterator[str]:
        """Nothing: entries are not verified."""
        return iter(())
