"""A published database, opened for reading."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.long

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[test]'")

from mcpvectordb import (
    Config,
    Database,
    InvalidInput,
    NotOurFile,
    ReadOnly,
    ReadTimeout,
    Unreachable,
)
from mcpvectordb.documents.rows import fields
from mcpvectordb.index.resident import EVERYTHING, Allowed
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.postgres.connection import DIALECT
from mcpvectordb.postgres.origins import grant
from tests.support import Letters
from tests.support_parity import differences
from tests.support_postgres import LocalPostgres, rows

TEXTS = ["green tea is brewed for three minutes", "black tea needs five", "the pump E-4021 fails"]


def fill(db: Database, texts: list[str] = TEXTS) -> None:
    for number, text in enumerate(texts):
        db.documents.ingest_text(
            text, source=f"notes/{number}.md", title=f"Note {number}", metadata={"n": number}
        )
    db.memories.add("chores", "user", "Buy green tea", tags=["tea"])
    db.vectors.add("v", [1.0, 2.0])


@pytest.fixture
def file() -> Iterator[Database]:
    with Database(":memory:", embedder=Letters()) as db:
        fill(db)
        yield db


@pytest.fixture
def engine(file: Database, postgres_url: str) -> Iterator[Database]:
    file.publish(postgres_url, origin="one")
    with Database(postgres_url, embedder=Letters()) as db:
        yield db


def test_it_says_what_and_where_it_is(engine: Database, file: Database, postgres_url: str) -> None:
    assert engine.read_only and engine.place.startswith("postgresql://")
    assert engine.place in repr(engine)
    stats = engine.stats()
    assert (stats.path, stats.origins) == (engine.place, ("one",))
    assert (stats.documents, stats.memories, stats.vectors, stats.chunks) == (3, 1, 1, 3)
    assert stats.model == "letters" and stats.bytes > 0 and stats.pending == 0
    assert engine.documents.passed_over() == engine.documents.passed_over("default") == []
    assert engine.documents.descriptions("default", "notes/0.md") == []
    assert engine.documents.waiting(engine.documents.browse()[0].id) == frozenset()
    elsewhere = replace(engine.documents.browse()[0], source="/gone.md", modified="2025-11-29")
    assert engine.documents.state(elsewhere) == "" and file.documents.state(elsewhere) == "gone"
    assert engine.memories.indexed_keys() == ()
    assert sum(engine.space().values()) == stats.bytes and "words of documents" in engine.space()


def test_a_database_to_which_nothing_was_published_is_refused(postgres_url: str) -> None:
    with pytest.raises(NotOurFile, match="run `mcpvectordb publish` first"):
        Database(postgres_url)


WRITES: dict[str, Callable[[Database], Any]] = {
    "ingest": lambda db: db.documents.ingest(__file__),
    "ingest_text": lambda db: db.documents.ingest_text("a", source="a"),
    "ingest_texts": lambda db: db.documents.ingest_folder(Path(__file__).parent),
    "update": lambda db: db.documents.update(db.documents.browse()[0].id, title="new"),
    "delete": lambda db: db.documents.delete(db.documents.browse()[0].id),
    "delete_where": lambda db: db.documents.delete(library="default"),
    "add_library": lambda db: db.documents.add_library("x", Path(__file__).parent),
    "remove_library": lambda db: db.documents.remove_library("default"),
    "describe": lambda db: db.documents.describe("default", "", "text"),
    "contexts.add": lambda db: db.memories.add("t", "user", "a"),
    "contexts.update": lambda db: db.memories.update(1, text="b"),
    "contexts.delete": lambda db: db.memories.delete([1]),
    "contexts.index_keys": lambda db: db.memories.index_keys(["a"]),
    "vectors.add": lambda db: db.vectors.add("a", [1.0]),
    "vectors.delete": lambda db: db.vectors.delete("v"),
    "history": lambda db: db.history(),
    "diff": lambda db: db.diff(1),
    "undo": lambda db: db.undo(),
    "redo": lambda db: db.redo(),
    "forget": lambda db: db.forget("0.md"),
    "keep_history": lambda db: db.keep_history(False),
    "as_of": lambda db: db.documents.browse(as_of="today"),
    "contexts.as_of": lambda db: db.memories.get([1], as_of="today"),
    "vectors.as_of": lambda db: db.vectors.get("v", as_of="today"),
    "copy_to": lambda db: db.copy_to("copy.db"),
    "export_to": lambda db: db.export_to("a.jsonl"),
    "merge": lambda db: db.merge(__file__),
    "import_from": lambda db: db.import_from(__file__),
    "compact": lambda db: db.compact(),
    "check": lambda db: db.check(),
    "rebuild": lambda db: db.rebuild(),
    "publish": lambda db: db.publish("postgresql://elsewhere/x"),
}


def test_what_cannot_be_done_says_so_and_where_it_can(
    engine: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, call in WRITES.items():
        with pytest.raises(ReadOnly) as caught:
            call(engine)
        assert "file" in str(caught.value) or "reading only" in str(caught.value), name
    assert not list(tmp_path.iterdir())
    assert engine.documents.count() == 3
    assert engine.embed_pending() == 0


def test_searches_of_one_origin_are_those_of_its_file(postgres_url: str) -> None:
    rng = random.Random(1)
    words = "tea green brewed pump water the of error start".split()
    with contextlib.ExitStack() as stack:
        files = {}
        for name in ("one", "two"):
            files[name] = stack.enter_context(Database(":memory:", embedder=Letters()))
            fill(files[name], [" ".join(rng.choices(words, k=9)) for _ in range(9)])
            files[name].publish(postgres_url, origin=name)
        engine = stack.enter_context(Database(postgres_url, embedder=Letters()))
        assert engine.stats().origins == ("one", "two")
        assert engine.documents.count() == 18
        assert engine.documents.count(where={"origin": "two"}) == 9
        assert engine.memories.count(where={"origin": {"in": ["one"]}}) == 1
        assert engine.vectors.count(where={"origin": "one"}) == 1
        for name, file in files.items():
            for mode in ("text", "vector", "hybrid"):
                for unit in ("passage", "document"):
                    query = " ".join(rng.choices(words, k=3))
                    options: dict[str, Any] = {"mode": mode, "unit": unit}
                    ours = file.documents.search(query, **options)
                    theirs = engine.documents.search(query, where={"origin": name}, **options)
                    assert [hit.item.text for hit in theirs] == [hit.item.text for hit in ours]
                    assert [hit.score for hit in theirs] == pytest.approx(
                        [hit.score for hit in ours]
                    )
        both = engine.documents.search("tea", mode="text", limit=50)
        assert len({hit.item.id >> 40 for hit in both}) == 2
        empty = engine.documents.search("tea", where={"origin": "three"})
        assert empty.note == "there is no origin 'three'; known: 'one', 'two'"


def test_a_reader_searches_what_was_granted_as_if_there_were_nothing_else(
    file: Database, engine: Database, postgres_url: str
) -> None:
    with Database(":memory:", embedder=Letters()) as other:
        fill(other, ["tea " * 9, "green pump", "green tea of others"])
        other.publish(postgres_url, origin="others")
    rows(postgres_url, "CREATE ROLE reader LOGIN")
    try:
        grant(postgres_url, "reader", "read", ["one"])
        url = postgres_url.replace("postgres@", "reader@")
        with Database(url, embedder=Letters()) as reader:
            assert reader.stats().origins == ("one",)
            for question in (
                lambda db: db.documents.search("green tea"),
                lambda db: db.documents.search("tea", mode="text", unit="document"),
                lambda db: db.documents.browse(where={"metadata.n": {"lt": 2}}),
                lambda db: db.memories.search("tea"),
                lambda db: db.vectors.search([1.0, 1.0]),
            ):
                assert not differences(question, file, reader)
    finally:
        rows(postgres_url, "DROP OWNED BY reader; DROP ROLE reader")


def test_memories_hold_in_a_published_database_as_in_their_file(
    file: Database, postgres_url: str, tmp_path: Path
) -> None:
    file.publish(postgres_url, origin="one")
    old = file.memories.add("t", "user", "tea at four", valid_from="2020")
    file.memories.add("t", "agent", "tea at five", replaces=old.id, provenance="web")
    file.memories.add("t", "user", "free tea", valid_to="2021")
    with Database(":memory:", embedder=Letters()) as copy:  # the same memories, of another origin
        file.copy_to(tmp_path / "copy.db")
        copy.merge(tmp_path / "copy.db")
        copy.publish(postgres_url, origin="two")
    file.publish(postgres_url, origin="one")
    here = {"where": {"origin": "one"}}
    with Database(postgres_url, embedder=Letters()) as engine:
        for as_of in (None, "2020-06", "today", "any"):
            ours = file.memories.search("tea", as_of=as_of)
            theirs = engine.memories.search("tea", as_of=as_of, **here)
            assert [hit.item.text for hit in theirs] == [hit.item.text for hit in ours]
        found = {each.text: each for each in engine.memories.browse(**here)}
        assert found["tea at four"].replaced_by == found["tea at five"].id
        assert found["tea at five"].provenance == "web"
        assert found["free tea"].valid_to == "2021-12-31T23:59:59.999999+00:00"
        lines = {each.item.text for each in engine.grep("tea", kind="memories")}
        assert lines == {"tea at five", "Buy green tea"}


def test_stores_of_one_name_are_searched_together_unless_they_rank_otherwise(
    postgres_url: str,
) -> None:
    with (
        Database(":memory:", embedder=Letters()) as one,
        Database(":memory:", embedder=Letters()) as two,
    ):
        one.vectors.add("a", [1.0, 0.0])
        two.vectors.add("b", [0.0, 1.0])
        two.vectors.add("c", [1.0], store="odd", metric="dot")
        one.vectors.add("d", [1.0], store="odd")
        one.publish(postgres_url, origin="one")
        two.publish(postgres_url, origin="two")
    with Database(postgres_url) as engine:
        assert [hit.item.id for hit in engine.vectors.search([0.1, 1.0])] == ["b", "a"]
        assert [each.name for each in engine.vectors.stores()] == ["default", "odd", "odd"]
        with pytest.raises(InvalidInput, match="rank by cosine and by dot"):
            engine.vectors.search([1.0], store="odd")


def test_a_missing_model_gives_the_reason_of_the_file(
    tmp_path: Path, file: Database, engine: Database, postgres_url: str
) -> None:
    path = file.copy_to(tmp_path / "copy.db")
    with Database(path) as bare, Database(postgres_url) as published:
        assert not differences(lambda db: db.documents.search("green tea"), bare, published)
        assert "letters" in published.documents.search("green tea").reasons["vector"]


def test_passages_of_another_model_are_found_by_words_and_counted(postgres_url: str) -> None:
    class Others(Letters):
        name = "others"

    with (
        Database(":memory:", embedder=Letters()) as one,
        Database(":memory:", embedder=Others()) as two,
    ):
        fill(one)
        two.documents.ingest_text("oolong tea", source="o")
        one.publish(postgres_url, origin="one")
        two.publish(postgres_url, origin="two")
    with Database(postgres_url, embedder=Letters()) as engine:
        found = engine.documents.search("oolong tea")
        assert found.hits[0].item.text == "oolong tea"
        assert found.backlog.pending == 1 and "another model" in found.backlog.note


STRANGE = [
    "nul \0 mark \ufdd0 0 \ufdd01 end",
    "mark'; DROP SCHEMA mcpvectordb CASCADE; --",
    'mark quo"te %s %(x)s \\x41\\ a\tb\r\nc',
    "mark " + "\U0001f600" * 40,
]


def test_any_text_comes_back_as_it_was(postgres_url: str) -> None:
    with Database(":memory:", embedder=Letters()) as file:
        for text in STRANGE:
            file.documents.ingest_text(
                text, source=f"s {text}", title=text, library=text, metadata={text: text, "n": 1e22}
            )
            file.memories.add("t\ufdd0", "user", text, tags=[text], metadata={text: [text]})
            file.vectors.add(text, [1.0], store=text, namespace=text, metadata={text: text})
        file.publish(postgres_url, origin=STRANGE[0])
        assert file.publish(postgres_url, origin=STRANGE[0]).changes == 0
        with Database(postgres_url, embedder=Letters()) as engine:
            for question in (
                lambda db: db.documents.browse(where={"metadata.n": 1e22}),
                lambda db: db.documents.browse(where={"metadata.n": {"contains": "1e+22"}}),
                lambda db: db.documents.search("mark"),
                lambda db: db.memories.browse(thread="t\ufdd0"),
                lambda db: db.memories.search("mark", tags=[STRANGE[0].casefold()]),
                lambda db: (db.vectors.browse(store=None), db.vectors.stores()),
                lambda db: db.documents.libraries(),
                lambda db: [db.documents.text(each.id) for each in db.documents.browse()],
            ):
                assert not differences(question, file, engine)


# When something goes wrong.


OWN_DATES = (
    *("2019-05-06", "2019-05", "2019", 2019, "2020-02-29", "2000-02-29", "2019-05-06 07:08"),
    *("2019-05-06T23:30:00.1234567-02:00", "2019-05-06T00:30Z", "2019-05-06T07:08:09.999999999"),
    *("1900-02-29", "2019-02-29", "2019-13", "0001-01-01", "0000", "9999-12-31T23:00-02:00"),
    *("2019-05-06T24:00", "last summer", "", None, True, 2019.5, ["2019"], {"year": 2019}),
)


def test_the_own_dates_of_documents_are_those_of_the_file(postgres_url: str) -> None:
    with Database(":memory:", embedder=Letters()) as file:
        for number, value in enumerate(OWN_DATES):
            file.documents.ingest_text("tea", source=f"{number}", metadata={"date": value})
        file.publish(postgres_url, origin="dates")
        with Database(postgres_url, embedder=Letters()) as engine:
            for day in ("2019-05-06", "2019-05-07", "2019", "2020", "2000"):
                for sign in ("eq", "gte", "lt"):
                    where = {"date": {sign: day}}
                    assert not differences(partial(_sources, where=where), file, engine), where
            with engine._file.reading() as sql:
                date = fields(DIALECT)["date"]
                found = dict(sql.execute(f"SELECT source, {date} FROM published_documents d"))
        assert found == {each.source: each.date for each in file.documents}


def _sources(db: Database, where: Any) -> list[str]:
    return [each.source for each in db.documents.browse(where=where, limit=100, sort="path")]


def test_a_read_has_a_deadline(engine: Database, postgres_url: str) -> None:
    with (
        Database(postgres_url, config=Config(read_timeout=0.05), embedder=Letters()) as hurried,
        pytest.raises(ReadTimeout, match="longer than it may"),
        hurried._file.reading() as sql,
    ):
        sql.execute("SELECT pg_sleep(20)")


def test_a_read_without_a_limit_has_none(postgres_url: str, engine: Database) -> None:
    with (
        Database(postgres_url, config=Config(read_timeout=0.05)) as hurried,
        hurried._file.reading(limited=False) as sql,
    ):
        assert sql.execute("SELECT count(pg_sleep(0.1))").get == 1


def cut_at(engine: Database, number: int) -> None:
    """Shut the socket of this thread's connection before the statement with this number."""
    with engine._file.reading() as sql:
        session: Any = sql
    seen = iter(range(100))

    def trace(*_: object) -> None:
        if next(seen) == number:
            with socket.socket(fileno=os.dup(session.connection.fileno())) as its:
                its.shutdown(socket.SHUT_RDWR)

    session.exec_trace = trace


