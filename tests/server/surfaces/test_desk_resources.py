from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Config, Database, InvalidInput, NotFound
from mcpvectordb_server.surface import ListedResource, Position
from mcpvectordb_server.surfaces import desk_resources
from mcpvectordb_server.surfaces.desk import SURFACE
from mcpvectordb_server.surfaces.desk_resources import DOCUMENTS, PAGE, page
from tests.support import Letters

TEMPLATES = {each.name: each for each in SURFACE.templates}


@pytest.fixture
def db(path: Path) -> Iterator[Database]:
    with Database(path, embedder=Letters()) as opened:
        yield opened


def pages(db: Database) -> Iterator[list[ListedResource]]:
    """All pages of the listing."""
    found, after = page(db, ())
    yield found
    while after:
        found, after = page(db, after)
        yield found


def names(db: Database) -> list[str]:
    return [each.name for some in pages(db) for each in some]


def ingest(db: Database, sources: list[str], library: str = "default") -> None:
    db.documents.ingest_many(
        [f"About {each}." for each in sources], sources=sources, library=library, embed=False
    )


def test_every_document_and_memory_is_listed_once_page_by_page(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(db, [f"notes/{number:02}.md" for number in range(25)], "work")
    ingest(db, [f"{number}.md" for number in range(12)], "home")
    for number in range(15):
        db.memories.add("tea", "agent", f"fact {number}")
    monkeypatch.setattr(desk_resources, "PAGE", 10)
    listed = list(pages(db))
    assert [len(each) for each in listed] == [10, 10, 10, 10, 10, 2]
    every = [each.name for some in listed for each in some]
    documents = [each.path for each in db.documents.browse(sort="path", limit=100)]
    assert every == [*documents, *(f"memory:{id}" for id in range(15, 0, -1))]


def test_documents_of_one_source_are_one_resource_and_hide_no_others(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_resources, "PAGE", 5)
    twin = tmp_path / "twin.md"
    for number in range(7):
        twin.write_text(f"Text {number}.")
        db.documents.ingest(twin, duplicate=True, embed=False)
    ingest(db, [f"{number:02}.md" for number in range(12)])
    ingest(db, [f"z{number}.md" for number in range(3)])
    assert sorted(names(db)) == sorted({each.path for each in db.documents.browse(limit=100)})


def test_what_stays_is_listed_once_although_others_come_and_go_between_pages(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_resources, "PAGE", 3)
    ingest(db, [f"{letter}.md" for letter in "bdfhj"])
    for number in range(5):
        db.memories.add("tea", "agent", f"fact {number}")
    stay = [name for name in names(db) if name not in ("default/b.md", "memory:5", "memory:3")]
    seen: list[str] = []
    for number, some in enumerate(pages(db)):
        seen += [each.name for each in some]
        if number == 0:  # in front, behind, and where the page ended
            db.documents.delete(where={"source": {"in": ["b.md", "f.md"]}})
            ingest(db, ["a.md", "g.md"])
            db.documents.ingest_text("Another text.", source="h.md", replace=True, embed=False)
        if number == 2:
            db.memories.delete([5, 3])
            db.memories.add("tea", "agent", "a new fact")
    for name in stay:
        assert seen.count(name) == 1, name
    assert "default/g.md" in seen and "default/a.md" not in seen


def test_memories_of_one_moment_are_all_listed(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_resources, "PAGE", 2)
    monkeypatch.setattr(db.memories, "_now", lambda: "2025-11-29T10:00:00.000000+00:00")
    for number in range(7):
        db.memories.add("tea", "agent", f"fact {number}")
    assert len({each.created_at for each in db.memories}) == 1
    assert names(db) == [f"memory:{id}" for id in range(7, 0, -1)]


def test_a_page_of_many_documents_reads_a_page_of_them(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(db, [f"{number:05}.md" for number in range(3 * PAGE)])
    plans = []
    with db._file.reading() as sql:
        for which in desk_resources._documents_behind(None, "default", "00150.md"):
            from mcpvectordb.documents.rows import SORTS, document_filter

            chosen = document_filter(which.get("library"), which["where"])
            plan = sql.execute(
                f"EXPLAIN QUERY PLAN SELECT d.key FROM published_documents d WHERE "
                f"{chosen.condition} ORDER BY {SORTS['path']} LIMIT {PAGE}",
                chosen.bindings,
            )
            plans.append(" ".join(str(row[-1]) for row in plan))
    for plan in plans:
        assert "SEARCH documents USING COVERING INDEX documents_by_source" in plan
        assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize(
    "position",
    [
        ("documents",),
        ("tools", "a", "b"),
        ("memories", "yesterday evening", "7"),
        ("memories", "2025-11-29T10:00:00", "seven"),
        ("documents", "", "", ""),
    ],
)
def test_a_position_that_is_none_is_refused(db: Database, position: Position) -> None:
    with pytest.raises(InvalidInput):
        page(db, position)


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=6, unique=True))
def test_each_uri_reads_the_document_that_was_listed(sources: list[str]) -> None:
    with Database(":memory:", embedder=Letters()) as db:
        stored = {}
        for source in sources:
            try:
                done = db.documents.ingest_text(f"About {source!r}.", source=source, embed=False)
            except InvalidInput:
                continue
            stored[done.document.path] = done.document
        for each in page(db, ())[0]:
            assert each.uri.startswith(DOCUMENTS) and each.uri.isascii()
            path = unquote(each.uri.removeprefix(DOCUMENTS))
            assert path == each.name
            if path.strip() == path:  # places are typed, so blanks around them do not count
                text = TEMPLATES["document"].read(db, path)
                assert f"About {stored[path].source!r}." in text


