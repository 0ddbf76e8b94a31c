"""What work takes, measured by the process that does it."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Timed = dict[str, list[Any]]


def timed(works: Iterable[Callable[[], Any]]) -> Timed:
    """Milliseconds by the clock and of the processor, and what came out, of each piece of work."""
    figures: Timed = {"wall": [], "cpu": [], "found": []}
    for work in works:
        wall, cpu = time.perf_counter(), time.process_time()
        found = work()
        figures["cpu"].append(1000 * (time.process_time() - cpu))
        figures["wall"].append(1000 * (time.perf_counter() - wall))
        figures["found"].append(found)
    return figures


def peak() -> int:
    """The most memory in bytes that this process had at once.

    Where the system says it: elsewhere a child's figure begins with that of its parent.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * next(
            int(line.split()[1])
            for line in status.read_text().splitlines()
            if line.startswith("VmHWM")
        )
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
