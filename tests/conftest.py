from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.guarantees import TABLE, Guarantee

if TYPE_CHECKING:
    from mcpvectordb import Database
    from tests.support_postgres import LocalPostgres

# Hypothesis also draws constants from the modules that happen to be loaded: what a test tries would
# depend on the tests before it, and on every constant of the project.
providers._get_local_constants = lambda: providers._local_constants


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="the longer form: tests marked `long`, five times as many examples, more rounds",
    )
    parser.addoption(
        "--rounds",
        type=int,
        metavar="N",
        help="how hard to try the torture tests: 500 is the longest form; without it each takes "
        "seconds, with --full some minutes in all",
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


def pytest_configure(config: pytest.Config) -> None:
    _keep_bytecode()
    # A program that a shell starts in the background ignores Ctrl-C, and so would all it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Each commit waits for the disk: files of tests are kept in memory where there is plenty.
    if not os.environ.get("PYTEST_DEBUG_TEMPROOT") and _room(memory := Path("/dev/shm")):
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(memory)
    settings.register_profile(
        "deterministic",
        derandomize=True,
        deadline=None,
        database=None,
        max_examples=100 if config.getoption("--full") else 20,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    settings.load_profile("deterministic")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are cores: tests wait for processes and servers, too."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else 3


def _keep_bytecode() -> None:
    """Let modules be compiled once for all processes, in a folder of the run, if not beside them."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", "") and "PYTHONPYCACHEPREFIX" not in os.environ:
        folder = tempfile.mkdtemp(prefix="bytecode")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = folder
        sys.dont_write_bytecode = False


def _room(folder: Path) -> bool:
    """Whether a folder exists that can be written, with two gigabytes left."""
    return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > 2 << 30


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked `long`, unless it is asked for by --full or by its own name."""
    if config.getoption("--full") or any("::" in each for each in config.args):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if not item.get_closest_marker("long")]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the rows of the table of guarantees from a worker to the process that prints it."""
    if hasattr(session.config, "workeroutput"):
        rows = session.config.stash.get(TABLE, {}).values()
        session.config.workeroutput["guarantees"] = [asdict(each) for each in rows]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the rows of a worker."""
    kept = node.config.stash.setdefault(TABLE, {})
    for row in getattr(node, "workeroutput", {}).get("guarantees", ()):
        each = kept.setdefault(row["name"], Guarantee(**{**row, "rounds": 0, "failures": []}))
        each.rounds += row["rounds"]
        each.failures += row["failures"]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print how often each guarantee of the torture tests was tried, and how often it failed."""
    guarantees = config.stash.get(TABLE, {})
    if not guarantees:
        return
    width = max(len(name) for name in guarantees)
    terminalreporter.section("guarantees")
    terminalreporter.write_line(f"{'guarantee':<{width}}  {'rounds':>8}  failures")
    for each in sorted(
        guarantees.values(), key=lambda guarantee: (int(guarantee.name.split()[0]), guarantee.name)
    ):
        terminalreporter.write_line(
            f"{each.name:<{width}}  {each.rounds:>8,}  {len(each.failures):>8}  {each.note}".rstrip(),
            red=bool(each.failures),
        )


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


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with nothing in it, to be copied: making one takes five times as long."""
    from mcpvectordb import Database
    from tests.support import Letters

    path = tmp_path_factory.mktemp("empty") / "empty.db"
    Database(path, embedder=Letters()).close()
    return path


@pytest.fixture
def db(path: Path, empty_file: Path) -> Iterator[Database]:
    """A new database whose embedder needs no model."""
    from mcpvectordb import Database
    from tests.support import Letters

    shutil.copy(empty_file, path)
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
