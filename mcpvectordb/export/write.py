"""Export a file: the format by the name of the target, and the target complete or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from mcpvectordb.errors import InvalidInput, MCPVectorDBError, Unwritable, quoted
from mcpvectordb.export.snapshot import Counts, ExportSnapshot
from mcpvectordb.records import Exported, Progress, ProgressCallback
from mcpvectordb.storage.file import File
from mcpvectordb.storage.new_file import (
    flush_to_disk,
    new_file,
    part_of,
    remove_stale_parts,
    sync_folder,
)

ExportFormat = Literal["jsonl", "markdown", "csv", "parquet"]
FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
_ENDINGS: dict[str, ExportFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    "": "markdown",
}
_PACKED = ".gz"


class Target(NamedTuple):
    """Where to and in which format; `packed` by gzip."""

    path: Path
    format: ExportFormat
    packed: bool


def target(path: Path, format: str | None) -> Target:
    """The target of an export; without a format its name decides. Raises InvalidInput."""
    packed = path.suffix.lower() == _PACKED
    ending = (path.with_suffix("") if packed else path).suffix.lower()
    if format is None:
        if ending not in _ENDINGS and not path.is_dir():
            raise InvalidInput(
                f"{quoted(str(path))} does not end with .jsonl, .csv or .parquet, nor is it a "
                f"folder: name a format ({', '.join(FORMATS)})"
            )
        format = _ENDINGS.get(ending, "markdown")
    if format not in FORMATS:
        raise InvalidInput(f"format must be {', '.join(FORMATS)}, not {quoted(format)}")
    if packed and format not in ("jsonl", "csv"):
        raise InvalidInput(f"only jsonl and csv are written as {_PACKED}, not {format}")
    return Target(path, format, packed)


def export(
    file: File,
    path: Path,
    *,
    format: str | None = None,
    library: str | None = None,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> Exported:
    """Write what one read transaction sees, also while others write; see `Database.export_to`."""
    to = target(path.expanduser(), format)
    with file.reading(limited=False) as sql:
        snapshot = ExportSnapshot(sql, library)
        counts = snapshot.counts()
        count = _counter(counts, progress)
        if to.format == "markdown":
            written = _write_folder(snapshot, to.path.absolute(), count)
        else:
            with new_file(file, to.path, overwrite=overwrite) as new:
                _write_file(snapshot, new.part, to, count)
                flush_to_disk(new.part)
            written = new.path
    return Exported(
        path=str(written),
        format=to.format,
        documents=counts.documents,
        memories=counts.memories,
        vectors=0 if to.format == "markdown" else counts.vectors,
        left_out=_left_out(to.format, counts),
    )


def _write_file(
    snapshot: ExportSnapshot, part: Path, to: Target, count: Callable[[], None]
) -> None:
    from mcpvectordb.export import jsonl, tables

    if to.format == "jsonl":
        jsonl.write(snapshot, part, count, packed=to.packed)
    elif to.format == "csv":
        tables.write_csv(snapshot, part, count, packed=to.packed)
    else:
        tables.write_parquet(snapshot, part, count)


def _write_folder(snapshot: ExportSnapshot, folder: Path, count: Callable[[], None]) -> Path:
    """Write Markdown files into a new folder, or an empty one, which appears complete."""
    from mcpvectordb.export import markdown

    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InvalidInput(
            f"{folder} exists already and is not empty; a folder is never overwritten: name a new "
            "one"
        )
    if not folder.parent.is_dir():
        raise Unwritable(f"the folder {folder.parent} does not exist: make it first")
    remove_stale_parts(folder)
    part = part_of(folder)
    try:
        part.mkdir(mode=0o700)
        markdown.write(snapshot, part, count)
        if folder.exists():
            folder.rmdir()  # fails if something was put into it meanwhile
        part.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        if isinstance(error, MCPVectorDBError):
            raise
        raise Unwritable(f"{folder} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _counter(counts: Counts, progress: ProgressCallback | None) -> Callable[[], None]:
    """A function to call for each item that is written."""
    done, total = 0, counts.items

    def count() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(Progress(step="export", done=done, total=total))

    return count


def _left_out(format: ExportFormat, counts: Counts) -> tuple[str, ...]:
    """What of the counted items a format does not hold."""
    if format == "markdown" and counts.vectors:
        return (f"{counts.vectors:,} vectors, which have no text",)
    if format in ("csv", "parquet") and counts.images:
        return (f"{counts.images:,} images",)
    return ()
