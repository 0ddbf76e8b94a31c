"""How fast what waits becomes less, from how much there was when somebody looked."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

WINDOW = 60.0
"""Seconds that the pace is taken from."""


class Pace:
    """Remembers the counts of the last minute; a count that has grown begins anew."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._seen: deque[tuple[float, int]] = deque()

    def per_second(self, count: int) -> float | None:
        """By how much the count falls in a second; None while that is not known."""
        with self._lock:
            now = self._clock()
            if self._seen and count > self._seen[-1][1]:
                self._seen.clear()
            self._seen.append((now, count))
            while now - self._seen[0][0] > WINDOW:
                self._seen.popleft()
            began, first = self._seen[0]
            return (first - count) / (now - began) if first > count and now > began else None
