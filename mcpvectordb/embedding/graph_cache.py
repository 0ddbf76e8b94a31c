"""Optimized graphs, kept in the cache folder: loading one takes a quarter of optimizing it again.

A model's own graph is verified and optimized by ONNX Runtime whenever a session is made, which is
most of what a single search by meaning costs. What comes out of it is kept in a folder named after
the model's digest and everything else that shaped it, with the weights in a file of their own,
which ONNX Runtime maps instead of parsing. The outputs are the same bits.

The digests of both are kept in the user's data folder, where confirmed folders are as well: whoever
can only write to the cache folder can replace the files, but not what they must be.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from mcpvectordb.config import Config
from mcpvectordb.embedding.weights import settle, sha256
from mcpvectordb.errors import ModelDamaged

GRAPH, WEIGHTS = "graph.onnx", "weights.bin"
SMALLEST = 1024  # bytes of a tensor that is kept beside the graph


class GraphCache:
    """The optimized graph of one model in a cache folder, if there is one."""

    def __init__(self, folder: Path, digest: str) -> None:
        self._folder, self._digest = folder, digest

    def find(self) -> Path | None:
        """The optimized graph; None if there is none, or if its files are not what was kept."""
        place = self._place()
        with suppress(OSError, ValueError, ModelDamaged):
            if json.loads(_record(place).read_bytes()) == _digests(place):
                return place / GRAPH
        return None

    def keep(self, model: Path | bytes) -> None:
        """Optimize a graph (a file or its content) and keep the result, unless it is kept already.

        Where a folder cannot be written nothing is kept, and the next process optimizes again.
        """
        if self.find() is not None:
            return
        place = self._place()
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            made = Path(tempfile.mkdtemp(prefix=".", dir=self._folder))
            try:
                _optimize(model, made)
                digests = _digests(made)
                if self.find() is None:  # another process may have been faster
                    shutil.rmtree(place, ignore_errors=True)
                    settle(made, place)
                    _write(_record(place), json.dumps(digests).encode())
            finally:
                shutil.rmtree(made, ignore_errors=True)

    def _place(self) -> Path:
        """The folder of this model's graph for this ONNX Runtime on this kind of processor."""
        import onnxruntime

        return self._folder / f"{self._digest[:32]}-{onnxruntime.__version__}-{platform.machine()}"


def _record(place: Path) -> Path:
    """The file with the digests of what was kept in a place."""
    name = hashlib.sha256(os.path.realpath(place).encode(errors="surrogateescape")).hexdigest()
    return Config.data_folder() / "graphs" / f"{name}.json"


def _write(path: Path, content: bytes) -> None:
    """Write a file for its owner only, as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    number, name = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
        settle(Path(name), path)
    finally:
        Path(name).unlink(missing_ok=True)


def _digests(place: Path) -> dict[str, str]:
    return {name: sha256(place / name) for name in (GRAPH, WEIGHTS)}


def _optimize(model: Path | bytes, place: Path) -> None:
    """Write the graph that a session makes of a model, and its weights, into a folder."""
    import onnxruntime

    options: Any = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = os.fspath(place / GRAPH)
    prefix = "session.optimized_model_external_initializers_"
    options.add_session_config_entry(f"{prefix}file_name", WEIGHTS)
    options.add_session_config_entry(f"{prefix}min_size_in_bytes", str(SMALLEST))
    try:
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has its own for a disk that is full
        raise OSError(f"the optimized graph cannot be written: {error}") from error
