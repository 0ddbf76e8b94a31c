from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mcpvectordb import Config, Database
from mcpvectordb.documents.follow import ELSEWHERE, KEPT, FolderFollower
from tests.support import Letters

PATIENCE = 60.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "notes").mkdir()
    return tmp_path / "notes"


@pytest.fixture
def db(folder: Path) -> Iterator[Database]:
    with Database(folder.parent / "notes.db", embedder=Letters()) as db:
        db.documents.add_library("notes", folder)
        yield db


def until(done: Callable[[], object]) -> None:
    """Wait for something to become true; a machine that is slow fails no test."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def names(db: Database) -> list[str]:
    return sorted(Path(each.source).name for each in db.documents.browse(library="notes"))


@contextlib.contextmanager
def following(db: Database) -> Iterator[FolderFollower]:
    """A thread that looks for other libraries and folders all the time."""
    made = FolderFollower(
        db.path, db.documents._confirmed, db.documents._sync_followed, delay=0.0, look=0.1
    )
    try:
        yield made
    finally:
        made.close()
        assert not made._thread.is_alive()


def test_a_library_follows_its_folder_without_anybody_asking(db: Database, folder: Path) -> None:
    (folder / "a.md").write_text("apple")
    db.embed_in_background(start=False)
    db.documents.follow()
    until(lambda: names(db) == ["a.md"])
    assert db.documents.followed == {"notes": KEPT}
    (folder / "b.md").write_text("pear")
    until(lambda: names(db) == ["a.md", "b.md"])
    (folder / "a.md").write_text("apple tree")
    until(lambda: len(db.documents.search("tree", mode="text")))
    (folder / "b.md").unlink()
    until(lambda: names(db) == ["a.md"])
    until(lambda: db.stats().pending == 0)  # by the thread in the background
    assert {each.actor for each in db.history()} >= {"following"}


def test_a_folder_that_vanishes_loses_no_document_and_is_followed_again(
    db: Database, folder: Path
) -> None:
    (folder / "a.md").write_text("apple")
    with following(db) as made:
        until(lambda: names(db) == ["a.md"])
        folder.rename(folder.with_name("away"))
        until(lambda: "gone" in made.state["notes"])
        assert names(db) == ["a.md"]
        folder.with_name("away").rename(folder)
        (folder / "b.md").write_text("pear")
        until(lambda: names(db) == ["a.md", "b.md"])
        assert made.state == {"notes": KEPT}


def test_of_several_processes_one_follows_and_the_next_takes_over(
    db: Database, folder: Path
) -> None:
    with contextlib.ExitStack() as first:
        one = first.enter_context(following(db))
        until(lambda: one.state == {"notes": KEPT})
        with following(db) as two:
            until(lambda: two.state == {"notes": ELSEWHERE})
            first.close()
            until(lambda: two.state == {"notes": KEPT})
            (folder / "a.md").write_text("apple")
            until(lambda: names(db) == ["a.md"])


def test_libraries_that_come_and_go_are_noticed(db: Database, folder: Path) -> None:
    other = folder.with_name("other")
    other.mkdir()
    (other / "c.md").write_text("cherry")
    with following(db) as made:
        until(lambda: made.state == {"notes": KEPT})
        db.documents.add_library("other", other)
        until(lambda: made.state == {"notes": KEPT, "other": KEPT})
        until(lambda: db.documents.count(library="other") == 1)
        db.documents.remove_library("notes")
        db.documents.remove_library("other")
        until(lambda: made.state == {})


def test_a_folder_that_nobody_confirmed_is_not_read(db: Database, folder: Path) -> None:
    (folder / "a.md").write_text("apple")
    db.documents._folders.forget("notes")
    with following(db) as made:
        time.sleep(0.5)
        assert made.state == {} and names(db) == []


def test_nothing_is_followed_in_a_file_that_is_read_only(db: Database, folder: Path) -> None:
    (folder / "a.md").write_text("apple")
    with Database(db.path, config=Config(read_only=True)) as reader:
        reader.documents.follow()
        assert reader.documents.followed == {}


def test_closing_does_not_wait_for_a_folder(db: Database, folder: Path) -> None:
    db.documents.follow(delay=3600.0)
    db.close()
