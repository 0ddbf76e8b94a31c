from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvectordb import Chunk, Config, Database
from mcpvectordb.index.chunks import covers_tile, embedding_text
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.recovery.salvage import salvage
from mcpvectordb.storage import fts5
from tests.support import Letters

FRONT = "---\ntitle: Boats\nauthor: Zacharias\n---\n\n"
PROSE = "# Sails\n\nSails catch the wind.\n"
ROWS = "".join(f"| boat {number} | {number} m |\n" for number in range(60))
TABLE = f"# Fleet\n\n| vessel | length |\n|---|---|\n{ROWS}"
CODE = "```py\n" + "".join(f"first_{number} = {number}\n" for number in range(60)) + "```\n"


def found(db: Database, query: str) -> list[Chunk]:
    return [hit.item for hit in db.documents.search(query, mode="text", limit=100)]


@pytest.fixture
def filled(path: Path) -> Path:
    with Database(path, embedder=Letters(), config=Config(chunk_size=80)) as db:
        for source, text in (("sails", FRONT + PROSE), ("fleet", TABLE), ("code", CODE)):
            db.documents.ingest_text(text, source=f"{source}.md")
    return path


def test_words_of_front_matter_find_the_passage_below_it(filled: Path) -> None:
    with Database(filled, embedder=Letters()) as db:
        [chunk] = found(db, "zacharias")
        assert chunk.text == PROSE.rstrip()
        assert db.documents.text(chunk.document.id) == FRONT + PROSE
        assert db.documents.text(chunk.document.id)[chunk.start : chunk.end] == chunk.text
        assert chunk.first_line == 6
        assert db.check() == []


def test_every_part_of_a_table_is_found_and_shown_with_its_header(filled: Path) -> None:
    with Database(filled, embedder=Letters()) as db:
        chunks = found(db, "vessel")
        assert len(chunks) > 2
        assert all("| vessel | length |\n|---|---|\n| boat" in each.passage for each in chunks)
        [last] = found(db, '"boat 59"')
        assert last.passage == f"{last.header}\n{last.text}"
        assert db.documents.text(last.document.id)[last.start : last.end] == last.text


def test_every_part_of_code_is_shown_in_fences(filled: Path) -> None:
    with Database(filled, embedder=Letters()) as db:
        chunks = found(db, "first_7 OR first_35 OR first_59")
        assert len(chunks) > 2
        for each in chunks:
            lines = each.passage.splitlines()
            assert (lines[0], lines[-1]) == ("```py", "```")


def test_rebuilt_and_salvaged_files_keep_headers_and_front_matter(
    filled: Path, tmp_path: Path
) -> None:
    salvage(filled, tmp_path / "out.db", embedder=Letters())
    for path in (filled, tmp_path / "out.db"):
        with Database(path, embedder=Letters()) as db:
            db.rebuild()
            assert db.check() == []
            assert [each.text for each in found(db, "zacharias")] == [PROSE.rstrip()]
            assert len(found(db, "vessel")) > 2


def test_a_changed_byte_of_front_matter_is_noticed(filled: Path) -> None:
    raw = filled.read_bytes()
    assert b"Zacharias" in raw
    filled.write_bytes(raw.replace(b"Zacharias", b"Zechariah"))
    with Database(filled, embedder=Letters()) as db:
        assert any("not the one that came in" in each for each in db.check())


def test_the_rule_of_a_table_is_not_embedded() -> None:
    assert embedding_text("T", ("A",), "| a |\n|---|", "| 1 |") == "T > A\n| a |\n| 1 |"
    assert embedding_text("T", (), "", "") == "T\n"


@pytest.mark.parametrize(("tile", "start", "end", "covered"), [
    ("text\n", 0, 4, True), ("\ufefftext", 1, 5, True), (FRONT + "text", len(FRONT), len(FRONT) + 4, True),
    ("text", 1, 4, False), ("text", 0, 3, False), (FRONT + "text", len(FRONT) + 1, len(FRONT) + 4, False),
    (FRONT + "text", 5, len(FRONT) + 4, False),
])  # fmt: skip
def test_a_chunk_leaves_out_nothing_of_its_tile_but_space_and_front_matter(
    tile: str, start: int, end: int, covered: bool
) -> None:
    assert covers_tile(tile, start, end) is covered


SAME = "the log says that nothing has happened since then\n\n"
OPERATIONS = 100  # of SQLite's virtual machine, after which it reports


def opened(path: Path) -> Database:
    return Database(path, embedder=Letters(), config=Config(chunk_size=16))


def work(db: Database, act: Callable[[], object]) -> int:
    """How many operations SQLite carries out, in hundreds: unlike time, the same on any machine."""
    reports = 0

    def report() -> bool:
        nonlocal reports
        reports += 1
        return False

    with db._file.outside() as sql:
        sql.set_progress_handler(report, OPERATIONS, id="work")
        try:
            act()
        finally:
            sql.set_progress_handler(None, id="work")
    return reports


def test_equal_passages_cost_twice_as_much_when_they_are_twice_as_many(tmp_path: Path) -> None:
    """Writing, embedding, replacing (which copies embeddings) and removing them."""
    costs: list[list[int]] = []
    for count in (600, 1200):
        with opened(tmp_path / f"{count}.db") as db:
            db.documents.ingest_text("first", source="first")
            write = db.documents.ingest_text
            costs.append(
                [
                    work(db, lambda: write(SAME * count, source="a", embed=False)),  # noqa: B023
                    work(db, db.embed_pending),
                    work(db, lambda: write(SAME * count + "x", source="a", embed=False)),  # noqa: B023
                    work(db, lambda: db.documents.delete(db.documents.browse()[0].id)),
                ]
            )
            assert db.stats().chunks == 1 and db.check() == []
    assert all(few > 100 for few in costs[0])
    ratios = [many / few for few, many in zip(*costs, strict=True)]
    assert all(ratio < 2.4 for ratio in ratios), ratios


@pytest.mark.parametrize(("allowed", "left"), [(40, 0), (1000, 41)])
def test_words_of_deleted_rows_are_merged_out_of_the_index_once_they_are_many(
    path: Path, allowed: int, left: int
) -> None:
    tuning = Tuning(deleted_rows=allowed, slice_pages=1)
    with Database(path, embedder=Letters(), config=Config(chunk_size=16), tuning=tuning) as db:
        for source in ("a", "b"):
            db.documents.ingest_text(SAME * 41, source=source)
        db.documents.delete(db.documents.lookup("a").document.id)
        with db._file.reading() as sql:
            assert fts5.count_deleted(sql, "document_words") == left
        assert db.check() == []


def test_words_are_merged_out_while_others_write(path: Path) -> None:
    with (
        Database(path, embedder=Letters(), tuning=Tuning(deleted_rows=0, slice_pages=1)) as db,
        opened(path) as other,
    ):
        for number in range(40):
            db.documents.ingest_text(f"apple {number}", source=f"{number}")
        for number in range(30):
            db.documents.delete(db.documents.lookup(f"{number}").document.id)
            other.documents.ingest_text(f"pear {number}", source=f"{number}")
        found = db.documents.search("apple", mode="text", limit=100)
        assert {int(hit.item.document.source) for hit in found} == set(range(30, 40))
        assert db.check() == []
