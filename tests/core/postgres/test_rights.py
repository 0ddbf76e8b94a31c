from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[test]'")

from mcpvectordb import Database
from mcpvectordb.postgres import access, schema
from mcpvectordb.postgres.connection import Server
from tests.support import Letters
from tests.support_postgres import Role, filled, make_older, published, rows

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
    access.grant(two, "reader", "read", ["one"])
    access.grant(two, "publisher", "publish", ["one"])
    access.grant(two, "publisher_of_anything", "publish")
    nobody, reader, publisher, anything = (
        granted(two, name) for name in ("nobody", "reader", "publisher", "publisher_of_anything")
    )
    found = [
        "# What roles may do with the schema, as PostgreSQL says: test_rights.py compares it.",
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
        access.grant(postgres_url, "reader", "read", ["one"])
        access.grant(postgres_url, "publisher", "publish", ["one"])
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
    database = url.partition("?")[0].rpartition("/")[2]
    return [
        tuple(str(each).replace(f"mcpvectordb_owner_{database}", "OWNER") for each in row)
        for row in rows(url, CATALOGUE)
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
        access.grant(two, "reader", right, ["two"])  # type: ignore[arg-type]
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
    access.grant(two, "reader", "read", ["two"])
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
    access.grant(two, "publisher", "publish", ["two"])
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
    access.grant(two, "reader", "read", ["two"])
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
    access.grant(two, "alice", "read")
    access.grant(two, "reader", "read", ["one"])
    access.grant(two, "publisher", "publish", ["one"])
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


def test_who_was_granted_something_before_reads_and_publishes_after_the_migration(
    postgres_url: str, role: Role, tmp_path: Path
) -> None:
    make_older(postgres_url, 4)
    reader, publisher = role("reader"), role("publisher")
    rows(postgres_url, "INSERT INTO mcpvectordb.origins (name) VALUES ('one')")
    for who, statements in (("reader", OLD_READ), ("publisher", OLD_PUBLISH)):
        for statement in statements:
            rows(postgres_url, statement.format(who))
        rows(
            postgres_url,
            "INSERT INTO mcpvectordb.grants VALUES (%s, 0, %s)",
            who,
            who == "publisher",
        )
    with closing(Server(postgres_url)) as server:
        schema.migrate(server)
    with Database(tmp_path / "one.db", embedder=Letters()) as db:
        filled(db, "one")
        assert db.publish(publisher, origin="one").changes == 3
    with Database(reader, embedder=Letters()) as team:
        [hit] = team.documents.search("tea", where={"origin": "one"})
        assert hit.item.document.source == "a"
