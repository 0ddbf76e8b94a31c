"""This library: vectors in their shelf, passages as documents of one chunk, in one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engines import GROUPS, NEAREST, Recalled, Words

BATCH = 50_000


class Ready:
    """An embedder without a model.

    A passage has the vector of its number, which is its title; that of a query is set before.
    """

    name = "ready"

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.rows: Any = None
        self.question: Any = None

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        """One row for each text."""
        if query:
            return self.question[None, :]
        return self.rows[[int(text.split(maxsplit=1)[0]) for text in texts]]


class Engine:
    """`Database` with its defaults, and with a model if one is named."""

    packages = ("mcpvectordb",)

    def __init__(self, folder: Path, model: str | None = None) -> None:
        from mcpvectordb import Config, Database

        self._path = folder / "mcpvectordb.db"
        self._ready: Ready | None = None
        self._numbers: dict[int, int] = {}
        self._db = Database(self._path, config=Config(model=model))

    def add_vectors(self, rows: Any) -> None:
        """As many at once as the documentation advises."""
        for start in range(0, len(rows), BATCH):
            numbers = range(start, min(start + BATCH, len(rows)))
            self._db.vectors.add_many(
                [str(number) for number in numbers],
                rows[numbers.start : numbers.stop],
                metadata=[{"group": number % GROUPS} for number in numbers],
            )

    def nearest(self, query: Any, group: int | None) -> list[int]:
        """By the vectors shelf."""
        where = None if group is None else {"metadata.group": group}
        return [
            int(hit.item.id) for hit in self._db.vectors.search(query, where=where, limit=NEAREST)
        ]

    def add_texts(self, texts: list[str]) -> None:
        """To be found by words only; as many at once as fit well into memory."""
        for start in range(0, len(texts), BATCH):
            names = [str(number) for number in range(start, min(start + BATCH, len(texts)))]
            self._db.documents.ingest_many(
                texts[start : start + BATCH], sources=names, titles=names, embed=False
            )

    def matching(self, query: Words) -> list[int]:
        """By the documents shelf, as its users write it."""
        return self._found(_written(query), "text")

    def add_both(self, texts: list[str], rows: Any) -> None:
        """To be found by words and by ready vectors."""
        self._embedding_with(rows.shape[1]).rows = rows
        self.add_texts(texts)
        self._db.embed_pending()

    def warm(self, dimension: int) -> None:
        """What a server does when it starts."""
        self._embedding_with(dimension).question = np.ones(dimension, np.float32)
        self._db.warm(wait=True)

    def both(self, query: Words, vector: Any) -> list[int]:
        """A hybrid search, of which the embedding of the query is no part."""
        self._embedding_with(len(vector)).question = vector
        return self._found(_written(query), "hybrid")

    def remember(self, thread: str, turns: list[str]) -> None:
        """As entries of a thread."""
        from mcpvectordb import Entry

        entries = [Entry(thread=thread, source="user", text=each) for each in turns]
        for number, stored in enumerate(self._db.memories.add_many(entries)):
            if stored.result is not None:
                self._numbers[stored.result.id] = number

    def recall(self, thread: str, question: str) -> Recalled:
        """As the surface desk searches; what it says of the results is their verdict."""
        hits = self._db.search(question, limit=NEAREST, kind="memories", thread=thread)
        found = [self._numbers[hit.item.id] for hit in hits]
        return {"found": found, "nothing": bool(hits.verdict) or not found}

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _embedding_with(self, dimension: int) -> Ready:
        from mcpvectordb import Database

        if self._ready is None:
            self._db.close()
            self._ready = Ready(dimension)
            self._db = Database(self._path, embedder=self._ready)
        return self._ready

    def _found(self, text: str, mode: str) -> list[int]:
        return [
            int(hit.item.document.source)
            for hit in self._db.documents.search(text, mode=mode, limit=NEAREST)
        ]


def _written(query: Words) -> str:
    required = [f'"{word}"' for word in query["all"]]
    return " ".join([*query["any"], *required, *(f"-{word}" for word in query["none"])])
