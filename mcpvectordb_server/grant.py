"""What the server grants one call of a tool: folders to read, progress, and its client's person."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpvectordb import MCPVectorDBError, Progress, Refused

ProgressCallback = Callable[[Progress], None]


class Cancelled(BaseException):
    """Ends the work of a call or job that was cancelled; what it has stored stays."""


def _ignore(_: Progress) -> None:
    """Do nothing: the client asked for no reports."""


class Unconfirmed(Exception):
    """Ends a call that has changed nothing yet, because a person is to be asked first.

    `about` identifies the question and what it is about, as it was when it was asked.
    """

    def __init__(self, question: str, about: str) -> None:
        super().__init__(question)
        self.question, self.about = question, about


class NotAgreed(MCPVectorDBError):
    """Nothing was changed, because nobody agreed to it."""

    code = "not_agreed"

    def __init__(self, why: str) -> None:
        super().__init__(f"nothing was changed: {why}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Client:
    """What the client of one call can do; a tool function gets it as it gets a Grant.

    shows   whether it shows views
    asks    whether it puts questions to a person
    agreed  what that person agreed to in this call: the `about` of a question
    """

    shows: bool = False
    asks: bool = False
    agreed: str = ""

    def confirm(self, question: str, *about: object) -> None:
        """Raise Unconfirmed unless the person agreed to exactly this, or nobody can be asked.

        What changed while the person thought is asked about again.
        """
        digest = hashlib.sha256(repr((question, about)).encode("utf-8", "replace")).hexdigest()
        if self.asks and self.agreed != digest:
            changed = "This has changed since you were asked. " if self.agreed else ""
            raise Unconfirmed(f"{changed}{question}", digest)


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """The grant of one call; a tool function gets it by a keyword parameter of this type.

    The parameter is left out of the exposed schema.

    roots     folders that files may come from; None allows every readable file, () allows none
    progress  called at each step of long work; raises when the client has cancelled the call
    jobs      returns a line for each call that goes on in the background
    client    what the client can do
    """

    roots: tuple[Path, ...] | None = None
    progress: ProgressCallback = _ignore
    jobs: Callable[[], Sequence[str]] = tuple
    client: Client = Client()

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
