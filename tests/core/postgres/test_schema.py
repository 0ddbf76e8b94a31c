from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[test]'")

from mcpvectordb import Database, NewerFile, NotOurFile, ReadOnly
from mcpvectordb.postgres import schema
from mcpvectordb.postgres.connection import Server
from tests.support_postgres import TABLES, LocalPostgres, make_older, rows


@pytest.fixture
def server(postgres_url: str) -> Iterator[Server]:
    with closing(Server(postgres_url)) as opened:
        yield opened


def test_the_schema_is_made_once_and_says_its_version(server: Server, postgres_url: str) -> None:
    with pytest.raises(NotOurFile, match="nothing was published"):
        schema.check(server)
    schema.migrate(server)
    schema.migrate(server)
    schema.check(server)
    assert rows(postgres_url, "SELECT version FROM mcpvectordb.schema_version") == [
        (schema.VERSION,)
    ]
    made = {
        name
        for (name,) in rows(
            postgres_url, "SELECT tablename FROM pg_tables WHERE schemaname = 'mcpvectordb'"
        )
    }
    assert made == {*TABLES, "origins", "models", "grants", "schema_version"}


def test_an_older_schema_is_migrated_and_until_then_not_read(
    server: Server, postgres_url: str
) -> None:
    make_older(postgres_url, 2)
    with pytest.raises(NotOurFile, match="is of version 2, this mcpvectordb needs"):
        schema.check(server)
    schema.migrate(server)
    schema.check(server)


def test_a_newer_schema_is_refused_and_left_alone(
    server: Server, postgres_url: str, db: Database
) -> None:
    schema.migrate(server)
    rows(postgres_url, "UPDATE mcpvectordb.schema_version SET version = 99")
    for attempt in (
        lambda: schema.check(server),
        lambda: schema.migrate(server),
        lambda: db.publish(postgres_url),
    ):
        with pytest.raises(NewerFile, match="version 99, written by a newer"):
            attempt()
    assert rows(postgres_url, "SELECT count(*) FROM mcpvectordb.origins") == [(0,)]


def test_several_publishers_may_make_the_schema_at_once(postgres_url: str) -> None:
    failures = []

    def make() -> None:
        try:
            with closing(Server(postgres_url)) as own:
                schema.migrate(own)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=make) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert rows(postgres_url, "SELECT count(*) FROM mcpvectordb.schema_version") == [(1,)]


def test_a_migration_that_fails_leaves_nothing(
    server: Server, postgres_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:  # type: ignore[no-untyped-def]
    broken = tmp_path / "004_broken.sql"
    broken.write_text("CREATE TABLE half (n int); SELECT 1 / 0;")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, broken))
    with pytest.raises(Exception, match="division by zero"):
        schema.migrate(server)
    assert rows(
        postgres_url, "SELECT count(*) FROM pg_namespace WHERE nspname = 'mcpvectordb'"
    ) == [(0,)]


def test_a_role_without_rights_is_told_what_an_administrator_must_do(
    postgres: LocalPostgres, postgres_url: str
) -> None:
    database = postgres_url.partition("?")[0].rpartition("/")[2]
    rows(postgres_url, "CREATE ROLE plain LOGIN")
    try:
        with closing(Server(postgres.url(database, "plain"))) as server:
            with pytest.raises(ReadOnly, match="CREATE EXTENSION vector"):
                schema.migrate(server)
            rows(postgres_url, "CREATE EXTENSION vector")
            with pytest.raises(ReadOnly, match="no right"):
                schema.migrate(server)
            rows(postgres_url, f"GRANT CREATE ON DATABASE {database} TO plain")
            schema.migrate(server)
            schema.check(server)
    finally:
        rows(postgres_url, "DROP OWNED BY plain CASCADE")
        rows(postgres_url, "DROP ROLE plain")
