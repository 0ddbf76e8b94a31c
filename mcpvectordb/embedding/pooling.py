"""Pooling and normalisation of a graph's output, computed in float64.

Texts are run one at a time, so there is no padding and every token counts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mcpvectordb.embedding.catalogue import Pooling

# The default of torch.nn.functional.layer_norm, with which the models were trained.
LAYER_NORM_EPSILON = 1e-5


def vectors(
    output: NDArray[Any],
    *,
    pooling: Pooling,
    layer_norm: bool = False,
    dimension: int | None = None,
) -> NDArray[np.float32]:
    """Return unit vectors from a graph's output: [n, tokens, width], or [n, width] if pooled."""
    pooled = pool(output.astype("float64"), pooling)
    if layer_norm:
        pooled = layer_normalised(pooled)
    return unit(pooled[:, :dimension]).astype("float32")


def pool(output: NDArray[np.float64], pooling: Pooling) -> NDArray[np.float64]:
    """Return one vector per text: the mean of its tokens' vectors, or the first token's."""
    if output.ndim == 2:
        return output
    return output.mean(axis=1) if pooling == "mean" else output[:, 0]


def layer_normalised(pooled: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each row shifted and scaled to mean 0 and variance 1."""
    centred = pooled - pooled.mean(axis=1, keepdims=True)
    variance = (centred**2).mean(axis=1, keepdims=True)
    scaled: NDArray[np.float64] = centred / (variance + LAYER_NORM_EPSILON) ** 0.5
    return scaled


def unit(pooled: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each row scaled to length 1; a row of zeros stays zero."""
    lengths = (pooled**2).sum(axis=1, keepdims=True) ** 0.5
    scaled: NDArray[np.float64] = pooled / (lengths + (lengths == 0))
    return scaled


def sigmoid(log_odds: float) -> float:
    """Return the probability, 0 to 1, for log odds."""
    return (
        1 / (1 + math.exp(-log_odds))
        if log_odds >= 0
        else math.exp(log_odds) / (1 + math.exp(log_odds))
    )
