"""Values of foreign sources in the form in which they are stored here, and JSON of any size."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile

from mcpvectordb import dates
from mcpvectordb.errors import InvalidInput, ParseFailed, TooLarge
from mcpvectordb.metadata import MAX_DEPTH
from mcpvectordb.text import json_text

_MILLISECONDS = 100_000_000_000  # as seconds: the year 5138
_MICROSECONDS = _MILLISECONDS * 1000


def time(value: object) -> str:
    """A time as stored text, from ISO 8601 text or a number (seconds, milliseconds or microseconds
    since 1970); "" for anything else.
    """
    try:
        if isinstance(value, str):
            written = value.strip()
            with suppress(InvalidInput):
                return dates.parse(written, "time")
            with suppress(ValueError):
                moment = datetime.fromisoformat(written)
                return dates.stored(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
            value = float(written[:40])
        if isinstance(value, bool) or not isinstance(value, int | float):
            return ""
        size = abs(value)
        scale = 1e6 if size >= _MICROSECONDS else 1e3 if size >= _MILLISECONDS else 1
        return dates.stored(datetime.fromtimestamp(value / scale, UTC))
    except (OverflowError, OSError, ValueError):
        return ""


def integer(value: object) -> int:
    """A number by which rows are sorted; 0 for anything else."""
    return value if isinstance(value, int) else 0


def item(value: object, *keys: str) -> Any:
    """What an object has under a key, and the object there under the next one; None if nothing."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def listed(value: object) -> list[Any]:
    """A list; an empty one in place of anything else."""
    return value if isinstance(value, list) else []


def text(value: object) -> str:
    """A text; an empty one in place of anything else."""
    return value if isinstance(value, str) else ""


def json_value(value: object) -> Any:
    """The value of a JSON text; None if it is none."""
    try:
        return json.loads(value) if isinstance(value, str | bytes) else None
    except (ValueError, RecursionError):
        return None


def metadata(value: object) -> dict[str, Any]:
    """Metadata that can be stored, from an object or its JSON text.

    Anything but an object is kept under the key "value". What JSON cannot hold becomes text.
    """
    if isinstance(value, str | bytes):
        parsed = json_value(value)
        value = parsed if parsed is not None or value in ("null", b"null") else value
    if value is None or value in ("", b""):
        return {}
    return storable(value) if isinstance(value, Mapping) else {"value": storable(value)}


def storable(value: Any, depth: int = 1) -> Any:
    """A value with text in place of everything that metadata cannot hold."""
    if depth >= MAX_DEPTH and isinstance(value, Mapping | list | tuple):
        return "nested too deep"
    if isinstance(value, Mapping):
        return {_whole(str(key)): storable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item, depth + 1) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return _whole(str(value))


def _whole(text: str) -> str:
    """A text without halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()


# --- files, plain or packed by gzip or in a ZIP

HEAD_BYTES = 65_536
BLANK = b"\xef\xbb\xbf \t\r\n"
"""What may stand before the first value: a mark of UTF-8, and space."""
SMALL, MOST_RATIO, MOST_UNPACKED = 10_000_000, 100, 32_000_000_000
"""What is packed may unpack to 100 times its size beyond the first 10 MB, and to 32 GB."""
_GZIP, _BLOCK = b"\x1f\x8b", 1 << 16
DAMAGE = (OSError, EOFError, zlib.error, BadZipFile)
"""What reading a damaged file raises."""


class _PackedFile(gzip.GzipFile):
    """A packed file; reading raises TooLarge if too much comes out of it for one of its size."""

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes."""
        count = super().readinto(buffer)
        check_unpacked(Path(self.name), self.tell())
        return count


def most_unpacked(path: Path) -> int:
    """How many bytes a packed file may unpack to."""
    return min(MOST_UNPACKED, SMALL + MOST_RATIO * path.stat().st_size)


def check_unpacked(path: Path, size: int) -> None:
    """Raise TooLarge if a packed file unpacks to more bytes than it may."""
    if size > most_unpacked(path):
        raise TooLarge(
            f"{path.name} unpacks to more than {MOST_RATIO} times its size or "
            f"{MOST_UNPACKED // 10**9} GB; nothing was imported. If it can be trusted, unpack "
            "it first, and import what was in it"
        )


