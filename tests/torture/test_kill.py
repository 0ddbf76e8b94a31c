"""kill -9 of processes that write.

Nothing acknowledged is lost, nothing deleted comes back, and unfinished embedding is resumed.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvectordb import Config, Database
from mcpvectordb.storage.log import logs_set_aside
from tests.guarantees import Guarantee
from tests.torture.support_torture import (
    WRITING,
    Account,
    State,
    disagreements,
    opened,
    some_text,
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
            assert db.check() == [] and not logs_set_aside(path)
            db.embed_pending()
            assert db.stats().pending == 0
            assert db.check() == []

    guarantee("1 killed", full=500, short=5).run_rounds(round)


def test_a_merge_that_is_killed_leaves_the_old_file_or_the_merged_one(
    guarantee: Callable[..., Guarantee], tmp_path: Path
) -> None:
    ours, theirs, merged = (tmp_path / f"{name}.db" for name in ("ours", "theirs", "merged"))
    rng = random.Random("merge")
    with opened(ours) as db:
        for number in range(40):
            db.documents.ingest_text(some_text(rng), source=f"{number}")
            db.memories.add(f"{number}", "user", some_text(rng).strip())
        db.copy_to(theirs)
        db.documents.delete(where={"source": {"in": [str(each) for each in range(5)]}})
    with opened(theirs) as db:
        for number in range(20, 60):
            db.documents.ingest_text(some_text(rng), source=f"{number}")
            db.vectors.add(f"{number}", [float(number), 1.0])
        db.memories.delete([1, 2, 3])
    shutil.copy(ours, merged)
    with opened(merged) as db:
        db.merge(theirs)
        after = state(db)
    with opened(ours) as db:
        before = state(db)
    path, outcomes = tmp_path / "killed.db", Counter[bool]()

    def round(number: int, rng: random.Random) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        shutil.copy(ours, path)
        begun = tmp_path / f"{number}.begun"
        child = start(merge_and_say_so, path, theirs, begun)
        wait_for(begun.exists, what="the merge")
        time.sleep(rng.uniform(0.0, 0.8))
        child.kill()
        child.join()
        with opened(path) as db:
            found = state(db)
            assert found in (before, after)
            outcomes[found == after] += 1
            assert db.check() == []
            db.merge(theirs)
            assert state(db) == after and db.check() == []

    row = guarantee("1 merge killed", full=200, short=4)
    row.run_rounds(round)
    row.note = f"old {outcomes[False]}, merged {outcomes[True]}"


def merge_and_say_so(path: Path, other: Path, begun: Path) -> None:
    """What a child process does: merge a file into another."""
    with opened(path) as db:
        begun.touch()
        db.merge(other)


OLD_MODEL, NEW_MODEL = "all-MiniLM-L6-v2", "bge-small-en-v1.5"


def test_a_change_of_model_that_is_killed_leaves_a_file_that_answers_and_can_be_completed(
    guarantee: Callable[..., Guarantee], tmp_path: Path
) -> None:
    base, path, rng = tmp_path / "base.db", tmp_path / "killed.db", random.Random("models")
    with Database(base, config=Config(model=OLD_MODEL)) as db:
        for number in range(30):
            db.documents.ingest_text(some_text(rng), source=f"{number}", embed=False)
            db.memories.add(f"{number}", "user", some_text(rng).strip())
        db.embed_pending()
        before = state(db)
    outcomes = Counter[str]()

    def round(number: int, rng: random.Random) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        shutil.copy(base, path)
        begun = tmp_path / f"{number}.begun"
        child = start(use_model_and_say_so, path, begun)
        wait_for(begun.exists, what="the change of model")
        time.sleep(rng.uniform(0.0, 1.5))
        child.kill()
        child.join()
        with Database(path) as db:
            outcomes[db.stats().model] += 1
            assert db.check() == [] and state(db) == before
            assert db.documents.search("anything", mode="vector").hits
            db.use_model(NEW_MODEL)
            assert (db.stats().model, db.stats().pending) == (NEW_MODEL, 0)
            assert db.documents.search("anything", mode="vector").hits
            assert db.check() == [] and state(db) == before

    row = guarantee("1 change of model killed", full=100, short=2)
    row.run_rounds(round)
    row.note = f"old {outcomes[OLD_MODEL]}, new {outcomes[NEW_MODEL]}"


def use_model_and_say_so(path: Path, begun: Path) -> None:
    """What a child process does: embed everything by another model."""
    with Database(path) as db:
        begun.touch()
        db.use_model(NEW_MODEL)


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