def test_in_a_project_its_documents_and_memories_are_listed_and_completed(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        ingest(db, ["a.md"], "sea/maps")
        ingest(db, ["b.md"], "sea")
        ingest(db, ["c.md"], "land")
        db.memories.add("sea/ships", "agent", "one", tags=["wet"])
        db.memories.add("land", "agent", "two", tags=["dry"])
    with Database(path, embedder=Letters(), config=Config(project="sea")) as db:
        assert names(db) == ["sea/b.md", "sea/maps/a.md", "memory:1"]
        completed = {
            name: each.complete(db, "") for name, each in TEMPLATES.items() if each.complete
        }
        assert completed == {
            "document": ["sea/b.md", "sea/maps/a.md"],
            "memory": ["1"],
            "library": ["sea", "sea/maps"],
            "thread": ["sea/ships"],
            "tag": ["wet"],
        }
        assert "two" in TEMPLATES["memory"].read(db, "2")  # order, not a wall: as `read` has it


def test_paths_ids_and_names_are_completed_from_what_was_typed(db: Database) -> None:
    ingest(db, ["tea.md", "coffee.md", "tables.md"], "Drinks")
    for number in range(12):
        db.memories.add(f"Thread {number}", "agent", f"fact {number}", tags=[f"tag{number}"])
    complete = {name: each.complete for name, each in TEMPLATES.items()}
    assert complete["document"](db, "Drinks/t") == ["Drinks/tables.md", "Drinks/tea.md"]
    assert complete["document"](db, "ffee") == ["Drinks/coffee.md"]
    assert complete["document"](db, "wine") == []
    assert complete["memory"](db, "1") == ["12", "11", "10", "1"]
    assert complete["library"](db, "dri") == ["Drinks"]
    assert complete["thread"](db, "thread 1") == ["Thread 1", "Thread 10", "Thread 11"]
    assert complete["tag"](db, "1") == ["tag1", "tag10", "tag11"]


def test_libraries_threads_and_tags_read_as_what_is_in_them(db: Database) -> None:
    ingest(db, ["tea.md"], "drinks")
    db.memories.add("plans", "agent", "Buy a kettle.", tags=["open"])
    assert "drinks/tea.md" in TEMPLATES["library"].read(db, "drinks")
    assert "Buy a kettle." in TEMPLATES["thread"].read(db, "plans")
    assert "Buy a kettle." in TEMPLATES["tag"].read(db, "open")
    assert "None of 0" in TEMPLATES["library"].read(db, "food")


def test_a_long_document_is_read_in_part_with_how_to_go_on(db: Database) -> None:
    text = "".join(f"Line {number} is one of very many lines.\n" for number in range(10_000))
    db.documents.ingest_text(text, source="long.md", embed=False)
    read = TEMPLATES["document"].read(db, "default/long.md")
    assert len(read) <= 160_000 and "go on: read default/long.md:" in read
    assert "Line 8999 is" in TEMPLATES["document"].read(db, "default/long.md:9000-9001")


def test_what_is_watched_has_another_value_after_each_change(db: Database) -> None:
    ingest(db, ["tea.md"])
    memory = db.memories.add("tea", "agent", "80 degrees").memory
    document = TEMPLATES["document"].watched(db, "default/tea.md")
    fact = TEMPLATES["memory"].watched(db, str(memory.id))
    seen = [document(), fact()]
    db.documents.ingest_text("Anew.", source="tea.md", replace=True, embed=False)
    seen.append(document())
    db.documents.update(db.documents.browse()[0].id, title="Tea")
    seen.append(document())
    db.memories.update(memory.id, tags=["drink"])
    seen.append(fact())
    db.documents.delete(where={"source": "tea.md"})
    db.memories.delete([memory.id])
    seen += [document(), fact()]
    assert all(seen.count(each) == 1 for each in seen[:-2])
    assert (len(document()), fact()) == (0, [])
    ingest(db, ["tea.md"])
    assert len(document()) == 1


@pytest.mark.parametrize("id", ["7", "", "x", "²", "9" * 30, "-1", "1.0"])
def test_a_memory_that_is_not_there_cannot_be_watched(db: Database, id: str) -> None:
    with pytest.raises(NotFound):
        TEMPLATES["memory"].watched(db, id)
