"""Passages that say nearly the same; see `Database.duplicates`.

Comparing all pairs of 100,000 passages would take minutes. Locality-sensitive hashing (Charikar,
2002) compares few of them: a row's hash has a bit for each of some random planes, the side on
which the row lies. Two rows at an angle a agree in a bit with probability 1 - a/π, so rows that are
nearly equal often have the same hash, and others hardly ever. The rows are sorted by their hash,
inside of one by a random direction, and each is compared with the next few. That is done TABLES
times with other planes, so that a pair that one table separates is found in another. What is found
is compared exactly; pairs that share a row make a group.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import apsw

from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.models import ModelRow
from mcpvectordb.joint.records import Duplicates
from mcpvectordb.joint.unit_vectors import UnitVectors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pairs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]

TABLES = 12
WINDOW = 6  # following rows of the same hash that a row is compared with
SLICE = 16_384  # rows whose cosines are computed at once: bounds the memory
SEED = 20_020  # any: the same rows always give the same groups


def find(
    sql: apsw.Connection,
    model: ModelRow | None,
    min_cosine: float,
    documents: ChunkIndex,
    memories: ChunkIndex,
) -> list[Duplicates]:
    """The groups of passages that are embedded by a model of the file, the largest first."""
    import numpy as np

    if model is None:
        return []
    vectors = UnitVectors(sql, model, documents, memories)
    blocks = list(vectors.blocks())
    if not any(len(block.ids) for block in blocks):
        return []
    ids = np.concatenate([block.ids for block in blocks])
    groups = np.concatenate([block.groups for block in blocks])
    rows = np.concatenate([block.rows for block in blocks])
    first, second, cosines = similar_pairs(rows, min_cosine)
    labels = components(len(rows), first, second)
    lowest = np.ones(len(rows), np.float32)
    np.minimum.at(lowest, labels[first], cosines)
    paired = np.unique(np.concatenate([first, second]))
    order = paired[np.argsort(labels[paired], kind="stable")]
    found = []
    for members in (
        np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if len(order) else ()
    ):
        of_memory = np.array([vectors.names[group][0] == "memories" for group in groups[members]])
        made = Duplicates(
            chunks=tuple(ids[members[~of_memory]].tolist()),
            memories=tuple(sorted({*ids[members[of_memory]].tolist()})),
            cosine=min(1.0, float(lowest[labels[members[0]]])),
        )
        if len(made) > 1:  # and not two passages of one memory
            found.append(made)
    return sorted(found, key=lambda each: (-len(each), each.chunks, each.memories))


def similar_pairs(rows: NDArray[np.float32], min_cosine: float) -> Pairs:
    """Pairs of unit rows that have at least this cosine: their numbers, and the cosines."""
    import numpy as np

    count, dimension = rows.shape
    random = np.random.default_rng(SEED)
    bits = min(62, max(4, math.ceil(math.log2(count + 1))))
    mean = rows.mean(axis=0, dtype=np.float32)
    found: list[Pairs] = []
    for _ in range(TABLES):
        planes = random.standard_normal((dimension, bits + 1), np.float32)
        keys, along = _hashes(rows, mean, planes)
        order = np.lexsort((along, keys))
        for ahead in range(1, min(WINDOW, count - 1) + 1):
            same = np.flatnonzero(keys[order[:-ahead]] == keys[order[ahead:]])
            found.append(_near(rows, order[same], order[same + ahead], min_cosine))
    if not found:
        nothing = np.empty(0, np.int64)
        return nothing, nothing, np.empty(0, np.float32)
    first, second, cosines = (np.concatenate(each) for each in zip(*found, strict=True))
    return first, second, cosines


def _hashes(
    rows: NDArray[np.float32], mean: NDArray[np.float32], planes: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The hash of each row around their mean, and its place along the last plane's direction."""
    import numpy as np

    powers, middle = 1 << np.arange(planes.shape[1] - 1, dtype=np.int64), mean @ planes
    keys, along = np.empty(len(rows), np.int64), np.empty(len(rows), np.float32)
    for start in range(0, len(rows), SLICE):
        part = slice(start, start + SLICE)
        sides = rows[part] @ planes - middle
        keys[part] = (sides[:, :-1] > 0) @ powers
        along[part] = sides[:, -1]
    return keys, along


def _near(
    rows: NDArray[np.float32],
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    min_cosine: float,
) -> Pairs:
    """Those of the given pairs that have at least this cosine."""
    import numpy as np

    cosines = np.empty(len(first), np.float32)
    for start in range(0, len(first), SLICE):
        part = slice(start, start + SLICE)
        cosines[part] = np.einsum("ij,ij->i", rows[first[part]], rows[second[part]])
    near = cosines >= min_cosine - 1e-6  # what single precision may lose
    return first[near], second[near], cosines[near]


def components(
    count: int, first: NDArray[np.int64], second: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each of `count` rows the lowest number of those it is connected with by pairs.

    Every row takes the lowest label among its neighbours', then that label's own (pointer
    jumping), which halves the remaining distances, until nothing changes.
    """
    import numpy as np

    labels = np.arange(count)
    while True:
        low = np.minimum(labels[first], labels[second])
        new = labels.copy()
        np.minimum.at(new, labels[first], low)
        np.minimum.at(new, labels[second], low)
        new = new[new]
        if np.array_equal(new, labels):
            return labels
        labels = new
