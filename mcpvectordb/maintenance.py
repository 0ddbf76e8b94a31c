"""Maintenance of a database file: copy, compact, check, rebuild, statistics."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import apsw

from mcpvectordb import errors
from mcpvectordb.config import PRECISIONS
from mcpvectordb.documents.write import UnpublishedDocuments
from mcpvectordb.history.log import clear
from mcpvectordb.index.chunks import active_model
from mcpvectordb.index.encoder import Encoder
from mcpvectordb.records import Stats
from mcpvectordb.storage import fts5, vec0
from mcpvectordb.storage.dialect import FileConnection, Sql
from mcpvectordb.storage.file import File, uri
from mcpvectordb.storage.log import Mark
from mcpvectordb.storage.schema import VERSION


class JSONColumn(NamedTuple):
    """A column that holds JSON; `empty` is the value that a repair writes over an invalid one."""

    table: str
    name: str
    kind: str
    empty: str | None

    @property
    def invalid(self) -> str:
        """A SQL condition that is true for rows with a value that is never written."""
        wrong = f"json_type({self.name}) <> '{self.kind}'"
        if self.kind == "array":
            wrong += f" OR EXISTS (SELECT 1 FROM json_each({self.name}) WHERE type <> 'text')"
        return (
            f"{self.name} IS NOT NULL AND CASE WHEN json_valid({self.name}) THEN {wrong} ELSE 1 END"
        )


JSON_COLUMNS = (
    JSONColumn("documents", "metadata", "object", "{}"),
    JSONColumn("documents", "given", "object", None),
    JSONColumn("document_chunks", "headings", "array", "[]"),
    JSONColumn("contexts", "metadata", "object", None),
    JSONColumn("context_chunks", "headings", "array", "[]"),
    JSONColumn("context_images", "metadata", "object", None),
    JSONColumn("vectors", "metadata", "object", "{}"),
    JSONColumn("libraries", "ignore", "array", "[]"),
)
_PRECISIONS = "(" + ", ".join(f"'\"{each}\"'" for each in PRECISIONS) + ")"
# A SQL condition that is true for settings with a value that is never written.
INVALID_SETTING = (
    "CASE WHEN name = 'model' "
    "THEN value NOT IN (SELECT CAST(key AS TEXT) FROM models) WHEN name = 'chunk_size' "
    "THEN value GLOB '*[^0-9]*' OR CAST(value AS INTEGER) NOT BETWEEN 16 AND 2000 "
    "WHEN name = 'chunk_overlap' THEN value GLOB '*[^0-9]*' OR value = '' "
    f"WHEN name = 'embeddings' THEN value NOT IN {_PRECISIONS} "
    "ELSE NOT json_valid(value) END"
)
# The settings that are written together, with the first text of a file.
INITIAL_SETTINGS = "('model', 'chunk_size', 'chunk_overlap')"


class MaintainedIndex(Protocol):
    """An index that can be made again from the ordinary tables."""

    def optimize(self, sql: Sql) -> None:
        """Free the space that removed rows still take."""

    def rebuild(self, sql: Sql) -> None:
        """Make the index again from the tables."""

    def problems(self, sql: Sql) -> Iterable[str]:
        """What is wrong with the index, one sentence for each problem."""


def copy(
    file: File,
    target: Path,
    unpublished: UnpublishedDocuments,
    *,
    overwrite: bool = False,
    history: bool = True,
) -> Path:
    """Write a copy of the database; nothing is at `target`, or the old file, until it is complete.

    Unpublished documents are not in it, nor deleted text outside of the history.
    """
    from mcpvectordb.storage.new_file import new_file

    with new_file(file, target, overwrite=overwrite) as (path, part):
        # A database in memory has a VFS of its own, so the disk's is named.
        with file.outside() as sql:
            sql.execute("VACUUM INTO ?", (f"{uri(part)}?vfs={apsw.vfs_names()[0]}",))
            _forget_deleted(part, unpublished, history)
        _verify(part)
    return path


def compact(
    file: File, indexes: Sequence[MaintainedIndex], unpublished: UnpublishedDocuments
) -> int:
    """Optimize the indexes and rewrite the file without unused pages; the bytes that this freed."""
    before = file.bytes()
    with file.writing() as sql:
        unpublished.remove_abandoned(sql)
        for index in indexes:
            index.optimize(sql)
        _empty_cache(sql)
    with file.outside() as sql:
        sql.execute("VACUUM")
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return max(0, before - file.bytes())


def check(file: File, indexes: Sequence[MaintainedIndex]) -> list[str]:
    """The problems of a file: SQLite's own, invalid values, and indexes that differ from tables."""
    problems: list[str] = []
    try:
        with file.reading(limited=False) as sql:
            problems += [*file.flaws(), *invalid_values(sql)]
            for index in indexes:
                problems += index.problems(sql)
    except errors.Damaged as error:
        problems.append(str(error))
    return problems


def rebuild(file: File, indexes: Sequence[MaintainedIndex]) -> None:
    """Make the indexes again in one transaction, until whose end readers use the old ones."""
    with file.writing() as sql:
        for index in indexes:
            index.rebuild(sql)
        _empty_cache(sql)


def _empty_cache(sql: Sql) -> None:
    """Delete what earlier versions kept: it may contain words of deleted documents."""
    sql.execute("DELETE FROM cache")


