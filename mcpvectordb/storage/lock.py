"""Work on a file that one process of this machine does for all of them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import IO

from mcpvectordb.config import Config


def machine_name(database: Path) -> str:
    """What stands for a file, by its path, in this user's data folder."""
    return hashlib.sha256(os.fsencode(os.path.realpath(database))).hexdigest()


def locked(database: Path, work: str) -> IO[bytes] | None:
    """A file that no other process of this machine has locked for this work; None if one has.

    It lies in this user's data folder, in a folder named after the work, and is locked as long as
    it is open: the system unlocks it when the process ends in whatever way.
    """
    if str(database) == ":memory:":
        return open(os.devnull, "rb")  # noqa: PTH123 - nobody else can have it
    # By what it is, not by its name: systems that take letters of either case have many for it.
    found = database.stat()
    key = hashlib.sha256(f"{found.st_dev}:{found.st_ino}".encode()).hexdigest()
    path = Config.data_folder() / work / f"{key}.lock"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = path.open("ab")
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file
