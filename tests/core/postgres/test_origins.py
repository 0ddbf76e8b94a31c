from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[test]'")

from mcpvectordb import Database, InvalidInput, NotFound, ReadOnly
from mcpvectordb.postgres import origins, schema
from mcpvectordb.postgres.connection import Server
from tests.support import Letters
from tests.support_postgres import TABLES, Role, filled, published, rows

HOSTILE = 'role"; DROP SCHEMA mcpvectordb CASCADE; --'


def visible(url: str) -> set[int]:
    """The origins of all rows that a role sees."""
    return {
        origin
        for table in TABLES
        for (origin,) in rows(url, f"SELECT DISTINCT origin FROM mcpvectordb.{table}")
    }


def test_a_role_without_a_grant_sees_nothing(two: str, role: Role) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        visible(role("nobody"))


def test_a_reader_sees_all_origins_or_those_that_were_granted(two: str, role: Role) -> None:
    everything, some = role("everything"), role("some")
    origins.grant(two, "everything", "read")
    origins.grant(two, "some", "read", ["two"])
    assert visible(everything) == {0, 1} and visible(some) == {1}
    assert rows(some, "SELECT name FROM mcpvectordb.origins") == [("two",)]
    assert rows(some, "SELECT sum(items) FROM mcpvectordb.document_terms WHERE term = 'tea'") == [
        (1,)
    ]
    for table in (*TABLES, "origins", "models", "grants"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            rows(everything, f"DELETE FROM mcpvectordb.{table}")


def test_who_may_publish_anything_makes_origins_that_those_see_who_may_see_all(
    two: str, role: Role, db: Database
) -> None:
    publisher, team, some = role("anything"), role("team"), role("some")
    member = role("member")
    origins.grant(two, "anything", "publish")
    origins.grant(two, "team", "read")
    origins.grant(two, "some", "read", ["one"])
    rows(two, "GRANT team TO member")  # rights come with membership
    filled(db, "three")
    assert db.publish(publisher, origin="three").changes == 3
    for url in (publisher, team, member):
        assert visible(url) == {0, 1, 2}
    assert visible(some) == {0}


def test_a_publisher_publishes_its_origins_and_no_others(
    two: str, role: Role, tmp_path: Path, db: Database
) -> None:
    url = role("publisher")
    origins.grant(two, "publisher", "publish", ["two", "new"])
    with Database(tmp_path / "two.db", embedder=Letters()) as own:
        own.documents.ingest_text("more tea", source="b")
        own.documents.delete(next(each.id for each in own.documents.browse() if each.source == "a"))
        report = own.publish(url, origin="two")
        assert (report.documents.added, report.documents.deleted) == (1, 1)
        before = published(two, "two")
    filled(db, "new")
    assert db.publish(url, origin="new").changes == 3
    assert db.publish(url, origin="new").changes == 0
    with Database(tmp_path / "one.db", embedder=Letters()) as other:
        other.documents.ingest_text("intruder", source="c")
        kept = published(two, "one")
        with pytest.raises(ReadOnly, match="no right"):
            other.publish(url, origin="one")
        with pytest.raises(ReadOnly, match="no right"):
            other.publish(url, origin="another")
    assert (published(two, "one"), published(two, "two")) == (kept, before)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        rows(url, "INSERT INTO mcpvectordb.document_words VALUES (1, 1, 1, 1, 'x')")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        rows(url, "INSERT INTO mcpvectordb.library_notes VALUES (0, 'x', 'x', 'x')")
    assert rows(url, "DELETE FROM mcpvectordb.documents WHERE origin = 0 RETURNING 1") == []


def test_a_publisher_cannot_put_anything_into_items_of_others(two: str, role: Role) -> None:
    url = role("publisher")
    origins.grant(two, "publisher", "publish", ["two"])
    ((theirs, document),) = rows(
        two, "SELECT id, owner FROM mcpvectordb.document_chunks WHERE origin = 0"
    )
    columns = (
        'origin, position, tile_start, start, "end", first_line, last_line, page, tokens, tile, '
        "headings, header, footer, hash, words"
    )
    copied = f"SELECT %s, %s, {columns} FROM mcpvectordb.document_chunks WHERE origin = 1"
    insert = f"INSERT INTO mcpvectordb.document_chunks (id, owner, {columns}) {copied}"
    for id, owner in ((theirs + 1, document), ((1 << 40) + 77, document), (theirs, (1 << 40) + 1)):
        with pytest.raises(psycopg.errors.CheckViolation):
            rows(url, insert, id, owner)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        rows(url, "UPDATE mcpvectordb.document_chunks SET words = ' other '")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        rows(url, "UPDATE mcpvectordb.contexts SET words = ' other '")


def test_a_grant_replaces_the_one_before_and_can_be_taken_back(
    two: str, role: Role, db: Database
) -> None:
    url = role("changing")
    origins.grant(two, "changing", "publish")
    origins.grant(two, "changing", "read", ["one"])
    assert visible(url) == {0}
    filled(db, "x")
    with pytest.raises(ReadOnly):
        db.publish(url, origin="two")
    origins.revoke(two, "changing")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        visible(url)


def test_names_of_roles_and_origins_are_no_sql(two: str, role: Role) -> None:
    url = role(HOSTILE)
    origins.grant(two, HOSTILE, "read", [HOSTILE, "one"])
    assert visible(url) == {0, 2}
    assert (HOSTILE,) in rows(two, "SELECT name FROM mcpvectordb.origins")


def test_only_the_owner_grants_and_only_to_roles_that_exist(two: str, role: Role) -> None:
    url = role("reader")
    origins.grant(two, "reader", "read")
    with pytest.raises(ReadOnly, match="no right"):
        origins.grant(url, "reader", "publish")
    with pytest.raises(NotFound, match=r"no role 'ghost'.*CREATE ROLE"):
        origins.grant(two, "ghost", "read")
    with pytest.raises(InvalidInput, match="read or publish"):
        origins.grant(two, "reader", "own")  # type: ignore[arg-type]
    for wrong in ([], "one"):
        with pytest.raises(InvalidInput, match="list of origins"):
            origins.grant(two, "reader", "read", wrong)
    with pytest.raises(InvalidInput, match="NUL"):
        origins.grant(two, "a\0b", "read")


def test_no_table_is_without_row_level_security(postgres_url: str) -> None:
    with closing(Server(postgres_url)) as server:
        schema.migrate(server)
    open_to_all = rows(
        postgres_url,
        "SELECT relname FROM pg_class WHERE relnamespace = 'mcpvectordb'::regnamespace "
        "AND relkind = 'r' AND NOT relrowsecurity",
    )
    assert {name for (name,) in open_to_all} == {"schema_version"}
