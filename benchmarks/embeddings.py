"""Vectors to measure with: real embeddings of texts, and clustered ones where these are too few."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import texts
from benchmarks.collection import load
from benchmarks.store import say
from mcpvectordb import Config

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mcpvectordb.embedding.embedder import OnnxEmbedder, StaticEmbedder

    Matrix = NDArray[np.float32]

# Chosen so that cosines are spread as those of 10,000 passages by bge-small: their mean, the 10th,
# the 100th, the 1,000th best.
# The mean number of rows that share a topic and, within it, a subtopic; some have many more.
PER_TOPIC, PER_MATTER = 2_000, 30
# The weights of what all rows share, of the topic and of the subtopic, beside 1 for the row's own.
SIDE, TOPIC, MATTER = 1.5, 0.6, 0.7
SPREAD = 0.3  # how much more of their own some rows have
STEEPNESS = 0.3  # how quickly directions lose weight: their rank to this power
BATCH = 512


def clustered(rows: int, dimension: int, queries: int, seed: int = 1) -> tuple[Matrix, Matrix]:
    """Unit vectors with cosines like those of embeddings of texts.

    Topics and subtopics have very different sizes and no sharp borders.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    scale = np.arange(1, dimension + 1, dtype=np.float32) ** -STEEPNESS
    topics, matters = (
        random.standard_normal((max(1, rows // many), dimension), np.float32)
        for many in (PER_TOPIC, PER_MATTER)
    )
    side = random.standard_normal(dimension, np.float32)
    centres = (
        SIDE * side
        + TOPIC * topics[random.integers(len(topics), size=len(matters))]
        + MATTER * matters
    ) * scale
    chance = 1 / np.arange(10, len(centres) + 10)

    def some(count: int) -> Matrix:
        made = np.empty((count, dimension), np.float32)
        for start in range(0, count, 50_000):
            part = made[start : start + 50_000]
            chosen = random.choice(len(centres), size=len(part), p=chance / chance.sum())
            own = np.exp(SPREAD * random.standard_normal((len(part), 1), np.float32))
            part[:] = centres[chosen] + own * random.standard_normal(part.shape, np.float32) * scale
            part /= np.linalg.norm(part, axis=1, keepdims=True)
        return made

    return some(rows), some(queries)


def real(
    folders: Sequence[Path], rows: int, queries: int, cache: Path, model: str = ""
) -> tuple[Matrix, Matrix]:
    """Embeddings of the texts and queries of some collections, by a model or the best installed.

    What is missing is made up for by passages from this machine.
    """
    collections = [load(folder) for folder in folders]
    found = dict.fromkeys(
        passage
        for each in collections
        for entry in each.corpus
        for passage in texts.cut(entry.text)
    )
    passages = [*found, *texts.passages(max(0, rows - len(found)))][:rows]
    asked = [query for each in collections for query in each.queries.values()]
    asked = asked or [
        " ".join(query.words["any"])
        for query in texts.queries(passages, queries)
        if query.kind == "question"
    ]
    step = max(1, len(asked) // queries)
    embedder, asked = installed(model), asked[::step][:queries]
    return embedded(embedder, passages, cache), embedded(embedder, asked, cache, query=True)


def embedded(
    embedder: OnnxEmbedder | StaticEmbedder,
    passages: Sequence[str],
    cache: Path,
    *,
    query: bool = False,
) -> Matrix:
    """Their embeddings, made once and kept in `cache`."""
    import numpy as np

    digest = hashlib.sha256("\0".join([embedder.name, str(query), *passages]).encode()).hexdigest()[
        :24
    ]
    path = cache / f"embeddings-{digest}.npy"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        rows = np.empty((len(passages), embedder.dimension), np.float32)
        for start in range(0, len(passages), BATCH):
            say(f"embedded {start:,} of {len(passages):,} texts")
            rows[start : start + BATCH] = embedder.embed(
                passages[start : start + BATCH], query=query
            )
        np.save(path, rows)
    made: Matrix = np.load(path)
    return made


def installed(name: str = "") -> OnnxEmbedder | StaticEmbedder:
    """The embedder of this name, or the one that a new file gets."""
    from mcpvectordb.embedding import weights
    from mcpvectordb.embedding.embedder import OnnxEmbedder, StaticEmbedder

    folder = Config().models_folder()
    model = weights.embedder(name, folder) if name else weights.default(folder)
    made = StaticEmbedder if model.static else OnnxEmbedder
    return made(model, weights.locate(model, folder))
