"""Many processes at one file: nobody is told of a lock, and what was acknowledged is there."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvectordb import Database
from tests.support import Letters
from tests.torture.support_torture import (
    READING,
    WRITING,
    Account,
    Promise,
    State,
    disagreements,
    start,
    state,
    work,
)

pytestmark = pytest.mark.torture

KINDS = (WRITING, READING, {**WRITING, **READING})


def test_no_lock_reaches_anybody_in_a_crowd(
    promise: Callable[..., Promise], tmp_path: Path
) -> None:
    kept = promise("3 crowded", full=500, short=25)
    processes = 20 if kept.long else 6
    path = tmp_path / "crowded.db"
    journals = [tmp_path / f"{number}.journal" for number in range(processes)]
    children = [
        start(
            work,
            path,
            f"p{number}",
            f"crowded {number}",
            journal,
            KINDS[number % len(KINDS)],
            kept.planned,
        )
        for number, journal in enumerate(journals)
    ]
    for child in children:
        child.join()
    accounts = [Account.read(journal) for journal in journals]
    kept.rounds = processes * kept.planned
    kept.failures += [error for account in accounts for error in account.errors]
    kept.failures += [
        f"a process ended with {child.exitcode}" for child in children if child.exitcode
    ]
    with Database(path, embedder=Letters()) as db:
        kept.failures += disagreements(state(db), State(), accounts) + db.check()
    p99 = statistics.quantiles(
        [second for account in accounts for second in account.seconds], n=100
    )[98]
    kept.note = f"{processes} processes, p99 of a write {p99:.2f} s"
    if kept.long and p99 >= 10:
        kept.failures.append(kept.note)
    kept.kept()
