"""The Embedder protocol, which users may implement, and the check of the vectors it returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from mcpvectordb.errors import EmbeddingFailed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SMALLEST_NORM, LARGEST_NORM = 1e-6, 1e6


class Embedder(Protocol):
    """Turns texts into vectors; pass one to `Database(path, embedder=...)` to use your own model.

    `name` identifies the model in the file, so change it whenever the vectors change. `embed` must
    always return the same vector for the same text; `query` is true for queries and false for
    passages, for models that treat the two differently.
    """

    @property
    def name(self) -> str:
        """The name that is stored with the vectors."""

    @property
    def dimension(self) -> int:
        """The number of values of a vector."""

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Return one row per text, in their order: float32 of shape [len(texts), dimension]."""


def checked(
    embedder: Embedder, texts: Sequence[str], *, query: bool = False
) -> NDArray[np.float32]:
    """Return the texts' vectors, float32 and C-contiguous; EmbeddingFailed for unusable ones."""
    import numpy as np

    if not texts:
        return np.empty((0, embedder.dimension), np.float32)
    vectors = _numbers(embedder, embedder.embed(texts, query=query))
    if vectors.shape != (len(texts), embedder.dimension):
        raise EmbeddingFailed(
            f"{embedder.name} gave an array of shape {vectors.shape} for "
            f"{len(texts)} texts; it must be {(len(texts), embedder.dimension)}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(vectors, axis=1)
    # NaN compares false with both bounds, so it fails as well.
    usable = (norms >= SMALLEST_NORM) & (norms <= LARGEST_NORM)
    if not usable.all():
        first = int(np.argmin(usable))
        raise EmbeddingFailed(
            f"{embedder.name} gave a vector that cannot be ranked (its length is {norms[first]:g}, "
            f"not {SMALLEST_NORM:g} to {LARGEST_NORM:g}) for the text {_beginning(texts[first])}"
        )
    return np.ascontiguousarray(vectors, dtype=np.float32)


def _numbers(embedder: Embedder, vectors: Any) -> NDArray[np.float64]:
    import numpy as np

    try:
        return np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise EmbeddingFailed(f"{embedder.name} gave no array of numbers: {error}") from error


def _beginning(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")
