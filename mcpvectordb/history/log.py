"""The log of changes and the versions before them: written here only, in the change's transaction.

Every transaction that changes items gets a stamp (`history.clock`) and a row in history_changes.
The rows of the items have the stamp, so whatever is new needs nothing else. A version that is
replaced goes into history_versions; a deletion is a version without fields. All versions of an
item, the present one among them, are sorted by `Version.order`: the last one up to a time is what
the item was then. So histories are sets, and their union is the history of two files together.

Versions are dropped, oldest first, when they are too old or take too much of the file: a few in
each transaction that adds some, so that no one waits for it.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, NamedTuple

from mcpvectordb.config import Config
from mcpvectordb.errors import Damaged, InvalidInput, quoted
from mcpvectordb.history import clock
from mcpvectordb.history.versions import Item, Version, encoded
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.file import File
from mcpvectordb.text import json_text

ROOM = 1_000_000  # bytes of versions that even the smallest file may have
MOST_CHANGES = 100_000  # rows of history_changes
MERGES = "merges"
"""The setting that counts how often versions came that may be older than others before them."""
LONGEST_ACTOR = 200  # characters of a name, which clients choose
# After every so many changes or versions it is seen whether there are others to drop, and how many
# are dropped at most then: more than were added.
_EVERY, _STEP = 16, 64
_SELECT = "SELECT shelf, place, name, twin, stamp, fields, body FROM history_versions"
_ITEM = "shelf = ? AND place = ? AND name = ? AND twin = ?"


class _ChangeGroup:
    """The transactions of one call, which are one change."""

    def __init__(self, action: str, first: int | None = None) -> None:
        self.action, self.first = action, first
        self.number = random.getrandbits(62)


class _Current(NamedTuple):
    """The stamp of a transaction, and the first one of its change.

    In a merge `stamp` is that of the other file's change; `own` stays that of the transaction.
    """

    transaction: object
    stamp: int
    own: int
    first: int
    kept: bool

    @property
    def until(self) -> int:
        """Up to when what is replaced here was there: from then on its age counts."""
        return max(self.own, self.stamp)


_group: ContextVar[_ChangeGroup | None] = ContextVar("group", default=None)
# By whom changes are made: a variable of the context, because it would have to pass through every
# function that writes.
_actor: ContextVar[str] = ContextVar("actor", default="python")


def shown(actor: str) -> str:
    """The name of who makes changes, as listings show it: one line, not too long."""
    return " ".join(actor.encode("utf-8", "replace").decode()[:LONGEST_ACTOR].split())


@contextlib.contextmanager
def acting_as(actor: str) -> Iterator[None]:
    """Let the changes of a block be made by `actor`: the shell, or a client of the server."""
    token = _actor.set(shown(actor) or "python")
    try:
        yield
    finally:
        _actor.reset(token)


class History:
    """The history of one file; methods with `sql` work in its transaction.

    `wall_clock` returns the seconds since 1970; tests set another one.
    """

    def __init__(self, file: File, config: Config) -> None:
        self._file, self._config, self._local = file, config, threading.local()
        self.wall_clock: Callable[[], float] = time.time

    # Writing.

    @contextlib.contextmanager
    def change(self, action: str, *, needed: int | None = None) -> Iterator[None]:
        """Let all transactions of a block be one change; a block inside of another joins it.

        Versions that were replaced at the stamp `needed` or later are not dropped for want of room.
        """
        if _group.get() is not None:
            yield
            return
        token = _group.set(_ChangeGroup(action, needed))
        try:
            yield
        finally:
            _group.reset(token)

    def stamp(self, sql: Sql) -> int:
        """The stamp of this transaction; when it is asked for first, the change is logged."""
        return self._current(sql).stamp

    def stamped(self, sql: Sql, stamp: int) -> AbstractContextManager[None]:
        """Let the changes of a block be those that were made at another stamp, in another file."""
        return self._within(sql, stamp=stamp)

    def suspended(self, sql: Sql) -> AbstractContextManager[None]:
        """Keep nothing of what is replaced or deleted in this block."""
        return self._within(sql, kept=False)

    @contextlib.contextmanager
    def _within(self, sql: Sql, **other: Any) -> Iterator[None]:
        before = self._current(sql)
        self._local.current = before._replace(**other)
        try:
            yield
        finally:
            self._local.current = before

    def _current(self, sql: Sql) -> _Current:
        known: _Current | None = getattr(self._local, "current", None)
        if known is not None and known.transaction is self._file.transaction:
            return known
        last, kept = sql.execute("SELECT clock, kept FROM history_state").get
        stamp = self._next(last)
        sql.execute("UPDATE history_state SET clock = ?", (stamp,))
        group = _group.get() or _ChangeGroup("")
        if group.first is None:
            group.first = stamp
        kept = bool(kept and self._config.history_days)
        current = _Current(self._file.transaction, stamp, stamp, group.first, kept)
        if current.kept:
            sql.execute(
                "INSERT INTO history_changes (change, stamp, actor, action) VALUES (?, ?, ?, ?)",
                (group.number, stamp, _actor.get(), group.action),
            )
            if sql.last_insert_rowid() % _EVERY == 0:
                self._drop(sql, current.first)
        self._local.current = current
        return current

    def _next(self, last: int) -> int:
        """The stamp after the last one of the file."""
        stamp = clock.next_stamp(last, self.wall_clock())
        if not 0 <= stamp <= clock.LAST:
            raise Damaged(
                f"the clock of the file or of this machine shows {clock.moment(stamp)[:19]}, after "
                "which no change can be noted: set the machine's right, then run `mcpvectordb "
                "rebuild --clock`"
            )
        return stamp

    def keeps(self, sql: Sql) -> bool:
        """Whether what is replaced or deleted in this transaction is kept."""
        return self._current(sql).kept

    def keep(self, sql: Sql, version: Version, body: bytes | None = None) -> None:
        """Keep a version that this transaction replaces or deletes; `body` unless it is kept."""
        current = self._current(sql)
        if current.kept and self.add(sql, version, current.until, body) % _EVERY == 1:
            self._drop(sql, current.first)

    def bury(self, sql: Sql, item: Item) -> None:
        """Note that this transaction deletes an item."""
        current = self._current(sql)
        if current.kept:
            self.add(sql, Version(item, current.stamp, None), current.until)

    def add(self, sql: Sql, version: Version, until: int, body: bytes | None = None) -> int:
        """Add a version with its body; its number, 0 if it is there already."""
        fields = None if version.fields is None else encoded(version.fields)
        sql.execute(
            "INSERT OR IGNORE INTO history_versions (shelf, place, name, twin, stamp, until, "
            "digest, fields, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*version.item, version.stamp, until, version.digest, fields, version.body),
        )
        number = sql.last_insert_rowid() if sql.changes() else 0
        size = len((fields or "").encode()) if number else 0
        if version.body is not None and body is not None:
            sql.execute(
                "INSERT OR IGNORE INTO history_bodies (name, body) VALUES (?, ?)",
                (version.body, body),
            )
            size += len(body) if sql.changes() else 0
        self._weigh(sql, size)
        return number

    def _weigh(self, sql: Sql, more: int) -> None:
        sql.execute("UPDATE history_state SET bytes = max(0, bytes + ?)", (more,))

    # Dropping.

    def _drop(self, sql: Sql, newest: int, most: int = _STEP) -> int:
        """Drop up to `most` versions that are too old or too many; the number of dropped ones.

        The newest change, which begins at the stamp `newest`, is dropped by its age only: half of
        it could not be undone.
        """
        days, oldest = self._config.history_days, 0
        if days:
            oldest = clock.next_stamp(0, max(0.0, self.wall_clock() - days * 86_400))
        spare = self.spare(sql)
        dropped = 0
        rows: list[Any] = sql.execute(
            "SELECT number, until, octet_length(coalesce(fields, '')), body FROM history_versions "
            "ORDER BY until LIMIT ?",
            (most,),
        ).fetchall()
        for number, until, size, body in rows:
            if until >= oldest and (spare >= 0 or until >= newest):
                break
            sql.execute("DELETE FROM history_versions WHERE number = ?", (number,))
            size += self._drop_body(sql, body)
            sql.execute(
                "UPDATE history_state SET bytes = max(0, bytes - ?), dropped = max(dropped, ?)",
                (size, until),
            )
            spare += size
            dropped += 1
        # Some of the log: what can no longer be undone, and what is too much.
        sql.execute(
            "DELETE FROM history_changes WHERE number IN (SELECT number FROM "
            "(SELECT number, stamp FROM history_changes ORDER BY stamp LIMIT ?2) "
            "WHERE stamp < ?1 OR stamp <= (SELECT dropped FROM history_state))",
            (oldest, most),
        )
        sql.execute(
            "DELETE FROM history_changes WHERE number IN (SELECT number FROM history_changes "
            "WHERE number <= (SELECT max(number) FROM history_changes) - ? LIMIT ?)",
            (MOST_CHANGES, most),
        )
        return dropped

    def spare(self, sql: Sql) -> int:
        """How many bytes more the versions of the file may take; below 0 if they take too many."""
        used, size = sql.execute(
            "SELECT bytes, page_count * page_size "
            "FROM history_state, pragma_page_count, pragma_page_size"
        ).get
        return max(ROOM, int(size * self._config.history_share)) - int(used)

    def _drop_body(self, sql: Sql, name: bytes | None) -> int:
        """Delete a body that no version has any more; the bytes that it took."""
        size = sql.execute(
            "DELETE FROM history_bodies WHERE name = ?1 AND NOT EXISTS "
            "(SELECT 1 FROM history_versions WHERE body = ?1) RETURNING octet_length(body)",
            (name,),
        ).get
        return int(size or 0)

    def forget(self, sql: Sql, item: Item, until: int = clock.LAST) -> int:
        """Delete all that is kept of an item, up to a stamp; the number of versions."""
        rows: list[Any] = sql.execute(
            f"DELETE FROM history_versions WHERE {_ITEM} AND stamp <= ? "
            "RETURNING octet_length(coalesce(fields, '')), body",
            (*item, until),
        ).fetchall()
        for size, body in rows:
            self._weigh(sql, -size - self._drop_body(sql, body))
        return len(rows)

    def switch(self, on: bool) -> None:
        """Keep versions from now on, or delete them all and keep no more."""
        with self._file.writing() as sql:
            last = sql.execute("SELECT clock FROM history_state").get
            now = self._next(last)
            if not on:
                clear(sql)
            sql.execute(
                "UPDATE history_state SET clock = ?1, kept = ?2, "
                "dropped = CASE WHEN kept = ?2 THEN dropped ELSE ?1 END",
                (now, int(on)),
            )

    # Reading.

    def limit(self, sql: Sql, as_of: str | int) -> int:
        """The last stamp of a time, or of the change with this number; raises InvalidInput."""
        if isinstance(as_of, int) and not isinstance(as_of, bool):
            stamp = None
            if 0 < as_of < 2**63:
                stamp = sql.execute(
                    "SELECT max(stamp) FROM history_changes WHERE change = "
                    "(SELECT change FROM history_changes WHERE number = ?)",
                    (as_of,),
                ).get
            if stamp is None:
                raise InvalidInput(
                    f"there is no change {quoted(as_of)} in the history: as_of is a time, or the "
                    "number of a change that `mcpvectordb history` lists"
                )
            limit = int(stamp)
        else:
            limit = clock.last_stamp(as_of, "as_of", self.wall_clock())
        dropped = sql.execute("SELECT dropped FROM history_state").get
        if limit < dropped:
            raise InvalidInput(
                f"the history of this file begins at {clock.moment(dropped)}, after {as_of}"
            )
        return limit

    def of(self, sql: Sql, item: Item) -> list[Version]:
        """The former versions of an item, in their order."""
        return list(_versions(sql, f"WHERE {_ITEM} ORDER BY stamp, digest", item))

    def at(self, sql: Sql, item: Item, present: Version | None, limit: int) -> Version | None:
        """What an item, of which there is a `present` version, was at a stamp; None if nothing."""
        known = [*self.of(sql, item), *([present] if present else [])]
        until = (each for each in known if each.stamp <= limit)
        last = max(until, key=lambda each: each.order, default=None)
        return None if last is None or last.fields is None else last

    def former(self, sql: Sql, number: int) -> Version:
        """The version in the row of history_versions with this number."""
        return next(_versions(sql, "WHERE number = ?", (number,)))

    def made_at(self, sql: Sql, stamps: Sequence[int]) -> Iterator[Version]:
        """The former versions that were made at these stamps, and the deletions."""
        chosen = "WHERE stamp IN (SELECT value FROM json_each(?)) ORDER BY number"
        return _versions(sql, chosen, (json.dumps(list(stamps)),))

    def all(self, sql: Sql, since: int = -1) -> Iterator[tuple[Version, int]]:
        """Every former version and up to when it was the present one, those of last first.

        With `since` those that were the present ones after this stamp.
        """
        for *row, until in sql.execute(
            f"{_SELECT.replace(' FROM', ', until FROM')} WHERE until > ? "
            "ORDER BY until DESC, number DESC",
            (since,),
        ):
            yield _version(row), until

    def has(self, sql: Sql, version: Version) -> bool:
        """Whether a version is kept."""
        return bool(
            sql.execute(
                "SELECT EXISTS (SELECT 1 FROM history_versions WHERE shelf = ? AND place = ? "
                "AND name = ? AND twin = ? AND stamp = ? AND digest = ?)",
                (*version.item, version.stamp, version.digest),
            ).get
        )

    def has_body(self, sql: Sql, name: bytes | None) -> bool:
        """Whether a body is kept."""
        return bool(
            sql.execute("SELECT EXISTS (SELECT 1 FROM history_bodies WHERE name = ?)", (name,)).get
        )

    def body(
        self, sql: Sql, version: Version | None, stored: Callable[[Sql, Version], bytes]
    ) -> bytes:
        """The body of a version: a kept one, or what is `stored`; b"" if it has none."""
        if version is None or version.body is None:
            return b""
        kept: bytes | None = sql.execute(
            "SELECT body FROM history_bodies WHERE name = ?", (version.body,)
        ).get
        return stored(sql, version) if kept is None else kept

    # The interface for `compact`, `rebuild` and `check`, as every index has it.

    def optimize(self, sql: Sql) -> None:
        """Drop what is too old or too much, completely."""
        newest = sql.execute("SELECT coalesce(max(stamp), 0) FROM history_changes").get
        while self._drop(sql, newest, 1000):
            pass

    def set_clock_back(self) -> None:
        """Give what a clock that was ahead has stamped the times right after the last right one.

        Copies of a file agree on that time, whenever each of them is mended, and what is changed
        afterwards is later. The order of all changes stays as it is.
        """
        limit = clock.latest(self.wall_clock())
        with self._file.writing() as sql:
            last = sql.execute(
                f"SELECT coalesce(max(stamp), 0) FROM ({_STAMPS}) WHERE stamp BETWEEN 0 AND ? "
                "AND NOT state",
                (limit,),
            ).get
            # Stamps below 0 are times so late that 64 bits do not hold them.
            wrong: list[Any] = sql.execute(
                f"SELECT DISTINCT stamp FROM ({_STAMPS}) WHERE stamp NOT BETWEEN 0 AND ? "
                "ORDER BY stamp < 0, stamp",
                (limit,),
            ).fetchall()
            sql.execute("CREATE TEMP TABLE mended (wrong INTEGER PRIMARY KEY, mended INTEGER)")
            sql.executemany(
                "INSERT INTO mended (wrong, mended) VALUES (?, ?)",
                ((stamp, last + place) for place, (stamp,) in enumerate(wrong, 1)),
            )
            # One after the other, because no two versions of an item may have one stamp meanwhile.
            sql.executemany(
                "UPDATE history_versions SET stamp = ? WHERE stamp = ?",
                ((last + place, stamp) for place, (stamp,) in enumerate(wrong, 1)),
            )
            for table, column in _STAMPED:
                if (table, column) != ("history_versions", "stamp"):
                    sql.execute(
                        f"UPDATE {table} SET {column} = (SELECT mended FROM mended "
                        f"WHERE wrong = {column}) WHERE {column} IN (SELECT wrong FROM mended)"
                    )
            sql.execute("DROP TABLE mended")
            sql.execute(f"UPDATE history_state SET clock = max(clock, ({_NEWEST}))")
            count_merge(sql)

    def rebuild(self, sql: Sql) -> None:
        """Delete versions that cannot be read, and count again what the others take."""
        sql.execute(
            "INSERT OR IGNORE INTO history_state (only, clock, kept, bytes, dropped) "
            "VALUES (1, 0, 1, 0, 0)"
        )
        sql.execute(f"DELETE FROM history_versions WHERE {_UNSOUND}")
        sql.execute(f"DELETE FROM history_bodies WHERE {_UNUSED}")
        sql.execute(f"UPDATE history_state SET bytes = ({_BYTES}), clock = max(clock, ({_NEWEST}))")

    def ahead(self, stamp: int) -> str:
        """What is to be said of a clock that shows a stamp which is too late."""
        now = clock.moment(clock.next_stamp(0, self.wall_clock()))
        return (
            f"the clock is ahead: it shows {clock.moment(stamp)[:19]}, that of this machine "
            f"{now[:19]}; if this machine's is right, `mcpvectordb rebuild --clock` on that file "
            "sets it back"
        )

    def problems(self, sql: Sql) -> Iterator[str]:
        """What is wrong with the history, one sentence each."""
        state = sql.execute("SELECT clock, bytes FROM history_state").fetchone()
        if state is None:
            yield "history_state: its row is missing"
            return
        newest, used = sql.execute(f"SELECT ({_NEWEST}), ({_BYTES})").get
        if newest > state[0]:
            yield "history_state: the clock is behind what was changed"
        first, last = sql.execute(f"SELECT min(stamp), max(stamp) FROM ({_STAMPS})").get
        if first < 0 or last > clock.latest(self.wall_clock()):
            yield f"history_state: {self.ahead(clock.LAST if first < 0 else last)}"
        if used != state[1]:
            yield f"history_state: the versions take {used} bytes, not {state[1]}"
        if count := sql.execute(f"SELECT count(*) FROM history_versions WHERE {_UNSOUND}").get:
            yield f"history_versions: {count} versions cannot be read"
        if count := sql.execute(f"SELECT count(*) FROM history_bodies WHERE {_UNUSED}").get:
            yield f"history_bodies: {count} belong to no version"


_UNSOUND = (
    "CASE WHEN fields IS NULL THEN body IS NOT NULL OR digest <> x'' WHEN NOT json_valid(fields) "
    "THEN 1 ELSE json_type(fields) <> 'object' OR length(digest) <> 16 END "
    f"OR stamp NOT BETWEEN 0 AND {clock.LAST} OR until < stamp "
    "OR body IS NOT NULL AND body NOT IN (SELECT name FROM history_bodies) "
    "AND NOT EXISTS (SELECT 1 FROM published_documents "
    "WHERE key = CAST(CAST(body AS TEXT) AS INTEGER) AND length(body) < 16)"
)
_UNUSED = "name NOT IN (SELECT body FROM history_versions WHERE body IS NOT NULL)"
_BYTES = (
    "SELECT coalesce((SELECT sum(octet_length(coalesce(fields, ''))) FROM history_versions), 0) "
    "+ coalesce((SELECT sum(octet_length(body)) FROM history_bodies), 0)"
)
# Every stamp of a file: where it is, and all of them, with whether it is of history_state.
_STAMPED = (
    *((table, "stamp") for table in ("documents", "contexts", "vectors", "stores", "libraries")),
    ("history_versions", "stamp"),
    ("history_versions", "until"),
    ("history_changes", "stamp"),
    ("history_state", "clock"),
    ("history_state", "dropped"),
)
_STAMPS = " UNION ALL ".join(
    f"SELECT {column} AS stamp, {int(table == 'history_state')} AS state FROM {table}"
    for table, column in _STAMPED
)
_NEWEST = "SELECT max({})".format(
    ", ".join(
        f"coalesce((SELECT max({column}) FROM {table}), 0)"
        for table, column in _STAMPED
        if table != "history_state"
    )
)


def count_merge(sql: Sql) -> None:
    """Note that there are versions whose stamps do not say when they came."""
    sql.execute(
        "INSERT INTO settings (name, value) VALUES (?, '1') ON CONFLICT (name) "
        "DO UPDATE SET value = CAST(value AS INTEGER) + 1",
        (MERGES,),
    )


def clear(sql: Sql) -> None:
    """Delete all versions and the log."""
    for table in ("history_versions", "history_bodies", "history_changes"):
        sql.execute(f"DELETE FROM {table}")
    sql.execute("UPDATE history_state SET bytes = 0, dropped = max(dropped, clock)")


def _versions(sql: Sql, chosen: str, bindings: Sequence[Any]) -> Iterator[Version]:
    return map(_version, sql.execute(f"{_SELECT} {chosen}", tuple(bindings)))


def _version(row: Sequence[Any]) -> Version:
    *item, stamp, fields, body = row
    try:
        value = None if fields is None else json_text.loads(fields)
        if value is not None and not isinstance(value, dict):
            raise ValueError("it is no object")
    except (ValueError, RecursionError) as error:
        raise Damaged(
            f"a version in the history is not what was written: {error}; run `mcpvectordb rebuild`"
        ) from None
    return Version(Item(*item), stamp, value, body)
