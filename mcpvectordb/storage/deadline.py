"""The deadline of reads: how long a question may take, and the check for it between its steps.

`File.reading` lets the time run. SQLite's progress handler calls `check` every few thousand steps
of a statement, and loops of our own that can take long call it themselves. The time of a model
that embeds or reranks does not count, because no transaction is open then. A deadline belongs to
the context (PEP 567) in which it began, so threads do not share one.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from contextvars import ContextVar

from mcpvectordb.errors import ReadTimeout


class _TimeLeft:
    """The seconds that are left for reads, and the time at which the running one must end."""

    def __init__(self, seconds: float) -> None:
        self.seconds = self.left = seconds
        self.end = math.inf


_current: ContextVar[_TimeLeft | None] = ContextVar("deadline", default=None)


@contextlib.contextmanager
def shared(seconds: float) -> Iterator[_TimeLeft]:
    """Give the reads of the block `seconds` together, or what is left in a block around it."""
    if (outer := _current.get()) is not None:
        yield outer
        return
    token = _current.set(own := _TimeLeft(seconds))
    try:
        yield own
    finally:
        _current.reset(token)


@contextlib.contextmanager
def running(seconds: float) -> Iterator[None]:
    """Let the time of the current deadline run, or of a new one if there is none."""
    with shared(seconds) as current:
        if current.end < math.inf:  # a read of another file inside of this one
            yield
            return
        current.end = time.monotonic() + current.left
        try:
            check()
            yield
        finally:
            current.left = current.end - time.monotonic()
            current.end = math.inf


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Let the block take as long as it takes: writes and maintenance are never cut."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def left() -> float | None:
    """The seconds that the current read may still take; None if it has no deadline."""
    current = _current.get()
    return None if current is None else max(0.0, current.end - time.monotonic())


def check(step: str = "reading the file") -> None:
    """Raise ReadTimeout if the current read is past its deadline; `step` is what it was doing."""
    current = _current.get()
    if current is not None and time.monotonic() > current.end:
        raise ReadTimeout(
            f"stopped while {step}, after the {current.seconds:g} s that a read may take: narrow "
            "the question (fewer or rarer words, a filter, a smaller limit or offset), or set "
            "read_timeout (MCPVECTORDB_READ_TIMEOUT) higher"
        )
