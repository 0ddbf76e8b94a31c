from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[test]'")

from mcpvectordb import Database, NewerFile, NotOurFile, ReadOnly
from mcpvectordb.postgres import origins, schema
from mcpvectordb.postgres.connection import Server
from tests.support import Letters
from tests.support_postgres import (
    TABLES,
    LocalPostgres,
    Role,
    filled,
    make_older,
    problems,
    published,
    rows,
)


@pytest.fixture
def server(postgres_url: str) -> Iterator[Server]:
    with closing(Server(postgres_url)) as opened:
        yield opened


def database_of(url: str) -> str:
    """The name of a database."""
    return url.partition("?")[0].rpartition("/")[2]


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
    database = database_of(postgres_url)
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


LIST = Path(__file__).with_name("rights.txt")

# What a role may do, from PostgreSQL's own catalogue: with the schema, and all that is in it.
RIGHTS = """
SELECT 'schema mcpvectordb', string_agg(p, ' ' ORDER BY p)
FROM unnest('{CREATE,USAGE}'::text[]) AS p
WHERE has_schema_privilege(%(role)s, 'mcpvectordb', p) HAVING count(*) > 0
UNION ALL
SELECT CASE c.relkind WHEN 'v' THEN 'view ' ELSE 'table ' END || c.relname,
    string_agg(p, ' ' ORDER BY p)
FROM pg_class c, unnest('{DELETE,INSERT,REFERENCES,SELECT,TRIGGER,TRUNCATE,UPDATE}'::text[]
    || CASE WHEN current_setting('server_version_num')::integer >= 170000
        THEN '{MAINTAIN}'::text[] END) AS p
WHERE c.relnamespace = 'mcpvectordb'::regnamespace AND c.relkind NOT IN ('S', 'i', 'I', 'c')
    AND has_table_privilege(%(role)s, c.oid, p)
GROUP BY c.relkind, c.relname
UNION ALL
SELECT 'columns of ' || c.relname || ' (' || string_agg(a.attname, ' ' ORDER BY a.attnum) || ')', p
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped,
    unnest('{INSERT,REFERENCES,SELECT,UPDATE}'::text[]) AS p
WHERE c.relnamespace = 'mcpvectordb'::regnamespace AND c.relkind NOT IN ('S', 'i', 'I', 'c')
    AND has_column_privilege(%(role)s, c.oid, a.attnum, p)
    AND NOT has_table_privilege(%(role)s, c.oid, p)
GROUP BY c.relname, p
UNION ALL
SELECT 'sequence ' || c.relname, string_agg(p, ' ' ORDER BY p)
FROM pg_class c, unnest('{SELECT,UPDATE,USAGE}'::text[]) AS p
WHERE c.relnamespace = 'mcpvectordb'::regnamespace AND c.relkind = 'S'
    AND has_sequence_privilege(%(role)s, c.oid, p) GROUP BY c.relname
UNION ALL
SELECT 'function ' || f.oid::regprocedure::text || CASE WHEN f.prosecdef THEN ' as the owner'
    ELSE '' END, 'EXECUTE'
FROM pg_proc f WHERE f.pronamespace = 'mcpvectordb'::regnamespace
    AND has_function_privilege(%(role)s, f.oid, 'EXECUTE')
ORDER BY 1, 2
"""

