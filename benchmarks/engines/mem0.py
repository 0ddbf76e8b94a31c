"""mem0 without a language model: turns are stored as they are (`infer=False`) in its own Qdrant.

Its default embedder is an endpoint that needs a key; it is given MiniLM by the class for LangChain,
which is how its users bring a model along. Its ranking by words is left out: the encoder for it is
downloaded from a hub.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.engines import NEAREST, Recalled, minilm


class Engine:
    """Conversations are its users."""

    packages = ("mem0ai", "langchain", *minilm.PACKAGES)

    def __init__(self, folder: Path) -> None:
        # read when it is imported
        os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=str(folder / "mem0"))
        memory = import_module("mem0").Memory
        self._memory = memory.from_config(
            {
                "history_db_path": str(folder / "history.db"),
                "embedder": {"provider": "langchain", "config": {"model": _embeddings()}},
                "llm": {"provider": "openai", "config": {"api_key": "never asked"}},
                "vector_store": {
                    "provider": "qdrant",
                    "config": {
                        "path": str(folder / "qdrant"),
                        "on_disk": True,
                        "embedding_model_dims": minilm.DIMENSION,
                    },
                },
            }
        )
        self._numbers: dict[str, int] = {}

    def remember(self, thread: str, turns: list[str]) -> None:
        """One by one, each as what a user said."""
        for number, turn in enumerate(turns):
            said = [{"role": "user", "content": turn}]
            for stored in self._memory.add(said, user_id=thread, infer=False)["results"]:
                self._numbers[stored["id"]] = number

    def recall(self, thread: str, question: str) -> Recalled:
        """What is less similar than its threshold is not found."""
        answer = self._memory.search(question, top_k=NEAREST, filters={"user_id": thread})
        found = [self._numbers[each["id"]] for each in answer["results"]]
        return {"found": found, "nothing": not found}

    def close(self) -> None:
        """Close the file of its history."""
        self._memory.close()


def _embeddings() -> Any:
    """MiniLM as a class of LangChain's."""
    model = minilm.MiniLM()

    class Embeddings(import_module("langchain.embeddings.base").Embeddings):  # type: ignore[misc]
        def embed_query(self, text: str) -> list[float]:
            return model.embed(text)

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [model.embed(text) for text in texts]

    return Embeddings()
