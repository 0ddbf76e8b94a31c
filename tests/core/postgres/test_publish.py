from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[test]'")

from mcpvectordb import (
    Busy,
    Config,
    Database,
    Image,
    InvalidInput,
    NotFound,
    Progress,
    Published,
    PublishedItems,
)
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.postgres import origins, publish
from mcpvectordb.postgres.connection import Server
from mcpvectordb.postgres.keyword import stored_term
from mcpvectordb.postgres.publish import PASSAGES, DocumentsToPublish, Publication, differences
from tests.support import Letters
from tests.support_postgres import published, rows, versions_of_rows

pytestmark = pytest.mark.long

TEA = "# Tea\n\nGreen tea brews at 80 degrees.\n\n## Milk\n\nNone, parseHTMLDocument says.\n"


def filled(db: Database) -> None:
    db.documents.ingest_text(TEA, source="tea.md", metadata={"year": 2026, "tags": ["a"]})
    db.documents.ingest_text("数据库 and e-mail", source="b.md", library="work", title="Über uns")
    db.memories.add("t", "user", "We like tea", tags=["b", "a"], metadata={"k": 1})
    db.memories.add("t", "agent", "Noted", images=[Image(data=b"\x89PNG", metadata={"w": 1})])
    db.vectors.add("v", [1.0, 2.0], store="s", metadata={"x": "y"}, metric="dot")
    db.vectors.add("w", [0.1, 2.0], store="s", namespace="n")


def counts(report: Published) -> tuple[PublishedItems, PublishedItems, PublishedItems]:
    return report.documents, report.memories, report.vectors


def items(**numbers: int) -> PublishedItems:
    return PublishedItems(**numbers)


def test_everything_is_published_and_has_the_ids_of_the_file(
    db: Database, postgres_url: str
) -> None:
    filled(db)
    report = db.publish(postgres_url, origin="mine")
    assert counts(report) == (items(added=2), items(added=2), items(added=2))
    assert (report.origin, report.waiting) == ("mine", 0)
    found = published(postgres_url, "mine")
    with db._file.reading() as sql:
        chunks = dict(sql.execute("SELECT id, tile FROM document_chunks"))
        keys = {key for (key,) in sql.execute("SELECT key FROM documents")}
    assert {row["id"]: row["tile"] for row in found["document_chunks"]} == chunks
    assert {row["key"] for row in found["documents"]} == keys
    paths = {each.id: (each.path, each.chunks) for each in db.documents.browse()}
    assert {row["id"]: (row["path"], row["chunks"]) for row in found["documents"]} == paths
    assert {row["id"] for row in found["contexts"]} == {each.id for each in db.memories.browse()}
    assert [row["tag"] for row in found["context_tags"]] == ["a", "b"]
    assert [row["data"] for row in found["context_images"]] == ["\\x89504e47"]
    assert len(found["document_embeddings"]) == len(chunks)


def test_only_what_changed_is_written(db: Database, postgres_url: str) -> None:
    filled(db)
    db.publish(postgres_url)
    before = versions_of_rows(postgres_url)["document_chunks"]
    tea = next(each for each in db.documents.browse() if each.source == "tea.md")
    db.documents.update(tea.id, metadata={"year": 2027})
    report = db.publish(postgres_url)
    assert report.documents == items(updated=1, unchanged=1) and report.passages == 0
    assert versions_of_rows(postgres_url)["document_chunks"] == before
    ((fields,),) = rows(
        postgres_url, "SELECT fields FROM mcpvectordb.documents WHERE source = 'tea.md'"
    )
    assert fields == {"year": 2027}


