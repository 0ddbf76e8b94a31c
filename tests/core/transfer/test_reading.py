"""Sources that are small and would fill the memory or the disk: one clear error, nothing stored."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Config, Database, Image, ParseFailed, TooLarge, Unreadable
from mcpvectordb.ingest import sandbox
from mcpvectordb.transfer import reading
from mcpvectordb.transfer.items import (
    FollowedFolder,
    ImportedDocument,
    ImportedMemory,
    ImportedVector,
    Item,
    LeftOut,
    OwnRecord,
    UnreadPart,
)
from tests.core.transfer.conftest import execute
from tests.support import Letters

MEMORY = 200_000_000
Make = Callable[[Path], Path]
VALUES = b"[" + b"[]," * 3_900_000 + b"[]]"  # 12 MB, less than the most values, 250 MB of objects


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """A file whose imports have twice 200 MB."""
    (tmp_path / "home").mkdir()
    config = Config(parse_memory=MEMORY)
    with Database(tmp_path / "home" / "notes.db", embedder=Letters(), config=config) as opened:
        yield opened


def packed(name: str, *parts: bytes) -> Make:
    """A file that is many times smaller than what is in it."""

    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(gzip.compress(b"".join(parts)))
        return path

    return make


def many_values(folder: Path) -> Path:
    """A line of very many values, which is not packed."""
    path = folder / "notes.jsonl"
    path.write_bytes(b'{"text": "a note"}\n{"text": ' + VALUES[:-1] + b"," + VALUES[1:] + b"}\n")
    return path


def archive(length: int, times: int = 1) -> Make:
    """An export of ChatGPT whose one conversation is this long, with the same bytes under as many
    names.
    """

    def make(folder: Path) -> Path:
        path = folder / "export.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
            conversation = b'[{"mapping": {}, "x": "' + b"x" * length + b'"}]'
            opened.writestr("conversations.json", conversation)
            opened.filelist *= times
        return path

    return make


def parquet(name: str, columns: Callable[[Any], dict[str, Any]]) -> Make:
    """A file with the columns that are made by pyarrow."""

    def make(folder: Path) -> Path:
        arrow, written = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
        table = arrow.table(columns(arrow))
        written.write_table(table, folder / name, compression="zstd", store_schema=False)
        return folder / name

    return make


# Very many rows of nothing; one long text in each of many rows; one row with a very long list.
rows = parquet("rows.parquet", lambda arrow: {"text": arrow.nulls(20_000_000, arrow.string())})
texts = parquet(
    "texts.parquet",
    lambda arrow: {
        "text": arrow.DictionaryArray.from_arrays(
            arrow.array([0] * 50_000, arrow.int32()), arrow.array(["long text " * 500_000])
        )
    },
)
long_list = parquet(
    "list.parquet",
    lambda arrow: {
        "text": ["a"],
        "values": arrow.ListArray.from_arrays(
            [0, 30_000_000], arrow.nulls(30_000_000, arrow.int8())
        ),
    },
)


def sparse(folder: Path, journal: bytes = b"\1\1") -> Path:
    """A database that says to have two million pages, and has two."""
    path = folder / "sparse.db"
    execute(path, "CREATE TABLE notes (text); INSERT INTO notes VALUES ('a note')")
    raw = bytearray(path.read_bytes())
    raw[28:32], raw[18:20] = (2_000_000).to_bytes(4, "big"), journal
    path.write_bytes(raw)
    os.truncate(path, 2_000_000 * 4096)
    return path


def shared_pages(folder: Path) -> Path:
    """A database of llm in which one long fragment is part of very many prompts."""
    execute(
        folder / "logs.db",
        "CREATE TABLE responses (id TEXT, prompt, response, conversation_id);"
        "CREATE TABLE fragments (id INTEGER PRIMARY KEY, content);"
        'CREATE TABLE prompt_fragments (response_id TEXT, fragment_id, "order");'
        "INSERT INTO fragments VALUES (1, hex(zeroblob(100000)));"
        "INSERT INTO responses VALUES ('r', 'why?', 'so', 'c');"
        "WITH RECURSIVE n (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n LIMIT 3000) "
        "INSERT INTO prompt_fragments SELECT 'r', 1, n FROM n",
    )
    return folder / "logs.db"


UNPACKS = "unpacks to more than 100 times its size"
MEMORY_OF_ALL = "400,000,000 bytes of memory to read, twice parse_memory .*MCPVECTORDB_PARSE_MEMORY"
NOTE = b'{"text": "a first note"}\n'
BOMBS: dict[str, tuple[Make, int, str]] = {
    "gzip": (
        packed("notes.jsonl.gz", NOTE * 1000, b'{"text": "', b"x" * 60_000_000, b'"}\n'),
        100_000,
        UNPACKS,
    ),
    "csv": (packed("a.csv.gz", b'text,b\n"x","', b"y" * 80_000_000, b'"\n'), 100_000, UNPACKS),
    "values": (many_values, 25_000_000, "line 2: it has more than 4,000,000 values"),
    "zip": (archive(15_000_000), 100_000, UNPACKS),
    "overlapping": (archive(1_000_000, 21), 10_000, f"{UNPACKS}|Overlapped"),  # 3.13 itself
    "rows": (rows, 50_000, "says that it has 20,000,000 rows"),
    "texts": (texts, 10_000, "bytes of memory to read|100 times its size"),
    "list": (long_list, 10_000, "bytes of memory to read"),
    "sparse": (sparse, 2**34, r"8,192 bytes of data and says that it has 8,192,000,000"),
    "sparse wal": (
        lambda folder: sparse(folder, b"\2\2"),  # without a log, so that it is copied
        2**34,
        r"bytes of data and says that it has 8,192,000,000",
    ),
    "shared": (shared_pages, 400_000, MEMORY_OF_ALL),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_source_fills_neither_memory_nor_disk(
    db: Database, tmp_path: Path, name: str
) -> None:
    make, size, words = BOMBS[name]
    path = make(tmp_path)
    assert path.stat().st_size < size
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((ParseFailed, TooLarge, Unreadable), match=words) as error:
        db.import_from(path)
    assert "nothing was imported" in str(error.value) and "\n" not in str(error.value)
    assert path.name in str(error.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KB
    assert db.documents.count() == db.memories.count() == db.vectors.count() == 0
    left = {each.name for each in (tmp_path / "home").iterdir()}
    assert left <= {"notes.db", "notes.db-wal", "notes.db-shm"}
    good = tmp_path / "good.jsonl"
    good.write_text('{"text": "a note"}\n')
    assert db.import_from(good).added == {"documents": 1}


def test_an_honest_packed_source_and_a_file_with_a_hole_are_read(
    db: Database, tmp_path: Path
) -> None:
    path = tmp_path / "notes.jsonl.gz"
    lines = (json.dumps({"id": str(n), "text": f"Note {n} of many"}) for n in range(2000))
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    assert db.import_from(path).added == {"documents": 2000}
    execute(tmp_path / "a.db", "PRAGMA journal_mode = wal; CREATE TABLE notes (text)")
    execute(tmp_path / "a.db", "INSERT INTO notes VALUES ('a note')")
    os.truncate(tmp_path / "a.db", 50_000_000)
    done = db.import_from(tmp_path / "a.db", table="notes", text=["text"])
    assert done.added == {"documents": 1}


ITEMS: list[Item] = [
    ImportedDocument(
        id="a\ud83d",
        text="Tea, \u00e9 \ud83d",
        library="l",
        metadata={"a": [1, {"b": None}], "c": 1.5},
        embeddings={"Tea, \u00e9 \ud83d": b"\0\1\2\3", "Tea": b"abcd"},
        model="m",
    ),
    ImportedMemory(
        id="c",
        thread="t",
        source="user",
        text="",
        created_at="",
        tags=["a", "b"],
        images=[Image(data=b"\x89PNG", metadata={"w": 1}), Image(data=b"")],
    ),
    ImportedVector(id="v", values=b"\0" * 8, store="s", metadata={"x": True}),
    OwnRecord(fields={"kind": "document", "text": "x", "n": [1]}),
    FollowedFolder(library="l", root="/r", pattern="*", ignore=["a"], descriptions={"": "all"}),
    LeftOut(id="a", reason="b"),
    UnreadPart(what="c"),
]


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: type(item).__name__)
def test_an_item_crosses_as_it_is(item: Item) -> None:
    assert reading.unpack(reading.pack(item)) == item


@pytest.mark.parametrize(
    "said",
    [
        {"item": "ImportedVector", "values": "AAAA", "id": 1, "store": "s"},
        {"item": "ImportedVector", "values": "***", "id": "1", "store": "s"},
        {"item": "ImportedVector", "values": 4, "id": "1", "store": "s"},
        {"item": "ImportedVector", "id": "1", "store": "s"},
        {"item": "ImportedDocument", "embeddings": {"a": 1}, "id": "1", "text": "", "library": ""},
        {"item": "ImportedMemory", "images": [{"data": "", "mime_type": 5, "metadata": {}}]},
        {"item": "ImportedMemory", "images": [[1, 5, {}]]},
        {"item": "ImportedMemory", "tags": [1]},
        {"item": "OwnRecord", "fields": []},
        {"item": "Path"},
        {"item": "UnreadPart", "what": ["x"]},
        {"item": "UnreadPart", "what": "x", "more": "y"},
        {},
    ],
)
def test_an_invalid_item_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, LookupError)):
        reading.unpack(json.dumps(said).encode())


def test_an_item_that_is_too_large_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_ITEM", 100_000)
    item = ImportedVector(id="v", values=b"", store="s", metadata={"x": "y" * 100_000})
    assert reading.unpack(reading.pack(item)) == LeftOut(
        id="v", reason="it is larger than an item may be"
    )


def test_a_folder_that_nobody_named_is_not_confirmed() -> None:
    item = FollowedFolder(library="l", root="/home/somebody", pattern="*", confirmed=True)
    assert reading.checked_folder(item, "/home/somebody") == item
    with pytest.raises(ValueError, match="another folder than the one that was named"):
        reading.checked_folder(item, "/home/somebody/vault")


def test_links_in_a_folder_are_followed(db: Database, tmp_path: Path) -> None:
    folder = tmp_path / "projects"
    folder.mkdir()
    session = {"sessionId": "s", "type": "user", "uuid": "1", "message": {"content": "Hello"}}
    (folder / "a.jsonl").write_text(json.dumps(session))
    (tmp_path / "elsewhere.jsonl").write_text(json.dumps(session | {"uuid": "2"}))
    (folder / "link.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    assert db.import_from(folder).added == {"memories": 2}


CONFINED = """
import sys
from mcpvectordb.ingest.sandbox import confine
confine(sys.argv[1:3])
for path in sys.argv[1:]:
    try:
        print(open(path).read())
    except OSError as error:
        print(type(error).__name__)
try:
    open(sys.argv[1], "a")
except OSError as error:
    print(type(error).__name__)
"""


@pytest.mark.skipif(bool(sandbox.lacking()), reason=sandbox.lacking())
def test_the_process_reads_its_source_and_nothing_else(tmp_path: Path) -> None:
    for name in ("source", "copies", "secret"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(name)
    paths = [tmp_path / "source" / "a", tmp_path / "copies", tmp_path / "copies" / "a"]
    command = [sys.executable, "-c", CONFINED, *map(str, paths), str(tmp_path / "secret" / "a")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "source",
        "IsADirectoryError",
        "copies",
        "PermissionError",
        "PermissionError",
    ]
