"""A file that appears complete or not at all: written beside its place, then put there.

Until then nothing is at the place, or what was there before. A file that exists is replaced only
on request, and a database that is open in some process never.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from mcpvectordb import errors
from mcpvectordb.storage.file import File

_SUFFIXES = ("", "-journal", "-wal", "-shm")
_STALE_SECONDS = 3600  # a file that is being made is written to all the time


@contextlib.contextmanager
def new_file(
    database: File, target: Path, *, overwrite: bool = False
) -> Iterator[tuple[Path, Path]]:
    """An empty file for the block to write, for its owner only; put in place when the block ends.

    The block gets its place, and the path at which it is written until then. Whoever writes to it
    calls `flush_to_disk` at the end. If the block raises, it is removed. `database` is a file that
    is never replaced.
    """
    target = target.expanduser().absolute()
    if overwrite:
        target = target.resolve()  # a link stays one
        _check_replaceable(database, target)
    elif target.exists():
        raise exists(target)
    if not target.parent.is_dir():
        raise errors.Unwritable(f"the folder {target.parent} does not exist: make it first")
    remove_stale_parts(target)
    part = part_of(target)
    try:
        create_private(part)
        yield target, part
        if overwrite:
            _check_replaceable(database, target)
            part.replace(target)
        else:
            _put_in_place(part, target)
        sync_folder(target.parent)
    except FileExistsError:
        raise exists(target) from None
    except OSError as error:
        if isinstance(error, errors.MCPVectorDBError):
            raise
        raise errors.Unwritable(f"{target} cannot be written: {error.strerror}") from error
    finally:
        # A disk that is read-only refuses to remove even what is not there.
        for suffix in _SUFFIXES:
            with contextlib.suppress(OSError):
                Path(f"{part}{suffix}").unlink()


def create_private(path: Path, content: bytes = b"") -> None:
    """Make a file for its owner only; raises FileExistsError."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(content)


def replace_private(path: Path, content: bytes) -> None:
    """Write a small file for its owner only, as a whole or not at all."""
    part = part_of(path)
    try:
        create_private(part, content)
        flush_to_disk(part)
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def flush_to_disk(part: Path) -> None:
    """Have the system write a file to the disk."""
    with part.open("rb+") as written:
        os.fsync(written.fileno())


def exists(target: Path) -> errors.InvalidInput:
    """The error about a place that is taken."""
    return errors.InvalidInput(
        f"{target} exists already; name a new file, remove that one first, or ask for it to be "
        "overwritten (overwrite)"
    )


def _check_replaceable(database: File, target: Path) -> None:
    """Refuse to overwrite the database itself, what is no file, and a database that is in use.

    SQLite would take the log of the old file for a part of the new one.
    """
    if not target.exists():
        return
    if not database.memory and target.samefile(database.path):
        raise errors.InvalidInput(f"{target} is the database itself: name another file")
    if not target.is_file():
        raise errors.InvalidInput(f"{target} is not a file: name a file to overwrite")
    beside = [name for suffix in _SUFFIXES[1:] if os.path.lexists(name := f"{target}{suffix}")]
    if beside:
        raise errors.Unwritable(
            f"{target} is open in a process, or was not closed by one ({Path(beside[0]).name}): it "
            "is not overwritten"
        )


def part_of(target: Path) -> Path:
    """A name beside `target` for what is written until it is complete."""
    return target.with_name(f".{target.name}.{os.urandom(16).hex()}.part")


def remove_stale_parts(target: Path) -> None:
    """Remove what was left behind beside `target` by processes that were killed."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{32}}\.part(-journal|-wal|-shm)?")
    left: list[Path] = []
    with contextlib.suppress(OSError):  # a folder that may not be read
        left = [path for path in target.parent.iterdir() if pattern.fullmatch(path.name)]
    for path in left:
        with contextlib.suppress(OSError):  # another process may have been faster
            is_folder = path.is_dir() and not path.is_symlink()
            inside: Iterable[Path] = path.rglob("*") if is_folder else ()
            written = max(each.lstat().st_mtime for each in (path, *inside))
            if time.time() - written > _STALE_SECONDS:
                shutil.rmtree(path) if is_folder else path.unlink()


def _put_in_place(part: Path, target: Path) -> None:
    """Give a complete file its name; unlike a rename, this never replaces a file that another
    process has made meanwhile.
    """
    try:
        os.link(part, target)
    except FileExistsError:
        raise
    except OSError:  # FAT and some network disks have no hard links
        # Reserve the name by an empty file of our own, and replace only that one.
        create_private(target)
        try:
            part.replace(target)
        except OSError:
            target.unlink(missing_ok=True)
            raise


def sync_folder(folder: Path) -> None:
    """Have the system write a folder's entries to the disk, where that can be asked for."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
