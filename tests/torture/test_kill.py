"""kill -9 of processes that write.

Nothing acknowledged is lost, nothing deleted comes back, and unfinished embedding is resumed.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.torture.support_torture import (
    WRITING,
    Account,
    Guarantee,
    State,
    disagreements,
    opened,
    start,
    state,
    wait_for,
    work,
)

pytestmark = pytest.mark.torture

ROUNDS_PER_FILE = 25


def test_acknowledged_changes_survive_kill_9(
    guarantee: Callable[..., Guarantee], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, before = tmp_path / "killed.db", State()

    def round(number: int, rng: random.Random) -> None:
        nonlocal before
        if number % ROUNDS_PER_FILE == 0:
            before = fresh(tmp_path)
        accounts = kill_writers(path, rng, number)
        assert not [error for account in accounts for error in account.errors]
        with opened(path) as db:
            found = state(db)
            assert disagreements(found, before, accounts) == []
            before = found
            assert db.check() == []
            db.embed_pending()
            assert db.stats().pending == 0
            assert db.check() == []

    guarantee("1 killed", full=500, short=5).run_rounds(round)


def fresh(folder: Path) -> State:
    shutil.rmtree(folder)
    folder.mkdir()
    return {}


def kill_writers(path: Path, rng: random.Random, number: int) -> list[Account]:
    """Start one to four writers, and kill them after a moment, one by one or all at once."""
    journals = [path.with_name(f"{number}-{child}.journal") for child in range(rng.randint(1, 4))]
    children = [
        start(work, path, f"writer{child}", f"{number} {child}", journal, WRITING, 1_000_000)
        for child, journal in enumerate(journals)
    ]
    wait_for(lambda: all(journal.exists() for journal in journals), what="the writers")
    for child in children:
        time.sleep(rng.uniform(0.0, 0.4))
        child.kill()
    for child in children:
        child.join()
    return [Account.read(journal) for journal in journals]
