"""Keeping a file sound, small and movable: copy, compact, check, rebuild, stats."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import apsw

from mcpvectordb import errors
from mcpvectordb.index.encoder import Encoder
from mcpvectordb.records import Stats
from mcpvectordb.recovery import repair
from mcpvectordb.storage.file import File, uri
from mcpvectordb.storage.schema import VERSION


class Kept(Protocol):
    """An index that can be made again from the tables that are the truth."""

    def optimize(self, sql: apsw.Connection) -> None:
        """Give up what removed rows still hold."""

    def rebuild(self, sql: apsw.Connection) -> None:
        """Make it again."""

    def problems(self, sql: apsw.Connection) -> Iterable[str]:
        """What is wrong with it, in words."""


def copy(file: File, target: Path) -> Path:
    """Write everything into one new file, verify it, then give it its name."""
    target = target.expanduser().absolute()
    if target.exists():
        raise errors.InvalidInput(
            f"{target} exists already; name a new file, or remove that one first"
        )
    if not target.parent.is_dir():
        raise errors.Unwritable(f"the folder {target.parent} does not exist: make it first")
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with (
            file.outside() as sql
        ):  # a database in memory has a file system of its own, so the disk's is named
            sql.execute("VACUUM INTO ?", (f"{uri(part)}?vfs={apsw.vfs_names()[0]}",))
        _verified(part)
        os.link(part, target)  # unlike a rename this never replaces a file that came in between
        _sync_folder(target.parent)
    except FileExistsError:
        raise errors.InvalidInput(
            f"{target} exists already; name a new file, or remove that one first"
        ) from None
    except OSError as error:
        if isinstance(error, errors.MCPVectorDBError):
            raise
        raise errors.Unwritable(f"{target} cannot be written: {error.strerror}") from error
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            Path(f"{part}{suffix}").unlink(missing_ok=True)
    return target


def compact(file: File, indexes: Sequence[Kept]) -> int:
    """Rebuild the vec0 tables, merge the words' segments, and rewrite the file without its
    holes.
    """
    before = _bytes(file)
    with file.writing() as sql:
        for index in indexes:
            index.optimize(sql)
    with file.outside() as sql:
        sql.execute("VACUUM")
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return max(0, before - _bytes(file))


def check(file: File, indexes: Sequence[Kept]) -> list[str]:
    """SQLite's own checks (FTS5's among them), foreign keys, and that the indexes say what the
    tables say.
    """
    problems: list[str] = []
    try:
        with file.reading() as sql:
            problems += [*file.flaws(), *repair.strange_values(sql)]
            for index in indexes:
                problems += index.problems(sql)
    except errors.Damaged as error:
        problems.append(str(error))
    return problems


def rebuild(file: File, indexes: Sequence[Kept]) -> None:
    """Make the indexes again, in one transaction: readers see the old ones until the new ones are
    there.
    """
    with file.writing() as sql:
        for index in indexes:
            index.rebuild(sql)


def stats(file: File, encoder: Encoder) -> Stats:
    """Counts, sizes and what the file was made with."""
    with file.reading() as sql:
        documents, libraries = sql.execute(
            "SELECT count(*), count(DISTINCT library) FROM documents"
        ).get
        chunks = sql.execute("SELECT count(*) FROM document_chunks").get
        contexts = sql.execute("SELECT count(*) FROM contexts").get
        vectors = sql.execute("SELECT count(*) FROM vectors").get
        stores = sql.execute("SELECT count(*) FROM stores").get
        model = encoder.active(sql)
        name, dimension = encoder.expected_model(sql)
        size, overlap = encoder.sizes(sql)
        pending = encoder.pending(sql, model) if model else 0
    return Stats(
        path=str(file.path),
        bytes=_bytes(file),
        format=VERSION,
        documents=documents,
        libraries=libraries,
        chunks=chunks,
        pending=pending,
        contexts=contexts,
        vectors=vectors,
        stores=stores,
        model=name,
        dimension=dimension,
        chunk_size=size,
        chunk_overlap=overlap,
    )


def _bytes(file: File) -> int:
    if file.memory:
        with file.reading() as sql:
            return int(
                sql.execute(
                    "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
                ).get
            )
    return sum(
        path.stat().st_size for path in (file.path, Path(f"{file.path}-wal")) if path.exists()
    )


def _verified(part: Path) -> None:
    """A copy must be sound and one single file before it gets its name."""
    connection = apsw.Connection(str(part), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        found = connection.execute("PRAGMA quick_check(1)").get
        if found != "ok" or connection.execute("PRAGMA user_version").get != VERSION:
            raise errors.Damaged(
                f"the copy is not sound ({found}); nothing was written: run `mcpvectordb check`"
            )
    finally:
        connection.close()
    with part.open("rb+") as written:
        os.fsync(written.fileno())


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
