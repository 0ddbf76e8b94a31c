"""What ties a file to its log, the `-wal` beside it.

SQLite applies any sound log to whatever file it lies beside: the salts in a log tie its frames to
each other, but nothing in the file says which log is its own. So a file that was put in the place
of another one would get that one's pages.

Here both carry a tie: 24 random bits above the version of the format, in the header field that
SQLite leaves to applications (`PRAGMA user_version`). A new one is written into the file's header
before the first transaction of an empty log, and every transaction writes page 1 with it into the
log. A copy that was made while the log was empty has an older tie than any log that came later.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import apsw

HEADER_BYTES = 100
MARK_PLACE = 60  # of user_version in the header of page 1
_BITS = 8  # of user_version for the version of the format; the others are the tie
_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_LOG_HEADER, _FRAME_HEADER = 32, 24
MOST_ASIDE = 50  # logs that are looked for; folders may have very many files


class Mark(NamedTuple):
    """SQLite's user_version of a file of ours, taken apart."""

    version: int
    tie: int

    @classmethod
    def of(cls, user_version: int) -> Mark:
        """The mark that is stored as this number."""
        return cls(user_version & (1 << _BITS) - 1, (user_version & 0xFFFFFFFF) >> _BITS)

    @classmethod
    def in_header(cls, header: bytes) -> Mark:
        """The mark in the header of page 1."""
        return cls.of(int.from_bytes(header[MARK_PLACE : MARK_PLACE + 4], "big"))

    @property
    def stored(self) -> bytes:
        """The bytes in the header."""
        return (self.tie << _BITS | self.version).to_bytes(4, "big")

    @property
    def user_version(self) -> int:
        """The number for `PRAGMA user_version`, which is a signed one."""
        return int.from_bytes(self.stored, "big", signed=True)

    def retied(self) -> Mark:
        """The mark with a new tie."""
        return self._replace(tie=1 + secrets.randbelow((1 << 32 - _BITS) - 1))


def log_of(path: Path) -> Path:
    """The path of the log beside a file."""
    return Path(f"{path}-wal")


@contextlib.contextmanager
def raw_file(path: Path, *, writing: bool = False) -> Iterator[apsw.VFSFile]:
    """The bytes of a database file, through SQLite's own layer.

    Where files are locked by POSIX, closing any other descriptor of a file would take away the
    locks of all connections that this process has to it.
    """
    mode = apsw.SQLITE_OPEN_READWRITE if writing else apsw.SQLITE_OPEN_READONLY
    file = apsw.VFSFile("", str(path), [apsw.SQLITE_OPEN_MAIN_DB | mode, 0])
    try:
        yield file
    finally:
        file.xClose()


def is_foreign(file: apsw.VFSFile, log: Path) -> bool:
    """Whether the log has transactions that were not written on top of this file.

    The file is read again after the log: other processes may be writing both.
    """
    before = None
    while (header := file.xRead(HEADER_BYTES, 0)) != before:
        before, found = header, first_mark(log)
    # A file becomes one with a log before the log is written, so a copy (`copy_to`), which is none
    # until it is opened, has no log at all.
    return found is not None and (
        header[18:20] == b"\1\1" or found.tie != Mark.in_header(header).tie
    )


def first_mark(log: Path) -> Mark | None:
    """The mark in the first page 1 of a log, which all others in it share; None without one.

    Frames that no commit follows are no part of the log, nor are those with other salts than its
    header: they are left from the time before it began anew.
    """
    try:
        file = log.open("rb")
    except OSError:
        return None
    with file:
        header = file.read(_LOG_HEADER)
        if len(header) < _LOG_HEADER or header[:4] not in _MAGIC:
            return None
        size, found = int.from_bytes(header[8:12], "big"), None
        while len(frame := file.read(_FRAME_HEADER)) == _FRAME_HEADER:
            if frame[8:16] != header[16:24]:
                break
            page = file.read(HEADER_BYTES)
            if found is None and frame[:4] == b"\0\0\0\1" and len(page) == HEADER_BYTES:
                found = Mark.in_header(page)
            if found is not None and any(frame[4:8]):
                return found
            file.seek(size - HEADER_BYTES, 1)
    return None


def set_aside(log: Path) -> Path:
    """Rename a log so that SQLite does not find it, and remove its index; the new path."""
    Path(f"{str(log).removesuffix('-wal')}-shm").unlink(missing_ok=True)
    return log.rename(next(each for each in _places(log) if not each.exists()))


def logs_set_aside(path: Path) -> list[Path]:
    """The logs of other files that were set aside beside this one."""
    return [each for each in itertools.islice(_places(log_of(path)), MOST_ASIDE) if each.exists()]


def _places(log: Path) -> Iterator[Path]:
    return (Path(f"{log}-set-aside-{number}") for number in itertools.count(1))
