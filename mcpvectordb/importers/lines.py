"""The lines of a text file of any size, plain or packed by gzip, one at a time."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

from mcpvectordb.errors import TooLarge
from mcpvectordb.text import json_text

GZIP = b"\x1f\x8b"
BLOCK = 1 << 16
SMALL, MOST_RATIO, MOST_UNPACKED = 10_000_000, 100, 32_000_000_000
"""What is packed may unpack to 100 times its size beyond the first 10 MB, and to 32 GB."""
LONGEST = 512_000_000  # bytes of a line: a document of 100,000 passages with their embeddings


class JSONLine(NamedTuple):
    """The value of a line; `error` says why it has none."""

    number: int
    value: Any
    error: str = ""


class UnpackedBytes(io.RawIOBase):
    """What comes out of a packed file; raises TooLarge when it is too much for a file of its size.

    `rest` is how many bytes may still come; files that are parts of one archive share it.
    """

    def __init__(
        self, file: BinaryIO | gzip.GzipFile | IO[bytes], name: str, rest: list[int]
    ) -> None:
        self._file, self._name, self._rest = file, name, rest

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes."""
        some = self._file.read(len(buffer))
        self._rest[0] -= len(some)
        if self._rest[0] < 0:
            raise TooLarge(
                f"{self._name} unpacks to more than {MOST_RATIO} times its size or "
                f"{MOST_UNPACKED // 10**9} GB; nothing was imported. If it can be trusted, unpack "
                "it first, and import what was in it"
            )
        buffer[: len(some)] = some
        return len(some)

    def close(self) -> None:
        """Close the packed file, too."""
        self._file.close()
        super().close()


def most_unpacked(path: Path) -> int:
    """How many bytes a packed file may unpack to."""
    return min(MOST_UNPACKED, SMALL + MOST_RATIO * path.stat().st_size)


def opened(path: Path) -> BinaryIO:
    """A file opened for reading, unpacked if it is packed by gzip; reading may raise TooLarge."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP
    if not packed:
        return path.open("rb")
    unpacked = UnpackedBytes(gzip.GzipFile(path), path.name, [most_unpacked(path)])
    return io.BufferedReader(unpacked, BLOCK)


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
    to its end, the last item says so. Raises TooLarge for a line of too many values.
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
                    yield _parsed(path, number, line)
    except (OSError, EOFError, zlib.error) as error:
        yield JSONLine(number + 1, None, f"the file cannot be read from here on: {error}")


def _skip_line(file: BinaryIO) -> None:
    while (rest := file.readline(1_000_000)) and not rest.endswith(b"\n"):
        pass


def _parsed(path: Path, number: int, line: bytes) -> JSONLine:
    try:
        return JSONLine(number, json_text.loads(line))
    except TooLarge as error:
        raise TooLarge(f"{path.name}, line {number}: {error}; nothing was imported") from None
    except ValueError as error:
        return JSONLine(number, None, f"it is not JSON ({error})"[:200])
