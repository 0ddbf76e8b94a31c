from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from mcpvectordb import Database
from tests.support import ROOT, Letters

FIXTURES = ROOT / "tests" / "fixtures" / "importers"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "notes.db", embedder=Letters()) as opened:
        yield opened


Unpacked = Callable[[str], Path]


@pytest.fixture
def unpacked(tmp_path: Path) -> Unpacked:
    """The folder of an archive that the script make.py made."""

    def unpack(name: str) -> Path:
        folder = tmp_path / name
        with tarfile.open(FIXTURES / f"{name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        return folder

    return unpack


def execute(path: Path, sql: str, *, triggers: bool = True) -> None:
    """Run statements in a database."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, int(triggers))
        connection.execute(sql).fetchall()


def state(folder: Path) -> dict[str, tuple[int, str]]:
    """The time and content of every file of a folder, and the time of every folder in it."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in [folder, *folder.rglob("*")]
    }
