"""By whom changes are made: the shell, a client of the server, or by default Python.

It is a memory variable, because it would have to pass through every function that writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

LONGEST = 200  # characters of a name: it is shown in listings, and clients choose theirs

_actor: ContextVar[str] = ContextVar("actor", default="python")


def current() -> str:
    """The name of who makes changes now."""
    return _actor.get()


def shown(name: str) -> str:
    """A name as listings show it: one line, not too long."""
    return " ".join(name.encode("utf-8", "replace").decode()[:LONGEST].split())


@contextlib.contextmanager
def acting_as(name: str) -> Iterator[None]:
    """Let the changes of a block be made by `name`."""
    token = _actor.set(shown(name) or "python")
    try:
        yield
    finally:
        _actor.reset(token)