@pytest.mark.parametrize("number", [0, 1, 3, 5])
def test_a_network_that_is_cut_in_a_search_gives_a_clear_error_and_the_next_call_works(
    engine: Database, number: int
) -> None:
    before = engine.documents.search("green tea")
    cut_at(engine, number)
    with pytest.raises(Unreachable, match="was cut; the next call makes a new one"):
        engine.documents.search("green tea")
    assert engine.documents.search("green tea") == before


def test_a_connection_that_was_cut_while_idle_is_replaced_without_an_error(
    engine: Database, postgres: LocalPostgres
) -> None:
    before = engine.documents.search("green tea")
    postgres.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
        "application_name = 'mcpvectordb' AND pid <> pg_backend_pid()"
    )
    assert engine.documents.search("green tea") == before


def test_a_server_that_is_killed_and_started_again_answers_again(
    engine: Database, postgres: LocalPostgres
) -> None:
    before = engine.documents.search("green tea")
    postgres.kill()
    try:
        with pytest.raises(Unreachable, match=r"cannot be reached|was cut"):
            engine.documents.search("green tea")
    finally:
        postgres.start()
    assert engine.documents.search("green tea") == before


def test_the_version_is_another_one_after_publishing(
    engine: Database, file: Database, postgres_url: str
) -> None:
    before = engine.data_version()
    assert engine.data_version() == before
    file.documents.ingest_text("white tea", source="white")
    file.publish(postgres_url, origin="one")
    assert engine.data_version() != before


