"""Origins: under which name a file is published, and who may read and publish it.

A publisher holds an advisory lock of its origin as long as it runs. A lock can be lost with its
connection while others of the same publisher go on, so every transaction also verifies a mark in
the origin's row, which each publisher sets anew before it writes.

A role needs the rights of SQL on the tables, and a row in `grants`, by which row-level security
decides which origins it sees. Names of origins are never part of a statement as text.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from mcpvectordb.errors import Busy, InvalidInput, NotFound, quoted
from mcpvectordb.metadata import storable
from mcpvectordb.postgres import schema
from mcpvectordb.postgres.connection import Connection, Server, from_text, to_text
from mcpvectordb.postgres.schema import Right
from mcpvectordb.storage.file import File

SETTING = "origin"  # the setting of a file with the name that it gave itself
SHIFT = 40  # bits of a key or id that are the file's own; those above are the origin's key
LONGEST_NAME = 200
_LOCKS = 0x4D435650  # "MCVP", the class of the advisory locks of origins


class Origin(NamedTuple):
    """The row of an origin, and the mark of the publisher that writes it."""

    key: int
    name: str
    mark: uuid.UUID

    def id(self, own: int) -> int:
        """The key or id of a row of the file, as it is published."""
        if not 0 <= own < 1 << SHIFT:
            raise InvalidInput(f"the id {own} is too large to be published")
        return self.key << SHIFT | own

    def own(self, id: int) -> int:
        """The file's own key or id of a published row."""
        return id & ((1 << SHIFT) - 1)

    def verify(self, sql: Connection) -> None:
        """Raise Busy in a transaction of a publisher that another one has replaced."""
        row = sql.execute(
            "SELECT 1 FROM origins WHERE key = %s AND publisher = %s FOR SHARE",
            (self.key, self.mark),
        ).fetchone()
        if row is None:
            raise Busy(
                f"another process publishes {quoted(self.name)} since the connection was cut; "
                "nothing is lost: run publish again when it is done"
            )


def checked_name(name: str) -> str:
    """`name` if an origin may have it; raises InvalidInput."""
    if len(storable(name, "origin", blank=False)) > LONGEST_NAME:
        raise InvalidInput(f"origin is {len(name)} characters long; it has at most {LONGEST_NAME}")
    return name


def name_of_file(file: File) -> str:
    """The name that a file gave itself when it was published first; "" if it cannot keep one.

    It is the file's name and eight random digits, and stays when the file is moved or copied.
    """
    stored = "SELECT value FROM settings WHERE name = ?"
    with file.reading(limited=False) as sql:
        known = sql.execute(stored, (SETTING,)).get
    if known is not None or file.read_only:
        return str(known or "")
    stem = "memory" if file.memory else file.path.stem
    with file.writing() as sql:
        sql.execute(
            "INSERT OR IGNORE INTO settings (name, value) VALUES (?, ?)",
            (SETTING, f"{stem[: LONGEST_NAME - 9]}-{uuid.uuid4().hex[:8]}"),
        )
        return str(sql.execute(stored, (SETTING,)).get)


@contextlib.contextmanager
def locked(server: Server, name: str, file_name: str, wait: float) -> Iterator[Origin]:
    """The origin of a name, made if it is new, while no other process publishes it.

    Raises Busy if one still does after `wait` seconds, and InvalidInput if it is another file's.
    """
    with server.writing() as sql:
        key, known = _found(sql, name, file_name)
    if known != file_name:
        raise InvalidInput(
            f"the origin {quoted(name)} was published from the file {quoted(known)}, and this one "
            f"is {quoted(file_name)}: publish it under another origin, or remove the old one "
            "(DELETE FROM mcpvectordb.origins WHERE name = …)"
        )
    with server.outside() as sql:
        deadline, lock = time.monotonic() + wait, (_LOCKS, key)
        while sql.execute("SELECT pg_try_advisory_lock(%s, %s)", lock).fetchone() != (True,):
            if time.monotonic() > deadline:
                raise Busy(
                    f"another process is publishing {quoted(name)}; wait until it is done, then "
                    "run publish again: it sends what is missing"
                )
            time.sleep(0.1)
        try:
            yield Origin(key, name, uuid.uuid4())
        finally:
            if not sql.closed:
                sql.execute("SELECT pg_advisory_unlock(%s, %s)", lock)


def claim(sql: Connection, origin: Origin, choice: tuple[int | None, list[str] | None]) -> None:
    """Mark an origin as written by this publisher; one that was cut off notices and stops.

    `choice` is the key of its model, and its libraries as they are stored; None for all of them.
    """
    sql.execute(
        "UPDATE origins SET publisher = %s, model = %s, libraries = %s, published_at = NULL "
        "WHERE key = %s",
        (origin.mark, *choice, origin.key),
    )


def _found(sql: Connection, name: str, file_name: str = "") -> tuple[int, str]:
    """The key of an origin, which is made if it is new, and which file it was published from."""
    stored = to_text(name)
    select = "SELECT key, file FROM origins WHERE name = %s"
    row: Any = sql.execute(select, (stored,)).fetchone()
    if row is None:
        sql.execute(
            "INSERT INTO origins (name, file) VALUES (%s, %s) ON CONFLICT (name) DO NOTHING",
            (stored, to_text(file_name)),
        )
        row = sql.execute(select, (stored,)).fetchone()
    elif file_name and not row[1]:  # made for a grant, before anything was published
        sql.execute("UPDATE origins SET file = %s WHERE key = %s", (to_text(file_name), row[0]))
        return int(row[0]), file_name
    if row is None:
        raise Busy(f"the origin {quoted(name)} was removed at this moment: try again")
    return int(row[0]), from_text(str(row[1]))


# --- who may read and publish


def grant(url: str, role: str, right: Right, only: Sequence[str] | None = None) -> None:
    """Let a role read, or read and publish, these origins or all of them, later ones included.

    The role must exist; only the schema's owner can do this. It replaces what was granted to the
    role before. Origins that do not exist yet are made.
    """
    _check(role, right, only)
    with closing(Server(url)) as server:
        schema.migrate(server)
        with server.writing() as sql:
            _withdraw(sql, role)
            schema.give(sql, role, right, anything=only is None)
            for origin in [None] if only is None else [_found(sql, each)[0] for each in only]:
                sql.execute(
                    "INSERT INTO grants (role, origin, publishes) VALUES (%s, %s, %s)",
                    (role, origin, right == "publish"),
                )


def revoke(url: str, role: str) -> None:
    """Take from a role all that was granted to it."""
    _check(role, "read", None)
    with closing(Server(url)) as server:
        schema.check(server)
        with server.writing() as sql:
            _withdraw(sql, role)


def _check(role: str, right: str, only: Sequence[str] | None) -> None:
    if "\0" in storable(role, "role", blank=False):
        raise InvalidInput("role has a NUL character, which no role has")
    if right not in ("read", "publish"):
        raise InvalidInput(f"right must be read or publish, not {quoted(right)}")
    if only is not None and (isinstance(only, str) or not only):
        raise InvalidInput("only must be a list of origins, or None for all of them")
    for each in only or ():
        checked_name(each)


def _withdraw(sql: Connection, role: str) -> None:
    """Take from a role what was granted to it; raises NotFound."""
    if sql.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone() is None:
        raise NotFound(
            f"there is no role {quoted(role)}: make it with CREATE ROLE … LOGIN PASSWORD … first"
        )
    sql.execute("DELETE FROM grants WHERE role = %s", (role,))
    schema.withdraw(sql, role)
