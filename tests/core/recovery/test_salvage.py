from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import apsw
import pytest

from mcpvectordb import (
    Config,
    Damaged,
    Database,
    InvalidInput,
    NotOurFile,
    Unreadable,
    Unwritable,
)
from mcpvectordb.recovery.salvage import salvage
from mcpvectordb.storage.file import PAGE_SIZE
from tests.support import Letters, leave_a_foreign_log, python

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures").glob("version-*.db"))


@pytest.fixture
def filled(path: Path) -> dict[str, str]:
    """The texts of a file with documents of many chunks, some without embeddings, and vectors."""
    rng = random.Random(7)
    words = "harbour lamp keeper signal winter bread letter engine coast tide".split()
    lines = [" ".join(rng.choices(words, k=12)) for _ in range(200)]
    texts = {
        f"{number}.md": f"# Note {number}\n\n" + "\n\n".join(rng.choices(lines, k=number % 30))
        for number in range(90)
    }
    with Database(path, embedder=Letters(), config=Config(chunk_size=150)) as db:
        for source, text in texts.items():
            db.documents.ingest_text(
                text, source=source, metadata={"n": source}, embed=len(source) > 4
            )
        for document in db.documents.browse(limit=5):
            db.documents.delete(document.id)
            del texts[document.source]
        for number in range(30):
            db.vectors.add(f"v{number}", [number + 0.5, 1, 2])
    return texts


def texts_in(path: Path) -> dict[str, str]:
    with Database(path, embedder=Letters()) as db:
        assert db.check() == []
        return {
            each.source: db.documents.text(each.id) for each in db.documents.browse(limit=1_000)
        }


def pages_of(path: Path, table: str) -> list[int]:
    sql = apsw.Connection(str(path))
    pages = [
        page
        for (page,) in sql.execute(
            "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf'", (table,)
        )
    ]
    sql.close()
    return pages


def overwrite(path: Path, page: int, content: bytes = b"\xa5" * PAGE_SIZE) -> None:
    with path.open("rb+") as file:
        file.seek((page - 1) * PAGE_SIZE)
        file.write(content)


def test_a_sound_file_is_salvaged_completely(
    path: Path, tmp_path: Path, filled: dict[str, str]
) -> None:
    before = path.read_bytes()
    done = salvage(path, tmp_path / "out.db", embedder=Letters())
    assert path.read_bytes() == before and texts_in(tmp_path / "out.db") == filled
    assert (
        done.incomplete == done.lost == ()
        and done.rows["documents"] == len(filled)
        and done.rows["vectors"] == 30
    )
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out.db", "test.db"]
    with (
        Database(path, embedder=Letters()) as one,
        Database(tmp_path / "out.db", embedder=Letters()) as other,
    ):
        assert [one.stats().chunks, one.stats().pending] == [
            other.stats().chunks,
            other.stats().pending,
        ]
        assert [
            (hit.item, hit.score) for hit in one.documents.search("harbour tide", limit=20)
        ] == [(hit.item, hit.score) for hit in other.documents.search("harbour tide", limit=20)]
        assert one.vectors.get("v3") == other.vectors.get("v3")


