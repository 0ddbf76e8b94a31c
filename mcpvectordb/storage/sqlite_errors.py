"""Errors of SQLite and the system about the file, translated into those of this library."""

from __future__ import annotations

import json
from pathlib import Path

import apsw

from mcpvectordb import errors

HELP = (
    "run `mcpvectordb check`, then `rebuild`, save what is left with `salvage`, or go back to a "
    "copy"
)


def ours(error: Exception, path: Path) -> Exception | None:
    """The error to raise for one about the file; None if the file need not be its cause."""
    match error:
        case apsw.BusyError() | apsw.LockedError() | apsw.ProtocolError():
            return errors.Busy(
                f"{path} stayed locked by other processes for too long; try again when they are "
                "done"
            )
        case apsw.ReadOnlyError():
            return errors.ReadOnly(
                f"{path} cannot be written: it, its folder or its disk is read-only"
            )
        case apsw.FullError():
            return errors.Unwritable(
                f"the disk is full; nothing was lost: free some space and try again ({path})"
            )
        case apsw.IOError() | apsw.CantOpenError() | apsw.PermissionsError():
            return errors.Unwritable(f"{path} cannot be read or written: {error}")
        case apsw.NotADBError():
            return errors.NotOurFile(
                f"{path} is not a SQLite database, or it is encrypted; it was left as it is"
            )
        case apsw.CorruptError() | apsw.FormatError():
            return errors.Damaged(f"{path} is damaged ({error}): {HELP}")
        case apsw.ConnectionClosedError():
            return errors.Closed(f"{path} was closed")
        case apsw.TooBigError():
            return errors.TooLarge("a single value is too large for the database file")
        case OSError() if Path(str(error.filename)) == path:
            if isinstance(error, FileNotFoundError):
                return errors.Unwritable(f"the folder {path.parent} does not exist: make it first")
            if isinstance(error, PermissionError):
                return errors.Unwritable(f"no permission to use {path}")
            return errors.Unwritable(f"{path} cannot be read or written: {error.strerror}")
        case UnicodeDecodeError() | json.JSONDecodeError() | RecursionError():
            return errors.Damaged(
                f"{path} is damaged (a stored text is not what was written: {error}): {HELP}"
            )
    return None
