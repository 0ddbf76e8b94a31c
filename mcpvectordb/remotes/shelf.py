"""The remotes of a file, and the thread of a server that exchanges with them by itself."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mcpvectordb.errors import (
    Busy,
    Damaged,
    InvalidInput,
    MCPVectorDBError,
    NotFound,
    ReadOnly,
    Unwritable,
    quoted,
)
from mcpvectordb.history.log import acting_as
from mcpvectordb.history.versions import Item, VersionedShelf
from mcpvectordb.index.chunks import active_model
from mcpvectordb.records import ProgressCallback, counted_passages
from mcpvectordb.remotes import state
from mcpvectordb.remotes.records import Exchanged, Remote
from mcpvectordb.remotes.state import GONE, RemoteRow, RemoteState
from mcpvectordb.remotes.targets import NAME, Target, target_of
from mcpvectordb.storage.lock import locked
from mcpvectordb.store import OpenStore

# A server exchanges when nothing was written for QUIET, or after LONGEST of writing; it looks every
# LOOK seconds whether anything was.
QUIET, LONGEST, LOOK = 5.0, 60.0, 2.0
AFTER_PROBLEM = 300.0  # what was refused is not read again all the time
CLOSE_SECONDS = 2.0
_LONGEST_PASSPHRASE = 10_000

log = logging.getLogger("mcpvectordb")


class Remotes:
    """Places through which copies of a file exchange what changed; see `Database.remotes`.

    What is added here belongs to this machine and the place of the file: it is neither in the file
    nor in copies of it.
    """

    def __init__(
        self,
        store: OpenStore,
        shelves: Callable[[], Sequence[VersionedShelf]],
        forget: Callable[[Mapping[Item, int]], object],
        clean: Callable[[], object],
    ) -> None:
        self._store, self._shelves, self._forget, self._clean = store, shelves, forget, clean
        self._state = RemoteState(store.file.path)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def add(
        self,
        name: str,
        target: str | os.PathLike[str],
        *,
        encrypted: bool = False,
        passphrase: str = "",
        passphrase_file: str | os.PathLike[str] = "",
    ) -> Remote:
        """Add a remote; nothing is exchanged before `sync`, or a server does it.

        target      a folder that some program synchronises, git+URL of a repository, or host:path
                    of a folder that is reached by ssh
        encrypted   whoever sees the target reads nothing; needs the extra "encryption". The
                    `passphrase` is not stored: it is given to `sync`, too, or is in
                    `passphrase_file`, of which the path is stored, or Config.remote_passphrase

        Raises InvalidInput for a target or passphrase with which nothing could be exchanged, and
        Unreachable.
        """
        from mcpvectordb.remotes.bundle import SALT, verifier

        self._check_writable()
        if not re.fullmatch(r"[\w-][\w.-]{0,49}", name):
            raise InvalidInput(f"{quoted(name)} is no name: use letters, digits, - and _")
        file = str(Path(passphrase_file).expanduser().absolute()) if passphrase_file else ""
        place = os.fspath(target)
        made = target_of(place, self._cache(name))
        scheme = "git+" if place.startswith("git+") else ""
        local = place.removeprefix(scheme)
        if ":" not in local.partition("/")[0] and Path(local).expanduser().is_dir():
            place = scheme + str(Path(local).expanduser().absolute())
        salt, writer = os.urandom(SALT), uuid.uuid4().hex
        row = RemoteRow(
            name, place, int(encrypted or bool(file)), file, writer, salt, "", "", "", -1, 0, "", ""
        )
        secret = self._passphrase(row, passphrase)
        row = row._replace(verifier=verifier(secret, salt))
        _check_encryption(made, secret)
        with self._state.sql() as sql:
            if any(each.name == name for each in state.remotes(sql)):
                raise InvalidInput(f"there is a remote {quoted(name)} already: remove it first")
            state.new_remote(sql, row)
        return next(each for each in self.browse() if each.name == name)

    def remove(self, name: str) -> None:
        """Forget a remote; what lies there stays, and other machines go on with it."""
        row = self._find(name)
        with self._locked():
            _remove_folder(self._cache(name))
            with self._state.sql() as sql:
                state.remove(sql, row)

    def browse(self) -> list[Remote]:
        """All remotes, by their names."""
        if not self._state.exists:
            return []
        with self._state.sql(write=False) as sql:
            rows = [(each, state.bundles(sql, each.name)) for each in state.remotes(sql)]
        return [
            Remote(
                name=row.name,
                target=row.target,
                encrypted=bool(row.encrypted),
                passphrase_file=row.passphrase_file,
                bundles=sum(each.size != GONE for each in bundles),
                machines=tuple(
                    sorted({each.machine for each in bundles if each.writer != row.writer})
                ),
                exchanged_at=row.exchanged_at,
                problem=row.problem,
            )
            for row, bundles in rows
        ]

    def sync(
        self,
        name: str | None = None,
        *,
        passphrase: str = "",
        progress: ProgressCallback | None = None,
    ) -> list[Exchanged]:
        """Exchange with one remote, or all: merge what others have sent, send what they have not.

        Changes are merged as `Database.merge` merges them, each bundle in one transaction. Of all
        remotes, one that cannot be reached is no error but its `problem`. After an interruption the
        next call goes on. Raises Busy while another process of this machine exchanges.
        """
        self._check_writable()
        rows = [self._find(name)] if name is not None else self._rows()
        with self._locked():
            return [self._sync(row, passphrase, progress, one=name is not None) for row in rows]

    def _sync(
        self, row: RemoteRow, passphrase: str, progress: ProgressCallback | None, *, one: bool
    ) -> Exchanged:
        # A server that has no remote starts without these.
        from mcpvectordb.remotes.bundle import verifier
        from mcpvectordb.remotes.exchange import Exchange, ExchangedFile

        try:
            secret = self._passphrase(row, passphrase)
            if verifier(secret, row.salt) != row.verifier:
                raise InvalidInput(
                    f"this is not the passphrase with which the remote {row.name} was added"
                )
            file = ExchangedFile(self._store, self._shelves(), self._forget)
            done = Exchange(file, self._state, row, self._target(row), secret).run(progress)
        except MCPVectorDBError as error:
            with self._state.sql() as sql:
                problem = "UPDATE remotes SET problem = ? WHERE name = ?"
                sql.execute(problem, (str(error)[:1000], row.name))
            if one:
                raise
            return Exchanged(name=row.name, problem=str(error))
        if done.received:
            self._clean()
            with self._store.file.reading(limited=False) as sql:
                model = active_model(sql)
                waiting = self._store.encoder.pending(sql, model) if model else 0
            if waiting:
                note = f"waiting for their embeddings: {counted_passages(waiting)}"
                done = replace(done, note="; ".join(filter(None, (done.note, note))))
        return done

    def forgotten(self, items: Mapping[Item, int], *, done: bool) -> None:
        """Note that items were forgotten up to these stamps, so that other machines hear of it."""
        if self._state.exists and not self._store.file.memory:
            with self._state.sql() as sql:
                gone = {state.digest_of(item): stamp for item, stamp in items.items()}
                state.forget(sql, gone, done=done)

    def _check_writable(self) -> None:
        self._store.file.require_file("exchanging")
        if self._store.file.memory:
            raise InvalidInput("a database in memory has no place that remotes could belong to")
        if self._store.file.read_only:
            raise ReadOnly(f"{self._store.file.place} is open for reading only")

    def _rows(self) -> list[RemoteRow]:
        if not self._state.exists:
            return []
        with self._state.sql(write=False) as sql:
            return state.remotes(sql)

    def _find(self, name: str) -> RemoteRow:
        rows = self._rows()
        for each in rows:
            if each.name == name:
                return each
        known = ", ".join(each.name for each in rows) or "none"
        raise NotFound(f"there is no remote {quoted(name)}; known are: {known}")

    def _target(self, row: RemoteRow) -> Target:
        return target_of(row.target, self._cache(row.name))

    def _cache(self, name: str) -> Path:
        return self._state.folder / "cache" / name

    def _passphrase(self, row: RemoteRow, given: str) -> str:
        """The passphrase of a remote: the given one, that of its file, or the configured one."""
        if not row.encrypted:
            return ""
        if not given and row.passphrase_file:
            given = _passphrase_in(Path(row.passphrase_file))
        given = given or self._store.config.remote_passphrase
        if not given:
            raise InvalidInput(
                f"the remote {row.name} is encrypted: set MCPVECTORDB_REMOTE_PASSPHRASE, or add it "
                "with a file that has its passphrase"
            )
        return given

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = locked(self._store.file.path, "exchanging")
        if lock is None:
            raise Busy("another process of this machine exchanges with the remotes: try again")
        with lock:
            yield

    # In a server.

    def follow(self, *, delay: float = 0.0) -> None:
        """Exchange in a thread, until the database is closed: after writes, and now and then.

        Nothing is done while there is no remote. Of several processes of this machine one at a time
        exchanges. A file that is open for reading only stays as it is.
        """
        file = self._store.file
        if self._thread is None and not file.read_only and not file.memory:
            self._thread = threading.Thread(
                target=self._run, args=(delay,), name="mcpvectordb-remotes", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """End the thread, or leave an exchange that takes longer to the end of the process."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_SECONDS)

    def _run(self, delay: float) -> None:
        lock = None
        due = dict[str, float]()  # when each remote is looked at again
        seen, written, last = -1, 0.0, 0.0  # the file's version, and the first and last write
        while not self._stop.wait(delay):
            delay, now = LOOK, time.monotonic()
            try:
                if not self._state.exists:
                    continue
                lock = lock or locked(self._store.file.path, "remotes")
                if lock is None:  # another process does it
                    continue
                if (version := self._store.file.version()) != seen:
                    seen, written, last = version, written or now, now
                if written and (now - last >= QUIET or now - written >= LONGEST):
                    due, written = {}, 0.0
                for row in self._rows():
                    if now >= due.get(row.name, 0.0):
                        due[row.name] = now + self._exchange(row)
            except MCPVectorDBError as error:
                delay = AFTER_PROBLEM
                if not self._stop.is_set():
                    log.warning("nothing is exchanged with remotes: %s", error)
            except Exception:
                delay = AFTER_PROBLEM
                log.exception("nothing is exchanged with remotes")
        if lock is not None:
            lock.close()

    def _exchange(self, row: RemoteRow) -> float:
        """Exchange with a remote; the seconds until the next look at it."""
        try:
            pause = self._target(row).pause
            with acting_as(f"remote {row.name}"), self._locked():
                done = self._sync(row, "", None, one=False)
        except Busy:  # somebody exchanges in the shell
            return LOOK
        if done.problem and done.problem != row.problem:
            log.warning("%s: %s", row.name, done.problem)
        if done.received and self._store.encoder.background is not None:
            self._store.encoder.background.ask()
        return max(pause, AFTER_PROBLEM) if done.problem or done.refused else pause


