"""mcp-memory-service with its default store, sqlite-vec, as its server's tools use it."""

from __future__ import annotations

import asyncio
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.engines import NEAREST, Recalled, extensions, minilm


class Engine:
    """Conversations are its stores; `mode` is that of its tool's search: semantic or hybrid."""

    packages = ("mcp-memory-service[sqlite]", extensions.PACKAGE, *minilm.PACKAGES)

    def __init__(self, folder: Path, mode: str = "semantic") -> None:
        extensions.allow()
        os.environ["MCP_MEMORY_BASE_DIR"] = str(folder)  # read when it is imported
        self._mode = mode
        model = import_module("mcp_memory_service.embeddings.onnx_embeddings").ONNXEmbeddingModel
        model.DOWNLOAD_PATH = folder / "model"
        minilm.put(folder / "model")
        self._loop = asyncio.new_event_loop()
        storage = import_module("mcp_memory_service.storage.sqlite_vec")
        self._storage = storage.SqliteVecMemoryStorage(str(folder / "memory.db"))
        self._wait(self._storage.initialize())
        service = import_module("mcp_memory_service.services.memory_service")
        self._service = service.MemoryService(self._storage)
        self._numbers: dict[tuple[str, str], int] = {}

    def remember(self, thread: str, turns: list[str]) -> None:
        """As its tool stores them; with the name of a conversation, similar ones are kept, too."""
        for number, turn in enumerate(turns):
            self._wait(self._service.store_memory(turn, conversation_id=thread, store=thread))
            self._numbers.setdefault((thread, turn), number)

    def recall(self, thread: str, question: str) -> Recalled:
        """It says that nothing was found only where a conversation is empty."""
        answer = self._wait(
            self._storage.search_memories(
                query=question, mode=self._mode, limit=NEAREST, store=thread
            )
        )
        found = [self._numbers[thread, each["content"]] for each in answer["memories"]]
        return {"found": found, "nothing": not found}

    def close(self) -> None:
        """Close the file."""
        self._wait(self._storage.close())
        self._loop.close()

    def _wait(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)
