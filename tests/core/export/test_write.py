from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from mcpvectordb import Database, InvalidInput, NotFound, Progress, Unwritable
from mcpvectordb.export.write import target


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("out.jsonl", "jsonl"),
        ("OUT.JSONL", "jsonl"),
        ("out.jsonl.gz", "jsonl"),
        ("out.csv", "csv"),
        ("out.csv.gz", "csv"),
        ("out.parquet", "parquet"),
        ("out", "markdown"),
    ],
)
def test_the_name_decides_on_the_format(name: str, format: str) -> None:
    assert target(Path(name), None).format == format


def test_a_folder_with_a_dot_in_its_name_gets_markdown(tmp_path: Path) -> None:
    (tmp_path / "v1.2").mkdir()
    assert target(tmp_path / "v1.2", None).format == "markdown"


@pytest.mark.parametrize(
    ("name", "format", "message"),
    [
        ("out.xlsx", None, "does not end with .jsonl, .csv or .parquet"),
        ("out.jsonl", "xml", "format must be jsonl, markdown, csv, parquet, not 'xml'"),
        ("out.parquet.gz", None, "only jsonl and csv are written as .gz"),
    ],
)
def test_an_unknown_format_is_refused(name: str, format: str | None, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        target(Path(name), format)


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv", "out.parquet"])
def test_a_file_is_for_its_owner_and_never_replaced_without_being_asked(
    db: Database, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    done = db.export_to(path)
    assert (done.documents, done.memories, done.vectors) == (3, 2, 2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match="exists already"):
        db.export_to(path)
    assert path.read_bytes() == before
    db.export_to(path, overwrite=True)


def test_the_database_itself_is_never_replaced(db: Database) -> None:
    with pytest.raises(InvalidInput, match="is the database itself"):
        db.export_to(db.path, format="jsonl", overwrite=True)


def test_a_folder_that_is_not_empty_is_never_overwritten(db: Database, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    db.export_to(tmp_path / "out")
    with pytest.raises(InvalidInput, match="a folder is never overwritten"):
        db.export_to(tmp_path / "out", overwrite=True)


def test_a_missing_folder_is_named(db: Database, tmp_path: Path) -> None:
    for name in ("no/out.jsonl", "no/out"):
        with pytest.raises(Unwritable, match="does not exist: make it first"):
            db.export_to(tmp_path / name)


def test_an_export_that_fails_leaves_nothing(db: Database, tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    before = sorted(each.name for each in tmp_path.iterdir())
    for name in ("out.jsonl", "out.csv", "out.parquet", "out"):
        with pytest.raises(KeyboardInterrupt):
            db.export_to(tmp_path / name, progress=stop)
    assert sorted(each.name for each in tmp_path.iterdir()) == before


def test_what_a_killed_export_left_is_removed_by_the_next_one(db: Database, tmp_path: Path) -> None:
    old, new = (tmp_path / f".out.{digit * 32}.part" for digit in "ab")
    for part in (old, new):
        (part / "documents").mkdir(parents=True)
        (part / "documents" / "a.md").write_text("A")
    for path in (old, *old.rglob("*")):
        os.utime(path, (0, 0))
    db.export_to(tmp_path / "out")
    assert not old.exists() and new.exists()


def test_one_library_is_exported_alone(db: Database, tmp_path: Path) -> None:
    done = db.export_to(tmp_path / "out.jsonl", library="code")
    assert (done.documents, done.memories, done.vectors) == (1, 0, 0)
    with pytest.raises(NotFound, match="code"):
        db.export_to(tmp_path / "other.jsonl", library="cod")


def test_what_others_write_meanwhile_is_not_in_it(db: Database, tmp_path: Path) -> None:
    """The first item that is counted lets another thread add memories; they come too late."""

    def write(progress: Progress) -> None:
        if progress.done == 1:
            thread = threading.Thread(target=db.memories.add, args=("late", "user", "Too late."))
            thread.start()
            thread.join()

    db.export_to(tmp_path / "out.jsonl", progress=write)
    assert db.memories.count(thread="late") == 1
    assert "Too late" not in (tmp_path / "out.jsonl").read_text("utf-8")


def test_progress_counts_every_item(db: Database, tmp_path: Path) -> None:
    seen: list[Progress] = []
    db.export_to(tmp_path / "out.csv", progress=seen.append)
    assert [(each.done, each.total) for each in seen] == [(done, 7) for done in range(1, 8)]


def test_what_a_format_does_not_hold_is_said(db: Database, tmp_path: Path) -> None:
    assert db.export_to(tmp_path / "out").left_out == ("2 vectors, which have no text",)
    assert db.export_to(tmp_path / "out.csv").left_out == ("1 images",)
    assert db.export_to(tmp_path / "out.jsonl").left_out == ()


def test_an_empty_file_can_be_exported(tmp_path: Path) -> None:
    with Database(":memory:") as db:
        for name in ("out.jsonl", "out.csv", "out.parquet", "out"):
            assert db.export_to(tmp_path / name).documents == 0
    first, last = (tmp_path / "out.jsonl").read_text().splitlines()
    assert json.loads(first)["model"] is None
    assert json.loads(last) == {"kind": "end", "items": 0}
