"""Who may reach a database from elsewhere: its passphrase, OAuth clients and their tokens.

They are in a file of their own in the data folder, for its owner only, and never in the database:
what is copied, merged, exported or published takes none of them along, and a file that comes from
others brings none. Tokens are random and kept as SHA-256, the passphrase as scrypt. Each call
opens the file anew, so that processes see at once what others have revoked.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import apsw

from mcpvectordb.config import Config
from mcpvectordb.errors import (
    FetchFailed,
    IngestError,
    InvalidInput,
    NewerFile,
    NotFound,
    Refused,
    TooLarge,
    Unwritable,
)
from mcpvectordb.ingest.urls import fetch
from mcpvectordb.records import Record
from mcpvectordb.storage.sqlite_errors import ours

SHORTEST_PASSPHRASE = 12
CODE_SECONDS = 60
REFRESH_SECONDS = 30 * 86_400
MOST_UNKNOWN = 100
"""Clients that have registered and that nobody has let in; the oldest are dropped beyond that."""
MOST_DOCUMENT_BYTES = 20_000
FREE_ATTEMPTS, LONGEST_WAIT = 5, 900
"""Wrong passphrases without a wait, and the longest wait in seconds; it doubles from 30 on."""

_VERSION = 1
_SCHEMA = """
CREATE TABLE passphrase (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    salt BLOB NOT NULL, work INTEGER NOT NULL, hash BLOB NOT NULL,
    wrong INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE clients (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, about TEXT NOT NULL,
    let_in INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE consents (
    id INTEGER PRIMARY KEY AUTOINCREMENT, client TEXT NOT NULL REFERENCES clients (id),
    scopes TEXT NOT NULL, resource TEXT NOT NULL, given INTEGER NOT NULL, used INTEGER NOT NULL
) STRICT;
CREATE TABLE tokens (
    hash BLOB PRIMARY KEY, kind TEXT NOT NULL, scopes TEXT NOT NULL, details TEXT NOT NULL,
    consent INTEGER NOT NULL REFERENCES consents (id) ON DELETE CASCADE,
    expires INTEGER NOT NULL, used INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX tokens_of_consent ON tokens (consent);
"""


class ConnectedClient(Record):
    """A client that was let in: what it may (`scopes`), and where it says that it is.

    `host` is that of a client whose id is its address, otherwise that of where it gets its answer;
    `last_at` is when it got its last token.
    """

    id: int
    name: str
    host: str
    scopes: tuple[str, ...]
    resource: str
    created_at: str
    last_at: str


class Token(NamedTuple):
    """A code or token that is known here, and whose consent was not revoked.

    details  what `consent` was given for a code
    """

    consent: int
    client: str
    resource: str
    scopes: list[str]
    expires: int
    used: bool
    details: Any


class Access:
    """The clients that may reach one database, by its path or URL, and the passphrase for more.

    `config` says how the documents of clients are fetched, `work` what a guess of the passphrase
    costs (scrypt's N).
    """

    ACCESS_SECONDS = 3_600

    def __init__(
        self,
        database: Path | str,
        *,
        config: Config | None = None,
        folder: Path | None = None,
        clock: Callable[[], float] = time.time,
        work: int = 2**15,
    ) -> None:
        if str(database) == ":memory:":
            raise InvalidInput("a database in memory has no clients elsewhere: name a file")
        if isinstance(database, Path):
            place = str(database.expanduser().resolve())
        else:  # a URL, whose password may change
            place = re.sub(r"(?<=//)([^:/@]*):[^@]*@", r"\1@", database)
        key = hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()
        self.path = (folder or Config.data_folder()) / "access" / f"{key}.db"
        self._clock, self._work = clock, work
        self.config = replace(
            config or Config(),
            max_source_bytes=MOST_DOCUMENT_BYTES,
            fetch_timeout=5,
            host_interval=0,
        )

    # --- the passphrase

    def has_passphrase(self) -> bool:
        """Whether one was set."""
        with self._reading() as sql:
            return sql is not None and bool(sql.execute("SELECT 1 FROM passphrase").fetchall())

    def set_passphrase(self, passphrase: str) -> None:
        """Set or replace it; clients that were let in stay so."""
        text, salt = _normal(passphrase), secrets.token_bytes(16)
        if not SHORTEST_PASSPHRASE <= len(text) <= 1_000:
            raise InvalidInput(
                f"a passphrase has {SHORTEST_PASSPHRASE} to 1,000 characters, this one has "
                f"{len(text)}: four random words are good"
            )
        with self._writing() as sql:
            sql.execute(
                "REPLACE INTO passphrase (one, salt, work, hash) VALUES (1, ?, ?, ?)",
                (salt, self._work, _slow(text, salt, self._work)),
            )

    def check_passphrase(self, passphrase: str) -> None:
        """Raise InvalidInput unless it is the one; after some wrong ones, attempts have to wait.

        An attempt counts before it is looked at, so that many at once are no way around this.
        """
        now = self._clock()
        with self._writing() as sql:
            row: Any = sql.execute(
                "SELECT salt, work, hash, wrong, next FROM passphrase"
            ).fetchone()
            if row is None:
                raise InvalidInput("no passphrase is set: run `mcpvectordb access passphrase`")
            salt, work, expected, wrong, following = row
            if now < following:
                raise InvalidInput(
                    f"too many wrong passphrases: try again in {int(following - now) + 1} seconds"
                )
            beyond = wrong + 1 - FREE_ATTEMPTS
            wait = min(LONGEST_WAIT, 30 << min(beyond, 10)) if beyond >= 0 else 0
            sql.execute("UPDATE passphrase SET wrong = wrong + 1, next = ?", (int(now) + wait,))
        if not hmac.compare_digest(_slow(_normal(passphrase[:1_000]), salt, work), expected):
            raise InvalidInput("this is not the passphrase")
        with self._writing() as sql:
            sql.execute("UPDATE passphrase SET wrong = 0, next = 0")

    # --- clients

    def register(self, id: str, about: dict[str, Any]) -> None:
        """Keep what a client says of itself, until too many others have registered after it."""
        with self._writing() as sql:
            sql.execute("INSERT INTO clients (id, about) VALUES (?, ?)", (id, json.dumps(about)))
            sql.execute(
                "DELETE FROM clients WHERE let_in = 0 AND number NOT IN (SELECT number FROM "
                "clients WHERE let_in = 0 ORDER BY number DESC LIMIT ?)",
                (MOST_UNKNOWN,),
            )

    def client(self, id: str) -> dict[str, Any] | None:
        """What a client has said of itself when it registered or was let in."""
        with self._reading() as sql:
            rows = sql.execute("SELECT about FROM clients WHERE id = ?", (id,)) if sql else ()
            return next((json.loads(row[0]) for row in rows), None)

    def client_document(self, url: str) -> dict[str, Any]:
        """The document in which a client whose id is a URL describes itself, fetched from there."""
        parts = urlsplit(url)
        dotted = any(each in (".", "..") for each in parts.path.split("/"))
        if parts.scheme != "https" or len(parts.path) < 2 or "#" in url or "@" in url or dotted:
            raise Refused(f"{url[:200]!r} is not the address of a client: https://HOST/PATH")
        try:
            found = fetch(url, config=self.config, redirects=0)
        except IngestError as error:
            # No more is said of it, because strangers ask: nothing of what lies in this network.
            why = {Refused: "is not public", TooLarge: "is too large"}.get(type(error), "failed")
            raise FetchFailed(f"the document at {parts.hostname} {why}") from error
        try:
            about = json.loads(found.raw if found else b"")
        except (ValueError, RecursionError):
            about = None
        if not isinstance(about, dict) or about.get("client_id") != url:
            raise FetchFailed(
                f"what {parts.hostname} describes there is not the client {url[:200]!r}"
            )
        return about

    def connected(self) -> list[ConnectedClient]:
        """The clients that were let in and can still come, the last used first."""
        with self._reading() as sql:
            rows = (
                sql.execute(
                    "SELECT c.id, c.client, about, c.scopes, resource, given, c.used FROM consents "
                    "c JOIN clients k ON k.id = c.client WHERE EXISTS (SELECT 1 FROM tokens t "
                    "WHERE consent = c.id AND kind = 'refresh' AND t.used = 0 AND expires > ?) "
                    "ORDER BY c.used DESC, c.id DESC",
                    (self._clock(),),
                )
                if sql
                else ()
            )
            return [_connected(row) for row in rows]

    # --- consents and tokens

    def consent(
        self, client: str, about: dict[str, Any], scopes: Sequence[str], resource: str, details: Any
    ) -> str:
        """Let a client in: the code for which it gets its tokens."""
        now = int(self._clock())
        with self._writing() as sql:
            _forget_expired(sql, now)
            sql.execute(
                "INSERT INTO clients (id, about, let_in) VALUES (?1, ?2, 1) ON CONFLICT (id) DO "
                "UPDATE SET about = ?2, let_in = 1",
                (client, json.dumps(about)),
            )
            sql.execute(
                "INSERT INTO consents (client, scopes, resource, given, used) "
                "VALUES (?, ?, ?, ?, ?)",
                (client, " ".join(scopes), resource, now, now),
            )
            consent = sql.last_insert_rowid()
            return _issued(sql, "code", consent, scopes, now + CODE_SECONDS, details)

    def token(self, token: str, kind: str) -> Token | None:
        """What is known of a token of a kind (code, access, refresh), expired or used, too."""
        with self._reading() as sql:
            return _found(sql, token, kind) if sql else None

    def exchange(self, token: str, kind: str, scopes: Sequence[str]) -> tuple[str, str] | None:
        """An access and a refresh token for a code or refresh token, which is used up by that.

        One that comes again was stolen, or its successor was: the consent is revoked, None.
        """
        now = int(self._clock())
        with self._writing() as sql:
            found = _found(sql, token, kind)
            if found is None or (found.expires <= now and not found.used):
                return None
            if found.used:
                sql.execute("DELETE FROM consents WHERE id = ?", (found.consent,))
                return None
            _forget_expired(sql, now)
            sql.execute("UPDATE tokens SET used = 1 WHERE hash = ?", (_hash(token),))
            sql.execute("UPDATE consents SET used = ? WHERE id = ?", (now, found.consent))
            # What the consent allows stays with the refresh token, however little was asked for.
            refresh = _issued(sql, "refresh", found.consent, found.scopes, now + REFRESH_SECONDS)
            access = _issued(sql, "access", found.consent, scopes, now + self.ACCESS_SECONDS)
            return access, refresh

    def revoke(self, *ids: int) -> None:
        """Take consents back, with all their tokens; raises NotFound if there is one missing."""
        with self._writing() as sql:
            for id in ids:
                sql.execute("DELETE FROM consents WHERE id = ?", (id,))
                if not sql.changes():
                    raise NotFound(f"no client has the id {id}: see `mcpvectordb access list`")

    # --- the file

    @contextlib.contextmanager
    def _reading(self) -> Iterator[apsw.Connection | None]:
        """A connection; None without a file."""
        if not self.path.exists():
            yield None
            return
        with self._opened() as sql:
            yield sql if sql.pragma("user_version") else None  # another process is making it

    @contextlib.contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        """A connection in a transaction, in a file that is made for its owner if need be."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError as error:
            raise Unwritable(f"{self.path} cannot be made: {error.strerror}") from None
        with self._opened() as sql:
            sql.execute("BEGIN IMMEDIATE")
            try:
                if not sql.pragma("user_version"):
                    sql.execute(f"{_SCHEMA} PRAGMA user_version = {_VERSION}")
                yield sql
            except BaseException:
                sql.execute("ROLLBACK")
                raise
            sql.execute("COMMIT")

    @contextlib.contextmanager
    def _opened(self) -> Iterator[apsw.Connection]:
        if os.name == "posix" and self.path.stat().st_mode & 0o077:
            raise InvalidInput(f"{self.path} can be read by others; run: chmod 600 {self.path}")
        try:
            with contextlib.closing(
                apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
            ) as sql:
                sql.set_busy_timeout(5_000)
                sql.execute("PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF")
                if sql.pragma("user_version") > _VERSION:
                    raise NewerFile(f"{self.path} was written by a newer version of mcpvectordb")
                yield sql
        except apsw.Error as error:
            raise ours(error, self.path) or error from error


def _answered_at(about: dict[str, Any]) -> str:
    """The first host that a client gets its answers at, or scheme of a program on the device."""
    parts = urlsplit(str(next(iter(about.get("redirect_uris") or ()), "")))
    return parts.hostname or "" if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def _connected(row: Sequence[Any]) -> ConnectedClient:
    id, client, about, scopes, resource, given, used = row
    told = json.loads(about)
    return ConnectedClient(
        id=id,
        name=str(told.get("client_name") or client),
        host=urlsplit(client).hostname or _answered_at(told),
        scopes=tuple(scopes.split()),
        resource=resource,
        created_at=datetime.fromtimestamp(given, UTC).isoformat(),
        last_at=datetime.fromtimestamp(used, UTC).isoformat(),
    )


def _normal(passphrase: str) -> str:
    """The passphrase as every keyboard writes it; phones like to add a space at its end."""
    return unicodedata.normalize("NFC", passphrase).strip()


def _slow(text: str, salt: bytes, work: int) -> bytes:
    """A hash that takes 32 MB and a quarter of a second, against guessing from a stolen file."""
    given = text.encode("utf-8", "replace")
    return hashlib.scrypt(given, salt=salt, n=work, r=8, p=3, maxmem=2**28)


def _hash(token: str) -> bytes:
    # Enough for what has 256 random bits. It is looked up by its hash, whose bits nobody can
    # choose, so how long that takes says nothing of a token.
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _issued(
    sql: apsw.Connection,
    kind: str,
    consent: int,
    scopes: Sequence[str],
    expires: int,
    details: Any = None,
) -> str:
    token = secrets.token_urlsafe(32)
    sql.execute(
        "INSERT INTO tokens (hash, kind, scopes, details, consent, expires) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (_hash(token), kind, " ".join(scopes), json.dumps(details), consent, expires),
    )
    return token


def _found(sql: apsw.Connection, token: str, kind: str) -> Token | None:
    rows: Any = sql.execute(
        "SELECT c.id, c.client, c.resource, t.scopes, t.expires, t.used, t.details FROM tokens t "
        "JOIN consents c ON c.id = t.consent WHERE t.hash = ? AND t.kind = ?",
        (_hash(token), kind),
    )
    for id, client, resource, scopes, expires, used, details in rows:
        return Token(id, client, resource, scopes.split(), expires, bool(used), json.loads(details))
    return None


def _forget_expired(sql: apsw.Connection, now: int) -> None:
    """Drop what can no longer be used; for a day it is still known that a code was used."""
    sql.execute("DELETE FROM tokens WHERE expires < ?", (now - 86_400,))
    sql.execute("DELETE FROM consents WHERE id NOT IN (SELECT consent FROM tokens)")