def test_a_successor_and_what_it_replaces_change_places_in_one_transaction(
    db: Database, postgres_url: str
) -> None:
    for number in range(300):
        db.documents.ingest_text(f"text {number}", source=str(number))
    db.publish(postgres_url, origin="mine")
    for number in range(290):
        db.documents.ingest_text(f"another {number}", source=str(number))
    db.documents.delete(
        next(each.id for each in db.documents.browse(limit=400) if each.source == "299")
    )
    with closing(Server(postgres_url)) as server, server.reading() as remote:
        origin = origins.Origin(0, "mine", uuid.uuid4())
        # Without a model, the embeddings of the others differ, too.
        shelf = DocumentsToPublish(Publication(origin, None), db._indexes[0])
        with db._file.reading() as local:
            found = differences(shelf.local(local), shelf.remote(remote))
        sent = list(shelf.batches(remote, found))
    assert [(len(each.items), len(each.gone), each.replaced) for each in sent] == [
        (256, 247, 247),
        (43, 43, 43),
        (0, 1, 0),
    ]
    report = db.publish(postgres_url, origin="mine")
    assert report.documents == items(updated=290, deleted=1, unchanged=9)


def test_embeddings_of_another_model_take_the_place_of_the_old_ones(
    path: Path, postgres_url: str
) -> None:
    with Database(path, config=Config(model="all-MiniLM-L6-v2")) as db:
        db.documents.ingest_text(TEA, source="tea.md")
        db.memories.add("t", "user", "We like tea")
        first = db.publish(postgres_url, origin="mine")
        words = versions_of_rows(postgres_url)["document_words"]
        db.use_model("bge-small-en-v1.5")
        report = db.publish(postgres_url, origin="mine")
        assert counts(report) == (items(updated=1), items(updated=1), items())
        assert (report.passages, report.waiting) == (first.passages, 0)
        assert versions_of_rows(postgres_url)["document_words"] == words
        assert db.publish(postgres_url, origin="mine").changes == 0
    current = (
        "SELECT m.name FROM mcpvectordb.models m JOIN mcpvectordb.origins o ON o.model = m.key"
    )
    assert rows(postgres_url, current) == [("bge-small-en-v1.5",)]
    for table in ("document_embeddings", "context_embeddings"):
        used = f"SELECT DISTINCT m.name FROM mcpvectordb.{table} e JOIN mcpvectordb.models m ON m.key = e.model"
        assert rows(postgres_url, used) == [("bge-small-en-v1.5",)]


def test_some_libraries_are_published_without_the_rest(db: Database, postgres_url: str) -> None:
    filled(db)
    report = db.publish(postgres_url, origin="work", libraries=["work"])
    assert counts(report) == (items(added=1), items(), items())
    assert {row["library"] for row in published(postgres_url, "work")["documents"]} == {"work"}
    assert db.publish(postgres_url, origin="work", libraries=["work"]).changes == 0
    whole = db.publish(postgres_url, origin="work")
    assert counts(whole) == (items(added=1, unchanged=1), items(added=2), items(added=2))
    with pytest.raises(NotFound, match=r"'wrok'.*work"):
        db.publish(postgres_url, libraries=["wrok"])
    with pytest.raises(InvalidInput, match="list of names"):
        db.publish(postgres_url, libraries=[])


def test_the_folder_that_a_library_follows_is_published(
    db: Database, postgres_url: str, tmp_path: Path
) -> None:
    (tmp_path / "notes" / "sub").mkdir(parents=True)
    (tmp_path / "notes" / "sub" / "a.md").write_text("apple")
    db.documents.add_library("notes", tmp_path / "notes", description="what we know")
    db.documents.describe("notes", "sub", "the fruit")
    db.documents.sync("notes")
    db.publish(postgres_url, origin="mine")
    found = published(postgres_url, "mine")
    (library,) = found["libraries"]
    assert (library["root"], library["description"]) == (str(tmp_path / "notes"), "what we know")
    assert [(row["path"], row["text"]) for row in found["library_notes"]] == [("sub", "the fruit")]
    assert [row["path"] for row in found["documents"]] == ["notes/sub/a.md"]
    db.documents.describe("notes", "sub", "fruit")
    report = db.publish(postgres_url, origin="mine")
    assert report.changes == 0
    assert [row["text"] for row in published(postgres_url, "mine")["library_notes"]] == ["fruit"]


def test_a_long_document_appears_as_a_whole(path: Path, postgres_url: str) -> None:
    with Database(path, config=Config(chunk_size=16, chunk_overlap=0), embedder=Letters()) as db:
        long = "\n\n".join(
            f"Paragraph {number} about fruit and other things." for number in range(700)
        )
        db.documents.ingest_text(long, source="long.md")
        report = db.publish(postgres_url, origin="mine")
        assert report.passages > PASSAGES
        texts = [
            row["tile"]
            for row in sorted(
                published(postgres_url, "mine")["document_chunks"], key=lambda row: row["position"]
            )
        ]
        assert "".join(texts) == long