def _check_encryption(target: Target, passphrase: str) -> None:
    """Raise InvalidInput if what lies there is encrypted otherwise; the smallest bundle tells."""
    from mcpvectordb.remotes.bundle import Bundle

    stored = {each: size for each, size in target.names().items() if NAME.fullmatch(each)}
    for name in sorted(stored, key=lambda each: stored[each]):
        try:
            Bundle.decode(name, target.read(name), passphrase)
        except (Damaged, OSError):  # one that is half-written says nothing
            continue
        except InvalidInput as error:
            raise InvalidInput(f"{name}: {error}") from None
        return


def _remove_folder(folder: Path) -> None:
    """Remove what git has fetched; it makes its files read-only, which keeps Windows from it."""
    try:
        for each in folder.rglob("*"):
            each.chmod(0o700)
        if folder.exists():
            shutil.rmtree(folder)
    except OSError as error:
        raise Unwritable(f"the folder {folder} cannot be removed: {error.strerror}") from None


def _passphrase_in(path: Path) -> str:
    """The first line of a file that others must not read."""
    try:
        with path.open("rb") as file:
            if os.name == "posix" and stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise InvalidInput(f"others may read {path}: run `chmod 600` on it")
            said = file.read(_LONGEST_PASSPHRASE).decode()
    except OSError as error:
        raise InvalidInput(
            f"{path}, which has the passphrase, cannot be read: {error.strerror}"
        ) from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} has no passphrase: it is no text") from None
    if not (passphrase := said.partition("\n")[0].strip("\r")):
        raise InvalidInput(f"{path} has no passphrase: its first line is empty")
    return passphrase
