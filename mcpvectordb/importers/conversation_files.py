"""The conversations in the export of a chat service: a JSON file, a folder of them, or a ZIP."""

from __future__ import annotations

import contextlib
import io
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from mcpvectordb.errors import ParseFailed
from mcpvectordb.importers import json_files, values
from mcpvectordb.importers.items import ImportedMemory, Item, NotKept, UnreadPart
from mcpvectordb.importers.source import HEAD_BYTES, ImportSource
from mcpvectordb.memories.memory import MemorySource

ROLES: Mapping[str, MemorySource] = {"user": "user", "human": "user", "assistant": "agent"}
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


def read(
    source: ImportSource, messages: Callable[[Mapping[str, Any], Counter[str]], Iterator[Item]]
) -> Iterator[Item]:
    """The messages of every conversation of an export, and what could not be read.

    `messages` counts what it leaves out of a conversation.
    """
    left: Counter[str] = Counter()
    for name, file in _opened(source):
        try:
            for found in json_files.elements(file):
                if isinstance(found, dict):
                    yield from messages(found, left)
                else:
                    yield UnreadPart(what=f"{name}: an element that is no conversation")
        except ParseFailed as error:
            yield UnreadPart(what=f"{name}, {error}")
    yield from not_kept(left)


def not_kept(left: Counter[str]) -> Iterator[NotKept]:
    """What was left out, for the report."""
    return (NotKept(what=what, count=count) for what, count in left.items())


def message(
    id: object, thread: str, role: MemorySource, text: str, time: str, **said: object
) -> ImportedMemory:
    """A message as a memory; what is said of it becomes metadata."""
    return ImportedMemory(
        id=str(id),
        thread=values.storable(thread),
        source=role,
        text=values.storable(text),
        created_at=time,
        metadata=values.metadata(said),
    )


def _opened(source: ImportSource) -> Generator[tuple[str, BinaryIO], None, None]:
    """The names and the contents of the files with conversations, in the order of their names.

    Each is open until the next one is asked for.
    """
    if not source.head.startswith(_ZIP):
        paths = [source.path]
        if source.is_folder:
            named = (path for path in source.path.iterdir() if _NAME.fullmatch(path.name))
            paths = sorted(path for path in named if path.is_file())
        for path in paths:
            with path.open("rb") as content:
                yield path.name, content
        return
    name = source.path.name
    try:
        archive = zipfile.ZipFile(source.path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, OSError) as error:
        raise ParseFailed(f"{name} is damaged: it is no ZIP archive ({error})") from None
    with archive:
        rest = [json_files.most_unpacked(source.path)]
        members = archive.infolist()
        found = [each for each in members if _NAME.fullmatch(PurePosixPath(each.filename).name)]
        if any(each.flag_bits & 1 for each in found):
            raise ParseFailed(f"{name} is encrypted; save a copy without its password")
        for member in sorted(found, key=lambda each: each.filename):
            packed = json_files.UnpackedBytes(archive.open(member), name, rest)
            with io.BufferedReader(packed, json_files.BLOCK) as file:
                yield member.filename, file
