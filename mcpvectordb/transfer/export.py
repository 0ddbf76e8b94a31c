"""Export: what a file holds, as one read transaction sees it, in formats that other programs read.

JSONL      everything: importing it into an empty file gives an equal one
Markdown   a folder with a file for each document and memory, to be read by editors of notes
CSV        passages and vectors as one flat table; Parquet the same, with embeddings as lists

Each item is a dict: the line of it that JSONL has (`DocumentItems.line` …), with bytes as they are.
Nothing is kept but the item at hand, so memory is bounded by the largest one. A target is complete
or not there at all.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import re
import shutil
import unicodedata
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Literal, get_args

from mcpvectordb import __version__, dates
from mcpvectordb.documents import libraries
from mcpvectordb.documents.items import DocumentItems
from mcpvectordb.documents.libraries import LibraryVersions
from mcpvectordb.documents.rows import path as path_in_library
from mcpvectordb.errors import InvalidInput, MCPVectorDBError, NotFound, Unwritable, quoted
from mcpvectordb.index import arrays
from mcpvectordb.index.chunks import ModelRow, active_model
from mcpvectordb.ingest import formats
from mcpvectordb.ingest.formats.markdown import fence
from mcpvectordb.ingest.structure import front_matter
from mcpvectordb.memories.items import VALIDITY, MemoryItems
from mcpvectordb.metadata import library_name
from mcpvectordb.ranking.why_empty import unknown_name
from mcpvectordb.records import Exported, Progress, ProgressCallback
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.file import File
from mcpvectordb.storage.lazy import np
from mcpvectordb.storage.new_file import (
    create_private,
    flush_to_disk,
    new_file,
    part_of,
    remove_stale_parts,
    sync_folder,
)
from mcpvectordb.vectors.store import VectorStore

ExportFormat = Literal["jsonl", "markdown", "csv", "parquet"]
FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
_ENDINGS: dict[str, ExportFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    "": "markdown",
}
_PACKED = ".gz"

Line = dict[str, Any]


def export(
    file: File,
    path: Path,
    *,
    format: str | None = None,
    library: str | None = None,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> Exported:
    """Write what one read transaction sees, also while others write; see `Database.export_to`."""
    path = path.expanduser()
    chosen, packed = target_format(path, format)
    with file.reading(limited=False) as sql:
        snapshot = ExportSnapshot(sql, library, progress)
        if chosen == "markdown":
            path = path.absolute()
            _write_folder(snapshot, path)
        else:
            with new_file(file, path, overwrite=overwrite) as (path, part):
                if chosen == "parquet":
                    write_parquet(snapshot, part)
                else:
                    opener = gzip.open if packed else open
                    with opener(part, "wt", encoding="utf-8", newline="") as text:
                        (write_jsonl if chosen == "jsonl" else write_csv)(snapshot, text)
                flush_to_disk(part)
    left_out: tuple[str, ...] = ()
    if chosen == "markdown" and snapshot.counts["vectors"]:
        left_out = (f"{snapshot.counts['vectors']:,} vectors, which have no text",)
    elif chosen in ("csv", "parquet") and snapshot.counts["context_images"]:
        left_out = (f"{snapshot.counts['context_images']:,} images",)
    return Exported(
        path=str(path),
        format=chosen,
        documents=snapshot.counts["published_documents"],
        memories=snapshot.counts["contexts"],
        vectors=0 if chosen == "markdown" else snapshot.counts["vectors"],
        left_out=left_out,
    )


def target_format(path: Path, format: str | None) -> tuple[ExportFormat, bool]:
    """The format of an export, and whether it is packed by gzip; raises InvalidInput.

    Without a format, the name of the target decides.
    """
    packed = path.suffix.lower() == _PACKED
    ending = (path.with_suffix("") if packed else path).suffix.lower()
    if format is None:
        if ending not in _ENDINGS and not path.is_dir():
            raise InvalidInput(
                f"{quoted(str(path))} does not end with .jsonl, .csv or .parquet, nor is it a "
                f"folder: name a format ({', '.join(FORMATS)})"
            )
        format = _ENDINGS.get(ending, "markdown")
    if format not in FORMATS:
        raise InvalidInput(f"format must be {', '.join(FORMATS)}, not {quoted(format)}")
    if packed and format not in ("jsonl", "csv"):
        raise InvalidInput(f"only jsonl and csv are written as {_PACKED}, not {format}")
    return format, packed


def _write_folder(snapshot: ExportSnapshot, folder: Path) -> None:
    """Write Markdown files into a new folder, or an empty one, which appears complete."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InvalidInput(
            f"{folder} exists already and is not empty; a folder is never overwritten: name a new "
            "one"
        )
    if not folder.parent.is_dir():
        raise Unwritable(f"the folder {folder.parent} does not exist: make it first")
    remove_stale_parts(folder)
    part = part_of(folder)
    try:
        part.mkdir(mode=0o700)
        write_markdown(snapshot, part)
        if folder.exists():
            folder.rmdir()  # fails if something was put into it meanwhile
        part.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        if isinstance(error, MCPVectorDBError):
            raise
        raise Unwritable(f"{folder} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


class ExportSnapshot:
    """The content of a file in an open read transaction: all of it, or one library's documents.

    `counts` are the rows of each table that are exported. `progress` is told of an item when it is
    written, that is when the next one is asked for.
    """

    def __init__(self, sql: Sql, library: str | None, progress: ProgressCallback | None) -> None:
        self._sql, self.library, self._progress = sql, library, progress
        self.model: ModelRow | None = active_model(sql)
        if library is not None:
            known = [name for (name,) in sql.execute(libraries.NAMES)]
            if library_name(library) not in known:
                raise NotFound(unknown_name("library", library, known))
        self.counts: dict[str, int] = {
            table: sql.execute(f"SELECT count(*) FROM {table} WHERE {condition}", (library,)).get
            for table, condition in {
                "published_documents": _CHOSEN,
                "contexts": _WHOLE_FILE,
                "vectors": _WHOLE_FILE,
                "context_images": _WHOLE_FILE,
            }.items()
        }
        self.items = sum(self.counts.values()) - self.counts["context_images"]
        self._done = 0

    def settings(self) -> dict[str, Any]:
        """What the file settles for all texts: chunk sizes, precision, indexed metadata keys.

        Also the folders from which libraries were ingested, by which the paths of documents begin,
        and the names of projects by what they are known by.
        """
        kept = self._sql.execute(
            "SELECT name, value FROM settings "
            "WHERE name IN ('chunk_size', 'chunk_overlap', 'embeddings', 'indexed_metadata') "
            "OR CASE WHEN ?1 IS NULL THEN name GLOB 'folders:*' OR name GLOB 'project:*' "
            "ELSE name = 'folders:' || ?1 END",
            (self.library,),
        )
        return {name: json.loads(value) for name, value in kept}

    def libraries(self) -> Iterator[Line]:
        """The libraries that follow a folder, with what is said of their parts."""
        for version in LibraryVersions.where(self._sql, "?1 IS NULL OR name = ?1", (self.library,)):
            yield {"kind": "library", **LibraryVersions.line(version)}

    def path(self, library: str, source: str) -> str:
        """The path of a document in listings."""
        return path_in_library(library, source, libraries.root(self._sql, library))

    def documents(self) -> Iterator[Line]:
        """The documents, in the order in which they were written."""
        return self._texts("document", DocumentItems, _CHOSEN)

    def memories(self) -> Iterator[Line]:
        """The memories, by their ids; none if only a library is exported."""
        return self._texts("context", MemoryItems, _WHOLE_FILE)

    def stores(self) -> Iterator[Line]:
        """Name and metric of each store of vectors, also of empty ones."""
        for name, metric in self._sql.execute(
            f"SELECT name, metric FROM stores WHERE {_WHOLE_FILE} ORDER BY key", (self.library,)
        ):
            yield {"kind": "store", "name": name, "metric": metric}

    def vectors(self) -> Iterator[Line]:
        """The vectors, in the order in which they were added; none if a library is exported."""
        rows = self._sql.execute(
            f"{VectorStore.select} WHERE {_WHOLE_FILE} ORDER BY {VectorStore.key}", (self.library,)
        )
        lines = (VectorStore.line(VectorStore.version(self._sql, row), row[-1]) for row in rows)
        return self._counted("vector", lines)

    def has_double_precision(self) -> bool:
        """Whether any vector has numbers that float32 does not hold exactly."""
        return self.library is None and bool(
            self._sql.execute(
                "SELECT EXISTS (SELECT 1 FROM vectors v JOIN vector_embeddings e "
                "ON e.vector = v.key WHERE octet_length(e.embedding) = 8 * v.dimension)"
            ).get
        )

    def _texts(
        self, kind: str, items: type[DocumentItems | MemoryItems], condition: str
    ) -> Iterator[Line]:
        model = self.model and self.model.key
        versions = items.where(self._sql, condition, (self.library,))
        return self._counted(kind, (items.line(self._sql, each, model) for each in versions))

    def _counted(self, kind: str, lines: Iterable[Line]) -> Iterator[Line]:
        for line in lines:
            yield {"kind": kind, **line}
            self._done += 1
            if self._progress:
                self._progress(Progress(step="export", done=self._done, total=self.items))


_CHOSEN, _WHOLE_FILE = "(?1 IS NULL OR library = ?1)", "?1 IS NULL"


# --- JSONL
#
# One JSON object per line, in this order. Bytes are base64, numbers of embeddings little-endian
# float32 or float16 (of vectors float32 or float64): 4, 2 or 8 bytes for each of `dimension`.
#
# {"mcpvectordb": 1, "model": …, "settings": …, …}    the header; 1 is the version of this format
# {"kind": "library", …}                              a library that follows a folder
# {"kind": "document", …, "text": …, "chunks": […]}
# {"kind": "context", …, "text": …, "chunks": […]}
# {"kind": "store", "name": …, "metric": …}
# {"kind": "vector", "store": …, …}
# {"kind": "end", "items": …}                         what comes before it is complete

JSONL_VERSION = 1

_json_line = json.JSONEncoder(
    ensure_ascii=False,
    separators=(",", ":"),
    allow_nan=False,
    default=lambda raw: b64encode(raw).decode(),
).encode


def write_jsonl(snapshot: ExportSnapshot, file: IO[str]) -> None:
    """Write everything, one object per line."""
    model = snapshot.model
    header = {
        "mcpvectordb": JSONL_VERSION,
        "program": __version__,
        "created_at": dates.now(),
        "library": snapshot.library,
        "model": model
        and {"name": model.name, "digest": model.digest, "dimension": model.dimension},
        "settings": snapshot.settings(),
        "items": snapshot.items,
    }
    lines = chain(
        [header],
        snapshot.libraries(),
        snapshot.documents(),
        snapshot.memories(),
        snapshot.stores(),
        snapshot.vectors(),
        [{"kind": "end", "items": snapshot.items}],
    )
    file.writelines(_json_line(line) + "\n" for line in lines)


# --- Markdown
#
# documents/LIBRARY/PATH.md and contexts/THREAD/ID.md, images beside their memories. The front
# matter has title, tags and metadata as editors of notes read them; what else is known of a text
# stands below its key `mcpvectordb`. The folder can be ingested again.

_IMAGES = {"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp"}


def write_markdown(snapshot: ExportSnapshot, folder: Path) -> None:
    """Write the documents and memories, each as a file with YAML front matter."""
    names = FileNames()
    for document in snapshot.documents():
        library, source = document["library"], document["source"]
        inside = snapshot.path(library, source)[len(library) + 1 :]
        place = ["documents", library]
        name = names.of(place, inside.partition("://")[2] or inside, document["id"])
        known = ("id", "library", "source", "hash", "file_type", "modified", "created_at")
        own = {"title": document["title"], "mcpvectordb": {each: document[each] for each in known}}
        # The text below its own front matter, whose content is metadata; code is in a fence.
        text = str(document["text"])
        if formats.by_name(Path(source).name) is formats.CODE:
            text = fence(text, document["file_type"])
        elif end := front_matter(text)[1]:
            text = text[end:].lstrip("\r\n")
        _write(folder / name, page(own, document["metadata"], text))
    for memory in snapshot.memories():
        id = str(memory["id"])
        name = names.of(["contexts", memory["thread"]], id, id)
        images = {
            Path(name).with_suffix(f".{place}{_IMAGES.get(each['mime_type'], '.bin')}"): each
            for place, each in enumerate(memory["images"], 1)
        }
        own_fields = ("id", "thread", "source", "created_at", "updated_at", *VALIDITY)
        said: Line = {each: memory[each] for each in own_fields if each in memory}
        if images:
            said["images"] = [image.name for image in images]
        own = {"tags": memory["tags"]} if memory["tags"] else {}
        front = own | {"mcpvectordb": said}
        _write(folder / name, page(front, memory["metadata"] or {}, memory["text"]))
        for image, each in images.items():
            _write(folder / image, each["data"])


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    create_private(file, content)


def page(own: Mapping[str, Any], metadata: Mapping[str, Any], text: str) -> bytes:
    """A text below front matter: what is known of it, then its metadata of other keys."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # the same in C, where it is there
    head = yaml.dump(
        {**own, **metadata, **own},
        Dumper=dumper,
        sort_keys=False,
        allow_unicode=True,
        width=2**31 - 1,
    )
    return f"---\n{head}---\n{text}".encode()


# Every system accepts the names of files. A source may be ../../etc/passwd, C:\con, a URL, or 5,000
# characters of anything. The names made of them stay inside of their folder, hide nothing, and are
# different on disks that ignore case, too.

LONGEST_NAME = 120  # bytes of a name: systems allow 255, and suffixes are added to it
LONGEST_PATH = 200  # characters: some programs on Windows allow 260 with the folders above
ENDING = ".md"

# Separators, control characters, what Windows does not allow, and what turns the text around.
_UNSAFE = re.compile(r'[/\\\x00-\x1f\x7f-\x9f<>:"|?*\u200e\u200f\u202a-\u202e\u2066-\u2069]')
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])\s*(\.|$)")


class FileNames:
    """Gives each text a path of its own, relative to one folder."""

    def __init__(self) -> None:
        # Digests, so that a million paths take some ten MB.
        self._taken: set[bytes] = set()

    def of(self, folders: Sequence[str], path: str, id: str) -> str:
        """A path in these folders for a source; `id` makes it different from those before it."""
        inner = [each for each in re.split(r"[/\\]+", path) if each not in _DOTS]
        *above, last = [_safe(each) for each in (*folders, *(inner or [""]))]
        name = f"{_shortened(last.removesuffix(ENDING))}{ENDING}"
        inside = "/".join(_folder(each) for each in above)
        if len(inside) + len(name) > LONGEST_PATH:
            inside = "/".join([*map(_folder, above[: len(folders)]), _digest(inside).hex()[:16]])
        chosen = f"{inside}/{name}"
        if not self._take(chosen):
            marked = _shortened(f"{name.removesuffix(ENDING)} {_safe(id)}")
            chosen = f"{inside}/{marked}{ENDING}"
            self._take(chosen)
        return chosen

    def _take(self, path: str) -> bool:
        """Take a path; whether it was free."""
        key = _digest(unicodedata.normalize("NFC", path).casefold())
        free = key not in self._taken
        self._taken.add(key)
        return free


_DOTS = ("", ".", "..")


def _safe(part: str) -> str:
    """A part of a path as a name that is visible and allowed everywhere."""
    name = _UNSAFE.sub("_", unicodedata.normalize("NFC", part)).strip().rstrip(". ")
    if not name or name.startswith(".") or _RESERVED.match(name):
        name = f"_{name}"
    return name


def _folder(name: str) -> str:
    """A folder's name, which never is a file's: those end with .md, and these never do."""
    short = _shortened(name)
    return f"{short}_" if short.casefold().endswith(ENDING) else short


def _shortened(name: str) -> str:
    """A name of at most LONGEST_NAME bytes; a longer one ends with a digest of all of it."""
    raw = name.encode()
    if len(raw) <= LONGEST_NAME:
        return name
    kept = raw[: LONGEST_NAME - 17].decode(errors="ignore").rstrip(". ")
    return f"{kept}-{_digest(name).hex()[:16]}"


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]


# --- CSV and Parquet
#
# CSV is UTF-8, with lists and embeddings as JSON. Values are written as they are, also those that
# begin with =, +, - or @: a spreadsheet would run them as formulas, so import the file there as
# text.

# `shelf` is documents, contexts (memories) or vectors. The id of a passage is that of its document
# or memory, # and the passage's number from 0. Metadata are JSON.
COLUMNS = tuple(
    "shelf id text title source library thread store namespace page first_line last_line headings "
    "tags metadata created_at model embedding".split()
)
"""The columns; what does not apply to a row is None."""

ROWS = 1_000  # that are collected before they are written: some MB of embeddings


def write_csv(snapshot: ExportSnapshot, file: IO[str]) -> None:
    """Write a row for each passage and vector."""
    table = csv.writer(file)
    table.writerow(COLUMNS)
    for row in _rows(snapshot):
        cells = [
            value.tolist() if hasattr(value, "tolist") else value
            for value in (row[name] for name in COLUMNS)
        ]
        table.writerow(
            json.dumps(value, ensure_ascii=False) if isinstance(value, list | tuple) else value
            for value in cells
        )


def write_parquet(snapshot: ExportSnapshot, part: Path) -> None:
    """Write the same rows, with embeddings as lists."""
    arrow, parquet = parquet_modules()
    number = arrow.float64() if snapshot.has_double_precision() else arrow.float32()
    types = {
        **dict.fromkeys(("page", "first_line", "last_line"), arrow.int32()),
        **dict.fromkeys(("headings", "tags"), arrow.list_(arrow.string())),
        "embedding": arrow.list_(number),
    }
    schema = arrow.schema([(name, types.get(name, arrow.string())) for name in COLUMNS])
    rows = _rows(snapshot)
    with parquet.ParquetWriter(part, schema, compression="zstd") as writer:
        while batch := list(islice(rows, ROWS)):
            columns = [
                arrow.array([row[each.name] for row in batch], type=each.type, from_pandas=False)
                for each in schema
            ]
            writer.write_table(arrow.table(columns, schema=schema))


def parquet_modules() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet; InvalidInput names the extra that brings them."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InvalidInput(
            "Parquet needs pyarrow, which is not installed: pip install 'mcpvectordb[parquet]'"
        ) from None
    return pyarrow, pyarrow.parquet


def _rows(snapshot: ExportSnapshot) -> Iterator[Line]:
    """A row for each passage and vector; a text without passages has a single row without any."""
    model = snapshot.model
    for item in chain(snapshot.documents(), snapshot.memories()):
        shared = {**_row(item), "text": None}
        for place, chunk in enumerate(item["chunks"]):
            raw = chunk.get("embedding")
            yield {
                **shared,
                "id": f"{item['id']}#{place}",
                "text": item["text"][chunk["start"] : chunk["end"]],
                "page": chunk.get("page"),
                "first_line": chunk["first_line"],
                "last_line": chunk["last_line"],
                "headings": chunk.get("headings", ()),
                "model": model.name if model and raw else None,
                "embedding": _numbers(raw, model.dimension) if model and raw else None,
            }
        if not item["chunks"]:
            yield shared
    for vector in snapshot.vectors():
        yield {**_row(vector), "embedding": _numbers(vector["raw"], vector["dimension"])}


def _row(item: Line) -> Line:
    """What all rows of an item have."""
    said = item["metadata"]
    return {
        **{name: item.get(name) for name in COLUMNS},
        "shelf": f"{item['kind']}s",
        "id": str(item["id"]),
        "metadata": None if said is None else json.dumps(said, ensure_ascii=False),
    }


def _numbers(raw: bytes, dimension: int) -> Any:
    """An embedding as an array."""
    return arrays.unpacked([raw], dimension)[0].astype(
        np.float64 if len(raw) == 8 * dimension else np.float32
    )
