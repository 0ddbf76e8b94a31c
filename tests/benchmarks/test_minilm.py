"""The model that rivals get is the one that they would download."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.engines import minilm
from mcpvectordb import Config, Database

TEXTS = ("Luna ran away in the park.", "the dog escaped", "Two sheets of stamps, please.")


def test_it_embeds_as_this_library_does(tmp_path: Path) -> None:
    model = minilm.MiniLM()
    with Database(tmp_path / "a.db", config=Config(model="all-MiniLM-L6-v2")) as db:
        ours = db.embed(TEXTS)
    theirs = np.array([model.embed(text) for text in TEXTS])
    assert (theirs * ours).sum(axis=1) == pytest.approx(1, abs=0.005)  # they run it in float32


def test_its_files_are_put_where_they_are_looked_for(tmp_path: Path) -> None:
    minilm.put(tmp_path)
    assert {each.name for each in (tmp_path / "onnx").iterdir()} == {
        "model.onnx",
        "tokenizer.json",
        "vocab.txt",
        "config.json",
        "special_tokens_map.json",
        "tokenizer_config.json",
    }
