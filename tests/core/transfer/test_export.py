"""Exports: one snapshot in four formats, complete or not there at all."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import os
import re
import stat
import sys
import threading
import unicodedata
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpvectordb import Database, Image, InvalidInput, NotFound, Progress, Unwritable
from mcpvectordb.ingest.formats.text import parse_markdown
from mcpvectordb.records import Source
from mcpvectordb.transfer.export import COLUMNS, LONGEST_NAME, FileNames, page, target_format
from tests.support import Letters


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """A file with something on every shelf."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "tea.md").write_text("---\nyear: 2024\n---\n# Tea\n\nWater at 80 degrees.\n")
    with Database(tmp_path / "notes.db", embedder=Letters()) as db:
        db.documents.add_library("notes", notes, description="What I drink")
        db.documents.sync()
        db.documents.ingest_text("print('a')\n", source="tools/a.py", library="code")
        db.documents.ingest_text(
            "=1+1, says the sheet", source="https://example.org/a?b", metadata={"tags": ["x", "y"]}
        )
        db.memories.add(
            "plans",
            "user",
            "Rotate the signing keys in May.",
            tags=["keys"],
            metadata={"status": "open"},
            images=[Image(data=b"\x89PNG\r\n\x1a\n", mime_type="image/png")],
        )
        db.memories.add("plans", "agent", "Done: keys rotated.")
        db.vectors.add("v1", np.array([1, 2, 3], np.float32), metadata={"colour": "red"})
        db.vectors.add("v2", [0.1, 0.2], store="exact", namespace="n", metric="dot")
        yield db


# The target.


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("OUT.JSONL", ("jsonl", False)),
        ("out.jsonl.gz", ("jsonl", True)),
        ("out.ndjson", ("jsonl", False)),
        ("out.csv.gz", ("csv", True)),
        ("out.parquet", ("parquet", False)),
        ("out", ("markdown", False)),
    ],
)
def test_the_name_decides_on_the_format(name: str, expected: tuple[str, bool]) -> None:
    assert target_format(Path(name), None) == expected


def test_a_folder_with_a_dot_in_its_name_gets_markdown(tmp_path: Path) -> None:
    (tmp_path / "v1.2").mkdir()
    assert target_format(tmp_path / "v1.2", None) == ("markdown", False)


