"""What a file has and what it has published, compared item by item. Pure.

An item has a key and digests of its parts. Both sides come in the order of their keys, like two
sorted lists that are merged, so only what differs is kept in memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

FORM = 1  # raised when what is made of an item changes: then all is published again


class State(NamedTuple):
    """An item: its key, the digests of its parts, and how many passages it has.

    `place` is a digest of what another item must have to be its successor, under another key.
    """

    key: int
    digests: tuple[bytes, ...]
    passages: int = 0
    place: bytes = b""


class Changed(NamedTuple):
    """An item to be written, and which of its parts differ; all of a new one do."""

    key: int
    parts: tuple[bool, ...]
    passages: int
    place: bytes = b""


@dataclass(slots=True)
class Differences:
    """The items that are new, changed or gone, and the number of the others."""

    added: list[Changed] = field(default_factory=list)
    changed: list[Changed] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    same: int = 0

    @property
    def count(self) -> int:
        """How many items differ."""
        return len(self.added) + len(self.changed) + len(self.gone)


def digest(*values: Any) -> bytes:
    """A digest of values in JSON's types."""
    said = json.dumps([FORM, *values], ensure_ascii=False, separators=(",", ":"))
    return hashlib.blake2b(said.encode(), digest_size=16).digest()


def differences(local: Iterable[State], remote: Iterable[State]) -> Differences:
    """What has to be done so that the remote side has the items of the local one."""
    found = Differences()
    theirs: Iterator[State] = iter(remote)
    other = next(theirs, None)
    for own in local:
        while other is not None and other.key < own.key:
            found.gone.append(other.key)
            other = next(theirs, None)
        if other is None or other.key > own.key:
            parts = (True,) * len(own.digests)
            found.added.append(Changed(own.key, parts, own.passages, own.place))
            continue
        parts = tuple(mine != its for mine, its in zip(own.digests, other.digests, strict=True))
        if any(parts):
            found.changed.append(Changed(own.key, parts, own.passages))
        else:
            found.same += 1
        other = next(theirs, None)
    while other is not None:
        found.gone.append(other.key)
        other = next(theirs, None)
    return found
