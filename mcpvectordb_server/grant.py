"""What the server grants one call of a tool: folders to read files from, and progress reports."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpvectordb import Progress, Refused

ProgressCallback = Callable[[Progress], None]


class Cancelled(BaseException):
    """Ends the work of a call or job that was cancelled; what it has stored stays."""


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

    def reading(self) -> dict[str, Any]:
        """The arguments by which the library reads a source within this grant."""
        return {"guard": True, "roots": self.roots or (), "progress": self.progress}

    def check_files(self, instead: str = "") -> None:
        """Raise Refused if no file at all may be read; `instead` says what may be."""
        if self.roots == ():
            raise Refused(
                "files can be ingested over HTTP only from folders the server was started with "
                f"(--root DIR){instead}"
            )


def is_url(source: str) -> bool:
    """Whether a source is not a file but a URL, of any scheme."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", source) is not None