def invalid_values(sql: Sql) -> Iterator[str]:
    """Values in ordinary tables that are never written, one sentence for each kind of them."""
    for column in JSON_COLUMNS:
        count = sql.execute(f"SELECT count(*) FROM {column.table} WHERE {column.invalid}").get
        if count:
            yield (
                f"{column.table}: the {column.name} of {count} rows is not a JSON {column.kind}"
                f"{' of strings' if column.kind == 'array' else ''}"
            )
    for (name,) in sql.execute(f"SELECT name FROM settings WHERE {INVALID_SETTING}"):
        yield f"settings: the value of {name} is invalid"
    found = sql.execute(f"SELECT name FROM settings WHERE name IN {INITIAL_SETTINGS}")
    names = [name for (name,) in found]
    if names != ["model"] and len(names) not in (0, 3):
        yield f"settings: of {INITIAL_SETTINGS} the file has only {names}"


def stats(file: File, encoder: Encoder) -> Stats:
    """Counts and sizes of a file, and the settings it was made with."""
    from mcpvectordb.documents.sync import unfinished

    with file.reading() as sql:
        documents, libraries = sql.execute(
            "SELECT count(*), count(DISTINCT library) FROM published_documents"
        ).get
        chunks = sql.execute(
            "SELECT count(*) - (SELECT count(*) FROM document_chunks WHERE owner IN "
            "(SELECT document FROM unpublished_documents)) FROM document_chunks"
        ).get
        origins: tuple[str, ...] = ()
        notes, history_bytes = file.notes(), 0
        if file.dialect.origins:
            found = sql.execute("SELECT name FROM origins ORDER BY name")
            origins = tuple(name for (name,) in found)
        else:
            history_bytes = sql.execute("SELECT coalesce(max(bytes), 0) FROM history_state").get
            notes += unfinished(sql)
        model = active_model(sql)
        name, dimension = encoder.expected_model(sql)
        size, overlap = encoder.sizes(sql)
        return Stats(
            path=file.place,
            bytes=file.bytes(),
            format=file.format,
            documents=documents,
            libraries=libraries,
            chunks=chunks,
            pending=encoder.pending(sql, model) if model else 0,
            memories=sql.execute("SELECT count(*) FROM contexts").get,
            vectors=sql.execute("SELECT count(*) FROM vectors").get,
            stores=sql.execute("SELECT count(*) FROM stores").get,
            model=name,
            dimension=dimension,
            chunk_size=size,
            chunk_overlap=overlap,
            history_bytes=history_bytes,
            origins=origins,
            embeddings=encoder.expected_precision(sql),
            notes=tuple(notes),
        )


def space(file: File) -> dict[str, int]:
    """The bytes of the tables and indexes of each kind, the largest first, and the free pages."""
    found: Counter[str] = Counter()
    for name, size in file.table_sizes():
        found[next((what for begin, what in _CONTENTS if name.startswith(begin)), "other")] += size
    if not file.dialect.origins:
        with file.reading(limited=False) as sql:
            found["unused"] = sql.execute(
                "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size"
            ).get
    return dict(found.most_common())


# What tables hold, by a beginning of their name; shadow tables begin with their own table's name.
_CONTENTS = (
    ("document_words", "words of documents"),
    ("document_embeddings", "embeddings of documents"),
    ("document_meaning", "codes of embeddings"),
    ("context_meaning", "codes of embeddings"),
    ("vector_meaning", "codes of embeddings"),
    ("document", "texts of documents"),
    ("context_words", "words of memories"),
    ("context_spellings", "words of memories"),
    ("context_embeddings", "embeddings of memories"),
    ("context_images", "images of memories"),
    ("context", "texts of memories"),
    ("vector", "vectors"),
    ("history", "history"),
)


def _forget_deleted(part: Path, unpublished: UnpublishedDocuments, history: bool) -> None:
    """Take out of a copy what is not yet, or no longer, a document: unpublished ones, and what has
    stayed of deleted text. Unused pages are not in it, but words in the indexes and answers in the
    cache are.
    """
    with contextlib.closing(
        FileConnection(str(part), flags=apsw.SQLITE_OPEN_READWRITE)
    ) as connection:
        vec0.load(connection)
        for pragma in (
            "journal_mode = DELETE",
            "synchronous = OFF",
            "secure_delete = ON",
            "foreign_keys = ON",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        with connection:
            unpublished.remove_all(connection)
            _empty_cache(connection)
            connection.execute("DELETE FROM settings WHERE name GLOB 'ingest:*'")  # goes on there
            fts5.forget_deleted(connection)
            if not history:
                clear(connection)
        if not history:
            connection.execute("VACUUM")


def _verify(part: Path) -> None:
    """Check a copy, make it a single file without a log, and have the system write it to disk."""
    from mcpvectordb.storage.new_file import flush_to_disk

    connection = apsw.Connection(str(part), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        mark = Mark.of(connection.execute("PRAGMA user_version").get)
        # The log of the file that was copied is not the copy's.
        connection.execute(f"PRAGMA user_version = {mark.retied().user_version}")
        found = connection.execute("PRAGMA quick_check(1)").get
        if found != "ok" or mark.version != VERSION:
            raise errors.Damaged(
                f"the copy is damaged ({found}) and was removed: run `mcpvectordb check`"
            )
    finally:
        connection.close()
    flush_to_disk(part)
