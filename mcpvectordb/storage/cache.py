"""A cache of results that are slow to compute, under a digest of all their inputs.

It is in memory, per process: a search changes nothing in the file, so that a tool that searches is
read-only in fact. Earlier versions kept entries in the table `cache`, which `maintenance` empties.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

MOST = 20_000  # entries of some hundred bytes; the oldest are dropped first


def key(*parts: str) -> bytes:
    """The key of an entry: a digest of what it is, the model that computed it, and its inputs."""
    return hashlib.sha256(json.dumps(parts).encode()).digest()


class Cache:
    """The cache of one Database; thread-safe."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._entries: OrderedDict[bytes, Any] = OrderedDict()

    def read(self, keys: Iterable[bytes]) -> dict[bytes, Any]:
        """The entries with these keys, as far as there are any."""
        with self._lock:
            return {key: self._entries[key] for key in keys if key in self._entries}

    def write(self, answers: Mapping[bytes, Any]) -> None:
        """Add entries."""
        with self._lock:
            for key, value in answers.items():
                self._entries[key] = value
                self._entries.move_to_end(key)
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