# All that makes up the schema.
CATALOGUE = """
SELECT 'class', c.relname::text, c.relkind::text || c.relrowsecurity || coalesce(c.reloptions::text, ''),
    pg_get_userbyid(c.relowner)::text, (SELECT string_agg(a::text, ' ' ORDER BY a::text) FROM unnest(c.relacl) AS a)
FROM pg_class c WHERE c.relnamespace = 'mcpvectordb'::regnamespace
UNION ALL SELECT 'column', c.relname::text, a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || a.attnotnull,
    pg_get_expr(d.adbin, d.adrelid), (SELECT string_agg(x::text, ' ' ORDER BY x::text) FROM unnest(a.attacl) AS x)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'mcpvectordb'::regnamespace
UNION ALL SELECT 'constraint', conrelid::regclass::text, conname::text, pg_get_constraintdef(oid), convalidated::text
FROM pg_constraint WHERE connamespace = 'mcpvectordb'::regnamespace
UNION ALL SELECT 'index', tablename::text, indexname::text, indexdef, '' FROM pg_indexes WHERE schemaname = 'mcpvectordb'
UNION ALL SELECT 'policy', tablename::text, policyname::text, cmd || roles::text, coalesce(qual, '') || coalesce(with_check, '')
FROM pg_policies WHERE schemaname = 'mcpvectordb'
UNION ALL SELECT 'trigger', tgrelid::regclass::text, tgname::text, pg_get_triggerdef(t.oid), tgenabled::text
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = 'mcpvectordb'::regnamespace AND NOT tgisinternal
UNION ALL SELECT 'function', oid::regprocedure::text, pg_get_functiondef(oid), pg_get_userbyid(proowner)::text,
    (SELECT string_agg(a::text, ' ' ORDER BY a::text) FROM unnest(proacl) AS a)
FROM pg_proc WHERE pronamespace = 'mcpvectordb'::regnamespace
UNION ALL SELECT 'view', viewname::text, definition, '', '' FROM pg_views WHERE schemaname = 'mcpvectordb'
UNION ALL SELECT 'schema', nspname::text, pg_get_userbyid(nspowner)::text,
    (SELECT string_agg(a::text, ' ' ORDER BY a::text) FROM unnest(nspacl) AS a), '' FROM pg_namespace
WHERE nspname = 'mcpvectordb'
ORDER BY 1, 2, 3, 4
"""

# What the first versions granted, beside what PUBLIC had by default.
OLD_READ = (
    "GRANT USAGE ON SCHEMA mcpvectordb TO {0}",
    "GRANT SELECT ON ALL TABLES IN SCHEMA mcpvectordb TO {0}",
)
OLD_PUBLISH = (
    *OLD_READ,
    "GRANT INSERT, DELETE, UPDATE ON mcpvectordb.documents, mcpvectordb.stores TO {0}",
    "GRANT INSERT ON mcpvectordb.models, mcpvectordb.origins TO {0}",
    "GRANT USAGE ON SEQUENCE mcpvectordb.origin_keys TO {0}",
    "GRANT EXECUTE ON FUNCTION mcpvectordb.make_graphs TO {0}",
)


def granted(url: str, who: str) -> list[str]:
    with psycopg.connect(url) as sql:
        return [f"{what}: {may}" for what, may in sql.execute(RIGHTS, {"role": who})]


def test_public_readers_and_publishers_may_do_what_the_list_says_and_nothing_else(
    two: str, role: Role
) -> None:
    for name in ("nobody", "reader", "publisher", "publisher_of_anything"):
        role(name)
    origins.grant(two, "reader", "read", ["one"])
    origins.grant(two, "publisher", "publish", ["one"])
    origins.grant(two, "publisher_of_anything", "publish")
    nobody, reader, publisher, anything = (
        granted(two, name) for name in ("nobody", "reader", "publisher", "publisher_of_anything")
    )
    found = [
        "# What roles may do with the schema, as PostgreSQL says: test_schema.py compares it.",
        "# PUBLIC",
        *nobody,
        "# a reader",
        *reader,
        "# a publisher, beside what a reader may",
        *(each for each in publisher if each not in reader),
        "# a publisher of anything, beside that",
        *(each for each in anything if each not in publisher),
    ]
    assert set(reader) - set(publisher) <= {each for each in reader if each.startswith("table")}
    listed = LIST.read_text("utf-8")
    if rows(two, "SELECT current_setting('server_version_num')::integer < 170000") == [(True,)]:
        listed = re.sub(r".*: MAINTAIN SELECT\n", "", listed).replace(" MAINTAIN", "")
    assert found == listed.splitlines()


def test_a_database_from_before_becomes_the_same_as_a_new_one(
    postgres: Any, postgres_url: str, role: Role
) -> None:
    role("reader")
    role("publisher")
    with postgres.database() as older, closing(Server(postgres_url)) as new:
        schema.migrate(new)
        make_older(older, 4)
        for url in (postgres_url, older):
            rows(url, "INSERT INTO mcpvectordb.origins (name) VALUES ('one')")
        origins.grant(postgres_url, "reader", "read", ["one"])
        origins.grant(postgres_url, "publisher", "publish", ["one"])
        for who, statements, publishes in (
            ("reader", OLD_READ, False),
            ("publisher", OLD_PUBLISH, True),
        ):
            for statement in statements:
                rows(older, statement.format(who))
            rows(older, "INSERT INTO mcpvectordb.grants VALUES (%s, 0, %s)", who, publishes)
        with closing(Server(older)) as server:
            schema.migrate(server)
        assert catalogue(older) == catalogue(postgres_url)
        assert granted(older, "reader") == granted(postgres_url, "reader")