# The name of an origin.


def test_a_file_keeps_the_name_that_it_is_published_under(
    db: Database, postgres_url: str, tmp_path: Path
) -> None:
    filled(db)
    first = db.publish(postgres_url).origin
    assert first.startswith("test-") and len(first) == len("test-") + 8
    with Database(db.copy_to(tmp_path / "other.db"), embedder=Letters()) as copy:
        report = copy.publish(postgres_url)
    assert (report.origin, report.changes) == (first, 0)


def test_an_origin_of_another_file_is_left_alone(
    db: Database, postgres_url: str, tmp_path: Path
) -> None:
    filled(db)
    db.publish(postgres_url, origin="mine")
    before = published(postgres_url, "mine")
    with (
        Database(tmp_path / "other.db", embedder=Letters()) as other,
        pytest.raises(InvalidInput, match=r"'mine' was published from the file 'test-.*other-"),
    ):
        other.publish(postgres_url, origin="mine")
    assert published(postgres_url, "mine") == before


def test_a_file_that_cannot_be_written_needs_a_name(db: Database, postgres_url: str) -> None:
    filled(db)
    with Database(db.path, config=Config(read_only=True)) as reader:
        with pytest.raises(InvalidInput, match="name an origin"):
            reader.publish(postgres_url)
        assert reader.publish(postgres_url, origin="mine").changes == 6
        before = versions_of_rows(postgres_url)
        assert reader.publish(postgres_url, origin="mine").changes == 0
        assert versions_of_rows(postgres_url) == before


@pytest.mark.parametrize("name", ["", " ", "x" * 201, "\ud800", 7])
def test_names_that_no_origin_can_have_are_refused(db: Database, name: Any) -> None:
    with pytest.raises(InvalidInput, match="origin"):
        db.publish("postgresql://nowhere", origin=name)


# Several at once.


def test_origins_are_apart_and_one_can_be_removed(
    db: Database, postgres_url: str, tmp_path: Path
) -> None:
    filled(db)
    db.publish(postgres_url, origin="one")
    with Database(tmp_path / "two.db", embedder=Letters()) as other:
        other.documents.ingest_text("Green apples", source="tea.md")
        other.memories.add("t", "user", "Also tea")
        other.publish(postgres_url, origin="two")
    two = published(postgres_url, "two")
    assert rows(postgres_url, "SELECT key, name FROM mcpvectordb.origins ORDER BY 1") == [
        (0, "one"),
        (1, "two"),
    ]
    assert rows(
        postgres_url, "SELECT min(id) >> 40 FROM mcpvectordb.document_chunks WHERE origin = 1"
    ) == [(1,)]
    rows(postgres_url, "DELETE FROM mcpvectordb.origins WHERE name = 'one'")
    assert published(postgres_url, "two") == two
    for table in two:
        assert rows(postgres_url, f"SELECT count(*) FROM mcpvectordb.{table} WHERE origin = 0") == [
            (0,)
        ]


