"""All passages in the plane; see `Database.projection`.

Principal component analysis: of all directions in the space of embeddings the two along which the
passages differ most are the axes. They are the eigenvectors of the covariance matrix with the
largest eigenvalues. The matrix is estimated from a sample, because more rows hardly turn the axes;
then every row is projected, block by block, so memory holds the sample and two numbers for each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import apsw

from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.models import ModelRow
from mcpvectordb.joint.records import Projection
from mcpvectordb.joint.unit_vectors import Name, UnitRows, UnitVectors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SAMPLE = 20_000
"""Most rows that the axes are computed from."""


def project(
    sql: apsw.Connection, model: ModelRow | None, documents: ChunkIndex, memories: ChunkIndex
) -> Projection:
    """The projection of all passages that are embedded by a model of the file."""
    if model is None:
        return _made([], (), (0.0, 0.0), 0)
    vectors = UnitVectors(sql, model, documents, memories)
    step = max(1, -(-vectors.passages // SAMPLE))
    sample = _sample(vectors.blocks(), step, model.dimension)
    mean, axes, explained = principal_axes(sample)
    placed = [
        block._replace(rows=((block.rows - mean) @ axes).astype("float32"))
        for block in vectors.blocks()
        if len(block.ids)
    ]
    return _made(placed, vectors.names, explained, vectors.pending)


def principal_axes(
    rows: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.float32], tuple[float, float]]:
    """The mean of the rows, their two principal axes as columns, and the variance these explain.

    The sign of an axis is chosen so that the same rows always get the same axes.
    """
    import numpy as np

    if len(rows) < 2:
        return rows.mean(axis=0) if len(rows) else rows.sum(axis=0), _first_two(rows), (0.0, 0.0)
    mean = rows.mean(axis=0, dtype=np.float64)
    centred = rows - mean
    values, found = np.linalg.eigh(centred.T @ centred)
    values = np.maximum(values[::-1], 0)
    axes = found[:, ::-1][:, :2]
    strongest = axes[np.abs(axes).argmax(axis=0), [*range(axes.shape[1])]]
    axes = axes * np.where(strongest < 0, -1, 1)
    if axes.shape[1] < 2:
        axes = np.pad(axes, ((0, 0), (0, 1)))
    shares = [*(values[:2] / (values.sum() or 1.0)), 0.0]
    return mean.astype(np.float32), axes.astype(np.float32), (float(shares[0]), float(shares[1]))


def _first_two(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The first two axes of the space itself, where there is no variance."""
    import numpy as np

    return np.eye(rows.shape[1], 2, dtype=np.float32)


def _sample(blocks: Iterable[UnitRows], step: int, dimension: int) -> NDArray[np.float32]:
    """Every `step`-th row of all blocks."""
    import numpy as np

    rows, skip = [np.empty((0, dimension), np.float32)], 0
    for block in blocks:
        rows.append(block.rows[skip::step])
        skip = (skip - len(block.rows)) % step
    return np.concatenate(rows)


def _made(
    placed: list[UnitRows],
    names: tuple[Name, ...],
    explained: tuple[float, float],
    pending: int,
) -> Projection:
    import numpy as np

    places = np.concatenate([np.empty((0, 2), np.float32), *(each.rows for each in placed)])
    return Projection(
        ids=np.concatenate([np.empty(0, np.int64), *(each.ids for each in placed)]),
        x=places[:, 0],
        y=places[:, 1],
        groups=np.concatenate([np.empty(0, np.uint16), *(each.groups for each in placed)]),
        names=names,
        explained=explained,
        pending=pending,
    )
