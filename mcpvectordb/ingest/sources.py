"""Read the raw bytes of a file or URL after checking that it may be read.

A file is opened folder by folder along its resolved path without following any link. So the file
that was checked is the one that is read, even if folders are replaced meanwhile (no TOCTOU race; on
Windows, which has no such calls, the path is opened as a whole). Only regular files are opened:
opening a device or a named pipe can have side effects or block forever.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Literal

from mcpvectordb.config import Config, how_to_allow
from mcpvectordb.errors import IngestError, Refused, TooLarge, Unreadable
from mcpvectordb.ingest.secret_files import is_secret_place, secret_in
from mcpvectordb.metadata import storable
from mcpvectordb.records import Document, ProgressCallback, Source

KERNEL = ("/proc", "/sys")
VAULT_FOLDER = ".obsidian"
SIBLINGS = ("", "-wal", "-shm", "-journal")
_SECONDS = len("2026-01-31T00:00:00")

_OPEN_FILE = os.O_RDONLY | sum(
    getattr(os, name, 0)
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY", "O_NOINHERIT")
)
# O_PATH also opens folders that may be entered but not listed.
_OPEN_FOLDER = sum(
    getattr(os, name, 0) for name in ("O_PATH", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC")
)


class SecretFile(Refused):
    """The file holds a secret, by its path or by its content."""


def read(
    source: str | os.PathLike[str] | Source,
    *,
    config: Config,
    roots: Collection[Path] = (),
    guard: bool = False,
    forbidden: Collection[Path] = (),
    etag: str = "",
    modified: str = "",
    progress: ProgressCallback | None = None,
    wait: bool = True,
) -> Source | None:
    """Read a URL with `urls.fetch` or a file with `read_path`, which explain the parameters.

    A `Source` is checked as a file of its name would be, and returned as it is. Returns None if a
    URL's server reports that the version with this `etag` or `modified` time is still current.
    """
    if isinstance(source, Source):  # bytes that the caller has read
        storable(source.source, "source", blank=False)
        storable(source.name, "name", blank=False)
        _check_size(source.source, len(source.raw), config.max_source_bytes)
        if guard and is_secret_place(Path("/", source.source)):
            raise _secret_file(Path(source.source), "is where secrets are kept")
        if guard and (what := secret_in(source.raw, PurePath(source.name).suffix)):
            raise _secret_file(Path(source.source), f"is {what}")
        return source
    if not is_url(source):
        return read_path(source, config=config, roots=roots, guard=guard, forbidden=forbidden)
    from mcpvectordb.ingest import urls  # a file needs no network

    return urls.fetch(
        str(source), config=config, etag=etag, modified=modified, progress=progress, wait=wait
    )


def _check_size(name: object, size: int, limit: int) -> None:
    if size > limit:
        raise TooLarge(
            f"{name} has {size} bytes, more than the limit of {limit} "
            f"{how_to_allow('max_source_bytes')}"
        )


def is_url(source: str | os.PathLike[str] | Source) -> bool:
    """Whether this has the form of a URL of any scheme; `fetch` allows http and https only."""
    return isinstance(source, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", source) is not None


def read_path(
    path: str | os.PathLike[str],
    *,
    config: Config,
    roots: Collection[Path] = (),
    guard: bool = False,
    forbidden: Collection[Path] = (),
) -> Source:
    """Read a file; `Source.source` is its absolute path with `~` expanded and links resolved.

    - roots: if given, the resolved path must be inside one of these folders.
    - guard: refuse secrets (SecretFile); for paths that a person has not named one by one.
    - forbidden: database files that must not be opened, under any name or hard link.

    Raises Unreadable (missing, a folder, no permission), Refused (by the rules above) or TooLarge
    (above `config.max_source_bytes`).
    """
    named, resolved = _resolve(path)
    _check_path(named, resolved, roots, guard)
    try:
        raw, info = _read_regular(resolved, config.max_source_bytes, forbidden)
    except IngestError:
        raise
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if guard and (what := secret_in(raw, resolved.suffix)):
        raise _secret_file(resolved, f"is {what}")
    return Source(
        source=str(resolved),
        name=resolved.name,
        raw=raw,
        file_type=resolved.suffix[1:].lower() or "unknown",
        modified=_iso(info.st_mtime),
        vault=resolved.suffix.lower() in (".md", ".markdown")
        and any((folder / VAULT_FOLDER).is_dir() for folder in resolved.parents),
    )


def state(
    document: Document, config: Config, forbidden: Collection[Path] = ()
) -> Literal["current", "changed", "gone", ""]:
    """What became of the file of a document since it was read; "" if it may not be seen."""
    try:
        info = os.stat(document.source)  # noqa: PTH116 - Path takes longer
    except (FileNotFoundError, NotADirectoryError):
        return "gone"
    except (OSError, ValueError):
        return ""
    if not stat.S_ISREG(info.st_mode):
        return "gone"
    if info.st_size != document.size:
        return "changed"
    # Times are kept in seconds: what was stored in the second of its writing may have been written
    # again in it.
    same_second = document.created_at[:_SECONDS] == document.modified[:_SECONDS]
    if _iso(info.st_mtime) == document.modified and not same_second:
        return "current"
    try:  # copied back, checked out again, or changed
        found = read_path(document.source, config=config, forbidden=forbidden)
    except IngestError:
        return "changed"
    return "current" if found.hash == document.hash else "changed"


def check_folder(
    folder: str | os.PathLike[str], *, roots: Collection[Path] = (), guard: bool = False
) -> None:
    """Refuse a folder outside of `roots` or, with `guard`, one where secrets are kept."""
    named, resolved = _resolve(folder)
    _check_path(named, resolved, roots, guard)
    # Places are known by the folders that a file lies in, so a file of this folder is asked about.
    if guard and any(is_secret_place(each / "file", roots) for each in (named, resolved)):
        raise _secret_file(named, "is where secrets are kept")


def _resolve(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """The absolute path as it was given, and the path with links resolved."""
    try:
        named = Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100 - Path.absolute keeps ".."
        return named, Path(os.path.realpath(Path(path).expanduser()))
    except (OSError, ValueError, RuntimeError) as error:
        raise _unreadable(path, error) from None


def _check_path(named: Path, resolved: Path, roots: Collection[Path], guard: bool) -> None:
    if roots and not any(resolved.is_relative_to(os.path.realpath(root)) for root in roots):
        allowed = ", ".join(str(root) for root in roots)
        raise Refused(f"{named} is outside of the folders that may be read ({allowed})")
    if any(each.is_relative_to(kernel) for each in (named, resolved) for kernel in KERNEL):
        raise Refused(f"{named} is not a file but an interface to the kernel")
    if guard and any(is_secret_place(each, roots) for each in (named, resolved)):
        raise _secret_file(named, "is where secrets are kept")


def _secret_file(path: Path, what: str) -> SecretFile:
    return SecretFile(
        f"{path} {what}; only a person may ingest it, by name on the command line: "
        "mcpvectordb ingest FILE"
    )


def _read_regular(
    path: Path, limit: int, forbidden: Collection[Path]
) -> tuple[bytes, os.stat_result]:
    folder = _open_folder(path.parent)
    where, name = (None, path) if folder is None else (folder, path.name or ".")
    try:
        # The database must not even be opened: closing it would drop the POSIX locks that SQLite
        # holds in this process.
        before = os.stat(name, dir_fd=where, follow_symlinks=False)
        if stat.S_ISDIR(before.st_mode):
            raise IsADirectoryError(errno.EISDIR, "it is a folder, not a file")
        if not stat.S_ISREG(before.st_mode) and not stat.S_ISLNK(before.st_mode):
            raise Refused(f"{path} is a device, a pipe or a socket, not a file")
        for database in (f"{each}{suffix}" for each in forbidden for suffix in SIBLINGS):
            try:
                other = Path(database).stat()
            except OSError:
                continue
            if os.path.samestat(before, other):
                raise Refused(f"{path} is the database itself")
        handle = os.open(name, _OPEN_FILE, dir_fd=where)
    finally:
        if folder is not None:
            os.close(folder)
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        if not os.path.samestat(before, info):
            raise Unreadable(f"{path} was replaced while it was being opened; try again")
        # The reported size may be wrong (a growing file, a special file system), so the read is
        # limited as well.
        _check_size(path, info.st_size, limit)
        raw = file.read(limit + 1)
        _check_size(path, len(raw), limit)
        return raw, info


def _open_folder(folder: Path) -> int | None:
    """A file descriptor of a folder, opened without following links; None where unsupported."""
    if os.open not in os.supports_dir_fd:
        return None
    handle = os.open(folder.anchor, _OPEN_FOLDER)
    for part in folder.parts[1:]:
        try:
            following = os.open(part, _OPEN_FOLDER, dir_fd=handle)
        finally:
            os.close(handle)
        handle = following
    return handle


def _unreadable(path: str | os.PathLike[str], error: Exception) -> Unreadable:
    reason = (isinstance(error, OSError) and error.strerror) or str(error)
    folder = "one that no longer exists"
    with suppress(OSError):
        folder = str(Path.cwd())
    return Unreadable(f"{os.fspath(path)!r} cannot be read: {reason} (working folder: {folder})")


def _iso(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # a time stamp out of range
        return ""
