from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from array import array
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[test]'")

from psycopg.conninfo import conninfo_to_dict

from mcpvectordb import Busy, Closed, InvalidInput, NotOurFile, ReadOnly, ReadTimeout, Unreachable
from mcpvectordb.postgres.connection import (
    Server,
    Session,
    bound_vector,
    from_text,
    masked,
    numbered,
    ours,
    to_json,
    to_text,
)
from mcpvectordb.storage import deadline
from tests.support import ROOT
from tests.support_postgres import LocalPostgres, rows


@pytest.fixture
def server(postgres_url: str) -> Iterator[Server]:
    with closing(Server(postgres_url)) as opened:
        yield opened


@pytest.mark.parametrize(
    "url", ["postgresql://me:secret@127.0.0.1:9/db", "postgresql://127.0.0.1:9/db?password=secret"]
)
def test_a_server_that_is_not_there_is_named_without_the_password(url: str) -> None:
    with (
        pytest.raises(Unreachable, match=r"127\.0\.0\.1:9/db cannot be reached") as caught,
        Server(url).reading(),
    ):
        pass
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["postgresql://me:secret@h:x/db", "postgresql://h/db?nonsense=secret"]
)
def test_a_url_that_cannot_be_read_is_not_repeated(url: str) -> None:
    with pytest.raises((InvalidInput, Unreachable)) as caught, Server(url).reading():
        pass
    assert "secret" not in str(caught.value)


SPECIAL = "/@:?#%&=+,;[]$'\" \\"
SCHEMES = (
    "postgresql",
    "postgres",
    "POSTGRESQL",
    "Postgres",
    "postgresql+psycopg",
    "POSTGRES+Psycopg2",
)
passwords = st.lists(
    st.sampled_from(["zq", "Zq7", "", *SPECIAL, "%2F", "%", "%40"]), max_size=8
).map(lambda parts: "zq" + "".join(parts) + "zq")


@given(
    scheme=st.sampled_from(SCHEMES),
    password=passwords,
    user=st.sampled_from(["me", "", "me%40corp"]),
    host=st.sampled_from(["h", "127.0.0.1:9", "[::1]:5432", "a,b:1", ""]),
    rest=st.sampled_from(["", "/", "/db", "/db?sslmode=disable", "?dbname=db"]),
)
@example("postgresql", "zq/zq", "me", "h", "/db")
@example("postgresql", "12/zq", "me", "h:1", "/db")
@example("POSTGRESQL", "zq", "me", "h", "/db")
@example("postgresql+psycopg", "zq@zq", "me", "h", "/db")
def test_no_part_of_a_password_is_in_the_name_of_a_database_or_in_an_error(
    scheme: str, password: str, user: str, host: str, rest: str
) -> None:
    urls = [
        f"{scheme}://{user}:{password}@{host}{rest}",
        f"{scheme}://{user}:{quote(password, safe='')}@{host}{rest}",
        f"{scheme}://{user}@{host}/db?password={password}",
        f"{scheme}:///db?user=me&sslpassword={quote(password, safe='')}",
        "host=h dbname=db password='" + password.replace("\\", "\\\\").replace("'", "\\'") + "'",
        f"host=h dbname=db password={password}",
    ]
    for url in urls:
        try:
            server = Server(url)
        except InvalidInput as error:
            assert "zq" not in str(error).lower(), url
            continue
        assert "zq" not in server.name.lower(), url
        repeated = psycopg.OperationalError(f"cannot connect by {url}: {password} is wrong")
        read = conninfo_to_dict(server._url)
        if password in (read.get("password"), read.get("sslpassword")):
            for text in (
                masked(f"no {password} and no {quote(password, safe='')}", server._secrets),
                str(ours(repeated, server.name, server._secrets)).replace(url, ""),
            ):
                assert password not in text, url


