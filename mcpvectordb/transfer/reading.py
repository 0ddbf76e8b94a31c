"""Read a source in a process of its own, which a hostile one may crash, fill or take over.

The process recognises the kind of the source and reads it; what comes out are items as JSON, which
are checked on arrival. It is started like that of `ingest.process` and confined alike
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
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, get_args

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
from mcpvectordb.ingest import process as foreign
from mcpvectordb.ingest import sandbox
from mcpvectordb.memories.memory import Image
from mcpvectordb.metadata import from_base64
from mcpvectordb.records import Progress, ProgressCallback
from mcpvectordb.text import json_text
from mcpvectordb.transfer import kinds
from mcpvectordb.transfer.items import FollowedFolder, ImportOptions, Item, LeftOut, UnreadPart
from mcpvectordb.transfer.rows import PARQUET_BEGINNING
from mcpvectordb.transfer.source import ImportSource, data_bytes

SMALL_OUTPUT, MOST_OUTPUT = 10_000_000, 32_000_000_000
"""Bytes of items that a source of any size may have; beyond these, parse_output_ratio applies."""
MOST_ITEM = 600_000_000  # bytes
ITEM_BYTES = 64  # an item counts as so many more: many small ones are as bad as a large one
SILENT_SECONDS = 300.0  # for one item
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

    `total` is how many are counted by the report, as the process says.
    """

    def __init__(
        self,
        source: ImportSource,
        kind: str | None,
        options: ImportOptions,
        config: Config,
        progress: ProgressCallback | None = None,
    ) -> None:
        self._source, self._progress = source, progress
        self._memory, self._ratio = 2 * config.parse_memory, config.parse_output_ratio
        self._file, self.kind, self.total = source.copies / "items", "", 0
        for each in [kinds.named(kind)] if kind else kinds.KINDS:
            inside = source.inside(each.file) or source
            expected = bool(kind) or inside.path.name == each.file
            inside.copy([pattern for pattern in each.beside if expected or "*" not in pattern])
        # What is linked to in a folder may be read, too.
        linked = _entries(source.path, links=True) if source.is_folder else ()
        request = {
            "path": str(source.path),
            "readable": [str(each) for each in (source.copies, source.path, *linked)],
            "copies": str(source.copies),
            "kind": kind,
            "options": vars(options),
        }
        limits = (str(self._memory), str(int(config.parse_sandbox)))
        command = (sys.executable, "-P", "-c", _START, *limits)
        process = foreign.ForeignProcess(partial(foreign.spawned, command))
        process.wait_for_start()
        try:
            with self._file.open("xb") as file:
                self._read(process, json.dumps(request).encode(), file)
        finally:
            process.end()

    def items(self) -> Iterator[Item]:
        """The items in the order in which they came."""
        named = os.path.realpath(self._source.path)
        with self._file.open("rb") as file:
            while True:
                try:
                    item = checked_folder(unpack(foreign.receive(file, MOST_ITEM)), named)
                except EOFError:
                    return
                except (ValueError, TypeError, LookupError) as error:
                    raise ParseFailed(
                        f"{named} cannot be read: its reader gave an invalid item ({error})"
                    ) from None
                yield item

    def _read(self, process: foreign.ForeignProcess, request: bytes, file: IO[bytes]) -> None:
        """Write all items to a file as they come, within the limits."""
        path = self._source.path
        on_disk = _entries(path, links=False) if path.is_dir() else (path, Path(f"{path}-wal"))
        rest = most = min(MOST_OUTPUT, SMALL_OUTPUT + self._ratio * sum(map(data_bytes, on_disk)))
        count, expired = 0, threading.Event()
        try:
            foreign.send(process.process.stdin, request)
            while True:
                begun = time.monotonic()
                with process.killed_after(SILENT_SECONDS) as expired:
                    while time.monotonic() - begun < SILENT_SECONDS / 10:
                        answer = foreign.receive(process.process.stdout, MOST_ITEM)
                        if not answer.startswith(_IS_ITEM):
                            if self._ended(foreign.loaded(answer)):
                                return
                            continue
                        rest -= len(answer) + ITEM_BYTES
                        if rest < 0:
                            raise TooLarge(
                                f"{path} has items of more than {most:,} bytes, {self._ratio} "
                                "times its size; nothing was imported "
                                f"{how_to_allow('parse_output_ratio')}"
                            )
                        self._keep(file, answer)
                        count += 1
                        if self._progress and count % REPORT_EVERY == 0:
                            self._progress(Progress(step="read", done=count, total=None))
        except MCPVectorDBError:
            raise
        except (OSError, EOFError):
            reason = (
                f"nothing came of it for {SILENT_SECONDS:g} seconds"
                if expired.is_set()
                else self._why_it_ended(process)
            )
            reason = f"{reason}; nothing was imported"
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            reason = f"its reader gave an invalid answer ({error})"
        raise ParseFailed(f"{path} cannot be read: {reason}")

    def _ended(self, said: dict[str, Any]) -> bool:
        """Note what the process says; whether that was the end."""
        match said:
            case {"error": str(code), "message": message}:
                raise _ERRORS.get(code, ParseFailed)(str(message)[:2_000])
            case {"kind": str(name)}:
                self.kind = kinds.named(name).name
            case {"end": int(total)} if self.kind:
                self.total = total
                return True
            case _:
                raise ValueError("neither an item nor an answer")
        return False

    def _keep(self, file: IO[bytes], item: bytes) -> None:
        try:
            foreign.send(file, item)
        except OSError as error:
            raise Unwritable(f"what {self._source.path} has cannot be kept: {error}") from None

    def _why_it_ended(self, process: foreign.ForeignProcess) -> str:
        """What the status of the process and its last words say."""
        status, printed = process.exit_status(5), process.printed.quoted()
        if status == foreign.OUT_OF_MEMORY or foreign.is_out_of_memory(printed):
            return (
                f"it needs more than {self._memory:,} bytes of memory to read, twice "
                f"parse_memory {how_to_allow('parse_memory')}"
            )
        return f"its reader ended with status {status}{printed}"