@pytest.mark.parametrize(
    ("name", "format", "message"),
    [
        ("out.xlsx", None, "does not end with .jsonl, .csv or .parquet"),
        ("out.jsonl", "xml", "format must be jsonl, markdown, csv, parquet, not 'xml'"),
        ("out.parquet.gz", None, "only jsonl and csv are written as .gz"),
    ],
)
def test_an_unknown_format_is_refused(name: str, format: str | None, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        target_format(Path(name), format)


def test_a_file_is_for_its_owner_and_never_replaced_without_being_asked(
    db: Database, tmp_path: Path
) -> None:
    path = tmp_path / "out.jsonl"
    done = db.export_to(path)
    assert (done.documents, done.memories, done.vectors) == (3, 2, 2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match="exists already"):
        db.export_to(path)
    assert path.read_bytes() == before
    db.export_to(path, overwrite=True)
    with pytest.raises(InvalidInput, match="is the database itself"):
        db.export_to(db.path, format="jsonl", overwrite=True)


def test_a_folder_that_is_not_empty_is_never_overwritten(db: Database, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    db.export_to(tmp_path / "out")
    with pytest.raises(InvalidInput, match="a folder is never overwritten"):
        db.export_to(tmp_path / "out", overwrite=True)


def test_a_missing_folder_is_named(db: Database, tmp_path: Path) -> None:
    for name in ("no/out.jsonl", "no/out"):
        with pytest.raises(Unwritable, match="does not exist: make it first"):
            db.export_to(tmp_path / name)


def test_an_export_that_fails_leaves_nothing(db: Database, tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    before = sorted(each.name for each in tmp_path.iterdir())
    for name in ("out.jsonl", "out.csv", "out.parquet", "out"):
        with pytest.raises(KeyboardInterrupt):
            db.export_to(tmp_path / name, progress=stop)
    assert sorted(each.name for each in tmp_path.iterdir()) == before


def test_what_a_killed_export_left_is_removed_by_the_next_one(db: Database, tmp_path: Path) -> None:
    old, new = (tmp_path / f".out.{digit * 32}.part" for digit in "ab")
    for part in (old, new):
        (part / "documents").mkdir(parents=True)
        (part / "documents" / "a.md").write_text("A")
    for path in (old, *old.rglob("*")):
        os.utime(path, (0, 0))
    db.export_to(tmp_path / "out")
    assert not old.exists() and new.exists()


# What is in it.


def test_one_library_is_exported_alone(db: Database, tmp_path: Path) -> None:
    done = db.export_to(tmp_path / "out.jsonl", library="code")
    assert (done.documents, done.memories, done.vectors) == (1, 0, 0)
    kinds = [each["kind"] for each in records(tmp_path / "out.jsonl")[1:]]
    assert kinds == ["document", "end"]
    with pytest.raises(NotFound, match="code"):
        db.export_to(tmp_path / "other.jsonl", library="cod")


def test_what_others_write_meanwhile_is_not_in_it(db: Database, tmp_path: Path) -> None:
    """The first item that is counted lets another thread add memories; they come too late."""

    def write(progress: Progress) -> None:
        if progress.done == 1:
            thread = threading.Thread(target=db.memories.add, args=("late", "user", "Too late."))
            thread.start()
            thread.join()

    db.export_to(tmp_path / "out.jsonl", progress=write)
    assert db.memories.count(thread="late") == 1
    assert "Too late" not in (tmp_path / "out.jsonl").read_text("utf-8")


def test_progress_counts_every_item(db: Database, tmp_path: Path) -> None:
    seen: list[Progress] = []
    db.export_to(tmp_path / "out.csv", progress=seen.append)
    assert [(each.done, each.total) for each in seen] == [(done, 7) for done in range(1, 8)]


def test_what_a_format_does_not_hold_is_said(db: Database, tmp_path: Path) -> None:
    done = db.export_to(tmp_path / "out")
    assert (done.vectors, done.left_out) == (0, ("2 vectors, which have no text",))
    assert db.export_to(tmp_path / "out.csv").left_out == ("1 images",)
    assert db.export_to(tmp_path / "out.jsonl").left_out == ()


def test_an_empty_file_can_be_exported(tmp_path: Path) -> None:
    with Database(":memory:") as db:
        for name in ("out.jsonl", "out.csv", "out.parquet", "out"):
            assert db.export_to(tmp_path / name).documents == 0
    first, last = records(tmp_path / "out.jsonl")
    assert first["model"] is None and last == {"kind": "end", "items": 0}


# JSONL.


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]


def test_everything_stands_in_lines_of_its_own(db: Database, tmp_path: Path) -> None:
    db.export_to(tmp_path / "out.jsonl")
    header, *others = records(tmp_path / "out.jsonl")
    assert header["mcpvectordb"] == 1
    assert header["model"] == {"name": "letters", "digest": "", "dimension": 32}
    kinds = [each["kind"] for each in others]
    assert kinds == (
        ["library"] + ["document"] * 3 + ["context"] * 2 + ["store"] * 2 + ["vector"] * 2 + ["end"]
    )
    tea = others[1]
    assert tea["text"] == "---\nyear: 2024\n---\n# Tea\n\nWater at 80 degrees.\n"
    assert tea["metadata"] == {"year": 2024} and tea["title"] == "Tea"
    [chunk] = tea["chunks"]
    embedding = np.frombuffer(base64.b64decode(chunk["embedding"]), "<f4")
    passage = tea["text"][chunk["start"] : chunk["end"]]
    assert np.array_equal(embedding, Letters().embed([f"Tea\n{passage}"])[0])
    db.export_to(tmp_path / "out.jsonl.gz")
    with gzip.open(tmp_path / "out.jsonl.gz", "rt", encoding="utf-8") as file:
        assert [json.loads(line) for line in file][1:] == others


# Markdown.


def test_documents_and_memories_become_files_with_front_matter(
    db: Database, tmp_path: Path
) -> None:
    db.export_to(tmp_path / "out")
    found = {path.relative_to(tmp_path / "out").as_posix() for path in tmp_path.rglob("out/**/*.*")}
    assert {
        "documents/notes/tea.md",
        "documents/code/tools/a.py.md",
        "documents/default/example.org/a_b.md",
        "contexts/plans/1.md",
        "contexts/plans/1.1.png",
        "contexts/plans/2.md",
    } <= found
    tea = (tmp_path / "out/documents/notes/tea.md").read_text("utf-8")
    assert tea.startswith("---\ntitle: Tea\nmcpvectordb:\n")
    assert tea.endswith("\nyear: 2024\n---\n# Tea\n\nWater at 80 degrees.\n")
    code = (tmp_path / "out/documents/code/tools/a.py.md").read_text("utf-8")
    assert code.endswith("---\n```py\nprint('a')\n```")
    memory = (tmp_path / "out/contexts/plans/1.md").read_text("utf-8")
    assert memory.startswith("---\ntags:\n- keys\nmcpvectordb:\n") and "- 1.1.png" in memory
    assert memory.endswith("\nstatus: open\n---\nRotate the signing keys in May.")


def test_the_folder_can_be_ingested_again(db: Database, tmp_path: Path) -> None:
    db.export_to(tmp_path / "out")
    with Database(tmp_path / "again.db", embedder=Letters()) as again:
        done = again.documents.ingest_folder(tmp_path / "out")
        assert done.indexed == 5 and not done.failures
        [tea] = again.documents.browse(where={"title": "Tea"})
        assert tea.metadata["year"] == 2024 and tea.metadata["mcpvectordb"]["library"] == "notes"
        [sheet] = again.documents.browse(where={"metadata.mcpvectordb.library": "default"})
        assert sheet.metadata["tags"] == ["x", "y"]
        assert again.documents.search("signing keys May", mode="text")


text = st.text(st.characters(codec="utf-8"), max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(text.filter(bool), values))
def test_front_matter_is_read_as_it_was_written(metadata: dict[str, Any]) -> None:
    own = {"mcpvectordb": {"id": "1"}}
    raw = page(own, metadata, "Text.")
    parsed = parse_markdown(Source(source="a.md", name="a.md", raw=raw, file_type="md"))
    assert parsed.metadata == {**metadata, **own}


# CSV and Parquet, which have the same rows.


def test_a_table_has_a_row_for_each_passage_and_vector(db: Database, tmp_path: Path) -> None:
    db.export_to(tmp_path / "out.csv.gz")
    db.export_to(tmp_path / "out.parquet")
    with gzip.open(tmp_path / "out.csv.gz", "rt", encoding="utf-8", newline="") as file:
        cells = list(csv.DictReader(file))
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    rows = table.to_pylist()
    assert tuple(cells[0]) == tuple(table.column_names) == COLUMNS
    for found in cells, rows:
        assert [row["shelf"] for row in found] == (
            ["documents"] * 3 + ["contexts"] * 2 + ["vectors"] * 2
        )
        assert (
            found[0]["text"] == "# Tea\n\nWater at 80 degrees." and found[0]["model"] == "letters"
        )
        assert found[2]["text"] == "=1+1, says the sheet"
        assert found[3]["thread"] == "plans" and found[3]["id"] == "1#0"
        assert found[6]["store"] == "exact"
    assert rows[0]["first_line"] == 4 and cells[0]["first_line"] == "4"
    assert rows[3]["tags"] == ["keys"] and rows[0]["tags"] is None
    assert cells[3]["tags"] == '["keys"]' and cells[0]["tags"] == ""
    # float32 would not hold 0.1 exactly, so all numbers of this file are float64
    assert [row["embedding"] for row in rows[5:]] == [[1, 2, 3], [0.1, 0.2]]
    for row, cell in zip(rows, cells, strict=True):
        assert json.loads(cell["embedding"]) == row["embedding"]


def test_float32_stays_float32(tmp_path: Path) -> None:
    with Database(":memory:") as db:
        db.vectors.add_many(
            [str(each) for each in range(2_500)], np.ones((2_500, 8), np.float32) / 4
        )
        db.export_to(tmp_path / "out.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert str(table.schema.field("embedding").type.value_type) == "float"
    assert table["id"].to_pylist() == [str(each) for each in range(2_500)]


def test_without_pyarrow_the_extra_is_named(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidInput, match=r"pip install 'mcpvectordb\[parquet\]'"):
        db.export_to(tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)\s*(\.|$)")  # on Windows


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("notes/tea.md", "notes/tea.md"),
        ("report.pdf", "report.pdf.md"),
        ("../../etc/passwd", "etc/passwd.md"),
        ("C:\\Users\\me\\a.txt", "C_/Users/me/a.txt.md"),
        ("con/aux.md", "_con/_aux.md"),
        (".env", "_.env.md"),
        ("a.md/b.md", "a.md_/b.md"),
        ("x\x00y\nz", "x_y_z.md"),
        ("...", "_.md"),
        ("ends. /with. ", "ends/with.md"),
    ],
)
def test_a_source_becomes_a_path_that_stays_inside(source: str, name: str) -> None:
    assert FileNames().of(["documents"], source, "id") == f"documents/{name}"


def test_equal_names_are_told_apart_by_the_id_also_where_case_does_not_count() -> None:
    names = FileNames()
    first, second, third = (names.of(["d"], each, each) for each in ("Tea.md", "tea.md", "TEA"))
    assert first == "d/Tea.md" and second == "d/tea tea.md.md" and third == "d/TEA TEA.md"


texts = st.text(st.characters(codec="utf-8"), max_size=300) | st.text("./\\ aA:", max_size=12)


@given(texts, st.lists(texts, min_size=1, max_size=20))
def test_any_source_gets_a_path_of_its_own_on_any_system(library: str, sources: list[str]) -> None:
    names = FileNames()
    found = [names.of(["d", library], each, str(place)) for place, each in enumerate(sources)]
    assert len({unicodedata.normalize("NFC", each).casefold() for each in found}) == len(found)
    for each in found:
        posix, windows = PurePosixPath(each), PureWindowsPath(each)
        assert posix.parts == windows.parts and posix.parts[0] == "d" and len(posix.parts) > 2
        assert not windows.drive and not any(map(RESERVED.match, posix.parts))
        for part in posix.parts:
            assert 0 < len(part.encode()) <= LONGEST_NAME + 4
            assert not part.startswith(".") and not part.endswith((".", " ")) and "\x00" not in part
        assert each.endswith(".md") and not any(part.endswith(".md") for part in posix.parts[:-1])


@pytest.mark.parametrize("thread", ["../../x", "/etc", "..\\x", "a/../../b", "..", "."])
def test_a_thread_does_not_leave_its_folder_either(thread: str) -> None:
    place, inner, name = FileNames().of(["contexts", thread], "1", "1").split("/")
    assert place == "contexts" and name == "1.md" and not inner.startswith(".")
