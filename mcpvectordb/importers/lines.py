"""The lines of a text file of any size, plain or packed by gzip, one at a time."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

GZIP = b"\x1f\x8b"
LONGEST = 512_000_000  # bytes of a line: a document of 100,000 passages with their embeddings


class JSONLine(NamedTuple):
    """The value of a line; `error` says why it has none."""

    number: int
    value: Any
    error: str = ""


def opened(path: Path) -> BinaryIO:
    """A file opened for reading, unpacked if it is packed by gzip."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else path.open("rb")


def head(path: Path, most: int = 65_536) -> bytes:
    """The beginning of a file, unpacked; b"" if it cannot be read."""
    try:
        with opened(path) as file:
            return file.read(most)
    except (OSError, EOFError, zlib.error):
        return b""


def json_lines(path: Path, longest: int = LONGEST) -> Iterator[JSONLine]:
    """The JSON values of the lines of a file; blank lines are left out.

    A line that is longer than `longest` is read past, never into memory. If the file cannot be read
    to its end, the last item says so.
    """
    number = 0
    try:
        with opened(path) as file:
            while line := file.readline(longest + 1):
                number += 1
                if len(line) > longest:
                    _skip_line(file)
                    yield JSONLine(number, None, f"it is longer than {longest:,} bytes")
                elif line.strip():
                    yield _parsed(number, line)
    except (OSError, EOFError, zlib.error) as error:
        yield JSONLine(number + 1, None, f"the file cannot be read from here on: {error}")


def _skip_line(file: BinaryIO) -> None:
    while (rest := file.readline(1_000_000)) and not rest.endswith(b"\n"):
        pass


def _parsed(number: int, line: bytes) -> JSONLine:
    try:
        return JSONLine(number, json.loads(line))
    except RecursionError:
        return JSONLine(number, None, "it is nested too deep")
    except ValueError as error:
        return JSONLine(number, None, f"it is not JSON ({error})"[:200])