def opened(path: Path) -> BinaryIO:
    """A file opened for reading, unpacked if it is packed by gzip; reading may raise TooLarge."""
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
    if not packed:
        return path.open("rb")
    return io.BufferedReader(_PackedFile(path), _BLOCK)


def head(path: Path) -> bytes:
    """The beginning of a file, unpacked; b"" if it is a folder, or cannot be read."""
    try:
        with opened(path) as file:
            return file.read(HEAD_BYTES)
    except DAMAGE:
        return b""


# --- JSON, one value at a time

LONGEST_LINE = 512_000_000  # bytes: a document of 100,000 passages with their embeddings
LONGEST_ELEMENT = 256_000_000  # characters
ELEMENT_BLOCK = 1 << 18  # bytes that are read at first; an element that needs more doubles them
_SPACE = re.compile(r"[\ufeff \t\r\n]*")


def json_lines(path: Path) -> Iterator[tuple[int, Any, str]]:
    """The number and the value of each line that is not blank, and why it has none ("" if it has).

    A line that is too long is read past, never into memory. If the file cannot be read to its end,
    the last item says so. Raises TooLarge for a line of too many values.
    """
    number = 0
    try:
        with opened(path) as file:
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    while (rest := file.readline(1_000_000)) and not rest.endswith(b"\n"):
                        pass
                    yield number, None, f"it is longer than {LONGEST_LINE:,} bytes"
                elif line.strip():
                    yield number, *_parsed(path, number, line)
    except DAMAGE as error:
        yield number + 1, None, f"the file cannot be read from here on: {error}"


def _parsed(path: Path, number: int, line: bytes) -> tuple[Any, str]:
    try:
        return json_text.loads(line), ""
    except TooLarge as error:
        raise TooLarge(f"{path.name}, line {number}: {error}; nothing was imported") from None
    except ValueError as error:
        return None, f"it is not JSON ({error})"[:200]


def elements(file: BinaryIO, *, longest: int = LONGEST_ELEMENT) -> Iterator[Any]:
    """The elements of the array that a file holds, or the one value that it is instead.

    What comes before damage is returned; then ParseFailed says where it is. An element is tried
    again with twice as much text until it is complete, so that all of it is parsed twice at most.
    """
    buffer = _Buffer(file)
    first = buffer.next()
    if first != "[":
        if first:
            yield buffer.value(longest)
        return
    buffer.at += 1
    while buffer.next() != "]":
        yield buffer.value(longest)
        if buffer.next() == ",":
            buffer.at += 1
        elif buffer.next() != "]":
            raise buffer.failed("a comma or the end of the list is missing")


class _Buffer:
    """What was read of a file; what comes before `at` is used up."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._decoder = file, codecs.getincrementaldecoder("utf-8")("replace")
        self._text, self.at, self._before, self._ended = "", 0, 0, False

    def next(self) -> str:
        """The next character that is no space, which is used up; "" at the end."""
        while True:
            self.at = _SPACE.match(self._text, self.at).end()  # type: ignore[union-attr]
            if self.at < len(self._text) or self._ended:
                return self._text[self.at : self.at + 1]
            self._read(ELEMENT_BLOCK)

    def value(self, longest: int) -> Any:
        """The JSON value that comes next, which is used up."""
        while True:
            waiting = len(self._text) - self.at
            try:
                found, end = json.JSONDecoder().raw_decode(self._text, self.at)
            except RecursionError:
                raise self.failed("a value is nested too deep") from None
            except ValueError as error:
                if self._ended:
                    raise self.failed(f"it is not JSON ({error})") from None
                if waiting > longest:
                    raise self.failed(f"a value is longer than {longest:,} characters") from None
            else:
                if end < len(self._text) or self._ended:  # otherwise a number may go on
                    self.at = end
                    return found
            self._read(max(ELEMENT_BLOCK, waiting))

    def failed(self, why: str) -> ParseFailed:
        """The error about what comes next."""
        return ParseFailed(f"after {self._before + self.at:,} characters: {why[:200]}")

    def _read(self, most: int) -> None:
        try:
            raw = self._file.read(most)
        except DAMAGE as error:
            raise self.failed(f"the file cannot be read on ({error})") from None
        self._ended = not raw
        self._before += self.at
        self._text = self._text[self.at :] + self._decoder.decode(raw, final=self._ended)
        self.at = 0
