"""What a publisher of one origin sends cannot end the searches of others who may see it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[test]'")

from mcpvectordb import Database
from mcpvectordb.postgres import origins, schema
from mcpvectordb.postgres.connection import Server, Session
from tests.support import Letters
from tests.support_postgres import make_older, problems, published, rows

# By the table: what a publisher can do to its own rows with the rights that it has.
HOSTILE = {
    "an embedding of another dimension": "INSERT INTO document_embeddings SELECT chunk, model, 1, "
    "'[1,2,3]' FROM gone",
    "one of a context": "INSERT INTO context_embeddings SELECT min(c.id), min(m.key), 1, '[1,2,3]' "
    "FROM context_chunks c, models m WHERE c.origin = 1",
    "an embedding of no passage": "INSERT INTO document_embeddings SELECT chunk + 99, model, 1, "
    "embedding FROM gone",
    "an embedding of no model": "INSERT INTO document_embeddings SELECT chunk, 99, 1, embedding "
    "FROM gone",
    "metadata that is no JSON": "UPDATE documents SET metadata = 'no'",
    "metadata that is no object": "UPDATE documents SET metadata = '[]'",
    "fields that are no object": "UPDATE documents SET fields = '7'",
    "half of a surrogate pair": """UPDATE documents SET fields = '{"x": "\\ud800"}'""",
    "a number without end": "UPDATE documents SET fields = ('{\"x\": 1e999999}')::json",
    "depth without end": "UPDATE documents SET fields = ('{\"x\":' || repeat('[', 40) || "
    "repeat(']', 40) || '}')::json",
    "metadata of a vector": "INSERT INTO vectors SELECT key + 9, origin, store, dimension, "
    "namespace, id, 'no', fields, row_digest FROM vectors",
    "a vector of another dimension": "INSERT INTO vector_embeddings SELECT key, origin, store, "
    "dimension, '[1,2,3]' FROM spare",
    "a vector of another place": "INSERT INTO vector_embeddings SELECT key, origin, store, "
    "3, '[1,2,3]' FROM spare",
    "numbers that are none": "INSERT INTO vector_embeddings SELECT key, origin, store, dimension, "
    "NULL, 'abc' FROM spare",
    "headings that are no JSON": "INSERT INTO context_chunks SELECT id + 9, owner, origin, 9, 0, 0, "
    "0, 0, 0, 0, '', 'no', '', '', '' FROM context_chunks",
    "headings that are no texts": "INSERT INTO context_chunks SELECT id + 9, owner, origin, 9, 0, "
    "0, 0, 0, 0, 0, '', '[7]', '', '', '' FROM context_chunks",
    "an unknown metric": "UPDATE stores SET metric = 'luck'",
    "a model of no dimension": "SELECT model_key('x', '', -1)",
    "patterns that are none": "INSERT INTO libraries VALUES (1, 'x', '', '', '7', '', '')",
}
BEFORE = (
    "SET search_path = mcpvectordb, public",
    "CREATE TEMP TABLE gone AS SELECT * FROM document_embeddings WHERE origin = 1",
    "DELETE FROM document_embeddings WHERE origin = 1",
    "DELETE FROM context_embeddings WHERE origin = 1",
    "CREATE TEMP TABLE spare AS SELECT key + 5 AS key, origin, store, dimension FROM vectors",
    "INSERT INTO vectors SELECT key + 5, origin, store, dimension, namespace, 'spare', metadata, "
    "fields, row_digest FROM vectors",
)


def everything(url: str) -> list[Any]:
    """What a reader finds by questions of every kind."""
    with Database(url, embedder=Letters()) as db:
        found: list[Any] = []
        for mode in ("text", "vector", "hybrid"):
            found += [hit.item.document.path for hit in db.documents.search("tea of", mode=mode)]  # type: ignore[arg-type]
            found += [hit.item.text for hit in db.memories.search("memory of", mode=mode)]  # type: ignore[arg-type]
        found += [hit.item.id for hit in db.vectors.search([1.0])]
        found += [each.metadata for each in db.documents.browse(where={"metadata.x": {"gt": 0}})]
        found += [each.metadata for each in db.memories.browse()]
        found += [each.name for each in db.documents.libraries()]
        return found


Attack = Callable[[str], None]


@pytest.fixture(scope="module")
def attacked(postgres: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The URL of a database with two origins for its owner, and for the publisher of the second."""
    with postgres.database() as url:
        for name in ("one", "two"):
            with Database(tmp_path_factory.mktemp(name) / "x.db", embedder=Letters()) as db:
                db.documents.ingest_text(f"tea of {name}", source="a", metadata={"x": 1})
                db.memories.add("t", "user", f"memory of {name}")
                db.vectors.add(name, [1.0])
                db.publish(url, origin=name)
        rows(url, "CREATE ROLE hostile LOGIN")
        origins.grant(url, "hostile", "publish", ["two"])
        yield url, url.replace("postgres@", "hostile@")
    postgres.execute("DROP ROLE hostile")