def catalogue(url: str) -> list[tuple[str, ...]]:
    owner = f"mcpvectordb_owner_{database_of(url)}"
    return [
        tuple(str(each).replace(owner, "OWNER") for each in row) for row in rows(url, CATALOGUE)
    ]


def test_functions_of_the_owner_have_a_fixed_search_path_and_paste_nothing_into_sql(
    two: str,
) -> None:
    functions = rows(
        two,
        "SELECT proname, prosecdef, proconfig, prosrc FROM pg_proc "
        "WHERE pronamespace = 'mcpvectordb'::regnamespace",
    )
    of_owner = {name for name, definer, *_ in functions if definer}
    assert of_owner == {
        "add_totals",
        "add_fields",
        "add_postings",
        "remove_postings",
        "count_added",
        "count_removed",
        "model_key",
        "make_graphs",
    }
    for name, definer, settings, source in functions:
        if definer:
            assert "search_path=pg_catalog, pg_temp" in settings, name
        assert re.search(r"%(\d+\$)?s", source) is None, name
    views = rows(
        two,
        "SELECT relname FROM pg_class WHERE relnamespace = 'mcpvectordb'::regnamespace "
        "AND relkind = 'v' AND NOT coalesce('security_invoker=true' = ANY (reloptions), false)",
    )
    assert views == []


# A reader's way to the owner's rights: a temporary table, and on it a trigger of the owner's.
TEMPORARY = (
    "CREATE TEMP TABLE loot (term text, origin int, item bigint, weight int, tokens int)",
    "CREATE TEMP TABLE loot_terms (term text, origin int, items int, UNIQUE (term, origin))",
    "CREATE TEMP TABLE bait (id bigint, origin int, tokens int, words text)",
    "GRANT ALL ON loot, loot_terms, bait TO PUBLIC",
)
POSTINGS = (
    "CREATE TRIGGER trap AFTER INSERT ON bait REFERENCING NEW TABLE AS added FOR EACH STATEMENT "
    "EXECUTE FUNCTION mcpvectordb.add_postings('document', 'loot', 'loot_terms', '{}', 'untitled')"
)
READ_OTHERS = "(SELECT string_agg(tile, '''') FROM mcpvectordb.document_chunks)"
READ_FILE = "replace(pg_read_file(''PG_VERSION''), E''\\n'', '''')"
BECOME_SUPERUSER = (
    "words, '' '')) AS term FROM added) AS each GROUP BY id, origin, tokens, term "
    "RETURNING term, origin) SELECT 1 FROM made; ALTER ROLE reader SUPERUSER; "
    "WITH made AS (INSERT INTO loot (term, origin, item, weight, tokens) "
    "SELECT term, origin, id, count(*), tokens FROM (SELECT id, origin, tokens, "
    "unnest(string_to_array(words"
)


@pytest.mark.parametrize(
    "argument",
    [READ_OTHERS, READ_FILE, BECOME_SUPERUSER],
    ids=["text of others", "a file of the server", "superuser"],
)
def test_nobody_can_put_a_trigger_of_the_owner_on_a_table_of_his_own(
    two: str, role: Role, argument: str
) -> None:
    url = role("reader")
    for right in ("read", "publish"):
        origins.grant(two, "reader", right, ["two"])  # type: ignore[arg-type]
        with psycopg.connect(url, autocommit=True) as sql:
            for statement in TEMPORARY:
                sql.execute(statement)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                sql.execute(POSTINGS.format(argument).encode())
                sql.execute("INSERT INTO bait VALUES (1, 1, 1, ' x ')")
            assert sql.execute("SELECT term FROM loot").fetchall() == []
        assert rows(two, "SELECT rolsuper FROM pg_roles WHERE rolname = 'reader'") == [(False,)]


