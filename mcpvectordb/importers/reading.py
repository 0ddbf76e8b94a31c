"""Read a source in a process of its own, which a hostile one may crash, fill or take over.

The process recognises the kind of the source and reads it; what comes out are items, as JSON and
bytes, which are checked on arrival. It is started like that of `ingest.process` and confined alike
(`ingest.sandbox`): no network, no writes, and nothing to read but Python, the source, and the
folder with the copies that were made of it.

What it may use is limited: memory (RLIMIT_AS), twice `Config.parse_memory`, because one record may
be a document with all of its embeddings; time without an item; and what all items together have, in
bytes and against the size of the source. The items go into a file first and are stored when all of
them are there, so that nothing is stored of a source that cannot be read within these limits.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any, get_args

from mcpvectordb import importers
from mcpvectordb.config import Config, how_to_allow
from mcpvectordb.errors import (
    Damaged,
    IngestError,
    InvalidInput,
    MCPVectorDBError,
    ParseFailed,
    TooLarge,
    Unwritable,
)
from mcpvectordb.importers.foreign_database import data_bytes
from mcpvectordb.importers.items import FollowedFolder, ImportOptions, Item, LeftOut, UnreadPart
from mcpvectordb.importers.source import ImportSource
from mcpvectordb.ingest import process as foreign
from mcpvectordb.ingest import sandbox
from mcpvectordb.memories.memory import Image
from mcpvectordb.records import Progress, ProgressCallback
from mcpvectordb.text import json_text

SMALL_OUTPUT, MOST_OUTPUT = 10_000_000, 32_000_000_000
"""Bytes of items that a source of any size may have; beyond these, parse_output_ratio applies."""
MOST_HEAD, MOST_BODY = 4_000_000, 600_000_000
"""Bytes of an item: of its fields, metadata included, and of its text, embeddings and images."""
ITEM_BYTES = (
    64  # that an item counts as more than it has: many small ones are as bad as a large one
)
SILENT_SECONDS = 300.0
REPORT_EVERY = 2_000
LONGEST_SAID = 500  # characters of what is said about a part that does not come
LEVELS = 3  # of folders: the deepest source is projects/*/*.jsonl

_START = f"import sys; from {__name__} import main; main(*sys.argv[1:])"
_IS_ITEM = b'{"item": '
_ITEMS: dict[str, type[Item]] = {each.__name__: each for each in get_args(Item)}
_REFUSALS: list[type[MCPVectorDBError]] = [InvalidInput, Damaged, *IngestError.__subclasses__()]
_ERRORS = {each.code: each for each in _REFUSALS}


class ReadSource:
    """The kind of a source and its items, all of which were read; raises MCPVectorDBError.

    `items` is how many are counted by the report, as the process says. `silent_seconds` is how long
    it may take for one item.
    """

    def __init__(
        self,
        source: ImportSource,
        scratch: Path,
        kind: str | None,
        options: ImportOptions,
        config: Config,
        progress: ProgressCallback | None = None,
        *,
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        self._source, self._silent, self._progress = source, silent_seconds, progress
        self._memory, self._ratio = 2 * config.parse_memory, config.parse_output_ratio
        self._most = min(MOST_OUTPUT, SMALL_OUTPUT + self._ratio * _size(source.path))
        self._file, self.kind, self.total = scratch / "items", "", 0
        for each in [importers.named(kind)] if kind else importers.KINDS:
            inside = source.inside(each.file) or source
            expected = bool(kind) or inside.path.name == each.file
            inside.copy([pattern for pattern in each.beside if expected or "*" not in pattern])
        request = {
            "path": str(source.path),
            "readable": [str(scratch), *_readable(source)],
            "copies": str(scratch),
            "kind": kind,
            "options": vars(options),
        }
        process = _ReadingProcess(self._memory, config.parse_sandbox)
        try:
            with self._file.open("xb") as file:
                self._read(process, request, file)
        finally:
            process.end()

    def items(self) -> Iterator[Item]:
        """The items in the order in which they came."""
        named = os.path.realpath(self._source.path)
        with self._file.open("rb") as file:
            while True:
                try:
                    item = checked_folder(unpack(*_receive(file)), named)
                except EOFError:
                    return
                except (ValueError, TypeError, LookupError) as error:
                    raise ParseFailed(
                        f"{named} cannot be read: its reader gave an invalid item ({error})"
                    ) from None
                yield item

    def _read(self, process: _ReadingProcess, request: dict[str, Any], file: IO[bytes]) -> None:
        """Write all items to a file as they come, within the limits."""
        rest, count = self._most, 0
        expired = threading.Event()
        try:
            foreign.send(process.requests, json.dumps(request).encode())
            while True:
                begun = time.monotonic()
                with process.killed_after(self._silent) as expired:
                    while time.monotonic() - begun < self._silent / 10:
                        head, body = _receive(process.replies)
                        if not head.startswith(_IS_ITEM):
                            if self._ended(foreign.loaded(head)):
                                return
                            continue
                        rest -= len(head) + len(body) + ITEM_BYTES
                        if rest < 0:
                            raise self._too_much()
                        self._keep(file, head, body)
                        count += 1
                        if self._progress and count % REPORT_EVERY == 0:
                            self._progress(Progress(step="read", done=count, total=None))
        except MCPVectorDBError:
            raise
        except (OSError, EOFError):
            reason = (
                f"nothing came of it for {self._silent:g} seconds"
                if expired.is_set()
                else process.why_it_ended()
            )
            reason = f"{reason}; nothing was imported"
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            reason = f"its reader gave an invalid answer ({error})"
        raise ParseFailed(f"{self._source.path} cannot be read: {reason}")

    def _ended(self, said: dict[str, Any]) -> bool:
        """Note what the process says; whether that was the end."""
        match said:
            case {"error": str(code), "message": message}:
                raise _ERRORS.get(code, ParseFailed)(str(message)[:2_000])
            case {"kind": str(name)}:
                self.kind = importers.named(name).name
            case {"end": int(total)} if self.kind:
                self.total = total
                return True
            case _:
                raise ValueError("neither an item nor an answer")
        return False

    def _too_much(self) -> TooLarge:
        return TooLarge(
            f"{self._source.path} has items of more than {self._most:,} bytes, "
            f"{self._ratio} times its size; nothing was imported "
            f"{how_to_allow('parse_output_ratio')}"
        )

    def _keep(self, file: IO[bytes], head: bytes, body: bytes) -> None:
        try:
            foreign.send(file, head, body)
        except OSError as error:
            raise Unwritable(f"what {self._source.path} has cannot be kept: {error}") from None


def checked_folder(item: Item, named: str) -> Item:
    """An item; ValueError if it is a folder that says to be confirmed and that nobody has named."""
    if isinstance(item, FollowedFolder) and item.confirmed and item.root != named:
        raise ValueError("another folder than the one that was named")
    return item


class _ReadingProcess(foreign.ForeignProcess):
    """One process that reads one source."""

    def __init__(self, memory: int, confined: bool) -> None:
        self._memory = memory
        command = (sys.executable, "-P", "-c", _START, str(memory), str(int(confined)))
        super().__init__(partial(foreign.spawned, command))
        self.requests, self.replies = self.process.stdin, self.process.stdout
        self.wait_for_start()

    def why_it_ended(self) -> str:
        """What the status of the process and its last words say."""
        status, printed = self.exit_status(5), self.printed.quoted()
        if status == foreign.OUT_OF_MEMORY or foreign.is_out_of_memory(printed):
            return (
                f"it needs more than {self._memory:,} bytes of memory to read, twice "
                f"parse_memory {how_to_allow('parse_memory')}"
            )
        return f"its reader ended with status {status}{printed}"


def _readable(source: ImportSource) -> Iterator[str]:
    """What the process may read: the source, and what is linked to in it."""
    yield str(source.path)
    if source.is_folder:
        yield from map(str, _entries(source.path, links=True))


def _entries(folder: Path, *, links: bool, levels: int = LEVELS) -> Iterator[Path]:
    """The links, or else the files, in a folder and those inside of it."""
    with suppress(OSError), os.scandir(folder) as found:
        for each in found:
            if each.is_symlink() == links and (links or each.is_file()):
                yield Path(each.path)
            if levels > 1 and each.is_dir():
                yield from _entries(Path(each.path), links=links, levels=levels - 1)


def _size(path: Path) -> int:
    """The bytes that a source has on the disk."""
    if path.is_dir():
        return sum(map(data_bytes, _entries(path, links=False)))
    return data_bytes(path) + data_bytes(Path(f"{path}-wal"))


# --- both ends of the pipe


_TYPES: dict[str, type] = {
    **dict.fromkeys(("metadata", "fields", "descriptions", "embeddings"), dict),
    **dict.fromkeys(("tags", "ignore", "images"), list),
    "values": bytes,
    "count": int,
    "confirmed": bool,
}
"""The type of each field of items that is no text."""


def pack(item: Item) -> tuple[bytes, bytes]:
    """An item as JSON with the sizes of what is large in it, and that as bytes."""
    parts: list[bytes] = []

    def size(part: bytes) -> int:
        parts.append(part)
        return len(part)

    fields = dict(vars(item))
    if isinstance(item, LeftOut | UnreadPart):
        fields = {name: value[:LONGEST_SAID] for name, value in fields.items()}
    if "values" in fields:
        fields["values"] = size(fields["values"])
    if "fields" in fields:
        del fields["text"]  # which is one of them
        fields["fields"] = size(json.dumps(fields["fields"]).encode())
    if "text" in fields:
        whole = fields["text"]
        fields["text"] = size(whole.encode("utf-8", "surrogatepass"))
    if "embeddings" in fields:
        fields["embeddings"] = [
            [size(b"" if text == whole else text.encode("utf-8", "surrogatepass")), size(values)]
            for text, values in fields["embeddings"].items()
        ]
    if "images" in fields:
        fields["images"] = [
            [size(each.data), each.mime_type, each.metadata] for each in fields["images"]
        ]
    head = json.dumps({"item": type(item).__name__, **fields}, default=_plain).encode()
    if len(head) > MOST_HEAD or sum(map(len, parts)) > MOST_BODY:
        return pack(LeftOut(id=fields.get("id", ""), reason="it is larger than an item may be"))
    return head, b"".join(parts)


def _plain(value: Any) -> Any:
    return dict(value) if hasattr(value, "keys") else list(value)


def unpack(head: bytes, body: bytes) -> Item:
    """The item that was packed; ValueError, TypeError or LookupError if it is none."""
    at = 0

    def part(size: object) -> bytes:
        nonlocal at
        if type(size) is not int or not 0 <= size <= len(body) - at:
            raise ValueError("the sizes of its parts are wrong")
        at += size
        return body[at - size : at]

    fields: dict[str, Any] = json_text.loads(head)
    kind = _ITEMS[fields.pop("item")]
    if "values" in fields:
        fields["values"] = part(fields["values"])
    if "fields" in fields:
        fields["fields"] = record = json_text.loads(part(fields["fields"]))
        text = record.get("text") if isinstance(record, dict) else ""
        fields["text"] = text if isinstance(text, str) else ""
    elif "text" in fields:
        fields["text"] = part(fields["text"]).decode("utf-8", "surrogatepass")
    if "embeddings" in fields:
        fields["embeddings"] = {
            part(text).decode("utf-8", "surrogatepass") or fields["text"]: part(values)
            for text, values in fields["embeddings"]
        }
    if "images" in fields:
        fields["images"] = [
            Image(data=part(size), mime_type=_text(mime_type), metadata=said)
            for size, mime_type, said in fields["images"]
        ]
    if at != len(body):
        raise ValueError("it has too many parts")
    for name, value in fields.items():
        if type(value) is not _TYPES.get(name, str):
            raise TypeError(f"its {name} is of another type")
    for name in ("tags", "ignore"):
        any(map(_text, fields.get(name, ())))
    item: Item = kind(**fields)
    return item


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is none")
    return value


def _receive(pipe: IO[bytes] | None) -> tuple[bytes, bytes]:
    return foreign.receive(pipe, MOST_HEAD), foreign.receive(pipe, MOST_BODY)


# --- the process


def main(memory: str, confined: str) -> None:
    """Run as the process that reads a source; the arguments come from its command line."""
    requests, replies = foreign.private_pipes()
    sandbox.limit_memory(int(memory))
    sandbox.end_with_parent(os.getppid())
    foreign.send(replies, b"{}")
    try:
        request = foreign.loaded(foreign.receive(requests, MOST_HEAD))
        _preload(Path(request["path"]))
        if confined == "1":
            sandbox.confine(request["readable"])
        for head, body in _answers(request):
            foreign.send(replies, head, body)
    except EOFError:
        return
    except MemoryError:
        os._exit(foreign.OUT_OF_MEMORY)


def _preload(path: Path) -> None:
    """Import what starts threads, and reads more of the system than the process may later."""
    with suppress(OSError, ImportError), path.open("rb") as file:
        head = file.read(100)
        for kind in importers.KINDS:
            module, beginning = kind.preload
            if module and head.startswith(beginning):
                import_module(module)


def _answers(request: dict[str, Any]) -> Iterator[tuple[bytes, bytes]]:
    import apsw

    path, total = Path(request["path"]), 0
    try:
        source = ImportSource(path, Path(request["copies"]))
        name = request["kind"]
        kind = importers.named(name) if name else importers.detect(source)
        yield json.dumps({"kind": kind.name}).encode(), b""
        inside = source.inside(kind.file) or source
        for item in kind.read(inside, ImportOptions(**request["options"])):
            total += hasattr(item, "id") or hasattr(item, "fields")
            yield pack(item)
        if inside.database is not None:
            for what in inside.database.unread:
                yield pack(UnreadPart(what=what))
        said: dict[str, Any] = {"end": total}
    except (MemoryError, apsw.NoMemError) as error:
        raise MemoryError from error
    except MCPVectorDBError as error:
        said = {"error": error.code, "message": str(error)}
    except Exception as error:  # libraries raise errors of any class
        if foreign.is_out_of_memory(error):
            raise MemoryError from error
        said = {
            "error": ParseFailed.code,
            "message": f"{path} cannot be read: {type(error).__name__}: {error}"[:1_000],
        }
    yield json.dumps(said).encode(), b""
