from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mcpvectordb import Config, Database
from mcpvectordb.index.tuning import Tuning
from tests.support import Letters

Open = Callable[..., Database]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and a folder that is shared."""
    for name in ("XDG_DATA_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "data"))
    (tmp_path / "shared").mkdir()
    return tmp_path


@pytest.fixture
def machine(home: Path) -> Iterator[Open]:
    """Opens the file of a machine, with the shared folder as its remote unless told otherwise."""
    opened = []

    def open_(name: str, target: str = "", *, tuning: Tuning | None = None, **options: object):  # type: ignore[no-untyped-def]
        config = options.pop("config", Config())
        embedder = options.pop("embedder", None) or Letters()
        db = Database(home / f"{name}.db", embedder=embedder, config=config, tuning=tuning)  # type: ignore[arg-type]
        opened.append(db)
        if not db.remotes.browse():
            db.remotes.add("others", target or home / "shared", **options)  # type: ignore[arg-type]
        return db

    yield open_
    for each in opened:
        each.close()
