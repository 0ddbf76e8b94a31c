"""What the server grants one call: the folders it may read files from, and an ear for its
progress.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mcpvectordb.records import Progress, ProgressCallback


def _nobody(_: Progress) -> None:
    """Nobody listens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """A tool function that needs one has a keyword parameter of this type; it is no part of the
    published schema.

    roots     the folders that files may come from; None means whatever the user can read, () means
    none progress  told about each step of long work; raises when the client has given up
    """

    roots: tuple[Path, ...] | None = None
    progress: ProgressCallback = _nobody
