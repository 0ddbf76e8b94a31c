from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.long

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[test]'")

from mcpvectordb import Database
from mcpvectordb.postgres import access, owner
from tests.support import Letters
from tests.support_postgres import Role, filled, make_older, problems, rows

OWNERS = """
SELECT DISTINCT r.rolname, r.rolcanlogin OR r.rolsuper OR r.rolcreaterole OR r.rolbypassrls FROM (
    SELECT nspowner FROM pg_namespace WHERE nspname = 'mcpvectordb'
    UNION ALL SELECT relowner FROM pg_class WHERE relnamespace = 'mcpvectordb'::regnamespace
    UNION ALL SELECT proowner FROM pg_proc WHERE pronamespace = 'mcpvectordb'::regnamespace
) AS owned (owner) JOIN pg_roles r ON r.oid = owned.owner
"""


@pytest.fixture
def name(postgres_url: str) -> str:
    """The name of the role that is to own the schema."""
    return owner.role_name(postgres_url.partition("?")[0].rpartition("/")[2])


def test_whoever_publishes_first_a_role_that_nobody_can_log_in_as_owns_everything(
    two: str, name: str
) -> None:
    assert rows(two, OWNERS) == [(name, False)]
    with Database(two) as team:
        assert team.stats().notes == ()


def test_a_database_from_before_gets_such_an_owner(
    postgres_url: str, name: str, role: Role, db: Database
) -> None:
    first = role("first")
    rows(postgres_url, "CREATE EXTENSION vector")
    rows(
        postgres_url,
        "GRANT CREATE ON DATABASE " + first.partition("?")[0].rpartition("/")[2] + " TO first",
    )
    make_older(first, 4)
    assert rows(postgres_url, OWNERS) == [("first", True)]
    filled(db, "one")
    db.publish(postgres_url, origin="one")
    assert rows(postgres_url, OWNERS) == [(name, False)]
    # The owner before can do what it could.
    db.documents.ingest_text("more", source="more")
    assert db.publish(first, origin="one").documents.added == 1
    role("reader")
    access.grant(first, "reader", "read")
    assert problems(postgres_url) == []


def test_who_may_make_roles_hands_the_schema_over_and_administers_it(
    postgres_url: str, name: str, role: Role, db: Database
) -> None:
    maker = role("maker")
    database = postgres_url.partition("?")[0].rpartition("/")[2]
    rows(postgres_url, "CREATE EXTENSION vector")
    rows(postgres_url, "ALTER ROLE maker CREATEROLE")
    rows(postgres_url, f"GRANT CREATE ON DATABASE {database} TO maker")
    filled(db, "one")
    assert db.publish(maker, origin="one").notice == ""
    assert rows(postgres_url, OWNERS) == [(name, False)]
    db.documents.ingest_text("more", source="more")
    assert db.publish(maker, origin="one").documents.added == 1
    role("reader")
    access.grant(maker, "reader", "read")
    access.revoke(maker, "reader")


def test_who_may_make_no_roles_stays_owner_and_is_told_until_an_administrator_helps(
    postgres_url: str, name: str, role: Role, db: Database
) -> None:
    plain = role("plain")
    database = postgres_url.partition("?")[0].rpartition("/")[2]
    rows(postgres_url, "CREATE EXTENSION vector")
    rows(postgres_url, f"GRANT CREATE ON DATABASE {database} TO plain")
    filled(db, "one")
    told = db.publish(plain, origin="one").notice
    assert "'plain', which can log in, owns the schema" in told
    assert f'CREATE ROLE "{name}"; GRANT "{name}" TO "plain"' in told
    with Database(plain) as team:
        assert team.stats().notes == (told,)
    assert rows(postgres_url, OWNERS) == [("plain", True)]

    rows(postgres_url, f'CREATE ROLE "{name}" LOGIN')  # not what was asked for
    assert db.publish(plain, origin="one").notice == told
    rows(postgres_url, f'ALTER ROLE "{name}" NOLOGIN')
    rows(postgres_url, f'GRANT "{name}" TO plain')
    assert db.publish(plain, origin="one").notice == ""
    assert rows(postgres_url, OWNERS) == [(name, False)]
    db.documents.ingest_text("more", source="more")
    assert db.publish(plain, origin="one").documents.added == 1


def test_publishers_with_roles_of_their_own_publish_their_own_origins(
    two: str, role: Role, tmp_path: Path
) -> None:
    for number, origin in enumerate(("one", "two")):
        url = role(f"publisher_{origin}")
        access.grant(two, f"publisher_{origin}", "publish", [origin])
        with Database(tmp_path / f"{origin}.db", embedder=Letters()) as db:
            db.documents.ingest_text("more", source="more")
            db.documents.delete(db.documents.browse()[-1].id)
            report = db.publish(url, origin=origin)
            assert report.documents.changes > 0
            assert db.publish(url, origin=origin).changes == 0
        assert {key for (key,) in rows(url, "SELECT key FROM mcpvectordb.origins")} == {number}
    assert problems(two) == []


def test_the_name_of_the_owner_fits_whatever_the_database_is_called() -> None:
    assert owner.role_name("team") == "mcpvectordb_owner_team"
    long = owner.role_name("d" * 63)
    assert len(long) <= 63 and long != owner.role_name("d" * 62 + "e")
