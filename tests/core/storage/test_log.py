"""A file and its log: which log is applied, which is set aside, and when a log is written back."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from mcpvectordb import Damaged, Database, Unwritable
from mcpvectordb.storage import log
from mcpvectordb.storage.file import File
from mcpvectordb.storage.log import Mark
from mcpvectordb.storage.schema import VERSION
from tests.support import python


def write(file: File, *names: str) -> None:
    with file.writing() as sql:
        sql.executemany("INSERT INTO settings (name, value) VALUES (?, 1)", [(n,) for n in names])


def names(path: Path) -> set[str]:
    """What a file holds when it is opened, and closed again."""
    file = File(path)
    try:
        return held(file)
    finally:
        file.close()


def held(file: File) -> set[str]:
    with file.reading() as sql:
        return {name for (name,) in sql.execute("SELECT name FROM settings")}


def killed(path: Path, folder: Path) -> Path:
    """What a killed process leaves: the file and its log, in another folder."""
    folder.mkdir()
    for part in (path, log.log_of(path)):
        shutil.copy(part, folder)
    return folder / path.name


def emptied(file: File) -> None:
    """Wait until the log of an idle file is in the file."""
    with file._idle:
        assert file._idle.wait_for(lambda: not file._emptier, timeout=60)


# How a backup of a file that holds "a" was made.


def closed_copy(path: Path, backup: Path) -> None:
    shutil.copy(path, backup)


def idle_copy(path: Path, backup: Path) -> None:
    file = File(path, idle_seconds=0)
    write(file, "z")
    write_and_delete(file)
    emptied(file)
    shutil.copy(path, backup)
    file.close()


def write_and_delete(file: File) -> None:
    with file.writing() as sql:
        sql.execute("DELETE FROM settings WHERE name = 'z'")


def own_copy(path: Path, backup: Path) -> None:
    with Database(path) as db:
        db.copy_to(backup)


def opened_copy(path: Path, backup: Path) -> None:
    own_copy(path, backup)
    File(backup).close()


@pytest.mark.parametrize("back_up", [closed_copy, idle_copy, own_copy, opened_copy])
@pytest.mark.parametrize("restore", [Path.replace, shutil.copyfile])
def test_a_restored_backup_is_not_replaced_by_the_log_of_a_killed_process(
    tmp_path: Path,
    path: Path,
    back_up: Callable[[Path, Path], None],
    restore: Callable[[Path, Path], object],
) -> None:
    file = File(path)
    write(file, "a")
    file.close()
    back_up(path, tmp_path / "backup.db")
    file = File(path)
    write(file, "b")
    left = killed(path, tmp_path / "left")
    file.close()
    restore(tmp_path / "backup.db", left)
    file = File(left)
    aside = [each.name for each in log.logs_set_aside(left)]
    assert held(file) == {"a"} and file.flaws() == []
    assert aside == [f"{left.name}-wal-set-aside-1"] and aside[0] in file.set_aside
    file.close()
    assert names(left) == {"a"}
    assert log.first_mark(log.logs_set_aside(left)[0])  # nothing of it is lost


def test_the_log_of_a_killed_process_is_applied_wherever_both_were_copied(
    tmp_path: Path, path: Path
) -> None:
    file = File(path)
    write(file, "a")
    first = killed(path, tmp_path / "first")
    file.close()
    assert names(first) == {"a"}
    file = File(path)
    write(file, "b")
    write(file, "c")
    second = killed(path, tmp_path / "second")
    file._keeper.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    write(file, "d")
    third = killed(path, tmp_path / "third")
    file.close()
    assert names(second) == {"a", "b", "c"} and names(third) == {"a", "b", "c", "d"}
    assert not log.logs_set_aside(second) + log.logs_set_aside(third)


def test_the_log_that_an_older_version_left_is_applied(tmp_path: Path, path: Path) -> None:
    File(path).close()
    old = apsw.Connection(str(path))
    old.execute(f"PRAGMA user_version = {VERSION}; PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    old.execute("INSERT INTO settings (name, value) VALUES ('a', 1)")
    left = killed(path, tmp_path / "left")
    old.close()
    assert names(left) == {"a"} and not log.logs_set_aside(left)


def test_a_copy_gets_no_log_of_an_older_version(tmp_path: Path, path: Path) -> None:
    File(path).close()
    with Database(path) as db:
        db.copy_to(tmp_path / "backup.db")
    for each in (path, tmp_path / "backup.db"):  # no version before had ties
        sql = apsw.Connection(str(each))
        sql.execute(f"PRAGMA user_version = {VERSION}").fetchall()
        sql.close()
    old = apsw.Connection(str(path))
    old.execute(
        f"INSERT INTO settings (name, value) VALUES ('a', 1); PRAGMA user_version={VERSION}"
    )
    left = killed(path, tmp_path / "left")
    old.close()
    (tmp_path / "backup.db").replace(left)
    assert names(left) == set() and log.logs_set_aside(left)


def test_a_process_whose_file_was_replaced_leaves_the_new_one_and_its_log_alone(
    tmp_path: Path, path: Path
) -> None:
    stale = File(path, idle_seconds=0)
    write(stale, "a")
    emptied(stale)
    shutil.copy(path, tmp_path / "backup.db")
    stale._idle_seconds = 1000
    write(stale, "b")
    (tmp_path / "backup.db").replace(path)
    with pytest.raises(Unwritable, match="replaced"):
        write(stale, "c")
    new = File(path)
    assert held(new) == {"a"} and "set aside" in new.set_aside
    write(new, "d")
    assert not stale._empty_log(stale._keeper)
    stale.close()
    assert held(new) == {"a", "d"}
    write(new, "e")
    left = killed(path, tmp_path / "left")
    new.close()
    assert names(path) == names(left) == {"a", "d", "e"}


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "with a log"])
def test_a_file_that_was_overwritten_while_it_was_open_is_not_written_to(
    tmp_path: Path, path: Path, busy: bool
) -> None:
    file = File(path, idle_seconds=0)
    write(file, "a")
    emptied(file)
    shutil.copy(path, tmp_path / "backup.db")
    if busy:
        file._idle_seconds = 1000
    with file.writing() as sql:
        sql.execute("INSERT INTO settings (name, value) VALUES ('b', hex(zeroblob(20000)))")
    if not busy:
        emptied(file)
    assert held(file) == {"a", "b"}  # and has pages of it in memory
    shutil.copyfile(tmp_path / "backup.db", path)
    with pytest.raises(Unwritable, match="overwritten while it was open"):
        write(file, "c")
    file.close()
    assert names(path) == {"a"}
    assert bool(log.logs_set_aside(path)) == busy


@pytest.mark.parametrize("rows", [1, 2_000], ids=["small", "larger than the cache"])
def test_a_transaction_that_fails_first_does_not_untie_the_next_one(
    tmp_path: Path, path: Path, rows: int
) -> None:
    File(path).close()
    file, other = File(path), File(path)
    file._keeper.execute("PRAGMA cache_size = 10")
    assert held(other) == set()
    with pytest.raises(ZeroDivisionError), file.writing() as sql:
        for number in range(rows):
            sql.execute("INSERT INTO settings VALUES (?, hex(zeroblob(1000)))", (f"{number}",))
        raise ZeroDivisionError
    assert bool(log.log_of(path).stat().st_size) == (rows > 1)
    write(other, "a")
    left = killed(path, tmp_path / "left")
    file.close()
    other.close()
    assert names(left) == {"a"} and not log.logs_set_aside(left)


def test_a_commit_that_no_process_has_seen_does_not_stop_the_others(
    tmp_path: Path, path: Path
) -> None:
    file = File(path, idle_seconds=0)
    write(file, "a")
    emptied(file)
    file._idle_seconds = 1000  # from now on a log stays where it can be copied
    assert held(file) == {"a"}
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    killed_one = File(copy, idle_seconds=1000)
    write(killed_one, "b")
    # As if it had been killed after it had written the log, and before its index in memory.
    for source, target in ((copy, path), (log.log_of(copy), log.log_of(path))):
        with target.open("r+b") as part:
            part.write(source.read_bytes())
    write(file, "c")
    left = killed(path, tmp_path / "left")
    assert held(file) == {"a", "c"} and names(left) == {"a", "c"}
    assert not log.logs_set_aside(left)
    killed_one.close()
    file.close()


def test_a_reader_refuses_a_log_of_another_file_and_changes_nothing(
    tmp_path: Path, path: Path
) -> None:
    file = File(path)
    file.close()
    shutil.copy(path, tmp_path / "backup.db")
    file = File(path)
    write(file, "a")
    left = killed(path, tmp_path / "left")
    file.close()
    shutil.copyfile(tmp_path / "backup.db", left)
    before = {each: each.read_bytes() for each in left.parent.iterdir()}
    with pytest.raises(Damaged, match="was not written for"):
        File(left, read_only=True)
    assert before == {each: each.read_bytes() for each in left.parent.iterdir()}


def test_the_log_of_an_idle_file_is_written_into_it(tmp_path: Path, path: Path) -> None:
    file = File(path, idle_seconds=0)
    write(file, "a")
    emptied(file)
    assert not log.log_of(path).stat().st_size
    shutil.copy(path, tmp_path / "copy.db")
    assert names(tmp_path / "copy.db") == {"a"}
    write(file, "b")
    emptied(file)
    assert not log.log_of(path).stat().st_size
    file.close()


def test_a_log_that_somebody_reads_is_written_back_later(path: Path) -> None:
    file = File(path, idle_seconds=0)
    write(file, "a")
    emptied(file)
    reads, done = threading.Event(), threading.Event()

    def read() -> None:
        with file.reading():
            reads.set()
            done.wait(60)

    reader = threading.Thread(target=read)
    reader.start()
    reads.wait()
    write(file, "b")
    assert not file._empty_log(file._keeper)
    assert log.log_of(path).stat().st_size
    done.set()
    reader.join()
    emptied(file)
    assert not log.log_of(path).stat().st_size
    file.close()


def test_a_process_that_closes_a_file_leaves_no_log_to_those_that_only_read(path: Path) -> None:
    server, command = File(path), File(path)
    emptied_by = command._idle_seconds
    write(command, "a")
    command.close()
    assert emptied_by > 0 and not log.log_of(path).stat().st_size
    server.close()


def test_opening_a_file_twice_keeps_the_locks_of_the_first(path: Path) -> None:
    first = File(path)
    File(path).close()
    assert (
        python(
            """
import apsw, sys
file = apsw.VFSFile("", sys.argv[1], [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0])
file.xLock(apsw.SQLITE_LOCK_SHARED)
try:
    file.xLock(apsw.SQLITE_LOCK_EXCLUSIVE)
except apsw.BusyError:
    print("locked")
""",
            str(path),
        ).stdout
        == "locked\n"
    )
    first.close()


def test_a_mark_is_a_version_and_a_tie() -> None:
    mark = Mark(VERSION, 0xFFFFFF)
    assert Mark.of(mark.user_version) == mark and mark.user_version < 0
    assert Mark.in_header(bytes(60) + mark.stored) == mark
    assert mark.retied().version == VERSION and mark.retied().tie not in (0, mark.retied().tie)
