"""The map of all passages, computed once for each state of the file, and as bytes for a page."""

from __future__ import annotations

import ctypes
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcpvectordb import Database, Duplicates, Projection, distinguishing_words
from mcpvectordb_server.web.events import FileWatch

NEAR = 0.95
"""The cosine from which on two passages count as near-duplicates."""

BACKGROUND = 1_000  # passages that show which words are common in the file
_MAGIC = b"MAP2"
_SCALE = 65_535


class PassageMap(NamedTuple):
    """The places of all passages and their near-duplicates, at a revision of the file."""

    revision: int
    projection: Projection
    duplicates: list[Duplicates]
    points: bytes
    seconds: float
    background: list[str]

    def names(self, groups: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        """The words that distinguish groups of texts in this file."""
        return distinguishing_words(groups, self.background)


class MapCache:
    """Keeps the newest map; several pages that ask for it at once wait for the same one."""

    def __init__(self, db: Database, watch: FileWatch) -> None:
        self._db, self._watch = db, watch
        self._lock = threading.Lock()
        self._kept: PassageMap | None = None

    def current(self, *, newest: bool = True) -> PassageMap:
        """The map of the file as it is now; without `newest` one that was made before will do."""
        with self._lock:
            kept, revision = self._kept, self._watch.revision
            if kept is not None and (kept.revision == revision or not newest):
                return kept
            began = time.monotonic()
            projection = self._db.projection()
            duplicates = self._db.duplicates(min_cosine=NEAR)
            points = _packed(projection, duplicates)
            of_documents = projection.ids[: len(projection) - projection.memories]
            some = of_documents[:: max(1, len(of_documents) // BACKGROUND)].tolist()
            background = [chunk.text for chunk in self._db.documents.chunks_by_ids(some)]
            seconds = time.monotonic() - began
            self._kept = PassageMap(revision, projection, duplicates, points, seconds, background)
            _give_back()
            return self._kept


def _give_back() -> None:
    """Return memory that was freed to the system, which glibc does not do by itself."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _packed(projection: Projection, duplicates: list[Duplicates]) -> bytes:
    """The points as arrays one after the other, each filled up to a multiple of four bytes."""
    parts = [
        projection.ids.astype("<u4"),
        *_places(projection),
        *projection.groups.values(),
        _clusters(projection, duplicates),
    ]
    head = _MAGIC + struct.pack("<I", len(projection))
    arrays = [part.tobytes() for part in parts]
    return head + b"".join(raw + b"\0" * (-len(raw) % 4) for raw in arrays)


def _places(projection: Projection) -> list[NDArray[np.uint16]]:
    """Both coordinates, 0 to 65,535, on the same scale, with the middle in the middle."""
    axes = [projection.x, projection.y]
    if not len(projection):
        return [np.empty(0, "<u2"), np.empty(0, "<u2")]
    widest = max(float(np.ptp(axis)) for axis in axes) or 1.0
    return [
        np.clip(
            (axis - (axis.min() + axis.max()) / 2) / widest * _SCALE + _SCALE / 2, 0, _SCALE
        ).astype("<u2")
        for axis in axes
    ]


def _clusters(projection: Projection, duplicates: list[Duplicates]) -> NDArray[np.uint32]:
    """The number of each point's group of near-duplicates, from 1; 0 for none."""
    of_memory = np.arange(len(projection)) >= len(projection) - projection.memories
    found = np.zeros(len(projection), "<u4")
    for ids, mine in (("chunks", ~of_memory), ("memories", of_memory)):
        numbers = {
            id: number for number, each in enumerate(duplicates, 1) for id in getattr(each, ids)
        }
        found[mine] = [numbers.get(id, 0) for id in projection.ids[mine].tolist()]
    return found
