"""Errors of SQLite and the system about the file, translated into those of this library."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import apsw

from mcpvectordb import errors

HELP = (
    "run `mcpvectordb check`, then `rebuild`, save what is left with `salvage`, or go back to a "
    "copy"
)

_TRANSLATIONS: tuple[tuple[tuple[type[apsw.Error], ...], Callable[[str], Exception], str], ...] = (
    (
        (apsw.BusyError, apsw.LockedError, apsw.ProtocolError),
        errors.Busy,
        "{path} stayed locked by other processes for too long; try again when they are done",
    ),
    (
        (apsw.ReadOnlyError,),
        errors.ReadOnly,
        "{path} cannot be written: it, its folder or its disk is read-only",
    ),
    (
        (apsw.FullError,),
        errors.Unwritable,
        "the disk is full; nothing was lost: free some space and try again ({path})",
    ),
    (
        (apsw.IOError, apsw.CantOpenError, apsw.PermissionsError),
        errors.Unwritable,
        "{path} cannot be read or written: {error}",
    ),
    (
        (apsw.NotADBError,),
        errors.NotOurFile,
        "{path} is not a SQLite database, or it is encrypted; it was left as it is",
    ),
    (
        (apsw.CorruptError, apsw.FormatError),
        errors.Damaged,
        f"{{path}} is damaged ({{error}}): {HELP}",
    ),
    ((apsw.ConnectionClosedError,), errors.Closed, "{path} was closed"),
    ((apsw.TooBigError,), errors.TooLarge, "a single value is too large for the database file"),
)


def ours(error: Exception, path: Path) -> Exception | None:
    """The error to raise for one about the file; None if the file need not be its cause."""
    for kinds, make, text in _TRANSLATIONS:
        if isinstance(error, kinds):
            return make(text.format(path=path, error=error))
    if isinstance(error, OSError) and Path(str(error.filename)) == path:
        if isinstance(error, FileNotFoundError):
            return errors.Unwritable(f"the folder {path.parent} does not exist: make it first")
        if isinstance(error, PermissionError):
            return errors.Unwritable(f"no permission to use {path}")
        return errors.Unwritable(f"{path} cannot be read or written: {error.strerror}")
    if isinstance(error, (UnicodeDecodeError, json.JSONDecodeError, RecursionError)):
        return errors.Damaged(
            f"{path} is damaged (a stored text is not what was written: {error}): {HELP}"
        )
    return None
