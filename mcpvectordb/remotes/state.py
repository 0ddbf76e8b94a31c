"""What this machine knows of the remotes of a file: a small database in this user's data folder.

It is not in the file, because that is copied and merged: a copy on another machine would exchange
under the name of this one. What it knows of bundles can be found again by reading them all. That
is done when the file in this place is not the one of the last exchange, as after a backup was
restored: both have a random text, which each exchange replaces.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import apsw

from mcpvectordb.config import Config
from mcpvectordb.errors import Damaged, Unwritable
from mcpvectordb.history.versions import Item, Version, encoded
from mcpvectordb.storage.dialect import FileConnection, Sql
from mcpvectordb.storage.lock import machine_name

EXCHANGED = "exchanged:"
"""With the name of a remote: the setting of the file that has the random text."""

GONE = -1
"""The size of a bundle that is not there any more."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS remotes (
    name TEXT PRIMARY KEY,
    target TEXT NOT NULL,
    encrypted INTEGER NOT NULL,
    passphrase_file TEXT NOT NULL,
    writer TEXT NOT NULL, -- this file's name among the machines
    salt BLOB NOT NULL,
    verifier TEXT NOT NULL, -- a digest of the key that the passphrase gives
    token TEXT NOT NULL,
    next_token TEXT NOT NULL, -- that is being written
    since INTEGER NOT NULL, -- the clock up to which everything was sent
    merges INTEGER NOT NULL, -- how many merges there were then
    exchanged_at TEXT NOT NULL,
    problem TEXT NOT NULL
) STRICT;
-- This file's names at targets of remotes that were removed: it goes on with its own bundles.
CREATE TABLE IF NOT EXISTS writers (
    target TEXT PRIMARY KEY,
    writer TEXT NOT NULL
) STRICT;
-- Every bundle that was written or merged, also when it is gone.
CREATE TABLE IF NOT EXISTS bundles (
    number INTEGER PRIMARY KEY,
    remote TEXT NOT NULL REFERENCES remotes (name) ON DELETE CASCADE,
    name TEXT NOT NULL,
    size INTEGER NOT NULL,
    writer TEXT NOT NULL,
    machine TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    first INTEGER NOT NULL,
    is_full INTEGER NOT NULL, -- it has as much as a bundle may have
    UNIQUE (remote, name)
) STRICT;
-- What is in bundles: versions, stores, projects and what is forgotten, by digests; of deletions
-- the item, too: they are sent again when bundles become one.
CREATE TABLE IF NOT EXISTS sent (
    bundle INTEGER NOT NULL REFERENCES bundles (number) ON DELETE CASCADE,
    record BLOB NOT NULL,
    item BLOB NOT NULL,
    deleted TEXT,
    stamp INTEGER NOT NULL,
    PRIMARY KEY (record, bundle)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sent_by_item ON sent (item);
CREATE INDEX IF NOT EXISTS sent_by_bundle ON sent (bundle);
CREATE TABLE IF NOT EXISTS forgotten (
    item BLOB PRIMARY KEY,
    stamp INTEGER NOT NULL,
    done INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""


class RemoteRow(NamedTuple):
    """A row of the table remotes."""

    name: str
    target: str
    encrypted: int
    passphrase_file: str
    writer: str
    salt: bytes
    verifier: str
    token: str
    next_token: str
    since: int
    merges: int
    exchanged_at: str
    problem: str


class BundleRow(NamedTuple):
    """A row of the table bundles."""

    number: int
    remote: str
    name: str
    size: int
    writer: str
    machine: str
    sequence: int
    first: int
    is_full: int


class SentRecord(NamedTuple):
    """What is in a bundle; `deleted` is the item of a deletion."""

    record: bytes
    item: bytes
    deleted: Item | None
    stamp: int


class RemoteState:
    """The remotes of the file at a path."""

    def __init__(self, database: Path) -> None:
        self.folder = Config.data_folder() / "remotes" / machine_name(database)
        self._path = self.folder / "state.db"

    @property
    def exists(self) -> bool:
        """Whether the file ever had a remote."""
        return self._path.exists()

    @contextlib.contextmanager
    def sql(self, *, write: bool = True) -> Iterator[Sql]:
        """A transaction; one that does not write keeps nobody from writing."""
        try:
            if not self.exists:
                self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                with contextlib.suppress(FileExistsError):
                    os.close(os.open(self._path, os.O_CREAT | os.O_EXCL, 0o600))
            with contextlib.closing(FileConnection(str(self._path))) as connection:
                connection.set_busy_timeout(30_000)
                for pragma in ("journal_mode = WAL", "foreign_keys = ON", "secure_delete = ON"):
                    connection.execute(f"PRAGMA {pragma}").fetchall()
                connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                connection.execute(_SCHEMA)
                yield connection
                connection.execute("COMMIT")
        except apsw.Error as error:
            raise Damaged(
                f"{self._path}, which has the remotes, cannot be used ({error}): if that stays so, "
                "remove it and add the remotes again"
            ) from None
        except OSError as error:
            if type(error).__module__ != "builtins":
                raise
            raise Unwritable(f"{self._path} cannot be written: {error.strerror}") from None


def digest(kind: str, value: Any) -> bytes:
    """What stands for something that is sent."""
    return hashlib.sha256(encoded([kind, value]).encode("utf-8", "surrogatepass")).digest()[:16]


def digest_of(item: Item) -> bytes:
    """What stands for an item, where its name must not be seen."""
    return digest("item", item)


def remotes(sql: Sql) -> list[RemoteRow]:
    """All remotes, by their names."""
    return [RemoteRow(*row) for row in sql.execute("SELECT * FROM remotes ORDER BY name")]


def bundles(sql: Sql, remote: str) -> list[BundleRow]:
    """The bundles that are known of a remote, in the order of their sequences."""
    rows = sql.execute("SELECT * FROM bundles WHERE remote = ? ORDER BY sequence", (remote,))
    return [BundleRow(*row) for row in rows]


def add_bundle(sql: Sql, row: BundleRow, records: Iterable[SentRecord]) -> None:
    """Note a bundle that was written or merged, and what is in it."""
    sql.execute(
        f"INSERT INTO bundles ({', '.join(BundleRow._fields[1:])}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (remote, name) DO UPDATE SET size = excluded.size",
        row[1:],
    )
    number = sql.execute("SELECT number FROM bundles WHERE remote = ? AND name = ?", row[1:3]).get
    sql.executemany(
        "INSERT OR IGNORE INTO sent (bundle, record, item, deleted, stamp) VALUES (?, ?, ?, ?, ?)",
        (
            (number, each.record, each.item, each.deleted and json.dumps(each.deleted), each.stamp)
            for each in records
        ),
    )


def known(sql: Sql, remote: str, record: bytes) -> bool:
    """Whether something is in a bundle of a remote."""
    found = "SELECT 1 FROM sent JOIN bundles ON number = bundle WHERE record = ? AND remote = ?"
    return sql.execute(found, (record, remote)).fetchone() is not None


def deletions(sql: Sql, keys: Iterable[Any], column: Literal["item", "bundle"]) -> list[Version]:
    """The last known deletions of items, or of all items that bundles have one of."""
    found: dict[Item, int] = {}
    select = f"SELECT deleted, stamp FROM sent WHERE {column} = ? AND deleted IS NOT NULL"
    for key in keys:
        for deleted, stamp in sql.execute(select, (key,)):
            item = Item(*json.loads(deleted))
            found[item] = max(stamp, found.get(item, 0))
    return [Version(item, stamp, None) for item, stamp in found.items()]


def start_anew(sql: Sql, remote: str) -> None:
    """Forget what was exchanged: every bundle is read again, what is forgotten is so again."""
    sql.execute("DELETE FROM bundles WHERE remote = ?", (remote,))
    sql.execute("UPDATE forgotten SET done = 0")
    sql.execute(
        "UPDATE remotes SET since = -1, token = '', next_token = '' WHERE name = ?", (remote,)
    )


def mark_gone(sql: Sql, numbers: Iterable[int], own: Container[int]) -> None:
    """Note that bundles are gone; what was in our `own` is not there any more."""
    for number in numbers:
        if number in own:
            sql.execute("DELETE FROM sent WHERE bundle = ?", (number,))
        sql.execute("UPDATE bundles SET size = ? WHERE number = ?", (GONE, number))


def drop_repeated(sql: Sql, remote: str) -> None:
    """Drop what is noted of bundles that are gone where another one has it, too."""
    sql.execute(
        "DELETE FROM sent WHERE bundle IN (SELECT number FROM bundles WHERE remote = ?1 AND "
        "size = ?2) AND EXISTS (SELECT 1 FROM sent o JOIN bundles b ON b.number = o.bundle "
        "WHERE o.record = sent.record AND b.remote = ?1 AND b.size <> ?2)",
        (remote, GONE),
    )


def new_remote(sql: Sql, row: RemoteRow) -> None:
    """Add a remote with which nothing was exchanged yet, or not since it was removed."""
    before = "DELETE FROM writers WHERE target = ? RETURNING writer"
    row = row._replace(writer=sql.execute(before, (row.target,)).get or row.writer)
    sql.execute(f"INSERT INTO remotes VALUES ({', '.join('?' * len(row))})", row)


def remove(sql: Sql, row: RemoteRow) -> None:
    """Remove a remote, and keep by which name the file has written there."""
    sql.execute("INSERT OR REPLACE INTO writers VALUES (?, ?)", (row.target, row.writer))
    sql.execute("DELETE FROM remotes WHERE name = ?", (row.name,))


def forget(sql: Sql, items: Mapping[bytes, int], *, done: bool) -> None:
    """Note up to which stamp items are forgotten, and remove their names from what was sent."""
    for item, stamp in items.items():
        sql.execute(
            "INSERT INTO forgotten (item, stamp, done) VALUES (?1, ?2, ?3) ON CONFLICT (item) DO "
            "UPDATE SET stamp = max(stamp, ?2), done = CASE WHEN stamp < ?2 THEN ?3 ELSE done END",
            (item, stamp, int(done)),
        )
        known = "UPDATE sent SET deleted = NULL WHERE item = ? AND stamp <= ?"
        sql.execute(known, (item, stamp))