def test_nobody_can_delete_rows_of_others_by_a_trigger_of_the_owner(two: str, role: Role) -> None:
    url = role("reader")
    origins.grant(two, "reader", "read", ["two"])
    before = published(two, "one")
    functions = rows(
        two,
        "SELECT proname FROM pg_proc WHERE pronamespace = 'mcpvectordb'::regnamespace "
        "AND prorettype = 'trigger'::regtype",
    )
    assert len(functions) >= 5
    with psycopg.connect(url, autocommit=True) as sql:
        sql.execute(
            "CREATE TEMP TABLE bait (id bigint, key int, origin int, tokens int, words text)"
        )
        sql.execute("INSERT INTO bait SELECT n, 0, 0, 1, ' tea ' FROM generate_series(1, 9) AS n")
        for name in ["remove_embeddings", *(name for (name,) in functions)]:
            with pytest.raises(
                (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedFunction)
            ):
                sql.execute(
                    "CREATE TRIGGER trap AFTER DELETE ON bait REFERENCING OLD TABLE AS removed "
                    f"FOR EACH STATEMENT EXECUTE FUNCTION mcpvectordb.{name}("
                    + (
                        "'document_embeddings')"
                        if name == "remove_embeddings"
                        else "'document', 'document_words', 'document_terms', 'words')"
                    )
                )
                sql.execute("DELETE FROM bait")
    assert published(two, "one") == before


def test_functions_of_the_owner_use_nothing_that_others_put_into_the_search_path(
    two: str, role: Role, tmp_path: Path
) -> None:
    """In databases that are older than PostgreSQL 15 everybody may create in `public`."""
    url = role("publisher")
    origins.grant(two, "publisher", "publish", ["two"])
    rows(two, "CREATE TABLE public.victims (name text)")
    rows(two, "GRANT INSERT ON public.victims TO PUBLIC")
    rows(two, "GRANT CREATE ON SCHEMA public TO PUBLIC")
    with psycopg.connect(url, autocommit=True) as sql:
        for arguments, body in (
            ("format(a text, b text, c text)", "pg_catalog.format(a, VARIADIC ARRAY[b, c])"),
            ("format(a text, b text)", "pg_catalog.format(a, VARIADIC ARRAY[b])"),
            ("format(a text, b integer)", "pg_catalog.format(a, VARIADIC ARRAY[b::text])"),
            (
                "format(a text, b text, c text, d text)",
                "pg_catalog.format(a, VARIADIC ARRAY[b, c, d])",
            ),
        ):
            sql.execute(
                f"CREATE FUNCTION public.{arguments} RETURNS text LANGUAGE plpgsql AS $$ BEGIN "
                f"INSERT INTO public.victims VALUES (current_user); RETURN {body}; END $$".encode()
            )
    with Database(tmp_path / "two.db", embedder=Letters()) as db:
        db.documents.ingest_text("more", source="b")
        db.documents.delete(next(each.id for each in db.documents.browse() if each.source == "a"))
        db.publish(url, origin="two")
    with psycopg.connect(url, autocommit=True) as sql:
        sql.execute("SELECT mcpvectordb.make_graphs(0)")
    assert set(rows(two, "SELECT name FROM public.victims")) <= {("publisher",)}


def test_a_function_in_a_condition_sees_no_row_that_its_role_may_not(two: str, role: Role) -> None:
    url = role("reader")
    origins.grant(two, "reader", "read", ["two"])
    seen: list[str] = []
    with psycopg.connect(url, autocommit=True) as sql:
        sql.add_notice_handler(lambda notice: seen.append(str(notice.message_primary)))
        sql.execute(
            "CREATE FUNCTION pg_temp.leak(value text) RETURNS boolean LANGUAGE plpgsql "
            "COST 0.0000001 AS $$ BEGIN RAISE NOTICE '%', value; RETURN true; END $$"
        )
        for table, column in (
            ("document_chunks", "tile"),
            ("published_documents", "id"),
            ("origins", "name"),
            ("grants", "role::text"),
            ("models", "name"),
            ("totals", "origin::text"),
        ):
            sql.execute(f"SELECT FROM mcpvectordb.{table} WHERE pg_temp.leak({column})".encode())
    assert seen and not any("one" in each or each == "0" for each in seen)