def checked_folder(item: Item, named: str) -> Item:
    """An item; ValueError if it is a folder that says to be confirmed and that nobody has named."""
    if isinstance(item, FollowedFolder) and item.confirmed and item.root != named:
        raise ValueError("another folder than the one that was named")
    return item


def _entries(folder: Path, *, links: bool, levels: int = LEVELS) -> Iterator[Path]:
    """The links, or else the files, in a folder and those inside of it."""
    with suppress(OSError), os.scandir(folder) as found:
        for each in found:
            if each.is_symlink() == links and (links or each.is_file()):
                yield Path(each.path)
            if levels > 1 and each.is_dir():
                yield from _entries(Path(each.path), links=links, levels=levels - 1)


# --- both ends of the pipe


_TYPES = {"Mapping": dict, "Sequence": list, "int": int, "bool": bool}
"""What a field of an item is in JSON, by its declared type; others are texts, bytes as base64."""


def pack(item: Item) -> bytes:
    """An item as JSON."""
    fields = vars(item)
    if isinstance(item, LeftOut | UnreadPart):
        fields = {name: value[:LONGEST_SAID] for name, value in fields.items()}
    said = {"item": type(item).__name__, **fields}
    packed = json.dumps(said, ensure_ascii=False, default=_in_json).encode("utf-8", "surrogatepass")
    if len(packed) > MOST_ITEM:
        return pack(LeftOut(id=fields.get("id", ""), reason="it is larger than an item may be"))
    return packed


def _in_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Image):
        return vars(value)
    return dict(value) if hasattr(value, "keys") else list(value)


def unpack(packed: bytes) -> Item:
    """The item that was packed; ValueError, TypeError or LookupError if it is none."""
    fields: dict[str, Any] = json_text.loads(packed)
    kind = _ITEMS[fields.pop("item")]
    for name, value in fields.items():
        declared = str(kind.__dataclass_fields__[name].type).partition("[")[0]
        if type(value) is not _TYPES.get(declared, str):
            raise TypeError(f"its {name} is of another type")
    images = fields.get("images", ())
    media_types = [each["mime_type"] for each in images]
    for text in (*fields.get("tags", ()), *fields.get("ignore", ()), *media_types):
        if not isinstance(text, str):
            raise TypeError("a text is none")
    if "values" in fields:
        fields["values"] = from_base64(fields["values"], "values")
    if "embeddings" in fields:
        found = fields["embeddings"].items()
        fields["embeddings"] = {text: from_base64(each, "an embedding") for text, each in found}
    if "images" in fields:
        fields["images"] = [
            Image(**{**each, "data": from_base64(each["data"], "an image")}) for each in images
        ]
    item: Item = kind(**fields)
    return item


# --- the process


def main(memory: str, confined: str) -> None:
    """Run as the process that reads a source; the arguments come from its command line."""
    requests, replies = foreign.private_pipes()
    sandbox.limit_memory(int(memory))
    sandbox.end_with_parent(os.getppid())
    foreign.send(replies, b"{}")
    try:
        request = foreign.loaded(foreign.receive(requests, foreign.HEAD_BYTES))
        with suppress(OSError, ImportError), Path(request["path"]).open("rb") as file:
            if file.read(4) == PARQUET_BEGINNING:
                # It starts threads, and reads more of the system than the process may later.
                import pyarrow.parquet  # noqa: F401
        if confined == "1":
            sandbox.confine(request["readable"])
        for answer in _answers(request):
            foreign.send(replies, answer)
    except EOFError:
        return
    except MemoryError:
        os._exit(foreign.OUT_OF_MEMORY)


def _answers(request: dict[str, Any]) -> Iterator[bytes]:
    import apsw

    path, total = Path(request["path"]), 0
    try:
        source = ImportSource(path, Path(request["copies"]))
        name = request["kind"]
        kind = kinds.named(name) if name else kinds.detect(source)
        yield json.dumps({"kind": kind.name}).encode()
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
            "message": f"{path} cannot be read: {type(error).__name__}: {str(error)[:900]}; "
            "nothing was imported",
        }
    yield json.dumps(said).encode()
