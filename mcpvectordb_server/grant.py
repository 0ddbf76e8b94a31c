"""What the server grants one call of a tool: folders to read files from, and progress reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcpvectordb import Progress

ProgressCallback = Callable[[Progress], None]


def _ignore(_: Progress) -> None:
    """Do nothing: the client asked for no reports."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """The grant of one call; a tool function gets it by a keyword parameter of this type.

    The parameter is left out of the exposed schema.

    roots     folders that files may come from; None allows every readable file, () allows none
    progress  called at each step of long work; raises when the client has cancelled the call
    jobs      returns a line for each call that goes on in the background
    """

    roots: tuple[Path, ...] | None = None
    progress: ProgressCallback = _ignore
    jobs: Callable[[], Sequence[str]] = tuple