def test_passwords_that_are_read_right_still_work() -> None:
    for url, password in (
        ("POSTGRESQL://me:a%2Fb@h:5432/db", "a/b"),
        ("postgresql+psycopg://me:a:b@h/db", "a:b"),
        ("postgresql://me:a?b#c@h/db", "a?b#c"),
        ("postgres:///db?user=me&password=a@b", "a@b"),
    ):
        server = Server(url)
        assert server._secrets == (password,) and server.name.endswith("/db")
    for url in ("postgresql://[::1]:5432/db", "postgresql://a:1,b:2/db", "postgresql:///db"):
        Server(url)


@pytest.mark.parametrize(
    "url", ["postgresql://me:a/b@h/db", "postgresql://me:a@b@h/db", "postgresql://me:a/db"]
)
def test_a_password_that_must_be_escaped_says_so(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"special characters of its parts as %40 \(@\), %2F"):
        Server(url)


def test_a_wrong_password_is_said_without_repeating_it() -> None:
    with refusing() as port:
        server = Server(f"postgresql://me:secret@127.0.0.1:{port}/db")
        with (
            pytest.raises(Unreachable, match="refused the login: check the user") as caught,
            server.reading(),
        ):
            pass
    assert "secret" not in str(caught.value)


@contextmanager
def refusing() -> Iterator[int]:
    """The port of a server that speaks PostgreSQL's protocol and refuses every password."""
    said = b'SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user "me" with secret\0\0'

    def answer() -> None:
        for _ in range(2):  # libpq may ask for encryption first
            try:
                client, _ = listening.accept()
            except OSError:  # it did not, and the test is over
                return
            with client:
                while head := client.recv(1024):
                    if head[4:8] in (b"\x04\xd2\x16\x2f", b"\x04\xd2\x16\x30"):
                        client.sendall(b"N")
                        continue
                    client.sendall(b"E" + (len(said) + 4).to_bytes(4, "big") + said)
                    break

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def test_a_database_that_does_not_exist_is_said(postgres: LocalPostgres) -> None:
    with (
        pytest.raises(Unreachable, match="does not exist"),
        Server(postgres.url("nothing_here")).reading(),
    ):
        pass


def test_a_database_in_another_encoding_is_refused(postgres: LocalPostgres) -> None:
    postgres.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(NotOurFile, match=r"LATIN1.*UTF8"), Server(postgres.url("latin")).reading():
        pass
    postgres.execute("DROP DATABASE latin")


def test_a_backend_that_was_ended_is_an_error_and_the_next_call_works(
    server: Server, postgres_url: str
) -> None:
    with server.outside() as sql:
        pid = sql.info.backend_pid
    rows(postgres_url, "SELECT pg_terminate_backend(%s, 10000)", pid)
    with pytest.raises(Unreachable), server.writing() as sql:
        sql.execute("SELECT 1")
    with server.writing() as sql:
        assert sql.execute("SELECT 1").fetchone() == (1,)


def test_reading_sees_one_snapshot_and_cannot_write(server: Server, postgres_url: str) -> None:
    rows(postgres_url, "CREATE TABLE t (n int)")
    with server.reading() as sql:
        assert sql.execute("SELECT count(*) FROM public.t").fetchone() == (0,)
        rows(postgres_url, "INSERT INTO t VALUES (1)")
        with server.reading() as inner:
            assert inner.execute("SELECT count(*) FROM public.t").fetchone() == (0,)
    with pytest.raises(ReadOnly), server.reading() as sql:
        sql.execute("INSERT INTO public.t VALUES (2)")


def test_each_thread_has_a_connection_of_its_own(server: Server) -> None:
    pids = []

    def look() -> None:
        with server.outside() as sql:
            pids.append(sql.info.backend_pid)

    for thread in [threading.Thread(target=look) for _ in range(3)]:
        thread.start()
        thread.join()
    look()
    look()
    assert len(set(pids)) == 4 and pids[3] == pids[4]


