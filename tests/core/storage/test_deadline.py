"""Every question has a deadline, whatever it asks; nothing else has one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Config, Database, InvalidInput, MCPVectorDBError, ReadTimeout
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.storage import deadline
from mcpvectordb.storage.file import File
from tests.support import Letters
from tests.support_deadline import counted_checks

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
LONG = f"SELECT count(*) FROM ({ENDLESS.replace('count(*)', 'i')} LIMIT 100000)"
NOTHING = 1e-9  # seconds: over before the first check


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Database]:
    """A filled database whose questions have no time at all."""
    with Database(tmp_path / "x.db", embedder=Letters(), config=Config(read_timeout=NOTHING)) as db:
        db.documents.ingest_text("a lamp in the harbour", source="lamp.md")
        db.memories.add("t", "user", "a lamp")
        db.vectors.add("v", [1.0, 0.0])
        yield db


def test_a_statement_that_never_ends_is_stopped_and_the_next_one_works(tmp_path: Path) -> None:
    file = File(tmp_path / "x.db", read_timeout=0.05)
    for _ in range(2):
        with pytest.raises(ReadTimeout, match="reading the file"), file.reading() as sql:
            sql.execute(ENDLESS).fetchall()
    with file.writing() as sql:
        sql.execute("INSERT INTO settings VALUES ('chunk_size', '64')")
    with File(tmp_path / "x.db").reading() as sql:
        assert sql.execute("SELECT value FROM settings").get == "64"
    file.close()


def test_the_error_is_a_timeout_that_names_the_setting_and_what_to_do(hasty: Database) -> None:
    with pytest.raises(TimeoutError) as caught:
        hasty.documents.search("lamp")
    assert isinstance(caught.value, MCPVectorDBError)
    assert caught.value.code == "read_timeout"
    for words in ("read_timeout", "MCPVECTORDB_READ_TIMEOUT", "narrow", "1e-09 s"):
        assert words in str(caught.value)


def test_every_question_has_a_deadline(hasty: Database) -> None:
    id = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
    documents, memories, vectors = hasty.documents, hasty.memories, hasty.vectors
    for ask in (
        lambda: documents.search("lamp", mode="text"),
        lambda: documents.search("lamp", unit="document"),
        lambda: documents.get(id),
        lambda: documents.text(id),
        documents.browse,
        documents.count,
        documents.libraries,
        documents.coverage,
        lambda: documents.lookup("lamp.md"),
        lambda: documents.suggest("lamb.md"),
        lambda: documents.matching("**"),
        lambda: memories.search("lamp"),
        lambda: memories.get([1]),
        memories.browse,
        memories.count,
        memories.threads,
        memories.statistics,
        lambda: vectors.search([1.0, 0.0]),
        lambda: vectors.get("v"),
        vectors.browse,
        vectors.count,
        hasty.stats,
    ):
        with pytest.raises(ReadTimeout):
            ask()


def test_writes_and_maintenance_have_none(hasty: Database, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "tea.md").write_text("tea")
    hasty.documents.ingest_folder(tmp_path / "folder")
    hasty.memories.update(1, text="a lamp and tea")
    assert hasty.memories.delete([1]) == 1
    assert hasty.embed_pending() == 0
    assert hasty.check() == []
    hasty.rebuild()
    hasty.compact()
    with Database(hasty.copy_to(tmp_path / "copy.db"), embedder=Letters()) as copy:
        assert copy.documents.count() == 2


def test_what_a_writer_reads_is_not_limited_even_inside_of_a_deadline(tmp_path: Path) -> None:
    file = File(tmp_path / "x.db", read_timeout=NOTHING)
    with file.deadline(), file.writing() as sql:
        with file.reading() as joined:
            assert joined.execute(LONG).get == 100_000
        assert sql.execute(LONG).get == 100_000
    with file.reading(limited=False) as sql:
        assert sql.execute(LONG).get == 100_000
    file.close()


def test_reads_in_one_block_share_what_is_left_and_the_outer_block_counts() -> None:
    with deadline.shared(100), deadline.shared(NOTHING), deadline.running(NOTHING):
        deadline.check()
    with deadline.shared(0.01):
        with pytest.raises(ReadTimeout, match=r"0\.01 s"), deadline.running(100):
            while True:
                deadline.check()
        with pytest.raises(ReadTimeout), deadline.running(100):
            pass
    with deadline.running(100):
        deadline.check()


def test_time_between_reads_does_not_count() -> None:
    with deadline.shared(NOTHING):
        deadline.check()  # no read is running


def test_the_time_of_a_model_does_not_count() -> None:
    with deadline.running(100):
        began, before = time.monotonic(), deadline.left()
        with deadline.paused():
            paused = time.monotonic()
            time.sleep(0.02)
            paused = time.monotonic() - paused
        after, passed = deadline.left(), time.monotonic() - began
        assert before is not None and after is not None
        assert before - after <= passed - paused + 1e-6
    with deadline.paused():  # outside of a read nothing runs
        assert deadline.left() is None


def test_a_search_that_was_stopped_at_any_check_leaves_nothing_half_loaded(tmp_path: Path) -> None:
    tuning = Tuning(file_rows=0, exact_rows=0)

    def opened() -> Database:
        return Database(tmp_path / "x.db", embedder=Letters(), tuning=tuning)

    def answer(db: Database) -> list[tuple[int, float]]:
        where = {"metadata.g": 1}
        found = db.documents.search("w1 w2 common", where=where, limit=20)
        return [(hit.item.id, hit.score) for hit in found]

    with opened() as db, db._file.writing():
        for number in range(500):
            db.documents.ingest_text(
                f"common w{number % 7} {number}",
                source=f"{number}.md",
                metadata={"g": number % 3},
                embed=False,
            )
    with opened() as db:
        db.embed_pending()
        expected = answer(db)
    stopped = 0
    for checks in range(1, 400):
        with opened() as db:
            with db._file.outside() as sql:  # more checks than there are
                sql.set_progress_handler(lambda: bool(deadline.check()), 300)
            try:
                with counted_checks(last=checks):
                    assert answer(db) == expected
                break
            except ReadTimeout:
                stopped += 1
            assert answer(db) == expected
            assert answer(db) == expected
    assert 20 < stopped < 399


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A database in which every loop over stored texts and names takes many steps."""
    path = tmp_path_factory.mktemp("long") / "x.db"
    with Database(path, embedder=Letters()) as db:
        for base in (7, 5):  # lines that are in both, in another order
            text = "\n".join(f"line {number * number % base}" for number in range(600))
            db.documents.ingest_text(text, source="changed.md", embed=False)
        db.documents.ingest_text("a  cup of  tea " * 20_000, source="wide.md", embed=False)
        for number in range(20):
            db.documents.ingest_text("tea", source=f"notes/{number}.md", embed=False)
        db.memories.add("t", "user", "a cup of tea " * 9_000)
        yield db


