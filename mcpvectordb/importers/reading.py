"""Read a source in a process of its own, which a hostile one may crash, fill or take over.

The process recognises the kind of the source and reads it; what comes out are items, as JSON and
bytes, which are checked on arrival. It is started like that of `ingest.worker` and confined alike
(`ingest.sandbox`): no network, no writes, and nothing to read but Python, the source, and the
folder with the copies that were made of it. It makes no copy itself: it asks for it.

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
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
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
    Unreadable,
    Unwritable,
)
from mcpvectordb.importers import qmd
from mcpvectordb.importers.chroma_hnsw import FILES
from mcpvectordb.importers.foreign_database import data_bytes
from mcpvectordb.importers.items import (
    FollowedFolder,
    ImportedDocument,
    ImportedMemory,
    ImportedVector,
    ImportOptions,
    Item,
    LeftOut,
    OwnRecord,
    UnreadPart,
)
from mcpvectordb.importers.source import Copies, ImportSource
from mcpvectordb.ingest import sandbox, worker
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
_TYPES: dict[str, type] = {
    **dict.fromkeys(("metadata", "fields", "descriptions"), dict),
    **dict.fromkeys(("tags", "ignore", "images"), list),
    **dict.fromkeys(("count", "items"), int),
    "confirmed": bool,
}


class ReadSource:
    """The kind of a source and its items, all of which were read; raises MCPVectorDBError.

    `silent_seconds` is how long the process may take for one item.
    """

    def __init__(
        self,
        source: ImportSource,
        copies: Copies,
        kind: str | None,
        options: ImportOptions,
        config: Config,
        progress: ProgressCallback | None = None,
        *,
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        self._file = copies.folder / "items"
        self._named = os.path.realpath(source.path)
        process = _ReadingProcess(source, copies, config, silent_seconds)
        try:
            with self._file.open("xb") as file:
                self.kind = process.read(kind, options, file, progress)
        finally:
            process.end()

    def items(self) -> Iterator[Item]:
        """The items in the order in which they came."""
        with self._file.open("rb") as file:
            while True:
                try:
                    head, body = _receive(file)
                except EOFError:
                    return
                try:
                    item = checked_folder(unpack(head, body), self._named)
                except (ValueError, TypeError, LookupError) as error:
                    raise ParseFailed(
                        f"{self._named} cannot be read: its reader gave an invalid item ({error})"
                    ) from None
                yield item


def checked_folder(item: Item, named: str) -> Item:
    """An item; ValueError if it is a folder that says to be confirmed and that nobody has named."""
    if isinstance(item, FollowedFolder) and item.confirmed and item.root != named:
        raise ValueError("another folder than the one that was named")
    return item


class _ReadingProcess(worker._ParserProcess):
    """One process that reads one source."""

    def __init__(
        self, source: ImportSource, copies: Copies, config: Config, silent_seconds: float
    ) -> None:
        self._source, self._copies, self._silent = source, copies, silent_seconds
        self._kind = ""
        self._memory = 2 * config.parse_memory
        self._ratio = config.parse_output_ratio
        arguments = (self._memory, int(config.parse_sandbox))
        command = (sys.executable, "-P", "-c", _START, *map(str, arguments))
        super().__init__(partial(worker._spawned, command), threading.Timer)

    def read(
        self,
        kind: str | None,
        options: ImportOptions,
        file: IO[bytes],
        progress: ProgressCallback | None,
    ) -> str:
        """Write all items to a file as they come; the kind of the source."""
        request = {
            "path": str(self._source.path),
            "readable": [str(self._copies.folder), *_readable(self._source)],
            "folder": str(self._copies.folder),
            "kind": kind,
            "options": vars(options),
        }
        rest, count = self._most_output(), 0
        expired = threading.Event()
        try:
            worker._send(self._process.stdin, json.dumps(request).encode())
            while True:
                begun = time.monotonic()
                with self._killed_after(self._silent) as expired:
                    while time.monotonic() - begun < self._silent / 10:
                        head, body = _receive(self._process.stdout)
                        if not head.startswith(_IS_ITEM):
                            if self._answered(worker._loaded(head)):
                                return self._kind
                            continue
                        rest -= len(head) + len(body) + ITEM_BYTES
                        if rest < 0:
                            raise self._too_much()
                        self._keep(file, head, body)
                        count += 1
                        if progress and count % REPORT_EVERY == 0:
                            progress(Progress(step="read", done=count, total=None))
        except (OSError, EOFError) as error:
            if isinstance(error, MCPVectorDBError):
                raise
            reason = self._why_it_ended(expired.is_set())
            raise ParseFailed(
                f"{self._source.path} cannot be read: {reason}; nothing was imported"
            ) from None
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            if isinstance(error, MCPVectorDBError):
                raise
            raise ParseFailed(
                f"{self._source.path} cannot be read: its reader gave an invalid answer ({error})"
            ) from None

    def _answered(self, said: dict[str, Any]) -> bool:
        """Do what the process asks for or tells; whether that was the end."""
        match said:
            case {"error": str(code), "message": message}:
                raise _ERRORS.get(code, ParseFailed)(str(message)[:2_000])
            case {"kind": str(name)}:
                self._kind = importers.named(name).name
            case {"copy": list(asked)}:
                worker._send(self._process.stdin, self._copy(asked))
            case {"end": True} if self._kind:
                return True
            case _:
                raise ValueError("neither an item nor an answer")
        return False

    def _most_output(self) -> int:
        return min(MOST_OUTPUT, SMALL_OUTPUT + self._ratio * _size(self._source.path))

    def _too_much(self) -> TooLarge:
        return TooLarge(
            f"{self._source.path} has items of more than {self._most_output():,} bytes, "
            f"{self._ratio} times its size; nothing was imported "
            f"{how_to_allow('parse_output_ratio')}"
        )

    def _copy(self, asked: Sequence[Any]) -> bytes:
        """Make a copy that the process asks for, of the source and nothing else; its path."""
        name, folder = map(str, asked)
        inside = (
            self._source.inside(name) if name in {each.file for each in importers.KINDS} else None
        )
        if inside is None:
            raise ValueError("a copy of something else")
        if not all(each.isalnum() or each == "-" for each in folder):
            raise ValueError("a copy of something else")
        try:
            return os.fsencode(
                self._copies.beside(inside.path, folder, FILES)
                if folder
                else self._copies.snapshot(inside.path)
            )
        except OSError as error:
            if isinstance(error, MCPVectorDBError):
                raise
            raise Unreadable(f"{inside.path} cannot be copied: {error}") from None

    def _keep(self, file: IO[bytes], head: bytes, body: bytes) -> None:
        try:
            worker._send(file, head, body)
        except OSError as error:
            raise Unwritable(f"what {self._source.path} has cannot be kept: {error}") from None

    def _why_it_ended(self, expired: bool) -> str:
        if expired:
            return f"nothing came of it for {self._silent:g} seconds"
        with suppress(Exception):
            self._process.wait(timeout=5)
        printed = self._printed.quoted()
        if self._process.returncode == worker.OUT_OF_MEMORY or worker._OUT_OF_MEMORY_IN_C.search(
            printed
        ):
            return (
                f"it needs more than {self._memory:,} bytes of memory to read, twice "
                f"parse_memory {how_to_allow('parse_memory')}"
            )
        status = self._process.returncode
        return f"its reader ended with status {status}{printed}"


def _readable(source: ImportSource) -> Iterator[str]:
    """What the process may read: the source, what it links to, and the settings of qmd."""
    yield str(source.path)
    if source.is_folder:
        yield from map(str, _entries(source.path, links=True))
    for path in (source.inside("index.sqlite"), source):
        if path is not None and not path.is_folder:
            yield from map(str, qmd.settings_files(path.path))


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


def pack(item: Item) -> tuple[bytes, bytes]:
    """An item as JSON without what is large in it, and that as bytes."""
    fields, parts = dict(vars(item)), list[bytes]()
    match item:
        case ImportedDocument() | ImportedMemory():
            text = item.text.encode("utf-8", "surrogatepass")
            parts.append(text)
            for passage, values in item.embeddings.items():
                key = passage.encode("utf-8", "surrogatepass")
                parts += [b"" if key == text else key, values]
            fields["embeddings"] = len(item.embeddings)
            del fields["text"]
        case ImportedVector():
            parts.append(fields.pop("values"))
        case OwnRecord():
            parts.append(json.dumps(fields.pop("fields")).encode())
            del fields["text"]
        case LeftOut() | UnreadPart():
            fields = {name: value[:LONGEST_SAID] for name, value in fields.items()}
    if isinstance(item, ImportedMemory):
        parts += [each.data for each in item.images]
        fields["images"] = [[each.mime_type, each.metadata] for each in item.images]
    fields = {"item": type(item).__name__, "sizes": list(map(len, parts)), **fields}
    head = json.dumps(fields, default=_plain).encode()
    if len(head) > MOST_HEAD or sum(map(len, parts)) > MOST_BODY:
        return pack(LeftOut(id=getattr(item, "id", ""), reason="it is larger than an item may be"))
    return head, b"".join(parts)


def _plain(value: Any) -> Any:
    return dict(value) if hasattr(value, "keys") else list(value)


def unpack(head: bytes, body: bytes) -> Item:
    """The item that was packed; ValueError, TypeError or LookupError if it is none."""
    fields = json_text.loads(head)
    kind, sizes = _ITEMS[fields.pop("item")], fields.pop("sizes")
    if any(type(each) is not int or each < 0 for each in sizes) or sum(sizes) != len(body):
        raise ValueError("the sizes of its parts are wrong")
    parts, at = list[bytes](), 0
    for size in sizes:
        parts.append(body[at : at + size])
        at += size
    parts.reverse()
    rest = parts.pop
    if kind is ImportedDocument or kind is ImportedMemory:
        text = rest().decode("utf-8", "surrogatepass")
        fields["text"] = text
        embeddings = {}
        for _ in range(_number(fields.pop("embeddings"), len(parts))):
            passage = rest().decode("utf-8", "surrogatepass")
            embeddings[passage or text] = rest()
        fields["embeddings"] = embeddings
    elif kind is ImportedVector:
        fields["values"] = rest()
    elif kind is OwnRecord:
        fields["fields"] = json_text.loads(rest())
        if not isinstance(fields["fields"], dict):
            raise TypeError("its fields are no object")
        said = fields["fields"].get("text")
        fields["text"] = said if isinstance(said, str) else ""
    if kind is ImportedMemory:
        fields["images"] = [
            Image(data=rest(), mime_type=_text(mime_type), metadata=said)
            for mime_type, said in fields["images"]
        ]
    if parts:
        raise ValueError("it has too many parts")
    for name, value in fields.items():
        if name not in ("embeddings", "values") and type(value) is not _TYPES.get(name, str):
            raise TypeError(f"its {name} is of another type")
        if name in ("tags", "ignore"):
            any(map(_text, value))
    item: Item = kind(**fields)
    return item


def _number(value: object, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("a number is out of range")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is none")
    return value


def _receive(pipe: IO[bytes] | None) -> tuple[bytes, bytes]:
    return worker._receive(pipe, MOST_HEAD), worker._receive(pipe, MOST_BODY)


# --- the process


class _AskedCopies(Copies):
    """Has copies made by the parent of this process, which may write."""

    def __init__(self, folder: Path, root: Path, requests: IO[bytes], replies: IO[bytes]) -> None:
        super().__init__(folder)
        self._root, self._requests, self._replies = root, requests, replies

    def snapshot(self, path: Path) -> Path:
        """A copy of a SQLite database as of one moment."""
        return self._asked(path, "")

    def beside(self, path: Path, folder: str, files: Sequence[str]) -> Path:
        """A copy of the files of a folder beside a file, as far as they exist."""
        return self._asked(path, folder)

    def _asked(self, path: Path, folder: str) -> Path:
        name = "" if path == self._root else path.name
        worker._send(self._replies, json.dumps({"copy": [name, folder]}).encode(), b"")
        return Path(os.fsdecode(worker._receive(self._requests, MOST_HEAD)))


def main(memory: str, confined: str) -> None:
    """Run as the process that reads a source; the arguments come from its command line."""
    requests, replies = worker._private_pipes()
    sandbox.limit_memory(int(memory))
    sandbox.end_with_parent(os.getppid())
    worker._send(replies, b"{}")
    try:
        request = worker._loaded(worker._receive(requests, MOST_HEAD))
        _import_pyarrow(Path(request["path"]))
        if confined == "1":
            sandbox.confine(request["readable"])
        for head, body in _answers(request, requests, replies):
            worker._send(replies, head, body)
    except EOFError:
        return
    except MemoryError:
        os._exit(worker.OUT_OF_MEMORY)


def _import_pyarrow(path: Path) -> None:
    """Load what starts threads, and reads more of the system than the process may later."""
    if path.is_file():
        with path.open("rb") as file:
            if file.read(4) == b"PAR1":
                from mcpvectordb.export.tables import modules

                with suppress(InvalidInput):
                    modules()


def _answers(
    request: dict[str, Any], requests: IO[bytes], replies: IO[bytes]
) -> Iterator[tuple[bytes, bytes]]:
    import apsw

    path = Path(request["path"])
    try:
        copies = _AskedCopies(Path(request["folder"]), path, requests, replies)
        source = ImportSource(path, copies)
        kind = request["kind"]
        found = importers.named(kind) if kind else importers.detect(source)
        yield json.dumps({"kind": found.name}).encode(), b""
        inside = source.inside(found.file) or source
        for item in importers.reader(found)(inside, ImportOptions(**request["options"])):
            yield pack(item)
        if inside.database is not None:
            for what in inside.database.unread:
                yield pack(UnreadPart(what=what))
        said: dict[str, Any] = {"end": True}
    except (MemoryError, apsw.NoMemError) as error:
        raise MemoryError from error
    except MCPVectorDBError as error:
        said = {"error": error.code, "message": str(error)}
    except Exception as error:  # libraries raise errors of any class
        if worker._OUT_OF_MEMORY_IN_C.search(str(error)):
            raise MemoryError from error
        said = {
            "error": ParseFailed.code,
            "message": f"{path} cannot be read: {type(error).__name__}: {error}"[:1_000],
        }
    yield json.dumps(said).encode(), b""
