"""One browser for these tests, and a page that nothing bad may happen in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mcpvectordb import Database
from tests.server.web.support_web_server import Served
from tests.support import Letters
from tests.web.support_page import Looker, fill, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PROGRAMS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
)
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
    "C:/Program Files (x86)/Microsoft/Edge/Application/msedge.exe",
)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --force-color-profile=srgb"
).split()
# Without --full one test of each kind runs in a browser, and what keeps others out.
SHORT = frozenset(
    """test_two_notes_of_one_day_are_two_documents test_counts_model_and_space_are_shown
    test_libraries_folders_and_documents_are_steps_that_back_undoes
    test_points_are_drawn_named_and_hidden_by_their_group
    test_a_server_on_another_port_is_sent_nothing_that_lets_it_in
    test_a_page_of_another_port_can_neither_read_nor_write
    test_the_sources_have_no_way_to_turn_text_into_markup_or_code
    test_the_sources_name_no_other_host_and_have_nothing_inline
    test_markdown_has_its_structure_and_nothing_is_loaded_for_it
    test_only_the_host_is_listened_to
    test_typing_finds_passages_with_their_place_what_matched_and_how""".split()
)
# Set by .ci/run, and by services that run tests: there the page must be tested.
REQUIRED = os.environ.get("CI") == "true" or "BROWSER_TESTS" in os.environ


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what is not of the short form."""
    if item.name.partition("[")[0] not in SHORT:
        item.add_marker(pytest.mark.long)


def _program() -> str | None:
    given = os.environ.get("CHROMIUM")
    found = [shutil.which(each) for each in PROGRAMS]
    return next(
        filter(None, [given, *found, *(each for each in PLACES if Path(each).exists())]), None
    )


def _missing(what: str) -> None:
    message = f"the page is not tested: {what} is not installed"
    if REQUIRED:
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A Chromium that is installed already; without one these tests are skipped, in CI they fail."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        _missing("the package playwright")
    program = _program()
    if program is None:
        _missing("Chromium (apt-get install chromium, or name one in CHROMIUM)")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def looker(browser: Browser, shared: Served) -> Iterator[Looker]:
    """A page on a file that no test changes; afterwards nothing may have gone wrong in it."""
    with Looker(browser, shared) as each:
        yield each


@pytest.fixture
def writer(browser: Browser, filled: Path) -> Iterator[Looker]:
    """A page on a file of this test's own."""
    with (
        Database(filled, embedder=Letters()) as db,
        serving(db) as served,
        Looker(browser, served) as each,
    ):
        yield each


@pytest.fixture(scope="package")
def shared(_original: Path) -> Iterator[Served]:
    """A server of the file that no test changes."""
    with Database(_original, embedder=Letters()) as db, serving(db) as server:
        yield server


@pytest.fixture(scope="package")
def _original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("original") / "notes.db"
    with Database(path, embedder=Letters()) as db:
        fill(db)
    return path


@pytest.fixture
def filled(_original: Path, tmp_path: Path) -> Path:
    """A file with documents and memories, for one test."""
    with Database(_original, embedder=Letters()) as db:
        return db.copy_to(tmp_path / "notes.db")
