"""Shared by the tests of context_server: a database, and its tools through a client in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcpvectordb import Config, Database
from mcpvectordb_server.surfaces.context_server import SURFACE
from tests.server.clients import ask, service, valid
from tests.support import Letters

SCHEMAS = {tool.name: tool.arguments.output for tool in SURFACE.tools}


class Tools:
    """`tools.name(...)` is the tool's reply, validated; `tools.refused("name", ...)` its error text."""

    def __init__(self, db: Database) -> None:
        self._service = service(db, SURFACE)

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            result = ask(self._service, name, arguments)
            assert result.is_error is False, result.content[0].text
            shown = json.loads(result.content[0].text)
            if SCHEMAS[name] is None:
                assert {"result": shown} == result.structured_content
            else:
                assert shown == result.structured_content
                valid(shown, SCHEMAS[name])
            return shown

        return call

    def refused(self, name: str, **arguments: Any) -> str:
        result = ask(self._service, name, arguments)
        assert result.is_error is True, result.structured_content
        assert result.structured_content is None
        (block,) = result.content
        text: str = block.text
        assert "something went wrong" not in text and "\n" not in text
        return text

    def store(self, text: str, thread_id: str = "t", source: str = "user", **more: Any) -> int:
        id: int = self.store_context(thread_id=thread_id, source=source, text=text, **more)[
            "context_id"
        ]
        return id

    def found(self, tool: str = "search_context", **arguments: Any) -> list[int]:
        """The ids of a search's results."""
        reply = getattr(self, tool)(**arguments)
        assert reply["count"] == len(reply["results"])
        return [entry["id"] for entry in reply["results"]]


class Failing(Letters):
    """An embedder that fails on texts with the word poison."""

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        if any("poison" in text for text in texts):
            raise RuntimeError("the model failed")
        return super().embed(texts, query=query)


def opened(
    path: Path | str, *, rerank: bool = False, embedder: Letters | None = None, **config: Any
) -> Database:
    """A database for these tests; the cross-encoder is used only where `rerank` is true."""
    return Database(
        path, embedder=embedder or Letters(), config=Config(rerank_memories=rerank, **config)
    )