def test_several_origins_are_published_at_the_same_time(postgres_url: str, tmp_path: Path) -> None:
    def fill_and_publish(number: int) -> None:
        with Database(tmp_path / f"{number}.db", embedder=Letters()) as db:
            for each in range(30):
                db.documents.ingest_text(f"common words and word{number}x{each}", source=str(each))
            db.publish(postgres_url, origin=f"origin {number}")

    threads = [threading.Thread(target=fill_and_publish, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows(
        postgres_url,
        "SELECT origin, items FROM mcpvectordb.document_terms WHERE term = 'common' ORDER BY 1",
    ) == [(number, 30) for number in range(4)]
    assert rows(
        postgres_url, "SELECT sum(items) FROM mcpvectordb.totals WHERE shelf = 'document'"
    ) == [(120,)]


def test_two_publishers_of_an_origin_take_turns_or_say_so(db: Database, postgres_url: str) -> None:
    filled(db)
    own, server = origins.name_of_file(db._file), Server(postgres_url)
    db.publish(postgres_url, origin="mine")
    hasty, hasty.config = db._store, replace(db.config, busy_timeout=0.1)
    with origins.locked(server, "mine", own, 1):
        with pytest.raises(Busy, match="another process is publishing 'mine'"):
            publish.publish(hasty, postgres_url, origin="mine")
        assert publish.publish(hasty, postgres_url, origin="other").changes == 6
    assert publish.publish(hasty, postgres_url, origin="mine").changes == 0
    server.close()


def test_a_publisher_that_lost_its_lock_stops_when_another_one_writes(
    db: Database, postgres_url: str
) -> None:
    filled(db)
    own, server = origins.name_of_file(db._file), Server(postgres_url)
    db.publish(postgres_url, origin="mine")
    with origins.locked(server, "mine", own, 1) as first, server.writing() as sql:
        origins.claim(sql, first, (None, None))
    with origins.locked(server, "mine", own, 1) as second, server.writing() as sql:
        first.verify(sql)
        origins.claim(sql, second, (None, None))
        second.verify(sql)
        with pytest.raises(Busy, match="another process publishes 'mine'"):
            first.verify(sql)
    server.close()


def test_progress_is_reported_while_much_is_compared_sent_and_vacuumed(
    db: Database, postgres_url: str
) -> None:
    ids = [str(number) for number in range(2_500)]
    db.vectors.add_many(ids, np.arange(5_000.0).reshape(-1, 2))
    db.documents.ingest_many(ids[:1_000], sources=ids[:1_000])
    seen: list[Progress] = []
    db.publish(postgres_url, progress=seen.append)
    compared = [each.done for each in seen if each.step == "compare"]
    assert compared == [1_000, 1_000, 2_000]
    assert [each.done for each in seen if each.step == "vacuum"] == [0, 1]
    sent = [each.done for each in seen if each.step == "publish"]
    assert sent == sorted(sent) and sent[-1] == 3_500
    assert {each.total for each in seen if each.step == "publish"} == {3_500}


# What PostgreSQL cannot hold, and what is unusual.


def test_metadata_of_a_megabyte_and_words_of_thousands_of_letters_are_published(
    db: Database, postgres_url: str
) -> None:
    long, value = "x" * 3_000 + "é" * 3_000, "ü" * 900_000
    db.documents.ingest_text(f"short {long}", source="u" * 5_000, metadata={"k": value})
    db.memories.add("t" * 1_000, "user", long + long, tags=["字" * 900])
    db.vectors.add("v" * 4_096, [1.0])
    assert db.publish(postgres_url, origin="mine").changes == 3
    found = published(postgres_url, "mine")
    assert found["documents"][0]["fields"] == {"k": value}
    terms = {row["term"] for row in found["document_terms"]}
    assert "short" in terms and max(len(term.encode()) for term in terms) <= 255
    assert {row["term"] for row in found["context_spelling_terms"]} == {
        stored_term("x" * 3_000 + "e" * 3_000 + "x" * 3_000 + "e" * 3_000)
    }
    assert db.publish(postgres_url, origin="mine").changes == 0


def test_numbers_that_float32_or_pgvector_cannot_hold_are_kept_as_they_are(
    db: Database, postgres_url: str
) -> None:
    wide = np.random.default_rng(1).standard_normal(16_001).astype(np.float32)
    vectors: dict[str, Any] = {
        "single": [1.5, -2.0],
        "double": [0.1, 1e-9],
        "huge": [1e300, 1.0],
        "wide": wide,
    }
    for name, numbers in vectors.items():
        db.vectors.add(name, numbers)
    db.publish(postgres_url)
    found = {
        name: (numbers, raw)
        for name, numbers, raw in rows(
            postgres_url,
            "SELECT v.id, e.embedding::real[], e.raw FROM mcpvectordb.vectors v "
            "JOIN mcpvectordb.vector_embeddings e ON e.vector = v.key",
        )
    }
    assert found["single"] == ([1.5, -2.0], None)
    assert found["double"][0] == pytest.approx([0.1, 1e-9]) and np.frombuffer(
        found["double"][1], "<f8"
    ).tolist() == [0.1, 1e-9]
    assert found["huge"][0] is None and np.frombuffer(found["huge"][1], "<f8").tolist() == [
        1e300,
        1.0,
    ]
    assert found["wide"][0] is None and found["wide"][1] == wide.tobytes()


# Graphs.

GRAPHS = (
    "SELECT indexname FROM pg_indexes WHERE schemaname = 'mcpvectordb' AND indexname LIKE '%graph%' "
    "ORDER BY 1"
)


@pytest.fixture
def small(path: Path) -> Iterator[Database]:
    """A new database whose embeddings need a graph from 21 on."""
    with Database(path, embedder=Letters(), tuning=Tuning(engine_rows=20)) as opened:
        yield opened


def test_a_graph_is_made_when_there_are_enough_rows_and_only_then(
    small: Database, postgres_url: str
) -> None:
    for number in range(20):
        small.documents.ingest_text(f"document {number}", source=str(number))
    small.publish(postgres_url)
    assert rows(postgres_url, GRAPHS) == []
    small.documents.ingest_text("one more", source="more")
    small.publish(postgres_url)
    assert rows(postgres_url, GRAPHS) == [("document_embeddings_graph_1",)]
    small.documents.ingest_text("and another", source="another")
    small.publish(postgres_url)
    assert len(rows(postgres_url, GRAPHS)) == 1


def test_a_publish_that_was_ended_before_its_graph_is_finished_by_the_next(
    small: Database, postgres_url: str
) -> None:
    class Enough(Exception):
        pass

    def stop(progress: Progress) -> None:
        if progress.done == progress.total:
            raise Enough

    for number in range(21):
        small.documents.ingest_text(f"document {number}", source=str(number))
    with pytest.raises(Enough):
        small.publish(postgres_url, progress=stop)
    unfinished = "SELECT published_at IS NULL FROM mcpvectordb.origins"
    assert (rows(postgres_url, unfinished), rows(postgres_url, GRAPHS)) == ([(True,)], [])
    assert small.publish(postgres_url).changes == 0
    assert rows(postgres_url, unfinished) == [(False,)]
    assert rows(postgres_url, GRAPHS) == [("document_embeddings_graph_1",)]


def test_the_graph_of_a_model_has_the_rows_of_all_origins(
    postgres_url: str, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        with Database(
            tmp_path / f"{name}.db", embedder=Letters(), tuning=Tuning(engine_rows=20)
        ) as db:
            for number in range(15):
                db.documents.ingest_text(f"{name} {number}", source=str(number))
            db.publish(postgres_url)
    with psycopg.connect(postgres_url) as sql:
        sql.execute(
            "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_indexscan = on"
        )
        statement = (
            "SELECT chunk FROM mcpvectordb.document_embeddings WHERE model = 1 "
            "ORDER BY l2_normalize(embedding)::halfvec(32) <=> (SELECT embedding FROM "
            "mcpvectordb.document_embeddings ORDER BY chunk LIMIT 1)::halfvec(32) LIMIT 30"
        )
        plan = "\n".join(line for (line,) in sql.execute(f"EXPLAIN {statement}").fetchall())
        assert "document_embeddings_graph_1" in plan
        assert len(sql.execute(statement).fetchall()) == 30


def test_stores_that_rank_by_cosine_get_a_graph_whatever_their_numbers(
    small: Database, postgres_url: str
) -> None:
    numbers = np.random.default_rng(1).standard_normal((30, 8)) * 1e6  # above all half floats
    ids = [str(number) for number in range(30)]
    small.vectors.add_many(ids, numbers, store="near")
    small.vectors.add_many(ids, numbers, store="far", metric="euclidean")
    small.vectors.add_many(ids, np.ones((30, 4_001)), store="wide")
    small.vectors.add("huge", [1e300] * 8, store="near")
    small.publish(postgres_url)
    assert rows(postgres_url, GRAPHS) == [
        ("vector_embeddings_graph_1_8",),
        ("vector_embeddings_graph_3_4001",),
    ]
    small.vectors.add("zero", [0.0] * 8, store="near")
    assert small.publish(postgres_url).vectors.added == 1
