"""Disks that are full, slow or missing, and files without permission.

The error is clear, nothing acknowledged is lost, and work goes on when the cause is removed.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvectordb import Database, ReadOnly, Unwritable
from mcpvectordb.index.tuning import Tuning
from tests.guarantees import Guarantee
from tests.support import Letters
from tests.torture.disks import small_disk, unprivileged, write_slowly
from tests.torture.support_torture import (
    READING,
    WRITING,
    Account,
    State,
    disagreements,
    opened,
    some_text,
    start,
    state,
    steps,
    work,
)

pytestmark = pytest.mark.torture


def test_a_full_disk_is_reported_and_nothing_is_lost(
    guarantee: Callable[..., Guarantee], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def round(number: int, rng: random.Random) -> None:
        with small_disk(tmp_path / "disk", 6):
            path, ballast = tmp_path / "disk" / "full.db", tmp_path / "disk" / "ballast"
            account = Account()
            with opened(path) as db:
                free = os.statvfs(path.parent).f_bavail * os.statvfs(path.parent).f_frsize
                with contextlib.suppress(OSError):  # the log may be written back meanwhile
                    ballast.write_bytes(bytes(max(0, free - rng.randrange(20_000, 600_000))))
                assert filled_up(db, rng, account), "the disk was never full"
                assert disagreements(state(db), State(), [account]) == [] and db.check() == []
                ballast.unlink()
                for _, step in zip(range(10), steps(db, rng, "after", WRITING), strict=False):
                    step.call()
                    account.acknowledged |= step.changes
                assert disagreements(state(db), State(), [account]) == [] and db.check() == []
            with opened(path) as db:
                db.embed_pending()
                assert disagreements(state(db), State(), [account]) == [] and db.check() == []

    guarantee("5 full disk", full=50, short=3).run_rounds(round)


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
    with opened(path) as db:
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
def test_missing_permission_is_reported_and_work_resumes_with_it(
    guarantee: Callable[..., Guarantee], tmp_path: Path, forbid: Callable[[Path], None]
) -> None:
    guarantee("5 no permission", full=4, short=4).rounds += 1
    unprivileged(_forbidden, forbid)


def _forbidden(folder: Path, forbid: Callable[[Path], None]) -> None:
    path = folder / "mine.db"
    with opened(path) as db:
        db.documents.ingest_text("harbour", source="a")
    try:
        forbid(path)
    finally:
        folder.chmod(0o700)
        path.chmod(0o600)
    with opened(path) as db:
        assert not db.read_only and state(db) == {"document a": "harbour"}
        db.documents.ingest_text("lamp", source="b")
        assert db.check() == []


# Files that go away while they are open.


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_missing_file_is_reported_and_work_resumes_when_it_is_back(
    guarantee: Callable[..., Guarantee], tmp_path: Path, what: str
) -> None:
    guarantee("5 vanished files", full=3, short=3).rounds += 1
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "here.db"
    place, elsewhere = (path, folder / "away.db") if what == "file" else (folder, tmp_path / "away")
    with opened(path) as db:
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
    with opened(path) as db:
        assert state(db) == {"document a": "harbour", "document c": "lamp"} and db.check() == []


def test_a_replaced_file_is_reported(guarantee: Callable[..., Guarantee], tmp_path: Path) -> None:
    guarantee("5 vanished files", full=3, short=3).rounds += 1
    path = tmp_path / "here.db"
    with opened(path) as db:
        db.documents.ingest_text("harbour", source="a")
        db.copy_to(tmp_path / "copy.db").replace(path)
        with pytest.raises(Unwritable, match="replaced"):
            db.documents.ingest_text("lost?", source="b")
    with opened(path) as db:
        assert state(db) == {"document a": "harbour"} and db.check() == []


def test_a_restored_backup_stays_what_it_is(
    guarantee: Callable[..., Guarantee], tmp_path: Path
) -> None:
    """Whatever log lies beside it: of a process that was killed, was closed, or is open still."""
    tested = guarantee("5 restored backups", full=500, short=20)

    def round(number: int, rng: random.Random) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        path, backups = folder / "x.db", list[tuple[Path, State]]()
        db = never_idle(path)
        for step in range(rng.randint(6, 14)):
            what = rng.choice(["write", "write", "idle", "cp", "copy", "kill", "restore"])
            if what == "write":
                db.documents.ingest_text(some_text(rng), source=f"{rng.randrange(4)}")
                continue
            if what in ("idle", "cp"):
                assert db._file._empty_log(db._file._keeper)
            if what == "cp":
                backups.append((Path(shutil.copy(path, folder / f"{step}.db")), state(db)))
            elif what == "copy":
                backups.append((db.copy_to(folder / f"{step}.db"), state(db)))
            if what not in ("kill", "restore"):
                continue
            expected, before = state(db), db
            how = rng.choice(["killed", "closed", "open"]) if what == "restore" else "killed"
            if how == "killed":
                path = left_by_a_kill(path, folder / f"left-{step}")
            if how != "open":
                db.close()
            if what == "restore" and backups:
                backup, expected = rng.choice(backups)
                restored = Path(shutil.copy(backup, folder / f"restored-{step}.db"))
                if how == "open" or rng.random() < 0.5:
                    restored.replace(path)
                else:
                    shutil.copyfile(restored, path)
            db = never_idle(path)
            assert state(db) == expected and db.check() == []
            before.close()
            assert state(db) == expected
        db.close()
        shutil.rmtree(folder)

    tested.run_rounds(round)


def never_idle(path: Path) -> Database:
    """A database whose log is written back only when the test does it."""
    return Database(path, embedder=Letters(), tuning=Tuning(idle_seconds=1_000))


def left_by_a_kill(path: Path, folder: Path) -> Path:
    """The file and its log as they are now, in another folder."""
    folder.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", folder)
    return folder / path.name


# Other ways to the same file, and disks far away.


def test_processes_that_open_a_file_by_a_link_and_by_its_name_share_it(
    guarantee: Callable[..., Guarantee], tmp_path: Path
) -> None:
    tested = guarantee("5 linked files", full=5, short=1)
    (tmp_path / "links").mkdir()

    def round(number: int, rng: random.Random) -> None:
        path, link = tmp_path / f"{number}.db", tmp_path / "links" / f"{number}.db"
        link.symlink_to(path)
        run_processes(tmp_path, [(path, work), (link, work)], 15, f"{tested.name} {number}")

    tested.run_rounds(round)


def test_writes_to_a_slow_disk_complete(
    guarantee: Callable[..., Guarantee], tmp_path: Path
) -> None:
    tested = guarantee("5 slow disk", full=5, short=1)

    def round(number: int, rng: random.Random) -> None:
        path = tmp_path / f"{number}.db"
        run_processes(
            tmp_path,
            [(path, write_slowly), (path, work), (path, write_slowly)],
            6,
            f"{tested.name} {number}",
        )

    tested.run_rounds(round)


def run_processes(
    folder: Path, ways: list[tuple[Path, Callable[..., None]]], count: int, seed: str
) -> None:
    """Run processes on one file, each with its own function and path.

    The file must agree with what they report.
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
    with opened(ways[0][0]) as db:
        assert disagreements(state(db), State(), accounts) == [] and db.check() == []
