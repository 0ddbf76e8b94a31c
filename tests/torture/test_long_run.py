"""One process that goes on and on: memory and open files stay flat, and the file small."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path

import pytest

from mcpvectordb import Database
from tests.support import Letters
from tests.torture.server_calls import serve
from tests.torture.support_torture import Life, Promise, live, start

pytestmark = pytest.mark.torture

LOOKS = 20  # how often memory and files are counted
MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    ("name", "short", "life_of"),
    [("10 long life", 300, live), ("10 long life of a server", 200, serve)],
    ids=["library", "server"],
)
@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="memory and open files are counted by /proc"
)
def test_a_long_life_takes_no_more_than_a_short_one(
    name: str,
    short: int,
    life_of: Callable[..., None],
    promise: Callable[..., Promise],
    tmp_path: Path,
) -> None:
    kept = promise(name, full=100_000, short=short)
    path, (mine, theirs) = tmp_path / "life.db", Pipe(duplex=False)
    child = start(life_of, path, kept.planned, LOOKS, theirs)
    theirs.close()
    life: Life = mine.recv()
    child.join()
    kept.rounds = kept.planned
    first, last = (
        life.looks[LOOKS // 4],
        life.looks[-1],
    )  # after a quarter everything that is loaded once is loaded
    kept.note = (
        f"memory {first.memory / MEGABYTE:.0f} to {last.memory / MEGABYTE:.0f} MB, open files "
        f"{first.files} to {last.files}, file {life.before / MEGABYTE:.1f}, compacted "
        f"{life.after / MEGABYTE:.1f} MB"
    )
    with Database(path, embedder=Letters()) as db:
        kept.failures += db.check()
        fresh = db.copy_to(tmp_path / "fresh.db").stat().st_size
        assert db.stats().chunks
    slack = 8 if kept.long else 64  # what is loaded once comes late in a short life
    if last.memory > 1.1 * first.memory + slack * MEGABYTE:
        kept.failures.append(f"memory grows: {[look.memory // MEGABYTE for look in life.looks]}")
    if last.files > first.files:
        kept.failures.append(f"open files grow: {[look.files for look in life.looks]}")
    if life.after > 1.2 * fresh + MEGABYTE:
        kept.failures.append(
            f"the compacted file has {life.after:,} bytes, a new one with the same content "
            f"{fresh:,}"
        )
    kept.kept()
