"""A process that runs for long: memory and open files do not grow, and the file stays small."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path

import pytest

from tests.guarantees import Guarantee
from tests.torture.server_calls import serve
from tests.torture.support_torture import Resources, ResourceUsage, opened, run_operations, start

pytestmark = pytest.mark.torture

MEASUREMENTS = 20  # how often memory and files are counted
MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    ("name", "short", "life_of"),
    [("10 long life", 300, run_operations), ("10 long life of a server", 200, serve)],
    ids=["library", "server"],
)
@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="memory and open files are counted by /proc"
)
def test_memory_and_open_files_do_not_grow_over_time(
    name: str,
    short: int,
    life_of: Callable[..., None],
    guarantee: Callable[..., Guarantee],
    tmp_path: Path,
) -> None:
    tested = guarantee(name, full=100_000, short=short)
    path, (mine, theirs) = tmp_path / "life.db", Pipe(duplex=False)
    child = start(life_of, path, tested.planned, MEASUREMENTS, theirs)
    theirs.close()
    life: ResourceUsage = mine.recv()
    child.join()
    tested.rounds = tested.planned
    # After a quarter, everything that is loaded once is loaded. What is open for a moment, such as
    # the connection that writes an idle log back, is not open throughout the last quarter.
    first, ending = life.measurements[MEASUREMENTS // 4], life.measurements[-MEASUREMENTS // 4 :]
    last = Resources(min(each.memory for each in ending), min(each.files for each in ending))
    tested.note = (
        f"memory {first.memory / MEGABYTE:.0f} to {last.memory / MEGABYTE:.0f} MB, open files "
        f"{first.files} to {last.files}, file {life.before / MEGABYTE:.1f}, compacted "
        f"{life.after / MEGABYTE:.1f} MB"
    )
    with opened(path) as db:
        tested.failures += db.check()
        fresh = db.copy_to(tmp_path / "fresh.db").stat().st_size
        assert db.stats().chunks
    slack = 8 if tested.long else 64  # what is loaded once comes late in a short life
    if last.memory > 1.1 * first.memory + slack * MEGABYTE:
        tested.failures.append(
            f"memory grows: {[each.memory // MEGABYTE for each in life.measurements]}"
        )
    if last.files > first.files + (0 if tested.long else 2):
        tested.failures.append(f"open files grow: {[each.files for each in life.measurements]}")
    if life.after > 1.2 * fresh + MEGABYTE:
        tested.failures.append(
            f"the compacted file has {life.after:,} bytes, a new one with the same content "
            f"{fresh:,}"
        )
    tested.check_failures()
