"""JSON of any size, one value at a time: lines or an array, plain or packed by gzip or in a ZIP."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple
from zipfile import BadZipFile

from mcpvectordb.errors import ParseFailed, TooLarge
from mcpvectordb.text import json_text

GZIP = b"\x1f\x8b"
BLOCK = 1 << 16
SMALL, MOST_RATIO, MOST_UNPACKED = 10_000_000, 100, 32_000_000_000
"""What is packed may unpack to 100 times its size beyond the first 10 MB, and to 32 GB."""
LONGEST_LINE = 512_000_000  # bytes: a document of 100,000 passages with their embeddings
LONGEST_ELEMENT = 256_000_000  # characters
ELEMENT_BLOCK = 1 << 18  # bytes that are read at first; an element that needs more doubles them

_SPACE = " \t\r\n"


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


def json_lines(path: Path, longest: int = LONGEST_LINE) -> Iterator[JSONLine]:
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
                    while (rest := file.readline(1_000_000)) and not rest.endswith(b"\n"):
                        pass
                    yield JSONLine(number, None, f"it is longer than {longest:,} bytes")
                elif line.strip():
                    yield _parsed(path, number, line)
    except (OSError, EOFError, zlib.error) as error:
        yield JSONLine(number + 1, None, f"the file cannot be read from here on: {error}")


def _parsed(path: Path, number: int, line: bytes) -> JSONLine:
    try:
        return JSONLine(number, json_text.loads(line))
    except TooLarge as error:
        raise TooLarge(f"{path.name}, line {number}: {error}; nothing was imported") from None
    except ValueError as error:
        return JSONLine(number, None, f"it is not JSON ({error})"[:200])


def elements(file: BinaryIO, *, longest: int = LONGEST_ELEMENT) -> Iterator[Any]:
    """The elements of the array that a file holds, or the one value that it is instead.

    What comes before damage is returned; then ParseFailed says where it is. An element is tried
    again with twice as much text until it is complete, so that all of it is parsed twice at most.
    """
    buffer = _Buffer(file)
    first = buffer.next(_SPACE + "\ufeff")
    if first != "[":
        if first:
            yield buffer.value(longest)
        return
    buffer.drop()
    while buffer.next() != "]":
        yield buffer.value(longest)
        if buffer.next() == ",":
            buffer.drop()
        elif buffer.next() != "]":
            raise buffer.failed("a comma or the end of the list is missing")


class _Buffer:
    """What was read of a file; what comes before `_at` is used up."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._decoder = file, codecs.getincrementaldecoder("utf-8")("replace")
        self._text, self._at, self._before, self._ended = "", 0, 0, False

    def next(self, skipped: str = _SPACE) -> str:
        """The next character that is none of these, which are used up; "" at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in skipped:
                    return self._text[self._at]
                self._at += 1
            if self._ended:
                return ""
            self._read(ELEMENT_BLOCK)

    def drop(self) -> None:
        """Use up one character."""
        self._at += 1

    def value(self, longest: int) -> Any:
        """The JSON value that comes next, which is used up."""
        while True:
            waiting = len(self._text) - self._at
            try:
                found, end = json.JSONDecoder().raw_decode(self._text, self._at)
            except RecursionError:
                raise self.failed("a value is nested too deep") from None
            except ValueError as error:
                if self._ended:
                    raise self.failed(f"it is not JSON ({error})") from None
                if waiting > longest:
                    raise self.failed(f"a value is longer than {longest:,} characters") from None
                self._read(max(ELEMENT_BLOCK, waiting))
                continue
            if end == len(self._text) and not self._ended:  # a number may go on
                self._read(ELEMENT_BLOCK)
                continue
            self._at = end
            return found

    def failed(self, why: str) -> ParseFailed:
        """The error about what comes next."""
        return ParseFailed(f"after {self._before + self._at:,} characters: {why[:200]}")

    def _read(self, most: int) -> None:
        try:
            raw = self._file.read(most)
        except (OSError, EOFError, zlib.error, BadZipFile) as error:
            raise self.failed(f"the file cannot be read on ({error})") from None
        self._ended = not raw
        self._before += self._at
        self._text = self._text[self._at :] + self._decoder.decode(raw, final=self._ended)
        self._at = 0
