"""SQLite's FTS5 as it is: English stems, `ORDER BY rank`, the passages read with every answer."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from benchmarks.engines import NEAREST, Words


class Engine:
    """One table, in the SQLite of apsw, as this library has it."""

    packages = ("apsw",)

    def __init__(self, folder: Path) -> None:
        self._connection = import_module("apsw").Connection(str(folder / "words.db"))
        self._connection.execute("PRAGMA journal_mode = WAL").fetchall()

    def add_texts(self, texts: list[str]) -> None:
        """In one transaction."""
        with self._connection as sql:
            sql.execute("CREATE VIRTUAL TABLE f USING fts5 (text, tokenize = 'porter unicode61')")
            sql.executemany("INSERT INTO f (rowid, text) VALUES (?, ?)", enumerate(texts))

    def matching(self, query: Words) -> list[int]:
        """Ids and texts."""
        written = " OR ".join(map(_quoted, query["any"])) or " AND ".join(
            map(_quoted, query["all"])
        )
        excluded = "".join(f" NOT {_quoted(word)}" for word in query["none"])
        return [
            id
            for id, _ in self._connection.execute(
                "SELECT rowid, text FROM f WHERE f MATCH ? ORDER BY rank LIMIT ?",
                (f"({written}){excluded}", NEAREST),
            )
        ]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _quoted(word: str) -> str:
    return f'"{word}"'
