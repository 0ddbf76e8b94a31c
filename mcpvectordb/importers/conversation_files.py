"""The conversations in the export of a chat service: a JSON file, a folder of them, or a ZIP."""

from __future__ import annotations

import contextlib
import io
import re
import zipfile
from collections.abc import Generator, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from mcpvectordb.errors import ParseFailed
from mcpvectordb.importers import json_array, lines
from mcpvectordb.importers.items import UnreadPart
from mcpvectordb.importers.source import HEAD_BYTES, ImportSource

_NAME = re.compile(r"conversations(-\d+)?\.json", re.IGNORECASE)
_ZIP = b"PK\x03\x04"


def begins_with(source: ImportSource, key: str) -> bool:
    """Whether the first conversations of an export have a key that only one service uses."""
    try:
        with contextlib.closing(_opened(source)) as files:
            for _, file in files:
                head = file.read(HEAD_BYTES).lstrip(b"\xef\xbb\xbf \t\r\n")
                return head[:1] in (b"[", b"{") and f'"{key}"'.encode() in head
    except (ParseFailed, OSError, EOFError, RuntimeError, zipfile.BadZipFile):
        pass
    return False


def conversations(source: ImportSource) -> Iterator[dict[str, Any] | UnreadPart]:
    """Every conversation of an export, one at a time, and what could not be read."""
    for name, file in _opened(source):
        try:
            for found in json_array.elements(file):
                if isinstance(found, dict):
                    yield found
                else:
                    yield UnreadPart(what=f"{name}: an element that is no conversation")
        except ParseFailed as error:
            yield UnreadPart(what=f"{name}, {error}")


def _opened(source: ImportSource) -> Generator[tuple[str, BinaryIO], None, None]:
    """The names and the contents of the files with conversations, in the order of their names.

    Each is open until the next one is asked for.
    """
    if source.head.startswith(_ZIP):
        with _archive(source.path) as archive:
            rest = [lines.most_unpacked(source.path)]
            for member in _members(archive, source.path.name):
                packed = lines.UnpackedBytes(archive.open(member), source.path.name, rest)
                with io.BufferedReader(packed, lines.BLOCK) as file:
                    yield member.filename, file
        return
    paths = [source.path]
    if source.is_folder:
        named = (path for path in source.path.iterdir() if _NAME.fullmatch(path.name))
        paths = sorted(path for path in named if path.is_file())
    for path in paths:
        with path.open("rb") as content:
            yield path.name, content


def _archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, OSError) as error:
        raise ParseFailed(f"{path.name} is damaged: it is no ZIP archive ({error})") from None


def _members(archive: zipfile.ZipFile, name: str) -> list[zipfile.ZipInfo]:
    """The files with conversations; refuses an archive that is encrypted."""
    members = archive.infolist()
    found = [each for each in members if _NAME.fullmatch(PurePosixPath(each.filename).name)]
    if any(each.flag_bits & 1 for each in found):
        raise ParseFailed(f"{name} is encrypted; save a copy without its password")
    return sorted(found, key=lambda each: each.filename)
