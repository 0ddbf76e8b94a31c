"""Failing disks, as SQLite sees them: without unsynced data, full, read-only, or slow."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import apsw
import pytest

from tests.support import ROOT
from tests.torture.support_torture import Operation, start, work

SECTOR = 512
NOBODY = 65_534


@dataclass(frozen=True)
class Event:
    """An operation on a file of the database; an "acknowledged" event belongs to no file."""

    kind: str  # write, truncate, sync, delete, acknowledged
    name: str = ""
    offset: int = 0
    data: bytes = b""


class Recorder(apsw.VFS):
    """The system's VFS with a list of everything that is written."""

    def __init__(self, base: str) -> None:
        self.events: list[Event] = []
        self.base = base
        super().__init__("torture-recorder", base, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return RecordedFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self.events.append(Event("delete", Path(filename).name))
        super().xDelete(filename, syncdir)


class RecordedFile(apsw.VFSFile):
    def __init__(
        self, disk: Recorder, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._disk = disk
        self._name = Path(
            name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        ).name
        super().__init__(disk.base, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.events.append(Event("write", self._name, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.events.append(Event("truncate", self._name, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._disk.events.append(Event("sync", self._name))


@contextmanager
def recorded() -> Iterator[Recorder]:
    """Record everything that SQLite writes within the block."""
    base = apsw.vfs_names()[0]
    recorder = Recorder(base)
    try:
        yield recorder
    finally:
        apsw.set_default_vfs(base)
        recorder.unregister()


@dataclass
class Stored:
    """A file on a disk: the synced bytes, and the later writes that may be lost."""

    sure: bytearray = field(default_factory=bytearray)
    since: list[Event] = field(default_factory=list)
    named: bool = False  # whether its name is sure to be in the folder


class Disk:
    """The contents of a disk after some events, and what a power cut leaves of them."""

    def __init__(self) -> None:
        self.files: dict[str, Stored] = {}
        self._deleted: dict[str, Stored] = {}  # not sure to be gone

    def happen(self, event: Event) -> None:
        """Apply an event."""
        if event.kind == "acknowledged":
            return
        if event.kind == "delete":
            if event.name in self.files:
                self._deleted[event.name] = self.files.pop(event.name)
            return
        stored = self.files.setdefault(event.name, Stored())
        if event.kind == "sync":
            for each in stored.since:
                _apply(stored.sure, each)
            stored.since.clear()
            if not stored.named:  # with the first sync of a new file SQLite syncs its folder
                stored.named = True
                self._deleted.clear()
        else:
            stored.since.append(event)

    def cut(self, folder: Path, rng: random.Random) -> None:
        """Write into a folder what is left after a power cut now."""
        survival = rng.choice([0.0, 0.5, 0.9, 1.0])
        for name, stored in self.files.items():
            if stored.named or stored.since:
                (folder / name).write_bytes(_left(stored, survival, rng))
        for name, stored in self._deleted.items():
            if name not in self.files and rng.random() < 0.5:
                (folder / name).write_bytes(_left(stored, survival, rng))


def _left(stored: Stored, survival: float, rng: random.Random) -> bytes:
    """The synced bytes with some of the later writes, some of them torn at a sector."""
    content = bytearray(stored.sure)
    for event in stored.since:
        if event.kind == "truncate":
            if rng.random() < survival:
                _apply(content, event)
            continue
        whole = rng.random() < 0.7
        for sector in range(0, len(event.data), SECTOR) if not whole else ():
            if rng.random() < survival:
                _apply(
                    content,
                    Event(
                        "write",
                        event.name,
                        event.offset + sector,
                        event.data[sector : sector + SECTOR],
                    ),
                )
        if whole and rng.random() < survival:
            _apply(content, event)
    return bytes(content)


def _apply(content: bytearray, event: Event) -> None:
    if event.kind == "truncate":
        del content[event.offset :]
        content.extend(bytes(event.offset - len(content)))
    else:
        if len(content) < event.offset:
            content.extend(bytes(event.offset - len(content)))
        content[event.offset : event.offset + len(event.data)] = event.data


def moments(events: Sequence[Event]) -> list[int]:
    """The positions right before and right after every sync, where the power may be cut."""
    return sorted(
        {
            place
            for number, event in enumerate(events)
            if event.kind == "sync"
            for place in (number, number + 1)
        }
    )


class SlowFile(apsw.VFSFile):
    """A file on a slow disk."""

    def __init__(
        self, base: str, name: str | apsw.URIFilename | None, flags: list[int], seconds: float
    ) -> None:
        self._seconds = seconds
        super().__init__(base, name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        time.sleep(self._seconds / 20)
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        time.sleep(self._seconds / 20)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        time.sleep(self._seconds)
        super().xSync(flags)

    def xLock(self, level: int) -> None:  # noqa: N802
        try:
            super().xLock(level)
        except apsw.IOError:
            # A reader cannot lock exclusively; SQLite ignores that, but apsw would raise it.
            raise apsw.BusyError from None


class Slow(apsw.VFS):
    """The system's VFS, with a delay for every sync and a shorter one for everything else."""

    def __init__(self, seconds: float) -> None:
        self._base, self._seconds = apsw.vfs_names()[0], seconds
        super().__init__("torture-slow", self._base, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return SlowFile(self._base, name, flags, self._seconds)


def write_slowly(
    path: Path,
    owner: str,
    seed: str,
    journal: Path,
    kinds: Mapping[str, tuple[int, Operation]],
    count: int,
) -> None:
    """What a child process does: work on a slow disk."""
    slow = Slow(0.02)
    work(path, owner, seed, journal, kinds, count)
    slow.unregister()


# Users and disks of the system.


def unprivileged(target: Callable[..., None], *arguments: object) -> None:
    """Run a function in a new folder as a user who is not root.

    Skips the test where no such user can run this Python.
    """
    if os.geteuid() == 0 and not all(map(_open_to_all, (ROOT, Path(sys.prefix)))):
        pytest.skip("only root may read this installation")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # where everybody may enter
        mine, theirs = Pipe(duplex=False)
        child = start(_as_nobody, target, Path(folder), arguments, theirs)
        theirs.close()
        wrong = mine.recv()
        child.join()
    if wrong:
        raise AssertionError(wrong)


def _open_to_all(folder: Path) -> bool:
    return all(each.stat().st_mode & 0o005 == 0o005 for each in (folder, *folder.parents))


def _as_nobody(
    target: Callable[..., None], folder: Path, arguments: Sequence[object], answer: Connection
) -> None:
    try:
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        os.environ["XDG_DATA_HOME"] = str(folder)  # where models are looked for
        target(folder, *arguments)
        answer.send("")
    except BaseException:
        answer.send(traceback.format_exc())


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """Mount a disk of so many megabytes at a folder; skips the test where this is not allowed."""
    folder.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def read_only_disk(folder: Path, *files: Path) -> Iterator[None]:
    """Mount a read-only disk with copies of these files at a folder."""
    with small_disk(folder, 64):
        for file in files:
            shutil.copy(file, folder)
        _mount("-o", "remount,ro", str(folder))
        yield


def _mount(*arguments: str) -> None:
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a disk")
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
