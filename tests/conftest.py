from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

if TYPE_CHECKING:
    from mcpvectordb import Database
    from tests.support_postgres import LocalPostgres

settings.register_profile(
    "deterministic",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("deterministic")
# Hypothesis also draws constants from the modules that happen to be loaded: what a test tries would
# depend on the tests before it, and on every constant of the project.
providers._get_local_constants = lambda: providers._local_constants


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rounds",
        type=int,
        metavar="N",
        help="how hard to try the torture tests: 500 is the full form; without it each takes "
        "seconds",
    )
    parser.addoption(
        "--again",
        type=int,
        metavar="N",
        default=0,
        help="torture by other rounds: what happens in one depends on its number, and these begin "
        "at N million",
    )

    parser.addoption("--renew", action="store_true", help="write the goldens anew (tests/goldens)")


def pytest_configure() -> None:
    """Tests do not depend on whether the static model is installed; those of it turn it on."""
    from mcpvectordb import Config

    os.environ["MCPVECTORDB_PROVISIONAL"] = "off"  # for processes
    Config.__init__.__kwdefaults__["provisional"] = False


@pytest.fixture(autouse=True, scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache folder for all tests and the processes they start, instead of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def _data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what tests confirm out of the folder of this user's data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a test's database file goes."""
    return tmp_path / "test.db"


@pytest.fixture
def db(path: Path) -> Iterator[Database]:
    """A new database whose embedder needs no model."""
    from mcpvectordb import Database
    from tests.support import Letters

    with Database(path, embedder=Letters()) as database:
        yield database


@pytest.fixture(scope="session")
def postgres() -> Iterator[LocalPostgres]:
    """One PostgreSQL server for all tests; without the wheel that brings it, they are skipped."""
    from tests.support_postgres import started

    with started() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: LocalPostgres) -> Iterator[str]:
    """The URL of a new, empty database."""
    with postgres.database() as url:
        yield url