def test_of_a_damaged_page_only_what_was_on_it_is_lost(
    path: Path, tmp_path: Path, filled: dict[str, str]
) -> None:
    pages = pages_of(path, "document_chunks")
    overwrite(path, pages[len(pages) // 2])
    with Database(path, embedder=Letters()) as db:
        assert db.check()
        with pytest.raises(Damaged, match="salvage"):
            db.rebuild()
    done = salvage(path, tmp_path / "out.db", embedder=Letters())
    found = texts_in(tmp_path / "out.db")
    lost = [source for source in filled if source not in found]
    changed = [source for source in found if found[source] != filled[source]]
    assert 0 < len(lost) + len(changed) < len(filled) / 2
    assert set(changed) <= set(done.incomplete) and all(
        f"the whole text of document {source}" in done.lost for source in lost
    )
    assert all(line in filled[source] for source in changed for line in found[source].splitlines())


def test_an_incomplete_text_is_replaced_when_its_source_is_ingested_again(
    path: Path, tmp_path: Path, filled: dict[str, str]
) -> None:
    overwrite(path, pages_of(path, "document_chunks")[2])
    done = salvage(path, tmp_path / "out.db", embedder=Letters())
    with Database(tmp_path / "out.db", embedder=Letters()) as db:
        assert {
            db.documents.ingest_text(filled[source], source=source).status
            for source in done.incomplete
        } == {"replaced"}
        whole = next(
            source
            for source in filled
            if db.documents.browse(where={"source": source}) and source not in done.incomplete
        )
        assert db.documents.ingest_text(filled[whole], source=whole).status == "unchanged"
        assert db.check() == []


def test_texts_without_their_document_are_named_by_a_number(
    path: Path, tmp_path: Path, filled: dict[str, str]
) -> None:
    for page in pages_of(path, "documents"):
        overwrite(path, page)
    done = salvage(path, tmp_path / "out.db", embedder=Letters())
    found = texts_in(tmp_path / "out.db")
    assert sorted(found.values()) == sorted(filled.values())
    assert all(source.startswith("salvaged/") for source in found) and set(done.incomplete) == set(
        found
    )


@pytest.mark.parametrize("spoil", [bytes(PAGE_SIZE), b"\xa5" * PAGE_SIZE], ids=["zeros", "noise"])
def test_without_its_first_page_a_file_is_salvaged_completely(
    path: Path, tmp_path: Path, filled: dict[str, str], spoil: bytes
) -> None:
    overwrite(path, 1, spoil)
    with pytest.raises(NotOurFile):
        Database(path)
    salvage(path, tmp_path / "out.db", embedder=Letters())
    assert texts_in(tmp_path / "out.db") == filled


def test_without_its_schema_a_new_or_compacted_file_is_salvaged_completely(
    path: Path, tmp_path: Path, filled: dict[str, str]
) -> None:
    with Database(path, embedder=Letters()) as db:
        db.copy_to(tmp_path / "copy.db")
    for name in ("test.db", "copy.db"):
        for page in pages_of(tmp_path / name, "sqlite_schema"):
            overwrite(tmp_path / name, page)
        salvage(tmp_path / name, tmp_path / f"{name}.out", embedder=Letters())
        assert texts_in(tmp_path / f"{name}.out") == filled


def test_of_a_truncated_file_what_is_before_the_end_is_salvaged(
    path: Path, tmp_path: Path, filled: dict[str, str]
) -> None:
    size = path.stat().st_size
    with path.open("rb+") as file:
        file.truncate(size * 9 // 10)
    done = salvage(path, tmp_path / "out.db", embedder=Letters())
    found = texts_in(tmp_path / "out.db")
    assert len(set(filled.values()) & set(found.values())) > len(filled) / 4
    assert all(source in done.incomplete for source in found if found[source] != filled.get(source))


def test_rows_in_the_write_ahead_log_are_salvaged(path: Path, tmp_path: Path) -> None:
    done = python(
        """
import os, sys
from mcpvectordb import Database
from tests.support import Letters
db = Database(sys.argv[1], embedder=Letters())
for number in range(20): db.documents.ingest_text(f"text {number}", source=str(number))
os._exit(0)
""",
        str(path),
    )
    assert done.returncode == 0, done.stderr
    overwrite(path, 1, bytes(100))
    salvage(path, tmp_path / "out.db", embedder=Letters())
    assert texts_in(tmp_path / "out.db") == {str(number): f"text {number}" for number in range(20)}


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
def test_a_file_of_an_old_format_is_salvaged_into_one_of_the_newest(
    fixture: Path, path: Path, tmp_path: Path
) -> None:
    shutil.copy(fixture, path)
    # Everything in the header that comes before the version of the format.
    overwrite(path, 1, path.read_bytes()[:16] + bytes(44))
    salvage(path, tmp_path / "out.db", embedder=Letters())
    assert texts_in(tmp_path / "out.db")["boats.md"].endswith("Sails catch the wind.\n")


def test_paths_that_cannot_be_salvaged_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="does not exist, or is not a file"):
        salvage(path, tmp_path / "out.db")
    path.write_text("precious")
    with pytest.raises(NotOurFile, match="nothing to save"):
        salvage(path, tmp_path / "out.db")
    with pytest.raises(InvalidInput, match="exists already"):
        salvage(path, path)
    with pytest.raises(Unwritable, match="does not exist"):
        salvage(path, tmp_path / "no" / "out.db")
    assert path.read_text() == "precious" and [each.name for each in tmp_path.iterdir()] == [
        "test.db"
    ]


def test_the_command_reports_what_was_salvaged(
    path: Path, tmp_path: Path, filled: dict[str, str]
) -> None:
    overwrite(path, pages_of(path, "document_chunks")[1])
    run = "import sys; sys.argv[0] = 'mcpvectordb'; from mcpvectordb.cli.main import main; main()"
    done = python(run, "salvage", str(path), str(tmp_path / "out.db"))
    assert (
        done.returncode == 0
        and "saved into" in done.stdout
        and "not sure to be whole" in done.stdout
    ), done.stderr
    done = python(run, "salvage", str(path), str(tmp_path / "json.db"), "--json")
    assert json.loads(done.stdout)["rows"]["vectors"] == 30
    done = python(run, "salvage", str(path), str(tmp_path / "json.db"))
    assert done.returncode == 1 and "exists already" in done.stderr


def test_the_history_of_a_file_is_salvaged(path: Path, tmp_path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("one", source="a.md")
        db.documents.ingest_text("two", source="a.md")
        db.memories.delete([db.memories.add("t", "user", "gone").id])
    salvage(path, tmp_path / "saved.db", embedder=Letters())
    with Database(tmp_path / "saved.db", embedder=Letters()) as db:
        assert db.check() == []
        assert db.undo().restored == ("memory:1",)
        assert db.undo(2).restored == ("default/a.md",)


def test_the_log_of_another_file_is_not_salvaged_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "test.db"
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("written before the backup", source="early.md")
    leave_a_foreign_log(path)
    done = salvage(path, tmp_path / "saved.db", embedder=Letters())
    assert any("log" in each for each in done.lost)
    with Database(done.path, embedder=Letters()) as db:
        assert [each.source for each in db.documents.browse()] == ["early.md"]


def test_a_time_of_another_century_is_mended(path: Path, tmp_path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("tea", source="a.md")
        with db._file.writing() as sql:
            sql.execute("UPDATE history_state SET clock = clock + (1 << 61)")
        assert "the clock is ahead" in db.check()[0]
    salvage(path, tmp_path / "saved.db", embedder=Letters())
    with Database(tmp_path / "saved.db", embedder=Letters()) as db:
        assert db.check() == [] and db.documents.count() == 1
        db.documents.ingest_text("more tea", source="a.md")
        assert db.undo().restored and db.check() == []
