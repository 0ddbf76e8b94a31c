"""Copies during writes: each complete, consistent, one file, and readable on read-only media."""

from __future__ import annotations

import os
import random
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from mcpvectordb import Database, ReadOnly
from tests.guarantees import Guarantee
from tests.support import ROOT
from tests.torture.disks import read_only_disk
from tests.torture.support_torture import append, appended, opened, some_text, start, wait_for

pytestmark = pytest.mark.torture

ROUNDS_PER_FILE = 20
WRITERS = ("one", "two")
TRUTH = ("documents", "document_chunks", "document_embeddings")


def test_a_copy_is_a_consistent_state_of_a_file_that_others_write_to(
    guarantee: Callable[..., Guarantee], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A copy also has the leases of the processes that work on the original.
    tested = guarantee("6 copies under live writers", full=100, short=4)
    for begin in range(0, tested.planned, ROUNDS_PER_FILE):
        folder = tmp_path / str(begin)
        folder.mkdir()
        tested.failures += copy_repeatedly(
            folder, range(begin, min(begin + ROUNDS_PER_FILE, tested.planned))
        )
        tested.rounds = min(begin + ROUNDS_PER_FILE, tested.planned)
        shutil.rmtree(folder)
    tested.check_failures()


def copy_repeatedly(folder: Path, numbers: range) -> list[str]:
    """Copy a file repeatedly while two processes write to it; what is wrong with the copies."""
    path, wrong = folder / "live.db", []
    journals = {name: folder / f"{name}.journal" for name in WRITERS}
    writers = [start(append, path, name, journal) for name, journal in journals.items()]
    try:
        wait_for(
            lambda: all(appended(journal)[0] > 2 for journal in journals.values()),
            what="the writers",
        )
        with opened(path) as db:
            for number in numbers:
                least = {name: appended(journal)[0] for name, journal in journals.items()}
                copy = db.copy_to(folder / f"copy{number}.db")
                most = {name: appended(journal)[1] for name, journal in journals.items()}
                wrong += [
                    f"round {number}: {each}"
                    for each in (*inconsistencies(copy, least, most), *differences(copy, db))
                ]
    finally:
        for writer in writers:
            writer.kill()
            writer.join()
    return wrong


def inconsistencies(copy: Path, least: dict[str, int], most: dict[str, int]) -> list[str]:
    """What shows that a copy is not one state of the file, or not one single file."""
    wrong = [] if one_file(copy) else ["it is not one single file for its owner"]
    with opened(copy) as db:
        wrong += db.check()
        sources = [each.source.split("-") for each in db.documents.browse(limit=1_000_000)]
    for name in WRITERS:
        numbers = sorted(int(number) for owner, number in sources if owner == name)
        if numbers != list(range(len(numbers))) or not least[name] <= len(numbers) <= most[name]:
            wrong.append(
                f"{len(numbers)} documents of {name}, not {least[name]} to {most[name]} without a "
                f"gap"
            )
    return wrong


def differences(copy: Path, original: Database) -> list[str]:
    """Rows and ranks of a copy that differ from those of the original.

    The original may have more rows, which were added after the copy.
    """
    wrong = [
        f"{table} has other rows"
        for table in TRUTH
        if not rows(copy, table) <= rows(original.path, table)
    ]
    with opened(copy) as db:
        db.embed_pending()
        held = [each.id for each in db.documents.browse(limit=1_000_000)]
        for query in ("harbour lamp", "naïve tide E-4021"):
            try:  # the newest may not be embedded in the original at once
                wait_for(lambda: best(db, query, held) == best(original, query, held), seconds=20)  # noqa: B023
            except AssertionError:
                wrong.append(f"other results for {query!r}")
    return wrong


def best(db: Database, query: str, ids: list[str]) -> list[tuple[int, float]]:
    found = db.documents.search(query, mode="vector", limit=10, where={"id": {"in": ids}})
    return [(hit.item.id, hit.score) for hit in found]


def rows(path: Path, table: str) -> set[tuple[Any, ...]]:
    sql = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    sql.set_busy_timeout(30_000)
    found = set(sql.execute(f"SELECT * FROM {table}"))
    sql.close()
    return found


def one_file(copy: Path) -> bool:
    with copy.open("rb") as file:
        head = file.read(20)
    mode = stat.S_IMODE(copy.stat().st_mode)
    return head[18:] == b"\1\1" and mode == 0o600 and not list(copy.parent.glob(f"{copy.name}-*"))


def filled(path: Path) -> Database:
    rng = random.Random("a file to be copied")
    db = opened(path)
    for number in range(40):
        db.documents.ingest_text(
            some_text(rng), source=str(number), metadata={"n": number}, embed=number % 5 > 0
        )
        db.vectors.add(str(number), [rng.uniform(-1, 1) for _ in range(8)])
    return db


def answers(db: Database) -> list[Any]:
    documents = [
        [
            (hit.item, hit.score, hit.scores)
            for hit in db.documents.search(query, mode=mode, limit=10)
        ]
        for query in ("harbour lamp", "数据库", "sudden quiet winter")
        for mode in ("hybrid", "text", "vector")
    ]
    return [documents, [(hit.item, hit.score) for hit in db.vectors.search([1.0] * 8, limit=10)]]


def test_a_copy_of_a_file_without_writers_has_equal_tables_and_results(tmp_path: Path) -> None:
    with filled(tmp_path / "quiet.db") as db:
        copy = db.copy_to(tmp_path / "copy.db")
        expected = answers(db)
        tables = [
            name
            for (name,) in apsw.Connection(str(copy)).execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0"
            )
        ]
        assert len(tables) > 10 and all(
            rows(copy, table) == rows(db.path, table) for table in tables
        )
    with opened(copy) as other:
        assert answers(other) == expected and other.check() == []


def test_a_copy_and_a_closed_file_open_on_read_only_media(
    guarantee: Callable[..., Guarantee], tmp_path: Path
) -> None:
    with filled(tmp_path / "closed.db") as db:
        copy, expected = db.copy_to(tmp_path / "copy.db"), answers(db)
    with read_only_disk(tmp_path / "disk", copy, tmp_path / "closed.db"):
        for name in ("copy.db", "closed.db"):
            with opened(tmp_path / "disk" / name) as other:
                assert other.read_only and answers(other) == expected and other.check() == []
                with pytest.raises(ReadOnly):
                    other.documents.ingest_text("new", source="new")
    guarantee("6 copies on read-only media", full=2, short=2).rounds = 2


def test_a_file_can_be_moved_as_the_documentation_says(tmp_path: Path) -> None:
    advice = re.search(
        r"\*\*Moving a file:\*\*.*?(?=\n- )",
        (ROOT / ".github/docs/files.md").read_text(),
        re.DOTALL,
    )
    assert advice is not None
    said = " ".join(advice[0].split())
    assert "`mcpvectordb copy TARGET`" in said and "`db.copy_to(path)`" in said
    assert "may be copied by any means" in said and "read-only media" in said
    with filled(tmp_path / "notes.db") as db:
        expected = answers(db)
        command = [
            sys.executable,
            "-m",
            "mcpvectordb",
            "--db",
            str(db.path),
            "copy",
            str(tmp_path / "shell.db"),
        ]
        subprocess.run(
            command,
            cwd=ROOT,
            check=True,
            capture_output=True,
            env={**os.environ, "MCPVECTORDB_MODEL": ""},
        )
    shutil.copy(tmp_path / "notes.db", tmp_path / "any-means.db")
    for name in ("shell.db", "any-means.db"):
        with opened(tmp_path / name) as moved:
            assert answers(moved) == expected and moved.check() == []
