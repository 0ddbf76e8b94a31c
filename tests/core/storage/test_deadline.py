"""Every question has a deadline, whatever it asks; nothing else has one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpvectordb import Config, Database, InvalidInput, MCPVectorDBError, ReadTimeout
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.storage import deadline
from mcpvectordb.storage.file import File
from tests.support import Letters

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
LONG = f"SELECT count(*) FROM ({ENDLESS.replace('count(*)', 'i')} LIMIT 100000)"
NOTHING = 1e-9  # seconds: over before the first check


class Stopped:
    """A deadline that is over at a given check instead of at a time."""

    def __init__(self, checks: int) -> None:
        self.seconds, self._left = 10.0, checks

    @property
    def end(self) -> float:
        self._left -= 1
        return 1e18 if self._left > 0 else 0.0


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Database]:
    """A filled database whose questions have no time at all."""
    with Database(tmp_path / "x.db", embedder=Letters(), config=Config(read_timeout=NOTHING)) as db:
        db.documents.ingest_text("a lamp in the harbour", source="lamp.md")
        db.contexts.add("t", "user", "a lamp")
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
    documents, contexts, vectors = hasty.documents, hasty.contexts, hasty.vectors
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
        lambda: documents.similar("lamb.md"),
        lambda: documents.matching("**"),
        lambda: contexts.search("lamp"),
        lambda: contexts.get([1]),
        contexts.browse,
        contexts.count,
        contexts.threads,
        contexts.statistics,
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
    hasty.contexts.update(1, text="a lamp and tea")
    assert hasty.contexts.delete([1]) == 1
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
            token = deadline._current.set(Stopped(checks))  # type: ignore[arg-type]
            try:
                assert answer(db) == expected
                break
            except ReadTimeout:
                stopped += 1
            finally:
                deadline._current.reset(token)
            assert answer(db) == expected
            assert answer(db) == expected
    assert 20 < stopped < 399


@pytest.mark.parametrize("seconds", [0, -1, 86_401])
def test_the_setting_is_a_number_of_seconds(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="read_timeout"):
        Config(read_timeout=seconds)
    assert Config.from_env({"MCPVECTORDB_READ_TIMEOUT": "2.5"}).read_timeout == 2.5