def test_warming_it_loads_the_model_alone(engine: Database) -> None:
    engine.warm(wait=True)
    assert not engine.loading
    assert engine.documents.search("green tea").legs == ("text", "vector")


# Graphs.


class Random(Letters):
    """Embeddings without any order among them."""

    name, dimension = "random", 48

    def embed(self, texts: Any, *, query: bool = False) -> Any:
        found = [np.random.default_rng(list(each.encode())).normal(size=48) for each in texts]
        return np.array(found, np.float32)


@pytest.fixture(scope="module")
def graphed(postgres: LocalPostgres) -> Iterator[tuple[Database, Database]]:
    """A file of 1,500 passages, and what was published of it, with graphs."""
    with postgres.database() as url, Database(":memory:", embedder=Random()) as file:
        for number in range(1_500):
            file.documents.ingest_text(
                f"passage {number}", source=str(number), metadata={"n": number}, embed=False
            )
        file.embed_pending()
        names = [f"v{number}" for number in range(1_500)]
        file.vectors.add_many(names, Random().embed(names))
        file.publish(url)
        rows(url, "SELECT mcpvectordb.make_graphs(100)")
        with Database(url, embedder=Random(), tuning=Tuning(engine_rows=200)) as engine:
            yield file, engine


def nearest(db: Database, query: str, allowed: Allowed, limit: int) -> list[int]:
    embedding = Random().embed([query])[0].tobytes()
    with db._file.reading() as sql:
        found = db._indexes[0].vector.nearest(sql, 1, embedding, allowed, limit)
    return [id for id, _ in found]


