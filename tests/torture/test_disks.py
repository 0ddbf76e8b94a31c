"""Disks that are full, slow or gone, files that may not be touched: a clear error, nothing lost,
and on it goes after.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvectordb import Database, ReadOnly, Unwritable
from mcpvectordb.index import chunks
from tests.support import Letters
from tests.torture.disks import small_disk, unprivileged, write_slowly
from tests.torture.support_torture import (
    READING,
    WRITING,
    Account,
    Promise,
    State,
    disagreements,
    some_text,
    start,
    state,
    steps,
    work,
)

pytestmark = pytest.mark.torture


def test_a_full_disk_is_told_and_nothing_is_lost(
    promise: Callable[..., Promise], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "LEASE_SECONDS", 0.1)

    def round(number: int, rng: random.Random) -> None:
        with small_disk(tmp_path / "disk", 6):
            path, ballast = tmp_path / "disk" / "full.db", tmp_path / "disk" / "ballast"
            account = Account()
            with Database(path, embedder=Letters()) as db:
                free = os.statvfs(path.parent).f_bavail * os.statvfs(path.parent).f_frsize
                ballast.write_bytes(bytes(max(0, free - rng.randrange(20_000, 600_000))))
                assert filled_up(db, rng, account), "the disk was never full"
                assert disagreements(state(db), State(), [account]) == [] and db.check() == []
                ballast.unlink()
                for _, step in zip(range(10), steps(db, rng, "after", WRITING), strict=False):
                    step.call()
                    account.acknowledged |= step.changes
                assert disagreements(state(db), State(), [account]) == [] and db.check() == []
            with Database(path, embedder=Letters()) as db:
                db.embed_pending()
                assert disagreements(state(db), State(), [account]) == [] and db.check() == []

    promise("5 full disk", full=50, short=3).holds(round)


def filled_up(db: Database, rng: random.Random, account: Account) -> bool:
    """Write until the disk is full, and a little longer."""
    full = 0
    for number in range(3_000):
        source, text = f"fill-{number}", some_text(rng) * 5
        try:
            db.documents.ingest_text(text, source=source, embed=number % 3 > 0)
            account.acknowledged[f"document {source}"] = text
        except Unwritable as error:
            assert "full" in str(error) or "cannot be read or written" in str(error)
            # Either nothing of it is there, or its text is, and waits for its embedding.
            account.acknowledged[f"document {source}"] = state(db).get(f"document {source}")
            full += 1
        if full == 5:
            return True
    return False


# Files and folders that may not be touched. Root may touch everything, so these run as nobody.


def _may_not_be_written(path: Path) -> None:
    path.chmod(0o400)
    path.parent.chmod(0o500)
    with Database(path, embedder=Letters()) as db:
        assert db.read_only and db.documents.search("harbour").hits and db.check() == []
        with pytest.raises(ReadOnly, match="reading only"):
            db.documents.ingest_text("new", source="new")
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def _may_not_be_read(path: Path) -> None:
    path.chmod(0)
    with pytest.raises(Unwritable, match="no permission"):
        Database(path)


def _folder_may_not_be_entered(path: Path) -> None:
    path.parent.chmod(0)
    with pytest.raises(Unwritable):
        Database(path)


def _folder_may_not_be_written(path: Path) -> None:
    path.parent.chmod(0o500)
    with pytest.raises(Unwritable, match="no permission"):
        Database(path.with_name("another.db"))


@pytest.mark.parametrize(
    "forbid",
    [_may_not_be_written, _may_not_be_read, _folder_may_not_be_entered, _folder_may_not_be_written],
)
def test_what_may_not_be_touched_is_told_and_goes_on_when_it_may(
    promise: Callable[..., Promise], tmp_path: Path, forbid: Callable[[Path], None]
) -> None:
    promise("5 no permission", full=4, short=4).rounds += 1
    unprivileged(_forbidden, forbid)


def _forbidden(folder: Path, forbid: Callable[[Path], None]) -> None:
    path = folder / "mine.db"
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("harbour", source="a")
    try:
        forbid(path)
    finally:
        folder.chmod(0o700)
        path.chmod(0o600)
    with Database(path, embedder=Letters()) as db:
        assert not db.read_only and state(db) == {"document a": "harbour"}
        db.documents.ingest_text("lamp", source="b")
        assert db.check() == []


# Files that go away while they are open.


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_vanished_file_is_told_and_goes_on_when_it_is_back(
    promise: Callable[..., Promise], tmp_path: Path, what: str
) -> None:
    promise("5 vanished files", full=3, short=3).rounds += 1
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "here.db"
    place, elsewhere = (path, folder / "away.db") if what == "file" else (folder, tmp_path / "away")
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("harbour", source="a")
        place.rename(elsewhere)
        for question in (
            lambda: db.documents.ingest_text("lost?", source="b"),
            db.stats,
            db.check,
            db.compact,
        ):
            with pytest.raises(Unwritable, match="moved or deleted"):
                question()
        elsewhere.rename(place)
        db.documents.ingest_text("lamp", source="c")
        assert state(db) == {"document a": "harbour", "document c": "lamp"} and db.check() == []
    with Database(path, embedder=Letters()) as db:
        assert state(db) == {"document a": "harbour", "document c": "lamp"} and db.check() == []


def test_a_file_that_another_took_the_place_of_is_told(
    promise: Callable[..., Promise], tmp_path: Path
) -> None:
    promise("5 vanished files", full=3, short=3).rounds += 1
    path = tmp_path / "here.db"
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("harbour", source="a")
        db.copy_to(tmp_path / "copy.db").replace(path)
        with pytest.raises(Unwritable, match="replaced"):
            db.documents.ingest_text("lost?", source="b")
    with Database(path, embedder=Letters()) as db:
        assert state(db) == {"document a": "harbour"} and db.check() == []


# Other ways to the same file, and disks far away.


def test_processes_that_come_by_a_link_and_by_the_name_share_one_file(
    promise: Callable[..., Promise], tmp_path: Path
) -> None:
    kept = promise("5 linked files", full=5, short=1)
    (tmp_path / "links").mkdir()

    def round(number: int, rng: random.Random) -> None:
        path, link = tmp_path / f"{number}.db", tmp_path / "links" / f"{number}.db"
        link.symlink_to(path)
        crowd(tmp_path, [(path, work), (link, work)], 15, f"{kept.name} {number}")

    kept.holds(round)


def test_a_slow_disk_is_waited_for(promise: Callable[..., Promise], tmp_path: Path) -> None:
    kept = promise("5 slow disk", full=5, short=1)

    def round(number: int, rng: random.Random) -> None:
        path = tmp_path / f"{number}.db"
        crowd(
            tmp_path,
            [(path, write_slowly), (path, work), (path, write_slowly)],
            6,
            f"{kept.name} {number}",
        )

    kept.holds(round)


def crowd(
    folder: Path, ways: list[tuple[Path, Callable[..., None]]], count: int, seed: str
) -> None:
    """Let processes work on one file, each in its way and with its name for it, and compare the
    file with what they say.
    """
    journals = [folder / f"{seed} {number}.journal" for number, _ in enumerate(ways)]
    children = [
        start(
            way,
            path,
            f"p{number}",
            f"{seed} {number}",
            journals[number],
            {**WRITING, **READING},
            count,
        )
        for number, (path, way) in enumerate(ways)
    ]
    for child in children:
        child.join()
    accounts = [Account.read(journal) for journal in journals]
    assert not [error for account in accounts for error in account.errors]
    with Database(ways[0][0], embedder=Letters()) as db:
        assert disagreements(state(db), State(), accounts) == [] and db.check() == []
