"""Keep libraries in step with the folders that they follow: what changed there, as it changes.

`watch` of the shell goes through the changes itself. A server has a thread for it, and of several
processes that serve a file on this machine one does the work: the one that has locked a file in
this user's data folder, which the system unlocks when the process ends in whatever way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mcpvectordb.errors import MCPVectorDBError, Unreadable
from mcpvectordb.history.log import acting_as
from mcpvectordb.ingest.folders import IGNORE_FILES
from mcpvectordb.storage.lock import locked

if TYPE_CHECKING:
    from watchfiles import Change

# A folder is synced when nothing changed in it for QUIET_MS, or after LONGEST_MS of changes.
QUIET_MS, LONGEST_MS = 500, 5_000
# Seconds between two syncs without a change: the system may drop change events.
FULL_SYNC_INTERVAL = 300.0
# Seconds between looks whether a library or folder was added or is gone, and whether the process
# that follows the folders has ended.
LOOK_SECONDS = 15.0
CLOSE_SECONDS = 2.0
"""How long `close` waits for the sync in progress; the next one finishes what it left."""

KEPT, ELSEWHERE = "kept in step", "kept in step by another process"
GONE = "which is gone; nothing was removed"

log = logging.getLogger("mcpvectordb")


def changes(
    roots: Mapping[str, Path], database: Path, stop: threading.Event | None = None
) -> Iterator[list[str]]:
    """Lists of libraries to sync: those whose folders changed; all at first and at intervals.

    An empty list comes every half second in which nothing changes. Raises Unreadable.
    """
    from watchfiles import watch

    def matters(_: Change, path: str) -> bool:
        """Whether a change is neither of a hidden file nor of the database itself."""
        inside = [
            Path(path).relative_to(root).parts
            for root in roots.values()
            if Path(path).is_relative_to(root)
        ]
        hidden = all(
            any(part.startswith(".") and part not in IGNORE_FILES for part in parts)
            for parts in inside
        )
        return not hidden and not path.startswith(str(database))

    # Due at once, but only after the watch has started: no change can fall between the two.
    due = 0.0
    try:
        for found in watch(
            *roots.values(),
            watch_filter=matters,
            debounce=LONGEST_MS,
            step=QUIET_MS,
            rust_timeout=QUIET_MS,
            yield_on_timeout=True,
            stop_event=stop,
            ignore_permission_denied=True,
        ):
            if found:
                yield [
                    name
                    for name, root in roots.items()
                    if any(Path(path).is_relative_to(root) for _, path in found)
                ]
            elif time.monotonic() >= due:
                due = time.monotonic() + FULL_SYNC_INTERVAL
                yield list(roots)
            else:
                yield []
    except (OSError, RuntimeError) as error:
        raise Unreadable(
            f"the folders cannot be watched: {error}; run `sync` regularly, or set "
            "WATCHFILES_FORCE_POLLING=1"
        ) from None


class FolderFollower:
    """A daemon thread that syncs libraries when their folders change, until `close`.

    roots   returns the confirmed folders of libraries, by name; those that exist are watched
    sync    updates one library, without embedding anything
    state   what is known of each library: `KEPT`, `ELSEWHERE`, `GONE` or an error
    """

    def __init__(
        self,
        database: Path,
        roots: Callable[[], dict[str, Path]],
        sync: Callable[[str], object],
        *,
        delay: float,
        look: float = LOOK_SECONDS,
    ) -> None:
        self.state: dict[str, str] = {}
        self._database, self._roots, self._sync, self._look = database, roots, sync, look
        self._delay, self._stop = delay, threading.Event()
        self._thread = threading.Thread(target=self._run, name="mcpvectordb-follow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, or leave a sync that takes longer to the end of the process."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        lock = None
        wait = self._delay
        while not self._stop.wait(wait):
            wait = self._look
            try:
                if not (roots := self._roots()):
                    self.state = {}
                    continue
                lock = lock or locked(self._database, "following")
                if lock is None:
                    self.state = dict.fromkeys(roots, ELSEWHERE)
                    continue
                self._follow({name: root for name, root in roots.items() if root.is_dir()}, roots)
                wait = 0.0
            except MCPVectorDBError as error:  # the file is busy, closed or gone
                if not self._stop.is_set():
                    log.warning("folders are not followed: %s", error)
            except Exception:
                log.exception("folders are not followed")
        if lock is not None:
            lock.close()

    def _follow(self, watched: dict[str, Path], roots: dict[str, Path]) -> None:
        """Sync what changes, until there are other libraries or folders to watch."""
        gone = dict.fromkeys(roots.keys() - watched.keys(), GONE)
        self.state = dict.fromkeys(watched, KEPT) | gone
        if not watched:
            self._stop.wait(self._look)
            return
        looked = time.monotonic()
        for changed in changes(watched, self._database, self._stop):
            for name in changed:
                self._update(name)
            if time.monotonic() >= looked + self._look:
                looked, now = time.monotonic(), self._roots()
                if {name: root for name, root in now.items() if root.is_dir()} != watched:
                    return
                if now != roots:
                    return

    def _update(self, name: str) -> None:
        try:
            with acting_as("following"):
                self._sync(name)
            self.state[name] = KEPT
        except MCPVectorDBError as error:
            self.state[name] = str(error)
            if not self._stop.is_set():
                log.warning("%s was not synced: %s", name, error)