def test_a_graph_finds_what_comparing_all_finds(graphed: tuple[Database, Database]) -> None:
    file, engine = graphed
    hits = 0
    for number in range(40):
        exact = nearest(file, f"q{number}", EVERYTHING, 10)
        hits += len(set(exact) & set(nearest(engine, f"q{number}", EVERYTHING, 10)))
    assert hits >= 396  # of 400


@pytest.mark.parametrize("least", [1_480, 900, 100, 0])
def test_no_filter_starves_a_graph(graphed: tuple[Database, Database], least: int) -> None:
    file, engine = graphed
    chosen = {"metadata.n": {"gte": least}}
    for limit in (5, 60):
        ours = file.documents.search("q", mode="vector", where=chosen, limit=limit)
        theirs = engine.documents.search("q", mode="vector", where=chosen, limit=limit)
        assert len(theirs) == min(limit, 1_500 - least)
        assert len({h.item.id for h in ours} & {h.item.id for h in theirs}) >= 0.95 * len(ours)


def test_users_vectors_have_a_graph_too(graphed: tuple[Database, Database]) -> None:
    file, engine = graphed
    query = Random().embed(["q"])[0]
    for where in (None, {"namespace": ""}, {"id": "v7"}):
        assert not differences(
            lambda db, where=where: db.vectors.search(query, where=where),  # type: ignore[misc]
            file,
            engine,
        )


