from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from mcpvectordb import Database
from tests.goldens.house import Words, build
from tests.goldens.recorded import Recorded


@pytest.fixture
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Recorded:
    """`recorded("name", value)` compares a value with its golden, or writes it with --renew."""
    return Recorded(tmp_path, renew=request.config.getoption("--renew"))


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The fixed file that all goldens are about, with the same ids in every run."""
    numbers = Random(7)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=numbers.getrandbits(128), version=4))
    with Database(tmp_path / "house.db", embedder=Words()) as db:
        build(db, tmp_path)
        yield db
