"""Answers that took long to find, kept in the file under a digest of everything they depend on.

Nothing here is ever needed: a file that cannot be written just does not remember.
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

MOST = 20_000  # answers; the oldest go first


def key(*parts: str) -> bytes:
    """The key of an answer: what it is, which model gave it, and what it was asked."""
    return hashlib.sha256(json.dumps(parts).encode()).digest()


class Cache:
    """The table `cache` of a file."""

    def __init__(self, file: File) -> None:
        self._file = file

    def read(self, keys: Iterable[bytes]) -> dict[bytes, Any]:
        """The answers that are known."""
        with self._file.reading() as sql:
            rows = (
                row
                for key in keys
                for row in sql.execute("SELECT key, value FROM cache WHERE key = ?", (key,))
            )
            return {key: json.loads(value) for key, value in rows}

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
        sql.execute("DELETE FROM cache")

    def rebuild(self, sql: apsw.Connection) -> None:
        """Forget everything."""
        sql.execute("DELETE FROM cache")

    def problems(self, sql: apsw.Connection) -> Iterator[str]:
        """Nothing can be wrong with what is never needed."""
        return iter(())