def test_a_closed_server_says_so(server: Server) -> None:
    server.close()
    with pytest.raises(Closed, match="was closed"), server.reading():
        pass


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (psycopg.errors.QueryCanceled("x"), ReadTimeout),
        (psycopg.errors.DeadlockDetected("x"), Busy),
        (psycopg.errors.InsufficientPrivilege("x"), ReadOnly),
        (psycopg.errors.UndefinedTable("x"), NotOurFile),
        (psycopg.errors.ObjectInUse("x"), Busy),
        (psycopg.errors.AdminShutdown("x"), Unreachable),
        (psycopg.OperationalError("x"), Unreachable),
        (psycopg.errors.SystemError("x"), type(None)),
        (psycopg.errors.SyntaxError("x"), type(None)),
    ],
)
def test_errors_are_translated_in_one_place(error: Exception, expected: type) -> None:
    found = ours(error, "postgresql://here")
    assert isinstance(found, expected)
    assert found is None or "postgresql://here" in str(found)


def test_psycopg_is_imported_only_where_it_is_used_and_the_extra_is_named_without_it() -> None:
    script = (
        "import sys, tempfile, pathlib\n"
        "import mcpvectordb\n"
        "[getattr(mcpvectordb, name) for name in mcpvectordb.__all__]\n"
        "assert 'psycopg' not in sys.modules\n"
        "sys.modules['psycopg'] = None\n"
        "try:\n"
        "    mcpvectordb.Database(':memory:').publish('postgresql://h/db')\n"
        "except mcpvectordb.InvalidInput as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert "pip install 'mcpvectordb[postgres]'" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT ? WHERE a = ?", b"SELECT $1 WHERE a = $2"),
        ("a = ?1 OR b = ?1 LIMIT ?2", b"a = $1 OR b = $1 LIMIT $2"),
        ("SELECT '?', \"?\", ?", b"SELECT '?', \"?\", $1"),
        ("SELECT 'it''s ?' || ?", b"SELECT 'it''s ?' || $1"),
    ],
)
def test_bindings_are_numbered_outside_of_quotes(statement: str, expected: bytes) -> None:
    assert numbered(statement) == expected


def test_rows_are_fetched_as_from_sqlite(server: Server) -> None:
    with server.reading() as connection:
        session = Session(connection)
        rows = session.execute("SELECT * FROM (VALUES (1, 2), (3, 4)) AS v")
        assert rows.fetchone() == (1, 2) and rows.fetchall() == [(3, 4)] and rows.fetchone() is None
        assert session.execute("SELECT 7").get == 7 and session.execute("SELECT 1, 2").get == (1, 2)
        assert session.execute("SELECT 7 WHERE FALSE").get is None


def test_a_question_that_nobody_waits_for_any_more_is_not_asked(server: Server) -> None:
    class Gone(Exception):
        pass

    left: list[str] = []

    def cancelled() -> None:
        if left:
            raise Gone

    with (
        server.reading() as connection,
        deadline.shared(60, cancelled),
        deadline.running(60),
    ):
        session = Session(connection)
        assert session.execute("SELECT 1").get == 1
        left.append("the client")
        with pytest.raises(Gone):
            session.execute("SELECT 2")


def test_an_embedding_is_sent_with_all_of_its_digits() -> None:
    numbers = array("f", [0.1, -2.5, 1e-30])
    assert array("f", json.loads(bound_vector(numbers.tobytes()))) == numbers


TEXTS = st.text(st.sampled_from("ab01\0\ufdd0é数"))


@given(TEXTS)
def test_a_text_comes_back_as_it_was_and_has_no_nul_meanwhile(text: str) -> None:
    assert from_text(to_text(text)) == text
    assert "\0" not in to_text(text)


@given(
    st.recursive(
        TEXTS | st.integers() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    )
)
def test_json_has_its_texts_and_keys_as_texts_are_stored(value: object) -> None:
    written = to_json(json.dumps(value, ensure_ascii=False))
    assert "\\u0000" not in written

    def read(item: object) -> object:
        if isinstance(item, dict):
            return {from_text(key): read(each) for key, each in item.items()}
        if isinstance(item, list):
            return [read(each) for each in item]
        return from_text(item) if isinstance(item, str) else item

    assert read(json.loads(written)) == value


def test_a_text_that_looks_like_an_escape_is_no_nul() -> None:
    assert json.loads(to_json(json.dumps({"a": "\\u0000"}))) == {"a": "\\u0000"}