def test_a_role_sees_its_own_grants_and_the_models_of_its_origins(
    two: str, role: Role, tmp_path: Path
) -> None:
    class Other(Letters):
        name = "other"

    with Database(tmp_path / "three.db", embedder=Other()) as db:
        filled(db, "three")
        db.publish(two, origin="three")
    reader, publisher = role("reader"), role("publisher")
    role("alice")
    origins.grant(two, "alice", "read")
    origins.grant(two, "reader", "read", ["one"])
    origins.grant(two, "publisher", "publish", ["one"])
    for who, url in (("reader", reader), ("publisher", publisher)):
        assert rows(url, "SELECT role FROM mcpvectordb.grants") == [(who,)]
        assert {name for (name,) in rows(url, "SELECT name FROM mcpvectordb.models")} == {
            Letters.name
        }
        for question in (
            "SELECT mcpvectordb.granted_origins('alice', false)",
            "SELECT mcpvectordb.publishes_anything('alice')",
        ):
            with pytest.raises(psycopg.errors.UndefinedFunction):
                rows(url, question)


def test_rights_that_defaults_of_the_database_give_are_taken_back(
    postgres_url: str, role: Role
) -> None:
    for kind in ("SELECT ON TABLES", "USAGE ON SEQUENCES", "EXECUTE ON FUNCTIONS"):
        for who in ("PUBLIC", "analyst"):
            if who == "analyst" and kind.startswith("SELECT"):
                role("analyst")
            rows(postgres_url, f"ALTER DEFAULT PRIVILEGES GRANT {kind} TO {who}")
    with closing(Server(postgres_url)) as server:
        schema.migrate(server)
    assert granted(postgres_url, "analyst") == []
    assert granted(postgres_url, "public") == []


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
    return schema.role_name(database_of(postgres_url))


@pytest.fixture
def founder(postgres_url: str, role: Role) -> Role:
    """Makes a role that may make the schema; the URL by which it logs in."""

    def make(name: str) -> str:
        url = role(name)
        rows(postgres_url, "CREATE EXTENSION vector")
        rows(postgres_url, f"GRANT CREATE ON DATABASE {database_of(postgres_url)} TO {name}")
        return url

    return make


@pytest.mark.long
def test_whoever_publishes_first_a_role_that_nobody_can_log_in_as_owns_everything(
    two: str, name: str
) -> None:
    assert rows(two, OWNERS) == [(name, False)]
    with Database(two) as team:
        assert team.stats().notes == ()


@pytest.mark.long
def test_a_database_from_before_gets_such_an_owner(
    postgres_url: str, name: str, role: Role, founder: Role, db: Database
) -> None:
    first = founder("first")
    make_older(first, 4)
    assert rows(postgres_url, OWNERS) == [("first", True)]
    filled(db, "one")
    db.publish(postgres_url, origin="one")
    assert rows(postgres_url, OWNERS) == [(name, False)]
    # The owner before can do what it could.
    db.documents.ingest_text("more", source="more")
    assert db.publish(first, origin="one").documents.added == 1
    role("reader")
    origins.grant(first, "reader", "read")
    assert problems(postgres_url) == []


@pytest.mark.long
def test_who_may_make_roles_hands_the_schema_over_and_administers_it(
    postgres_url: str, name: str, role: Role, founder: Role, db: Database
) -> None:
    maker = founder("maker")
    rows(postgres_url, "ALTER ROLE maker CREATEROLE")
    filled(db, "one")
    assert db.publish(maker, origin="one").notice == ""
    assert rows(postgres_url, OWNERS) == [(name, False)]
    db.documents.ingest_text("more", source="more")
    assert db.publish(maker, origin="one").documents.added == 1
    role("reader")
    origins.grant(maker, "reader", "read")
    origins.revoke(maker, "reader")


@pytest.mark.long
def test_who_may_make_no_roles_stays_owner_and_is_told_until_an_administrator_helps(
    postgres_url: str, name: str, founder: Role, db: Database
) -> None:
    plain = founder("plain")
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


def test_the_name_of_the_owner_fits_whatever_the_database_is_called() -> None:
    assert schema.role_name("team") == "mcpvectordb_owner_team"
    long = schema.role_name("d" * 63)
    assert len(long) <= 63 and long != schema.role_name("d" * 62 + "e")
