"""The elements of a JSON array, one at a time, so that a file of gigabytes takes little memory."""

from __future__ import annotations

import codecs
import json
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO
from zipfile import BadZipFile

from mcpvectordb.errors import ParseFailed

BLOCK = 1 << 18  # bytes that are read at first; an element that needs more doubles them
LONGEST = 256_000_000  # characters of one element

_SPACE = " \t\r\n"


def elements(file: BinaryIO, *, longest: int = LONGEST) -> Iterator[Any]:
    """The elements of the array that a file holds, or the one value that it is instead.

    What comes before damage is returned; then ParseFailed says where it is. An element is tried
    again with twice as much text until it is complete, so that all of it is parsed twice at most.
    """
    buffer = _Buffer(file)
    buffer.skip(_SPACE + "\ufeff")
    if buffer.next == "":
        return
    if buffer.next != "[":
        yield buffer.value(longest)
        return
    buffer.drop()
    buffer.skip(_SPACE)
    while buffer.next != "]":
        yield buffer.value(longest)
        buffer.skip(_SPACE)
        if buffer.next == ",":
            buffer.drop()
            buffer.skip(_SPACE)
        elif buffer.next != "]":
            raise buffer.failed("a comma or the end of the list is missing")


class _Buffer:
    """What was read of a file; what comes before `_at` is used up."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._decoder = file, codecs.getincrementaldecoder("utf-8")("replace")
        self._text, self._at, self._before, self._ended = "", 0, 0, False

    @property
    def next(self) -> str:
        """The next character; "" at the end of the file."""
        return self._text[self._at : self._at + 1]

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
                self._read(max(BLOCK, waiting))
                continue
            if end == len(self._text) and not self._ended:  # a number may go on
                self._read(BLOCK)
                continue
            self._at = end
            return found

    def skip(self, characters: str) -> None:
        """Use up these characters."""
        while True:
            while self.next and self.next in characters:
                self._at += 1
            if self.next or self._ended:
                return
            self._read(BLOCK)

    def drop(self) -> None:
        """Use up one character."""
        self._at += 1

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
