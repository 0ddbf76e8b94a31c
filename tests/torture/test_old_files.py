"""Files of earlier formats are migrated.

A kill during a migration leaves the old format or the new one, never a mixture.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from mcpvectordb.storage import schema
from mcpvectordb.storage.schema import VERSION
from tests.guarantees import Guarantee
from tests.torture.next_format import ROWS, open_all, register_next_format
from tests.torture.support_torture import State, opened, start, state, wait_for

pytestmark = pytest.mark.torture

FIXTURES = sorted((Path(__file__).parent.parent / "fixtures").glob("version-*.db"))


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_an_old_file_is_migrated(
    guarantee: Callable[..., Guarantee], tmp_path: Path, fixture: Path, version: int
) -> None:
    """From the format that it was made in, and from each one after that."""
    tested = guarantee("11 old files", full=VERSION, short=VERSION)
    tested.rounds += 1
    between = tmp_path / "between.db"
    shutil.copy(fixture, between)
    sql = apsw.Connection(str(between))
    for step in range(int(sql.execute("PRAGMA user_version").get) & 0xFF, version):
        schema.migrate(sql, step)
    sql.close()
    assert migrated(between, tmp_path / "old.db") == migrated(fixture, tmp_path / "expected.db")


def migrated(fixture: Path, path: Path) -> State:
    shutil.copy(fixture, path)
    with opened(path) as db:
        assert db.stats().format == VERSION and db.check() == []
        return state(db)


def test_a_kill_during_a_migration_leaves_the_old_or_the_new_format(
    guarantee: Callable[..., Guarantee], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [migrated(fixture, tmp_path / f"{fixture.stem}.expected") for fixture in FIXTURES]
    tested = guarantee("11 killed migrations", full=200, short=6)
    seen: list[int] = []

    def round(number: int, rng: random.Random) -> None:
        fixture = FIXTURES[number % len(FIXTURES)]
        folder = tmp_path / str(number)
        folder.mkdir()
        paths = [folder / f"{each}.db" for each in range(4)]
        for path in paths:
            shutil.copy(fixture, path)
        child = start(open_all, paths, folder)
        wait_for(
            lambda: Path(f"{paths[0]}-wal").exists() or not child.is_alive(),
            what="the first migration",
        )
        time.sleep(rng.uniform(0, 0.15))
        child.kill()
        child.join()
        for path in paths:
            seen.append(format_of(path))
            verify(path, folder, expected[number % len(FIXTURES)], monkeypatch)
        shutil.rmtree(folder)

    tested.run_rounds(round)
    tested.note = ", ".join(
        f"{seen.count(each)} left in format {each}" for each in sorted(set(seen))
    )


def format_of(path: Path) -> int:
    """The format that a reader sees, which must have exactly the tables of that format."""
    sql = apsw.Connection(str(path))
    version = int(sql.execute("PRAGMA user_version").get) & 0xFF
    assert sql.execute("PRAGMA integrity_check").get == "ok"
    tables = {name for (name,) in sql.execute("SELECT name FROM sqlite_schema")}
    assert ({"torture", "torture_by_text"} <= tables) == (version == VERSION + 1), (
        "between two formats"
    )
    if version == VERSION + 1:
        assert sql.execute(
            "SELECT count(*), min(torture), max(torture) FROM torture, documents"
        ).get[1:] == (ROWS, ROWS)
    sql.close()
    return version


def verify(path: Path, folder: Path, expected: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the file opens in the next format with all of its content."""
    with monkeypatch.context() as patch:
        for name in ("MIGRATIONS", "VERSION"):
            patch.setattr(schema, name, getattr(schema, name))
        register_next_format(folder)
        with opened(path) as db:
            assert state(db) == expected and db.check() == []
    schema.made_rows.cache_clear()