@pytest.fixture
def hostile(attacked: Any) -> Attack:
    """Attacks, which must fail for the statement itself; afterwards all is as it was."""
    url, own = attacked

    def attack(statement: str) -> None:
        before = published(url, "two")
        with psycopg.connect(own) as sql:
            for each in BEFORE:
                sql.execute(each.encode())
            with pytest.raises((psycopg.errors.IntegrityError, psycopg.errors.DataError)) as caught:
                sql.execute(statement.encode())
            assert caught.value.sqlstate not in ("23505", "42501")
            sql.rollback()
        assert published(url, "two") == before

    return attack


@pytest.mark.parametrize("what", HOSTILE)
def test_a_row_that_readers_could_not_read_is_refused(what: str, hostile: Attack) -> None:
    hostile(HOSTILE[what])


def test_what_no_constraint_can_see_is_shown_as_empty_and_logged(
    attacked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    url, own = attacked
    good = everything(url)
    assert len(good) >= 12
    for metadata in (
        "'{\"x\": ' || repeat('9', 5000) || '}'",
        "'{\"x\":' || repeat('[', 1000) || repeat(']', 1000) || '}'",
        '\'{"x": "\\ud800"}\'',
    ):
        rows(own, f"UPDATE mcpvectordb.documents SET metadata = {metadata} WHERE origin = 1")
        with caplog.at_level(logging.WARNING):
            found = everything(url)
        expected = list(good)
        expected[found.index({})] = {}
        assert found == expected
        assert "metadata that was published cannot be read" in caplog.text
        caplog.clear()
    rows(own, "UPDATE mcpvectordb.documents SET metadata = fields::text WHERE origin = 1")
    assert everything(url) == good


def test_a_memory_without_its_text_is_an_empty_one(attacked: Any) -> None:
    url, own = attacked
    with psycopg.connect(own) as sql:
        sql.execute("DELETE FROM mcpvectordb.context_chunks WHERE origin = 1")
    found = everything(url)
    assert "" in found and "memory of one" in found


def test_columns_that_are_no_json_are_left_alone(postgres_url: str) -> None:
    with closing(Server(postgres_url)) as server, server.reading() as connection:
        values = "(VALUES ('{', NULL), ('[', '{\"a\":1}')) AS v (title, metadata)"
        rows = Session(connection).execute(f"SELECT title, metadata FROM {values}").fetchall()
    assert rows == [("{", None), ("[", '{"a":1}')]


OLD_ROWS = (
    "INSERT INTO origins (name) VALUES ('one')",
    "INSERT INTO models (name, digest, dimension) VALUES ('letters', '', 32), ('x', '', -1)",
    "INSERT INTO documents VALUES (1, 0, 'id', '', 'a', 'a', '', '', 1, '', '', 'no', '{}', '/a', 1, "
    "'1', '1', '1')",
    """INSERT INTO document_chunks VALUES (1, 1, 0, 0, 0, 0, 3, 1, 1, NULL, 1, 'tea', '[7]', '', '',
    '', ' tea ')""",
    "INSERT INTO document_embeddings VALUES (1, 1, 0, '[1,2,3]'), (77, 1, 0, '[1,2,3]')",
    "INSERT INTO contexts VALUES (1, 0, 't', 'user', '', '7', '{}', '', '', '', 1, ' tea ', ' tea ', "
    "'1', '1')",
    "INSERT INTO context_chunks VALUES (1, 1, 0, 0, 0, 0, 3, 1, 1, NULL, 'tea', 'no', '', '', '')",
    "INSERT INTO stores VALUES (1, 0, 'default', 'luck'), (2, 0, 'b', 'dot')",
    """INSERT INTO vectors VALUES (1, 0, 2, 1, '', 'v', 'no', '{"x": "\\ud800"}', '1'),
    (2, 0, 2, 3, '', 'w', '{}', '{}', '1')""",
    "INSERT INTO vector_embeddings VALUES (1, 0, 2, 1, '[1]'), (2, 0, 2, 3, '[1]')",
    "INSERT INTO libraries VALUES (0, 'l', '', '', 'no', '', '')",
)


def test_bad_rows_from_before_are_mended_and_sent_again(postgres_url: str, db: Database) -> None:
    make_older(postgres_url, 4)
    with psycopg.connect(postgres_url) as sql:
        sql.execute("SET search_path = mcpvectordb, public")
        for statement in OLD_ROWS:
            sql.execute(statement.encode())
    with closing(Server(postgres_url)) as server:
        schema.migrate(server)
    with Database(postgres_url) as team:
        assert [each.metadata for each in team.documents.browse()] == [{}]
        assert [each.metadata for each in team.memories.browse()] == [{}]
        assert [(each.id, each.metadata) for each in team.vectors.browse(store="b")] == [("v", {})]
        assert [hit.item.headings for hit in team.documents.search("tea", mode="text")] == [()]
    for table in ("document_embeddings", "context_embeddings"):
        assert rows(postgres_url, f"SELECT count(*) FROM mcpvectordb.{table}") == [(0,)]
    db.documents.ingest_text("tea", source="a", metadata={"x": 1})
    db.memories.add("t", "user", "tea")
    db.publish(postgres_url, origin="one")
    assert [each["fields"] for each in published(postgres_url, "one")["documents"]] == [{"x": 1}]
    assert problems(postgres_url) == []
    assert everything(postgres_url)