# What SQL functions do.


def test_case_is_folded_in_sql_as_in_python(engine: Database) -> None:
    letters = [
        each
        for each in map(chr, range(1, sys.maxunicode + 1))
        if each.isalpha() and each.casefold() != each
    ]
    with engine._file.reading() as sql:
        folded = sql.execute(
            "SELECT array_agg(folded(each) ORDER BY place) "
            "FROM unnest(?::text[]) WITH ORDINALITY AS u (each, place)",
            (letters,),
        ).get
    assert folded == [each.casefold() for each in letters]


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("5", "5"),
        (" +5. ", "5"),
        ("1e2", "100"),
        ("9223372036854775808", "9223372036854776000"),
        ("9223372036854775807", "9223372036854775807"),
        ("1e400", "Infinity"),
        ("-1e99999", "-Infinity"),
        ("1e-400", "0"),
        ("0e99999", "0"),
        ("abc", None),
        ("0x10", None),
    ],
)
def test_numerals_are_read_as_sqlite_reads_them(
    engine: Database, written: str, number: str | None
) -> None:
    with engine._file.reading() as sql:
        same = sql.execute(
            "SELECT numeral(?) IS NOT DISTINCT FROM ?::numeric", (written, number)
        ).get
    assert same


def test_paths_below_the_folder_of_an_ingest_are_published(
    tmp_path: Path, postgres_url: str, file: Database
) -> None:
    (tmp_path / "docs/2025").mkdir(parents=True)
    (tmp_path / "docs/2025/tea.md").write_text("green tea")
    file.documents.ingest_folder(tmp_path / "docs", library="x")
    file.documents.ingest_text("Q4", source="plans/q4.md", library="plans")
    file.publish(postgres_url, origin="one")
    with Database(postgres_url) as published:
        for name in (
            "x/2025/tea.md",
            "plans/q4.md",
            "2025/tea.md",
            f"x{tmp_path}/docs/2025/tea.md",
        ):
            mine, theirs = (db.documents.lookup(name).document for db in (file, published))
            assert mine.path == theirs.path
            [same] = published.documents.browse(where={"path": mine.path})
            assert same.source == mine.source


def test_a_project_has_the_same_in_a_published_database(
    file: Database, postgres_url: str, tmp_path: Path
) -> None:
    for name in ("app", "app/docs", "app-2", "Apple"):
        file.memories.add(name, "user", f"the pump of {name}")
        file.documents.ingest_text(f"the pump of {name}", source=name, library=name)
    file.publish(postgres_url, origin="one")
    with Database(postgres_url, embedder=Letters()) as db:
        found = [
            {each.item.text for each in some.search("pump", project="app", limit=50)}
            for some in (db, file)
        ]
        assert found == [{"the pump of app", "the pump of app/docs"}] * 2
        assert db.projects.chosen("app") == "app"
        assert db.projects.resolve(tmp_path).name == tmp_path.name
        assert db.projects.browse() == []
