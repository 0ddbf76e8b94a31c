"""Many processes on one file: none gets a lock error, and every acknowledged change is stored."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.guarantees import Guarantee
from tests.torture.support_torture import (
    READING,
    WRITING,
    Account,
    State,
    disagreements,
    opened,
    start,
    state,
    work,
)

pytestmark = pytest.mark.torture

KINDS = (WRITING, READING, {**WRITING, **READING})


def test_many_processes_write_without_lock_errors(
    guarantee: Callable[..., Guarantee], tmp_path: Path
) -> None:
    tested = guarantee("3 crowded", full=500, short=25)
    processes = 20 if tested.long else 6
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
            tested.planned,
        )
        for number, journal in enumerate(journals)
    ]
    for child in children:
        child.join()
    accounts = [Account.read(journal) for journal in journals]
    tested.rounds = processes * tested.planned
    tested.failures += [error for account in accounts for error in account.errors]
    tested.failures += [
        f"a process ended with {child.exitcode}" for child in children if child.exitcode
    ]
    with opened(path) as db:
        tested.failures += disagreements(state(db), State(), accounts) + db.check()
    p99 = statistics.quantiles(
        [second for account in accounts for second in account.seconds], n=100
    )[98]
    tested.note = f"{processes} processes, p99 of a write {p99:.2f} s"
    if tested.long and p99 >= 10:
        tested.failures.append(tested.note)
    tested.check_failures()
