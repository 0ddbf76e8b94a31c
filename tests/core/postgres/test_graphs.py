from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.long

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[test]'")

from mcpvectordb import Database, Progress
from mcpvectordb.index.tuning import Tuning
from tests.support import Letters
from tests.support_postgres import rows

GRAPHS = (
    "SELECT indexname FROM pg_indexes WHERE schemaname = 'mcpvectordb' AND indexname LIKE '%graph%' "
    "ORDER BY 1"
)


@pytest.fixture
def db(path: Path) -> Iterator[Database]:
    """A new database whose embeddings need a graph from 21 on."""
    with Database(path, embedder=Letters(), tuning=Tuning(engine_rows=20)) as opened:
        yield opened


def test_a_graph_is_made_when_there_are_enough_rows_and_only_then(
    db: Database, postgres_url: str
) -> None:
    for number in range(20):
        db.documents.ingest_text(f"document {number}", source=str(number))
    db.publish(postgres_url)
    assert rows(postgres_url, GRAPHS) == []
    db.documents.ingest_text("one more", source="more")
    db.publish(postgres_url)
    assert rows(postgres_url, GRAPHS) == [("document_embeddings_graph_1",)]
    db.documents.ingest_text("and another", source="another")
    db.publish(postgres_url)
    assert len(rows(postgres_url, GRAPHS)) == 1


def test_a_publish_that_was_ended_before_its_graph_is_finished_by_the_next(
    db: Database, postgres_url: str
) -> None:
    class Enough(Exception):
        pass

    def stop(progress: Progress) -> None:
        if progress.done == progress.total:
            raise Enough

    for number in range(21):
        db.documents.ingest_text(f"document {number}", source=str(number))
    with pytest.raises(Enough):
        db.publish(postgres_url, progress=stop)
    unfinished = "SELECT published_at IS NULL FROM mcpvectordb.origins"
    assert (rows(postgres_url, unfinished), rows(postgres_url, GRAPHS)) == ([(True,)], [])
    assert db.publish(postgres_url).changes == 0
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
    db: Database, postgres_url: str
) -> None:
    numbers = np.random.default_rng(1).standard_normal((30, 8)) * 1e6  # above all half floats
    ids = [str(number) for number in range(30)]
    db.vectors.add_many(ids, numbers, store="near")
    db.vectors.add_many(ids, numbers, store="far", metric="euclidean")
    db.vectors.add_many(ids, np.ones((30, 4_001)), store="wide")
    db.vectors.add("huge", [1e300] * 8, store="near")
    db.publish(postgres_url)
    assert rows(postgres_url, GRAPHS) == [
        ("vector_embeddings_graph_1_8",),
        ("vector_embeddings_graph_3_4001",),
    ]
    db.vectors.add("zero", [0.0] * 8, store="near")
    assert db.publish(postgres_url).vectors.added == 1
