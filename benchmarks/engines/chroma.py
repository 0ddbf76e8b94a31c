"""Chroma's persistent client: HNSW with its default parameters."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.engines import GROUPS, NEAREST, Recalled, minilm


class Engine:
    """One collection of vectors; one of each conversation, embedded by its default model."""

    packages = ("chromadb", *minilm.PACKAGES)

    def __init__(self, folder: Path, ef: str = "100") -> None:
        chromadb = import_module("chromadb")
        self._folder = folder
        self._threads: dict[str, Any] = {}
        self._client = chromadb.PersistentClient(
            str(folder), chromadb.Settings(anonymized_telemetry=False)
        )
        self._collection = self._client.get_or_create_collection(
            "vectors", metadata={"hnsw:space": "cosine"}, embedding_function=None
        )
        if ef != "100":  # which is its default
            self._collection.modify(configuration={"hnsw": {"ef_search": int(ef)}})
            self._collection = self._client.get_collection("vectors", embedding_function=None)

    def add_vectors(self, rows: Any) -> None:
        """As many at once as it takes."""
        batch = self._client.get_max_batch_size()
        for start in range(0, len(rows), batch):
            numbers = range(start, min(start + batch, len(rows)))
            self._collection.add(
                ids=[str(number) for number in numbers],
                embeddings=rows[numbers.start : numbers.stop],
                metadatas=[{"group": number % GROUPS} for number in numbers],
            )

    def nearest(self, query: Any, group: int | None) -> list[int]:
        """Ids only."""
        where = None if group is None else {"group": group}
        found = self._collection.query(
            query_embeddings=[query], n_results=NEAREST, where=where, include=[]
        )
        return [int(id) for id in found["ids"][0]]

    def remember(self, thread: str, turns: list[str]) -> None:
        """In a collection of their own."""
        collection, batch = self._turns(thread), self._client.get_max_batch_size()
        for start in range(0, len(turns), batch):
            some = turns[start : start + batch]
            numbers = range(start, start + len(some))
            collection.add(ids=[str(number) for number in numbers], documents=some)

    def recall(self, thread: str, question: str) -> Recalled:
        """It never says that nothing was found."""
        found = self._turns(thread).query(query_texts=[question], n_results=NEAREST, include=[])
        return {"found": [int(id) for id in found["ids"][0]], "nothing": False}

    def _turns(self, thread: str) -> Any:
        """The collection of a conversation; its model is not downloaded."""
        if thread not in self._threads:
            functions = import_module("chromadb.utils.embedding_functions.onnx_mini_lm_l6_v2")
            functions.ONNXMiniLM_L6_V2.DOWNLOAD_PATH = self._folder / "model"
            minilm.put(self._folder / "model")
            name = f"thread-{thread}"
            self._threads[thread] = self._client.get_or_create_collection(name)
        return self._threads[thread]

    def close(self) -> None:
        """It has no closing."""
