"""What a database over PostgreSQL is made of, in place of the parts of a file."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from mcpvectordb import errors
from mcpvectordb.history.log import History
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.metadata_index import MetadataIndex
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.postgres import schema
from mcpvectordb.postgres.connection import DIALECT, Server, Session
from mcpvectordb.postgres.keyword import PostgresKeywordIndex, PostgresMemoryFulltext
from mcpvectordb.postgres.vector import PostgresVectorIndex, PostgresVectorStore
from mcpvectordb.storage import deadline
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.file import File


class PublishedFile(File):
    """What files have published to PostgreSQL, with the methods of a file that readers call.

    The connections that it gives have the methods of SQLite's that readers call (`Session`), and
    its tables have the names of a file's. Nothing is written: files are, and then published.
    """

    dialect = DIALECT
    published = True
    memory = False
    read_only = True
    format = schema.VERSION

    def __init__(self, url: str, *, read_timeout: float) -> None:
        self._server, self._read_timeout = Server(url), read_timeout
        self.place = self._server.name  # the URL without its password
        self.path, self._thread = Path(self.place), threading.local()
        self.closed = False
        try:
            schema.check(self._server)
        except BaseException:
            self._server.close()
            raise

    def notes(self) -> list[str]:
        """What an administrator should do about the schema's owner."""
        return [each for each in [schema.notice(self._server)] if each]

    def close(self) -> None:
        """Close every connection."""
        self.closed = True
        self._server.close()

    @contextlib.contextmanager
    def reading(self, *, limited: bool = True) -> Iterator[Sql]:
        """A connection in a transaction that sees one snapshot and has a deadline."""
        with (
            deadline.running(self._read_timeout) if limited else deadline.suspended(),
            self._server.reading(deadline.left()) as connection,
        ):
            session: Session | None = getattr(self._thread, "session", None)
            if session is None or session.connection is not connection:
                self._thread.session = session = Session(connection)
            depth = getattr(self._thread, "depth", 0)
            if depth == 0:
                session.kept.clear()
            self._thread.depth = depth + 1
            try:
                yield session
            finally:
                self._thread.depth = depth

    def version(self) -> int:
        """A number that is another one after any origin was published."""
        with self.reading() as sql:
            return int(
                sql.execute("SELECT coalesce(sum(hashtext(publisher::text)), 0) FROM origins").get
            )

    def writing(self) -> NoReturn:
        """Raise ReadOnly: what is published is changed in its file."""
        raise errors.ReadOnly(
            f"{self.place} is published, and open for reading only: change the file that it came "
            "from, then run `mcpvectordb publish`"
        )

    outside = writing

    def flaws(self) -> NoReturn:
        """Raise ReadOnly: the server checks its own data."""
        self.require_file("a check")

    def require_file(self, what: str) -> NoReturn:
        """Raise ReadOnly for what only a file has."""
        raise errors.ReadOnly(
            f"{what} is for files only, and {self.place} is published: do it with the file that it "
            "came from"
        )

    def table_sizes(self) -> list[tuple[str, int]]:
        """The tables, and the bytes of each with its indexes."""
        with self.reading() as sql:
            return list(
                sql.execute(
                    "SELECT relname::text, pg_total_relation_size(oid) FROM pg_class "
                    "WHERE relnamespace = 'mcpvectordb'::regnamespace AND relkind = 'r'"
                )
            )

    def bytes(self) -> int:
        """The size of all tables and their indexes."""
        return sum(size for _, size in self.table_sizes())


class PublishedChunks(ChunkIndex):
    """The chunks of a shelf: the statements of a file's, with another keyword and vector index."""

    def __init__(self, shelf: str, title: str, exact_rows: int) -> None:
        super().__init__(shelf, title)
        self._shelf = shelf
        self.keyword = PostgresKeywordIndex(exact_rows)
        self.vector = PostgresVectorIndex(self.embeddings, exact_rows=exact_rows)

    def count_pending(self, sql: Sql, model: int, owners: Sequence[int] | None = None) -> int:
        """The number of chunks without an embedding by a model.

        Of all, these are the items of origins that were embedded by another one.
        """
        if owners is None:
            return int(
                sql.execute(
                    "SELECT coalesce(sum(t.items), 0) FROM totals t JOIN origins o "
                    "ON o.key = t.origin WHERE t.shelf = ? AND o.model IS DISTINCT FROM ?",
                    (self._shelf, model),
                ).get
            )
        return int(
            sql.execute(
                f"SELECT count(*) FROM {self.chunks} c WHERE c.owner IN "
                f"(SELECT value FROM json_each(?)) AND NOT EXISTS (SELECT 1 FROM "
                f"{self.embeddings} e WHERE e.chunk = c.id AND e.model = ?)",
                (json.dumps(list(owners)), model),
            ).get
        )

    def is_leased(self, sql: Sql, model: int) -> bool:
        """Nobody embeds here."""
        return False


class NoMetadataIndex(MetadataIndex):
    """No metadata keys have an index."""

    def names(self, sql: Sql) -> tuple[str, ...]:
        """None."""
        return ()


class PostgresEngine:
    """What a database over PostgreSQL is made of."""

    def __init__(self, url: str, read_timeout: float, tuning: Tuning) -> None:
        self.file: File = PublishedFile(url, read_timeout=read_timeout)
        self._listed_rows = tuning.engine_rows
        self.indexes: tuple[ChunkIndex, ChunkIndex] = (
            PublishedChunks(
                "document", "(SELECT title FROM documents WHERE key = c.owner)", tuning.engine_rows
            ),
            PublishedChunks("context", "''", tuning.engine_rows),
        )

    def fulltext(self) -> PostgresMemoryFulltext:
        """The words of memories."""
        return PostgresMemoryFulltext(self._listed_rows)

    def metadata_index(self, names: str) -> NoMetadataIndex:
        """The indexed metadata keys."""
        return NoMetadataIndex(names)

    def vector_store(self, history: History) -> PostgresVectorStore:
        """The tables of vectors."""
        return PostgresVectorStore()