def diffed(db: Database) -> str:
    return db.diff(db.history("changed.md")[0].number)


@pytest.mark.parametrize(
    ("step", "checks", "ask"),
    [
        ("searching texts", 15, lambda db: db.grep("no such")),
        ("searching texts", 5, lambda db: db.grep(r"x.{0,900}y.{0,90}z")),
        ("looking for the quotation", 25, lambda db: db.verify("no such words")),
        ("looking for the quotation", 24, lambda db: db.verify("coffee", document="wide.md")),
        (
            "looking for the quotation",
            15_000,
            lambda db: db.verify("cup", document="wide.md", line=9),
        ),
        ("comparing versions", 100, diffed),
        ("comparing the names of documents", 20, lambda db: db.documents.suggest("note/7.md")),
        ("comparing the names of documents", 20, lambda db: db.documents.matching("**/7.md")),
        (
            "comparing the names of documents",
            20,
            lambda db: db.documents.candidates(["7.md", "8.md"]),
        ),
        (
            "marking the words that were found",
            1,
            lambda db: db.memories.search("cup", highlight=True),
        ),
        ("marking the words that were found", 1, lambda db: db.highlights("tea " * 26_000, "tea")),
    ],
)
def test_every_loop_over_what_is_stored_stops_at_the_deadline_and_the_next_question_works(
    long: Database, step: str, checks: int, ask: Callable[[Database], Any]
) -> None:
    with counted_checks() as counted:
        answer = ask(long)
    assert counted.seen[step] > checks  # it is asked for inside of the loop
    with counted_checks(step, checks):
        try:
            stopped = ask(long)
        except ReadTimeout as error:
            assert f"stopped while {step}" in str(error)
        else:  # a question that tells what it has found so far
            assert f"not all texts were read: stopped while {step}" in stopped.note
    assert ask(long) == answer


def test_a_read_that_is_cancelled_ends_with_what_the_caller_raises(long: Database) -> None:
    calls = 0

    class Gone(BaseException):
        pass

    def cancelled() -> None:
        nonlocal calls
        calls += 1
        if calls > 10:
            raise Gone

    for ask in (lambda: diffed(long), lambda: long.grep("tea"), lambda: long.verify("coffee")):
        calls = 0
        with pytest.raises(Gone), long.deadline(cancelled):
            ask()
        with long.deadline(cancelled), long._file.writing() as sql:  # a change is made whole
            sql.execute(LONG).fetchall()
        ask()


def test_a_statement_is_stopped_when_it_is_cancelled(tmp_path: Path) -> None:
    class Gone(BaseException):
        pass

    waits = iter([True] * 20)

    def cancelled() -> None:
        if not next(waits, False):
            raise Gone

    file = File(tmp_path / "x.db")
    with pytest.raises(Gone), file.deadline(cancelled), file.reading() as sql:
        sql.execute(ENDLESS).fetchall()
    with file.reading() as sql:
        assert sql.execute("SELECT 7").get == 7
    file.close()


@pytest.mark.parametrize("seconds", [0, -1, 86_401])
def test_the_setting_is_a_number_of_seconds(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="read_timeout"):
        Config(read_timeout=seconds)
    assert Config.from_env({"MCPVECTORDB_READ_TIMEOUT": "2.5"}).read_timeout == 2.5
