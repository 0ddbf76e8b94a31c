"""Chunks and their indexes: keyword (FTS5), vector (vec0), and what stays resident in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import apsw

from mcpvectordb.records import Condition
from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ranked = list[tuple[int, float]]
"""(id, score) pairs, best first."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which ids a search may return: a SELECT of them with its bindings, or "" for all.

    `conditions`, if there are any, are equivalent to it; what is in memory is filtered by them.
    `origins` are the names of those that it chooses from, if not all, in a published database.
    """

    select: str = ""
    bindings: tuple[object, ...] = ()
    conditions: tuple[Condition, ...] = ()
    origins: tuple[str, ...] = ()

    def ids(self, sql: apsw.Connection) -> NDArray[np.int64]:
        """The selected ids."""
        return np.fromiter((id for (id,) in sql.execute(self.select, self.bindings)), np.int64)


EVERYTHING = Allowed()
