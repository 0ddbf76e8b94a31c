"""Publishers and servers of PostgreSQL that are killed: nothing is published in part, and the next
publish goes on until the origin has what the file has.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvectordb import Config, Database, Unreachable
from tests.guarantees import Guarantee
from tests.support import ROOT, Letters
from tests.support_postgres import LocalPostgres, problems, published, rows, started

pytestmark = pytest.mark.torture

DOCUMENTS = 1_500
CONFIG = Config(chunk_size=32, chunk_overlap=0)
PUBLISHER = (
    "import sys\n"
    "from mcpvectordb import Config, Database\n"
    "from tests.support import Letters\n"
    "with Database(sys.argv[1], config=Config(chunk_size=32, chunk_overlap=0), embedder=Letters()) as db:\n"
    "    db.publish(sys.argv[2], origin='mine')\n"
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that takes a second to publish."""
    path = tmp_path_factory.mktemp("source") / "source.db"
    choice = random.Random(1)
    words = [f"word{number}" for number in range(2_000)]
    with Database(path, config=CONFIG, embedder=Letters()) as db:
        for number in range(DOCUMENTS):
            text = "\n\n".join(" ".join(choice.choices(words, k=20)) for _ in range(2))
            db.documents.ingest_text(text, source=str(number), embed=False)
        db.embed_pending()
        for _ in range(50):
            db.memories.add("t", "user", " ".join(choice.choices(words, k=20)))
        db.vectors.add_many([str(number) for number in range(600)], [[1.0, n] for n in range(600)])
    return path


def wait_for_rows(url: str, least: int) -> None:
    """Until some documents are published, but before all are."""
    deadline = time.monotonic() + 60
    ready = "SELECT to_regclass('mcpvectordb.grants') IS NOT NULL"  # made last
    while rows(url, ready) != [(True,)]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    while rows(url, "SELECT count(*) FROM mcpvectordb.documents")[0][0] < least:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def check_that_the_next_publish_completes(source: Path, url: str) -> None:
    assert problems(url) == []
    kept = rows(url, "SELECT count(*) FROM mcpvectordb.documents")[0][0]
    with Database(source, config=CONFIG, embedder=Letters()) as db:
        report = db.publish(url, origin="mine")
        assert report.documents.unchanged == kept
        assert report.documents.added == DOCUMENTS - kept
        db.publish(url, origin="whole")
    assert problems(url) == []
    assert published(url, "mine") == published(url, "whole")


@pytest.mark.long
def test_a_publisher_that_is_killed_leaves_whole_documents_and_the_next_one_goes_on(
    source: Path, postgres: LocalPostgres, guarantee: Callable[..., Guarantee]
) -> None:
    def round(number: int, rng: random.Random) -> None:
        with postgres.database() as url:
            arguments = [sys.executable, "-c", PUBLISHER, str(source), url]
            process = subprocess.Popen(arguments, cwd=ROOT)
            wait_for_rows(url, rng.randrange(1, DOCUMENTS // 2))
            process.kill()
            process.wait()
            check_that_the_next_publish_completes(source, url)

    guarantee("14 publishers killed", full=40, short=1).run_rounds(round)


@pytest.mark.long
def test_a_server_that_is_killed_loses_nothing_and_the_next_publish_goes_on(
    source: Path, guarantee: Callable[..., Guarantee]
) -> None:
    def round(number: int, rng: random.Random) -> None:
        with server.database() as url:
            failures: list[Exception] = []
            thread = threading.Thread(target=publish, args=(source, url, failures))
            thread.start()
            wait_for_rows(url, rng.randrange(1, DOCUMENTS // 2))
            server.kill()
            thread.join()
            assert [type(each) for each in failures] == [Unreachable]
            server.start()
            check_that_the_next_publish_completes(source, url)

    with started() as server:
        guarantee("15 PostgreSQL killed", full=20, short=1).run_rounds(round)


def publish(source: Path, url: str, failures: list[Exception]) -> None:
    with Database(source, config=CONFIG, embedder=Letters()) as db:
        try:
            db.publish(url, origin="mine")
        except Exception as error:
            failures.append(error)
