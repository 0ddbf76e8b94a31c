"""Static embeddings (model2vec): one vector per token, and a text's is the mean of its tokens'.

There is no network to run, so a passage takes half a millisecond where an encoder takes fifty.
The table of vectors is a safetensors file, which is read as data: eight bytes with the length of a
JSON header, the header with the type, shape and place of each tensor, then the numbers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpvectordb.embedding import pooling
from mcpvectordb.embedding.catalogue import Model
from mcpvectordb.embedding.tokenizer import TokenPipeline, tokenizer_of
from mcpvectordb.embedding.weights import verify
from mcpvectordb.errors import InvalidInput, ModelDamaged

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TENSOR = "embeddings"  # the only one in the file of such a model
MOST_HEADER_BYTES = 1_000_000


class StaticEmbedder:
    """An Embedder by a table of token vectors: `StaticEmbedder(model, weights.locate(...))`.

    Table and tokenizer are loaded on first use, after their digests are verified. The table is
    mapped into memory: processes share it, and only the rows of tokens that occur are read.
    """

    def __init__(self, model: Model, files: Mapping[str, Path]) -> None:
        if not model.static:
            raise InvalidInput(f"{model.name} is not a static model")
        self.model = model
        self.name, self.digest, self.dimension = model.name, model.digest, model.dimension
        self.vector_weight, self.latin_only = model.vector_weight, model.latin_only
        self.tokens_embedded = 0
        self._files = files
        self._lock = threading.Lock()
        self._loaded: tuple[TokenPipeline, NDArray[np.float32]] | None = None

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Return one unit vector per text, in their order; queries are embedded as passages are."""
        import numpy as np

        tokens, table = self._load()
        rows = np.empty((len(texts), self.dimension))
        for row, text in zip(rows, texts, strict=True):
            ids = tokens.known(text, self.model.max_tokens)
            # A text of nothing that the vocabulary knows still has a place: that of [UNK].
            row[:] = table[ids or [tokens.unknown]].mean(axis=0, dtype=np.float64)
            self.tokens_embedded += len(ids)
        return pooling.unit(rows).astype(np.float32)

    def close(self) -> None:
        """Release the table; the next text loads it again."""
        with self._lock:
            self._loaded = None

    def _load(self) -> tuple[TokenPipeline, NDArray[np.float32]]:
        with self._lock:
            if self._loaded is None:
                for role, path in self._files.items():
                    verify(path, self.model.files[role])
                tokens = tokenizer_of(self._files["tokenizer"])
                self._loaded = tokens, read_table(self._files["model"], self.dimension)
            return self._loaded


def read_table(path: Path, dimension: int) -> NDArray[np.float32]:
    """The matrix [tokens, dimension] of a safetensors file that holds nothing else, mapped."""
    import numpy as np

    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(MOST_HEADER_BYTES, size - 8):
            raise ModelDamaged(f"{path} is not a safetensors file: its header has {length} bytes")
        header = _header(path, file.read(length))
    bytes_of_values = size - 8 - length
    rows = bytes_of_values // (4 * dimension)
    expected = {"dtype": "F32", "shape": [rows, dimension], "data_offsets": [0, bytes_of_values]}
    if header != {TENSOR: expected} or not rows:
        raise ModelDamaged(
            f"{path} does not hold one table of float32 vectors of {dimension} values: {header}"
        )
    return np.memmap(path, np.float32, "r", offset=8 + length, shape=(rows, dimension))


def _header(path: Path, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        return dict(header)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ModelDamaged(f"{path} has a header that is not a JSON object: {error}") from error
