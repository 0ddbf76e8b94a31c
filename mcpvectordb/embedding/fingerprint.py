"""The embedding of a fixed text, by which the model behind an endpoint is recognised.

What a server calls a model says little: llama.cpp answers under any name, and `latest` moves on. So
the digest that a file keeps of an endpoint's model ends with the model's embedding of `TEXT`.
Servers are not exact to the bit (batches, quantization, other hardware), so two of them are
compared by their cosine.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TEXT = "Thirteen brown foxes jumped over 7 lazy dogs; der Fluss fließt nach Norden: f(x) = x + 1."
# One model in batches, in int8 or on other hardware has .99 and more; another pooling of the same
# network, or another model of the same family, stays far below.
SAME = 0.95
_KIND = "endpoint"


def of(vector: NDArray[np.float32]) -> str:
    """Return the fingerprint for an embedding of `TEXT`: half floats of the unit vector."""
    import numpy as np

    unit = np.asarray(vector, np.float64) / np.linalg.norm(vector)
    return base64.b64encode(unit.astype("<f2").tobytes()).decode("ascii")


def digest(processing: list[Any], fingerprint: str) -> str:
    """Return the digest of an endpoint's model: a hash of its processing, and the fingerprint."""
    hashed = hashlib.sha256(json.dumps(processing).encode()).hexdigest()
    return f"{_KIND}:{hashed}:{fingerprint}"


def is_endpoint(digest: str) -> bool:
    """Whether a digest is that of a model behind an endpoint."""
    return digest.startswith(f"{_KIND}:")


def same(one: str, other: str) -> bool:
    """Whether two digests are of models whose vectors can be compared."""
    if one == other:
        return True
    if not (is_endpoint(one) and is_endpoint(other)):
        return False
    vector = _vector(one)
    return (
        _processing(one) == _processing(other)
        and vector is not None
        and (similarity(other, vector) >= SAME)
    )


def similarity(digest: str, vector: NDArray[Any]) -> float:
    """Return the cosine of a digest's fingerprint and an embedding of `TEXT`; 0 if damaged."""
    import numpy as np

    known = _vector(digest)
    if known is None or known.shape != vector.shape:
        return 0.0
    return float(known @ vector / np.linalg.norm(vector))


def _processing(digest: str) -> str:
    return digest.rpartition(":")[0]


def _vector(digest: str) -> NDArray[np.float64] | None:
    """The unit vector of a digest's fingerprint; None if it is damaged."""
    import numpy as np

    try:
        content = base64.b64decode(digest.rpartition(":")[2], validate=True)
        vector = np.frombuffer(content, "<f2").astype(np.float64)
    except (binascii.Error, ValueError):
        return None
    usable = vector.size and np.isfinite(vector).all() and vector.any()
    return vector / np.linalg.norm(vector) if usable else None
