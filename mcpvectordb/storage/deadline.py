"""The deadline of reads: how long a question may take, and the check for it between its steps.

`File.reading` lets the time run. Whatever can take long during a read calls `check`: SQLite's
progress handler every few thousand steps of a statement, loops of our own, and a search by RE2,
which nothing can interrupt, between pieces of bounded work. The time of a model that embeds or
reranks does not count (`paused`). A deadline belongs to the context
(PEP 567) in which it began, so threads do not share one.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from mcpvectordb.errors import ReadTimeout

CancelCheck = Callable[[], object]
"""Raises if nobody waits for the answer any more."""


class ReadTime:
    """The seconds that are left for reads, and the time at which the running one must end."""

    def __init__(self, seconds: float, cancelled: CancelCheck | None = None) -> None:
        self.seconds = self.left = seconds
        self.end = math.inf
        self._cancelled = cancelled

    def check(self, step: str) -> None:
        """Raise ReadTimeout past the end, or what the caller's own check raises, during a read."""
        if self.end == math.inf:
            return
        if self._cancelled is not None:
            self._cancelled()
        if self.over():
            raise ReadTimeout(
                f"stopped while {step}, after the {self.seconds:g} s that a read may take: narrow "
                "the question (fewer or rarer words, a filter, a smaller limit or offset), or set "
                "read_timeout (MCPVECTORDB_READ_TIMEOUT) higher"
            )

    def over(self) -> bool:
        """Whether the running read is past its end."""
        return time.monotonic() > self.end


_current: ContextVar[ReadTime | None] = ContextVar("deadline", default=None)


@contextlib.contextmanager
def shared(seconds: float, cancelled: CancelCheck | None = None) -> Iterator[ReadTime]:
    """Give the reads of the block `seconds` together, or what is left in a block around it.

    They also end with whatever `cancelled` raises, which is called at every check.
    """
    if (outer := _current.get()) is not None:
        yield outer
        return
    token = _current.set(own := ReadTime(seconds, cancelled))
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


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Let the time stand still: that of a model that embeds or reranks does not count."""
    current, began = _current.get(), time.monotonic()
    try:
        yield
    finally:
        if current is not None:
            current.end += time.monotonic() - began


def left() -> float | None:
    """The seconds that the current read may still take; None if it has no deadline."""
    current = _current.get()
    return None if current is None else max(0.0, current.end - time.monotonic())


def check(step: str = "reading the file") -> None:
    """Stop the current read if it is past its deadline or cancelled; `step` is what it was doing.

    Cheap: a loop whose steps take more than microseconds may call it in each.
    """
    if (current := _current.get()) is not None:
        current.check(step)
